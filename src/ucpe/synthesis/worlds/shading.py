"""What surfaces look like: procedural textures, sun and sky light, clouds and haze, compiled with Numba.

Textures are band-limited by the width of the ray where it meets the surface, so that they fade instead of aliasing. Every
compiled function lives in this file because Numba's cache only notices changes in the file of the outer function.
"""

import math

import numpy as np
from numba import njit

from ucpe.synthesis.worlds.intersect import (
    A0,
    A1,
    ARCH,
    B0,
    B1,
    BLOCK,
    BOTTOM,
    COS,
    ELLIPSOID,
    GROUND,
    GROUND_Y,
    HEIGHT,
    INDOOR,
    LAMP_X,
    LAMP_Y,
    LAMP_Z,
    ROOM,
    ROOM_X0,
    ROOM_X1,
    ROOM_Z0,
    ROOM_Z1,
    ROUND,
    SIDE_NEGATIVE_X,
    SIDE_NEGATIVE_Z,
    SIDE_POSITIVE_X,
    SIDE_POSITIVE_Z,
    SIN,
    SKY,
    SKYLINE,
    SUN_X,
    SUN_Y,
    SUN_Z,
    TOP,
    X,
    Y,
    Z,
)
from ucpe.synthesis.worlds.textures import NOISE_LEVELS, NOISE_SIZE

PLAIN, BRICK, BLOCKS, FACADE, PLANKS, STRIPES, GORES, FOLIAGE, SHINGLES, CHECKS, BOOKS, GLOW, PICTURE, PAINT = range(14)
"""Textures of shapes, walls and panels."""

GRASS, SAND, SNOW, EARTH, PAVING = range(5)
"""Textures of the ground."""

RED, GREEN, BLUE, ACCENT, TEXTURE, SCALE, SHIFT, MATERIAL_COLUMNS = 0, 1, 2, 3, 6, 7, 8, 9
"""Columns of a material: colour (3), accent colour (3), texture, size of its pattern in metres, pattern shift."""

ZENITH, HORIZON, SUN, GLOW_COLOR, CLOUD, CLOUD_SHADE, AMBIENT_UP, AMBIENT_DOWN, SOIL, SOIL_ACCENT, LAMP = range(0, 33, 3)
COVER, SOFTNESS, HAZE, SOIL_TEXTURE, SHIFT_X, SHIFT_Z, GLOW_WIDTH, STARS, LIGHTS_ON, LOOK_COLUMNS = range(33, 43)
"""Entries of the look vector: linear colours of sky and light, then cloud cover, haze distance in metres, ground texture."""

appearance = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "arcp", "nsz", "reassoc"})


@appearance
def shade(
    directions,  # (R, 3) float32, camera frame
    origins,  # (R, 3) or (1, 3) float32, camera frame
    widths,  # (R,) or (1,) float32: angle between neighbouring rays, radians
    pose,  # (3, 4) float64 camera to world
    shapes,
    kinds,
    place,
    materials,  # (S, MATERIAL_COLUMNS) float64
    walls,  # (6, MATERIAL_COLUMNS) float64
    panels,  # (P, 5 + MATERIAL_COLUMNS) float64: wall, u0, u1, v0, v1, material
    windows,  # (W, 5) float64
    skyline_colors,  # (L, A, 3) float32: linear colour by azimuth
    skyline_styles,  # (L, 3) float64: style, height of the snow line, greatest height
    look,  # (LOOK_COLUMNS,) float64
    noise,  # flattened pyramid float32
    depth,
    met,
    face,
    light,
    valid,
    start,
    stop,
    color,  # (R, 3) float32 out: display-linear light, 0..1
):
    """Colours rays start..stop from what `cast` found."""
    for ray in range(start, stop):
        if not valid[ray]:
            color[ray, 0] = color[ray, 1] = color[ray, 2] = 0.0
            continue
        dx, dy, dz = _rotate(pose, directions[ray, 0], directions[ray, 1], directions[ray, 2])
        scale = 1.0 / math.sqrt(dx * dx + dy * dy + dz * dz)
        dx *= scale
        dy *= scale
        dz *= scale
        width = widths[ray] if len(widths) > 1 else widths[0]
        what = met[ray]
        if what == SKY:
            red, green, blue = sky(look, place, noise, dx, dy, dz, width)
        else:
            row = ray if len(origins) > 1 else 0
            ox, oy, oz = _rotate(pose, origins[row, 0], origins[row, 1], origins[row, 2])
            distance = depth[ray]
            x = ox + pose[0, 3] + distance * dx
            y = oy + pose[1, 3] + distance * dy
            z = oz + pose[2, 3] + distance * dz
            span = max(distance * width, 1e-6)
            sun, lamp, ambient = light[ray, 0], light[ray, 1], light[ray, 2]
            if what == GROUND:
                red, green, blue = soil(look, noise, x, z, span / math.sqrt(max(dy, 1e-3)), dx, dz)
                red, green, blue = lit(look, place, red, green, blue, 0.0, -1.0, 0.0, sun, ambient)
            elif what >= 0:
                nx, ny, nz, u, v = surface_point(shapes, kinds, what, face[ray], x, y, z)
                facing = max(abs(nx * dx + ny * dy + nz * dz), 0.05)
                span /= math.sqrt(facing)
                red, green, blue, glow = texture(materials, what, noise, u, v, span, ny)
                if materials[what, TEXTURE] != GLOW:
                    base = place[GROUND_Y] - y
                    ambient *= 0.62 + 0.38 * _step(0.0, 1.2, base)
                    if place[INDOOR] > 0.0:
                        red, green, blue = lit_indoor(
                            look, place, red, green, blue, nx, ny, nz, x, y, z, sun, lamp, ambient
                        )
                    else:
                        red, green, blue = lit(look, place, red, green, blue, nx, ny, nz, sun, ambient)
                        glow *= look[LIGHTS_ON]
                        red += glow * (1.0 - red)
                        green += glow * (0.62 - green)
                        blue += glow * (0.22 - blue)
            elif what <= ROOM:
                red, green, blue = wall_color(
                    place, walls, panels, windows, look, noise, ROOM - what, x, y, z, span, sun, lamp, ambient
                )
            else:
                layer = SKYLINE - what
                red, green, blue = skyline(
                    look, place, noise, skyline_colors, skyline_styles, layer, x, y, z, span
                )
            if what >= SKYLINE - 8 and (what < 0 or place[INDOOR] == 0.0):
                far = distance / look[HAZE]
                far = 0.6 * far / (1.0 + far)
                hr, hg, hb = haze(look, place, dx, dy, dz)
                red += far * (hr - red)
                green += far * (hg - green)
                blue += far * (hb - blue)
        color[ray, 0] = _shoulder(red)
        color[ray, 1] = _shoulder(green)
        color[ray, 2] = _shoulder(blue)


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
def _rotate(pose, x, y, z):
    return (
        pose[0, 0] * x + pose[0, 1] * y + pose[0, 2] * z,
        pose[1, 0] * x + pose[1, 1] * y + pose[1, 2] * z,
        pose[2, 0] * x + pose[2, 1] * y + pose[2, 2] * z,
    )


@appearance
def _shoulder(value):
    """Soft limit that keeps values below 0.7 as they are and stays below 1."""
    if value > 0.7:
        value = 1.0 - 0.09 / (value - 0.4)
    return max(value, 0.0)


@appearance
def _step(low, high, value):
    fraction = min(max((value - low) / (high - low), 0.0), 1.0)
    return fraction * fraction * (3.0 - 2.0 * fraction)


@appearance
def _hash(a, b):
    """Deterministic 0..1 value of a pair of integers."""
    mixed = (a * 0x9E3779B1 ^ b * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return (mixed >> 16) / 65535.0


@appearance
def _bilinear(noise, level, u, v):
    size = NOISE_SIZE >> level
    offset = (NOISE_SIZE * NOISE_SIZE * 4 - size * size * 4) // 3
    x = u * size
    y = v * size
    fx = math.floor(x)
    fy = math.floor(y)
    i = int(fx) & (size - 1)
    j = int(fy) & (size - 1)
    x -= fx
    y -= fy
    right = (i + 1) & (size - 1)
    top = offset + j * size
    bottom = offset + ((j + 1) & (size - 1)) * size
    above = noise[top + i] + x * (noise[top + right] - noise[top + i])
    below = noise[bottom + i] + x * (noise[bottom + right] - noise[bottom + i])
    return above + y * (below - above)


@appearance
def noise_at(noise, u, v, level):
    """Noise at tile coordinates (u, v), filtered to mip `level`; fades to zero beyond the coarsest."""
    if level <= 0.0:
        return _bilinear(noise, 0, u, v)
    if level >= NOISE_LEVELS - 1:
        return 0.0
    whole = int(level)
    fine = _bilinear(noise, whole, u, v)
    if whole == NOISE_LEVELS - 2:
        return fine * (1.0 - (level - whole))
    return fine + (level - whole) * (_bilinear(noise, whole + 1, u, v) - fine)


@appearance
def _pulse(position, duty, span):
    """Share of a window of width `span` around `position` covered by pulses [n, n + duty]."""
    span = max(span, 1e-6)
    low = position - 0.5 * span
    high = position + 0.5 * span
    low_floor = math.floor(low)
    high_floor = math.floor(high)
    low_sum = low_floor * duty + min(low - low_floor, duty)
    high_sum = high_floor * duty + min(high - high_floor, duty)
    return (high_sum - low_sum) / span


@appearance
def sky(look, place, noise, dx, dy, dz, width):
    up = max(-dy, 0.0)
    red, green, blue = haze(look, place, dx, dy, dz)
    rest = 1.0 - up
    rest *= rest
    climb = 1.0 - rest * rest
    red += climb * (look[ZENITH] - red)
    green += climb * (look[ZENITH + 1] - green)
    blue += climb * (look[ZENITH + 2] - blue)
    towards = dx * place[SUN_X] + dy * place[SUN_Y] + dz * place[SUN_Z]
    height = up + 0.16
    u = dx / height
    v = dz / height
    level = math.log2(max(width, 1e-7) * NOISE_SIZE / (height * height))
    cover = 0.0
    density = 0.0
    if look[COVER] > 0.0:
        density = noise_at(noise, 0.113 * u + look[SHIFT_X], 0.113 * v + look[SHIFT_Z], level - 3.1)
        density += 0.35 * noise_at(noise, 0.47 * u + look[SHIFT_Z], 0.47 * v + look[SHIFT_X], level - 1.1)
        edge = 1.6 - 3.2 * look[COVER]
        cover = _step(edge, edge + look[SOFTNESS], density) * _step(0.0, 0.16, up)
    if look[STARS] > 0.0:
        red, green, blue = stars(look, red, green, blue, dx, dy, dz, up, width)
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
        disc = 6.0 * _step(0.99945, 0.99975, towards) * (1.0 - cover) * _step(0.1, 0.3, look[GLOW_WIDTH])
        bright = look[GLOW_WIDTH] * (0.35 * wide + 0.8 * narrow) * (1.0 - 0.6 * cover) + disc
        red += bright * look[GLOW_COLOR]
        green += bright * look[GLOW_COLOR + 1]
        blue += bright * look[GLOW_COLOR + 2]
    if cover > 0.0:
        towards_sun = 0.02 / height
        shifted_u = 0.113 * (u + 0.4 * place[SUN_X]) + look[SHIFT_X]
        shifted_v = 0.113 * (v + 0.4 * place[SUN_Z]) + look[SHIFT_Z]
        relief = density - noise_at(noise, shifted_u, shifted_v, level - 3.1 + towards_sun)
        glow = 0.5 + 0.5 * min(max(0.9 * relief + 0.25, -1.0), 1.0)
        thick = cover * (0.9 - 0.15 * rest)
        silver = max(towards, 0.0) ** 4 * 0.25
        for_red = look[CLOUD_SHADE] + glow * (look[CLOUD] - look[CLOUD_SHADE]) + silver * look[GLOW_COLOR]
        for_green = look[CLOUD_SHADE + 1] + glow * (look[CLOUD + 1] - look[CLOUD_SHADE + 1]) + silver * look[GLOW_COLOR + 1]
        for_blue = look[CLOUD_SHADE + 2] + glow * (look[CLOUD + 2] - look[CLOUD_SHADE + 2]) + silver * look[GLOW_COLOR + 2]
        red += thick * (for_red - red)
        green += thick * (for_green - green)
        blue += thick * (for_blue - blue)
    return red, green, blue


@appearance
def stars(look, red, green, blue, dx, dy, dz, up, width):
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
    if _hash(int(i) + 131 * side, int(j)) > 0.72:
        cx = i + 0.1 + 0.8 * _hash(int(i) + 7, int(j) + 131 * side)
        cy = j + 0.1 + 0.8 * _hash(int(i) + 91 * side, int(j) + 17)
        size = 0.035 + 13.0 * width
        away = math.sqrt((u - cx) ** 2 + (v - cy) ** 2) / size
        if away < 1.0:
            power = look[STARS] * (1.0 - away) * min(0.0016 / (size * size) + 0.12, 1.0) * _step(0.02, 0.35, up)
            return red + power, green + power, blue + power
    return red, green, blue


@appearance
def haze(look, place, dx, dy, dz):
    """Light of the air at the horizon in the direction of a ray, warmer towards the sun."""
    flat = math.sqrt(dx * dx + dz * dz) + 1e-9
    sun_flat = math.sqrt(place[SUN_X] * place[SUN_X] + place[SUN_Z] * place[SUN_Z]) + 1e-9
    towards = (dx * place[SUN_X] + dz * place[SUN_Z]) / (flat * sun_flat)
    warm = 0.5 + 0.5 * towards
    warm = 0.35 * look[GLOW_WIDTH] * warm * warm * warm * min(flat, 1.0)
    return (
        look[HORIZON] * (1.0 - warm) + look[GLOW_COLOR] * warm,
        look[HORIZON + 1] * (1.0 - warm) + look[GLOW_COLOR + 1] * warm,
        look[HORIZON + 2] * (1.0 - warm) + look[GLOW_COLOR + 2] * warm,
    )


@appearance
def soil(look, noise, x, z, span, dx, dz):
    """Ground albedo at (x, z) for a ray `span` metres wide."""
    kind = int(look[SOIL_TEXTURE])
    level = math.log2(span * NOISE_SIZE)
    macro = noise_at(noise, (0.8 * x + 0.6 * z) * 0.0213 + look[SHIFT_X], (0.8 * z - 0.6 * x) * 0.0213, level - 5.55)
    middle = noise_at(noise, (0.96 * x - 0.28 * z) * 0.17, (0.96 * z + 0.28 * x) * 0.17 + look[SHIFT_Z], level - 2.55)
    fine = noise_at(noise, x * 1.3 + look[SHIFT_Z], z * 1.3 + look[SHIFT_X], level + 0.38)
    blend, tone = 0.5, 1.0
    if kind == GRASS:
        blend = 0.5 + 0.28 * macro + 0.12 * middle
        tone = 1.0 + 0.2 * middle + 0.3 * fine
    elif kind == SAND:
        wave = 1.35 * (x * 0.9 + z * 0.44) + 0.75 * macro + 0.35 * middle
        fade = max(1.0 - 2.2 * span, 0.0)
        blend = 0.5 + 0.3 * macro + 0.1 * middle
        tone = 1.0 + 0.07 * fade * math.sin(2.0 * math.pi * wave) + 0.1 * middle + 0.1 * fine
    elif kind == SNOW:
        blend = 0.35 + 0.3 * macro + 0.25 * middle
        tone = 1.0 + 0.05 * middle + 0.07 * fine
    elif kind == EARTH:
        crack = 1.0 - min(abs(middle + 0.15 * fine) * 7.0, 1.0)
        blend = 0.5 + 0.3 * macro + 0.1 * fine
        tone = 1.0 + 0.12 * middle + 0.14 * fine - 0.4 * crack * max(1.0 - 4.0 * span, 0.0)
    else:
        size = 1.1
        u, v = x / size, z / size
        row = math.floor(v)
        u += 0.5 * (int(row) & 1)
        filtered = span / size
        gap = 1.0 - (1.0 - _pulse(u + 0.03, 0.06, filtered)) * (1.0 - _pulse(v + 0.03, 0.06, filtered))
        keep = max(1.0 - 1.5 * filtered, 0.0)
        blend = 0.5 + 0.9 * keep * (_hash(int(math.floor(u)), int(row)) - 0.5) + 0.15 * macro
        tone = (1.0 + 0.1 * middle + 0.13 * fine + 0.1 * macro) * (1.0 - 0.55 * gap)
    blend = min(max(blend, 0.0), 1.0)
    tone = max(tone, 0.15)
    return (
        tone * (look[SOIL] + blend * (look[SOIL_ACCENT] - look[SOIL])),
        tone * (look[SOIL + 1] + blend * (look[SOIL_ACCENT + 1] - look[SOIL + 1])),
        tone * (look[SOIL + 2] + blend * (look[SOIL_ACCENT + 2] - look[SOIL + 2])),
    )


@appearance
def lit(look, place, red, green, blue, nx, ny, nz, sun, ambient):
    """Light of the sun and the sky reflected by a matt surface."""
    direct = max(nx * place[SUN_X] + ny * place[SUN_Y] + nz * place[SUN_Z], 0.0) * sun
    up = 0.5 - 0.5 * ny
    return (
        red * (direct * look[SUN] + ambient * (look[AMBIENT_DOWN] + up * (look[AMBIENT_UP] - look[AMBIENT_DOWN]))),
        green * (direct * look[SUN + 1] + ambient * (look[AMBIENT_DOWN + 1] + up * (look[AMBIENT_UP + 1] - look[AMBIENT_DOWN + 1]))),
        blue * (direct * look[SUN + 2] + ambient * (look[AMBIENT_DOWN + 2] + up * (look[AMBIENT_UP + 2] - look[AMBIENT_DOWN + 2]))),
    )


@appearance
def lit_indoor(look, place, red, green, blue, nx, ny, nz, x, y, z, sun, lamp, ambient):
    """Light of the sun through the windows, of the lamp, and of the room's own brightness."""
    lx, ly, lz = place[LAMP_X] - x, place[LAMP_Y] - y, place[LAMP_Z] - z
    square = lx * lx + ly * ly + lz * lz
    cosine = max((nx * lx + ny * ly + nz * lz) / math.sqrt(square), 0.0)
    power = lamp * (0.25 + 0.75 * cosine) * cosine / (0.35 + 0.045 * square)
    red_lit, green_lit, blue_lit = lit(look, place, red, green, blue, nx, ny, nz, sun, ambient)
    return red_lit + power * red * look[LAMP], green_lit + power * green * look[LAMP + 1], blue_lit + power * blue * look[LAMP + 2]


@appearance
def wall_color(place, walls, panels, windows, look, noise, wall, x, y, z, span, sun, lamp, ambient):
    nx = ny = nz = 0.0
    if wall < 2:
        u, v, nx = z, y, -1.0 if wall == 0 else 1.0
    elif wall < 4:
        u, v, nz = x, y, -1.0 if wall == 2 else 1.0
    else:
        u, v, ny = x, z, 1.0 if wall == 4 else -1.0
    red, green, blue, _ = texture(walls, wall, noise, u, v if wall >= 4 else place[GROUND_Y] - y, span, ny)
    for panel in range(len(panels)):
        if panels[panel, 0] == wall:
            inside = min(min(u - panels[panel, 1], panels[panel, 2] - u), min(v - panels[panel, 3], panels[panel, 4] - v))
            if inside > 0.0:
                middle_u = u - 0.5 * (panels[panel, 1] + panels[panel, 2])
                red, green, blue, _ = texture(panels[:, 5:], panel, noise, middle_u, -v, span, ny)
                if inside < 0.05 and panels[panel, 5 + TEXTURE] == PICTURE:
                    red, green, blue = 0.05, 0.035, 0.025
                if panels[panel, 5 + TEXTURE] == GLOW:
                    return red, green, blue
    for window in range(len(windows)):
        if windows[window, 0] == wall:
            if (
                windows[window, 1] - 0.09 < u < windows[window, 2] + 0.09
                and windows[window, 3] - 0.09 < v < windows[window, 4] + 0.09
            ):
                red = green = blue = 0.82
    corner = min(min(x - place[ROOM_X0], place[ROOM_X1] - x) + 9.0 * abs(nx), min(z - place[ROOM_Z0], place[ROOM_Z1] - z) + 9.0 * abs(nz))
    if wall < 4:
        base = place[GROUND_Y] - y
        corner = min(corner, base)
        if base < 0.14:
            red = green = blue = 0.62
    ambient *= 0.66 + 0.34 * _step(0.0, 1.1, corner)
    return lit_indoor(look, place, red, green, blue, nx, ny, nz, x, y, z, sun, lamp, ambient)


@appearance
def skyline(look, place, noise, colors, styles, layer, x, y, z, span):
    """Colour of a distant silhouette: 0 smooth hills, 1 mountains, 2 forest, 3 city."""
    count = colors.shape[1]
    angle = math.atan2(x, z) / (2.0 * math.pi) + 0.5
    index = int(angle * count) % count
    red, green, blue = colors[layer, index, 0], colors[layer, index, 1], colors[layer, index, 2]
    style = int(styles[layer, 0])
    tall = styles[layer, 2]
    height = (place[GROUND_Y] - y) / tall
    around = angle * 2.0 * math.pi * math.sqrt(x * x + z * z) / tall
    level = math.log2(span / tall * NOISE_SIZE)
    tone, glow = 1.0, 0.0
    if style == 3:
        u, v = around * 9.0, height * 14.0
        filtered = span / tall * 11.0
        pane = _pulse(u, 0.6, filtered) * _pulse(v, 0.6, filtered)
        lamps = _hash(int(math.floor(u)), int(math.floor(v)))
        tone = 1.0 - 0.5 * pane * (1.0 if lamps > 0.25 else -0.7)
        glow = 0.6 * look[LIGHTS_ON] * pane if lamps > 0.66 else 0.0
    else:
        coarse = noise_at(noise, 0.31 * around, 0.23 * height + 0.37 * layer, level - 1.7)
        lower = noise_at(noise, 0.31 * around + 0.012 * place[SUN_X], 0.23 * height + 0.37 * layer + 0.014, level - 1.7)
        rough = noise_at(noise, 1.3 * around, 1.1 * height, level + 0.3)
        relief = coarse - lower
        tone = 1.0 + (0.5 if style == 1 else 0.25) * relief + 0.14 * rough
        if style == 1:
            snow = 0.85 * _step(0.0, 0.16, height + 0.07 * coarse + 0.04 * rough - styles[layer, 1])
            red += snow * (0.85 - red)
            green += snow * (0.88 - green)
            blue += snow * (0.93 - blue)
        elif style == 2:
            tone = 1.0 + 0.3 * rough + 0.2 * coarse
    tone = max(tone, 0.1)
    red *= tone * (look[AMBIENT_UP] + 0.5 * look[SUN])
    green *= tone * (look[AMBIENT_UP + 1] + 0.5 * look[SUN + 1])
    blue *= tone * (look[AMBIENT_UP + 2] + 0.5 * look[SUN + 2])
    return red + glow * (0.9 - red), green + glow * (0.56 - green), blue + glow * (0.2 - blue)


@appearance
def surface_point(shapes, kinds, i, side, x, y, z):
    """Outward normal in the world and texture coordinates in metres (v upward) of a point on shape `i`."""
    x -= shapes[i, X]
    y = shapes[i, Y] - y
    z -= shapes[i, Z]
    c, s = shapes[i, COS], shapes[i, SIN]
    x, z = c * x - s * z, s * x + c * z
    height = shapes[i, HEIGHT]
    nx = ny = nz = 0.0
    u, v = x, z
    if side == TOP:
        ny = 1.0
    elif side == BOTTOM:
        ny = -1.0
    elif side == SIDE_POSITIVE_X or side == SIDE_NEGATIVE_X:
        slope = (shapes[i, A0] - shapes[i, A1]) / height if kinds[i] == BLOCK else 0.0
        nx, ny = (1.0 if side == SIDE_POSITIVE_X else -1.0), slope
        u, v = z, y * math.sqrt(1.0 + slope * slope)
    elif side == SIDE_POSITIVE_Z or side == SIDE_NEGATIVE_Z:
        slope = (shapes[i, B0] - shapes[i, B1]) / height if kinds[i] == BLOCK else 0.0
        nz, ny = (1.0 if side == SIDE_POSITIVE_Z else -1.0), slope
        u, v = x, y * math.sqrt(1.0 + slope * slope)
    elif kinds[i] == ROUND:
        slope = (shapes[i, A0] - shapes[i, A1]) / height
        radius = math.sqrt(x * x + z * z) + 1e-9
        nx, ny, nz = x / radius, slope, z / radius
        u, v = math.atan2(x, z) * max(shapes[i, A0], shapes[i, A1]), y * math.sqrt(1.0 + slope * slope)
    elif kinds[i] == ELLIPSOID:
        half = 0.5 * height
        nx = x / (shapes[i, A0] * shapes[i, A0])
        ny = (y - half) / (half * half)
        nz = z / (shapes[i, B0] * shapes[i, B0])
        u = math.atan2(x, z) * shapes[i, A0]
        v = math.asin(min(max((y - half) / half, -1.0), 1.0)) * half + half * 1.5708
    elif kinds[i] == ARCH:
        gap, spring = shapes[i, A1], shapes[i, B1]
        if y <= spring:
            nx = -1.0 if x > 0.0 else 1.0
            u, v = z, y
        else:
            nx, ny = -x / gap, (spring - y) / gap
            u, v = z, spring + math.atan2(y - spring, abs(x)) * gap
    length = 1.0 / math.sqrt(nx * nx + ny * ny + nz * nz)
    nx *= length
    ny *= length
    nz *= length
    return c * nx + s * nz, -ny, c * nz - s * nx, u, v


@appearance
def texture(materials, i, noise, u, v, span, ny):
    """Albedo of material `i`, and the share of it that is lit windows, at surface coordinates (u, v) metres for a ray `span` metres wide."""
    red, green, blue = materials[i, RED], materials[i, GREEN], materials[i, BLUE]
    kind = int(materials[i, TEXTURE])
    if kind == GLOW:
        return red, green, blue, 0.0
    size = materials[i, SCALE]
    shift = materials[i, SHIFT]
    level = math.log2(span * NOISE_SIZE)
    coarse = noise_at(noise, 0.21 * u + shift, 0.21 * v + 0.7 * shift, level - 2.25)
    fine = noise_at(noise, 1.1 * u + 0.3 * shift, 1.1 * v + shift, level + 0.14)
    tone = 1.0 + 0.06 * coarse + 0.08 * fine
    blend = glow = 0.0
    filtered = span / size
    keep = max(1.0 - 1.5 * filtered, 0.0)
    if kind == BRICK or kind == BLOCKS:
        flat = 0.42 if kind == BRICK else 0.62
        row = math.floor(v / (flat * size))
        course = u / size + 0.5 * (int(row) & 1)
        gap = 0.07 if kind == BRICK else 0.04
        mortar = 1.0 - (1.0 - _pulse(course, gap, filtered)) * (1.0 - _pulse(v / (flat * size), gap / flat, filtered / flat))
        tone *= 1.0 + 0.42 * keep * (_hash(int(math.floor(course)), int(row)) - 0.5)
        blend = 0.75 * mortar
    elif kind == FACADE:
        if abs(ny) < 0.5:
            column, storey = u / size + 0.5, v / (1.25 * size)
            glass = _pulse(column - 0.22, 0.56, filtered) * _pulse(storey - 0.25, 0.5, filtered / 1.25)
            shine = _hash(int(math.floor(column)) + 57, int(math.floor(storey)))
            tone *= 1.0 - 0.3 * _pulse(storey + 0.04, 0.08, filtered / 1.25)
            frame = _pulse(column - 0.17, 0.66, filtered) * _pulse(storey - 0.2, 0.6, filtered / 1.25) - glass
            tone *= 1.0 + 0.35 * frame
            blend = glass * (0.6 + 0.4 * shine)
            if shine > 0.45:
                glow = glass * shine
    elif kind == PLANKS:
        board = u / size
        groove = _pulse(board + 0.03, 0.06, filtered)
        grain = noise_at(noise, 2.3 * u + shift, 0.16 * v + shift, level + 0.4)
        tone = (1.0 + 0.16 * grain + 0.05 * fine) * (1.0 + 0.3 * keep * (_hash(int(math.floor(board)), 3) - 0.5))
        tone *= 1.0 - 0.6 * groove
    elif kind == STRIPES:
        blend = _pulse(v / size, 0.5, filtered)
    elif kind == GORES:
        blend = _pulse(u / size, 0.5, filtered)
    elif kind == PAINT:
        tone = 1.0 + 0.025 * coarse + 0.02 * fine
    elif kind == FOLIAGE:
        leaf = noise_at(noise, 0.47 * u + shift, 0.47 * v, level - 1.09)
        tone = 1.0 + 0.28 * leaf + 0.32 * fine
        blend = min(max(0.4 + 0.3 * coarse + 0.25 * leaf, 0.0), 1.0)
    elif kind == SHINGLES:
        row = v / size
        course = u / (0.8 * size) + 0.5 * (int(math.floor(row)) & 1)
        shadow = _pulse(row, 0.16, filtered) + 0.5 * _pulse(course, 0.07, filtered)
        tone *= (1.0 - 0.42 * shadow) * (1.0 + 0.3 * keep * (_hash(int(math.floor(course)), int(math.floor(row))) - 0.5))
    elif kind == CHECKS:
        across, along = 2.0 * _pulse(u / size, 0.5, filtered) - 1.0, 2.0 * _pulse(v / size, 0.5, filtered) - 1.0
        blend = 0.5 - 0.5 * across * along
    elif kind == BOOKS:
        shelf = v / (2.2 * size)
        edge = _pulse(shelf + 0.05, 0.1, filtered / 2.2)
        book = _hash(int(math.floor(u / (0.3 * size))), int(math.floor(shelf)))
        tone *= 1.0 - 0.5 * _pulse(u / (0.3 * size), 0.12, filtered / 0.3)
        if abs(ny) < 0.5:
            spread = 0.75 * keep
            red += spread * (0.08 + 0.5 * book * book - red) * (1.0 - edge)
            green += spread * (0.06 + 0.35 * abs(math.sin(17.0 * book)) - green) * (1.0 - edge)
            blue += spread * (0.05 + 0.4 * abs(math.sin(41.0 * book)) - blue) * (1.0 - edge)
    elif kind == PICTURE:
        blend = _step(-0.2, 0.2, v - size + 0.35 * coarse + 0.12 * math.sin(5.0 * u + 9.0 * shift))
    tone = max(tone, 0.08)
    return (
        tone * (red + blend * (materials[i, ACCENT] - red)),
        tone * (green + blend * (materials[i, ACCENT + 1] - green)),
        tone * (blue + blend * (materials[i, ACCENT + 2] - blue)),
        glow,
    )
