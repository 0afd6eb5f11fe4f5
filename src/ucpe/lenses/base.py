"""The lens interface: a differentiable map between pixels and rays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from ucpe.lenses.fitting import LensFit

Parameter: TypeAlias = "float | Sequence[float] | Tensor"
LensType = TypeVar("LensType", bound="Lens")


class Rays(NamedTuple):
    """Viewing rays in the camera frame (x right, y down, z forward)."""

    origins: Tensor  # (..., 3)
    directions: Tensor  # (..., 3), unit length; the optical axis where invalid
    valid: Tensor  # (...) bool


class Lens(ABC):
    """A ray map: pixel <-> (origin, unit direction) in the camera frame.

    Parameters may be numbers or tensors; the batch dimensions of a lens (one per clip or frame, say) are the
    leading dimensions of every pixel, point and ray it takes and returns. A lens has no image size of its own:
    `height` and `width` say how finely its image is sampled, with the centre of pixel (0, 0) at (0.5, 0.5).
    """

    kind: str
    """Name of the model, as written to files."""

    central = True
    """Whether all rays start at the camera centre."""

    parameters: dict[str, Tensor]
    """Parameters by constructor argument name, each of a shape that broadcasts to `batch_shape`."""

    settings: dict[str, Any]
    """Constructor arguments that are not differentiable numbers."""

    def __init__(self, parameters: dict[str, Parameter], settings: dict[str, Any] | None = None):
        self.parameters = {name: as_parameter(name, value) for name, value in parameters.items()}
        self.settings = dict(settings or {})
        self.batch_shape = torch.broadcast_shapes(*(value.shape for value in self.parameters.values()))

    @abstractmethod
    def unproject(self, pixels: Tensor, height: int, width: int) -> Rays:
        """Rays of the given pixels (*batch, ..., 2) in an image of height x width."""

    @abstractmethod
    def project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Pixels (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which of them the lens can see.

        A visible point may still lie outside the image; an invisible one gets the image centre.
        """

    @abstractmethod
    def intrinsics(self, height: int, width: int) -> Tensor:
        """Matrix (*batch, 3, 3) from the lens's image plane to pixels; the camera matrix K of a pinhole."""

    def rays(
        self, height: int, width: int, *, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> Rays:
        """Rays (*batch, height, width, ...) at the pixel centres of an image."""
        check_size(height, width)
        grid = pixel_grid(height, width, *self._placement(dtype, device))
        return self.unproject(grid.expand(*self.batch_shape, *grid.shape), height, width)

    def xfov(self, height: int, width: int) -> Tensor:
        """Horizontal field of view in degrees (*batch), along the row through the image centre."""
        return self._field_of_view([(0.0, height / 2), (float(width), height / 2)], height, width)

    def yfov(self, height: int, width: int) -> Tensor:
        """Vertical field of view in degrees (*batch), along the column through the image centre."""
        return self._field_of_view([(width / 2, 0.0), (width / 2, float(height))], height, width)

    def dfov(self, height: int, width: int) -> Tensor:
        """Diagonal field of view in degrees (*batch); ends at the image circle where corners see nothing."""
        corners = [(0.0, 0.0), (float(width), float(height)), (0.0, float(height)), (float(width), 0.0)]
        diagonals = [self._field_of_view(pair, height, width) for pair in (corners[:2], corners[2:])]
        return torch.stack([*diagonals, self.xfov(height, width), self.yfov(height, width)]).amax(0)

    def to(self: LensType, *args: Any, **kwargs: Any) -> LensType:
        """The same lens with its parameters on another device or in another floating dtype."""
        return self._with({name: value.to(*args, **kwargs) for name, value in self.parameters.items()})

    def __getitem__(self: LensType, index: Any) -> LensType:
        """The lens of one batch entry or slice, indexed along `batch_shape`."""
        if not self.batch_shape:
            raise IndexError(f"{self.kind} has no batch dimension to index")
        expanded = {name: value.expand(self.batch_shape)[index] for name, value in self.parameters.items()}
        return self._with(expanded)

    def expand(self: LensType, *shape: int) -> LensType:
        """The same lens with parameters expanded to a batch shape."""
        return self._with({name: value.expand(*shape) for name, value in self.parameters.items()})

    def fit(self, model: type[Lens], height: int = 480, width: int = 832) -> LensFit:
        """Nearest lens of another model over the image, with its RMS and maximum angular error in degrees."""
        from ucpe.lenses.fitting import fit_lens

        return fit_lens(self, model, height, width)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers that `lens_from_dict` turns back into this lens."""
        numbers = {name: value.detach().cpu().tolist() for name, value in self.parameters.items()}
        return {"model": self.kind, **self.settings, **numbers}

    def save(self, path: str | Path) -> None:
        """Write the lens to a .json or .yaml file that `ucpe.load_lens` reads."""
        from ucpe.lenses.files import save_lens

        save_lens(self, path)

    def __repr__(self) -> str:
        def show(value: Tensor) -> str:
            return f"{value.item():g}" if value.numel() == 1 else f"<{', '.join(map(str, value.shape))}>"

        arguments = [f"{name}={show(value)}" for name, value in self.parameters.items()]
        arguments += [f"{name}={value!r}" for name, value in self.settings.items()]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _with(self: LensType, parameters: dict[str, Tensor]) -> LensType:
        return type(self)(**parameters, **self.settings)

    def _parameter(self, name: str, like: Tensor) -> Tensor:
        """A parameter shaped to broadcast against values whose leading dimensions are the batch."""
        value = self.parameters[name]
        if value.ndim == 0:
            return value
        if like.ndim < len(self.batch_shape):
            raise ValueError(
                f"{self.kind} has batch shape {tuple(self.batch_shape)}, which must lead the shape of what it "
                f"is given; got leading shape {tuple(like.shape)}"
            )
        value = value.expand(self.batch_shape)
        return value.reshape(value.shape + (1,) * (like.ndim - value.ndim)).to(like.device)

    def _placement(
        self, dtype: torch.dtype | None, device: torch.device | None
    ) -> tuple[torch.dtype, torch.device | None]:
        batched = [value for value in self.parameters.values() if value.ndim]
        if dtype is None:
            dtype = torch.get_default_dtype()
            for value in batched:
                dtype = torch.promote_types(dtype, value.dtype)
        return dtype, device or (batched[0].device if batched else None)

    def _field_of_view(self, ends: list[tuple[float, float]], height: int, width: int) -> Tensor:
        """Degrees from one image border, over the optical axis, to the other; up to where the lens can see."""
        check_size(height, width)
        dtype, device = self._placement(None, None)
        border = torch.tensor(ends, dtype=torch.promote_types(dtype, torch.float64), device=device)
        border = border.expand(*self.batch_shape, 2, 2)
        middle = self._axis_pixel(border, height, width)
        seen = self.unproject(border, height, width).valid
        inner, outer = torch.zeros_like(seen, dtype=border.dtype), torch.ones_like(seen, dtype=border.dtype)
        for _ in range(50):
            half = (inner + outer) / 2
            visible = self.unproject(torch.lerp(middle, border, half[..., None]), height, width).valid
            inner, outer = torch.where(visible, half, inner), torch.where(visible, outer, half)
        reach = torch.where(seen, torch.ones_like(inner), inner)[..., None]
        directions = self.unproject(torch.lerp(middle, border, reach), height, width).directions
        angles = torch.atan2(directions[..., :2].norm(dim=-1), directions[..., 2])
        return torch.rad2deg(angles.sum(-1)).to(dtype)

    def _axis_pixel(self, like: Tensor, height: int, width: int) -> Tensor:
        """Pixel of the optical axis."""
        axis = torch.zeros(*like.shape[:-1], 3, dtype=like.dtype, device=like.device)
        axis[..., 2] = 1
        return self.project(axis, height, width)[0]


def as_parameter(name: str, value: Parameter) -> Tensor:
    """A finite floating tensor; numbers become 0-dimensional float64, which never changes a result's dtype."""
    if isinstance(value, Tensor):
        tensor = value if value.is_floating_point() else value.to(torch.get_default_dtype())
        tensor = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
    else:
        try:
            number = isinstance(value, int | float)
            tensor = torch.as_tensor(value, dtype=torch.float64 if number else torch.get_default_dtype())
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number or a tensor, got {value!r}") from None
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} must be finite, got {_offending(tensor, torch.isfinite(tensor))}")
    return tensor


def check_range(name: str, value: Tensor, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise ValueError unless low <= value <= high (low < value if open_low)."""
    inside = (value > low if open_low else value >= low) & (value <= high)
    if not inside.all():
        bracket = "(" if open_low else "["
        end = f"{high:g}]" if math.isfinite(high) else "inf)"
        raise ValueError(f"{name} must be in {bracket}{low:g}, {end}, got {_offending(value, inside)}")


def check_size(height: int, width: int) -> None:
    """Raise ValueError unless an image has at least one pixel."""
    for name, value in (("height", height), ("width", width)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of pixels, at least 1, got {value!r}")


def pixel_grid(height: int, width: int, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """Pixel centres (height, width, 2) as (u, v)."""
    v, u = torch.meshgrid(
        torch.arange(height, dtype=dtype, device=device) + 0.5,
        torch.arange(width, dtype=dtype, device=device) + 0.5,
        indexing="ij",
    )
    return torch.stack([u, v], dim=-1)


def _offending(value: Tensor, good: Tensor) -> str:
    if value.ndim == 0:
        return f"{value.item():g}"
    index = tuple(int(i) for i in (~good).nonzero()[0])
    return f"{value[index].item():g} at index {list(index)}"
