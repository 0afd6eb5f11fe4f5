"""Panoramic projections: equirectangular, and omni-directional stereo, whose rays do not share an origin."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from ucpe.lenses.base import Lens, Parameter, check_range, check_size
from ucpe.lenses.numerics import geometry_dtype, largest_component, norm, safe_sqrt


class Panorama(Lens):
    """Longitude across, latitude down the image; `top` and `bottom` latitudes in degrees crop it vertically."""

    def __init__(self, parameters: dict[str, Parameter], settings: dict[str, Any] | None = None):
        super().__init__(parameters, settings)
        check_range("xfov", self.parameters["xfov"], 1e-3, 360)
        check_range("top", self.parameters["top"], -90, 90)
        check_range("bottom", self.parameters["bottom"], -90, 90)
        if not (self.parameters["top"] - self.parameters["bottom"] >= 1e-3).all():
            raise ValueError(f"top must be above bottom, both in degrees of latitude in [-90, 90], got {self!r}")

    def intrinsics(self, height: int, width: int) -> Tensor:
        """Matrix (*batch, 3, 3) from radians to pixels, which is the camera matrix near the optical axis."""
        height, width = check_size(height, width)
        zero = torch.zeros(self.batch_shape, dtype=geometry_dtype(), device=self.device)
        origin = self._pixels(zero, zero, height, width)
        right, up = self._pixels(zero + 1, zero, height, width), self._pixels(zero, zero + 1, height, width)
        one = torch.ones_like(zero)
        rows = [
            [right[..., 0] - origin[..., 0], zero, origin[..., 0]],
            [zero, origin[..., 1] - up[..., 1], origin[..., 1]],
        ]
        return torch.stack([torch.stack(row, -1) for row in [*rows, [zero, zero, one]]], -2)

    def xfov(self, height: int, width: int) -> Tensor:
        """Horizontal field of view in degrees (*batch)."""
        return self.parameters["xfov"].expand(self.batch_shape).to(geometry_dtype())

    def yfov(self, height: int, width: int) -> Tensor:
        """Vertical field of view in degrees (*batch)."""
        height_angle = self.parameters["top"] - self.parameters["bottom"]
        return height_angle.expand(self.batch_shape).to(geometry_dtype())

    def dfov(self, height: int, width: int) -> Tensor:
        """The larger of the horizontal and the vertical field of view in degrees (*batch)."""
        return torch.maximum(self.xfov(height, width), self.yfov(height, width))

    def _angles(self, pixels: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        u, v = pixels.unbind(-1)
        xfov, top, bottom = (torch.deg2rad(self._parameter(name, u)) for name in ("xfov", "top", "bottom"))
        longitude, latitude = (u / width - 0.5) * xfov, top - v / height * (top - bottom)
        slack = 1e-6
        valid = (longitude.abs() <= math.pi + slack) & (latitude.abs() <= math.pi / 2 + slack)
        return longitude, latitude, valid

    def _pixels(self, longitude: Tensor, latitude: Tensor, height: int, width: int) -> Tensor:
        xfov, top, bottom = (torch.deg2rad(self._parameter(name, longitude)) for name in ("xfov", "top", "bottom"))
        u, v = (longitude / xfov + 0.5) * width, (top - latitude) / (top - bottom) * height
        return torch.stack(torch.broadcast_tensors(u, v), -1)


class Equirectangular(Panorama):
    """Longitude across, latitude down the image; `top` and `bottom` latitudes in degrees crop it vertically."""

    kind = "equirectangular"

    def __init__(self, xfov: Parameter = 360.0, top: Parameter = 90.0, bottom: Parameter = -90.0):
        super().__init__({"xfov": xfov, "top": top, "bottom": bottom})

    def _unproject(self, pixels: Tensor, height: int, width: int) -> tuple[None, Tensor, Tensor]:
        longitude, latitude, valid = self._angles(pixels, height, width)
        return None, _direction(longitude, latitude), valid

    def _project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        x, y, z = points.unbind(-1)
        sideways = norm(torch.stack([x, z], -1))
        upright = sideways == 0
        nothing = upright & (y == 0)
        longitude = torch.atan2(x, torch.where(upright, torch.ones_like(z), z))
        latitude = torch.atan2(-y, torch.where(nothing, torch.ones_like(z), sideways))
        return self._pixels(longitude, latitude, height, width), ~nothing


class OmniStereo(Panorama):
    """One eye of an omni-directional stereo panorama: rays are tangents of a circle of the given `baseline`.

    The baseline (eye distance) is in world units; the circle is horizontal in the camera frame.
    """

    kind = "omni_stereo"
    central = False

    def __init__(
        self,
        baseline: Parameter = 0.064,
        eye: Literal["left", "right"] = "left",
        xfov: Parameter = 360.0,
        top: Parameter = 90.0,
        bottom: Parameter = -90.0,
    ):
        if eye not in ("left", "right"):
            raise ValueError(f"eye must be 'left' or 'right', got {eye!r}")
        super().__init__({"baseline": baseline, "xfov": xfov, "top": top, "bottom": bottom}, {"eye": eye})
        check_range("baseline", self.parameters["baseline"], 0, math.inf)

    def _unproject(self, pixels: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        longitude, latitude, valid = self._angles(pixels, height, width)
        rightward = torch.stack([longitude.cos(), torch.zeros_like(longitude), -longitude.sin()], -1)
        return self._offset(longitude)[..., None] * rightward, _direction(longitude, latitude), valid

    def _project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        scale = largest_component(points).clamp(min=1)
        x, y, z = (points / scale).unbind(-1)
        offset = self._offset(x) / scale[..., 0]
        depth, valid = safe_sqrt(x * x + z * z - offset * offset)
        x, z = (torch.where(valid, value, torch.ones_like(value)) for value in (x, z))
        longitude = torch.atan2(x, z) - torch.atan2(offset, depth)
        longitude = torch.remainder(longitude + math.pi, 2 * math.pi) - math.pi
        return self._pixels(longitude, torch.atan2(-y, depth), height, width), valid

    def _offset(self, like: Tensor) -> Tensor:
        side = 0.5 if self.settings["eye"] == "right" else -0.5
        return side * self._parameter("baseline", like)


def _direction(longitude: Tensor, latitude: Tensor) -> Tensor:
    flat = latitude.cos()
    return torch.stack([longitude.sin() * flat, -latitude.sin(), longitude.cos() * flat], -1)
