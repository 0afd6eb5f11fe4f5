"""Lenses with an image plane: a model-specific curve, then focal length and principal point."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor

from ucpe.lenses.base import Lens, Parameter, Rays, check_range, check_size

PlanarType = TypeVar("PlanarType", bound="PlanarLens")

FOCAL_NAMES = ("fx", "fy", "cx", "cy")


class PlanarLens(Lens):
    """A central lens whose image plane is scaled to pixels in one of three ways.

    - `xfov`: true horizontal field of view in degrees, square pixels, principal point in the image centre.
    - `fx, fy, cx, cy, width, height`: a calibration in pixels of an image of that size; other sizes rescale it.
    - `pinhole_xfov`: the focal length a pinhole of that field of view would have (the paper's Brown-Conrady).
    """

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
        given = [
            name for name, value in (("xfov", xfov), ("pinhole_xfov", pinhole_xfov), ("fx", fx)) if value is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"{self.kind} takes exactly one of xfov, pinhole_xfov or fx (with cx, cy, width, height); got {given}"
            )
        scale: dict[str, Parameter] = {}
        settings: dict[str, Any] = {}
        if fx is not None:
            if width is None or height is None:
                raise ValueError(f"{self.kind} with fx in pixels needs the width and height of that image")
            check_size(height, width)
            settings = {"width": width, "height": height}
            scale = {
                "fx": fx,
                "fy": fx if fy is None else fy,
                "cx": width / 2 if cx is None else cx,
                "cy": height / 2 if cy is None else cy,
            }
        elif any(value is not None for value in (fy, cx, cy, width, height)):
            raise ValueError(f"{self.kind} with {given[0]} takes no fy, cx, cy, width or height: they follow from it")
        else:
            scale = {given[0]: xfov if xfov is not None else pinhole_xfov}  # type: ignore[dict-item]
        super().__init__({**scale, **model_parameters}, settings)
        self._cached_half_row: Tensor | None = None
        self._check_parameters()
        self._check_scale()

    @abstractmethod
    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""

    @abstractmethod
    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""

    def _check_parameters(self) -> None:
        """Raise ValueError for model parameters that make no camera."""

    def unproject(self, pixels: Tensor, height: int, width: int) -> Rays:
        """Rays of the given pixels (*batch, ..., 2) in an image of height x width."""
        check_size(height, width)
        focal, centre = self._scale(pixels[..., 0], height, width)
        directions, valid = self.from_plane((pixels - centre) / focal)
        axis = torch.zeros_like(directions)
        axis[..., 2] = 1
        directions = torch.where(valid[..., None], directions, axis)
        return Rays(torch.zeros_like(directions), directions, valid)

    def project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Pixels (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        check_size(height, width)
        focal, centre = self._scale(points[..., 0], height, width)
        plane, valid = self.to_plane(points)
        pixels = torch.where(valid[..., None], plane, torch.zeros_like(plane)) * focal + centre
        return pixels, valid

    def intrinsics(self, height: int, width: int) -> Tensor:
        """Matrix (*batch, 3, 3) from the lens's image plane to pixels; the camera matrix K of a pinhole."""
        check_size(height, width)
        dtype, device = self._placement(None, None)
        focal, centre = self._scale(torch.zeros(self.batch_shape, dtype=dtype, device=device), height, width)
        focal, centre = (value.expand(*self.batch_shape, 2).to(dtype) for value in (focal, centre))
        matrix = torch.diag_embed(torch.cat([focal, torch.ones_like(focal[..., :1])], dim=-1))
        return matrix + torch.nn.functional.pad(centre[..., None], (2, 0, 0, 1))

    def calibrated(self: PlanarType, height: int, width: int) -> PlanarType:
        """The same lens as a calibration in pixels of an image of height x width."""
        matrix = self.intrinsics(height, width).to(torch.float64)
        focal = {
            "fx": matrix[..., 0, 0],
            "fy": matrix[..., 1, 1],
            "cx": matrix[..., 0, 2],
            "cy": matrix[..., 1, 2],
        }
        return type(self)(**focal, width=width, height=height, **self._model_parameters())

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
        whole = self.calibrated(height, width)
        moved = {**whole.parameters, "cx": whole.parameters["cx"] - left, "cy": whole.parameters["cy"] - top}
        return type(self)(**moved, width=crop_width, height=crop_height)

    def max_xfov(self) -> Tensor:
        """Field of view in degrees (*batch) that every xfov must stay below with these model parameters."""
        like = next((value for value in self.parameters.values() if value.ndim), torch.zeros(()))
        low = torch.zeros(self.batch_shape, dtype=torch.float64, device=like.device)
        high = torch.full_like(low, 360)
        for _ in range(60):
            half = (low + high) / 2
            reachable = self._reaches(half)
            low, high = torch.where(reachable, half, low), torch.where(reachable, high, half)
        return low

    def _reaches(self, xfov: Tensor) -> Tensor:
        """Whether a field of view in degrees (*batch) exists with these model parameters."""
        return self.to_plane(_point_at(torch.deg2rad(xfov) / 2))[1]

    def _half_row(self, xfov: Tensor) -> Tensor:
        """Half width (*batch), on the plane, of the image row that sees `xfov` degrees (*batch)."""
        return self.to_plane(_point_at(torch.deg2rad(xfov) / 2))[0][..., 0]

    def _image_half_row(self) -> Tensor:
        """Half width (*batch) of the image on the plane; computed once unless a gradient must flow through it."""
        if self._cached_half_row is not None:
            return self._cached_half_row
        half_row = self._half_row(self.parameters["xfov"].expand(self.batch_shape))
        if not half_row.requires_grad:
            self._cached_half_row = half_row
        return half_row

    def _model_parameters(self) -> dict[str, Tensor]:
        scale = (*FOCAL_NAMES, "xfov", "pinhole_xfov")
        return {name: value for name, value in self.parameters.items() if name not in scale}

    def _check_scale(self) -> None:
        for name in ("fx", "fy"):
            if name in self.parameters:
                check_range(name, self.parameters[name], 0, math.inf, open_low=True)
        if "pinhole_xfov" in self.parameters:
            check_range("pinhole_xfov", self.parameters["pinhole_xfov"], 0, 179.999, open_low=True)
        if "xfov" in self.parameters:
            xfov = self.parameters["xfov"].detach()
            check_range("xfov", xfov, 0, 360, open_low=True)
            reachable = self._reaches(xfov.double().expand(self.batch_shape))
            if not reachable.all():
                limit = self.max_xfov()[~reachable].min().item()
                raise ValueError(
                    f"xfov must be below {limit:.4g} degrees, the widest that {self.kind} with these parameters can "
                    f"see, got {xfov.expand(self.batch_shape)[~reachable].max().item():g}"
                )

    def _scale(self, like: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Focal lengths and principal point (..., 2) in pixels, shaped to broadcast against (*like.shape, 2)."""
        if "fx" in self.parameters:
            stretch = (width / self.settings["width"], height / self.settings["height"])
            fx, fy, cx, cy = (self._parameter(name, like) for name in FOCAL_NAMES)
            focal = torch.stack(torch.broadcast_tensors(fx * stretch[0], fy * stretch[1]), dim=-1)
            centre = torch.stack(torch.broadcast_tensors(cx * stretch[0], cy * stretch[1]), dim=-1)
            return _match(focal, like), _match(centre, like)
        if "pinhole_xfov" in self.parameters:
            radius = torch.tan(torch.deg2rad(self.parameters["pinhole_xfov"]) / 2)
        else:
            radius = self._image_half_row()
        focal = (width / 2 / radius)[..., None].expand(*radius.shape, 2)
        focal = focal.reshape(*radius.shape, *(1,) * (like.ndim - radius.ndim), 2) if radius.ndim else focal
        centre = torch.tensor([width / 2, height / 2], dtype=torch.float64)
        return _match(focal, like), _match(centre, like)


def _match(value: Tensor, like: Tensor) -> Tensor:
    """Keep unbatched float64 numbers from promoting float32 pixels."""
    return value.to(like) if value.ndim == 1 else value.to(like.device)


def _point_at(angle: Tensor) -> Tensor:
    """Unit vector (..., 3) to the right at an angle in radians from the optical axis."""
    return torch.stack([angle.sin(), torch.zeros_like(angle), angle.cos()], dim=-1)


def norm(vector: Tensor) -> Tensor:
    """Length (...) of vectors (..., n) with a finite gradient at zero."""
    squared = (vector * vector).sum(-1)
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1).sqrt(), squared)


def safe_sqrt(value: Tensor) -> tuple[Tensor, Tensor]:
    """Square root where positive (1 elsewhere, with zero gradient), and where that is."""
    positive = value > 0
    return torch.where(positive, value, torch.ones_like(value)).sqrt(), positive


def safe_divide(numerator: Tensor, denominator: Tensor, usable: Tensor) -> Tensor:
    """Quotient where usable, with no NaN in value or gradient elsewhere."""
    return numerator / torch.where(usable, denominator, torch.ones_like(denominator))
