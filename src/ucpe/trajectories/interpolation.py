"""Between frames: slerp for rotation, a smooth curve for position, straight lines for lens parameters."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from ucpe.lenses import Lens
from ucpe.trajectories.rotations import pose_matrix, slerp

LensType = TypeVar("LensType", bound=Lens)


def interpolate_poses(
    poses: Tensor,  # (N, 4, 4)
    times: Tensor,  # (N,)
    at: Tensor,  # (M,)
) -> Tensor:
    """Poses (M, 4, 4) at other times, exactly the given ones at the given, increasing times."""
    if len(times) == 1:
        return poses.expand(len(at), 4, 4).clone()
    segment, fraction = segment_of(times, at)
    rotation = slerp(poses[segment, :3, :3], poses[segment + 1, :3, :3], fraction)
    moved = pose_matrix(rotation, smooth_curve(poses[:, :3, 3], times, at))
    moved = torch.where((fraction == 0)[:, None, None], poses[segment], moved)
    return torch.where((fraction == 1)[:, None, None], poses[segment + 1], moved)


def smooth_curve(
    points: Tensor,  # (N, d)
    times: Tensor,  # (N,)
    at: Tensor,  # (M,)
) -> Tensor:
    """Points (M, d) on the Catmull-Rom curve through two given points or more; exact for parabolas.

    The velocity at each point comes from the parabola through it and its two neighbours, at any spacing in time.
    """
    segment, fraction = segment_of(times, at)
    step = torch.diff(times)[:, None]
    slope = torch.diff(points, dim=0) / step
    velocity = slope.expand(2, -1) if len(points) == 2 else _parabola_velocity(slope, step)
    fraction, duration = fraction[:, None], step[segment]
    start, end = points[segment], points[segment + 1]
    leave, arrive = velocity[segment] * duration, velocity[segment + 1] * duration
    remaining = 1 - fraction
    return (
        start * remaining**2 * (1 + 2 * fraction)
        + end * fraction**2 * (3 - 2 * fraction)
        + leave * fraction * remaining**2
        - arrive * fraction**2 * remaining
    )


def interpolate_lens(
    lens: LensType,  # batch shape (N,)
    times: Tensor,  # (N,)
    at: Tensor,  # (M,)
) -> LensType:
    """Lens of batch shape (M,) whose parameters lie on straight lines between those given."""
    if len(times) == 1:
        return lens[torch.zeros(len(at), dtype=torch.long)]
    segment, fraction = segment_of(times, at)
    before, after = lens[segment], lens[segment + 1]
    parameters = {
        name: torch.lerp(value, after.parameters[name], fraction.to(value)) for name, value in before.parameters.items()
    }
    return lens._with(parameters)


def segment_of(times: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the segment (M,) that each time falls in, and the fraction (M,) of it, clamped to the ends."""
    segment = (torch.searchsorted(times.contiguous(), at.contiguous(), right=True) - 1).clamp(0, len(times) - 2)
    fraction = (at - times[segment]) / (times[segment + 1] - times[segment])
    return segment, fraction.clamp(0, 1)


def _parabola_velocity(slope: Tensor, step: Tensor) -> Tensor:
    """Velocity (N, d) at every point from the slopes and lengths (N - 1, d) of the segments."""
    before, after = step[:-1], step[1:]
    middle = (slope[:-1] * after + slope[1:] * before) / (before + after)
    return torch.cat([2 * slope[:1] - middle[:1], middle, 2 * slope[-1:] - middle[-1:]])
