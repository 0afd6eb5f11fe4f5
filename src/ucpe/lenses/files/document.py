"""Reading JSON and YAML calibrations with errors that say which key or line is wrong; writing files atomically."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.lenses.base import Lens
from ucpe.lenses.planar import PlanarLens
from ucpe.reading import parse_json, parse_yaml, read_text

OPENCV_TAGS = ("tag:yaml.org,2002:opencv-matrix", "tag:yaml.org,2002:opencv-nd-matrix")
"""What OpenCV calls its matrices in YAML, the second those of one dimension."""

SECTION = re.compile(r"\[[A-Za-z][\w/. -]*\]\s*$")
"""The line that begins a section of an .ini file."""

DSO = "DSO's camera"
"""The name under which the lines of DSO's camera.txt stand in the mapping that is made of them."""

OCAM = "OCamCalib's camera"
"""The same for the five lines of OCamCalib's calib_results.txt."""

UNSAID = 0.1
"""Pixels that a lens of ours may be off from the formula it stands for without a word."""

MAX_NUMBERS = 250
"""Named numbers side by side in a calibration: ORB-SLAM3's settings, the longest known, have 47."""


class Section:
    """A mapping inside a file, whose entries are read with a check and an error that names file and key."""

    def __init__(self, data: dict[str, Any], file: str, prefix: str = "", size: tuple[int, int] | None = None):
        self.data = data
        self.file = file
        self.prefix = prefix
        self.size = size
        """Width and height in pixels that the reader was told, for files that do not say."""

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; the default where the key is missing."""
        if key not in self.data and default is not None:
            return default
        value = self._value(key, "a number")
        flat = flat_numbers(value)
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
        flat = flat_numbers(value)
        if flat is None or (names and len(flat) != len(names.split())):
            raise self.error(key, f"expected {expected}, got {value!r}")
        return flat

    def text(self, key: str) -> str:
        """A word."""
        value = self._value(key, "a word")
        if not isinstance(value, str):
            raise self.error(key, f"expected a word, got {value!r}")
        return value

    def one_of(self, key: str, known: Collection[str], usual: str | None = None) -> str:
        """One of the known words, whatever its case in the file; the usual one where there is none."""
        word = self.text(key) if usual is None or self.data.get(key) else usual
        found = next((name for name in known if name.lower() == word.lower()), None)
        if found is None:
            raise self.error(key, f"expected one of {', '.join(known)}; got {word}")
        return found

    def section(self, key: str) -> Section:
        """A mapping inside this one."""
        value = self._value(key, "a mapping")
        if not isinstance(value, dict):
            raise self.error(key, f"expected a mapping, got {value!r}")
        return Section(value, self.file, f"{self.prefix}{key}.", self.size)

    def dotted(self, prefix: str) -> Section:
        """The entries whose keys start with a prefix (`Camera.fx`), without it."""
        inner = {key.removeprefix(prefix): value for key, value in self.data.items() if key.startswith(prefix)}
        return Section(inner, self.file, f"{self.prefix}{prefix}", self.size)

    def flag(self, key: str) -> bool:
        """Whether a key is there and says yes: true, 1, "yes"."""
        value = self.data.get(key, False)
        return value.strip().lower() in ("1", "true", "yes", "on") if isinstance(value, str) else bool(value)

    def image_size(self, *pairs: str) -> tuple[int, int]:
        """Width and height in pixels, under the first pair of keys ("cols rows") or key of both that is there."""
        for pair in pairs:
            width, *height = pair.split()
            if width in self.data:
                numbers = (
                    (self.number(width), self.number(height[0])) if height else self.numbers(width, "width height")
                )
                if any(value != int(value) or value < 1 for value in numbers):
                    raise self.error(width, f"expected whole numbers of pixels, got {numbers[0]:g} x {numbers[1]:g}")
                return int(numbers[0]), int(numbers[1])
        if self.size is not None:
            return self.size
        raise self.error(
            pairs[0].split()[0],
            "missing, and with it the size of the image in pixels: give it with --lens-size WIDTHxHEIGHT, or "
            "load_lens(path, size=(width, height))",
        )

    def shifted(self, names: str, centre: float = 0.5) -> dict[str, float]:
        """fx, fy, cx and cy, which the file calls by other names; `centre` is where it puts the centre of pixel 0."""
        fx, fy, cx, cy = (self.number(name) for name in names.split())
        return {"fx": fx, "fy": fy, "cx": cx + centre, "cy": cy + centre}

    def coefficients(self, names: str) -> dict[str, float]:
        """The numbers of these names that are there."""
        return {name: self.number(name) for name in names.split() if name in self}

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


class ReadOnly:
    """A format that is read and not written."""

    name: str

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Refuse."""
        raise ValueError(f"{self.name} files are read, not written: save the lens as kalibr, opencv, colmap or ours")


def choose(cameras: list[str], camera: str | None, file: str) -> str:
    """The camera asked for, or the only one there is; cam0 and cam1 are any file's two cameras, in order of name."""
    if camera is not None and str(camera) in cameras:
        return str(camera)
    if len(cameras) == 2 and camera in ("cam0", "cam1"):
        return sorted(cameras, key=lambda name: (len(name), name))[int(camera[3])]
    listed = ", ".join(cameras) or "none"
    if camera is not None:
        raise ValueError(f"{file}: no camera {camera!r}; there are {listed}")
    if len(cameras) != 1:
        offer = f"{file}:{cameras[0]}" if cameras else "another file"
        raise ValueError(f"{file}: holds {len(cameras)} cameras ({listed}): say which one, as {offer}")
    return cameras[0]


def batch_entry(lens: Lens, camera: str | None, file: str) -> Lens:
    """The lens of the batch entry with number `camera`; the lens as it is if it has no batch or none is asked for."""
    if camera is None or not lens.batch_shape:
        return lens
    count = lens.batch_shape[0]
    if not camera.isdecimal() or int(camera) >= count:
        raise ValueError(f"{file}: no camera {camera!r}; it holds a batch of {count} lenses, 0 to {count - 1}")
    return lens[int(camera)]


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON, YAML, XML or ROS .ini file; of several YAML documents, as ROS prints them, the first."""
    try:
        data = _read_data(path)
    except ValueError as error:
        raise ValueError(f"{error}; expected a camera's calibration") from None
    if isinstance(data, list) and data and isinstance(data[0], dict) and "shots" in data[0]:
        data = data[0]  # OpenSfM's reconstructions
    if not isinstance(data, dict):
        raise ValueError(f"{path}: {described(data)}; expected a camera's calibration: a mapping of names to values")
    return {str(key): value for key, value in data.items()}


def _read_data(path: Path) -> Any:
    text = read_text(path)
    start = text.lstrip()[:1]
    if start == "<":
        return parse_xml(text, path)
    if SECTION.match(next((line for line in text.splitlines() if line.strip() and line[0] not in "#;"), "")):
        return parse_ini(text)
    if start in ("{", "[") and path.suffix.lower() not in (".yaml", ".yml"):
        return parse_json(text, path)
    found = next(filter(None, (parse(text) for parse in (parse_line, parse_matrix, parse_dso, parse_ocam))), None)
    return found or parse_yaml(_first_document(text), path, tags=OPENCV_TAGS)


def parse_line(text: str) -> dict[str, Any] | None:
    """A calibration in one line, as DROID-SLAM has it: fx fy cx cy in pixels, then k1 k2 p1 p2 [k3] or nothing.

    A line of TUM's path has 8 numbers too, but its last four are a quaternion, of length 1.
    """
    numbers = flat_numbers(text) if len(text.strip().splitlines()) == 1 else None
    if numbers is None or len(numbers) not in (4, 8, 9) or min(numbers[:4]) <= 1:
        return None
    if abs(math.hypot(*numbers[4:8]) - 1) < 1e-2:
        return None
    return dict(zip(("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3"), numbers))


def parse_matrix(text: str) -> dict[str, Any] | None:
    """A camera matrix in three rows of 3 numbers, or four of 4 as ScanNet has it; a rotation has no number above 1."""
    rows = [flat_numbers(re.sub("[,;]", " ", line)) or [] for line in text.strip().splitlines()[:5]]
    square = len(rows) in (3, 4) and all(len(row) == len(rows) for row in rows)
    if not square or rows[2][:3] != [0, 0, 1] or min(rows[0][0], rows[1][1], rows[0][2], rows[1][2]) <= 1:
        return None
    return {"K": rows}


def parse_dso(text: str) -> dict[str, Any] | None:
    """The first two lines of DSO's camera.txt: a model's name (or none) and its numbers, then width and height."""
    lines = text.strip().splitlines()
    if len(lines) not in (3, 4) or len(lines[0].split()) < 5 or len(lines[1].split()) != 2:
        return None
    words = lines[0].split()[1:] if lines[0][0].isalpha() else lines[0].split()
    known = lines[2].strip() in ("crop", "full", "none") or flat_numbers(lines[2]) is not None
    return {DSO: lines[:2]} if known and flat_numbers(words) and flat_numbers(lines[1]) else None


def parse_ocam(text: str) -> dict[str, Any] | None:
    """The five lines of numbers between the comments of OCamCalib's calib_results.txt."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not text.lstrip().startswith("#polynomial") or len(lines) != 5 or None in map(flat_numbers, lines):
        return None
    return {OCAM: lines}


def parse_ini(text: str) -> dict[str, Any]:
    """The sections of a calibration that ROS writes as .ini or ost.txt: names, each above its numbers.

    What [image] holds is of the file; every other section is a mapping, and the ones with a matrix are cameras.
    """
    data: dict[str, Any] = {}
    section, key = data, ""
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#;":
            continue
        if SECTION.match(line):
            section = data if line == "[image]" else {}
            if section is not data:
                data[line[1:-1]] = section
        elif "=" in line:
            key, _, section[key] = map(str.strip, line.partition("="))  # Stereolabs' ZED
        elif flat_numbers(line) is None:
            key = line
            section[key] = ""
        else:
            section[key] = f"{section.get(key, '')} {line}"
    return data


def parse_xml(text: str, where: Path) -> dict[str, Any]:
    """The entries of an OpenCV storage in XML, matrices as in YAML; of other programs' XML its root by its name."""
    from xml.etree import ElementTree

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError(f"{where}: XML with a document type or entities is not read")
    try:
        root = ElementTree.fromstring(re.sub(r"\A\s*<\?xml.*?\?>", "", text, flags=re.S))
    except ElementTree.ParseError as error:
        raise ValueError(f"{where}, line {error.position[0]}: not XML ({error.msg})") from None
    name = local_name(root.tag)
    if name in ("document", "calibration", "xmpmeta"):
        return {name: root}
    if name != "opencv_storage":
        raise ValueError(
            f"{where}: XML of <{name}>; expected OpenCV's <opencv_storage>, Metashape's <document> or <calibration>, "
            "or RealityCapture's <x:xmpmeta>"
        )
    return {child.tag: _xml_value(child) for child in root}


def local_name(tag: str) -> str:
    """The name of an XML element or attribute without its namespace."""
    return tag.rpartition("}")[2]


def _xml_value(element: Any) -> Any:
    children = {child.tag: _xml_value(child) for child in element}
    if children:
        return children
    words = (element.text or "").split()
    return words if len(words) > 1 else (words[0].strip('"') if words else "")


def _first_document(text: str) -> str:
    """The first document of YAML text as YAML wants it: OpenCV allows its own header, tabs and `key:value`."""
    text = re.sub(r"^%YAML[:\s].*$", "", text, count=1, flags=re.M).expandtabs(4)
    text = re.sub(r"^(\s*[A-Za-z_][\w.]*:)(?=[-+.\d\"\[])", r"\1 ", text, flags=re.M)
    lines = text.splitlines()
    filled = next((index for index, line in enumerate(lines) if line.strip() and line.strip() != "---"), 0)
    end = next((i for i, line in enumerate(lines) if i > filled and line.rstrip() in ("---", "...")), len(lines))
    return "\n".join("" if line.rstrip() == "---" else line for line in lines[:end])


def described(data: Any) -> str:
    """What a file without a calibration looks like, for people."""
    if isinstance(data, dict):
        if is_word_list(data):
            return f"this looks like a list of {len(data)} words with a number each, such as a tokenizer's vocabulary"
        for keys, text in LOOKS:
            if any(key in data for key in keys):
                return f"this looks like {text}"
        return f"its keys are {', '.join(list(map(str, data))[:12]) or 'none'}"
    if isinstance(data, str) and re.fullmatch(r"[-+0-9.eE,\s]+", data):
        return "this looks like rows of numbers, such as a camera path (ucpe trajectory show)"
    kind = {"str": "text", "list": "a list", "NoneType": "nothing"}.get(type(data).__name__, type(data).__name__)
    return f"this holds {kind}"


def is_word_list(data: dict[str, Any]) -> bool:
    """Whether so many names have a number each that fx, fy, cx and cy among them are words like all others."""
    return sum(isinstance(value, int | float) for value in data.values()) > MAX_NUMBERS


LOOKS = (
    (("target_type", "tagCols", "targetCols"), "a calibration target (the printed pattern), not a camera"),
    (("cam0_calib", "cam1_calib"), "a VINS-Fusion configuration, whose cameras are in the files that cam0_calib names"),
    (
        ("gyroscope_noise_density", "accelerometer_noise_density", "gyr_n", "imu0", "update_rate"),
        "the description of an inertial sensor (IMU), not a camera",
    ),
    (("camera_path", "keyframes"), "a nerfstudio camera path (--camera), not a calibration"),
    (("frame0",), "a ReCamMaster camera path (--camera), not a calibration"),
    (("c2w",), "a camera path (--camera), not a calibration"),
    (("sfm_data_version",), "OpenMVG's sfm_data.json; openMVG_main_openMVG2Colmap writes COLMAP's cameras.txt"),
    (("featuresFolders", "matchesFolders"), "AliceVision's (Meshroom's) sfm.json; its ExportColmap writes cameras.txt"),
    (("graph", "pipelineVersion"), "a Meshroom project; its ExportColmap writes COLMAP's cameras.txt"),
    (("lensmodel",), "mrcal's .cameramodel; mrcal-to-kalibr writes a chain that is read here"),
    (("CameraCalibrations", "DeviceClassInfo"), "a Project Aria device's calibration, whose lenses are not read here"),
    (("map_format", "System", "Feature"), "a SLAM configuration without a camera"),
)
"""Keys that tell files apart which are often taken for calibrations, and what they are."""


def warn_of_misfit(
    lens: PlanarLens,
    points: np.ndarray,  # (..., 3) in camera axes
    meant: np.ndarray,  # (..., 2) pixels
    file: str,
) -> None:
    """Warn if a calibrated lens that stands for a file's formula shows points elsewhere in its image than that does."""
    size = lens.settings["height"], lens.settings["width"]
    pixels, seen = lens.project(torch.from_numpy(points), *size)
    inside = seen.numpy() & (meant > 0).all(-1) & (meant < size[::-1]).all(-1)
    off = np.linalg.norm(pixels.numpy() - meant, axis=-1)[inside].max(initial=0)
    if off > UNSAID:
        warnings.warn(f"{file}: taken as the nearest {lens.kind}, which is off by {off:.2g} pixels at most")


def calibration(lens: Lens, height: int, width: int) -> dict[str, float]:
    """The parameters of a lens without a batch, scaled in pixels of an image of height x width."""
    if not isinstance(lens, PlanarLens):
        raise ValueError(f"{lens.kind} has no focal length to write")
    return {name: value.item() for name, value in lens.calibrated(height, width).parameters.items()}


def flat_numbers(value: Any) -> list[float] | None:
    """Numbers in a scalar, a nested list, an OpenCV matrix or text; None if there is anything else."""
    if isinstance(value, dict):
        value = value.get("data")
    if isinstance(value, list):
        parts = [flat_numbers(item) for item in value]
        return None if None in parts else [number for part in parts if part for number in part]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        numbers = [float(word) for word in (value.split() if isinstance(value, str) else [value])]
    except ValueError:
        return None
    return numbers if numbers and all(map(math.isfinite, numbers)) else None
