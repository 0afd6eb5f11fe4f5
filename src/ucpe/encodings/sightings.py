"""Where the points of every camera's rays appear to every other camera, through any lens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ucpe.encodings.frames import Position, as_poses, token_grid, world_rays
from ucpe.lenses.base import Lens
from ucpe.lenses.numerics import norm

REACH = 1.5
"""Distance from the image's centre, in units of its longer side, at which points out of sight are put."""


def sightings(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    depths: Sequence[float],
    *,
    position: Position = "center",
) -> Tensor:
    """Image positions (..., N, depths, N * height * width, 2) in tokens: where every camera sees the tokens of all.

    Each token of each camera is put at every depth along its ray. To its own camera it appears at its own place,
    whatever the depth; a token without a ray does so to all cameras.
    """
    c2w = as_poses(c2w)
    rays = world_rays(lens, c2w, height, width, position=position)
    origins, directions = (t.flatten(-4, -2)[..., None, None, :, :] for t in (rays.origins, rays.directions))
    along = torch.as_tensor(depths, dtype=c2w.dtype, device=c2w.device)[:, None, None]
    places = place_points(lens, c2w, origins + along * directions, height, width)
    own = token_grid(height, width, position, c2w).flatten(0, 1).repeat(c2w.shape[-3], 1)
    return torch.where(rays.valid.flatten(-3)[..., None, None, :, None], places, own)


def place_points(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    points: Tensor,  # (..., N or 1, K, points, 3) in the world
    height: int,
    width: int,
) -> Tensor:
    """Image positions (..., N, K, points, 2) in tokens of world points, to each of N cameras.

    Positions are kept within `REACH` of the centre. A point that a lens cannot see is put there, in the direction in
    which it lies.
    """
    rotation, translation = c2w[..., None, :3, :3], c2w[..., None, None, :3, 3]
    inside = (points - translation) @ rotation
    lens = lens.expand(*inside.shape[:-3]) if lens.batch_shape else lens
    pixels, seen = lens.project(inside, height, width)
    centre = torch.tensor([width / 2, height / 2], dtype=pixels.dtype, device=pixels.device)
    reach = REACH * max(height, width)
    offset = pixels - centre
    offset = offset * (reach / norm(offset).clamp(min=reach))[..., None]
    aside = inside[..., :2] / norm(inside[..., :2]).clamp(min=1e-9)[..., None]
    return centre + torch.where(seen[..., None], offset, reach * aside)
