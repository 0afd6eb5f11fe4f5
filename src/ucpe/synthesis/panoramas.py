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
from typing import Any, Literal

import numpy as np

from ucpe.lenses import Lens
from ucpe.lenses.base import check_size
from ucpe.reading import open_image
from ucpe.video import Planes

Projection = Literal["equirectangular", "eac"]
Interpolation = Literal["bilinear", "lanczos"]

EAC_PADDING = 2
"""Pixels of padding around each strip of an equi-angular cubemap, as in YouTube's files."""

MIN_LEVEL = 16
"""Height in pixels below which a panorama is not halved again."""

LEVEL_TOLERANCE = 0.25
"""Octaves around a whole level within which that level alone is used: sharper and faster, without visible steps."""

COLOR_TOLERANCE = 0.5
"""The same for the colour planes of a 4:2:0 picture, whose levels are never blended."""

MAX_STRETCH = 1.5
"""Octaves by which the blur across a pixel's wide side may exceed what its narrow side needs (fisheye rims)."""


TILE = 16
"""Side in pixels of the tiles of a view; small enough for their part of the panorama to stay in the cache."""

ROW = 1024
"""Number of pixels that are looked up together."""


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
            raise ValueError(f"an equi-angular cubemap has 3 x 2 equal faces, unlike {height} x {width} pixels")
        self.projection = projection
        self.levels = [picture]
        self._lock = Lock()

    @classmethod
    def open(cls, path: str | Path, projection: Projection = "equirectangular") -> Panorama:
        """Read a panorama from an image file."""
        return cls(np.asarray(open_image(path)), projection)

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
        """How finely the picture samples the sphere at its equator, or at the middle of its faces."""
        height, width = self.levels[0].shape[:2]
        if self.projection == "eac":
            return math.sqrt(width / 3 * height / 2) / (math.pi / 2)
        return math.sqrt(width / (2 * math.pi) * height / math.pi)

    @property
    def largest_level(self) -> int:
        """Number of the smallest copy."""
        return max(int(math.log2(self.levels[0].shape[0] / MIN_LEVEL)), 0)


def render(
    panorama: Panorama | np.ndarray,  # (H', W', 3) uint8, equirectangular if an array
    lens: Lens,
    rotation: Any,  # (3, 3), camera to panorama
    height: int,
    width: int,
    interpolation: Interpolation = "bilinear",
    antialias: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """A panorama through a lens, (H, W, 3) uint8, and a mask (H, W) of where the lens sees; black elsewhere."""
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
        self._luma = _Sampler(*_rays(lens, centres, height, width), interpolation, antialias, LEVEL_TOLERANCE)
        self._chroma: _Sampler | None = None

    @property
    def mask(self) -> np.ndarray:
        """Mask (H, W) bool of where the lens sees."""
        return self._luma.valid.copy()

    def picture(self, panorama: Panorama | np.ndarray, rotation: Any) -> np.ndarray:
        """The view (H, W, 3) uint8 of a panorama for a camera-to-panorama rotation (3, 3); black outside the mask."""
        panorama = panorama if isinstance(panorama, Panorama) else Panorama(panorama)
        return self._luma.sample(panorama, as_rotation(rotation), 0, 0.0).copy()

    def planes(self, panorama: tuple[Panorama, Panorama, Panorama], rotation: Any, full_range: bool = False) -> Planes:
        """The 4:2:0 planes of a view from the planes of a panorama, without a detour over RGB.

        Colour samples sit where H.264 puts them: on even columns, between two rows.
        """
        if self._chroma is None:
            if self.height % 2 or self.width % 2:
                raise ValueError(f"4:2:0 planes need an even height and width, got {self.height} x {self.width}")
            sites = _grid(self.height // 2, self.width // 2, 2, 0.5, 1.0)
            rays = _rays(self.lens, sites, self.height, self.width)
            self._chroma = _Sampler(*rays, self._interpolation, self._antialias, COLOR_TOLERANCE)
        rotation = as_rotation(rotation)
        luma, blue, red = panorama
        return Planes(
            self._luma.sample(luma, rotation, 0 if full_range else 16, 0.0),
            self._chroma.sample(blue, rotation, 128, 0.25),
            self._chroma.sample(red, rotation, 128, 0.25),
            full_range,
        )


class _Layer:
    """Pixels of a view that take their colour, or a weighted part of it, from one level of a panorama."""

    def __init__(self, level: int, rays: np.ndarray, places: np.ndarray, weights: np.ndarray):
        rows = -(-len(places) // ROW)
        padded = np.concatenate([places, np.full(rows * ROW - len(places), places[-1])]).astype(np.int32)
        self.level, self.places = level, padded
        self.alone = bool((weights == 256).all())
        self.weights = np.concatenate([weights, np.zeros(len(padded) - len(weights))]).astype(np.uint16)
        self.rays = np.ascontiguousarray(rays.reshape(3, -1)[:, padded].reshape(3, rows, ROW), np.float32)
        self.pixels = np.empty((2, rows, ROW), np.float32)
        self.edges, self.edge_count = np.empty(rows * ROW, np.int32), 0
        self.mapped: tuple[Any, ...] | None = None


class _Sampler:
    """Rays (3, H, W) that look into panoramas; a plan for each size of panorama says which level each ray reads."""

    def __init__(
        self, rays: np.ndarray, valid: np.ndarray, interpolation: Interpolation, antialias: bool, tolerance: float
    ):
        from ucpe.synthesis import sphere

        self.rays, self.valid = rays, valid
        self.lanczos, self.tolerance = interpolation == "lanczos", tolerance
        self.order = _tiled(valid)
        self.blind = np.flatnonzero(~valid)
        self.plans: dict[tuple[float, int], list[_Layer]] = {}
        self.buffers: dict[Any, np.ndarray] = {}
        self.turn = 0
        self.footprint = np.zeros(valid.shape)
        if antialias:
            sphere.pixel_footprint(rays, valid, 2.0**MAX_STRETCH, self.footprint)

    def sample(self, panorama: Panorama, rotation: np.ndarray, fill: int, shift: float) -> np.ndarray:
        """Values (H, W) or (H, W, c), `fill` outside the lens; samples sit `shift` pixels left of pixel centres."""
        from ucpe.synthesis import sphere

        plan = self._plan(panorama)
        channels = panorama.levels[0].shape[2:]
        self.turn = 1 - self.turn
        out = self._buffer((self.turn, channels, fill), self.valid.shape + channels, np.uint8, fill)
        flat = out.reshape(self.valid.size, -1)
        if all(layer.alone for layer in plan):
            for layer in plan:
                sphere.scatter(self._read(panorama, layer, rotation, shift), layer.places, flat)
        else:
            total = self._buffer(("total", channels), flat.shape, np.uint16, 0)
            total[:] = 128
            for layer in plan:
                values = self._read(panorama, layer, rotation, shift)
                sphere.scatter_weighted(values, layer.places, layer.weights, total)
            np.right_shift(total, 8, out=flat, casting="unsafe")
            flat[self.blind] = fill
        return out

    def _read(self, panorama: Panorama, layer: _Layer, rotation: np.ndarray, shift: float) -> np.ndarray:
        """Values (M, c) of a layer's pixels from its level; the map of a camera that stands still is made once."""
        import cv2

        from ucpe.synthesis import sphere

        picture = panorama.level(layer.level)
        height, width = picture.shape[:2]
        shrink_y, shrink_x = (side / panorama.levels[0].shape[axis] for axis, side in enumerate((height, width)))
        cube, reach = panorama.projection == "eac", 4 if self.lanczos else 1
        place = (EAC_PADDING * shrink_x, EAC_PADDING * shrink_y, shift * shrink_x)
        x, y = layer.pixels
        wanted = (rotation.tobytes(), cube, width, height, *place)
        if layer.mapped != wanted:
            to_pixels: Any = sphere.map_equi_angular if cube else sphere.map_equirectangular
            padded = place if cube else place[2:]
            layer.edge_count = to_pixels(layer.rays, rotation, width, height, *padded, reach, x, y, layer.edges)
            layer.mapped = wanted
        values = self._buffer(("values", x.shape, picture.shape[2:]), x.shape + picture.shape[2:], np.uint8, 0)
        cv2.remap(picture, x, y, cv2.INTER_LANCZOS4 if self.lanczos else cv2.INTER_LINEAR, dst=values)
        flat = values.reshape(x.size, -1)
        if layer.edge_count:
            edges, solid = layer.edges[: layer.edge_count], picture.reshape(height, width, -1)
            sphere.mend(solid, cube, x, y, *place, edges, self.lanczos, reach, flat)
        return flat

    def _plan(self, panorama: Panorama) -> list[_Layer]:
        key = (panorama.pixels_per_radian, panorama.largest_level)
        if key not in self.plans:
            self.plans[key] = self._make_plan(*key)
        return self.plans[key]

    def _make_plan(self, pixels_per_radian: float, largest: int) -> list[_Layer]:
        level = np.log2(np.maximum(self.footprint.ravel()[self.order] * pixels_per_radian, 1)).clip(0, largest)
        below = np.floor(level).astype(int)
        blended = max(1 - 2 * self.tolerance, 1e-6)
        share = np.round(256 * ((level - below - 0.5) / blended + 0.5).clip(0, 1))
        layers = []
        for number in range(below.min(initial=largest), min(below.max(initial=-1) + 1, largest) + 1):
            weight = (256 - share) * (below == number) + share * (below == number - 1)
            used = weight > 0
            if used.any():
                layers.append(_Layer(number, self.rays, self.order[used], weight[used]))
        return layers

    def _buffer(self, key: Any, shape: tuple[int, ...], dtype: Any, value: int) -> np.ndarray:
        if key not in self.buffers:
            self.buffers[key] = np.full(shape, value, dtype)
        return self.buffers[key]


def _tiled(valid: np.ndarray) -> np.ndarray:
    """Flat places of the pixels that see, tile by tile: neighbours in this order are neighbours in the panorama."""
    height, width = valid.shape
    rows, columns = -(-height // TILE), -(-width // TILE)
    places = np.full((rows * TILE, columns * TILE), -1, np.int32)
    places[:height, :width] = np.where(valid, np.arange(valid.size, dtype=np.int32).reshape(valid.shape), -1)
    tiled = places.reshape(rows, TILE, columns, TILE).swapaxes(1, 2).ravel()
    return tiled[tiled >= 0]


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
