"""Sky, light, ground, skyline and room of a world: what is there before any object stands in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ucpe.synthesis.worlds.intersect import PLACE_COLUMNS
from ucpe.synthesis.worlds.shading import (
    BLOCKS,
    BRICK,
    CHECKS,
    EARTH,
    GLOW,
    GORES,
    GRASS,
    LOOK_COLUMNS,
    MATERIAL_COLUMNS,
    PAINT,
    PAVING,
    PICTURE,
    PLAIN,
    PLANKS,
    SAND,
    SNOW,
)
from ucpe.synthesis.worlds.shapes import Color, Material
from ucpe.synthesis.worlds.words import COLORS, FLOORS, GROUNDS, SKIES, SKYLINES, color, linear

EYE_HEIGHT = 1.6
"""Height in metres of the world's origin above the ground."""

PROFILE_STEPS = 4096
"""Azimuth samples of a skyline."""


@dataclass(frozen=True)
class Light:
    """Colours of a kind of sky (sRGB bytes) and the strength of its lights."""

    zenith: tuple[int, int, int]
    horizon: tuple[int, int, int]
    sun: tuple[int, int, int]
    sun_power: float
    ambient: tuple[int, int, int]
    ambient_power: float
    cloud: tuple[int, int, int]
    cloud_shade: tuple[int, int, int]
    cover: tuple[float, float]
    softness: float
    elevation: tuple[float, float]  # degrees
    glow: float
    haze: float  # metres
    stars: float = 0.0
    lights_on: float = 0.0


LIGHTS: dict[str, Light] = {
    "clear": Light(
        (48, 110, 200), (172, 208, 236), (255, 240, 214), 1.15, (150, 185, 235), 0.62,
        (255, 255, 255), (206, 216, 230), (0.12, 0.2), 0.7, (28, 52), 0.55, 800.0,
    ),
    "cloudy": Light(
        (62, 122, 202), (188, 212, 232), (255, 240, 218), 1.0, (165, 190, 228), 0.66,
        (255, 255, 255), (150, 164, 186), (0.48, 0.6), 0.9, (26, 50), 0.5, 750.0,
    ),
    "overcast": Light(
        (142, 150, 160), (196, 200, 204), (236, 238, 240), 0.14, (222, 226, 232), 1.05,
        (206, 210, 215), (132, 140, 150), (0.95, 1.05), 2.6, (40, 60), 0.06, 500.0,
    ),
    "sunset": Light(
        (70, 84, 150), (250, 176, 112), (255, 168, 84), 1.05, (190, 160, 190), 0.55,
        (255, 178, 122), (150, 96, 120), (0.36, 0.5), 0.9, (9, 16), 0.95, 800.0, 0.0, 0.55,
    ),
    "twilight": Light(
        (20, 26, 66), (150, 104, 150), (206, 160, 190), 0.3, (128, 124, 190), 0.62,
        (120, 88, 140), (52, 46, 92), (0.3, 0.42), 0.9, (12, 22), 0.3, 800.0, 0.9, 1.0,
    ),
}  # fmt: skip
"""Light of every kind of sky."""

SOILS: dict[str, tuple[int, tuple[int, int, int], tuple[int, int, int]]] = {
    "grass": (GRASS, (70, 108, 40), (140, 164, 66)),
    "sand": (SAND, (206, 170, 112), (232, 206, 156)),
    "snow": (SNOW, (200, 208, 222), (146, 170, 206)),
    "earth": (EARTH, (138, 70, 44), (176, 104, 66)),
    "paving": (PAVING, (132, 134, 140), (186, 182, 172)),
}
"""Texture and the two colours of every kind of ground."""

SKYLINE_HUES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "mountains": ((52, 92, 176), (142, 66, 150), (176, 92, 50), (40, 134, 116)),
    "hills": ((76, 142, 44), (190, 158, 40), (40, 132, 124), (166, 88, 46)),
    "forest": ((30, 104, 46), (158, 124, 30), (30, 112, 112), (150, 60, 32)),
    "city": ((196, 84, 66), (76, 112, 190), (214, 174, 84), (86, 160, 128)),
}
"""Colours of the skyline at four quarters of the horizon, so that a picture tells which way it looks."""


@dataclass
class Surroundings:
    """Everything but the objects, as the ray caster and the shading read it."""

    place: np.ndarray
    look: np.ndarray
    layers: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    profiles: np.ndarray = field(default_factory=lambda: np.zeros((0, PROFILE_STEPS), np.float32))
    skyline_colors: np.ndarray = field(default_factory=lambda: np.zeros((0, PROFILE_STEPS, 3), np.float32))
    skyline_styles: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    windows: np.ndarray = field(default_factory=lambda: np.zeros((0, 5)))
    walls: np.ndarray = field(default_factory=lambda: np.zeros((6, MATERIAL_COLUMNS)))
    panels: np.ndarray = field(default_factory=lambda: np.zeros((0, 5 + MATERIAL_COLUMNS)))


def outdoors(sky: str, ground: str, skyline: str, generator: np.random.Generator) -> Surroundings:
    """An open plain under a sky, with a skyline all around."""
    _check("ground", ground, GROUNDS)
    place, look = _light(sky, generator)
    texture, soil, accent = SOILS[ground]
    look[24:27] = linear(*soil)
    look[27:30] = linear(*accent)
    look[36] = texture
    bounce = np.array(linear(*soil)) * (0.35 * look[6:9] + 0.5 * look[18:21])
    look[21:24] = 0.7 * bounce + 0.15 * look[18:21]
    surroundings = Surroundings(place, look)
    _raise_skyline(surroundings, skyline, generator)
    return surroundings


def room(
    sky: str, floor: str, walls: str, skyline: str, generator: np.random.Generator, size: tuple[float, float, float] | None = None
) -> Surroundings:
    """A room of (width, height, depth) metres with windows, pictures, a door and a lamp, seen from near its middle."""
    _check("floor", floor, FLOORS)
    surroundings = outdoors(sky, "grass", skyline, generator)
    place, look = surroundings.place, surroundings.look
    width, height, depth = size or (generator.uniform(9.5, 12.5), generator.uniform(3.3, 4.0), generator.uniform(9.5, 12.5))
    left, back = -width / 2 + generator.uniform(-0.4, 0.4), -depth / 2 + generator.uniform(-0.4, 0.4)
    place[1:7] = 1.0, left, left + width, back, back + depth, EYE_HEIGHT - height
    place[10:13] = left + width / 2, EYE_HEIGHT - height + 0.35, back + depth / 2
    paint = np.array(color(walls))
    pale = 0.72 * paint + 0.28 * np.array(linear(244, 240, 232))
    pale *= 0.72 / pale.max()
    shift = generator.uniform(0, 9)
    order = generator.permutation(4)
    rows = [Material((0, 0, 0)).row()] * 6
    tones = (1.0, 0.82, 0.92, 0.75)
    for rank, wall in enumerate(order):
        tint = tuple(float(value) for value in tones[rank] * pale)
        if rank == 3:
            rows[wall] = Material(tint, linear(214, 206, 194), BRICK, 0.6, shift).row()
        else:
            rows[wall] = Material(tint, tint, PAINT, 1.0, shift + rank).row()
    rows[4] = Material(linear(238, 234, 226), texture=PLANKS if generator.random() < 0.5 else PAINT, scale=1.2).row()
    floors = {
        "wooden": Material(linear(164, 112, 66), texture=PLANKS, scale=0.3, shift=shift),
        "tiled": Material(linear(214, 208, 198), linear(120, 126, 136), CHECKS, 0.8, shift),
        "carpet": Material(tuple(0.5 * paint + 0.5 * np.array(linear(150, 130, 120))), texture=PLAIN, shift=shift),
    }
    rows[5] = floors[floor].row()
    surroundings.walls = np.array(rows)
    surroundings.windows = _windows(place, order, generator)
    surroundings.panels = _panels(place, order, surroundings.windows, generator)
    look[18:21] *= 0.62 / max(look[18:21].max(), 1e-6)
    look[18:21] = 0.5 * look[18:21] + 0.5 * 0.42
    look[21:24] = 0.75 * look[18:21]
    look[6:9] *= 0.9
    look[30:33] = np.array(linear(255, 236, 206)) * 0.85
    return surroundings


def _check(what: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise ValueError(f"unknown {what} {word!r}; choose from {', '.join(words)}")


def _light(sky: str, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    _check("sky", sky, SKIES)
    light = LIGHTS[sky]
    azimuth = generator.uniform(-math.pi, math.pi)
    elevation = math.radians(generator.uniform(*light.elevation))
    place = np.zeros(PLACE_COLUMNS)
    place[0] = EYE_HEIGHT
    place[7:10] = (
        math.cos(elevation) * math.sin(azimuth),
        -math.sin(elevation),
        math.cos(elevation) * math.cos(azimuth),
    )
    look = np.zeros(LOOK_COLUMNS)
    sun, ambient = np.array(linear(*light.sun)), np.array(linear(*light.ambient))
    colors = (light.zenith, light.horizon)
    look[0:6] = [value for entry in colors for value in linear(*entry)]
    look[6:9] = sun * light.sun_power / max(math.sin(elevation), 0.45)
    look[9:12] = sun
    look[12:15] = linear(*light.cloud)
    look[15:18] = linear(*light.cloud_shade)
    look[18:21] = ambient * light.ambient_power
    look[33] = generator.uniform(*light.cover)
    look[34] = light.softness
    look[35] = light.haze
    look[37:39] = generator.uniform(0, 1, 2)
    look[39] = light.glow
    look[40] = light.stars
    look[41] = light.lights_on
    return place, look


def _raise_skyline(surroundings: Surroundings, skyline: str, generator: np.random.Generator) -> None:
    """Silhouettes on two upright cylinders around the world, tall enough to be seen above the objects' feet."""
    _check("skyline", skyline, SKYLINES)
    azimuth = np.linspace(-math.pi, math.pi, PROFILE_STEPS, endpoint=False)
    far = 900.0
    if skyline == "mountains":
        specs = [(320.0, 0, 0.025, 0.07, "hills"), (far, 1, 0.1, 0.3, "mountains")]
    elif skyline == "hills":
        specs = [(260.0, 0, 0.03, 0.11, "hills"), (far, 0, 0.08, 0.19, "hills")]
    elif skyline == "forest":
        specs = [(150.0, 2, 0.09, 0.17, "forest"), (far, 0, 0.1, 0.2, "hills")]
    else:
        specs = [(240.0, 3, 0.07, 0.27, "city"), (far, 0, 0.06, 0.15, "hills")]
    turn = generator.uniform(-math.pi, math.pi)
    layers, profiles, colors, styles = [], [], [], []
    for radius, style, low, high, hues in specs:
        shape = _profile(style, azimuth, generator)
        height = radius * (low + (high - low) * shape)
        layers.append((radius, float(height.max()) * (1 + 1e-6)))
        profiles.append(height)
        colors.append(_around(hues, azimuth + turn, style, shape, generator))
        styles.append((style, generator.uniform(0.5, 0.62), float(height.max())))
    surroundings.layers = np.array(layers)
    surroundings.profiles = np.array(profiles, np.float32)
    surroundings.skyline_colors = np.array(colors, np.float32)
    surroundings.skyline_styles = np.array(styles)


def _profile(style: int, azimuth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Relative heights 0..1 of a silhouette around the horizon."""
    if style == 3:
        heights = np.zeros(len(azimuth))
        angle = 0
        while angle < len(azimuth):
            width = int(generator.uniform(50, 130))
            heights[angle : angle + width] = generator.beta(1.2, 1.6)
            angle += width + int(generator.uniform(0, 14))
        return heights
    rough = {0: 3.2, 1: 1.15, 2: 1.6}[style]
    top = {0: 14, 1: 160, 2: 60}[style]
    heights = np.zeros(len(azimuth))
    for frequency in range(2 if style else 1, top):
        phase = generator.uniform(0, 2 * math.pi)
        heights += frequency**-rough * generator.uniform(0.5, 1.0) * np.cos(frequency * azimuth + phase)
    if style == 1:
        heights = -np.abs(heights - np.quantile(heights, 0.55))
    heights = (heights - heights.min()) / np.ptp(heights)
    if style == 2:
        crowns = np.zeros(len(azimuth))
        for _ in range(420):
            centre, width = generator.uniform(0, len(azimuth)), generator.uniform(9, 18)
            away = np.abs((np.arange(len(azimuth)) - centre + len(azimuth) / 2) % len(azimuth) - len(azimuth) / 2)
            crowns = np.maximum(crowns, generator.uniform(0.35, 1.0) * np.clip(1 - away / width, 0, 1))
        heights = 0.45 * heights + 0.55 * crowns
    return heights


def _around(
    hues: str, azimuth: np.ndarray, style: int, shape: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Linear colours around the horizon: four hues that blend into each other, or one per building."""
    anchors = np.array([linear(*hue) for hue in SKYLINE_HUES[hues]])
    quarter = (azimuth / (2 * math.pi) % 1.0) * 4
    index = quarter.astype(int) % 4
    weight = quarter - np.floor(quarter)
    weight = (weight * weight * (3 - 2 * weight))[:, None]
    colors = anchors[index] * (1 - weight) + anchors[(index + 1) % 4] * weight
    if style == 3:
        edges = np.flatnonzero(np.diff(shape, prepend=shape[0] - 1))
        for start, stop in zip(edges, [*edges[1:], len(shape)], strict=True):
            colors[start:stop] = colors[(start + stop) // 2 % len(shape)] * generator.uniform(0.6, 1.15)
    return colors


def _windows(place: np.ndarray, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Window openings (wall, u0, u1, top y, bottom y) in two of the four walls."""
    openings = []
    for wall in order[:2]:
        low, high = (place[4], place[5]) if wall < 2 else (place[2], place[3])
        count = int(generator.integers(2, 4))
        step = (high - low) / count
        width = min(step * 0.55, 2.2)
        for index in range(count):
            middle = low + (index + 0.5) * step
            openings.append((wall, middle - width / 2, middle + width / 2, place[6] + 0.55, place[0] - 0.95))
    return np.array(openings)


def _panels(
    place: np.ndarray, order: np.ndarray, windows: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A door, pictures and ceiling light drawn on the walls."""
    panels = []
    wood = Material(linear(122, 80, 48), texture=PLANKS, scale=0.5).row()
    for rank, wall in enumerate(order[2:]):
        low, high = (place[4], place[5]) if wall < 2 else (place[2], place[3])
        if rank == 0:
            door = generator.uniform(low + 1.2, low + 2.2)
            panels.append([wall, door - 0.55, door + 0.55, place[0] - 2.25, place[0], *wood])
            low = door + 1.0
        count = int(generator.integers(2, 4))
        for index in range(count):
            middle = low + (index + 0.5) * (high - low) / count
            width, height = generator.uniform(0.45, 0.75), generator.uniform(0.35, 0.55)
            top = -0.35 - height + generator.uniform(-0.1, 0.1)
            above, below = (tuple(generator.uniform(0.05, 0.75, 3)) for _ in range(2))
            art = Material(below, above, PICTURE, -(top + height), generator.uniform(0, 9)).row()
            panels.append([wall, middle - width, middle + width, top, top + 2 * height, *art])
    rug = Material(color(str(generator.choice(list(COLORS)))), linear(226, 214, 190), GORES, 0.5).row()
    x, z = generator.uniform(-1.5, 1.5), generator.uniform(-1.0, 2.0)
    wide, deep = generator.uniform(1.4, 2.2), generator.uniform(1.0, 1.6)
    panels.append([5, x - wide, x + wide, z - deep, z + deep, *rug])
    light = Material(linear(255, 250, 236), texture=GLOW).row()
    panels.append([4, place[10] - 0.9, place[10] + 0.9, place[12] - 0.9, place[12] + 0.9, *light])
    return np.array(panels)


__all__ = ["BLOCKS", "Color", "Surroundings", "outdoors", "room"]
