"""Numba kernels between directions and the pixels of a panorama: maps, borders, footprints, blending.

Unit coordinates run over the whole picture, (0, 0) its top left corner and (1, 1) its bottom right. Pixel
coordinates are OpenCV's: the centre of the first pixel is (0, 0).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ucpe.compiled import kernel

ATAN = tuple(np.float32(value) for value in (0.99999013, -0.3327712, 0.19383485, -0.11626042, 0.05189504, -0.0112904))
"""Minimax coefficients of the odd polynomial for atan on [0, 1]; off by at most 5e-6 radians."""

A0, A1, A2, A3, A4, A5 = ATAN
PI, HALF_PI, HALF, TINY = (np.float32(value) for value in (math.pi, math.pi / 2, 0.5, 1e-30))
PER_TURN, PER_HALF_TURN, PER_RIGHT_ANGLE = (np.float32(value / math.pi) for value in (0.5, 1, 2))


@njit(inline="always", fastmath=True)
def _atan2(y, x):
    """Angle in radians of (x, y), float32, branch-free so that loops over it vectorise."""
    across, along = abs(y), abs(x)
    ratio = min(across, along) / max(max(across, along), TINY)
    square = ratio * ratio
    angle = ratio * (A0 + square * (A1 + square * (A2 + square * (A3 + square * (A4 + square * A5)))))
    angle = HALF_PI - angle if across > along else angle
    angle = PI - angle if x < 0 else angle
    return -angle if y < 0 else angle


@njit(inline="always", fastmath=True)
def _equirectangular(a, b, c):
    return (
        _atan2(a, c) * PER_TURN + HALF,
        _atan2(b, math.sqrt(a * a + c * c)) * PER_HALF_TURN + HALF,
    )


@njit(inline="always", fastmath=True)
def _equi_angular(a, b, c):
    """Unit coordinates of a direction in an unpadded equi-angular cubemap: strips left-front-right and down-back-up."""
    wide, tall, deep = abs(a), abs(b), abs(c)
    along_z = (deep >= wide) & (deep >= tall)
    along_x = (not along_z) & (wide >= tall)
    along_y = (not along_z) & (not along_x)
    lower = along_y | (along_z & (c < 0))
    depth = max(max(wide, tall), max(deep, TINY))
    right = c if a < 0 else -c
    if along_z:
        right = a if c > 0 else -b
    if along_y:
        right = -c if b > 0 else c
    down = -a if lower else b
    column = np.float32(1.5)
    if along_x:
        column = np.float32(2.5) if a > 0 else HALF
    if along_y:
        column = HALF if b > 0 else np.float32(2.5)
    row = np.float32(1.5) if lower else HALF
    return (
        (column + _atan2(right, depth) * PER_RIGHT_ANGLE) * np.float32(1 / 3),
        (row + _atan2(down, depth) * PER_RIGHT_ANGLE) * HALF,
    )


@njit(inline="always", fastmath=True)
def _turn(r, p, q, s):
    return (
        r[0, 0] * p + r[0, 1] * q + r[0, 2] * s,
        r[1, 0] * p + r[1, 1] * q + r[1, 2] * s,
        r[2, 0] * p + r[2, 1] * q + r[2, 2] * s,
    )


@kernel(fastmath=True, nogil=True)
def map_equirectangular(rays, rotation, width, height, shift, reach, x, y, edges):
    """Pixels x, y (H, W) of a panorama at which camera rays (3, H, W), turned by a rotation, arrive; all float32.

    `shift` moves the panorama's samples to the left, in pixels. Pixels whose interpolation (`reach` pixels around)
    crosses the panorama's border go to `edges` as flat indices; their number is returned.
    """
    count, columns = 0, rays.shape[2]
    scale_x, move_x = np.float32(width), np.float32(shift - 0.5)
    scale_y, move_y = np.float32(height), np.float32(-0.5)
    first, last_x, last_y = np.float32(reach - 1), np.float32(width - reach), np.float32(height - reach)
    for v in range(rays.shape[1]):
        outside = 0
        for u in range(columns):
            a, b, c = _turn(rotation, rays[0, v, u], rays[1, v, u], rays[2, v, u])
            unit_x, unit_y = _equirectangular(a, b, c)
            at_x, at_y = unit_x * scale_x + move_x, unit_y * scale_y + move_y
            x[v, u], y[v, u] = at_x, at_y
            outside += (at_x < first) | (at_x >= last_x) | (at_y < first) | (at_y >= last_y)
        if outside:
            for u in range(columns):
                if x[v, u] < first or x[v, u] >= last_x or y[v, u] < first or y[v, u] >= last_y:
                    edges[count] = v * columns + u
                    count += 1
    return count


@kernel(fastmath=True, nogil=True)
def map_equi_angular(rays, rotation, width, height, pad_x, pad_y, shift, reach, x, y, edges):
    """The same for an equi-angular cubemap whose two strips have pad_x, pad_y pixels of padding around them."""
    count, columns = 0, rays.shape[2]
    tall = np.float32(height / 2)
    scale_x, move_x = np.float32(width - 2 * pad_x), np.float32(pad_x + shift - 0.5)
    scale_y, move_y = np.float32(height - 4 * pad_y), np.float32(pad_y - 0.5)
    first_x, last_x = np.float32(pad_x + reach - 1), np.float32(width - pad_x - reach)
    first_y, last_y = np.float32(pad_y + reach - 1), np.float32(height / 2 - pad_y - reach)
    for v in range(rays.shape[1]):
        for u in range(columns):
            a, b, c = _turn(rotation, rays[0, v, u], rays[1, v, u], rays[2, v, u])
            unit_x, unit_y = _equi_angular(a, b, c)
            lower = np.float32(1) if unit_y >= HALF else np.float32(0)
            x[v, u] = unit_x * scale_x + move_x
            y[v, u] = (unit_y - lower * HALF) * scale_y + move_y + lower * tall
        for u in range(columns):
            in_strip = y[v, u] - tall if y[v, u] + HALF >= tall else y[v, u]
            if x[v, u] < first_x or x[v, u] >= last_x or in_strip < first_y or in_strip >= last_y:
                edges[count] = v * columns + u
                count += 1
    return count


@njit(inline="always")
def _weights(fraction, reach, lanczos, weights):
    """Weights of the 2 * reach pixels around a position, which sum to 1."""
    total = 0.0
    for tap in range(2 * reach):
        distance = abs(fraction - (tap - reach + 1))
        if not lanczos:
            weights[tap] = 1 - distance
        elif distance < 1e-9:
            weights[tap] = 1.0
        elif distance >= reach:
            weights[tap] = 0.0
        else:
            angle = math.pi * distance
            weights[tap] = reach * math.sin(angle) * math.sin(angle / reach) / (angle * angle)
        total += weights[tap]
    for tap in range(2 * reach):
        weights[tap] /= total


@kernel(nogil=True)
def mend(picture, cube, x, y, pad_x, pad_y, shift, edges, lanczos, reach, out):
    """Sample a panorama (h, w, c), or a cubemap, again where interpolation crosses a border, into out (H * W, c)."""
    height, channels = picture.shape[0], picture.shape[2]
    across, down = np.empty(2 * reach), np.empty(2 * reach)
    x, y = x.ravel(), y.ravel()
    for index in edges:
        left, top = math.floor(x[index]), math.floor(y[index])
        lower = y[index] + 0.5 >= height / 2
        _weights(x[index] - left, reach, lanczos, across)
        _weights(y[index] - top, reach, lanczos, down)
        for channel in range(channels):
            value = 0.0
            for j in range(2 * reach):
                row = top + j - reach + 1
                for i in range(2 * reach):
                    column = left + i - reach + 1
                    if cube:
                        pixel = _cubemap_pixel(picture, column, row, lower, channel, pad_x, pad_y, shift)
                    else:
                        pixel = _panorama_pixel(picture, column, row, channel)
                    value += across[i] * down[j] * pixel
            out[index, channel] = np.uint8(min(max(value + 0.5, 0.0), 255.0))


@njit(inline="always")
def _panorama_pixel(picture, column, row, channel):
    """The pixel (column, row) of a panorama; beyond its borders, what lies across the seam or the pole."""
    height, width, _ = picture.shape
    if row < 0:
        row, column = -1 - row, column + width // 2
    elif row >= height:
        row, column = 2 * height - 1 - row, column + width // 2
    return float(picture[min(max(row, 0), height - 1), column % width, channel])


@njit
def _cubemap_pixel(picture, column, row, lower, channel, pad_x, pad_y, shift):
    """The pixel (column, row) of a strip; beyond its border, what the neighbouring face shows in that direction."""
    height, width, _ = picture.shape
    tall = height / 2
    top = tall if lower else 0.0
    x, y = column + 0.5 - shift, row + 0.5
    if pad_x <= x <= width - pad_x and top + pad_y <= y <= top + tall - pad_y and 0 <= column < width:
        return float(picture[row, column, channel])
    along = 3 * (x - pad_x) / (width - 2 * pad_x)
    face = min(max(math.floor(along), 0), 2)
    u = math.tan(math.pi / 2 * (along - face - 0.5))
    v = math.tan(math.pi / 2 * ((y - top - pad_y) / (tall - 2 * pad_y) - 0.5))
    if lower:
        a = -v
        b, c = (1.0, -u) if face == 0 else ((-u, -1.0) if face == 1 else (-1.0, u))
    else:
        b = v
        a, c = (-1.0, u) if face == 0 else ((u, 1.0) if face == 1 else (1.0, -u))
    unit_x, unit_y = _equi_angular(np.float32(a), np.float32(b), np.float32(c))
    strip = 1 if unit_y >= 0.5 else 0
    x = pad_x + unit_x * (width - 2 * pad_x) + shift - 0.5
    y = strip * tall + pad_y + (2 * unit_y - strip) * (tall - 2 * pad_y) - 0.5
    x = min(max(x, pad_x), width - 1 - pad_x)
    y = min(max(y, strip * tall + pad_y), (strip + 1) * tall - 1 - pad_y)
    left, up = math.floor(x), math.floor(y)
    right, low = min(left + 1, width - 1), min(up + 1, height - 1)
    fx, fy = x - left, y - up
    above = picture[up, left, channel] * (1 - fx) + picture[up, right, channel] * fx
    below = picture[low, left, channel] * (1 - fx) + picture[low, right, channel] * fx
    return above * (1 - fy) + below * fy


@kernel(nogil=True)
def scatter(values, places, out):
    """Put values (M, c) at places (M) of out (N, c)."""
    for n in range(len(places)):
        for channel in range(values.shape[1]):
            out[places[n], channel] = values[n, channel]


@kernel(nogil=True)
def scatter_weighted(values, places, weights, total):
    """Add values (M, c) uint8 times weights (M) uint16 at places (M) of total (N, c) uint16."""
    for n in range(len(places)):
        for channel in range(values.shape[1]):
            total[places[n], channel] += np.uint16(values[n, channel]) * weights[n]


@kernel(nogil=True)
def pixel_footprint(rays, valid, largest_ratio, out):
    """Radians, into out (H, W), that pixels span along their wide side: at most `largest_ratio` times the narrow."""
    height, width = valid.shape
    step = np.zeros((2, 3))
    for v in range(height):
        for u in range(width):
            out[v, u] = 0
            if not valid[v, u]:
                continue
            for axis in range(2):
                down, right = 1 - axis, axis
                after = v + down < height and u + right < width and valid[v + down, u + right]
                before = v >= down and u >= right and valid[v - down, u - right]
                for k in range(3):
                    last = rays[k, v + down, u + right] if after else rays[k, v, u]
                    first = rays[k, v - down, u - right] if before else rays[k, v, u]
                    step[axis, k] = (last - first) / 2 if after and before else last - first
            along, across, mixed = 0.0, 0.0, 0.0
            for k in range(3):
                along += step[0, k] * step[0, k]
                across += step[1, k] * step[1, k]
                mixed += step[0, k] * step[1, k]
            middle, spread = (along + across) / 2, math.sqrt(((along - across) / 2) ** 2 + mixed * mixed)
            wide, narrow = math.sqrt(middle + spread), math.sqrt(max(middle - spread, 0.0))
            out[v, u] = min(wide, narrow * largest_ratio) if narrow > 0 else wide
