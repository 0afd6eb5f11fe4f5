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
    Calibrator,
    Clip,
    EstimationFailure,
    LensModel,
    PoseEstimate,
    PoseEstimator,
)
from ucpe.lenses import Lens
from ucpe.reading import read_arrays, read_json_object
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats.arrays import read_vipe


class Stored:
    """Results that another tool has written, one file per video."""

    name = "stored"
    suffixes: tuple[str, ...]

    def __init__(self, folder: str | Path, tool: str = "stored"):
        self.folder, self.tool = Path(folder), tool
        if not self.folder.is_dir():
            raise ValueError(f"no folder {folder} with stored results")

    def files(self, name: str) -> list[Path]:
        """The stored result."""
        paths = (self.folder / f"{name}{suffix}" for suffix in self.suffixes)
        return [path for path in paths if path.is_file()][:1]

    def describe(self) -> dict[str, Any]:
        """Where the results come from."""
        return {"name": self.tool, "stored": True}

    def file(self, clip: Clip) -> Path:
        """The stored result of a clip."""
        for path in self.files(clip.name):
            return path
        raise EstimationFailure(f"no stored result {clip.name}({'|'.join(self.suffixes)}) in {self.folder.name}/")


class StoredPoses(Stored, PoseEstimator):
    """Poses that another tool has written."""

    suffixes = (".npz", ".npy", ".json", ".txt")

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """The stored poses of a clip."""
        path = self.file(clip)
        return read_vipe_poses(path) if path.suffix == ".npz" else _trajectory_poses(path)


class StoredCalibrations(Stored, Calibrator):
    """Orientations and lenses that another tool has written."""

    suffixes = (".json", ".npz")

    def __init__(self, folder: str | Path, model: LensModel | None = None, tool: str = "stored"):
        super().__init__(folder, tool)
        self.model: LensModel = model or self._stored_model()

    def estimate(self, clip: Clip) -> Calibration:
        """The stored calibration of a clip."""
        return read_calibration(self.file(clip), self.model, len(clip.frames))

    def describe(self) -> dict[str, Any]:
        """Where the results come from."""
        return super().describe() | {"model": self.model}

    def _stored_model(self) -> LensModel:
        """The lens model whose numbers the stored calibrations hold, by the first file."""
        first = next((path for path in sorted(self.folder.iterdir()) if path.suffix in self.suffixes), None)
        if first is None:
            raise ValueError(f"no stored calibrations ({', '.join(self.suffixes)}) in {self.folder}")
        return "ucm" if "xi" in _numbers(first) else "radial"


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
