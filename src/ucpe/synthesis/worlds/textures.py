"""One tileable noise image with its mip levels: every procedural texture of the worlds is made of it."""

from functools import cache

import numpy as np

NOISE_SIZE = 256
"""Texels along a side of the finest level."""

NOISE_LEVELS = 8
"""Mip levels; the coarsest has 2 x 2 texels."""


@cache
def noise_pyramid() -> np.ndarray:
    """All mip levels of the noise, finest first, flattened (float32, zero mean, unit deviation at the finest)."""
    generator = np.random.RandomState(20260)
    image = np.zeros((NOISE_SIZE, NOISE_SIZE))
    for cells in (4, 8, 16, 32, 64, 128, 256):
        image += cells**-0.55 * _smooth_cells(generator.standard_normal((cells, cells)))
    image -= image.mean()
    image = np.clip(image / image.std(), -2.5, 2.5)
    levels = [image]
    while len(levels) < NOISE_LEVELS:
        fine = levels[-1]
        levels.append((fine[::2, ::2] + fine[1::2, ::2] + fine[::2, 1::2] + fine[1::2, 1::2]) / 4)
    pyramid = np.concatenate([level.ravel() for level in levels]).astype(np.float32)
    pyramid.setflags(write=False)
    return pyramid


def _smooth_cells(values: np.ndarray) -> np.ndarray:
    """Periodic smoothstep interpolation of a square grid of values up to the finest level."""
    cells = len(values)
    position = np.arange(NOISE_SIZE) * cells / NOISE_SIZE
    index = position.astype(int)
    fraction = position - index
    weight = fraction * fraction * (3 - 2 * fraction)
    following = (index + 1) % cells
    rows = values[index] * (1 - weight[:, None]) + values[following] * weight[:, None]
    return rows[:, index] * (1 - weight) + rows[:, following] * weight
