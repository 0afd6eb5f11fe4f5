"""What an estimator is: from a video to poses, or from frames to orientation and lens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Lens

LensModel = Literal["radial", "ucm"]
LENS_NUMBERS: dict[str, tuple[str, ...]] = {"radial": ("yfov", "k1", "k2"), "ucm": ("yfov", "xfov", "xi")}
"""Lens numbers of each model: fields of view in degrees, and distortion.

The radial model's `yfov` is 2 atan(height / 2 fy), as calibration tools report it; the UCM's is the true angle.
"""


class EstimationFailure(Exception):
    """An estimator could not say anything about a video; the message is the reason, which the report counts."""


def first_line(error: Exception) -> str:
    """What went wrong, in one line of at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


@dataclass
class Clip:
    """Decoded frames with their times."""

    name: str
    frames: np.ndarray  # (N, H, W, 3) uint8
    times: np.ndarray  # (N,) seconds from the first frame, increasing

    @property
    def height(self) -> int:
        """Rows of a frame."""
        return self.frames.shape[1]

    @property
    def width(self) -> int:
        """Columns of a frame."""
        return self.frames.shape[2]

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the last."""
        return float(self.times[-1])


@dataclass
class PoseEstimate:
    """Camera-to-world poses of some frames of a video, in a world of unknown frame and scale."""

    c2w: Tensor  # (M, 4, 4) float64
    frames: np.ndarray  # (M,) increasing frame numbers
    near_depth: float | None = None
    """Near-plane depth of the view in the estimate's own units, if known."""
    metric: bool = False
    """Whether translations divided by `near_depth` are in the units of the command, so that speeds can be compared."""
    looked_at: int | None = None
    """Number of frames that the estimator tried to place; None if all of the video's."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Calibration:
    """Orientation and lens of some frames of a video; degrees, and the numbers of a lens model."""

    model: LensModel
    frames: np.ndarray  # (M,) increasing frame numbers
    pitch: np.ndarray  # (M,) positive looks up
    roll: np.ndarray  # (M,) positive tilts the camera clockwise as seen from behind
    lens: dict[str, np.ndarray]  # (M,) each, keys LENS_NUMBERS[model]; NaN where unknown
    details: dict[str, Any] = field(default_factory=dict)

    def rows(
        self,
        chosen: np.ndarray,  # (K,) row numbers, or (M,) bool
    ) -> Calibration:
        """The calibration of some of its frames."""
        lens = {name: values[chosen] for name, values in self.lens.items()}
        return Calibration(
            self.model, self.frames[chosen], self.pitch[chosen], self.roll[chosen], lens, dict(self.details)
        )


class PoseEstimator(Protocol):
    """Estimates camera motion from a video whose lens is known."""

    name: str

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """Poses of a clip taken with a lens of batch shape () or (N,); raises EstimationFailure with a reason."""

    def describe(self) -> dict[str, Any]:
        """Versions and settings that determine the result, plain enough for JSON."""

    def files(self, name: str) -> list[Path]:
        """Files besides the video itself that determine the estimate of the video of this name."""
        return []

    def floor(self, protocol: str) -> dict[str, float] | None:
        """The estimator's own error by metric of a protocol, on videos of known cameras; None if not measured."""
        return None


class Calibrator(Protocol):
    """Estimates orientation and lens of single frames."""

    name: str
    model: LensModel

    def estimate(self, clip: Clip) -> Calibration:
        """Orientation and lens of the frames of a clip; raises EstimationFailure with a reason."""

    def describe(self) -> dict[str, Any]:
        """Versions and settings that determine the result, plain enough for JSON."""

    def files(self, name: str) -> list[Path]:
        """Files besides the video itself that determine the estimate of the video of this name."""
        return []

    def floor(self) -> dict[str, float] | None:
        """The calibrator's own error by metric, on videos of known cameras; None if it was not measured."""
        return None


def pose_to_plain(estimate: PoseEstimate) -> dict[str, Any]:
    """Numbers and lists that `pose_from_plain` turns back into the estimate."""
    return {**vars(estimate), "c2w": estimate.c2w.tolist(), "frames": estimate.frames.tolist()}


def pose_from_plain(plain: dict[str, Any]) -> PoseEstimate:
    """The estimate of `pose_to_plain`."""
    c2w = torch.tensor(plain["c2w"], dtype=torch.float64)
    return PoseEstimate(**{**plain, "c2w": c2w, "frames": np.asarray(plain["frames"])})


def calibration_to_plain(calibration: Calibration) -> dict[str, Any]:
    """Numbers and lists that `calibration_from_plain` turns back into the calibration; NaN becomes None."""
    plain = asdict(calibration)
    plain["lens"] = {name: _without_nan(values) for name, values in calibration.lens.items()}
    angles = {name: _without_nan(getattr(calibration, name)) for name in ("pitch", "roll")}
    return plain | angles | {"frames": calibration.frames.tolist()}


def calibration_from_plain(plain: dict[str, Any]) -> Calibration:
    """The calibration of `calibration_to_plain`."""
    lens = {name: _with_nan(values) for name, values in plain["lens"].items()}
    pitch, roll = (_with_nan(plain[name]) for name in ("pitch", "roll"))
    return Calibration(plain["model"], np.asarray(plain["frames"]), pitch, roll, lens, plain["details"])


def measured_floor(path: Path, protocol: str, files: Sequence[Path] = ()) -> dict[str, float] | None:
    """An estimator's own error under a protocol, if bench_evaluation_floors.py stored it for these weights."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    own = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return content["metrics"].get(protocol) if content["files"] == own else None


def angles_of_up(
    up: np.ndarray,  # (..., 3)
) -> tuple[np.ndarray, np.ndarray]:
    """Pitch and roll (...) in degrees of cameras that see the world's up direction at `up` in their own frame."""
    x, y, z = np.moveaxis(up / np.linalg.norm(up, axis=-1, keepdims=True), -1, 0)
    return np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(-x, -y))


def up_of_angles(pitch: float, roll: float) -> list[float]:
    """Unit up direction (3,) in the frame of a camera of that pitch and roll in degrees."""
    tilt, lean = np.radians([pitch, roll])
    return [-np.cos(tilt) * np.sin(lean), -np.cos(tilt) * np.cos(lean), np.sin(tilt)]


def _without_nan(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _with_nan(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
