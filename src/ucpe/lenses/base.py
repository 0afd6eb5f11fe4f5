"""The lens interface: a differentiable map between pixels and rays."""

from __future__ import annotations

import copy
import json
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from ucpe.lenses.numerics import angle_between, furthest, geometry_dtype, largest_component, widest_dtype
from ucpe.reading import MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE

if TYPE_CHECKING:
    from pathlib import Path

    from ucpe.lenses.fitting import LensFit

Parameter: TypeAlias = "float | Sequence[float] | Tensor"
LensType = TypeVar("LensType", bound="Lens")


UNIT_TOLERANCE = 1e-4
"""How far the squared length of a valid ray may be from 1; beyond, the numbers of the lens are too large to compute."""


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
    A lens is a value: its parameters are attributes (`lens.xi`), two lenses with the same numbers are equal, and to
    change a parameter, make another lens.
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
        self._solved: dict[str, Tensor] = {}
        shapes = {name: tuple(value.shape) for name, value in self.parameters.items()}
        try:
            self.batch_shape = torch.broadcast_shapes(*shapes.values())
        except RuntimeError:
            raise ValueError(f"the parameters of {self.kind} must broadcast to one batch shape, got {shapes}") from None

    @abstractmethod
    def _unproject(self, pixels: Tensor, height: int, width: int) -> tuple[Tensor | None, Tensor, Tensor]:
        """Origins (None at the camera centre), unit directions and validity, finite everywhere."""

    @abstractmethod
    def _project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Pixels and validity, finite everywhere."""

    @abstractmethod
    def intrinsics(self, height: int, width: int) -> Tensor:
        """Matrix (*batch, 3, 3) from the lens's image plane to pixels; the camera matrix K of a pinhole."""

    def unproject(self, pixels: Tensor, height: int, width: int) -> Rays:
        """Rays of the given pixels (*batch, ..., 2) of an image, in their dtype (float32 at least)."""
        height, width = check_size(height, width)
        pixels = self._checked("pixels", pixels, 2)
        usable = (pixels.abs() < torch.finfo(pixels.dtype).max ** 0.25).all(-1)  # finite, and so are its powers
        middle = torch.tensor([width / 2, height / 2], dtype=pixels.dtype, device=pixels.device)
        pixels = torch.where(usable[..., None], pixels, middle)
        origins, directions, valid = self._unproject(pixels, height, width)
        valid = valid & usable & ((directions * directions).sum(-1) - 1).abs().lt(UNIT_TOLERANCE)  # not so if NaN
        if origins is not None:
            valid = valid & origins.isfinite().all(-1)
        axis = torch.zeros_like(directions)
        axis[..., 2] = 1
        directions = torch.where(valid[..., None], directions, axis)
        if origins is None:
            return Rays(torch.zeros_like(directions), directions, valid)
        return Rays(torch.where(valid[..., None], origins, torch.zeros_like(origins)), directions, valid)

    def project(self, points: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Pixels (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which of them the lens can see.

        A visible point may still lie outside the image; an invisible one gets the image centre.
        """
        height, width = check_size(height, width)
        points = self._checked("points", points, 3)
        usable = points.isfinite().all(-1)
        ahead = torch.tensor([0.0, 0.0, 1.0], dtype=points.dtype, device=points.device)
        points = torch.where(usable[..., None], points, ahead)
        if self.central:
            points = points / largest_component(points)  # only the direction counts; squares cannot overflow
        pixels, valid = self._project(points, height, width)
        valid = valid & usable & pixels.isfinite().all(-1)
        centre = torch.tensor([width / 2, height / 2], dtype=pixels.dtype, device=pixels.device)
        return torch.where(valid[..., None], pixels, centre), valid

    def rays(
        self, height: int, width: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Rays:
        """Rays (*batch, height, width, ...) at the pixel centres of an image; computed in float32 or better."""
        height, width = check_size(height, width)
        dtype = dtype or geometry_dtype()
        grid = pixel_grid(height, width, torch.promote_types(dtype, torch.float32), device or self.device)
        rays = self.unproject(grid.expand(*self.batch_shape, *grid.shape), height, width)
        return Rays(rays.origins.to(dtype), rays.directions.to(dtype), rays.valid)

    @property
    def device(self) -> torch.device:
        """Where the parameters live; plain numbers follow the tensors."""
        devices = (value.device for value in self.parameters.values())
        return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))

    def xfov(self, height: int, width: int) -> Tensor:
        """Horizontal field of view in degrees (*batch), along the row through the image centre."""
        return self._fields_of_view(height, width, slice(1))[..., 0]

    def yfov(self, height: int, width: int) -> Tensor:
        """Vertical field of view in degrees (*batch), along the column through the image centre."""
        return self._fields_of_view(height, width, slice(1, 2))[..., 0]

    def dfov(self, height: int, width: int) -> Tensor:
        """Diagonal field of view in degrees (*batch); ends at the image circle where corners see nothing."""
        return self._fields_of_view(height, width).amax(-1)

    def to(self: LensType, *args: Any, **kwargs: Any) -> LensType:
        """The same lens with its parameters on another device or in another floating dtype, float32 at least."""

        def move(value: Tensor) -> Tensor:
            moved = value.to(*args, **kwargs)
            return moved.to(torch.promote_types(moved.dtype, torch.float32))

        return self._mapped(move)

    def __getitem__(self: LensType, index: Any) -> LensType:
        """The lens of one batch entry or slice, indexed along `batch_shape`."""
        if not self.batch_shape:
            raise IndexError(f"{self.kind} has no batch dimension to index")
        return self._mapped(lambda value: value.expand(self.batch_shape)[index])

    def expand(self: LensType, *shape: int) -> LensType:
        """The same lens with parameters expanded to a batch shape."""
        return self._mapped(lambda value: value.expand(*shape))

    def fit(self, model: type[Lens], height: int | None = None, width: int | None = None) -> LensFit:
        """Nearest lens of another model over the image, with its RMS and maximum angular error in degrees.

        The image has the size of the lens's calibration, or 480 x 832 if it has none.
        """
        from ucpe.lenses.fitting import fit_lens

        return fit_lens(self, model, height, width)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers that `lens_from_dict` turns back into this lens."""
        numbers = {name: value.detach().cpu().tolist() for name, value in self.parameters.items()}
        return {"model": self.kind, **self.settings, **numbers}

    def save(self, path: str | Path, format: str | None = None, *, height: int = 480, width: int = 832) -> None:
        """Write the lens to a .json or .yaml file that `ucpe.load_lens` reads, or in another tool's format.

        Formats in pixels ("kalibr", "opencv", "colmap", "transforms") are written for the image size of the lens's
        calibration, or for height x width if it has none.
        """
        from ucpe.lenses.files import save_lens

        save_lens(self, path, format, height, width)

    def __getattr__(self, name: str) -> Tensor:
        parameters = self.__dict__.get("parameters", {})
        if name not in parameters:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return parameters[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Lens) or self._identity() != other._identity():
            return False
        pairs = ((value, other.parameters[name]) for name, value in self.parameters.items())
        return all(torch.equal(a.expand(self.batch_shape).cpu(), b.expand(self.batch_shape).cpu()) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((*self._identity(), json.dumps([value.mean().item() for value in self.parameters.values()])))

    def __repr__(self) -> str:
        def show(value: Tensor) -> str:
            return f"{value.item():g}" if value.numel() == 1 else f"<{', '.join(map(str, value.shape))}>"

        arguments = [f"{name}={show(value)}" for name, value in self.parameters.items()]
        arguments += [f"{name}={value!r}" for name, value in self.settings.items()]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _with(self: LensType, parameters: dict[str, Tensor], **settings: Any) -> LensType:
        constructor: Any = type(self)
        return constructor(**parameters, **{**self.settings, **settings})

    def _mapped(self: LensType, function: Callable[[Tensor], Tensor]) -> LensType:
        """The lens whose parameters are a function of these; what was solved for them is not solved again."""
        lens = copy.copy(self)
        lens.parameters = {name: function(value) for name, value in self.parameters.items()}
        lens._solved = {name: function(value) for name, value in self._solved.items()}
        lens.batch_shape = torch.broadcast_shapes(*(value.shape for value in lens.parameters.values()))
        return lens

    def _identity(self) -> tuple[Any, ...]:
        return type(self), tuple(self.batch_shape), tuple(self.parameters), tuple(sorted(self.settings.items()))

    def _checked(self, name: str, value: Tensor, size: int) -> Tensor:
        """Input of the right shape in float32 or better."""
        batch = tuple(self.batch_shape)
        if value.ndim < 1 or value.shape[-1] != size:
            raise ValueError(f"{name} must have shape (..., {size}), got {tuple(value.shape)}")
        leading = tuple(value.shape[: len(batch)]) if value.ndim > len(batch) else tuple(value.shape[:-1])
        if len(leading) < len(batch) or any(a != b and 1 not in (a, b) for a, b in zip(leading, batch)):
            raise ValueError(f"{self.kind} has batch shape {batch}, which must lead the shape of {name}, got {leading}")
        value = value.expand(*torch.broadcast_shapes(leading, batch), *value.shape[len(batch) :])
        return value.to(torch.promote_types(value.dtype, torch.float32))

    def _parameter(self, name: str, like: Tensor) -> Tensor:
        """A parameter shaped to broadcast against values whose leading dimensions are the batch."""
        return self._spread(self.parameters[name], like)

    def _spread(self, value: Tensor, like: Tensor) -> Tensor:
        """A value per batch entry, shaped and cast to broadcast against `like`, which the batch leads."""
        value = value.to(like)
        if value.ndim:
            value = value.expand(self.batch_shape)
            value = value.reshape(value.shape + (1,) * (like.ndim - value.ndim))
        return value

    def _fields_of_view(self, height: int, width: int, which: slice = slice(None)) -> Tensor:
        """Degrees (*batch, 4) from border to border over the image centre, up to where the lens can see.

        Across, down, and along both diagonals, or some of these.
        """
        height, width = check_size(height, width)
        like = torch.zeros((), dtype=widest_dtype(self.device), device=self.device)
        middle = like.new_tensor([width / 2, height / 2])
        ways = like.new_tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])[which]
        outward = (torch.stack([-ways, ways], -2) * middle).expand(*self.batch_shape, len(ways), 2, 2)

        def visible(share: Tensor) -> Tensor:
            return self.unproject(middle + outward[..., None, :] * share[..., None], height, width).valid

        reach = furthest(visible, torch.ones_like(outward[..., 0]))
        ends = self.unproject(middle + outward * reach[..., None], height, width).directions
        centre = self.unproject(middle.expand_as(outward), height, width).directions
        return torch.rad2deg(angle_between(ends, centre).sum(-1)).to(geometry_dtype())


def stack_lenses(lenses: Sequence[LensType]) -> LensType:
    """One lens of batch shape (n, *batch) from n lenses of one model; torch's DataLoader batches lenses with it."""
    first = lenses[0]
    if any(type(lens) is not type(first) or lens._identity()[2:] != first._identity()[2:] for lens in lenses):
        names = ", ".join(sorted({repr(lens) for lens in lenses}))
        raise ValueError(f"lenses to stack need one model, calibration size and choice of parameters, got {names}")
    shape = torch.broadcast_shapes(*(lens.batch_shape for lens in lenses))
    stacked = {name: torch.stack([lens.parameters[name].expand(shape) for lens in lenses]) for name in first.parameters}
    return first._with(stacked)


default_collate_fn_map[Lens] = lambda batch, *, collate_fn_map=None: stack_lenses(batch)


def as_parameter(name: str, value: Parameter) -> Tensor:
    """A finite floating tensor; whatever is not a tensor yet becomes float64."""
    if isinstance(value, Tensor):
        tensor = value if value.is_floating_point() else value.to(geometry_dtype())
        tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    else:
        try:
            tensor = torch.as_tensor(value, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"{name} must be a number or a tensor, got {value!r}") from None
    if not tensor.numel():
        raise ValueError(f"{name} must hold at least one number, got an empty list")
    finite = torch.isfinite(tensor)
    if not finite.all():
        raise ValueError(f"{name} must be finite, got {_offending(tensor, finite)}")
    return tensor


def check_range(name: str, value: Tensor, low: float, high: float) -> None:
    """Raise ValueError unless low <= value <= high."""
    inside = (value >= low) & (value <= high)
    if not inside.all():
        end = f"{high:g}]" if math.isfinite(high) else "inf)"
        raise ValueError(f"{name} must be in [{low:g}, {end}, got {_offending(value, inside)}")


def check_size(height: int, width: int) -> tuple[int, int]:
    """Height and width as plain integers; ValueError unless the image has at least one pixel."""
    height, width = _pixel_count("height", height), _pixel_count("width", width)
    MAX_IMAGE_SIDE.check(max(height, width), f"{height} x {width}")
    MAX_IMAGE_PIXELS.check(height * width, f"{height} x {width}")
    return height, width


def pixel_grid(
    height: int, width: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Pixel centres (height, width, 2) as (u, v)."""
    v, u = torch.meshgrid(
        torch.arange(height, dtype=dtype, device=device) + 0.5,
        torch.arange(width, dtype=dtype, device=device) + 0.5,
        indexing="ij",
    )
    return torch.stack([u, v], dim=-1)


def _pixel_count(name: str, value: Any) -> int:
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} must be a whole number of pixels, at least 1, got {value!r}")
    return count


def _offending(value: Tensor, good: Tensor) -> str:
    if value.ndim == 0:
        return f"{value.item():g}"
    index = tuple(int(i) for i in (~good).nonzero()[0])
    return f"{value[index].item():g} at index {list(index)}"
