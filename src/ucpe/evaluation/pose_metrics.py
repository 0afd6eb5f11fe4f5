"""Errors between two camera paths: the paper's RotErr, TransErr and CamMC, and the ATE and RPE of visual odometry."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ucpe.trajectories.alignment import alignment_error, umeyama
from ucpe.trajectories.rotations import invert_pose, pose_matrix, rotation_angle


class FrameErrors(NamedTuple):
    """Errors of every frame's pose relative to the first."""

    rotation: Tensor  # (N,) degrees
    translation: Tensor  # (N,) world units
    matrix: Tensor  # (N,) length of the difference of the 3 x 4 matrices


def relative_to_first(
    c2w: Tensor,  # (N, 4, 4)
) -> Tensor:
    """Poses (N, 4, 4) in the first camera's frame, T_0^-1 T_i (supplement C)."""
    return invert_pose(c2w[0]) @ c2w


def frame_errors(
    commanded: Tensor,  # (N, 4, 4)
    estimated: Tensor,  # (N, 4, 4)
) -> FrameErrors:
    """Rotation, translation and matrix error of every frame of two paths, each relative to its own first frame."""
    if commanded.shape != estimated.shape or commanded.ndim != 3:
        raise ValueError(
            f"two paths to compare need the same shape (frames, 4, 4), got {tuple(commanded.shape)} and "
            f"{tuple(estimated.shape)}"
        )
    wanted, got = relative_to_first(commanded.double()), relative_to_first(estimated.double())
    rotation = rotation_angle(wanted[:, :3, :3].mT @ got[:, :3, :3])
    translation = (wanted[:, :3, 3] - got[:, :3, 3]).norm(dim=-1)
    matrix = (wanted[:, :3] - got[:, :3]).flatten(1).norm(dim=-1)
    return FrameErrors(rotation, translation, matrix)


def least_squares_scale(
    commanded: Tensor,  # (N, 4, 4)
    estimated: Tensor,  # (N, 4, 4)
) -> float:
    """Factor s >= 0 on the estimated translations that minimises sum |t_i - s t^_i|^2, relative to the first frame.

    0 where the estimate never moves, or moves against the command: no scale can make it agree.
    """
    wanted = relative_to_first(commanded.double())[:, :3, 3]
    got = relative_to_first(estimated.double())[:, :3, 3]
    energy = (got * got).sum()
    return max(float((wanted * got).sum() / energy), 0.0) if energy > 0 else 0.0


def largest_translation(
    c2w: Tensor,  # (N, 4, 4)
) -> float:
    """Largest distance from the first camera centre, in world units."""
    return float((c2w[:, :3, 3] - c2w[:1, :3, 3]).norm(dim=-1).max())


def displacement(
    c2w: Tensor,  # (N, 4, 4)
) -> float:
    """Root mean square distance from the first camera centre, in world units."""
    return float((c2w[:, :3, 3] - c2w[:1, :3, 3]).double().square().sum(-1).mean().sqrt())


def scaled(
    c2w: Tensor,  # (N, 4, 4)
    factor: float,
) -> Tensor:
    """Poses (N, 4, 4) with translations multiplied by a factor, which may be 0."""
    return pose_matrix(c2w[:, :3, :3], c2w[:, :3, 3] * factor)


def absolute_trajectory_error(
    commanded: Tensor,  # (N, 4, 4)
    estimated: Tensor,  # (N, 4, 4)
) -> float:
    """Root mean square distance of camera centres after the best similarity (Sim3 ATE), in commanded units."""
    source, target = estimated[:, :3, 3].double(), commanded[:, :3, 3].double()
    return float(alignment_error(umeyama(source, target), source, target))


def relative_pose_error(
    commanded: Tensor,  # (N, 4, 4)
    estimated: Tensor,  # (N, 4, 4)
) -> tuple[float, float]:
    """Root mean square rotation (degrees) and translation error of the motion from each frame to the next."""
    if len(commanded) < 2:
        raise ValueError(f"relative pose error needs more than 1 frames, got {len(commanded)}")
    wanted, got = (invert_pose(c2w[:-1].double()) @ c2w[1:].double() for c2w in (commanded, estimated))
    difference = invert_pose(wanted) @ got
    rotation = rotation_angle(difference[:, :3, :3])
    translation = difference[:, :3, 3].norm(dim=-1)
    return float(rotation.square().mean().sqrt()), float(translation.square().mean().sqrt())
