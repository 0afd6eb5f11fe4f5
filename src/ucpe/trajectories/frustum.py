"""The shape of what a camera sees: the cone of a lens's outermost rays, closed by a cap."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ucpe.lenses import Lens
from ucpe.lenses.numerics import furthest

FLAT_WITHIN = math.radians(62)
"""Angle of the widest ray up to which the cap is the flat image plane; a wider view gets a piece of a sphere."""

BORDER_SAMPLES = 40
"""Points along each side of the image."""

RINGS = 16
"""Circles of points from the image centre to its border."""


class Frustum(NamedTuple):
    """View volume in the camera frame, one unit deep; the border runs clockwise from the top left corner."""

    origin: Tensor  # (3,), where the rays start
    cap: Tensor  # (RINGS + 1, 4 * BORDER_SAMPLES, 3), from the image centre to the border
    corners: Tensor  # (4, 3): top left, top right, bottom right, bottom left

    @property
    def top(self) -> Tensor:
        """The middle (3,) of the upper border."""
        return self.cap[-1, BORDER_SAMPLES // 2]

    @property
    def row(self) -> Tensor:
        """The row (2 * RINGS + 1, 3) through the image centre, from left to right."""
        left, right = 3 * BORDER_SAMPLES + BORDER_SAMPLES // 2, BORDER_SAMPLES + BORDER_SAMPLES // 2
        return torch.cat([self.cap[:, left].flip(0), self.cap[1:, right]])

    @property
    def border(self) -> Tensor:
        """Closed outline (4 * BORDER_SAMPLES + 1, 3)."""
        return torch.cat([self.cap[-1], self.cap[-1, :1]])


def frustum(lens: Lens, height: int = 480, width: int = 832) -> Frustum:
    """View volume of an unbatched lens over an image of height x width, up to where the lens can see."""
    side = torch.arange(BORDER_SAMPLES, dtype=torch.float64) / BORDER_SAMPLES
    zero, one = torch.zeros_like(side), torch.ones_like(side)
    edges = [(side, zero), (one, side), (1 - side, one), (zero, 1 - side)]
    size = torch.tensor([width, height], dtype=torch.float64)
    border = torch.cat([torch.stack(edge, -1) for edge in edges]) * size
    centre = size / 2

    def visible(share: Tensor) -> Tensor:
        return lens.unproject(centre + (border - centre)[:, None] * share[..., None], height, width).valid

    reach = furthest(visible, torch.ones(len(border), dtype=torch.float64))
    steps = torch.linspace(0, 1, RINGS + 1, dtype=torch.float64)[:, None, None]
    pixels = centre + (border - centre) * reach[:, None] * steps
    rays = lens.unproject(pixels, height, width)
    angle = torch.atan2(rays.directions[..., :2].norm(dim=-1), rays.directions[..., 2])
    flat = bool(angle.max() <= FLAT_WITHIN)
    cap = rays.directions / (rays.directions[..., 2:] if flat else 1) + rays.origins
    return Frustum(rays.origins.mean((0, 1)), cap, cap[-1, ::BORDER_SAMPLES])
