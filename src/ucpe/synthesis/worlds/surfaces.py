"""What surfaces are made of: ground, skyline, walls and materials, compiled with Numba.

Textures are band-limited by the width of the ray where it meets the surface, so that they fade instead of aliasing.
"""

import math

from numba import njit

from ucpe.compiled import kernel
from ucpe.synthesis.worlds.intersect import GROUND, GROUND_Y, ROOM, SKY, SKYLINE, SUN_X
from ucpe.synthesis.worlds.numerics import (
    APPEARANCE,
    NOISE_SIZE,
    angle_of,
    color_helper,
    hash_pair,
    mix,
    noise_at,
    pulse,
    rotate,
    rough_log2,
    smoothstep,
    times,
    triple,
)
from ucpe.synthesis.worlds.solids import (
    A0,
    A1,
    ARCH,
    B0,
    B1,
    BLOCK,
    BOTTOM,
    COS,
    ELLIPSOID,
    HEIGHT,
    ROUND,
    SIDE_NEGATIVE_X,
    SIDE_NEGATIVE_Z,
    SIDE_POSITIVE_X,
    SIDE_POSITIVE_Z,
    SIN,
    TOP,
    X,
    Y,
    Z,
)

PLAIN, BRICK, BLOCKS, FACADE, PLANKS, STRIPES, GORES, FOLIAGE, SHINGLES, CHECKS, BOOKS, GLOW, PICTURE, PAINT = range(14)
"""Textures of shapes, walls and panels."""

GRASS, SAND, SNOW, EARTH, PAVING, TILES = range(6)
"""Textures of the ground."""

HILLS, MOUNTAINS, FOREST, CITY, BARE = range(5)
"""Textures of the skyline."""

COLOR, ACCENT, TEXTURE, SCALE, SHIFT, MATERIAL_COLUMNS = 0, 3, 6, 7, 8, 9
"""Columns of a material: colour (3), accent colour (3), texture, size of its pattern in metres, pattern shift."""

SOIL, SOIL_ACCENT, SPOT = 0, 3, 6
SOIL_TEXTURE, SHIFT_X, SHIFT_Z, SOIL_EAST, SOIL_NORTH, SOIL_COLUMNS = range(9, 15)
"""Entries of the soil vector: two linear colours, the colour of pebbles or tufts, texture, shift, sun bearing."""

TILE = 3.2
"""Metres along a side of a plain ground's tiles."""

TILE_EDGE = 0.15
"""Softness of their edges, as a share of a side."""

WINDOW_TRIM = 0.09
BASEBOARD = 0.14
PICTURE_FRAME = 0.05

surface = kernel(**APPEARANCE)
_part = njit(**APPEARANCE)


@surface
def paint(
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
    skyline_styles,  # (L, 3) float64: texture, relative height of the snow line, greatest height in metres
    ground,  # (SOIL_COLUMNS,) float64
    noise,  # flattened pyramid float32
    depth,  # (R,) float32
    met,  # (R,) int16
    face,  # (stop - start,) int8
    start,
    stop,
    albedo,  # (stop - start, 4) float32 out: linear colour, and the share that shines by itself (2: all of it)
    normals,  # (stop - start, 3) float32 out: unit, in the world
):
    """Colour and direction of the surfaces that rays start..stop met, from what `cast` found."""
    for ray in range(start, stop):
        what = met[ray]
        if what == SKY:
            continue
        dx, dy, dz = rotate(pose, directions[ray, 0], directions[ray, 1], directions[ray, 2])
        row = ray if len(origins) > 1 else 0
        ox, oy, oz = rotate(pose, origins[row, 0], origins[row, 1], origins[row, 2])
        distance = depth[ray] / math.sqrt(dx * dx + dy * dy + dz * dz)
        x = ox + pose[0, 3] + distance * dx
        y = oy + pose[1, 3] + distance * dy
        z = oz + pose[2, 3] + distance * dz
        span = max(depth[ray] * (widths[ray] if len(widths) > 1 else widths[0]), 1e-6)
        nx, ny, nz, glow = 0.0, -1.0, 0.0, 0.0
        if what == GROUND:
            color = soil(ground, noise, x, z, span / math.sqrt(max(dy, 1e-3)))
        elif what >= 0:
            nx, ny, nz, u, v = surface_point(shapes, kinds, what, face[ray - start], x, y, z)
            span /= math.sqrt(max(abs(nx * dx + ny * dy + nz * dz), 0.05))
            color, glow = texture(materials, what, noise, u, v, span, ny)
        elif what <= ROOM:
            wall = ROOM - what
            if wall < 2:
                nx, ny = -1.0 if wall == 0 else 1.0, 0.0
            elif wall < 4:
                nz, ny = -1.0 if wall == 2 else 1.0, 0.0
            elif wall == 4:
                ny = 1.0
            span /= math.sqrt(max(abs(nx * dx + ny * dy + nz * dz), 0.05))
            color, glow = wall_color(place, walls, panels, windows, noise, wall, x, y, z, span)
        else:
            layer = SKYLINE - what
            color, glow = skyline(place, noise, skyline_colors, skyline_styles, layer, x, y, z, span)
        index = ray - start
        albedo[index, 0], albedo[index, 1], albedo[index, 2] = color
        albedo[index, 3] = glow
        normals[index, 0], normals[index, 1], normals[index, 2] = nx, ny, nz


@_part
def soil(look, noise, x, z, span):
    """Ground albedo at (x, z) for a ray `span` metres wide."""
    kind = int(look[SOIL_TEXTURE])
    if kind == TILES:
        u, v = x / TILE + 64.0 * look[SHIFT_X], z / TILE + 64.0 * look[SHIFT_Z]
        blend = 0.5 + 0.36 * checker(u, v, span / TILE) + 0.14 * checker(0.37 * u, 0.37 * v, 0.37 * span / TILE)
        return mix(triple(look, SOIL), triple(look, SOIL_ACCENT), blend)
    level = rough_log2(span * NOISE_SIZE)
    macro = noise_at(noise, (0.8 * x + 0.6 * z) * 0.0213 + look[SHIFT_X], (0.8 * z - 0.6 * x) * 0.0213, level - 5.55)
    middle = noise_at(noise, (0.96 * x - 0.28 * z) * 0.17, (0.96 * z + 0.28 * x) * 0.17 + look[SHIFT_Z], level - 2.55)
    fine = noise_at(noise, x * 1.3 + look[SHIFT_Z], z * 1.3 + look[SHIFT_X], level + 0.38)
    blend, tone = 0.5, 1.0
    if kind == GRASS:
        blend = 0.45 + 0.28 * macro + 0.2 * middle
        tone = 1.0 + 0.16 * middle + 0.3 * fine
    elif kind == SAND:
        wave = 1.35 * (x * 0.9 + z * 0.44) + 0.75 * macro + 0.35 * middle
        fade = max(1.0 - 2.2 * span, 0.0)
        blend = 0.5 + 0.3 * macro + 0.1 * middle
        tone = 1.0 + 0.07 * fade * math.sin(2.0 * math.pi * wave) + 0.1 * middle + 0.1 * fine
    elif kind == SNOW:
        blend = 0.35 + 0.3 * macro + 0.3 * middle
        tone = 1.0 + 0.08 * middle + 0.09 * fine
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
        gap = 1.0 - (1.0 - pulse(u + 0.03, 0.06, filtered)) * (1.0 - pulse(v + 0.03, 0.06, filtered))
        keep = max(1.0 - 1.5 * filtered, 0.0)
        blend = 0.5 + 0.9 * keep * (hash_pair(math.floor(u), int(row)) - 0.5) + 0.15 * macro
        tone = (1.0 + 0.1 * middle + 0.13 * fine + 0.1 * macro) * (1.0 - 0.55 * gap)
    blend = min(max(blend, 0.0), 1.0)
    color = times(max(tone, 0.15), mix(triple(look, SOIL), triple(look, SOIL_ACCENT), blend))
    for size in range(2):
        cell = 0.62 if size == 0 else 1.5
        cover, chance, lean = spot(look, x, z, cell, span)
        if cover > 0.0:
            if kind == PAVING:
                cover *= 0.3
            elif kind == GRASS and size == 1:
                shaded = 1.0 - 0.45 * cover
                color = color[0] * shaded, color[1] * (1.0 - 0.35 * cover), color[2] * shaded
                continue
            bright = (0.45 + 1.0 * chance + 0.2 * fine) * (1.0 + 0.5 * lean)
            color = mix(color, times(bright, triple(look, SPOT)), cover)
    return color


@color_helper
def checker(u, v, span):
    """-1..1 on alternating unit squares with soft edges; fades to 0 as a ray of width `span` comes to cover one."""
    window = 0.5 * max(span, TILE_EDGE)
    across, along = 2.0 * pulse(0.5 * u, 0.5, window) - 1.0, 2.0 * pulse(0.5 * v, 0.5, window) - 1.0
    return across * along * (1.0 - smoothstep(0.15, 0.7, span))


@color_helper
def spot(look, x, z, cell, span):
    """Cover 0..1 by a pebble, tuft or stain, at most one in each square cell; its shade, and its lean to the sun."""
    u, v = (x + look[SHIFT_X]) / cell, (z + look[SHIFT_Z]) / cell
    i, j = math.floor(u), math.floor(v)
    chance = hash_pair(i, j)
    if chance > 0.62:
        return 0.0, 0.0, 0.0
    shade = hash_pair(i + 71, j)
    radius = (0.05 + 0.1 * shade) * (1.0 - chance)
    east = u - i - 0.25 - 0.5 * hash_pair(i, j + 37)
    north = v - j - 0.25 - 0.5 * hash_pair(i + 13, j + 5)
    lean = (east * look[SOIL_EAST] + north * look[SOIL_NORTH]) / radius
    east, north = east + 0.5 * north * (shade - 0.5), north * (0.8 + chance)
    blur = max(span / cell, 0.012)
    cover = min(max((radius - math.sqrt(east * east + north * north)) / blur + 0.5, 0.0), 1.0)
    return cover * min(1.0, 2.0 * radius / blur), shade, min(max(lean, -1.0), 1.0)


@_part
def wall_color(place, walls, panels, windows, noise, wall, x, y, z, span):
    """Colour of a wall (or floor, ceiling) of a room with what hangs on it."""
    u, v = (z, y) if wall < 2 else (x, y) if wall < 4 else (x, z)
    for window in range(len(windows)):
        if windows[window, 0] == wall:
            beside = max(windows[window, 1] - u, u - windows[window, 2])
            if max(beside, max(windows[window, 3] - v, v - windows[window, 4])) < WINDOW_TRIM:
                return (0.82, 0.82, 0.82), 0.0
    for panel in range(len(panels)):
        if panels[panel, 0] == wall:
            beside = min(u - panels[panel, 1], panels[panel, 2] - u)
            inside = min(beside, min(v - panels[panel, 3], panels[panel, 4] - v))
            if inside > 0.0:
                if inside < PICTURE_FRAME and panels[panel, 5 + TEXTURE] == PICTURE:
                    return (0.05, 0.035, 0.025), 0.0
                middle = 0.5 * (panels[panel, 1] + panels[panel, 2])
                return texture(panels[:, 5:], panel, noise, u - middle, -v, span, 0.0)
    if wall < 4:
        v = place[GROUND_Y] - y
        if v < BASEBOARD:
            return (0.62, 0.62, 0.62), 0.0
    return texture(walls, wall, noise, u, v, span, 0.0)


@_part
def skyline(place, noise, colors, styles, layer, x, y, z, span):
    """Colour of a distant silhouette."""
    count = colors.shape[1]
    angle = angle_of(x, z) / (2.0 * math.pi) + 0.5
    index = int(angle * count) % count
    color = triple(colors[layer, index], 0)
    style = int(styles[layer, 0])
    tall = styles[layer, 2]
    height = (place[GROUND_Y] - y) / tall
    around = angle * 2.0 * math.pi * math.sqrt(x * x + z * z) / tall
    tone, glow = 1.0, 0.0
    if style == CITY:
        u, v = around * 9.0, height * 14.0
        filtered = span / tall * 11.0
        pane = pulse(u, 0.6, filtered) * pulse(v, 0.6, filtered)
        lamps = hash_pair(math.floor(u), math.floor(v))
        tone = 1.0 - 0.5 * pane * (1.0 if lamps > 0.25 else -0.7)
        glow = 0.6 * pane if lamps > 0.66 else 0.0
    elif style != BARE:
        level = rough_log2(span / tall * NOISE_SIZE)
        east = 0.012 * place[SUN_X]
        coarse = noise_at(noise, 0.31 * around, 0.23 * height + 0.37 * layer, level - 1.7)
        lower = noise_at(noise, 0.31 * around + east, 0.23 * height + 0.37 * layer + 0.014, level - 1.7)
        rough = noise_at(noise, 1.3 * around, 1.1 * height, level + 0.3)
        if style == FOREST:
            tone = 1.0 + 0.3 * rough + 0.2 * coarse
        else:
            tone = 1.0 + (0.5 if style == MOUNTAINS else 0.25) * (coarse - lower) + 0.14 * rough
        if style == MOUNTAINS:
            snow = 0.85 * smoothstep(0.0, 0.16, height + 0.07 * coarse + 0.04 * rough - styles[layer, 1])
            color = mix(color, (0.85, 0.88, 0.93), snow)
    return times(max(tone, 0.1), color), glow


@color_helper
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
    elif side in (SIDE_POSITIVE_X, SIDE_NEGATIVE_X):
        slope = (shapes[i, A0] - shapes[i, A1]) / height if kinds[i] == BLOCK else 0.0
        nx, ny = (1.0 if side == SIDE_POSITIVE_X else -1.0), slope
        u, v = z, y * math.sqrt(1.0 + slope * slope)
    elif side in (SIDE_POSITIVE_Z, SIDE_NEGATIVE_Z):
        slope = (shapes[i, B0] - shapes[i, B1]) / height if kinds[i] == BLOCK else 0.0
        nz, ny = (1.0 if side == SIDE_POSITIVE_Z else -1.0), slope
        u, v = x, y * math.sqrt(1.0 + slope * slope)
    elif kinds[i] == ROUND:
        slope = (shapes[i, A0] - shapes[i, A1]) / height
        radius = math.sqrt(x * x + z * z) + 1e-9
        nx, ny, nz = x / radius, slope, z / radius
        u, v = angle_of(x, z) * max(shapes[i, A0], shapes[i, A1]), y * math.sqrt(1.0 + slope * slope)
    elif kinds[i] == ELLIPSOID:
        half = 0.5 * height
        nx = x / (shapes[i, A0] * shapes[i, A0])
        ny = (y - half) / (half * half)
        nz = z / (shapes[i, B0] * shapes[i, B0])
        u = angle_of(x, z) * shapes[i, A0]
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


@_part
def texture(materials, i, noise, u, v, span, ny):
    """Albedo of material `i` at (u, v) metres for a ray `span` metres wide, and the share that shines (lit windows)."""
    color = triple(materials[i], COLOR)
    kind = int(materials[i, TEXTURE])
    if kind == GLOW:
        return color, 2.0
    size = materials[i, SCALE]
    shift = materials[i, SHIFT]
    level = rough_log2(span * NOISE_SIZE)
    coarse = noise_at(noise, 0.21 * u + shift, 0.21 * v + 0.7 * shift, level - 2.25)
    fine = noise_at(noise, 1.1 * u + 0.3 * shift, 1.1 * v + shift, level + 0.14)
    tone = 1.0 + 0.06 * coarse + 0.08 * fine
    blend = glow = 0.0
    filtered = span / size
    keep = max(1.0 - 1.5 * filtered, 0.0)
    if kind in (BRICK, BLOCKS):
        flat = 0.42 if kind == BRICK else 0.62
        row = math.floor(v / (flat * size))
        course = u / size + 0.5 * (int(row) & 1)
        gap = 0.07 if kind == BRICK else 0.04
        mortar = 1.0 - (1.0 - pulse(course, gap, filtered)) * (
            1.0 - pulse(v / (flat * size), gap / flat, filtered / flat)
        )
        tone *= 1.0 + 0.42 * keep * (hash_pair(math.floor(course), int(row)) - 0.5)
        blend = 0.75 * mortar
    elif kind == FACADE:
        if abs(ny) < 0.5:
            column, storey = u / size + 0.5, v / (1.25 * size)
            glass = pulse(column - 0.22, 0.56, filtered) * pulse(storey - 0.25, 0.5, filtered / 1.25)
            shine = hash_pair(math.floor(column) + 57, math.floor(storey))
            tone *= 1.0 - 0.3 * pulse(storey + 0.04, 0.08, filtered / 1.25)
            frame = pulse(column - 0.17, 0.66, filtered) * pulse(storey - 0.2, 0.6, filtered / 1.25) - glass
            tone *= 1.0 + 0.35 * frame
            blend = glass * (0.6 + 0.4 * shine)
            if shine > 0.45:
                glow = glass * shine
    elif kind == PLANKS:
        board = u / size
        groove = pulse(board + 0.03, 0.06, filtered)
        grain = noise_at(noise, 2.3 * u + shift, 0.16 * v + shift, level + 0.4)
        tone = (1.0 + 0.16 * grain + 0.05 * fine) * (1.0 + 0.3 * keep * (hash_pair(math.floor(board), 3) - 0.5))
        tone *= 1.0 - 0.6 * groove
    elif kind == STRIPES:
        blend = pulse(v / size, 0.5, filtered)
    elif kind == GORES:
        blend = pulse(u / size, 0.5, filtered)
    elif kind == PAINT:
        tone = 1.0 + 0.025 * coarse + 0.02 * fine
    elif kind == FOLIAGE:
        leaf = noise_at(noise, 0.47 * u + shift, 0.47 * v, level - 1.09)
        clump = smoothstep(-0.5, 0.5, leaf + 0.4 * fine)
        tone = 0.62 + 0.55 * clump + 0.2 * fine
        blend = min(max(0.6 * clump + 0.25 * coarse, 0.0), 1.0)
    elif kind == SHINGLES:
        row = v / size
        course = u / (0.8 * size) + 0.5 * (math.floor(row) & 1)
        shadow = pulse(row, 0.16, filtered) + 0.5 * pulse(course, 0.07, filtered)
        tone *= (1.0 - 0.42 * shadow) * (1.0 + 0.3 * keep * (hash_pair(math.floor(course), math.floor(row)) - 0.5))
    elif kind == CHECKS:
        across, along = 2.0 * pulse(u / size, 0.5, filtered) - 1.0, 2.0 * pulse(v / size, 0.5, filtered) - 1.0
        blend = 0.5 - 0.5 * across * along
    elif kind == BOOKS:
        shelf = v / (2.2 * size)
        edge = pulse(shelf + 0.05, 0.1, filtered / 2.2)
        book = hash_pair(math.floor(u / (0.3 * size)), math.floor(shelf))
        tone *= 1.0 - 0.5 * pulse(u / (0.3 * size), 0.12, filtered / 0.3)
        if abs(ny) < 0.5:
            spread = 0.75 * keep
            red, green, blue = color
            red += spread * (0.08 + 0.5 * book * book - red) * (1.0 - edge)
            green += spread * (0.06 + 0.35 * abs(math.sin(17.0 * book)) - green) * (1.0 - edge)
            blue += spread * (0.05 + 0.4 * abs(math.sin(41.0 * book)) - blue) * (1.0 - edge)
            color = red, green, blue
    elif kind == PICTURE:
        blend = smoothstep(-0.2, 0.2, v - size + 0.35 * coarse + 0.12 * math.sin(5.0 * u + 9.0 * shift))
    return times(max(tone, 0.08), mix(color, triple(materials[i], ACCENT), blend)), glow
