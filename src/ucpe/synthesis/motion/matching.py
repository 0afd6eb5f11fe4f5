"""Motions whose translation resembles a panoramic clip's (supplement A.3): all pairs at once, in closed form.

A motion is turned about the vertical, scaled and moved onto the clip with the least squared distance (Umeyama's
problem with one angle). With the horizontal plane as complex numbers w = z + i x, turning by yaw is a product with
e^(i yaw), and the fit of a centred motion m to a centred clip p follows from two matrix products over all pairs:

    C = sum p_w conj(m_w) / |m|,  V = sum p_y m_y / |m|,  share = max(|C| + V, 0):
    yaw = arg C,  scale = share / |m|,  RMSE^2 = (|p|^2 - share^2) / frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BEST = 30
"""Number of motions kept for each clip."""

CHUNK = 2048
"""Number of clips compared at a time: their pairs with 300 motions take 30 MB."""


@dataclass(frozen=True)
class Matches:
    """The motions that fit each clip best, in order of increasing RMSE."""

    motion: Tensor  # (P, K) rows of the motions, int64
    rmse: Tensor  # (P, K), in the clip's units
    scale: Tensor  # (P, K), 1 for a motion that stands still
    yaw: Tensor  # (P, K) degrees


def match(
    clips: Tensor,  # (P, N, 3)
    motions: Tensor,  # (M, N, 3)
    best: int = BEST,
    chunk: int = CHUNK,
) -> Matches:
    """The `best` motions of every clip by RMSE after alignment (all if there are fewer), computed in float64.

    A motion that stands still or fits only backwards gets the RMSE of a single point at the clip's mean position. Such
    motions come last, the least opposed first. A clip that stands still fits every motion, and takes the first ones.
    """
    _check(clips, motions)
    if best < 1 or chunk < 1:
        raise ValueError(f"best and chunk must be at least 1, got {best} and {chunk}")
    count = min(best, len(motions))
    found = Matches(
        torch.empty(len(clips), count, dtype=torch.int64), *(torch.empty(len(clips), count) for _ in range(3))
    )
    plane, height, length = _centred(motions)
    moves = length > 0
    length = length.where(moves, torch.ones_like(length))[:, None]
    plane, height = (plane.conj() / length).mT.contiguous(), (height / length).mT.contiguous()
    for start in range(0, len(clips), chunk):
        rows = slice(start, start + chunk)
        clip_plane, clip_height, span = _centred(clips[rows])
        turn = clip_plane @ plane
        share = turn.abs().addmm_(clip_height, height)
        share[span == 0] = -torch.arange(len(motions), dtype=torch.float64)
        share, chosen = share.topk(count, dim=1)
        share, span = share.clamp(min=0), span[:, None]
        rest = (span - share) * (span + share)
        found.motion[rows] = chosen
        found.rmse[rows] = (rest.clamp(min=0) / clips.shape[1]).sqrt().float()
        found.scale[rows] = torch.where(moves[chosen], share / length[chosen, 0], 1.0).float()
        found.yaw[rows] = torch.rad2deg(turn.gather(1, chosen).angle()).float()
    return found


def _centred(paths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Horizontal (P, N) complex, vertical (P, N), and root sum of squares (P,) of paths about their means, float64."""
    paths = paths.double()
    paths = paths - paths.mean(1, keepdim=True)
    x, y, z = paths.unbind(-1)
    return torch.complex(z, x), y.contiguous(), paths.flatten(1).norm(dim=1)


def _check(clips: Tensor, motions: Tensor) -> None:
    for name, paths in (("clips", clips), ("motions", motions)):
        if paths.ndim != 3 or paths.shape[2] != 3 or paths.shape[1] != clips.shape[1] or paths.shape[1] < 2:
            raise ValueError(
                "clips and motions must be positions (count, frames, 3) with the same number of frames, at least 2, "
                f"got {tuple(clips.shape)} and {tuple(motions.shape)}"
            )
        if bad := (~torch.isfinite(paths).flatten(1).all(1)).nonzero().flatten().tolist():
            raise ValueError(f"positions of {name} must be finite, but those of row {bad[0]} are not")
    if not len(motions):
        raise ValueError("no motion to match with")
