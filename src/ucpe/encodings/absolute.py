"""Absolute encodings, the baselines that depend on the choice of world frame: Pluecker rays, raw parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from ucpe.encodings.frames import Position, as_poses, world_rays
from ucpe.lenses.base import Lens
from ucpe.lenses.pinhole import Pinhole
from ucpe.lenses.unified import UCM


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
