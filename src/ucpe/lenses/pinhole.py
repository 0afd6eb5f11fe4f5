"""Perspective lenses: the ideal pinhole, and the pinhole with Brown-Conrady distortion."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ucpe.lenses.base import Parameter
from ucpe.lenses.distortion import Distorted
from ucpe.lenses.numerics import norm, safe_divide
from ucpe.lenses.planar import PlanarLens


class Perspective(PlanarLens):
    """The plane of points over their depth: sees less than 180 degrees."""

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        depth = points[..., 2:]
        in_front = depth > 0
        return safe_divide(points[..., :2], depth, in_front), in_front[..., 0]

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        direction = torch.nn.functional.pad(plane, (0, 1), value=1.0)
        return direction / norm(direction)[..., None], torch.ones_like(plane[..., 0], dtype=torch.bool)


class Pinhole(Perspective):
    """Perspective projection; sees less than 180 degrees."""

    kind = "pinhole"

    def __init__(self, xfov: Parameter | None = None, **scale: Any):
        super().__init__({}, xfov=xfov, **scale)


class BrownConrady(Distorted, Perspective):
    """Pinhole with radial (rational, k1..k6) and tangential (p1, p2) distortion, as in OpenCV.

    `xfov` is the true field of view; one that the distortion cannot reach raises with the largest possible.
    """

    kind = "brown_conrady"

    def __init__(
        self,
        xfov: Parameter | None = None,
        k1: Parameter = 0.0,
        k2: Parameter = 0.0,
        p1: Parameter = 0.0,
        p2: Parameter = 0.0,
        k3: Parameter = 0.0,
        k4: Parameter = 0.0,
        k5: Parameter = 0.0,
        k6: Parameter = 0.0,
        **scale: Any,
    ):
        coefficients = {"k1": k1, "k2": k2, "p1": p1, "p2": p2, "k3": k3, "k4": k4, "k5": k5, "k6": k6}
        super().__init__(coefficients, xfov=xfov, **scale)
