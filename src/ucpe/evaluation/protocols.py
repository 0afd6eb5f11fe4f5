"""Named ways to turn a commanded and an estimated path into numbers; every result file names the one it used.

The published numbers cannot be compared without this: the paper's supplement C gives sums and no scale alignment, the
authors' script divides each path by its own largest translation and sums 81 frames in radians, others sum 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ucpe.evaluation.pose_metrics import (
    absolute_trajectory_error,
    displacement,
    frame_errors,
    largest_translation,
    least_squares_scale,
    relative_pose_error,
    scaled,
)
from ucpe.trajectories.interpolation import interpolate_poses

Scale = Literal["none", "own_maximum", "least_squares"]

COMMON_TIMESTAMPS = 16
"""Number of timestamps at which all methods are compared, whatever their lengths and frame rates (supplement C)."""

ROTATION_ONLY = 0.02
"""Maximum translation, in near-plane depths, of a path that counts as rotation only."""

MAX_SPEED_ERROR = 4.0
"""Maximum SpeedErr in factors of two, which a camera that never moves gets."""


@dataclass(frozen=True)
class Protocol:
    """How paths are sampled, brought to one scale, and summed."""

    name: str
    description: str
    scale: Scale
    """`none`; `own_maximum`: divide each path by its own largest translation; `least_squares`: fit one factor."""
    frames: int | None
    """Number of timestamps, evenly from the first frame to the end; with `every`, the maximum number of frames."""
    angle: Literal["degrees", "radians"]
    """Unit of RotErr."""
    reduction: Literal["sum", "mean"]
    """How the headline RotErr, TransErr and CamMC are reduced over frames; the other reduction is given as well."""
    detects_rotation_only: bool = False
    """Whether translation errors are left out if no translation is commanded and the estimate's scale is unknown."""
    odometry: bool = False
    """Whether Sim3 ATE, RPE and SpeedErr are added."""
    every: int | None = None
    """Compare every `every`-th of the video's own frames, at most `frames` of them, instead of timestamps."""

    def timestamps(
        self,
        times: Tensor,  # (N,) seconds of the video's frames
        end: float,
    ) -> Tensor:
        """Times (M,) in seconds at which both paths are compared, from the first frame to `end`."""
        end = min(end, float(times[-1]))
        if self.every is not None:
            return times[times <= end + 1e-6].double()[:: self.every][: self.frames]
        assert self.frames is not None
        return torch.linspace(0, end, self.frames, dtype=torch.float64)

    def evaluate(
        self,
        commanded: Tensor,  # (N, 4, 4), in near-plane depths
        estimated: Tensor,  # (N, 4, 4), at the same times
        near_depth: float | None = None,
        metric: bool = False,
    ) -> dict[str, float]:
        """Metrics by name; a metric that the paths do not determine is absent.

        `near_depth` is the near-plane depth of the estimate's world, if the estimator knows it. `metric` says that this
        is the unit of the command, so that speeds can be compared.
        """
        commanded, estimated = commanded.double(), estimated.double()
        still = self.detects_rotation_only and largest_translation(commanded) < ROTATION_ONLY
        factor = self._estimate_scale(commanded, estimated, near_depth, still)
        if self.scale == "own_maximum":
            commanded = scaled(commanded, _own_scale(commanded))
        aligned = scaled(estimated, factor)
        errors = frame_errors(commanded, aligned)
        rotation = errors.rotation if self.angle == "degrees" else torch.deg2rad(errors.rotation)
        result = {"RotErr": rotation}
        if not still or near_depth is not None:
            result |= {"TransErr": errors.translation, "CamMC": errors.matrix}
        metrics = {name: float(getattr(values, self.reduction)()) for name, values in result.items()}
        other = "mean" if self.reduction == "sum" else "sum"
        metrics |= {f"{name}_{other}": float(getattr(values, other)()) for name, values in result.items()}
        if self.odometry:
            metrics |= _odometry(commanded, estimated, aligned, near_depth, metric, still)
        return metrics

    def _estimate_scale(self, commanded: Tensor, estimated: Tensor, near_depth: float | None, still: bool) -> float:
        if still:
            return 1 / near_depth if near_depth is not None else 0.0
        if self.scale == "own_maximum":
            return _own_scale(estimated)
        return least_squares_scale(commanded, estimated) if self.scale == "least_squares" else 1.0


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "robust",
            "one least-squares scale; mean per frame, degrees; paths told not to move are not scaled",
            scale="least_squares",
            frames=COMMON_TIMESTAMPS,
            angle="degrees",
            reduction="mean",
            detects_rotation_only=True,
            odometry=True,
        ),
        Protocol(
            "paper",
            "supplement C: sums over 16 common timestamps, radians (as its tables are, whatever their headings say); "
            "one least-squares scale, since it says that the metrics do not depend on scale",
            scale="least_squares",
            frames=COMMON_TIMESTAMPS,
            angle="radians",
            reduction="sum",
        ),
        Protocol(
            "released",
            "the authors' script: each path divided by its own largest translation, sums over all frames, radians",
            scale="own_maximum",
            frames=None,
            angle="radians",
            reduction="sum",
            every=1,
        ),
        Protocol(
            "released-re10k",
            "the authors' script for RealEstate10K: every fourth frame, the first 16 of them, each path divided by its "
            "own largest translation, sums, radians",
            scale="own_maximum",
            frames=16,
            angle="radians",
            reduction="sum",
            every=4,
        ),
        Protocol(
            "cameractrl",
            "CameraCtrl: translations as the estimator gives them, sums over 16 timestamps, radians",
            scale="none",
            frames=COMMON_TIMESTAMPS,
            angle="radians",
            reduction="sum",
        ),
    )
}
"""The protocols by name; `robust` is the default."""


def find_protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise ValueError(f"no protocol '{name}'; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def estimate_at(
    c2w: Tensor,  # (N, 4, 4)
    times: Tensor,  # (N,) seconds, increasing
    seconds: Tensor,  # (M,)
) -> Tensor:
    """Estimated poses (M, 4, 4) at other times, clamped to the first and last estimate."""
    return interpolate_poses(c2w.double(), times.double(), seconds.double())


def _odometry(
    commanded: Tensor, estimated: Tensor, aligned: Tensor, near_depth: float | None, metric: bool, still: bool
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    if len(commanded) > 1:
        rotation, translation = relative_pose_error(commanded, aligned)
        metrics["RPE_rot"] = rotation
        if not still:
            metrics["RPE_trans"] = translation
            metrics["ATE"] = absolute_trajectory_error(commanded, estimated)
    if near_depth is not None and not still:
        ratio = displacement(estimated) / near_depth / displacement(commanded)
        metrics |= {"speed": ratio, "SpeedErr": speed_error(ratio)} if metric else {"speed": ratio}
    return metrics


def speed_error(ratio: float) -> float:
    """|log2| of estimated over commanded displacement, at most MAX_SPEED_ERROR; 1 is twice or half as far."""
    least = 2.0**-MAX_SPEED_ERROR
    return abs(float(torch.log2(torch.tensor(min(max(ratio, least), 1 / least), dtype=torch.float64))))


def _own_scale(c2w: Tensor) -> float:
    """The factor by which the authors' script multiplies translations; the small number is theirs, and keeps 0 at 0."""
    return 1 / (largest_translation(c2w) + 1e-9)
