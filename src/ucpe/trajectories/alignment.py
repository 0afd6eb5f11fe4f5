"""Least-squares alignment of camera paths (Umeyama): Sim3, SE3, or turning about the vertical only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ucpe.trajectories.rotations import full_precision, pose_matrix, rotation_about, rotation_between
from ucpe.trajectories.trajectory import Trajectory


@dataclass(frozen=True)
class Similarity:
    """The map point -> scale * rotation @ point + translation, with leading batch dimensions."""

    scale: Tensor  # (...)
    rotation: Tensor  # (..., 3, 3)
    translation: Tensor  # (..., 3)

    @full_precision
    def apply(
        self,
        points: Tensor,  # (..., N, 3)
    ) -> Tensor:
        """Mapped points (..., N, 3)."""
        return self.scale[..., None, None] * points @ self.rotation.mT + self.translation[..., None, :]

    @full_precision
    def apply_to(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory in the world this maps to: camera centres mapped, orientations rotated."""
        rotations = self.rotation.to(trajectory.c2w) @ trajectory.rotations
        positions = self.apply(trajectory.positions.to(self.rotation)).to(trajectory.c2w)
        return Trajectory(pose_matrix(rotations, positions), trajectory.lens, trajectory.fps)


@full_precision
def umeyama(
    source: Tensor,  # (..., N, 3)
    target: Tensor,  # (..., N, 3)
    *,
    scale: bool = True,
    vertical: bool = False,
) -> Similarity:
    """Similarity that maps source points onto target points with the least squared error, in closed form.

    Without `scale` it is rigid (SE3); with `vertical` it turns about the world's vertical only, so that gravity stays.
    What the points do not determine is left alone: a source that never moves keeps scale 1, a straight path takes
    the smallest rotation; a path is straight if it leaves its line by no more than rounding does. Scale is never
    negative. Computed in float64, returned in the dtype of the source, at least float32.
    """
    if source.shape != target.shape or source.ndim < 2 or source.shape[-1] != 3 or source.shape[-2] < 1:
        raise ValueError(
            f"source and target must be points of one shape (..., N, 3), got {tuple(source.shape)} and "
            f"{tuple(target.shape)}"
        )
    dtype = torch.promote_types(source.dtype, torch.float32)
    rounding = 4 * torch.finfo(dtype).eps
    source, target = (points.to(dtype).double() for points in (source, target))
    noise = source.shape[-2] * (rounding * source.abs().amax((-2, -1))) * (rounding * target.abs().amax((-2, -1)))
    source_mean, target_mean = source.mean(-2, keepdim=True), target.mean(-2, keepdim=True)
    centred, wanted = source - source_mean, target - target_mean
    moving = centred.abs().amax((-2, -1)) > rounding * source.abs().amax((-2, -1))
    centred = centred * moving[..., None, None]
    covariance = wanted.mT @ centred
    rotation = _vertical_rotation(covariance) if vertical else _rotation(covariance, noise)
    factor = torch.ones_like(covariance[..., 0, 0])
    if scale:
        spread = (centred * centred).sum((-2, -1))
        overlap = (rotation * covariance).sum((-2, -1))
        moves = spread > 0
        factor = torch.where(moves, overlap.clamp(min=0) / torch.where(moves, spread, factor), factor)
    moved = factor[..., None, None] * rotation @ source_mean.mT
    translation = target_mean[..., 0, :] - moved[..., 0]
    return Similarity(factor.to(dtype), rotation.to(dtype), translation.to(dtype))


def align(source: Trajectory, target: Trajectory, *, scale: bool = True, vertical: bool = False) -> Trajectory:
    """The source trajectory moved onto the target by `umeyama` over their camera centres."""
    if len(source) != len(target):
        raise ValueError(f"only paths of equal length align, got {len(source)} and {len(target)} frames: resample one")
    similarity = umeyama(source.positions, target.positions.to(source.positions), scale=scale, vertical=vertical)
    return similarity.apply_to(source)


def alignment_error(
    similarity: Similarity,
    source: Tensor,  # (..., N, 3)
    target: Tensor,  # (..., N, 3)
) -> Tensor:
    """Root mean square distance (...) between mapped source points and target points."""
    return (similarity.apply(source) - target).square().sum(-1).mean(-1).sqrt()


def _rotation(
    covariance: Tensor,  # (..., 3, 3)
    noise: Tensor,  # (...)
) -> Tensor:
    """Rotations (..., 3, 3) R that maximise trace(R^T covariance), never a reflection.

    Singular values up to `noise`, what the rounding of the points makes, count as zero.
    """
    left, sizes, right = torch.linalg.svd(covariance)
    sign = torch.linalg.det(left @ right).sign()
    signs = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], -1)
    rotation = (left * signs[..., None, :]) @ right
    largest = sizes[..., :1]
    computed = 16 * torch.finfo(sizes.dtype).eps * largest
    rank = (sizes > noise[..., None] + computed).sum(-1)
    line = rotation_between(right[..., 0, :], left[..., :, 0])
    identity = torch.eye(3, dtype=covariance.dtype, device=covariance.device).expand_as(rotation)
    rank = rank[..., None, None]
    return torch.where(rank >= 2, rotation, torch.where(rank == 1, line, identity))


def _vertical_rotation(covariance: Tensor) -> Tensor:
    """Rotations (..., 3, 3) about the y axis that maximise trace(R^T covariance)."""
    cosine = covariance[..., 0, 0] + covariance[..., 2, 2]
    sine = covariance[..., 0, 2] - covariance[..., 2, 0]
    return rotation_about(1, torch.atan2(sine, cosine))
