"""The unified camera model and its relatives: one or two spheres between the world and the image plane."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ucpe.lenses.base import Parameter
from ucpe.lenses.distortion import Distorted
from ucpe.lenses.numerics import norm, safe_divide, safe_sqrt
from ucpe.lenses.planar import PlanarLens


class Sphere(PlanarLens):
    """The plane of a unit sphere seen from `xi` behind its centre."""

    ranges: ClassVar = {"xi": (0.0, math.inf)}

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        z = points[..., 2]
        xi = self._parameter("xi", z)
        distance, nonzero = safe_sqrt((points * points).sum(-1))
        depth = z + xi * distance
        valid = nonzero & (depth > 0) & (z * xi.clamp(min=1) > -distance)
        return safe_divide(points[..., :2], depth[..., None], valid[..., None]), valid

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        squared = (plane * plane).sum(-1)
        xi = self._parameter("xi", squared)
        root, valid = safe_sqrt(1 + (1 - xi * xi) * squared)
        direction = torch.cat([(xi + root)[..., None] * plane, (root - xi * squared)[..., None]], dim=-1)
        return direction / (1 + squared)[..., None], valid


class UCM(Sphere):
    """Unified camera model: a unit sphere seen from `xi` behind its centre; xi = 0 is a pinhole.

    Unprojection is the exact inverse of the paper's projection (its printed one is not; see docs/errata.md).

    >>> UCM(xfov=180, xi=2.0).rays(height=480, width=832).directions[240, 0, 2].abs() < 0.01
    tensor(True)
    """

    kind = "ucm"

    def __init__(self, xfov: Parameter | None = None, xi: Parameter = 0.0, **scale: Any):
        super().__init__({"xi": xi}, xfov=xfov, **scale)


class Mei(Distorted, Sphere):
    """UCM with a Brown-Conrady stage on its image plane: OpenCV's `omnidir`, Kalibr's `omni` + `radtan`."""

    kind = "mei"

    def __init__(
        self,
        xfov: Parameter | None = None,
        xi: Parameter = 0.0,
        k1: Parameter = 0.0,
        k2: Parameter = 0.0,
        p1: Parameter = 0.0,
        p2: Parameter = 0.0,
        **scale: Any,
    ):
        super().__init__({"xi": xi, "k1": k1, "k2": k2, "p1": p1, "p2": p2}, xfov=xfov, **scale)


class EUCM(PlanarLens):
    """Enhanced unified camera model: `alpha` in [0, 1] bends, `beta` > 0 stretches the sphere to an ellipsoid."""

    kind = "eucm"
    ranges: ClassVar = {"alpha": (0.0, 1.0), "beta": (1e-6, math.inf)}

    def __init__(self, xfov: Parameter | None = None, alpha: Parameter = 0.5, beta: Parameter = 1.0, **scale: Any):
        super().__init__({"alpha": alpha, "beta": beta}, xfov=xfov, **scale)

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        x, y, z = points.unbind(-1)
        alpha, beta = self._parameter("alpha", z), self._parameter("beta", z)
        distance, nonzero = safe_sqrt(beta * (x * x + y * y) + z * z)
        depth = alpha * distance + (1 - alpha) * z
        valid = nonzero & (depth > 0) & (z > -_visible_cosine(alpha) * distance)
        return safe_divide(points[..., :2], depth[..., None], valid[..., None]), valid

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        squared = (plane * plane).sum(-1)
        alpha, beta = self._parameter("alpha", squared), self._parameter("beta", squared)
        root, valid = safe_sqrt(1 - (2 * alpha - 1) * beta * squared)
        z = (1 - beta * alpha * alpha * squared) / (alpha * root + 1 - alpha)
        direction = torch.cat([plane, z[..., None]], dim=-1)
        return direction / norm(direction)[..., None], valid


class DoubleSphere(PlanarLens):
    """Double sphere model (Usenko et al. 2018): sphere offset `xi` in (-1, 1), then `alpha` in [0, 1]."""

    kind = "double_sphere"
    ranges: ClassVar = {"xi": (-0.999, 0.999), "alpha": (0.0, 1.0)}

    def __init__(self, xfov: Parameter | None = None, xi: Parameter = 0.0, alpha: Parameter = 0.5, **scale: Any):
        super().__init__({"xi": xi, "alpha": alpha}, xfov=xfov, **scale)

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        x, y, z = points.unbind(-1)
        xi, alpha = self._parameter("xi", z), self._parameter("alpha", z)
        first, nonzero = safe_sqrt(x * x + y * y + z * z)
        shifted = xi * first + z
        second, shifted_nonzero = safe_sqrt(x * x + y * y + shifted * shifted)
        depth = alpha * second + (1 - alpha) * shifted
        valid = nonzero & shifted_nonzero & (depth > 0) & (z > _lowest_z(xi, alpha) * first)
        return safe_divide(points[..., :2], depth[..., None], valid[..., None]), valid

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        squared = (plane * plane).sum(-1)
        xi, alpha = self._parameter("xi", squared), self._parameter("alpha", squared)
        root, inside = safe_sqrt(1 - (2 * alpha - 1) * squared)
        z = (1 - alpha * alpha * squared) / (alpha * root + 1 - alpha)
        discriminant, real = safe_sqrt(z * z + (1 - xi * xi) * squared)
        stretch = (z * xi + discriminant) / (z * z + squared)
        direction = torch.cat([stretch[..., None] * plane, (stretch * z - xi)[..., None]], dim=-1)
        direction = direction / norm(direction)[..., None]
        return direction, inside & real & (direction[..., 2] > _lowest_z(xi, alpha))


def _lowest_z(xi: Tensor, alpha: Tensor) -> Tensor:
    """z of the unit direction furthest behind that a double sphere projects one to one."""
    cosine = _visible_cosine(alpha)
    return -(cosine + xi) / (2 * cosine * xi + xi * xi + 1).clamp(min=1e-12).sqrt()


def _visible_cosine(alpha: Tensor) -> Tensor:
    """Cosine of the angle behind the image plane up to which the second sphere projects one to one."""
    return torch.where(alpha <= 0.5, alpha / (1 - alpha).clamp(min=1e-12), (1 - alpha) / alpha.clamp(min=1e-12))
