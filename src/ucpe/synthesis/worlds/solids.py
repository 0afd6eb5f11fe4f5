"""Solid shapes as tables of numbers, and where a ray meets one, compiled with Numba."""

import math

import numpy as np
from numba import njit

from ucpe.synthesis.worlds.numerics import GEOMETRY, helper

BLOCK, ROUND, ELLIPSOID, ARCH = 0, 1, 2, 3
"""Kinds of shape: tapered box, tapered cylinder, ellipsoid, box with an arched passage."""

X, Y, Z, COS, SIN, HEIGHT, A0, A1, B0, B1, CX, CY, CZ, RADIUS, SHAPE_COLUMNS = range(15)
"""Columns of the shape table: base centre, yaw, height, half widths (bottom, top), half depths, bounding sphere."""

SIDE_POSITIVE_X, SIDE_NEGATIVE_X, SIDE_POSITIVE_Z, SIDE_NEGATIVE_Z, TOP, BOTTOM, CURVED = range(7)
"""Faces of a shape."""

NEAREST = 1e-6
"""Distances up to this count as behind the ray's origin."""

_part = njit(**GEOMETRY)


@helper
def meet_shape(shapes, kind, i, ox, oy, oz, dx, dy, dz):
    """Nearest positive distance of a ray to shape `i` (inf where it misses) and the face it meets."""
    ox -= shapes[i, X]
    oy -= shapes[i, Y]
    oz -= shapes[i, Z]
    c = shapes[i, COS]
    s = shapes[i, SIN]
    lx = c * ox - s * oz
    lz = s * ox + c * oz
    mx = c * dx - s * dz
    mz = s * dx + c * dz
    height = shapes[i, HEIGHT]
    a0, a1, b0, b1 = shapes[i, A0], shapes[i, A1], shapes[i, B0], shapes[i, B1]
    if kind == BLOCK:
        return meet_block(lx, -oy, lz, mx, -dy, mz, height, a0, a1, b0, b1)
    if kind == ROUND:
        return meet_round(lx, -oy, lz, mx, -dy, mz, height, a0, a1)
    if kind == ELLIPSOID:
        return meet_ellipsoid(lx, -oy, lz, mx, -dy, mz, height, a0, b0)
    return meet_arch(lx, -oy, lz, mx, -dy, mz, height, a0, b0, a1, b1)


@_part
def meet_block(x, y, z, dx, dy, dz, height, a0, a1, b0, b1):
    """Box from 0 to `height` whose half widths go from a0, b0 to a1, b1."""
    enter, leave = -np.inf, np.inf
    enter_side, leave_side = TOP, TOP
    slope_x = (a1 - a0) / height
    slope_z = (b1 - b0) / height
    for side in range(6):
        if side == SIDE_POSITIVE_X:
            value, rate = x - slope_x * y - a0, dx - slope_x * dy
        elif side == SIDE_NEGATIVE_X:
            value, rate = -x - slope_x * y - a0, -dx - slope_x * dy
        elif side == SIDE_POSITIVE_Z:
            value, rate = z - slope_z * y - b0, dz - slope_z * dy
        elif side == SIDE_NEGATIVE_Z:
            value, rate = -z - slope_z * y - b0, -dz - slope_z * dy
        elif side == TOP:
            value, rate = y - height, dy
        else:
            value, rate = -y, -dy
        if rate == 0.0:
            if value > 0.0:
                return np.inf, TOP
            continue
        at = -value / rate
        if rate < 0.0:
            if at > enter:
                enter, enter_side = at, side
        elif at < leave:
            leave, leave_side = at, side
        if enter > leave:
            return np.inf, TOP
    if enter > NEAREST:
        return enter, enter_side
    if leave > NEAREST:
        return leave, leave_side
    return np.inf, TOP


@_part
def meet_round(x, y, z, dx, dy, dz, height, r0, r1):
    """Upright cylinder, cone or frustum with its caps."""
    slope = (r1 - r0) / height
    radius = r0 + slope * y
    a = dx * dx + dz * dz - slope * slope * dy * dy
    b = x * dx + z * dz - slope * dy * radius
    c = x * x + z * z - radius * radius
    discriminant = b * b - a * c
    nearest, side = np.inf, CURVED
    if discriminant > 0.0:
        q = -(b + math.copysign(math.sqrt(discriminant), b))
        for root in range(2):
            at = q / a if root == 0 else c / q
            if NEAREST < at < nearest and 0.0 <= y + at * dy <= height:
                nearest, side = at, CURVED
    if dy != 0.0:
        for cap in range(2):
            level, limit = (height, r1) if cap == 0 else (0.0, r0)
            at = (level - y) / dy
            px, pz = x + at * dx, z + at * dz
            if NEAREST < at < nearest and px * px + pz * pz <= limit * limit:
                nearest, side = at, TOP if cap == 0 else BOTTOM
    return nearest, side


@_part
def meet_ellipsoid(x, y, z, dx, dy, dz, height, rx, rz):
    """Ellipsoid resting on the origin."""
    ry = 0.5 * height
    y -= ry
    x /= rx
    y /= ry
    z /= rz
    dx /= rx
    dy /= ry
    dz /= rz
    a = dx * dx + dy * dy + dz * dz
    closest = -(x * dx + y * dy + z * dz) / a
    px, py, pz = x + closest * dx, y + closest * dy, z + closest * dz
    inside = 1.0 - (px * px + py * py + pz * pz)
    if inside <= 0.0:
        return np.inf, CURVED
    half = math.sqrt(inside / a)
    if closest - half > NEAREST:
        return closest - half, CURVED
    if closest + half > NEAREST:
        return closest + half, CURVED
    return np.inf, CURVED


@_part
def meet_arch(x, y, z, dx, dy, dz, height, a, b, gap, spring):
    """Box minus an arched passage along z."""
    enter, leave = -np.inf, np.inf
    enter_side = TOP
    for axis in range(3):
        if axis == 0:
            value, rate, low, high = x, dx, -a, a
        elif axis == 1:
            value, rate, low, high = y, dy, 0.0, height
        else:
            value, rate, low, high = z, dz, -b, b
        if rate == 0.0:
            if value < low or value > high:
                return np.inf, TOP
            continue
        first, last = (low - value) / rate, (high - value) / rate
        if first > last:
            first, last = last, first
        if first > enter:
            enter = first
            if axis == 0:
                enter_side = SIDE_NEGATIVE_X if rate > 0.0 else SIDE_POSITIVE_X
            elif axis == 1:
                enter_side = BOTTOM if rate > 0.0 else TOP
            else:
                enter_side = SIDE_NEGATIVE_Z if rate > 0.0 else SIDE_POSITIVE_Z
        leave = min(leave, last)
    if enter > leave or leave < NEAREST:
        return np.inf, TOP
    gap_in, gap_out = passage(x, y, dx, dy, gap, spring)
    start = max(enter, NEAREST)
    if gap_in <= start <= gap_out:
        return (gap_out, CURVED) if gap_out < leave else (np.inf, TOP)
    if enter > NEAREST:
        return enter, enter_side
    if start < gap_in < leave and gap_in < gap_out:
        return gap_in, CURVED
    return leave, TOP


@_part
def passage(x, y, dx, dy, gap, spring):
    """Interval of a ray in a passage |x| <= gap up to `spring`, closed by a half circle; empty if first > last."""
    first, last = -np.inf, np.inf
    empty = False
    if dx == 0.0:
        empty = abs(x) > gap
    else:
        first, last = (-gap - x) / dx, (gap - x) / dx
        if first > last:
            first, last = last, first
    if dy > 0.0:
        last = min(last, (spring - y) / dy)
    elif dy < 0.0:
        first = max(first, (spring - y) / dy)
    else:
        empty = empty or y > spring
    if empty or first > last:
        first, last = np.inf, -np.inf
    square = dx * dx + dy * dy
    if square > 0.0:
        closest = -(x * dx + (y - spring) * dy) / square
        px, py = x + closest * dx, y - spring + closest * dy
        inside = gap * gap - px * px - py * py
        if inside > 0.0:
            half = math.sqrt(inside / square)
            first = min(first, closest - half)
            last = max(last, closest + half)
    return first, last
