"""Pictures of a world: its tables at one moment, cast, painted and lit in blocks of rays."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ucpe.synthesis.worlds.intersect import cast, sun_discs
from ucpe.synthesis.worlds.numerics import noise_pyramid
from ucpe.synthesis.worlds.shading import bridge, resolve, shade
from ucpe.synthesis.worlds.surfaces import paint

if TYPE_CHECKING:
    from ucpe.synthesis.worlds.world import World

BLOCK_RAYS = 32768
"""Rays per batch: few enough for intermediate results to stay in the processor's cache."""

EDGE_TILE = 32
"""Side in pixels of the tiles in whose order rays on edges are cast: neighbours meet the same few shapes."""

ENCODE_STEPS = 8192

FlatRays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Origins (R, 3) or (1, 3) and directions (R, 3) as float32, valid (R,)."""


class WorldImage(NamedTuple):
    """What rays see; leading dimensions are those of the rays."""

    color: np.ndarray  # (..., 3) uint8 sRGB; black where invalid
    depth: np.ndarray  # (...) float32 metres along the unit ray; inf for sky and invalid rays
    valid: np.ndarray  # (...) bool: the lens has a ray there
    objects: np.ndarray  # (...) int16: index into world.objects, -1 for the surroundings


class Caster:
    """A world's tables at one moment, ready to cast rays."""

    def __init__(self, world: World, time: float, threads: int | None):
        self.around = world.surroundings
        self.packed = world.packed(time)
        self.discs = np.zeros((len(self.packed.shapes), 4))
        sun_discs(self.packed.shapes, self.around.place, self.discs)
        self.threads = thread_count(threads)

    def see(
        self,
        rays: FlatRays,
        pose: np.ndarray,  # (3, 4) camera to world
        widths: np.ndarray | None = None,  # (R,) or (1,) float32, radians
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Depth (R,), object index (R,) and display-linear colour (R, 3), which is not computed without widths."""
        origins, directions, valid = rays
        around, packed, noise = self.around, self.packed, noise_pyramid()
        depth, met = np.empty(len(valid), np.float32), np.empty(len(valid), np.int16)
        color = np.empty((len(valid), 3), np.float32)

        def run(first: int, last: int) -> None:
            size = min(BLOCK_RAYS, last - first)
            face, light = np.empty(size, np.int8), np.empty((size, 3), np.float32)
            albedo, normals = np.empty((size, 4), np.float32), np.empty((size, 3), np.float32)
            for start in range(first, last, BLOCK_RAYS):
                stop = min(start + BLOCK_RAYS, last)
                cast(
                    directions, origins, valid, pose, packed.shapes, packed.kinds, around.place, around.layers,
                    around.profiles, around.windows, self.discs, widths is not None, start, stop, depth, met, face,
                    light,
                )  # fmt: skip
                if widths is None:
                    continue
                paint(
                    directions, origins, widths, pose, packed.shapes, packed.kinds, around.place, packed.materials,
                    around.walls, around.panels, around.windows, around.skyline_colors, around.skyline_styles,
                    around.soil, noise, depth, met, face, start, stop, albedo, normals,
                )  # fmt: skip
                shade(
                    directions, origins, widths, valid, pose, around.place, around.look, noise, depth, met, light,
                    albedo, normals, start, stop, color,
                )  # fmt: skip

        in_threads(run, len(valid), self.threads)
        owners = np.append(packed.owners, np.int16(-1))
        return depth, owners[np.maximum(met, -1)], color

    def quick_color(self, rays: FlatRays, widths: np.ndarray, pose: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Display-linear colour (H * W, 3) of a grid of rays; casts one in four, and those on edges."""
        origins, directions, valid = rays
        color, met = np.zeros((len(valid), 3), np.float32), np.empty(len(valid), np.int16)
        todo = np.empty(len(valid), bool)
        pixels = np.arange(len(valid)).reshape(shape)
        tiles = _tiles(*shape)

        def look(chosen: np.ndarray) -> None:
            starts = origins if len(origins) == 1 else origins.take(chosen, 0)
            some = starts, directions.take(chosen, 0), valid.take(chosen)
            _, met[chosen], color[chosen] = self.see(some, pose, widths.take(chosen))

        look(pixels[::2, ::2].ravel())
        bridge(color, met, valid, *shape, todo)
        edges = np.flatnonzero(todo)
        look(edges[np.argsort(tiles.take(edges), kind="stable")])
        return color

    def bytes(
        self,
        fine: np.ndarray,  # (H * samples * W * samples, 3) float32 display-linear light
        fine_valid: np.ndarray,  # (H * samples * W * samples,) bool
        valid: np.ndarray,  # (H * W,) bool
        width: int,
        samples: int,
    ) -> np.ndarray:
        """sRGB bytes (H * W, 3) of the mean light over samples x samples sub-pixels."""
        color = np.empty((len(valid), 3), np.uint8)
        table = encode_table()

        def run(start: int, stop: int) -> None:
            resolve(fine, fine_valid, samples, width, valid, table, start, stop, color)

        in_threads(run, len(valid) // width, self.threads)
        return color


@lru_cache(maxsize=4)
def _tiles(height: int, width: int) -> np.ndarray:
    """Number (H * W,) of the tile that each pixel lies in: rays of one tile have more in common than those of a row."""
    rows, columns = (np.arange(side, dtype=np.int16) // EDGE_TILE for side in (height, width))
    return (rows[:, None] * (columns[-1] + 1) + columns).ravel()


def in_threads(run: Callable[[int, int], None], count: int, threads: int) -> None:
    """Calls run(start, stop) over 0..count in equal parts, one per thread, this one included; they are independent."""
    edges = [count * part // threads for part in range(threads + 1)]
    if threads == 1:
        run(0, count)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = pool.map(run, edges[1:-1], edges[2:])
        run(*edges[:2])
        list(others)


def thread_count(threads: int | None) -> int:
    """Number of threads to use: as asked, or one per available core."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


@cache
def encode_table() -> np.ndarray:
    """sRGB byte of every step of display-linear light 0..1."""
    light = np.arange(ENCODE_STEPS + 1) / ENCODE_STEPS
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.round(255 * encoded).astype(np.uint8)
