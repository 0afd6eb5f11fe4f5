"""Light: sun, sky, lamp and haze on surfaces, and the sky itself with its clouds, compiled with Numba."""

import math

from numba import njit

from ucpe.compiled import kernel
from ucpe.synthesis.worlds.intersect import (
    GROUND,
    GROUND_Y,
    INDOOR,
    LAMP_X,
    LAMP_Y,
    LAMP_Z,
    ROOM,
    ROOM_X0,
    ROOM_X1,
    ROOM_Z0,
    ROOM_Z1,
    SKY,
    SUN_X,
    SUN_Y,
    SUN_Z,
)
from ucpe.synthesis.worlds.numerics import (
    APPEARANCE,
    NOISE_SIZE,
    color_helper,
    hash_pair,
    mix,
    noise_at,
    plus,
    rotate,
    rough_log2,
    smoothstep,
    triple,
)

ZENITH, HORIZON, SUN, GLOW_COLOR, CLOUD, CLOUD_SHADE, AMBIENT_UP, AMBIENT_DOWN, LAMP = range(0, 27, 3)
COVER, SOFTNESS, HAZE, CLOUD_X, CLOUD_Z, GLOW_WIDTH, STARS, LIGHTS_ON, SUN_EAST, SUN_NORTH, LOOK_COLUMNS = range(27, 38)
"""Entries of the look vector: linear colours of sky and lights; then cloud cover and softness, haze distance in metres,
cloud pattern shift, sun glow, stars, lit windows, and the sun's bearing as a unit vector."""

EDGE_LIGHT, EDGE_SHARE = 0.006, 0.25
"""Neighbouring pixels lie on an edge if their display-linear light differs by more than this, plus this share of it."""

appearance = kernel(**APPEARANCE)
_part = njit(**APPEARANCE)


@appearance
def shade(
    directions,  # (R, 3) float32, camera frame
    origins,  # (R, 3) or (1, 3) float32, camera frame
    widths,  # (R,) or (1,) float32: angle between neighbouring rays, radians
    valid,  # (R,) bool
    pose,  # (3, 4) float64 camera to world
    place,
    look,  # (LOOK_COLUMNS,) float64
    noise,  # flattened pyramid float32
    depth,  # (R,) float32
    met,  # (R,) int16
    light,  # (stop - start, 3) float32: sun, lamp and ambient visibility, from `cast`
    albedo,  # (stop - start, 4) float32, from `paint`
    normals,  # (stop - start, 3) float32, from `paint`
    start,
    stop,
    color,  # (R, 3) float32 out: display-linear light, 0..1
):
    """Colours rays start..stop."""
    indoor = place[INDOOR] > 0.0
    for ray in range(start, stop):
        if not valid[ray]:
            color[ray, 0] = color[ray, 1] = color[ray, 2] = 0.0
            continue
        dx, dy, dz = rotate(pose, directions[ray, 0], directions[ray, 1], directions[ray, 2])
        scale = 1.0 / math.sqrt(dx * dx + dy * dy + dz * dz)
        dx *= scale
        dy *= scale
        dz *= scale
        what = met[ray]
        if what == SKY:
            width = widths[ray] if len(widths) > 1 else widths[0]
            seen = sky(look, place, noise, dx, dy, dz, width)
        else:
            index = ray - start
            seen, glow = triple(albedo[index], 0), albedo[index, 3]
            nx, ny, nz = normals[index, 0], normals[index, 1], normals[index, 2]
            sun, lamp, ambient = light[index, 0], light[index, 1], light[index, 2]
            inside = indoor and (what >= 0 or what <= ROOM)
            if glow < 2.0:
                if what >= 0 or inside:
                    row = ray if len(origins) > 1 else 0
                    ox, oy, oz = rotate(pose, origins[row, 0], origins[row, 1], origins[row, 2])
                    x = ox + pose[0, 3] + depth[ray] * dx
                    y = oy + pose[1, 3] + depth[ray] * dy
                    z = oz + pose[2, 3] + depth[ray] * dz
                    ambient *= corner_light(place, what, nx, nz, x, y, z)
                    if inside:
                        seen = lit_indoor(look, place, seen, nx, ny, nz, x, y, z, sun, lamp, ambient)
                    else:
                        seen = lit(look, place, seen, nx, ny, nz, sun, ambient)
                elif what == GROUND:
                    seen = lit(look, place, seen, nx, ny, nz, sun, ambient)
                else:
                    light_above = plus(triple(look, AMBIENT_UP), triple(look, SUN), 0.5)
                    seen = seen[0] * light_above[0], seen[1] * light_above[1], seen[2] * light_above[2]
                seen = mix(seen, (1.0, 0.62, 0.22), glow * look[LIGHTS_ON])
            if not inside:
                far = depth[ray] / look[HAZE]
                seen = mix(seen, haze(look, dx, dz), 0.6 * far / (1.0 + far))
        for channel in range(3):
            color[ray, channel] = _shoulder(seen[channel])


@appearance
def resolve(fine, fine_valid, samples, width, valid, encode, start, stop, color):
    """Averages samples x samples sub-pixels of rows start..stop and encodes them as sRGB bytes."""
    for row in range(start, stop):
        for column in range(width):
            pixel = row * width + column
            if not valid[pixel]:
                color[pixel, 0] = color[pixel, 1] = color[pixel, 2] = 0
                continue
            red = green = blue = 0.0
            count = 0
            for i in range(samples):
                base = (row * samples + i) * width * samples + column * samples
                for j in range(samples):
                    if fine_valid[base + j]:
                        red += fine[base + j, 0]
                        green += fine[base + j, 1]
                        blue += fine[base + j, 2]
                        count += 1
            weight = (len(encode) - 1) / max(count, 1)
            color[pixel, 0] = encode[int(red * weight + 0.5)]
            color[pixel, 1] = encode[int(green * weight + 0.5)]
            color[pixel, 2] = encode[int(blue * weight + 0.5)]


@appearance
def bridge(color, met, valid, height, width, todo):
    """Completes a picture of which every other pixel of every other row is known: others become the mean around them.

    The known pixels are in `color` (H * W, 3), `met` (H * W,) and `valid` (H * W,). Pixels on an edge are marked in
    `todo` (H * W,): they need a ray of their own.
    """
    for row in range(height):
        above, below = row - row % 2, row + row % 2
        for column in range(width):
            left, right = column - column % 2, column + column % 2
            pixel = row * width + column
            todo[pixel] = False
            if pixel == above * width + left or not valid[pixel]:
                continue
            if below >= height or right >= width:
                todo[pixel] = True
                continue
            a, b, c, d = above * width + left, above * width + right, below * width + left, below * width + right
            if not (met[a] == met[b] == met[c] == met[d] and valid[a] and valid[b] and valid[c] and valid[d]):
                todo[pixel] = True
                continue
            for channel in range(3):
                i, j, k, m = color[a, channel], color[b, channel], color[c, channel], color[d, channel]
                high = max(max(i, j), max(k, m))
                if high - min(min(i, j), min(k, m)) > EDGE_LIGHT + EDGE_SHARE * high:
                    todo[pixel] = True
                    break
                color[pixel, channel] = 0.25 * (i + j + k + m)


@color_helper
def _shoulder(value):
    """Soft limit that keeps values below 0.7 as they are and stays below 1."""
    if value > 0.7:
        value = 1.0 - 0.09 / (value - 0.4)
    return max(value, 0.0)


@color_helper
def corner_light(place, what, nx, nz, x, y, z):
    """Ambient light left near the ground and in the corners of a room."""
    base = place[GROUND_Y] - y
    if what >= 0:
        return 0.62 + 0.38 * smoothstep(0.0, 1.2, base)
    corner = min(
        min(x - place[ROOM_X0], place[ROOM_X1] - x) + 9.0 * abs(nx),
        min(z - place[ROOM_Z0], place[ROOM_Z1] - z) + 9.0 * abs(nz),
    )
    if abs(nx) + abs(nz) > 0.5:
        corner = min(corner, base)
    return 0.66 + 0.34 * smoothstep(0.0, 1.1, corner)


@color_helper
def lit(look, place, color, nx, ny, nz, sun, ambient):
    """Light of the sun and the sky reflected by a matt surface."""
    direct = max(nx * place[SUN_X] + ny * place[SUN_Y] + nz * place[SUN_Z], 0.0) * sun
    around = mix(triple(look, AMBIENT_DOWN), triple(look, AMBIENT_UP), 0.5 - 0.5 * ny)
    return (
        color[0] * (direct * look[SUN] + ambient * around[0]),
        color[1] * (direct * look[SUN + 1] + ambient * around[1]),
        color[2] * (direct * look[SUN + 2] + ambient * around[2]),
    )


@_part
def lit_indoor(look, place, color, nx, ny, nz, x, y, z, sun, lamp, ambient):
    """Light of the sun through the windows, of the lamp, and of the room's own brightness."""
    lx, ly, lz = place[LAMP_X] - x, place[LAMP_Y] - y, place[LAMP_Z] - z
    square = lx * lx + ly * ly + lz * lz
    cosine = max((nx * lx + ny * ly + nz * lz) / math.sqrt(square), 0.0)
    power = lamp * (0.25 + 0.75 * cosine) * cosine / (0.35 + 0.045 * square)
    red, green, blue = lit(look, place, color, nx, ny, nz, sun, ambient)
    return (
        red + power * color[0] * look[LAMP],
        green + power * color[1] * look[LAMP + 1],
        blue + power * color[2] * look[LAMP + 2],
    )


@_part
def sky(look, place, noise, dx, dy, dz, width):
    """Light of the sky: gradient, stars, sun and clouds."""
    up = max(-dy, 0.0)
    rest = 1.0 - up
    rest *= rest
    color = mix(haze(look, dx, dz), triple(look, ZENITH), 1.0 - rest * rest)
    towards = dx * place[SUN_X] + dy * place[SUN_Y] + dz * place[SUN_Z]
    height = up + 0.16
    u = dx / height
    v = dz / height
    level = rough_log2(max(width, 1e-7) * NOISE_SIZE / (height * height))
    cover = 0.0
    density = 0.0
    if look[COVER] > 0.0:
        density = noise_at(noise, 0.113 * u + look[CLOUD_X], 0.113 * v + look[CLOUD_Z], level - 3.1)
        density += 0.35 * noise_at(noise, 0.47 * u + look[CLOUD_Z], 0.47 * v + look[CLOUD_X], level - 1.1)
        edge = 1.6 - 3.2 * look[COVER]
        cover = smoothstep(edge, edge + look[SOFTNESS], density) * smoothstep(0.0, 0.16, up)
    if look[STARS] > 0.0:
        color = stars(look, color, dx, dy, dz, up, width)
    if towards > 0.0:
        p = towards * towards
        p *= p
        p *= p
        p *= p
        wide = p * p
        p = wide * wide
        p *= p
        p *= p
        narrow = p * p
        disc = 6.0 * smoothstep(0.99945, 0.99975, towards) * (1.0 - cover) * smoothstep(0.1, 0.3, look[GLOW_WIDTH])
        bright = look[GLOW_WIDTH] * (0.35 * wide + 0.8 * narrow) * (1.0 - 0.6 * cover) + disc
        color = plus(color, triple(look, GLOW_COLOR), bright)
    if cover > 0.0:
        towards_sun = 0.02 / height
        shifted_u = 0.113 * (u + 0.4 * place[SUN_X]) + look[CLOUD_X]
        shifted_v = 0.113 * (v + 0.4 * place[SUN_Z]) + look[CLOUD_Z]
        relief = density - noise_at(noise, shifted_u, shifted_v, level - 3.1 + towards_sun)
        glow = 0.5 + 0.5 * min(max(0.9 * relief + 0.25, -1.0), 1.0)
        thick = cover * (0.9 - 0.15 * rest)
        silver = max(towards, 0.0) ** 4 * 0.25
        cloud = mix(triple(look, CLOUD_SHADE), triple(look, CLOUD), glow)
        color = mix(color, plus(cloud, triple(look, GLOW_COLOR), silver), thick)
    return color


@_part
def stars(look, color, dx, dy, dz, up, width):
    """Adds point stars on a grid of cube-map cells."""
    major = max(abs(dx), abs(dy), abs(dz))
    sx, sy, sz = dx / major, dy / major, dz / major
    if major == abs(dy):
        u, v, side = sx, sz, 0
    elif major == abs(dx):
        u, v, side = sy, sz, 1 if dx > 0 else 2
    else:
        u, v, side = sx, sy, 3 if dz > 0 else 4
    u *= 30.0
    v *= 30.0
    i, j = math.floor(u), math.floor(v)
    if hash_pair(int(i) + 131 * side, int(j)) > 0.72:
        cx = i + 0.1 + 0.8 * hash_pair(int(i) + 7, int(j) + 131 * side)
        cy = j + 0.1 + 0.8 * hash_pair(int(i) + 91 * side, int(j) + 17)
        size = 0.035 + 13.0 * width
        away = math.sqrt((u - cx) ** 2 + (v - cy) ** 2) / size
        if away < 1.0:
            power = look[STARS] * (1.0 - away) * min(0.0016 / (size * size) + 0.12, 1.0) * smoothstep(0.02, 0.35, up)
            return color[0] + power, color[1] + power, color[2] + power
    return color


@color_helper
def haze(look, dx, dz):
    """Light of the air at the horizon in the direction of a ray, warmer towards the sun."""
    warm = 0.5 + 0.5 * (dx * look[SUN_EAST] + dz * look[SUN_NORTH])
    warm = 0.35 * look[GLOW_WIDTH] * warm * warm * warm
    return (
        look[HORIZON] * (1.0 - warm) + look[GLOW_COLOR] * warm,
        look[HORIZON + 1] * (1.0 - warm) + look[GLOW_COLOR + 1] * warm,
        look[HORIZON + 2] * (1.0 - warm) + look[GLOW_COLOR + 2] * warm,
    )
