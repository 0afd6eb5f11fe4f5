"""Where rays meet the world: exact analytic intersections, sun and lamp visibility, compiled with Numba.

Every function here lives in this one file because Numba's on-disk cache only notices changes in the file of the outer function.
"""

import math

import numpy as np
from numba import njit

BLOCK, ROUND, ELLIPSOID, ARCH = 0, 1, 2, 3
"""Kinds of shape: tapered box, tapered cylinder, ellipsoid, box with an arched passage."""

X, Y, Z, COS, SIN, HEIGHT, A0, A1, B0, B1, CX, CY, CZ, RADIUS, SHAPE_COLUMNS = range(15)
"""Columns of the shape table: base centre, yaw, height, half widths (bottom, top), half depths, bounding sphere."""

GROUND_Y, INDOOR, ROOM_X0, ROOM_X1, ROOM_Z0, ROOM_Z1, CEILING_Y = range(7)
SUN_X, SUN_Y, SUN_Z, LAMP_X, LAMP_Y, LAMP_Z, PLACE_COLUMNS = range(7, 14)
"""Entries of the place vector: ground height, room extents, unit direction to the sun, lamp position."""

SKY, GROUND, SKYLINE, ROOM = -1, -2, -3, -20
"""Codes of what a ray met, when not a shape: SKYLINE - layer, ROOM - wall (0 +x, 1 -x, 2 +z, 3 -z, 4 ceiling, 5 floor)."""

SIDE_POSITIVE_X, SIDE_NEGATIVE_X, SIDE_POSITIVE_Z, SIDE_NEGATIVE_Z, TOP, BOTTOM, CURVED = range(7)
"""Faces of a shape."""

WINDOW_BAR = 0.035
"""Half width in metres of the bars across a window."""

CHUNK = 64
NEAREST = 1e-6

geometry = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "arcp", "nsz"})


@geometry
def cast(
    directions,  # (R, 3) float32, camera frame
    origins,  # (R, 3) or (1, 3) float32, camera frame
    valid,  # (R,) bool
    pose,  # (3, 4) float64 camera to world
    shapes,  # (S, SHAPE_COLUMNS) float64
    kinds,  # (S,) int64
    place,  # (PLACE_COLUMNS,) float64
    layers,  # (L, 2) float64: radius, greatest height
    profiles,  # (L, P) float32: height above the ground by azimuth
    windows,  # (W, 5) float64: wall, u0, u1, v0, v1
    shadows,  # (S, 4) float64: bounding discs across the sun, from `sun_discs`
    lighting,  # bool: also compute `light`
    start,
    stop,
    depth,  # (R,) float32 out: distance along the ray, inf for sky
    met,  # (R,) int16 out: shape index or code
    face,  # (R,) int8 out
    light,  # (R, 3) float32 out: sun, lamp, ambient visibility
):
    """Casts rays start..stop; directions need not be unit length."""
    active = np.empty(len(shapes), np.int64)
    for first in range(start, stop, CHUNK):
        last = min(first + CHUNK, stop)
        count = cull(directions, origins, valid, pose, shapes, first, last, active)
        for ray in range(first, last):
            if not valid[ray]:
                depth[ray] = np.inf
                met[ray] = SKY
                continue
            row = ray if len(origins) > 1 else 0
            ox, oy, oz = rotate(pose, origins[row, 0], origins[row, 1], origins[row, 2])
            ox += pose[0, 3]
            oy += pose[1, 3]
            oz += pose[2, 3]
            dx, dy, dz = rotate(pose, directions[ray, 0], directions[ray, 1], directions[ray, 2])
            scale = 1.0 / math.sqrt(dx * dx + dy * dy + dz * dz)
            dx *= scale
            dy *= scale
            dz *= scale
            nearest = np.inf
            what = SKY
            side = CURVED
            for index in range(count):
                shape = active[index]
                distance, hit_side = meet_shape(shapes, kinds[shape], shape, ox, oy, oz, dx, dy, dz)
                if distance < nearest:
                    nearest = distance
                    what = shape
                    side = hit_side
            distance, code = meet_place(place, layers, profiles, windows, ox, oy, oz, dx, dy, dz, nearest)
            if distance < nearest:
                nearest = distance
                what = code
                side = CURVED
            depth[ray] = nearest
            met[ray] = what
            face[ray] = side
            if lighting and what != SKY:
                x = ox + nearest * dx
                y = oy + nearest * dy
                z = oz + nearest * dz
                visibility(shapes, kinds, place, windows, shadows, what, x, y, z, light, ray)


@geometry
def rotate(pose, x, y, z):
    return (
        pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * z,
        pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * z,
        pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * z,
    )


@geometry
def cull(directions, origins, valid, pose, shapes, first, last, active):
    """Writes to `active` the shapes that the cone around a run of rays may meet, and returns how many."""
    ax = ay = az = 0.0
    for ray in range(first, last):
        if valid[ray]:
            ax += directions[ray, 0]
            ay += directions[ray, 1]
            az += directions[ray, 2]
    length = math.sqrt(ax * ax + ay * ay + az * az)
    if length == 0.0:
        if not valid[first:last].any():
            return 0
        ax = 1.0
        length = 1.0
    ax /= length
    ay /= length
    az /= length
    cosine = 1.0
    centre = first if len(origins) > 1 else 0
    for ray in range(first, last):
        if valid[ray]:
            centre = ray if len(origins) > 1 else 0
    cx, cy, cz = origins[centre, 0], origins[centre, 1], origins[centre, 2]
    spread = 0.0
    for ray in range(first, last):
        if valid[ray]:
            x, y, z = directions[ray, 0], directions[ray, 1], directions[ray, 2]
            cosine = min(cosine, (ax * x + ay * y + az * z) / math.sqrt(x * x + y * y + z * z))
            if len(origins) > 1:
                x, y, z = origins[ray, 0] - cx, origins[ray, 1] - cy, origins[ray, 2] - cz
                spread = max(spread, x * x + y * y + z * z)
    spread = math.sqrt(spread)
    cosine = max(cosine - 1e-5, -1.0)
    sine = math.sqrt(1.0 - cosine * cosine)
    ax, ay, az = rotate(pose, ax, ay, az)
    cx, cy, cz = rotate(pose, cx, cy, cz)
    cx += pose[0, 3]
    cy += pose[1, 3]
    cz += pose[2, 3]
    count = 0
    for shape in range(len(shapes)):
        x = shapes[shape, CX] - cx
        y = shapes[shape, CY] - cy
        z = shapes[shape, CZ] - cz
        square = x * x + y * y + z * z
        reach = shapes[shape, RADIUS] + spread
        keep = square <= reach * reach
        if not keep:
            distance = math.sqrt(square)
            sine_reach = reach / distance
            cosine_reach = math.sqrt(1.0 - sine_reach * sine_reach)
            towards = (ax * x + ay * y + az * z) / distance
            beyond_half_turn = cosine < -cosine_reach
            keep = beyond_half_turn or towards >= cosine * cosine_reach - sine * sine_reach - 1e-6
        if keep:
            active[count] = shape
            count += 1
    return count


@geometry
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


@geometry
def meet_block(x, y, z, dx, dy, dz, height, a0, a1, b0, b1):
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


@geometry
def meet_round(x, y, z, dx, dy, dz, height, r0, r1):
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


@geometry
def meet_ellipsoid(x, y, z, dx, dy, dz, height, rx, rz):
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


@geometry
def meet_arch(x, y, z, dx, dy, dz, height, a, b, gap, spring):
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


@geometry
def passage(x, y, dx, dy, gap, spring):
    """Interval of a ray inside a passage |x| <= gap below `spring`, closed by a half circle above; empty if first > last."""
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


@geometry
def meet_place(place, layers, profiles, windows, ox, oy, oz, dx, dy, dz, nearest):
    """Distance to ground, skyline or room (inf for sky) and its code."""
    if place[INDOOR] > 0.0:
        leave, wall = leave_room(place, ox, oy, oz, dx, dy, dz)
        if leave >= nearest:
            return np.inf, SKY
        if wall < 4 and in_window(windows, wall, ox + leave * dx, oy + leave * dy, oz + leave * dz) >= 0:
            nearest = np.inf
        else:
            return leave, ROOM - wall
    distance, code = np.inf, SKY
    if dy > 0.0:
        distance, code = (place[GROUND_Y] - oy) / dy, GROUND
        if distance < NEAREST:
            return np.inf, SKY
    flat = dx * dx + dz * dz
    across = ox * dx + oz * dz
    for layer in range(len(layers)):
        radius = layers[layer, 0]
        if min(nearest, distance) < 0.5 * radius or flat < 1e-12:
            break
        discriminant = across * across - flat * (ox * ox + oz * oz - radius * radius)
        if discriminant <= 0.0:
            continue
        at = (math.sqrt(discriminant) - across) / flat
        above = place[GROUND_Y] - oy - at * dy
        if at < distance and NEAREST < at and 0.0 <= above < layers[layer, 1]:
            if above < profile_height(profiles, layer, ox + at * dx, oz + at * dz):
                return at, SKYLINE - layer
    return distance, code


@geometry
def profile_height(profiles, layer, x, z):
    count = profiles.shape[1]
    position = (math.atan2(x, z) / (2.0 * math.pi) + 0.5) * count
    index = int(position)
    fraction = position - index
    index %= count
    following = index + 1 if index + 1 < count else 0
    return profiles[layer, index] * (1.0 - fraction) + profiles[layer, following] * fraction


@geometry
def leave_room(place, ox, oy, oz, dx, dy, dz):
    """Distance to the walls of the room from inside, and which wall."""
    leave, wall = np.inf, 4
    if dx != 0.0:
        leave = ((place[ROOM_X1] if dx > 0.0 else place[ROOM_X0]) - ox) / dx
        wall = 0 if dx > 0.0 else 1
    if dz != 0.0:
        at = ((place[ROOM_Z1] if dz > 0.0 else place[ROOM_Z0]) - oz) / dz
        if at < leave:
            leave, wall = at, 2 if dz > 0.0 else 3
    if dy != 0.0:
        at = ((place[GROUND_Y] if dy > 0.0 else place[CEILING_Y]) - oy) / dy
        if at < leave:
            leave, wall = at, 5 if dy > 0.0 else 4
    return leave, wall


@geometry
def in_window(windows, wall, x, y, z):
    """Index of the window of `wall` whose glass holds a point, or -1; the bars across its middle are wall."""
    along = z if wall < 2 else x
    for window in range(len(windows)):
        if windows[window, 0] == wall:
            left, right, top, bottom = windows[window, 1], windows[window, 2], windows[window, 3], windows[window, 4]
            if left < along < right and top < y < bottom:
                across, down = abs(along - 0.5 * (left + right)), abs(y - 0.5 * (top + bottom))
                return window if across > WINDOW_BAR and down > WINDOW_BAR else -1
    return -1


@geometry
def visibility(shapes, kinds, place, windows, shadows, what, x, y, z, light, ray):
    """Writes how much of the sun, the lamp and the surroundings a surface point sees (0..1 each)."""
    sx, sy, sz = place[SUN_X], place[SUN_Y], place[SUN_Z]
    outside = place[INDOOR] == 0.0 or what == GROUND or (SKYLINE >= what > ROOM)
    sun = 1.0
    if not outside:
        leave, wall = leave_room(place, x - 1e-4 * sx, y - 1e-4 * sy, z - 1e-4 * sz, sx, sy, sz)
        if wall >= 4 or leave < 1e-3 or in_window(windows, wall, x + leave * sx, y + leave * sy, z + leave * sz) < 0:
            sun = 0.0
    if sun > 0.0 and (what >= 0 or what == GROUND or what <= ROOM):
        if shadowed(shapes, kinds, place, shadows, what, x, y, z):
            sun = 0.0
    lamp = 0.0
    if not outside:
        lamp = 0.0 if lamp_blocked(shapes, kinds, place, what, x, y, z) else 1.0
    light[ray, 0] = sun
    light[ray, 1] = lamp
    light[ray, 2] = 1.0
    if what == GROUND or what == ROOM - 5:
        light[ray, 2] = contact(shapes, kinds, x, y, z)


@geometry
def shadowed(shapes, kinds, place, shadows, what, x, y, z):
    sx, sy, sz = place[SUN_X], place[SUN_Y], place[SUN_Z]
    ux, uz = sun_across(sx, sz)
    u = x * ux + z * uz
    v = -x * uz * sy + y * (uz * sx - ux * sz) + z * ux * sy
    along = x * sx + y * sy + z * sz
    for shape in range(len(shapes)):
        du = u - shadows[shape, 0]
        dv = v - shadows[shape, 1]
        if du * du + dv * dv < shadows[shape, 2] and along < shadows[shape, 3]:
            if shape == what and kinds[shape] != ARCH:
                continue
            start = 1e-3 if shape == what else 0.0
            distance, _ = meet_shape(shapes, kinds[shape], shape, x + start * sx, y + start * sy, z + start * sz, sx, sy, sz)
            if distance < np.inf:
                return True
    return False


@geometry
def sun_across(sx, sz):
    """Horizontal unit vector across the sun's direction."""
    length = math.sqrt(sx * sx + sz * sz)
    if length < 1e-9:
        return 1.0, 0.0
    return sz / length, -sx / length


@geometry
def sun_discs(shapes, place, shadows):
    """Fills `shadows` (S, 4): centre across the sun, squared radius, and the reach towards the sun."""
    sx, sy, sz = place[SUN_X], place[SUN_Y], place[SUN_Z]
    ux, uz = sun_across(sx, sz)
    for shape in range(len(shapes)):
        x, y, z, radius = shapes[shape, CX], shapes[shape, CY], shapes[shape, CZ], shapes[shape, RADIUS]
        shadows[shape, 0] = x * ux + z * uz
        shadows[shape, 1] = -x * uz * sy + y * (uz * sx - ux * sz) + z * ux * sy
        shadows[shape, 2] = radius * radius
        shadows[shape, 3] = x * sx + y * sy + z * sz + radius


@geometry
def lamp_blocked(shapes, kinds, place, what, x, y, z):
    dx, dy, dz = place[LAMP_X] - x, place[LAMP_Y] - y, place[LAMP_Z] - z
    square = dx * dx + dy * dy + dz * dz
    for shape in range(len(shapes)):
        if shape == what:
            continue
        cx, cy, cz = shapes[shape, CX] - x, shapes[shape, CY] - y, shapes[shape, CZ] - z
        near = min(max((cx * dx + cy * dy + cz * dz) / square, 0.0), 1.0)
        cx -= near * dx
        cy -= near * dy
        cz -= near * dz
        if cx * cx + cy * cy + cz * cz < shapes[shape, RADIUS] * shapes[shape, RADIUS]:
            distance, _ = meet_shape(shapes, kinds[shape], shape, x, y, z, dx, dy, dz)
            if distance < 1.0:
                return True
    return False


@geometry
def contact(shapes, kinds, x, y, z):
    """Ambient visibility of a ground point beside the shapes that stand close to it."""
    open_sky = 1.0
    for shape in range(len(shapes)):
        dx, dz = x - shapes[shape, X], z - shapes[shape, Z]
        height = shapes[shape, HEIGHT]
        lift = y - shapes[shape, Y]
        width = max(max(shapes[shape, A0], shapes[shape, B0]), shapes[shape, A1])
        reach = 0.35 * min(height, 2.0 * width) + 0.25
        bound = 1.42 * width + reach
        if lift > reach or dx * dx + dz * dz > bound * bound:
            continue
        if kinds[shape] == BLOCK or kinds[shape] == ARCH:
            c, s = shapes[shape, COS], shapes[shape, SIN]
            px = max(abs(c * dx - s * dz) - shapes[shape, A0], 0.0)
            pz = max(abs(s * dx + c * dz) - shapes[shape, B0], 0.0)
            distance = math.sqrt(px * px + pz * pz)
        elif kinds[shape] == ROUND:
            distance = max(math.sqrt(dx * dx + dz * dz) - shapes[shape, A0], 0.0)
        else:
            distance = max(math.sqrt(dx * dx + dz * dz) - 0.5 * shapes[shape, A0], 0.0)
        distance += max(lift, 0.0)
        if distance < reach:
            closeness = 1.0 - distance / reach
            open_sky *= 1.0 - 0.6 * closeness * closeness
    return open_sky
