"""Noise and small compiled helpers that the ray caster, the surfaces and the light share."""

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit

NOISE_SIZE = 256
"""Texels along a side of the finest mip level of the tileable noise that every texture is made of."""

NOISE_LEVELS = 8
"""Mip levels; the coarsest has 2 x 2 texels."""

NOISE_BITS = NOISE_SIZE.bit_length() - 1
FRACTION_BITS = 24
FRACTION = 2.0**-FRACTION_BITS

GEOMETRY: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "arcp", "nsz"}}
"""How Numba compiles what says where rays go."""

APPEARANCE: dict[str, Any] = {**GEOMETRY, "fastmath": {*GEOMETRY["fastmath"], "reassoc"}}
"""How Numba compiles what says how it looks there."""

helper = njit(**GEOMETRY, forceinline=True)
color_helper = njit(**APPEARANCE, forceinline=True)


@cache
def noise_pyramid() -> np.ndarray:
    """All mip levels of the noise, finest first, flattened (float32, zero mean, unit deviation at the finest)."""
    generator = np.random.RandomState(20260)
    image = np.zeros((NOISE_SIZE, NOISE_SIZE))
    for cells in (4, 8, 16, 32, 64, 128, 256):
        image += cells**-0.36 * _smooth_cells(generator.standard_normal((cells, cells)))
    image -= image.mean()
    image = np.clip(image / image.std(), -2.5, 2.5)
    levels = [image]
    while len(levels) < NOISE_LEVELS:
        levels.append(_halve(_halve(levels[-1], 0), 1))
    pyramid = np.concatenate([level.ravel() for level in levels]).astype(np.float32)
    pyramid.setflags(write=False)
    return pyramid


def _halve(image: np.ndarray, axis: int) -> np.ndarray:
    """Every other texel, averaged with its neighbours so that the levels stay aligned."""
    smooth = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / 4
    return np.take(smooth, range(0, image.shape[axis], 2), axis)


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


@helper
def rotate(pose, x, y, z):
    """A camera-frame vector in the world."""
    return (
        pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * z,
        pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * z,
        pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * z,
    )


@color_helper
def triple(table, start):
    """Three numbers of a table in a row, such as a colour."""
    return table[start], table[start + 1], table[start + 2]


@color_helper
def mix(first, second, share):
    """The colour on the way from one to another."""
    return (
        first[0] + share * (second[0] - first[0]),
        first[1] + share * (second[1] - first[1]),
        first[2] + share * (second[2] - first[2]),
    )


@color_helper
def plus(color, light, power):
    """A colour with the light of another added `power` times."""
    return color[0] + power * light[0], color[1] + power * light[1], color[2] + power * light[2]


@color_helper
def times(factor, color):
    """A colour, brighter or darker."""
    return factor * color[0], factor * color[1], factor * color[2]


@helper
def angle_of(x, z):
    """Angle in radians, -pi..pi, from +z towards +x: atan2(x, z) to 2e-8 (Abramowitz and Stegun 4.4.49), but faster."""
    a, b = abs(x), abs(z)
    ratio = min(a, b) / max(max(a, b), 1e-300)
    s = ratio * ratio
    angle = 0.0028662257
    angle = angle * s - 0.0161657367
    angle = angle * s + 0.0429096138
    angle = angle * s - 0.0752896400
    angle = angle * s + 0.1065626393
    angle = angle * s - 0.1420889944
    angle = angle * s + 0.1999355085
    angle = angle * s - 0.3333314528
    angle = (angle * s + 1.0) * ratio
    if a > b:
        angle = 0.5 * math.pi - angle
    if z < 0.0:
        angle = math.pi - angle
    return -angle if x < 0.0 else angle


@helper
def rough_log2(value):
    """log2 of a positive number to 0.01: enough to choose a mip level."""
    bits = np.float32(value).view(np.int32)
    mantissa = (bits & 0x7FFFFF) * (1.0 / 8388608.0)
    return (bits >> 23) - 127 + mantissa * (1.3465 - 0.3465 * mantissa)


@helper
def smoothstep(low, high, value):
    """0 below `low`, 1 above `high`, smooth between."""
    fraction = min(max((value - low) / (high - low), 0.0), 1.0)
    return fraction * fraction * (3.0 - 2.0 * fraction)


@helper
def hash_pair(a, b):
    """Repeatable 0..1 value of a pair of integers."""
    mixed = (a * 0x9E3779B1 ^ b * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return (mixed >> 16) / 65535.0


@helper
def pulse(position, duty, span):
    """Share of a window of width `span` around `position` covered by pulses [n, n + duty]."""
    span = max(span, 1e-6)
    low = position - 0.5 * span
    high = position + 0.5 * span
    low_floor = math.floor(low)
    high_floor = math.floor(high)
    low_sum = low_floor * duty + min(low - low_floor, duty)
    high_sum = high_floor * duty + min(high - high_floor, duty)
    return (high_sum - low_sum) / span


@helper
def noise_at(noise, u, v, level):
    """Noise at tile coordinates (u, v), filtered to mip `level`; fades to zero beyond the coarsest."""
    if level >= NOISE_LEVELS - 1:
        return 0.0
    i = int((u + 16384.0) * (1 << FRACTION_BITS))
    j = int((v + 16384.0) * (1 << FRACTION_BITS))
    if level <= 0.0:
        return _bilinear(noise, 0, i, j)
    whole = int(level)
    fine = _bilinear(noise, whole, i, j)
    if whole == NOISE_LEVELS - 2:
        return fine * (1.0 - (level - whole))
    return fine + (level - whole) * (_bilinear(noise, whole + 1, i, j) - fine)


@helper
def _bilinear(noise, level, u, v):
    """Noise of one mip level at fixed-point tile coordinates of FRACTION_BITS."""
    size = NOISE_SIZE >> level
    u <<= NOISE_BITS - level
    v <<= NOISE_BITS - level
    i = (u >> FRACTION_BITS) & (size - 1)
    j = (v >> FRACTION_BITS) & (size - 1)
    x = (u & ((1 << FRACTION_BITS) - 1)) * FRACTION
    y = (v & ((1 << FRACTION_BITS) - 1)) * FRACTION
    right = (i + 1) & (size - 1)
    offset = (NOISE_SIZE * NOISE_SIZE * 4 - size * size * 4) // 3
    top = offset + j * size
    bottom = offset + ((j + 1) & (size - 1)) * size
    above = noise[top + i] + x * (noise[top + right] - noise[top + i])
    below = noise[bottom + i] + x * (noise[bottom + right] - noise[bottom + i])
    return above + y * (below - above)
