"""Camera rotations made more diverse (supplement A.4): four variants of every path, and the poses they give."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

Variant = Literal["original", "yaw", "yaw_pitch", "panning"]

VARIANTS: tuple[Variant, ...] = ("original", "yaw", "yaw_pitch", "panning")
"""Unchanged; turned by one random yaw; by one random yaw and pitch; by curves of yaw, pitch and roll."""

YAW_RANGE, PITCH_RANGE = 180.0, 80.0
"""Largest offset in degrees, either way, of the consistent perturbations."""

PANNING_RANGES = (40.0, 90.0, 30.0)
"""Largest offset in degrees, either way, of pitch, yaw and roll at both ends of a panning curve."""

Panning = Literal["paper", "released"]
"""Both ends of a panning curve lie within PANNING_RANGES; or, as in the authors' code, its start and its change do, so
that its end reaches twice as far."""


def augment_rotations(
    rotations: Tensor,  # (N, 3, 3)
    variant: Variant,
    generator: torch.Generator,
    panning: Panning = "paper",
) -> Tensor:
    """A variant (N, 3, 3) of camera-to-world rotations.

    Yaw turns about the world's vertical; pitch and roll turn the camera in its own frame, so every variant of a smooth
    path is smooth. Panning curves run evenly from a random start to a random end, as in the published clips.
    """
    frames, like = len(rotations), rotations
    zero = torch.zeros(frames, dtype=torch.float64)
    if variant == "original":
        pitch = yaw = roll = zero
    elif variant in ("yaw", "yaw_pitch"):
        draw = 2 * torch.rand(2, generator=generator, dtype=torch.float64) - 1
        yaw, roll = zero + YAW_RANGE * draw[0], zero
        pitch = zero + (PITCH_RANGE * draw[1] if variant == "yaw_pitch" else 0.0)
    elif variant == "panning":
        ends = 2 * torch.rand(2, 3, generator=generator, dtype=torch.float64) - 1
        ends = ends * torch.tensor(PANNING_RANGES, dtype=torch.float64)
        ends = ends.cumsum(0) if panning == "released" else ends
        time = torch.linspace(0, 1, frames, dtype=torch.float64)[:, None]
        pitch, yaw, roll = torch.lerp(ends[0], ends[1], time).unbind(-1)
    else:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    turn, tilt = rotation_from_angles(zero, yaw, zero), rotation_from_angles(pitch, zero, roll)
    return turn.to(like) @ rotations @ tilt.to(like)


def compose_poses(
    erp: Tensor,  # (N, 4, 4)
    rotations: Tensor,  # (N, 3, 3)
    near_depth: float,
) -> Tensor:
    """Poses [R_erp R_aug | t_erp] (N, 4, 4) of virtual cameras in footage, in units of its near-plane depth.

    The first camera becomes the origin of the world; its axes, and so gravity, stay.
    """
    if not 0 < near_depth < float("inf"):
        raise ValueError(f"near-plane depth must be positive, got {near_depth}")
    positions = (erp[:, :3, 3] - erp[:1, :3, 3]) / near_depth
    return pose_matrix(erp[:, :3, :3] @ rotations.to(erp), positions)
