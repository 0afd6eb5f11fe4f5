"""The trajectory files people have: read and written under one registry, recognised by their content."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ucpe.lenses import Lens
from ucpe.lenses.files import is_calibration, load_extrinsics, split_camera
from ucpe.trajectories.formats.arkitscenes import ARKitScenes
from ucpe.trajectories.formats.arrays import PanShotArray, ViPE
from ucpe.trajectories.formats.base import ImageSize, TrajectoryFormat, first_rows, names_columns, parse_numbers
from ucpe.trajectories.formats.camera_path import CameraPath
from ucpe.trajectories.formats.captioned import is_demo
from ucpe.trajectories.formats.colmap import Colmap
from ucpe.trajectories.formats.euroc import EuRoC
from ucpe.trajectories.formats.kitti import KITTI
from ucpe.trajectories.formats.motionctrl import MotionCtrl
from ucpe.trajectories.formats.native import Native
from ucpe.trajectories.formats.opensfm import OpenSfM
from ucpe.trajectories.formats.polycam import Polycam
from ucpe.trajectories.formats.realestate10k import RealEstate10K, is_pinhole
from ucpe.trajectories.formats.recammaster import ReCamMaster
from ucpe.trajectories.formats.record3d import Record3D
from ucpe.trajectories.formats.transforms import Transforms
from ucpe.trajectories.formats.tum import TUM
from ucpe.trajectories.trajectory import DEFAULT_FPS, DEFAULT_LENS, Trajectory

FORMATS: dict[str, TrajectoryFormat] = {
    format.name: format
    for format in (
        Native(),
        RealEstate10K(),
        Transforms(),
        Colmap(),
        EuRoC(),
        TUM(),
        KITTI(),
        PanShotArray(),
        ViPE(),
        CameraPath(),
        ReCamMaster(),
        MotionCtrl(),
        OpenSfM(),
        Record3D(),
        Polycam(),
        ARKitScenes(),
    )
}
"""Every format by name."""

FORMAT_OF_SUFFIX = {".json": "ucpe", ".npy": "panshot", ".npz": "vipe"}
"""Format a file is saved in when its name leaves no doubt."""


def load_trajectory(
    path: str | Path,
    lens: Lens | None = None,
    fps: float | None = None,
    format: str | None = None,
    up: str | Sequence[float] | None = None,
    extrinsics: str | Path | None = None,
    *,
    usual_lens: Lens = DEFAULT_LENS,
    usual_fps: float = DEFAULT_FPS,
) -> Trajectory:
    """Read a trajectory; a given lens, frame rate or up replaces the file's, a usual one what the file does not say."""
    path, camera = split_camera(path)
    if not path.exists():
        raise FileNotFoundError(f"no file or folder {path}")
    chosen = _format(format) if format else recognise(path)
    if camera is not None and not isinstance(chosen, ReCamMaster):
        raise ValueError(f"{path} holds one camera: leave out :{camera}")
    try:
        recording = chosen.read(path, camera) if isinstance(chosen, ReCamMaster) else chosen.read(path)
    except (ValueError, OverflowError) as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    if recording.body:
        recording = recording._replace(c2w=_of_camera(path, recording.c2w, extrinsics))
    rates = (rate for rate in (fps, recording.fps) if rate is not None)
    try:
        trajectory = Trajectory(
            recording.c2w, lens or recording.lens or usual_lens, next(rates, usual_fps), up_known=False
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    direction = recording.up if up is None else up_direction(up)
    if direction is None:
        return trajectory if up is None else trajectory.levelled()
    return trajectory.gravity_aligned(direction)


def load_upright(path: str | Path, advice: str, up: str | Sequence[float] | None = None, **options: Any) -> Trajectory:
    """As `load_trajectory`, but a path whose up is unknown is levelled, with a warning that ends in `advice`.

    Levelled: turned so that its first camera is level. The other `options` are those of `load_trajectory`.
    """
    trajectory = load_trajectory(path, up=up, **options)
    if trajectory.up_known:
        return trajectory
    warnings.warn(f"{path} does not say which way is up: its first camera is taken to be level ({advice})")
    return trajectory.levelled()


def _of_camera(path: Path, body: Tensor, extrinsics: str | Path | None) -> Tensor:
    """Poses (N, 4, 4) of a camera mounted on a body, or the body's own with a warning."""
    mounted = None if extrinsics is None else load_extrinsics(extrinsics)
    if mounted is None:
        warnings.warn(
            f"{path} holds poses of a body (its IMU), not of a camera, and they are used as they are: give a camera's "
            "calibration with its extrinsics, as --lens cam0/sensor.yaml"
        )
        return body
    return body @ mounted


def up_direction(up: str | Sequence[float]) -> tuple[float, float, float] | None:
    """A direction from "+z", "-y", "0,0.1,-1" or three numbers; None for "first", the first camera's own up.

    >>> up_direction("+z"), up_direction("0, -1, 0.1"), up_direction("first")
    ((0.0, 0.0, 1.0), (0.0, -1.0, 0.1), None)
    """
    if up == "first":
        return None
    axis = {"x": 0, "y": 1, "z": 2}.get(up.strip().lstrip("+-").lower()) if isinstance(up, str) else None
    if axis is not None:
        values = [0.0, 0.0, 0.0]
        values[axis] = -1.0 if str(up).strip().startswith("-") else 1.0
    else:
        try:
            values = [float(part) for part in (up.split(",") if isinstance(up, str) else up)]
        except (TypeError, ValueError):
            values = []
    if len(values) != 3 or not all(map(math.isfinite, values)) or not any(values):
        raise ValueError(f"up must be first, an axis such as +z or -y, or a direction x,y,z; got {up!r}")
    return values[0], values[1], values[2]


def save_trajectory(
    trajectory: Trajectory, path: str | Path, format: str | None = None, size: ImageSize | None = None
) -> None:
    """Write a trajectory; `size` is the image its intrinsics are for where the lens has none (480 x 832)."""
    path = Path(path)
    name = format or _format_for(path, trajectory)
    _format(name).write(trajectory.to("cpu"), path, size or ImageSize())


def recognise(path: Path) -> TrajectoryFormat:
    """The format of a file or folder, by its content."""
    for format in FORMATS.values():
        if format.recognises(path):
            return format
    if is_demo(path):
        raise ValueError(
            f"{path} is a list of captioned cameras: read them with ucpe.trajectories.formats.read_released_list, "
            "or load one of its pose files"
        )
    raise ValueError(f"{path} is no trajectory file known here: {_found(path)}; known are {_known()}")


def _format(name: str) -> TrajectoryFormat:
    if name not in FORMATS:
        raise ValueError(f"no trajectory format {name!r}; known are {_known()}")
    return FORMATS[name]


def _format_for(path: Path, trajectory: Trajectory) -> str:
    if path.name == "transforms.json":
        return "nerfstudio"
    if path.is_dir() or not path.suffix:
        return "colmap"
    if path.suffix.lower() in FORMAT_OF_SUFFIX:
        return FORMAT_OF_SUFFIX[path.suffix.lower()]
    if path.suffix.lower() == ".txt":
        if is_pinhole(trajectory.lens):
            return "realestate10k"
        warnings.warn(f"{path} is written in TUM's format, which holds no lens: {trajectory.lens} is not kept")
        return "tum"
    raise ValueError(f"the name {path.name!r} does not tell the format; say format=, one of {_known()}")


def _found(path: Path) -> str:
    if path.is_dir():
        return f"the folder holds {', '.join(sorted(entry.name for entry in path.iterdir())[:8]) or 'nothing'}"
    header = names_columns(path)
    if re.search(r"\bw_\w+.*\ba_\w+", header):
        return "this looks like an inertial sensor's (IMU's) measurements, not poses"
    if is_calibration(path):
        return "this looks like the calibration of a camera (--lens), not a path"
    rows = first_rows(path, 2)
    numbers = [parse_numbers(row) for row in rows]
    counts = [str(len(row)) for row in numbers if row is not None]
    if counts:
        return f"its first lines hold {' and '.join(counts)} numbers"
    return f"it starts with {rows[0].strip()[:40]!r}" if rows else "it is empty or binary"


def _known() -> str:
    return "; ".join(f"{format.name} ({format.description})" for format in FORMATS.values())
