"""Features of rays and cameras: Pluecker rays, raw parameters, and rays as the first camera has them (Sightline)."""

from __future__ import annotations

import torch
from torch import Tensor

from ucpe.encodings.frames import Position, anchored_poses, as_poses, world_rays
from ucpe.encodings.orientation import lat_up_map
from ucpe.lenses.base import Lens
from ucpe.lenses.pinhole import Pinhole
from ucpe.lenses.unified import UCM

RAYS_PER_SIDE = 2
"""Rays along each side of a token that `sightline_features` tells."""

FEATURE_GAIN = 8.0
"""Factor of `sightline_features`: optimisers such as Adam learn to use larger numbers in fewer steps."""


def sightline_features(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4), gravity-aligned if `upright`
    height: int,
    width: int,
    *,
    upright: bool = True,
    position: Position = "center",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Features (..., N, height, width, 24 or, upright, 27) of tokens that do not depend on the world frame.

    Pluecker coordinates of 2 x 2 rays per token in the frame of the first camera or, if `upright`, in the upright frame
    at its position and heading, with the Lat-Up map. Zero where there is no ray.
    """
    c2w, side = anchored_poses(as_poses(c2w), upright), RAYS_PER_SIDE
    rays = plucker_rays(lens, c2w, side * height, side * width, dtype=dtype)
    rays = rays.unflatten(-2, (width, side)).unflatten(-4, (height, side)).transpose(-4, -3).flatten(-3)
    parts = [rays, lat_up_map(lens, c2w, height, width, position=position, dtype=dtype)] if upright else [rays]
    return FEATURE_GAIN * torch.cat(parts, dim=-1)


def plucker_rays(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    *,
    position: Position = "center",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Pluecker coordinates (..., N, height, width, 6): direction d and moment m = o x d; zero where invalid.

    One ray per pixel or per token, by the height and width given. The released baseline rotates by the transpose of R.
    """
    origins, directions, _ = world_rays(lens, c2w, height, width, position=position)
    return torch.cat([directions, torch.linalg.cross(origins, directions)], dim=-1).to(dtype)


def raw_parameters(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Camera parameters (..., N, 14): rows of the 3 x 4 c2w, xFoV / 180 degrees, and xi of a UCM lens."""
    if not isinstance(lens, UCM | Pinhole):
        raise ValueError(
            f"raw parameters are those of a UCM lens (xfov, xi), got {lens.kind}; lens.fit(UCM) finds the nearest one"
        )
    c2w = as_poses(c2w)
    given = lens.parameters.get("xfov")
    xfov = (lens.xfov(height, width) if given is None else given).to(c2w) / 180
    xi = lens.parameters.get("xi", torch.zeros((), device="cpu")).to(c2w)
    batch = c2w.shape[:-2]
    intrinsics = torch.stack([xfov.expand(batch), xi.expand(batch)], dim=-1)
    return torch.cat([c2w[..., :3, :].flatten(-2), intrinsics], dim=-1).to(dtype)
