"""360 degree pictures seen through any lens.

A panorama is equirectangular (2:1, looking along +z at its centre) or an equi-angular cubemap (EAC) as YouTube serves
it: 3 x 2 faces, left, front and right on top; below them down, back and up, turned so that the lower strip continues
too (the left of the scene is at the bottom of all three). Around each strip lie two pixels of padding.

Only the directions of a lens's rays matter: a panorama is what one point sees, so the origins of a non-central lens's
rays are ignored.
"""

from __future__ import annotations

import math
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np

from ucpe.lenses import Lens
from ucpe.lenses.base import check_size
from ucpe.video import Planes

Projection = Literal["equirectangular", "eac"]
Interpolation = Literal["bilinear", "lanczos"]

EAC_PADDING = 2
"""Pixels of padding around each strip of an equi-angular cubemap, as in YouTube's files."""

SMALLEST_LEVEL = 16
"""Height in pixels below which a panorama is not halved again."""

LEVEL_TOLERANCE = 0.15
"""Octaves around a whole level within which that level alone is used; sharper and faster, and not visible."""

LARGEST_STRETCH = 1.5
"""Octaves by which the blur across a pixel's wide side may exceed what its narrow side needs (fisheye rims)."""


class Panorama:
    """A picture of all directions, (H, W, 3) or (H, W) uint8, with the smaller copies that anti-aliasing needs.

    The copies are made when first used and shared by every view; several threads may share a panorama.
    """

    def __init__(self, picture: np.ndarray, projection: Projection = "equirectangular"):
        picture = np.asarray(picture)
        if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or (picture.ndim == 3 and picture.shape[2] > 4):
            raise ValueError(f"a panorama must be uint8 (H, W, 3), got {picture.dtype} of {picture.shape}")
        height, width = picture.shape[:2]
        if projection not in ("equirectangular", "eac"):
            raise ValueError(f"projection must be 'equirectangular' or 'eac', got {projection!r}")
        if height < 4 or width < 4:
            raise ValueError(f"a panorama must have at least 4 x 4 pixels, got {height} x {width}")
        if projection == "eac" and (width % 3 or height % 2):
            raise ValueError(f"an equi-angular cubemap has 3 x 2 equal faces, which {height} x {width} pixels have not")
        self.projection = projection
        self.levels = [picture]
        self._lock = Lock()

    @classmethod
    def open(cls, path: str | Path, projection: Projection = "equirectangular") -> Panorama:
        """Read a panorama from an image file."""
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                return cls(np.asarray(image.convert("RGB")), projection)
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"{path}: not a readable image ({error})") from None

    def level(self, number: int) -> np.ndarray:
        """The picture at 1 / 2^number of its size, each pixel the mean of those it covers."""
        import cv2

        with self._lock:
            while len(self.levels) <= number:
                size = self.level_size(len(self.levels))
                self.levels.append(cv2.resize(self.levels[-1], size[::-1], interpolation=cv2.INTER_AREA))
            return self.levels[number]

    def level_size(self, number: int) -> tuple[int, int]:
        """Height and width of a level."""
        height, width = (side / 2**number for side in self.levels[0].shape[:2])
        rows, columns = (2, 3) if self.projection == "eac" else (1, 1)
        return max(round(height / rows) * rows, rows), max(round(width / columns) * columns, columns)

    @property
    def pixels_per_radian(self) -> float:
        """How finely the picture samples the sphere, on its equator or at the middle of its faces."""
        height, width = self.levels[0].shape[:2]
        if self.projection == "eac":
            return math.sqrt(width / 3 * height / 2) / (math.pi / 2)
        return math.sqrt(width / (2 * math.pi) * height / math.pi)

    @property
    def largest_level(self) -> int:
        """Number of the smallest copy."""
        return max(int(math.log2(self.levels[0].shape[0] / SMALLEST_LEVEL)), 0)


def render(
    panorama: Panorama | np.ndarray,  # (H', W', 3) uint8, equirectangular if an array
    lens: Lens,
    rotation: Any,  # (3, 3), camera to panorama
    height: int,
    width: int,
    interpolation: Interpolation = "bilinear",
    antialias: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """A picture (H, W, 3) uint8 of a panorama through a lens, and where (H, W) the lens sees; black elsewhere."""
    view = View(lens, height, width, interpolation=interpolation, antialias=antialias)
    return view.picture(panorama, rotation), view.mask


class View:
    """A lens at an image size, ready to look into any number of panoramas: its rays are computed once.

    A view reuses its buffers: give each thread its own, and copy a result to keep it beyond the next call.
    """

    def __init__(
        self,
        lens: Lens,
        height: int,
        width: int,
        *,
        interpolation: Interpolation = "bilinear",
        antialias: bool = True,
    ):
        if interpolation not in ("bilinear", "lanczos"):
            raise ValueError(f"interpolation must be 'bilinear' or 'lanczos', got {interpolation!r}")
        check_size(height, width)
        if lens.batch_shape:
            raise ValueError(f"a view takes one lens, got a batch of {tuple(lens.batch_shape)}; index it first")
        self.lens, self.height, self.width = lens, height, width
        self._interpolation, self._antialias = interpolation, antialias
        centres = _grid(height, width, 1, 0.5, 0.5)
        self._luma = _Sampler(*_rays(lens, centres, height, width), interpolation, antialias)
        self._chroma: _Sampler | None = None

    @property
    def mask(self) -> np.ndarray:
        """Where (H, W) bool the lens sees."""
        return self._luma.valid.copy()

    def picture(self, panorama: Panorama | np.ndarray, rotation: Any) -> np.ndarray:
        """The view (H, W, 3) uint8 of a panorama for a camera-to-panorama rotation (3, 3); black where it is blind."""
        panorama = panorama if isinstance(panorama, Panorama) else Panorama(panorama)
        return self._luma.sample(panorama, as_rotation(rotation), 0, 0.0).copy()

    def planes(self, panorama: tuple[Panorama, Panorama, Panorama], rotation: Any, full_range: bool = False) -> Planes:
        """The 4:2:0 planes of a view from those of a panorama, without a detour over RGB.

        Colour samples sit where H.264 puts them: on even columns, between two rows.
        """
        if self._chroma is None:
            if self.height % 2 or self.width % 2:
                raise ValueError(f"4:2:0 planes need an even height and width, got {self.height} x {self.width}")
            sites = _grid(self.height // 2, self.width // 2, 2, 0.5, 1.0)
            rays = _rays(self.lens, sites, self.height, self.width)
            self._chroma = _Sampler(*rays, self._interpolation, self._antialias)
        rotation = as_rotation(rotation)
        luma, blue, red = panorama
        return Planes(
            self._luma.sample(luma, rotation, 0 if full_range else 16, 0.0),
            self._chroma.sample(blue, rotation, 128, 0.25),
            self._chroma.sample(red, rotation, 128, 0.25, reuse_map=True),
            full_range,
        )


class _Plan(NamedTuple):
    """How one view samples panoramas of one size: which levels, and the weight of each at every pixel."""

    levels: tuple[int, ...]
    weights: np.ndarray | None  # (L, H * W * c) uint16 summing to 256; None for a single level


class _Sampler:
    def __init__(self, rays: np.ndarray, valid: np.ndarray, interpolation: Interpolation, antialias: bool):
        self.rays, self.valid = np.ascontiguousarray(rays, np.float32), valid
        self.blind = np.flatnonzero(~valid)
        self.lanczos, self.antialias = interpolation == "lanczos", antialias
        self.footprint = pixel_footprint(rays, valid) if antialias else None
        self.unit = np.empty((2, *valid.shape), np.float32)
        self.pixels = np.empty_like(self.unit)
        self.edges = np.empty(valid.size, np.int32)
        self.plans: dict[tuple[float, int, int], _Plan] = {}
        self.buffers: dict[Any, np.ndarray] = {}
        self.turn = 0

    def sample(
        self, panorama: Panorama, rotation: np.ndarray, fill: int, shift: float, reuse_map: bool = False
    ) -> np.ndarray:
        """Values (H, W) or (H, W, c); `shift` is how far, in pixels, samples sit left of pixel centres."""
        from ucpe.synthesis import sphere

        if not reuse_map:
            to_unit = sphere.equi_angular_unit if panorama.projection == "eac" else sphere.equirectangular_unit
            to_unit(self.rays, rotation, self.unit[0], self.unit[1])
        channels = panorama.levels[0].shape[2:]
        count = 1 if channels == () else channels[0]
        plan = self._plan(panorama, count)
        self.turn = (self.turn + 1) % 2
        out = self._buffer(("out", self.turn, channels), (*self.valid.shape, *channels))
        flat = out.reshape(-1, count)
        if plan.weights is None:
            self._sample_level(panorama, plan.levels[0], shift, out)
        else:
            layers = self._buffer(("layers", channels, len(plan.levels)), (len(plan.levels), *out.shape))
            for number, layer in zip(plan.levels, layers):
                self._sample_level(panorama, number, shift, layer)
            sphere.blend(layers.reshape(len(layers), -1), plan.weights, out.reshape(-1))
        flat[self.blind] = fill
        return out

    def _sample_level(self, panorama: Panorama, number: int, shift: float, out: np.ndarray) -> None:
        import cv2

        from ucpe.synthesis import sphere

        picture = panorama.level(number)
        height, width = picture.shape[:2]
        strips, padding = (2, EAC_PADDING) if panorama.projection == "eac" else (1, 0)
        whole_height, whole_width = panorama.levels[0].shape[:2]
        pad_x, pad_y = padding * width / whole_width, padding * height / whole_height
        shift, reach = shift * width / whole_width, 4 if self.lanczos else 1
        x, y = self.pixels
        count = sphere.unit_to_pixels(*self.unit, width, height, strips, pad_x, pad_y, shift, reach, x, y, self.edges)
        cv2.remap(picture, x, y, cv2.INTER_LANCZOS4 if self.lanczos else cv2.INTER_LINEAR, dst=out)
        if count:
            where, solid = self.edges[:count], picture.reshape(height, width, -1)
            flat = out.reshape(-1, solid.shape[2])
            if panorama.projection == "eac":
                sphere.mend_equi_angular(solid, x, y, pad_x, pad_y, shift, where, self.lanczos, reach, flat)
            else:
                sphere.mend_equirectangular(solid, x, y, where, self.lanczos, reach, flat)

    def _plan(self, panorama: Panorama, channels: int) -> _Plan:
        key = (panorama.pixels_per_radian, panorama.largest_level, channels)
        if key not in self.plans:
            self.plans[key] = self._make_plan(*key)
        return self.plans[key]

    def _make_plan(self, pixels_per_radian: float, largest: int, channels: int) -> _Plan:
        if self.footprint is None or not self.valid.any():
            return _Plan((0,), None)
        level = np.log2(np.maximum(self.footprint[self.valid] * pixels_per_radian, 1)).clip(0, largest)
        below = np.floor(level).astype(int)
        share = np.round(256 * ((level - below - LEVEL_TOLERANCE) / (1 - 2 * LEVEL_TOLERANCE)).clip(0, 1))
        below, share = np.where(share == 256, below + 1, below), np.where(share == 256, 0, share)
        first, last = below.min(), (below + (share > 0)).max()
        if first == last:
            return _Plan((int(first),), None)
        weights = np.zeros((last - first + 1, self.valid.size), np.uint16)
        seen = np.flatnonzero(self.valid)
        weights[below - first, seen] = 256 - share
        weights[np.minimum(below - first + 1, last - first), seen] += share.astype(np.uint16)
        return _Plan(tuple(range(first, last + 1)), np.repeat(weights, channels, axis=1))

    def _buffer(self, key: Any, shape: tuple[int, ...]) -> np.ndarray:
        if key not in self.buffers:
            self.buffers[key] = np.empty(shape, np.uint8)
        return self.buffers[key]


def pixel_footprint(rays: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Radians (H, W) that a pixel of rays (3, H, W) spans along its wide side, within LARGEST_STRETCH of its narrow."""
    steps = np.stack([_step(rays, valid, axis) for axis in (1, 2)])  # (2, 3, H, W)
    along, across, mixed = (np.einsum("chw,chw->hw", steps[a], steps[b]) for a, b in ((0, 0), (1, 1), (0, 1)))
    middle, spread = (along + across) / 2, np.sqrt(((along - across) / 2) ** 2 + mixed**2)
    wide, narrow = np.sqrt(middle + spread), np.sqrt(np.maximum(middle - spread, 0))
    return np.where(narrow > 0, np.minimum(wide, narrow * 2**LARGEST_STRETCH), wide)


def as_rotation(rotation: Any) -> np.ndarray:
    """A rotation (3, 3) as float32, or ValueError."""
    matrix = np.asarray(rotation.detach().cpu() if hasattr(rotation, "detach") else rotation, np.float64)
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise ValueError(f"rotation must be a finite matrix (3, 3), got shape {matrix.shape}")
    if np.abs(matrix @ matrix.T - np.eye(3)).max() > 1e-3 or np.linalg.det(matrix) < 0:
        raise ValueError(f"rotation must be orthonormal with determinant 1, got {matrix.tolist()}")
    return np.ascontiguousarray(matrix, np.float32)


def _grid(height: int, width: int, spacing: float, first_x: float, first_y: float) -> np.ndarray:
    v, u = np.meshgrid(first_y + spacing * np.arange(height), first_x + spacing * np.arange(width), indexing="ij")
    return np.stack([u, v], -1)


def _rays(lens: Lens, pixels: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions (3, h, w) float64 and validity (h, w) of pixels (h, w, 2)."""
    import torch

    with torch.no_grad():
        rays = lens.unproject(torch.from_numpy(pixels), height, width)
    return np.moveaxis(rays.directions.cpu().numpy(), -1, 0), rays.valid.cpu().numpy()


def _step(rays: np.ndarray, valid: np.ndarray, axis: int) -> np.ndarray:
    """Change (3, H, W) of the ray per pixel along an axis, from the neighbours that see; zero where there are none."""
    total, count = np.zeros_like(rays), np.zeros(valid.shape)
    size = valid.shape[axis - 1]
    if size > 1:
        both = np.take(valid, range(size - 1), axis - 1) & np.take(valid, range(1, size), axis - 1)
        step = np.where(both, np.diff(rays, axis=axis), 0)
        for part in (slice(0, size - 1), slice(1, size)):
            where = (part, slice(None)) if axis == 1 else (slice(None), part)
            total[(slice(None), *where)] += step
            count[where] += both
    return total / np.maximum(count, 1)
