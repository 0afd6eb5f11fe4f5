"""COLMAP cameras, text and binary."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ucpe.files import write_file
from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import calibration, choose
from ucpe.lenses.fisheye import Division, Equidistant, FieldOfView, KannalaBrandt
from ucpe.lenses.panoramic import Equirectangular
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import EUCM, UCM
from ucpe.reading import read_lines


class Model(NamedTuple):
    """One of COLMAP's camera models."""

    number: int
    name: str
    parameters: str
    lens: Any = None


MODELS = [
    Model(0, "SIMPLE_PINHOLE", "fx cx cy", Pinhole),
    Model(1, "PINHOLE", "fx fy cx cy", Pinhole),
    Model(2, "SIMPLE_RADIAL", "fx cx cy k1", BrownConrady),
    Model(3, "RADIAL", "fx cx cy k1 k2", BrownConrady),
    Model(4, "OPENCV", "fx fy cx cy k1 k2 p1 p2", BrownConrady),
    Model(5, "OPENCV_FISHEYE", "fx fy cx cy k1 k2 k3 k4", KannalaBrandt),
    Model(6, "FULL_OPENCV", "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6", BrownConrady),
    Model(7, "FOV", "fx fy cx cy omega", FieldOfView.from_omega),
    Model(8, "SIMPLE_RADIAL_FISHEYE", "fx cx cy k1", KannalaBrandt),
    Model(9, "RADIAL_FISHEYE", "fx cx cy k1 k2", KannalaBrandt),
    Model(10, "THIN_PRISM_FISHEYE", "fx fy cx cy k1 k2 p1 p2 k3 k4 sx1 sy1"),
    Model(11, "RAD_TAN_THIN_PRISM_FISHEYE", "fx fy cx cy k0 k1 k2 k3 k4 k5 p0 p1 s0 s1 s2 s3"),
    Model(12, "SIMPLE_DIVISION", "fx cx cy k", Division),
    Model(13, "DIVISION", "fx fy cx cy k", Division),
    Model(14, "SIMPLE_FISHEYE", "fx cx cy", Equidistant),
    Model(15, "FISHEYE", "fx fy cx cy", Equidistant),
    Model(16, "EUCM", "fx fy cx cy alpha beta", EUCM),
    Model(17, "EQUIRECTANGULAR", "w h", Equirectangular),
]
WRITTEN = {"PINHOLE", "OPENCV_FISHEYE", "FULL_OPENCV", "DIVISION", "FISHEYE", "EUCM"}
FILES = ("cameras.bin", "cameras.txt", "sparse/0/cameras.bin", "sparse/0/cameras.txt", "0/cameras.bin", "0/cameras.txt")


class Colmap:
    """`cameras.txt` or `cameras.bin`, or the folder of a reconstruction.

    COLMAP puts the centre of pixel (0, 0) at (0.5, 0.5), as we do: nothing is converted.
    """

    name = "colmap"
    description = "COLMAP cameras.txt, cameras.bin or a reconstruction's folder"

    def recognises(self, path: Path) -> bool:
        """Whether a path is in this format."""
        if path.is_dir():
            return any((path / file).exists() for file in FILES)
        if path.suffix == ".bin":
            return True
        with path.open("rb") as file:
            encoding = json.detect_encoding(file.read(4))
        with path.open(encoding=encoding, errors="replace") as lines:
            content = (line.split() for line in lines if line.strip() and not line.startswith("#"))
            words = next(content, [])
        return len(words) >= 4 and words[0].isdigit() and words[1].isupper()

    def read(self, path: Path, camera: str | None) -> Lens:
        """The lens of one camera; `camera` is its number."""
        lenses = read_cameras(path)
        return lenses[int(choose([str(number) for number in lenses], camera, str(path)))]

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Write a lens as camera 1 of a cameras.txt."""
        write_cameras([lens], path, height, width)


def write_cameras(lenses: Sequence[Lens], path: Path, height: int, width: int) -> None:
    """Write a cameras.txt with lenses (no batch) as cameras 1, 2, ... of images of height x width."""
    lines = [f"{number} {_description(lens, height, width)}" for number, lens in enumerate(lenses, 1)]
    heading = "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    write_file(path, heading + "\n".join(lines) + "\n")


def read_cameras(path: str | Path) -> dict[int, Lens]:
    """Lenses by camera number of a COLMAP cameras.txt, cameras.bin or the folder of a reconstruction."""
    path = Path(path)
    if path.is_dir():
        found = next((path / file for file in FILES if (path / file).exists()), None)
        if found is None:
            raise ValueError(f"{path}: expected cameras.txt or cameras.bin in this folder (or in its sparse/0)")
        path = found
    lines = _binary_cameras(path) if path.suffix == ".bin" else _text_cameras(path)
    cameras = {
        number: _lens(model, width, height, values, where) for number, model, width, height, values, where in lines
    }
    if not cameras:
        raise ValueError(f"{path}: holds no camera")
    return cameras


Line = tuple[int, Model, int, int, list[float], str]


def _text_cameras(path: Path) -> Iterator[Line]:
    by_name = {model.name: model for model in MODELS}
    for row, line in enumerate(read_lines(path), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        where = f"{path}, line {row}"
        if len(words) < 4 or not all(word.isdigit() for word in (words[0], *words[2:4])):
            raise ValueError(f"{where}: expected CAMERA_ID MODEL WIDTH HEIGHT PARAMS..., got {line.strip()!r}")
        if words[1] not in by_name:
            raise ValueError(f"{where}: expected a COLMAP camera model ({', '.join(by_name)}), got {words[1]!r}")
        try:
            values = [float(word) for word in words[4:]]
        except ValueError:
            raise ValueError(f"{where}: expected numbers after the size, got {' '.join(words[4:])!r}") from None
        yield int(words[0]), by_name[words[1]], int(words[2]), int(words[3]), values, where


def _binary_cameras(path: Path) -> Iterator[Line]:
    data, position = path.read_bytes(), 8
    by_number = {model.number: model for model in MODELS}
    try:
        (count,) = struct.unpack_from("<Q", data)
        for index in range(count):
            number, kind, width, height = struct.unpack_from("<iiQQ", data, position)
            where = f"{path}, camera {number} (entry {index + 1} of {count})"
            if kind not in by_number:
                raise ValueError(f"{where}: expected a COLMAP camera model 0 to {MODELS[-1].number}, got {kind}")
            size = len(by_number[kind].parameters.split())
            values = list(struct.unpack_from(f"<{size}d", data, position + 24))
            position += 24 + 8 * size
            yield number, by_number[kind], width, height, values, where
    except struct.error:
        raise ValueError(f"{path}: expected a COLMAP cameras.bin, but it ends after {len(data)} bytes") from None


def _lens(model: Model, width: int, height: int, values: list[float], where: str) -> Lens:
    names = model.parameters.split()
    if len(values) != len(names):
        raise ValueError(f"{where}: {model.name} expects {len(names)} numbers ({model.parameters}), got {len(values)}")
    if model.lens is None:
        known = ", ".join(known.name for known in MODELS if known.lens)
        raise ValueError(f"{where}: {model.name} has no lens here; the models that have are {known}")
    try:
        if model.lens is Equirectangular:
            return Equirectangular()
        return model.lens(**dict(zip(names, values)), width=width, height=height)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _description(lens: Lens, height: int, width: int) -> str:
    """Model, size and parameters of a lens as COLMAP writes them."""
    if isinstance(lens, UCM):
        lens = _as_eucm(lens, height, width)
    if isinstance(lens, Equirectangular):
        if lens != Equirectangular():
            raise ValueError("COLMAP's EQUIRECTANGULAR is 360 x 180 degrees only, this lens is a crop of it")
        return f"EQUIRECTANGULAR {width} {height} {width} {height}"
    if isinstance(lens, FieldOfView):
        values = calibration(lens, height, width)
        omega = 2 * math.atan(values["k"] / 2)
        values |= {"fx": values["fx"] * omega / values["k"], "fy": values["fy"] * omega / values["k"], "omega": omega}
        return f"FOV {width} {height} {' '.join(repr(values[key]) for key in ['fx', 'fy', 'cx', 'cy', 'omega'])}"
    model = next((model for model in MODELS if model.lens is type(lens) and model.name in WRITTEN), None)
    if model is None:
        raise ValueError(f"COLMAP has no {lens.kind}: fit the lens to kannala_brandt or eucm first")
    values = calibration(lens, height, width)
    return f"{model.name} {width} {height} {' '.join(repr(values[key]) for key in model.parameters.split())}"


def _as_eucm(lens: UCM, height: int, width: int) -> EUCM:
    """The same lens as EUCM: alpha = xi / (1 + xi), beta = 1, focal length divided by 1 + xi."""
    values = lens.calibrated(height, width).parameters
    xi = values["xi"]
    focal = {name: values[name] / (1 + xi) for name in ("fx", "fy")}
    return EUCM(alpha=xi / (1 + xi), beta=1.0, **focal, cx=values["cx"], cy=values["cy"], width=width, height=height)
