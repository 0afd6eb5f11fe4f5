"""Pictures of a world through any lens: colour, exact depth, and which object each pixel shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ucpe.synthesis.worlds.intersect import PLACE_COLUMNS, cast, sun_discs
from ucpe.synthesis.worlds.shading import resolve, shade
from ucpe.synthesis.worlds.textures import noise_pyramid

if TYPE_CHECKING:
    from ucpe.synthesis.worlds.world import World

ENCODE_STEPS = 8192
IDENTITY = np.eye(3, 4)


class WorldImage(NamedTuple):
    """What rays see; leading dimensions are those of the rays."""

    color: np.ndarray  # (..., 3) uint8 sRGB; black where invalid
    depth: np.ndarray  # (...) float32 metres along the unit ray; inf for sky and invalid rays
    valid: np.ndarray  # (...) bool: the lens has a ray there
    objects: np.ndarray  # (...) int16: index into world.objects, -1 for the surroundings


class Caster:
    """A world's tables at one moment, ready to cast rays."""

    def __init__(self, world: World, time: float, threads: int):
        self.surroundings = world.surroundings
        self.packed = world.packed(time)
        self.discs = np.zeros((len(self.packed.shapes), 4))
        sun_discs(self.packed.shapes, self.surroundings.place, self.discs)
        self.threads = threads

    def color(
        self,
        origins: np.ndarray,  # (R, 3) or (1, 3) float32
        directions: np.ndarray,  # (R, 3) float32
        valid: np.ndarray,  # (R,) bool
        widths: np.ndarray,  # (R,) or (1,) float32, radians
        pose: np.ndarray,  # (3, 4) or (4, 4)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Display-linear colour (R, 3), depth (R,) and what was met (R,)."""
        around, packed = self.surroundings, self.packed
        count = len(directions)
        depth, met, face = np.empty(count, np.float32), np.empty(count, np.int16), np.empty(count, np.int8)
        light, color = np.empty((count, 3), np.float32), np.empty((count, 3), np.float32)
        pose = np.ascontiguousarray(pose[:3], np.float64)

        def run(start: int, stop: int) -> None:
            cast(
                directions, origins, valid, pose, packed.shapes, packed.kinds, around.place, around.layers, around.profiles,
                around.windows, self.discs, True, start, stop, depth, met, face, light,
            )  # fmt: skip
            shade(
                directions, origins, widths, pose, packed.shapes, packed.kinds, around.place, packed.materials, around.walls,
                around.panels, around.windows, around.skyline_colors, around.skyline_styles, around.look, noise_pyramid(),
                depth, met, face, light, valid, start, stop, color,
            )  # fmt: skip

        in_threads(run, count, self.threads, 4096)
        return color, depth, met

    def depth(
        self, origins: np.ndarray, directions: np.ndarray, valid: np.ndarray, pose: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Depth (R,) and what was met (R,), without colours."""
        around, packed = self.surroundings, self.packed
        count = len(directions)
        depth, met, face = np.empty(count, np.float32), np.empty(count, np.int16), np.empty(count, np.int8)
        pose = np.ascontiguousarray(pose[:3], np.float64)
        light = np.empty((0, 3), np.float32)

        def run(start: int, stop: int) -> None:
            cast(
                directions, origins, valid, pose, packed.shapes, packed.kinds, around.place, around.layers, around.profiles,
                around.windows, self.discs, False, start, stop, depth, met, face, light,
            )  # fmt: skip

        in_threads(run, count, self.threads, 4096)
        return depth, met

    def owners(self, met: np.ndarray) -> np.ndarray:
        """Object index of what was met, -1 for the surroundings."""
        if len(self.packed.owners) == 0:
            return np.full(met.shape, -1, np.int16)
        return np.where(met >= 0, self.packed.owners[np.maximum(met, 0)], np.int16(-1))


def in_threads(run: Callable[[int, int], None], count: int, threads: int, least: int) -> None:
    """Calls run(start, stop) over 0..count in equal parts, one per thread; the parts never depend on each other."""
    parts = max(min(threads, count // least), 1)
    if parts == 1:
        run(0, count)
        return
    edges = [count * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges[:-1], edges[1:]))


def thread_count(threads: int | None) -> int:
    """Number of threads to use: as asked, or one per available core."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


def array(value: Any, dtype: Any) -> np.ndarray:
    """A contiguous NumPy array of a NumPy array, a torch tensor (any device) or numbers."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.ascontiguousarray(value, dtype)


def ray_widths(directions: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Angle in radians between neighbouring rays of a grid (..., H, W, 3), as (..., H, W): the finer of both axes."""
    height, width = valid.shape[-2:]
    result = np.full(valid.shape, np.inf, np.float32)
    for axis, size in ((-2, width), (-3, height)):
        if size < 2:
            continue
        steps = np.linalg.norm(np.diff(directions, axis=axis), axis=-1).astype(np.float32)
        both = np.take(valid, range(size - 1), axis + 1) & np.take(valid, range(1, size), axis + 1)
        steps = np.where(both & (steps > 0), steps, np.inf)
        result = np.minimum(result, np.concatenate([steps, np.take(steps, [-1], axis + 1)], axis + 1))
        result = np.minimum(result, np.concatenate([np.take(steps, [0], axis + 1), steps], axis + 1))
    return np.where(np.isfinite(result), result, np.float32(0))


@cache
def encode_table() -> np.ndarray:
    """sRGB byte of every step of display-linear light 0..1."""
    light = np.arange(ENCODE_STEPS + 1) / ENCODE_STEPS
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.round(255 * encoded).astype(np.uint8)


def finish(
    fine: np.ndarray,  # (H * samples * W * samples, 3) float32
    fine_valid: np.ndarray,
    samples: int,
    height: int,
    width: int,
    valid: np.ndarray,  # (H * W,) bool
    threads: int,
) -> np.ndarray:
    """sRGB bytes (H * W, 3) of the mean light over samples x samples sub-pixels."""
    color = np.empty((height * width, 3), np.uint8)

    def run(start: int, stop: int) -> None:
        resolve(fine, fine_valid, samples, width, valid, encode_table(), start, stop, color)

    in_threads(run, height, threads, 64)
    return color


__all__ = ["PLACE_COLUMNS", "Caster", "WorldImage"]
