"""Radially symmetric fisheye lenses: image radius as a function of the angle to the optical axis."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from ucpe.lenses.base import Parameter
from ucpe.lenses.numerics import flatten_after, invert_increasing, norm, smallest_positive_root
from ucpe.lenses.planar import PlanarLens

BEHIND = 1e-3
"""A division lens has an endless image: it leaves out this many radians around the direction straight behind."""


class RadialLens(PlanarLens):
    """A lens given by radius(angle) on the image plane, growing from 0 with slope 1."""

    max_angle = math.pi
    """Angle to the axis in radians beyond which the lens sees nothing."""

    def __init__(self, xfov: Parameter | None = None, **scale: Any):
        super().__init__({}, xfov=xfov, **scale)

    @abstractmethod
    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""

    @abstractmethod
    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        sideways, z = norm(points[..., :2]), points[..., 2]
        off_axis = sideways > 0
        angle = torch.atan2(sideways, torch.where(off_axis | (z != 0), z, torch.ones_like(z)))
        visible = (off_axis | (z > 0)) & (angle < self._max_angle_like(angle))
        usable = off_axis & visible
        curved = self.radius(torch.where(usable, angle, torch.ones_like(angle)))
        on_axis_scale = 1 / torch.where(z > 0, z, torch.ones_like(z))
        scale = torch.where(usable, curved / torch.where(usable, sideways, torch.ones_like(sideways)), on_axis_scale)
        return points[..., :2] * scale[..., None], visible

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        radius = norm(plane)
        angle, valid = self.angle(radius)
        off_axis = radius > 0
        scale = torch.where(off_axis, angle.sin() / torch.where(off_axis, radius, torch.ones_like(radius)), 1.0)
        return torch.cat([plane * scale[..., None], angle.cos()[..., None]], dim=-1), valid

    def _max_angle_like(self, like: Tensor) -> Tensor | float:
        """The angle in radians beyond which the lens sees nothing: the model's own, or what its parameters allow."""
        return self._spread(self._solved["limit"], like) if "limit" in self._solved else self.max_angle


class Equidistant(RadialLens):
    """radius = angle: equal angles are equally far apart in the image."""

    kind = "equidistant"

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        return angle

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        valid = radius < math.pi
        return torch.where(valid, radius, torch.zeros_like(radius)), valid


class Equisolid(RadialLens):
    """radius = 2 sin(angle / 2): equal solid angles cover equal image areas."""

    kind = "equisolid"

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        return 2 * (angle / 2).sin()

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        valid = radius < 2
        return 2 * (torch.where(valid, radius, torch.zeros_like(radius)) / 2).asin(), valid


class Stereographic(RadialLens):
    """radius = 2 tan(angle / 2): small circles stay circles."""

    kind = "stereographic"

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        return 2 * (angle / 2).tan()

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        return 2 * (radius / 2).atan(), torch.ones_like(radius, dtype=torch.bool)


class Orthographic(RadialLens):
    """radius = sin(angle): a hemisphere seen from afar; never more than 180 degrees."""

    kind = "orthographic"
    max_angle = math.pi / 2

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        return angle.sin()

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        valid = radius < 1
        return torch.where(valid, radius, torch.zeros_like(radius)).asin(), valid


class Division(RadialLens):
    """radius / (1 + k radius^2) = tan(angle): one number for barrel (k < 0) or pincushion (k > 0) distortion."""

    kind = "division"

    def __init__(self, xfov: Parameter | None = None, k: Parameter = 0.0, **scale: Any):
        PlanarLens.__init__(self, {"k": k}, xfov=xfov, **scale)

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        sine, cosine, k = angle.sin(), angle.cos(), self._parameter("k", angle)
        root = (cosine * cosine - 4 * k * sine * sine).clamp(min=1e-12).sqrt()
        ahead = cosine > 0
        behind = (root - cosine) / (-2 * torch.where(ahead, -1.0, k * sine))  # the same, without cancellation
        return torch.where(ahead, 2 * sine / torch.where(ahead, cosine + root, 1.0), behind)

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        squared = self._parameter("k", radius) * radius * radius
        unfolded = squared < 1
        angle = torch.atan2(radius, torch.where(unfolded, 1 + squared, torch.ones_like(squared)))
        return angle, unfolded & (angle < self._max_angle_like(angle))

    def _prepare(self) -> None:
        k = self.parameters["k"].detach().double().cpu()
        widest = torch.where(k < 0, math.pi - BEHIND, torch.atan(0.5 / k.clamp(min=0).sqrt()))
        self._solved["limit"] = widest.double()


class FieldOfView(RadialLens):
    """radius = atan(k tan(angle)) / k: the FOV (ATAN) model of Devernay and Faugeras; never more than 180 degrees."""

    kind = "field_of_view"
    max_angle = math.pi / 2
    ranges: ClassVar = {"k": (1e-4, math.inf)}

    def __init__(self, xfov: Parameter | None = None, k: Parameter = 1.0, **scale: Any):
        PlanarLens.__init__(self, {"k": k}, xfov=xfov, **scale)

    @classmethod
    def from_omega(cls, omega: float, fx: float, fy: float, **scale: Any) -> FieldOfView:
        """The lens as files give it: omega in radians, for which k = 2 tan(omega / 2), and focal lengths over omega."""
        k = max(abs(2 * math.tan(omega / 2)), 1e-4)
        slope = k / max(abs(omega), 1e-4)
        return cls(k=k, fx=fx * slope, fy=fy * slope, **scale)

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        k = self._parameter("k", angle)
        return torch.atan2(k * angle.sin(), angle.cos()) / k

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        k = self._parameter("k", radius)
        valid = k * radius < math.pi / 2
        bent = torch.where(valid, k * radius, torch.zeros_like(radius))
        return torch.atan2(bent.sin(), k * bent.cos()), valid


class PolynomialLens(RadialLens):
    """radius = angle (1 + c1 s + c2 s^2 + ...) with s = angle^step, up to the angle at which it stops growing."""

    coefficients: ClassVar[tuple[str, ...]]
    """Names of c1, c2, ..."""

    step: ClassVar[int]
    """Power of the angle from one coefficient to the next."""

    def _prepare(self) -> None:
        values = [self.parameters[name].detach().double().cpu() for name in self.coefficients]
        stacked = torch.stack(torch.broadcast_tensors(*values), -1)
        slope = stacked * stacked.new_tensor(self._slopes())
        self._solved["limit"] = (smallest_positive_root(slope) ** (1 / self.step)).clamp(max=math.pi)

    def radius(self, angle: Tensor) -> Tensor:
        """Plane radius (*batch, ...) of angles in radians."""
        return self._polynomial(angle, self._values(angle))[0]

    def angle(self, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) of plane radii, and which have one."""
        target = flatten_after(radius, len(self.batch_shape))
        fixed = [value.detach() for value in self._values(target)]
        share = torch.linspace(0, 1, 513, dtype=target.dtype, device=target.device)
        nodes = self._spread(self._solved["limit"], target) * share
        solution, valid = invert_increasing(lambda angle: self._polynomial(angle, fixed), target, nodes)
        valid = valid.reshape(radius.shape)
        solution = torch.where(valid, solution.reshape(radius.shape).to(radius.dtype), 0)
        value, slope = self._polynomial(solution, self._values(radius))
        error = torch.where(valid, value - radius, 0)
        step = (error - error.detach()) / slope.detach().clamp(min=1e-9)  # zero, but with the implicit gradient
        return solution - step, valid

    def _values(self, like: Tensor) -> list[Tensor]:
        return [self._parameter(name, like) for name in self.coefficients]

    @classmethod
    def _slopes(cls) -> list[float]:
        """Factors on the coefficients in the derivative."""
        return [1.0 + cls.step * number for number in range(1, len(cls.coefficients) + 1)]

    @classmethod
    def _polynomial(cls, angle: Tensor, coefficients: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Radius and its derivative with respect to the angle."""
        power = angle**cls.step
        value, slope = torch.zeros_like(angle), torch.zeros_like(angle)
        for coefficient, factor in zip(reversed(coefficients), reversed(cls._slopes())):
            value = power * (coefficient + value)
            slope = power * (factor * coefficient + slope)
        return angle * (1 + value), 1 + slope


class KannalaBrandt(PolynomialLens):
    """radius = angle (1 + k1 angle^2 + k2 angle^4 + k3 angle^6 + k4 angle^8): OpenCV's fisheye model."""

    kind = "kannala_brandt"
    coefficients = ("k1", "k2", "k3", "k4")
    step = 2

    def __init__(
        self,
        xfov: Parameter | None = None,
        k1: Parameter = 0.0,
        k2: Parameter = 0.0,
        k3: Parameter = 0.0,
        k4: Parameter = 0.0,
        **scale: Any,
    ):
        PlanarLens.__init__(self, {"k1": k1, "k2": k2, "k3": k3, "k4": k4}, xfov=xfov, **scale)


class RadialPolynomial(PolynomialLens):
    """radius = angle (1 + k1 angle + k2 angle^2 + k3 angle^3): WoodScape's `radial_poly` over its first coefficient."""

    kind = "radial_polynomial"
    coefficients = ("k1", "k2", "k3")
    step = 1

    def __init__(
        self,
        xfov: Parameter | None = None,
        k1: Parameter = 0.0,
        k2: Parameter = 0.0,
        k3: Parameter = 0.0,
        **scale: Any,
    ):
        PlanarLens.__init__(self, {"k1": k1, "k2": k2, "k3": k3}, xfov=xfov, **scale)
