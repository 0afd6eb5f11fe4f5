"""Results of any tool, stored as files: `ucpe evaluate --pose stored --pose-results folder/`, and for calibrations.

One file per video, named after it:

- poses: `.npz` with `data` (M, 4, 4) or (M, 3, 4) camera-to-world and optionally `inds` (M,) frame numbers (as ViPE
  writes), or any trajectory file that `Trajectory.load` reads;
- calibrations: `.json` or `.npz` with `pitch`, `roll` and `yfov` in degrees, with `k1`, `k2` (radial) or `xfov`, `xi`
  (UCM), one number for the video or one per frame, and optionally `frames`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ucpe.evaluation.estimators.base import (
    LENS_NUMBERS,
    Calibration,
    Clip,
    EstimationFailure,
    LensModel,
    PoseEstimate,
)
from ucpe.lenses import Lens
from ucpe.reading import read_arrays, read_json_object
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats.arrays import read_vipe

POSE_SUFFIXES = (".npz", ".npy", ".json", ".txt")
CALIBRATION_SUFFIXES = (".json", ".npz")


class StoredPoses:
    """Poses that another tool has written."""

    name = "stored"

    def __init__(self, folder: str | Path, tool: str = "stored"):
        self.folder, self.tool = _folder(folder), tool

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """The stored poses of a clip."""
        path = _find(self.folder, clip.name, POSE_SUFFIXES)
        if path is None:
            raise EstimationFailure(_missing(self.folder, clip.name, POSE_SUFFIXES))
        return read_vipe_poses(path) if path.suffix == ".npz" else _trajectory_poses(path)

    def files(self, name: str) -> list[Path]:
        """The stored result."""
        path = _find(self.folder, name, POSE_SUFFIXES)
        return [] if path is None else [path]

    def describe(self) -> dict[str, Any]:
        """Where the results come from."""
        return {"name": self.tool, "stored": True}

    def floor(self, protocol: str) -> dict[str, float] | None:
        """Unknown."""
        return None


class StoredCalibrations:
    """Orientations and lenses that another tool has written."""

    name = "stored"

    def __init__(self, folder: str | Path, model: LensModel | None = None, tool: str = "stored"):
        self.folder, self.tool = _folder(folder), tool
        self.model: LensModel = model or _stored_model(self.folder)

    def estimate(self, clip: Clip) -> Calibration:
        """The stored calibration of a clip."""
        path = _find(self.folder, clip.name, CALIBRATION_SUFFIXES)
        if path is None:
            raise EstimationFailure(_missing(self.folder, clip.name, CALIBRATION_SUFFIXES))
        return read_calibration(path, self.model, len(clip.frames))

    def files(self, name: str) -> list[Path]:
        """The stored result."""
        path = _find(self.folder, name, CALIBRATION_SUFFIXES)
        return [] if path is None else [path]

    def describe(self) -> dict[str, Any]:
        """Where the results come from."""
        return {"name": self.tool, "stored": True, "model": self.model}

    def floor(self) -> dict[str, float] | None:
        """Unknown."""
        return None


def read_vipe_poses(path: Path) -> PoseEstimate:
    """Poses of an npz file with `data` and optionally `inds`, as ViPE writes them."""
    poses, frames = read_vipe(path)
    return PoseEstimate(poses, frames.long().numpy(), details={"file": path.name})


def read_calibration(path: Path, model: LensModel, frames: int) -> Calibration:
    """Calibration of a JSON or npz file; single numbers hold for every frame."""
    values = _numbers(path)
    needed = ("pitch", "roll", *LENS_NUMBERS[model])
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"{path}: a {model} calibration needs {', '.join(needed)}; {', '.join(missing)} missing")
    try:
        arrays = {name: np.atleast_1d(np.asarray(values[name], np.float64)) for name in needed}
    except (TypeError, ValueError):
        raise ValueError(f"{path}: {', '.join(needed)} must be numbers or lists of numbers") from None
    count = max(len(array) for array in arrays.values())
    numbers = np.asarray(values.get("frames", np.arange(frames if count == 1 else count)))
    try:
        arrays = {name: np.broadcast_to(array, len(numbers)).copy() for name, array in arrays.items()}
    except ValueError:
        sizes = {name: len(array) for name, array in arrays.items()}
        raise ValueError(
            f"{path}: every number must be given once or for all {len(numbers)} frames, got {sizes}"
        ) from None
    lens = {name: arrays[name] for name in LENS_NUMBERS[model]}
    return Calibration(model, numbers, arrays["pitch"], arrays["roll"], lens, {"file": path.name})


def _trajectory_poses(path: Path) -> PoseEstimate:
    trajectory = Trajectory.load(path)
    return PoseEstimate(trajectory.c2w.double(), np.arange(len(trajectory)), details={"file": path.name})


def _numbers(path: Path) -> dict[str, Any]:
    return read_arrays(path) if path.suffix == ".npz" else read_json_object(path)


def _stored_model(folder: Path) -> LensModel:
    """The lens model whose numbers the stored calibrations hold, by the first file."""
    first = next((path for path in sorted(folder.iterdir()) if path.suffix in CALIBRATION_SUFFIXES), None)
    if first is None:
        raise ValueError(f"no stored calibrations ({', '.join(CALIBRATION_SUFFIXES)}) in {folder}")
    return "ucm" if "xi" in _numbers(first) else "radial"


def _folder(folder: str | Path) -> Path:
    if not Path(folder).is_dir():
        raise ValueError(f"no folder {folder} with stored results")
    return Path(folder)


def _find(folder: Path, name: str, suffixes: tuple[str, ...]) -> Path | None:
    return next((path for suffix in suffixes if (path := folder / f"{name}{suffix}").is_file()), None)


def _missing(folder: Path, name: str, suffixes: tuple[str, ...]) -> str:
    return f"no stored result {name}({'|'.join(suffixes)}) in {folder.name}/"
