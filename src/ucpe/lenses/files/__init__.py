"""The calibration files people have: one reader and writer per format, recognised by content."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ucpe.lenses.base import Lens
from ucpe.lenses.files.aslam import Aslam
from ucpe.lenses.files.basalt import Basalt
from ucpe.lenses.files.camodocal import Camodocal
from ucpe.lenses.files.colmap import Colmap
from ucpe.lenses.files.document import Section, described, read_mapping
from ucpe.lenses.files.dso import Dso
from ucpe.lenses.files.euroc import EuRoC
from ucpe.lenses.files.gyroflow import Gyroflow
from ucpe.lenses.files.kalibr import Kalibr
from ucpe.lenses.files.metashape import Metashape
from ucpe.lenses.files.native import Native
from ucpe.lenses.files.opencv import OpenCV
from ucpe.lenses.files.opensfm import OpenSfM
from ucpe.lenses.files.orbslam import OrbSlam
from ucpe.lenses.files.realitycapture import RealityCapture
from ucpe.lenses.files.scaramuzza import Scaramuzza
from ucpe.lenses.files.stella import Stella
from ucpe.lenses.files.transforms import Transforms
from ucpe.lenses.files.vikit import Vikit
from ucpe.lenses.files.woodscape import WoodScape

BASALT, COLMAP = Basalt(), Colmap()
MAPPINGS = (
    Native(),
    BASALT,
    Camodocal(),
    Dso(),
    Stella(),
    OrbSlam(),
    Aslam(),
    Vikit(),
    Scaramuzza(),
    EuRoC(),
    Gyroflow(),
    WoodScape(),
    Metashape(),
    RealityCapture(),
    OpenSfM(),
    Kalibr(),
    OpenCV(),
    Transforms(),
)

FORMATS = {format.name: format for format in (*MAPPINGS, COLMAP)}
"""Every format by name."""


def load_lens(path: str | Path, camera: str | int | None = None, size: tuple[int, int] | None = None) -> Lens:
    """Read a lens from a calibration of any format in `FORMATS`, recognised by its content.

    `camera` chooses one of several: Kalibr's cam0, COLMAP's number, a batch's entry; "camchain.yaml:cam0" says the
    same. `size` is the (width, height) in pixels that a file without an image size is for. Every format is converted
    to our convention, in which the centre of pixel (0, 0) is (0.5, 0.5).
    """
    path, named = split_camera(path)
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {path}")
    if named is not None and camera is not None and str(camera) != named:
        raise ValueError(f"{path}: camera {named!r} or {str(camera)!r}? Say one")
    camera = named if camera is None else str(camera)
    lens = _read(path, camera, size)
    own = lens.settings.get("width"), lens.settings.get("height")
    if size is not None and None not in own and own != tuple(size):
        raise ValueError(f"{path}: says itself that it is for {own[0]} x {own[1]} pixels, not {size[0]} x {size[1]}")
    return lens


def _read(path: Path, camera: str | None, size: tuple[int, int] | None) -> Lens:
    if path.is_dir() or COLMAP.recognises(path):
        return COLMAP.read(path, camera)
    data = read_mapping(path)
    for format in MAPPINGS:
        if format.recognises(data):
            try:
                return format.read(Section(data, str(path), size=size), camera)
            except ValueError as error:
                complete = str(error).startswith(str(path))
                raise ValueError(str(error) if complete else f"{path}: {error}") from None
    known = "; ".join(format.description for format in FORMATS.values())
    raise ValueError(f"{path}: not a calibration of a known format: {described(data)}. Known are {known}")


def is_calibration(path: Path) -> bool:
    """Whether the content of a file looks like a calibration of a known format."""
    try:
        data = read_mapping(path)
    except (ValueError, OSError):
        return False
    return any(format.recognises(data) for format in MAPPINGS)


def load_extrinsics(path: str | Path) -> Tensor | None:
    """Camera-to-body pose (4, 4) float64 of a calibration that says how its camera is mounted, otherwise None.

    EuRoC's `T_BS`, Kalibr's `T_cam_imu` (inverted), OpenVINS's and Basalt's `T_imu_cam`, ORB-SLAM's `Tbc` and
    `IMU.T_b_c1`, VINS's `body_T_cam0`; "camchain.yaml:cam0" chooses a camera.
    """
    file, camera = split_camera(path)
    if not file.is_file() or COLMAP.recognises(file):
        return None
    data = read_mapping(file)
    if BASALT.recognises(data):
        return BASALT.mounting(Section(data, str(file)), camera)
    entries = {key: value for key, value in data.items() if isinstance(value, dict) and "intrinsics" in value}
    entry = data if not entries else entries.get(camera or next(iter(entries)), {})
    for key in ("T_BS", "T_imu_cam", "T_cam_imu", "Tbc", "IMU.T_b_c1", "body_T_cam0"):
        inverse = key == "T_cam_imu"
        if key in entry:
            values = Section(entry, str(file)).numbers(key, " ".join(f"t{i}" for i in range(16)))
            pose = torch.tensor(values, dtype=torch.float64).reshape(4, 4)
            return torch.linalg.inv(pose) if inverse else pose
    return None


def split_camera(path: str | Path) -> tuple[Path, str | None]:
    """File and camera of "camchain.yaml:cam0"; no camera where the whole is a path or there is no such file."""
    whole = Path(path)
    file, _, camera = str(path).rpartition(":")
    if not whole.exists() and camera and Path(file or "nothing").exists():
        return Path(file), camera
    return whole, None


def save_lens(lens: Lens, path: str | Path, format: str | None = None, height: int = 480, width: int = 832) -> None:
    """Write a lens; `height` and `width` are the image that other formats' pixels are for, if the lens has none.

    Without a format, cameras.txt is COLMAP's, transforms.json is nerfstudio's, and any other .json, .yaml or .yml ours.
    """
    path = Path(path)
    if format is None:
        format = {"cameras.txt": "colmap", "transforms.json": "transforms"}.get(path.name, "ucpe")
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if format == "ucpe" and path.suffix.lower() not in (".json", ".yaml", ".yml"):
        raise ValueError(f"a lens is saved as .json or .yaml, got {path.name!r}")
    if format != "ucpe" and lens.batch_shape:
        raise ValueError(f"{format} holds one lens, not a batch of shape {tuple(lens.batch_shape)}: index it first")
    size = lens.settings.get("height", height), lens.settings.get("width", width)
    FORMATS[format].write(lens, path, *size)
