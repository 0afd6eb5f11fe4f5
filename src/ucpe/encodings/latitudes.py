"""Lines of latitude in an image: the horizon, and the circles above and below it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ucpe.encodings.orientation import FAR
from ucpe.lenses import Lens

LATITUDES = (-60, -30, 0, 30, 60)
"""Latitudes in degrees that are drawn."""

STEPS = 361
"""Points along a circle of latitude."""


def latitude_lines(
    lens: Lens,  # no batch
    c2w: Tensor,  # (4, 4), gravity-aligned: world up is (0, -1, 0)
    height: int,
    width: int,
    levels: Sequence[float] = LATITUDES,
) -> dict[float, list[np.ndarray]]:
    """Pieces (K, 2) in pixels of each circle of latitude (degrees) that an image of height x width shows."""
    directions = _circles(tuple(levels)) @ c2w[:3, :3].double()
    pixels, valid = lens.project(directions if lens.central else directions * FAR, height, width)
    margin = torch.tensor([width, height], dtype=torch.float64) / 4
    inside = ((pixels > -margin) & (pixels < 5 * margin)).all(-1) & valid
    return {number: _pieces(*line) for number, line in zip(levels, zip(pixels.numpy(), inside.numpy()))}


@lru_cache(maxsize=16)
def _circles(levels: tuple[float, ...]) -> Tensor:
    """Unit directions (L, STEPS, 3) in the world along circles of latitude (degrees)."""
    azimuth = torch.linspace(0, 2 * torch.pi, STEPS, dtype=torch.float64)
    latitude = torch.deg2rad(torch.tensor(levels, dtype=torch.float64))[:, None]
    level = latitude.cos() * torch.ones_like(azimuth)
    return torch.stack([level * azimuth.sin(), -latitude.sin() * torch.ones_like(azimuth), level * azimuth.cos()], -1)


def _pieces(pixels: np.ndarray, inside: np.ndarray) -> list[np.ndarray]:
    """Runs of visible points, cut where the line jumps (a panorama's seam)."""
    joined = inside[:-1] & inside[1:]
    if joined.any():
        jumps = np.hypot(*(pixels[1:] - pixels[:-1]).T)
        joined &= jumps <= 20 * np.median(jumps[joined]) + 2
    return [pixels[start : stop + 1] for start, stop in runs(joined)]


def runs(true: np.ndarray) -> list[tuple[int, int]]:
    """First and one past the last index of every run of True in a row of booleans (K,)."""
    padded = np.zeros(len(true) + 2, bool)
    padded[1:-1] = true
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2]))
