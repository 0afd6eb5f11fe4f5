"""The local frame of every viewing ray, and the rays themselves in the world."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ucpe.lenses.base import Lens, Rays, check_size, pixel_grid
from ucpe.lenses.numerics import norm, widest_dtype
from ucpe.trajectories.rotations import invert_pose, pose_matrix

Frame: TypeAlias = Literal["paper", "transport"]
Position: TypeAlias = Literal["center", "corner"]

DEGENERATE_SINE = 1e-3
"""Sine of the angle to the frame's singular direction below which another camera axis is used."""


class RayFrames(NamedTuple):
    """Rigid transforms between every token's ray and the world; the identity where a token has no ray."""

    ray_to_world: Tensor  # (..., N, height, width, 4, 4)
    valid: Tensor  # (..., N, height, width) bool

    @property
    def world_to_ray(self) -> Tensor:
        """Inverse transforms (..., N, height, width, 4, 4)."""
        return invert_pose(self.ray_to_world)


def ray_frames(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    *,
    frame: Frame = "paper",
    position: Position = "center",
) -> RayFrames:
    """Frames of height x width tokens per camera: z along the ray, origin at the ray's origin, float64.

    `frame="paper"` takes x from the camera's down axis, x = y_cam x z normalised (singular straight up and down, where
    the camera's x axis steps in); `"transport"` turns the optical axis to the ray by the smallest rotation (singular
    straight behind). `position` puts a token's ray at its centre, or at its top left corner as the released code does.
    """
    return ray_frames_of_poses(lens, as_poses(c2w), height, width, frame, position)


def world_rays(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    *,
    position: Position = "center",
) -> Rays:
    """World-space rays (..., N, height, width, 3) of every camera, float64; zero where invalid."""
    c2w = as_poses(c2w)
    rays = token_rays(lens, height, width, position, c2w)
    rotation, translation = c2w[..., None, None, :3, :3], c2w[..., None, None, :3, 3]
    directions = (rotation @ rays.directions[..., None])[..., 0]
    origins = (rotation @ rays.origins[..., None])[..., 0] + translation
    valid = rays.valid.expand(directions.shape[:-1])
    return Rays(origins * valid[..., None], directions * valid[..., None], valid)


def token_rays(lens: Lens, height: int, width: int, position: Position, like: Tensor) -> Rays:
    """Camera-frame rays (*lens batch, height, width, 3) of tokens, float64, on the device of `like`."""
    check_size(height, width)
    pixels = token_grid(height, width, position, like)
    return lens.unproject(pixels.expand(*lens.batch_shape, *pixels.shape), height, width)


def token_grid(height: int, width: int, position: Position, like: Tensor) -> Tensor:
    """Image positions (height, width, 2) of tokens as (u, v), in units of tokens."""
    if position not in ("center", "corner"):
        raise ValueError(f"position must be 'center' or 'corner', got {position!r}")
    grid = pixel_grid(height, width, like.dtype, like.device)
    return grid if position == "center" else grid - 0.5


def ray_frames_of_poses(
    lens: Lens, c2w: Tensor, height: int, width: int, frame: Frame, position: Position
) -> RayFrames:
    """`ray_frames` of what `as_poses` gives."""
    if frame not in ("paper", "transport"):
        raise ValueError(f"frame must be 'paper' or 'transport', got {frame!r}")
    rays = token_rays(lens, height, width, position, c2w)
    axes = _paper_axes(rays.directions) if frame == "paper" else _transport_axes(rays.directions)
    ray_to_world = c2w[..., None, None, :, :] @ pose_matrix(axes, rays.origins)
    valid = rays.valid.expand(ray_to_world.shape[:-2])
    identity = torch.eye(4, dtype=c2w.dtype, device=c2w.device)
    return RayFrames(torch.where(valid[..., None, None], ray_to_world, identity), valid)


def anchored_poses(
    c2w: Tensor,  # (..., N, 4, 4), gravity-aligned if `upright`
    upright: bool,
) -> Tensor:
    """Poses (..., N, 4, 4) in the frame of the first camera, or in the upright frame at its position and heading."""
    origin = c2w[..., :1, :, :].clone()
    if upright:
        down = torch.tensor([0.0, 1.0, 0.0]).to(c2w).expand(*origin.shape[:-2], 3)
        ahead = origin[..., :3, 2] * (1 - down)
        aside = torch.linalg.cross(origin[..., :3, 0] * (1 - down), down)  # for cameras that look straight up or down
        ahead = torch.where((norm(ahead) > DEGENERATE_SINE)[..., None], ahead, aside)
        ahead = ahead / norm(ahead)[..., None]
        origin[..., :3, :3] = torch.stack([torch.linalg.cross(down, ahead), down, ahead], dim=-1)
    return invert_pose(origin) @ c2w


def as_poses(c2w: Tensor) -> Tensor:
    """Camera poses (..., N, 4, 4), exactly rigid, in float64 where the device has it; ValueError if they are none."""
    if not isinstance(c2w, Tensor) or c2w.ndim < 3 or c2w.shape[-2:] != (4, 4):
        found = tuple(c2w.shape) if isinstance(c2w, Tensor) else type(c2w).__name__
        raise ValueError(f"c2w must be a tensor of camera-to-world matrices of shape (..., N, 4, 4), got {found}")
    poses = c2w.to(widest_dtype(c2w.device))
    with torch.no_grad():
        rotation = poses[..., :3, :3]
        error = (rotation @ rotation.mT - torch.eye(3, dtype=poses.dtype, device=poses.device)).abs().amax((-2, -1))
        bottom = poses[..., 3, :] - torch.tensor([0.0, 0, 0, 1], dtype=poses.dtype, device=poses.device)
        rigid = (error < 0.02) & (bottom.abs().amax(-1) < 1e-4) & (torch.linalg.det(rotation) > 0)
        rigid &= torch.isfinite(poses[..., :3, 3]).all(-1)
        if not rigid.all():
            index = tuple(int(i) for i in (~rigid).nonzero()[0])
            raise ValueError(
                f"c2w[{', '.join(map(str, index))}] is not a rigid camera-to-world matrix (a rotation, a translation "
                f"and the last row 0 0 0 1); got {c2w[index].tolist()}"
            )
    return pose_matrix(_nearest_rotation(poses[..., :3, :3]), poses[..., :3, 3])


def _nearest_rotation(rotation: Tensor) -> Tensor:
    """Rotations (..., 3, 3) nearest to matrices that are almost one, as low precision leaves them."""
    for _ in range(3):
        rotation = 1.5 * rotation - 0.5 * rotation @ (rotation.mT @ rotation)
    return rotation


def _paper_axes(direction: Tensor) -> Tensor:
    """Columns [x, y, z] (..., 3, 3) with x = y_cam x z normalised, from camera-frame directions (..., 3)."""
    dx, dy, dz = direction.unbind(-1)
    zero = torch.zeros_like(dx)
    sideways = torch.stack([dz, zero, -dx], dim=-1)
    rightward = torch.stack([1 - dx * dx, -dx * dy, -dx * dz], dim=-1)
    degenerate = (dx * dx + dz * dz < DEGENERATE_SINE**2)[..., None]
    x = torch.where(degenerate, rightward, sideways)
    x = x / norm(x)[..., None]
    return torch.stack([x, torch.linalg.cross(direction, x), direction], dim=-1)


def _transport_axes(direction: Tensor) -> Tensor:
    """Columns (..., 3, 3) of the smallest rotation that takes the optical axis to the direction (..., 3)."""
    dx, dy, dz = direction.unbind(-1)
    behind = dz < DEGENERATE_SINE**2 / 2 - 1
    scale = 1 / torch.where(behind, torch.ones_like(dz), 1 + dz)
    x = torch.stack([1 - dx * dx * scale, -dx * dy * scale, -dx], dim=-1)
    rightward = torch.stack([1 - dx * dx, -dx * dy, -dx * dz], dim=-1)
    x = torch.where(behind[..., None], rightward / norm(rightward)[..., None], x)
    return torch.stack([x, torch.linalg.cross(direction, x), direction], dim=-1)
