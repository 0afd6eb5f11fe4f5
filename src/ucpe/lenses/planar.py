"""Lenses with an image plane: a model-specific curve, then focal length and principal point."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from ucpe.lenses.base import Lens, Parameter, check_range, check_size
from ucpe.lenses.numerics import furthest, geometry_dtype, widest_dtype

PlanarType = TypeVar("PlanarType", bound="PlanarLens")

FOCAL_NAMES = ("fx", "fy", "cx", "cy")
SCALE_NAMES = (*FOCAL_NAMES, "xfov", "pinhole_xfov")

NARROWEST = 1e-3
"""Smallest field of view in degrees."""


class PlanarLens(Lens):
    """A central lens whose image plane is scaled to pixels in one of three ways.

    - `xfov`: true horizontal field of view in degrees, square pixels, principal point in the image centre.
    - `fx, fy, cx, cy, width, height`: a calibration in pixels of an image of that size; other sizes rescale it.
    - `pinhole_xfov`: the focal length a pinhole of that field of view would have (the paper's Brown-Conrady).
    """

    ranges: ClassVar[dict[str, tuple[float, float]]] = {}
    """Closed range of each model parameter that has one."""

    def __init__(
        self,
        model_parameters: dict[str, Parameter],
        *,
        xfov: Parameter | None = None,
        pinhole_xfov: Parameter | None = None,
        fx: Parameter | None = None,
        fy: Parameter | None = None,
        cx: Parameter | None = None,
        cy: Parameter | None = None,
        width: int | None = None,
        height: int | None = None,
    ):
        scales = {"xfov": xfov, "pinhole_xfov": pinhole_xfov, "fx": fx}
        scale = {name: value for name, value in scales.items() if value is not None}
        if len(scale) != 1:
            raise ValueError(
                f"{self.kind} takes exactly one of xfov, pinhole_xfov or fx (with width, height and, if known, fy, cx, "
                f"cy); got {' and '.join(scale) or 'none'}"
            )
        settings: dict[str, Any] = {}
        if fx is not None:
            if width is None or height is None:
                raise ValueError(f"{self.kind} with fx in pixels needs the width and height of that image")
            height, width = check_size(height, width)
            settings = {"width": width, "height": height}
            scale["fy"] = fx if fy is None else fy
            scale["cx"] = width / 2 if cx is None else cx
            scale["cy"] = height / 2 if cy is None else cy
        elif any(value is not None for value in (fy, cx, cy, width, height)):
            raise ValueError(f"{self.kind} with {next(iter(scale))} takes no fy, cx, cy, width or height")
        super().__init__({**scale, **model_parameters}, settings)
        for name, (low, high) in self.ranges.items():
            check_range(name, self.parameters[name], low, high)
        self._prepare()
        self._check_scale()

    @abstractmethod
    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""

    @abstractmethod
    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""

    def intrinsics(self, height: int, width: int) -> Tensor:
        """Matrix (*batch, 3, 3) from the lens's image plane to pixels; the camera matrix K of a pinhole."""
        height, width = check_size(height, width)
        focal, centre = (value.expand(*self.batch_shape, 2) for value in self._scale(height, width))
        matrix = torch.diag_embed(torch.nn.functional.pad(focal, (0, 1), value=1.0))
        matrix = matrix + torch.nn.functional.pad(centre[..., None], (2, 0, 0, 1))
        return matrix.to(geometry_dtype())

    def calibrated(self: PlanarType, height: int, width: int) -> PlanarType:
        """The same lens as a calibration in pixels of an image of height x width."""
        height, width = check_size(height, width)
        focal, centre = self._scale(height, width)
        pixels = dict(zip(FOCAL_NAMES, (*focal.unbind(-1), *centre.unbind(-1))))
        return self._with({**pixels, **self.model_parameters}, width=width, height=height)

    def cropped(
        self: PlanarType,
        left: float,
        top: float,
        crop_height: int,
        crop_width: int,
        *,
        height: int,
        width: int,
    ) -> PlanarType:
        """The lens of a window cut out of its height x width image, `left` and `top` in pixels."""
        crop_height, crop_width = check_size(crop_height, crop_width)
        whole = self.calibrated(height, width).parameters
        moved = {**whole, "cx": whole["cx"] - left, "cy": whole["cy"] - top}
        return self._with(moved, width=crop_width, height=crop_height)

    def max_xfov(self) -> Tensor:
        """Upper bound in degrees (*batch) of xfov for these model parameters."""
        widest = torch.full(self.batch_shape, 360.0, dtype=widest_dtype(self.device), device=self.device)
        return furthest(lambda xfov: self.to_plane(_edge_ray(xfov))[1], widest)

    @property
    def model_parameters(self) -> dict[str, Tensor]:
        """The parameters of the lens's shape, without its scale."""
        return {name: value for name, value in self.parameters.items() if name not in SCALE_NAMES}

    def _unproject(self, pixels: Tensor, height: int, width: int) -> tuple[None, Tensor, Tensor]:
        focal, centre = (self._spread_pair(value, pixels) for value in self._scale(height, width))
        return None, *self.from_plane((pixels - centre) / focal)

    def _project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        focal, centre = (self._spread_pair(value, points) for value in self._scale(height, width))
        plane, valid = self.to_plane(points)
        return plane * focal + centre, valid

    def _prepare(self) -> None:
        """Compute what the model needs from its parameters once."""

    def _half_row(self, xfov: Tensor) -> tuple[Tensor, Tensor]:
        """Half width (*batch), on the plane, of the image row that sees `xfov` degrees, and whether it exists."""
        xfov = xfov.expand(self.batch_shape)
        plane, visible = self.to_plane(_edge_ray(xfov))
        return plane[..., 0], visible & self.to_plane(_edge_ray(xfov + NARROWEST))[1]

    def _differentiable_half_row(self, xfov: Tensor) -> Tensor:
        """The half width (*batch) with its gradient in xfov and the model parameters."""
        return self._half_row(xfov)[0]

    def _check_scale(self) -> None:
        for name in ("fx", "fy"):
            if name in self.parameters:
                check_range(name, self.parameters[name], 1e-9, math.inf)
        if "pinhole_xfov" in self.parameters:
            check_range("pinhole_xfov", self.parameters["pinhole_xfov"], NARROWEST, 179.999)
        if "xfov" in self.parameters:
            xfov = self.parameters["xfov"]
            check_range("xfov", xfov, NARROWEST, 360)
            with torch.no_grad():
                self._solved["half_row"], exists = self._half_row(xfov.to(widest_dtype(self.device)))
            if not exists.all():
                limit = self.max_xfov()[~exists].min().item()
                raise ValueError(
                    f"xfov must be below {limit:.7g} degrees, the widest that {self.kind} with these parameters can "
                    f"see, got {xfov.expand(self.batch_shape)[~exists].max().item():g}"
                )

    def _scale(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Focal lengths and principal point (..., 2) in pixels, each with the batch shape in front or without it."""
        like = torch.zeros((), dtype=widest_dtype(self.device), device=self.device)
        if "fx" in self.parameters:
            stretch = (width / self.settings["width"], height / self.settings["height"])
            fx, fy, cx, cy = (self.parameters[name].to(like) for name in FOCAL_NAMES)
            focal = torch.stack(torch.broadcast_tensors(fx * stretch[0], fy * stretch[1]), dim=-1)
            return focal, torch.stack(torch.broadcast_tensors(cx * stretch[0], cy * stretch[1]), dim=-1)
        if "pinhole_xfov" in self.parameters:
            half_row = torch.tan(torch.deg2rad(self.parameters["pinhole_xfov"].to(like)) / 2)
        elif any(value.requires_grad for value in self.parameters.values()):
            half_row = self._differentiable_half_row(self.parameters["xfov"].to(like))
        else:
            half_row = self._solved["half_row"].to(like)
        focal = (width / 2 / half_row)[..., None].expand(*half_row.shape, 2)
        return focal, like.new_tensor([width / 2, height / 2])

    def _spread_pair(self, value: Tensor, like: Tensor) -> Tensor:
        """A pair per batch entry (*batch, 2), shaped and cast to broadcast against `like` (*batch, ..., n)."""
        value = value.to(like)
        if value.ndim > 1:
            value = value.expand(*self.batch_shape, 2)
            value = value.reshape(*self.batch_shape, *(1,) * (like.ndim - value.ndim), 2)
        return value


def _edge_ray(xfov: Tensor) -> Tensor:
    """Unit vector (..., 3) at the right edge of a field of view in degrees."""
    angle = torch.deg2rad(xfov) / 2
    return torch.stack([angle.sin(), torch.zeros_like(angle), angle.cos()], dim=-1)
