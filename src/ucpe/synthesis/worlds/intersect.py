"""Where rays meet the world: exact analytic intersections, sun and lamp visibility, compiled with Numba."""

import math

import numpy as np
from numba import njit

from ucpe.compiled import kernel
from ucpe.synthesis.worlds.numerics import GEOMETRY, angle_of, helper, rotate
from ucpe.synthesis.worlds.solids import (
    A0,
    A1,
    ARCH,
    B0,
    BLOCK,
    COS,
    CURVED,
    CX,
    CY,
    CZ,
    HEIGHT,
    NEAREST,
    RADIUS,
    ROUND,
    SIN,
    X,
    Y,
    Z,
    meet_shape,
)

GROUND_Y, INDOOR, ROOM_X0, ROOM_X1, ROOM_Z0, ROOM_Z1, CEILING_Y = range(7)
SUN_X, SUN_Y, SUN_Z, LAMP_X, LAMP_Y, LAMP_Z, PLACE_COLUMNS = range(7, 14)
"""Entries of the place vector: ground height, room extents, unit direction to the sun, lamp position."""

SKY, GROUND, SKYLINE, ROOM = -1, -2, -3, -20
"""What a ray met when not a shape: SKYLINE - layer, ROOM - wall (0 +x, 1 -x, 2 +z, 3 -z, 4 ceiling, 5 floor)."""

WINDOW_BAR = 0.035
"""Half width in metres of the bars across a window."""

CHUNK = 64

geometry = kernel(**GEOMETRY)
_part = njit(**GEOMETRY)


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
    face,  # (stop - start,) int8 out
    light,  # (stop - start, 3) float32 out: sun, lamp, ambient visibility
):
    """Casts rays start..stop; directions need not be unit length."""
    ways = np.empty((3, CHUNK))
    starts = np.empty((3, CHUNK))
    points = np.empty((3, CHUNK))
    active = np.empty(len(shapes), np.int64)
    for first in range(start, stop, CHUNK):
        count = min(CHUNK, stop - first)
        if not world_rays(directions, origins, valid, pose, first, count, ways, starts):
            depth[first : first + count] = np.inf
            met[first : first + count] = SKY
            continue
        kept = cull(ways, starts, count, shapes, active)
        lit = False
        for ray in range(count):
            dx, dy, dz = ways[0, ray], ways[1, ray], ways[2, ray]
            ox, oy, oz = starts[0, ray], starts[1, ray], starts[2, ray]
            nearest, what, side = np.inf, SKY, CURVED
            if valid[first + ray]:
                for index in range(kept):
                    shape = active[index]
                    distance, hit_side = meet_shape(shapes, kinds[shape], shape, ox, oy, oz, dx, dy, dz)
                    if distance < nearest:
                        nearest, what, side = distance, shape, hit_side
                distance, code = meet_place(place, layers, profiles, windows, ox, oy, oz, dx, dy, dz, nearest)
                if distance < nearest:
                    nearest, what, side = distance, code, CURVED
            depth[first + ray] = nearest
            met[first + ray] = what
            face[first + ray - start] = side
            if what == SKY:
                nearest = 0.0
            else:
                lit = True
            points[0, ray] = ox + nearest * dx
            points[1, ray] = oy + nearest * dy
            points[2, ray] = oz + nearest * dz
        if lighting and lit:
            see_lights(
                shapes, kinds, place, windows, shadows, points, met, first, count, active, light[first - start :]
            )


@_part
def world_rays(directions, origins, valid, pose, first, count, ways, starts):
    """Fills unit directions and origins in the world; an invalid ray repeats a valid one. False if none is valid."""
    good = -1
    for ray in range(count):
        if valid[first + ray]:
            good = ray
            break
    if good < 0:
        return False
    for ray in range(count):
        row = first + (ray if valid[first + ray] else good)
        dx, dy, dz = rotate(pose, directions[row, 0], directions[row, 1], directions[row, 2])
        scale = 1.0 / math.sqrt(dx * dx + dy * dy + dz * dz)
        ways[0, ray] = dx * scale
        ways[1, ray] = dy * scale
        ways[2, ray] = dz * scale
    for ray in range(count):
        row = 0
        if len(origins) > 1:
            row = first + (ray if valid[first + ray] else good)
        x, y, z = rotate(pose, origins[row, 0], origins[row, 1], origins[row, 2])
        starts[0, ray] = x + pose[0, 3]
        starts[1, ray] = y + pose[1, 3]
        starts[2, ray] = z + pose[2, 3]
    return True


@_part
def cull(ways, starts, count, shapes, active):
    """Writes to `active` the shapes that the cone around a run of rays may meet, and returns how many."""
    ax = ay = az = 0.0
    for ray in range(count):
        ax += ways[0, ray]
        ay += ways[1, ray]
        az += ways[2, ray]
    length = math.sqrt(ax * ax + ay * ay + az * az)
    if length < 1e-9:
        ax, length = 1.0, 1.0
    ax /= length
    ay /= length
    az /= length
    cosine = 1.0
    cx, cy, cz = starts[0, 0], starts[1, 0], starts[2, 0]
    spread = 0.0
    steepest_up, steepest_down = 1.0, -1.0
    for ray in range(count):
        steepest_up, steepest_down = min(steepest_up, ways[1, ray]), max(steepest_down, ways[1, ray])
        cosine = min(cosine, ax * ways[0, ray] + ay * ways[1, ray] + az * ways[2, ray])
        x, y, z = starts[0, ray] - cx, starts[1, ray] - cy, starts[2, ray] - cz
        spread = max(spread, x * x + y * y + z * z)
    spread = math.sqrt(spread)
    cosine = max(cosine - 1e-7, -1.0)
    sine = math.sqrt(1.0 - cosine * cosine)
    kept = 0
    for shape in range(len(shapes)):
        x = shapes[shape, CX] - cx
        y = shapes[shape, CY] - cy
        z = shapes[shape, CZ] - cz
        square = x * x + y * y + z * z
        reach = shapes[shape, RADIUS] + spread
        keep = square <= reach * reach
        above, below = shapes[shape, Y] < cy - spread, shapes[shape, Y] - shapes[shape, HEIGHT] > cy + spread
        if (above and steepest_up >= 0.0) or (below and steepest_down <= 0.0):
            continue
        if not keep:
            distance = math.sqrt(square)
            sine_reach = reach / distance
            cosine_reach = math.sqrt(1.0 - sine_reach * sine_reach)
            towards = (ax * x + ay * y + az * z) / distance
            past_half_turn = cosine < -cosine_reach
            keep = past_half_turn or towards >= cosine * cosine_reach - sine * sine_reach - 1e-7
        if keep:
            active[kept] = shape
            kept += 1
    return kept


@helper
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
    if flat < 1e-12:
        return distance, code
    across = ox * dx + oz * dz
    away = math.sqrt(ox * ox + oz * oz)
    for layer in range(len(layers)):
        radius = layers[layer, 0]
        least = radius - away
        if min(nearest, distance) < least:
            break
        if dy < 0.0 and place[GROUND_Y] - oy - least * dy > layers[layer, 1]:
            continue
        discriminant = across * across - flat * (ox * ox + oz * oz - radius * radius)
        if discriminant <= 0.0:
            continue
        at = (math.sqrt(discriminant) - across) / flat
        above = place[GROUND_Y] - oy - at * dy
        if not (NEAREST < at < distance and 0.0 <= above < layers[layer, 1]):
            continue
        if above < profile_height(profiles, layer, ox + at * dx, oz + at * dz):
            return at, SKYLINE - layer
    return distance, code


@helper
def profile_height(profiles, layer, x, z):
    """Height of a skyline above the ground in the direction (x, z)."""
    count = profiles.shape[1]
    position = (angle_of(x, z) / (2.0 * math.pi) + 0.5) * count
    index = int(position)
    fraction = position - index
    index %= count
    following = index + 1 if index + 1 < count else 0
    return profiles[layer, index] * (1.0 - fraction) + profiles[layer, following] * fraction


@helper
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


@helper
def in_window(windows, wall, x, y, z):
    """Index of the window of `wall` whose glass holds a point, or -1; the bars across its middle are wall."""
    along = z if wall < 2 else x
    for window in range(len(windows)):
        if windows[window, 0] == wall:
            left, right, top, bottom = (
                windows[window, 1],
                windows[window, 2],
                windows[window, 3],
                windows[window, 4],
            )
            if left < along < right and top < y < bottom:
                across, down = abs(along - 0.5 * (left + right)), abs(y - 0.5 * (top + bottom))
                return window if across > WINDOW_BAR and down > WINDOW_BAR else -1
    return -1


@_part
def see_lights(shapes, kinds, place, windows, shadows, points, met, first, count, active, light):
    """Writes how much of the sun, the lamp and the surroundings the points of a run of rays see (0..1 each)."""
    sx, sy, sz = place[SUN_X], place[SUN_Y], place[SUN_Z]
    indoor = place[INDOOR] > 0.0
    blockers = shading_shapes(place, shadows, points, met, first, count, active)
    for ray in range(count):
        what = met[first + ray]
        if what == SKY:
            continue
        x, y, z = points[0, ray], points[1, ray], points[2, ray]
        sun = 1.0
        if indoor and (what >= 0 or what <= ROOM):
            leave, wall = leave_room(place, x - 1e-4 * sx, y - 1e-4 * sy, z - 1e-4 * sz, sx, sy, sz)
            if (
                wall >= 4
                or leave < 1e-3
                or in_window(windows, wall, x + leave * sx, y + leave * sy, z + leave * sz) < 0
            ):
                sun = 0.0
        if sun > 0.0 and (what >= 0 or what == GROUND or what <= ROOM):
            for index in range(blockers):
                shape = active[index]
                if shape == what and kinds[shape] != ARCH:
                    continue
                start = 1e-3 if shape == what else 0.0
                distance, _ = meet_shape(
                    shapes, kinds[shape], shape, x + start * sx, y + start * sy, z + start * sz, sx, sy, sz
                )
                if distance < np.inf:
                    sun = 0.0
                    break
        light[ray, 0] = sun
        light[ray, 1] = 0.0
        light[ray, 2] = 1.0
    if indoor:
        see_lamp(shapes, kinds, place, points, met, first, count, active, light)
    floor = ROOM - 5 if indoor else GROUND
    beside = shapes_beside(shapes, points, met, floor, first, count, active)
    if beside > 0:
        for ray in range(count):
            if met[first + ray] == floor:
                light[ray, 2] = contact(shapes, kinds, points[0, ray], points[1, ray], points[2, ray], active, beside)


@_part
def see_lamp(shapes, kinds, place, points, met, first, count, active, light):
    """Writes whether the points of a run of rays see the lamp of the room."""
    lamp_x, lamp_y, lamp_z = place[LAMP_X], place[LAMP_Y], place[LAMP_Z]
    cx = cy = cz = 0.0
    for ray in range(count):
        cx += points[0, ray] / count
        cy += points[1, ray] / count
        cz += points[2, ray] / count
    spread = 0.0
    high, low = lamp_y, lamp_y
    for ray in range(count):
        if met[first + ray] >= 0 or met[first + ray] <= ROOM:
            high, low = min(high, points[1, ray]), max(low, points[1, ray])
            x, y, z = points[0, ray] - cx, points[1, ray] - cy, points[2, ray] - cz
            spread = max(spread, x * x + y * y + z * z)
    spread = math.sqrt(spread)
    dx, dy, dz = lamp_x - cx, lamp_y - cy, lamp_z - cz
    square = max(dx * dx + dy * dy + dz * dz, 1e-9)
    kept = 0
    for shape in range(len(shapes)):
        x, y, z = shapes[shape, CX] - cx, shapes[shape, CY] - cy, shapes[shape, CZ] - cz
        near = min(max((x * dx + y * dy + z * dz) / square, 0.0), 1.0)
        x -= near * dx
        y -= near * dy
        z -= near * dz
        reach = shapes[shape, RADIUS] + spread
        between = shapes[shape, Y] >= high and shapes[shape, Y] - shapes[shape, HEIGHT] <= low
        if between and x * x + y * y + z * z < reach * reach:
            active[kept] = shape
            kept += 1
    for ray in range(count):
        what = met[first + ray]
        if what < 0 and what > ROOM:
            continue
        x, y, z = points[0, ray], points[1, ray], points[2, ray]
        light[ray, 1] = 1.0
        for index in range(kept):
            shape = active[index]
            if shape == what:
                continue
            distance, _ = meet_shape(shapes, kinds[shape], shape, x, y, z, lamp_x - x, lamp_y - y, lamp_z - z)
            if distance < 1.0:
                light[ray, 1] = 0.0
                break


@_part
def shading_shapes(place, shadows, points, met, first, count, active):
    """Writes to `active` the shapes that may stand between the sun and the points of a run of rays."""
    sx, sy, sz = place[SUN_X], place[SUN_Y], place[SUN_Z]
    ux, uz = sun_across(sx, sz)
    low_u = low_v = low_s = np.inf
    high_u = high_v = -np.inf
    for ray in range(count):
        if met[first + ray] != SKY and not (SKYLINE >= met[first + ray] > ROOM):
            x, y, z = points[0, ray], points[1, ray], points[2, ray]
            u = x * ux + z * uz
            v = -x * uz * sy + y * (uz * sx - ux * sz) + z * ux * sy
            low_u, high_u = min(low_u, u), max(high_u, u)
            low_v, high_v = min(low_v, v), max(high_v, v)
            low_s = min(low_s, x * sx + y * sy + z * sz)
    kept = 0
    for shape in range(len(shadows)):
        du = max(max(low_u - shadows[shape, 0], shadows[shape, 0] - high_u), 0.0)
        dv = max(max(low_v - shadows[shape, 1], shadows[shape, 1] - high_v), 0.0)
        if du * du + dv * dv < shadows[shape, 2] and low_s < shadows[shape, 3]:
            active[kept] = shape
            kept += 1
    return kept


@_part
def shapes_beside(shapes, points, met, floor, first, count, active):
    """Writes to `active` the shapes whose contact shadow may reach the floor points of a run of rays."""
    low_x = low_z = np.inf
    high_x = high_z = -np.inf
    for ray in range(count):
        if met[first + ray] == floor:
            low_x, high_x = min(low_x, points[0, ray]), max(high_x, points[0, ray])
            low_z, high_z = min(low_z, points[2, ray]), max(high_z, points[2, ray])
    kept = 0
    for shape in range(len(shapes)):
        dx = max(max(low_x - shapes[shape, X], shapes[shape, X] - high_x), 0.0)
        dz = max(max(low_z - shapes[shape, Z], shapes[shape, Z] - high_z), 0.0)
        bound = 2.0 * shapes[shape, RADIUS] + 0.5
        if dx * dx + dz * dz < bound * bound:
            active[kept] = shape
            kept += 1
    return kept


@_part
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


@_part
def contact(shapes, kinds, x, y, z, active, beside):
    """Ambient visibility of a ground point beside the shapes that stand close to it."""
    open_sky = 1.0
    for index in range(beside):
        shape = active[index]
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
