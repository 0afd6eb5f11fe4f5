"""Reading JSON and YAML calibrations with errors that say which key or line is wrong; writing files atomically."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from ucpe.files import atomic_file
from ucpe.lenses.base import Lens
from ucpe.lenses.planar import PlanarLens
from ucpe.reading import parse_json, parse_yaml, read_text


class Section:
    """A mapping inside a file, whose entries are read with a check and an error that names file and key."""

    def __init__(self, data: dict[str, Any], file: str, prefix: str = ""):
        self.data = data
        self.file = file
        self.prefix = prefix

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; the default where the key is missing."""
        if key not in self.data and default is not None:
            return default
        value = self._value(key, "a number")
        flat = _flat(value)
        if flat is None or len(flat) != 1:
            raise self.error(key, f"expected a number, got {value!r}")
        return flat[0]

    def whole(self, key: str) -> int:
        """A whole number."""
        value = self.number(key)
        if value != int(value):
            raise self.error(key, f"expected a whole number, got {value:g}")
        return int(value)

    def numbers(self, key: str, names: str | None = None) -> list[float]:
        """A list of finite numbers, also nested or as an OpenCV matrix; as many as there are names, if given."""
        expected = f"{len(names.split())} numbers ({names})" if names else "a list of numbers"
        value = self._value(key, expected)
        flat = _flat(value)
        if flat is None or (names and len(flat) != len(names.split())):
            raise self.error(key, f"expected {expected}, got {value!r}")
        return flat

    def text(self, key: str) -> str:
        """A word."""
        value = self._value(key, "a word")
        if not isinstance(value, str):
            raise self.error(key, f"expected a word, got {value!r}")
        return value

    def section(self, key: str) -> Section:
        """A mapping inside this one."""
        value = self._value(key, "a mapping")
        if not isinstance(value, dict):
            raise self.error(key, f"expected a mapping, got {value!r}")
        return Section(value, self.file, f"{self.prefix}{key}.")

    def first(self, *keys: str) -> str:
        """The first of several spellings of a key that the file has."""
        found = next((key for key in keys if key in self.data), None)
        if found is None:
            raise self.error(keys[0], f"missing (or {', '.join(keys[1:])}); there are {', '.join(map(str, self.data))}")
        return found

    def error(self, key: str, problem: str) -> ValueError:
        """An error that names file and key."""
        return ValueError(f"{self.file}: {self.prefix}{key}: {problem}")

    def _value(self, key: str, expected: str) -> Any:
        if key not in self.data:
            raise self.error(key, f"missing; expected {expected}")
        return self.data[key]


def batch_entry(lens: Lens, camera: str | None, file: str) -> Lens:
    """The lens of the batch entry with number `camera`; the lens as it is if it has no batch or none is asked for."""
    if camera is None or not lens.batch_shape:
        return lens
    count = lens.batch_shape[0]
    if not camera.isdecimal() or int(camera) >= count:
        raise ValueError(f"{file}: no camera {camera!r}; it holds a batch of {count} lenses, 0 to {count - 1}")
    return lens[int(camera)]


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file (safe-loaded; OpenCV's header and matrix tags are understood)."""
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        data = parse_json(text, path)
    else:
        data = parse_yaml(re.sub(r"\A%YAML[:\s].*", "", text), path, tags=("tag:yaml.org,2002:opencv-matrix",))
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected a mapping of names to values, found {type(data).__name__}")
    return {str(key): value for key, value in data.items()}


def calibration(lens: Lens, height: int, width: int) -> dict[str, float]:
    """The parameters of a lens without a batch, scaled in pixels of an image of height x width."""
    if not isinstance(lens, PlanarLens):
        raise ValueError(f"{lens.kind} has no focal length to write")
    return {name: value.item() for name, value in lens.calibrated(height, width).parameters.items()}


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    with atomic_file(path) as file:
        file.write_text(text, encoding="utf-8")


def _flat(value: Any) -> list[float] | None:
    """Numbers in a scalar, a nested list or an OpenCV matrix; None if there is anything else."""
    if isinstance(value, dict):
        value = value.get("data")
    if isinstance(value, list):
        parts = [_flat(item) for item in value]
        return None if None in parts else [number for part in parts if part for number in part]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return [number] if math.isfinite(number) else None
