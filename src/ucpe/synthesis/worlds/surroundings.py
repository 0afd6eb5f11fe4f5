"""Sky, light, ground, skyline and room of a world: what is there before any object stands in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ucpe.synthesis.worlds.intersect import (
    CEILING_Y,
    GROUND_Y,
    INDOOR,
    LAMP_X,
    LAMP_Z,
    PLACE_COLUMNS,
    ROOM_X0,
    ROOM_X1,
    ROOM_Z0,
    ROOM_Z1,
    SUN_X,
)
from ucpe.synthesis.worlds.shading import (
    AMBIENT_DOWN,
    AMBIENT_UP,
    CLOUD,
    CLOUD_SHADE,
    CLOUD_X,
    COVER,
    GLOW_COLOR,
    GLOW_WIDTH,
    HAZE,
    HORIZON,
    LAMP,
    LIGHTS_ON,
    LOOK_COLUMNS,
    SOFTNESS,
    STARS,
    SUN,
    SUN_EAST,
    ZENITH,
)
from ucpe.synthesis.worlds.shapes import Material, Thing, box
from ucpe.synthesis.worlds.surfaces import (
    BARE,
    BRICK,
    CHECKS,
    CITY,
    EARTH,
    FOREST,
    GLOW,
    GORES,
    GRASS,
    HILLS,
    MATERIAL_COLUMNS,
    MOUNTAINS,
    PAINT,
    PAVING,
    PICTURE,
    PLAIN,
    PLANKS,
    SAND,
    SHIFT_X,
    SNOW,
    SOIL,
    SOIL_ACCENT,
    SOIL_COLUMNS,
    SOIL_EAST,
    SOIL_TEXTURE,
    SPOT,
    TILES,
)
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
        (24, 30, 76), (156, 108, 154), (206, 160, 190), 0.36, (140, 134, 196), 0.9,
        (120, 88, 140), (52, 46, 92), (0.3, 0.42), 0.9, (12, 22), 0.3, 800.0, 0.9, 1.0,
    ),
}  # fmt: skip
"""Light of every kind of sky."""

SOILS: dict[str, tuple[int, tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]] = {
    "grass": (GRASS, (70, 108, 40), (140, 164, 66), (196, 190, 96)),
    "sand": (SAND, (206, 170, 112), (232, 206, 156), (134, 106, 78)),
    "snow": (SNOW, (216, 221, 230), (170, 188, 214), (104, 108, 122)),
    "earth": (EARTH, (138, 70, 44), (176, 104, 66), (196, 142, 104)),
    "paving": (PAVING, (132, 134, 140), (186, 182, 172), (84, 82, 80)),
}
"""Each kind of ground: its texture, its two colours, and the colour of the pebbles or tufts on it."""

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
    soil: np.ndarray
    layers: np.ndarray
    profiles: np.ndarray
    skyline_colors: np.ndarray
    skyline_styles: np.ndarray
    windows: np.ndarray = field(default_factory=lambda: np.zeros((0, 5)))
    walls: np.ndarray = field(default_factory=lambda: np.zeros((6, MATERIAL_COLUMNS)))
    panels: np.ndarray = field(default_factory=lambda: np.zeros((0, 5 + MATERIAL_COLUMNS)))
    fixtures: tuple[Thing, ...] = ()  # parts of a room that captions do not name


def outdoors(sky: str, ground: str, skyline: str, generator: np.random.Generator) -> Surroundings:
    """An open plain under a sky, with a skyline all around."""
    _check("sky", sky, SKIES)
    _check("ground", ground, GROUNDS)
    _check("skyline", skyline, SKYLINES)
    place, look = _light(LIGHTS[sky], generator)
    texture, dark, bright, spot = SOILS[ground]
    soil = np.zeros(SOIL_COLUMNS)
    soil[SOIL : SOIL + 3] = linear(*dark)
    soil[SOIL_ACCENT : SOIL_ACCENT + 3] = linear(*bright)
    soil[SPOT : SPOT + 3] = linear(*spot)
    soil[SOIL_TEXTURE] = texture
    soil[SHIFT_X : SHIFT_X + 2] = generator.uniform(0, 1, 2)
    soil[SOIL_EAST : SOIL_EAST + 2] = look[SUN_EAST : SUN_EAST + 2]
    ambient = look[AMBIENT_UP : AMBIENT_UP + 3]
    bounce = soil[SOIL : SOIL + 3] * (0.35 * look[SUN : SUN + 3] + 0.5 * ambient)
    look[AMBIENT_DOWN : AMBIENT_DOWN + 3] = 0.7 * bounce + 0.15 * ambient
    layers, profiles, colors, styles = _skyline(skyline, generator)
    return Surroundings(place, look, soil, layers, profiles, colors, styles)


def plain(around: Surroundings) -> Surroundings:
    """Outdoor surroundings without texture: large soft-edged tiles, a sky without clouds or stars, a bare skyline."""
    around.soil[SOIL_TEXTURE] = TILES
    first, second = around.soil[SOIL : SOIL + 3], around.soil[SOIL_ACCENT : SOIL_ACCENT + 3]
    (first if first.sum() < second.sum() else second)[:] *= 0.62
    around.look[COVER] = around.look[STARS] = 0.0
    around.skyline_styles[:, 0] = BARE
    return around


def room(
    sky: str,
    floor: str,
    walls: str,
    skyline: str,
    generator: np.random.Generator,
    size: tuple[float, float, float] | None = None,
) -> Surroundings:
    """A room of (width, height, depth) metres around the origin with windows, pictures, a door, beams and a lamp."""
    _check("floor", floor, FLOORS)
    around = outdoors(sky, "grass", skyline, generator)
    place, look = around.place, around.look
    width, height, depth = size or generator.uniform((10.6, 2.9, 10.6), (12.6, 3.3, 12.6))
    left, back = (-extent / 2 + generator.uniform(-0.2, 0.2) for extent in (width, depth))
    place[INDOOR] = 1.0
    place[ROOM_X0], place[ROOM_X1], place[ROOM_Z0], place[ROOM_Z1] = left, left + width, back, back + depth
    place[CEILING_Y] = EYE_HEIGHT - height
    place[LAMP_X : LAMP_X + 3] = left + width / 2, EYE_HEIGHT - height + 0.35, back + depth / 2
    order = generator.permutation(4)
    around.walls = _wall_materials(floor, walls, order, generator)
    around.windows = _windows(place, order, generator)
    around.panels = _panels(place, order, generator)
    around.fixtures = _beams(place, generator)
    ambient = look[AMBIENT_UP : AMBIENT_UP + 3]
    ambient[:] = 0.31 * ambient / ambient.max() + 0.21
    look[AMBIENT_DOWN : AMBIENT_DOWN + 3] = 0.75 * ambient
    look[SUN : SUN + 3] *= 0.9
    look[LAMP : LAMP + 3] = 0.85 * np.array(linear(255, 236, 206))
    return around


def _check(what: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise ValueError(f"unknown {what} {word!r}; choose from {', '.join(words)}")


def _light(light: Light, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The place vector with its sun, and the look vector with its colours."""
    azimuth = generator.uniform(-math.pi, math.pi)
    elevation = math.radians(generator.uniform(*light.elevation))
    place = np.zeros(PLACE_COLUMNS)
    place[GROUND_Y] = EYE_HEIGHT
    bearing = math.sin(azimuth), math.cos(azimuth)
    place[SUN_X : SUN_X + 3] = math.cos(elevation) * bearing[0], -math.sin(elevation), math.cos(elevation) * bearing[1]
    look = np.zeros(LOOK_COLUMNS)
    sun = np.array(linear(*light.sun))
    colors: dict[int, Any] = {
        ZENITH: linear(*light.zenith),
        HORIZON: linear(*light.horizon),
        SUN: sun * light.sun_power / max(math.sin(elevation), 0.45),
        GLOW_COLOR: sun,
        CLOUD: linear(*light.cloud),
        CLOUD_SHADE: linear(*light.cloud_shade),
        AMBIENT_UP: np.array(linear(*light.ambient)) * light.ambient_power,
    }
    for index, value in colors.items():
        look[index : index + 3] = value
    look[COVER], look[SOFTNESS], look[HAZE] = generator.uniform(*light.cover), light.softness, light.haze
    look[CLOUD_X : CLOUD_X + 2] = generator.uniform(0, 1, 2)
    look[GLOW_WIDTH], look[STARS], look[LIGHTS_ON] = light.glow, light.stars, light.lights_on
    look[SUN_EAST : SUN_EAST + 2] = bearing
    return place, look


SKYLINE_LAYERS: dict[str, tuple[tuple[float, int, float, float, str], ...]] = {
    "mountains": ((320.0, HILLS, 0.025, 0.07, "hills"), (900.0, MOUNTAINS, 0.1, 0.3, "mountains")),
    "hills": ((260.0, HILLS, 0.03, 0.11, "hills"), (900.0, HILLS, 0.08, 0.19, "hills")),
    "forest": ((150.0, FOREST, 0.09, 0.17, "forest"), (900.0, HILLS, 0.1, 0.2, "hills")),
    "city": ((240.0, CITY, 0.07, 0.27, "city"), (900.0, HILLS, 0.06, 0.15, "hills")),
}
"""Silhouettes on upright cylinders, near to far: radius in metres, style, lowest and highest height / radius, hues."""


def _skyline(skyline: str, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Radius and height of each layer, its profile and colours by azimuth, and its style."""
    azimuth = np.linspace(-math.pi, math.pi, PROFILE_STEPS, endpoint=False)
    turn = generator.uniform(-math.pi, math.pi)
    layers, profiles, colors, styles = [], [], [], []
    for radius, style, low, high, hues in SKYLINE_LAYERS[skyline]:
        shape = _profile(style, generator)
        height = radius * (low + (high - low) * shape)
        layers.append((radius, float(height.max()) * (1 + 1e-6)))
        profiles.append(height)
        colors.append(_around(hues, azimuth + turn, style, shape, generator))
        styles.append((style, generator.uniform(0.5, 0.62), float(height.max())))
    return np.array(layers), np.array(profiles, np.float32), np.array(colors, np.float32), np.array(styles)


def _profile(style: int, generator: np.random.Generator) -> np.ndarray:
    """Relative heights 0..1 of a silhouette around the horizon."""
    heights = np.zeros(PROFILE_STEPS)
    if style == CITY:
        angle = 0
        while angle < PROFILE_STEPS:
            width = int(generator.uniform(50, 130))
            heights[angle : angle + width] = generator.beta(1.2, 1.6)
            angle += width + int(generator.uniform(0, 14))
        return heights
    lowest, highest, fall = {HILLS: (1, 14, 3.2), MOUNTAINS: (2, 160, 1.15), FOREST: (2, 60, 1.6)}[style]
    frequency = np.arange(lowest, highest)
    strength = frequency**-fall * generator.uniform(0.5, 1.0, len(frequency))
    waves = np.zeros(PROFILE_STEPS // 2 + 1, complex)
    waves[lowest:highest] = strength * np.exp(2j * math.pi * generator.uniform(0, 1, len(frequency)))
    heights = np.fft.irfft(waves)
    if style == MOUNTAINS:
        heights = -np.abs(heights - np.quantile(heights, 0.55))
    heights = (heights - heights.min()) / np.ptp(heights)
    if style == FOREST:
        count = 420
        centre, spread = generator.uniform(0, PROFILE_STEPS, (count, 1)), generator.uniform(9, 18, (count, 1))
        steps = np.floor(centre) + np.arange(-18, 20)
        crown = generator.uniform(0.35, 1.0, (count, 1)) * np.clip(1 - np.abs(steps - centre) / spread, 0, 1)
        crowns = np.zeros(PROFILE_STEPS)
        np.maximum.at(crowns, steps.astype(int) % PROFILE_STEPS, crown)
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
    if style == CITY:
        edges = np.flatnonzero(np.diff(shape, prepend=shape[0] - 1))
        for start, stop in zip(edges, [*edges[1:], len(shape)], strict=True):
            colors[start:stop] = colors[(start + stop) // 2 % len(shape)] * generator.uniform(0.6, 1.15)
    return colors


def _wall_materials(floor: str, walls: str, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Materials (6, ...) of walls, ceiling and floor: one hue, four tones, and bricks on the last wall of `order`."""
    paint = np.array(color(walls))
    pale = 0.72 * paint + 0.28 * np.array(linear(244, 240, 232))
    pale *= 0.72 / pale.max()
    shift = generator.uniform(0, 9)
    rows: dict[int, Material] = {}
    for rank, (wall, tone) in enumerate(zip(order, (1.0, 0.82, 0.92, 0.75), strict=True)):
        red, green, blue = (float(value) for value in tone * pale)
        tint = (red, green, blue)
        brick = Material(tint, linear(214, 206, 194), BRICK, 0.6, shift)
        rows[int(wall)] = brick if rank == 3 else Material(tint, tint, PAINT, 1.0, shift + rank)
    rows[4] = Material(linear(226, 222, 212), texture=PAINT, shift=shift)
    red, green, blue = (float(value) for value in 0.5 * paint + 0.5 * np.array(linear(150, 130, 120)))
    rows[5] = {
        "wooden": Material(linear(164, 112, 66), texture=PLANKS, scale=0.3, shift=shift),
        "tiled": Material(linear(214, 208, 198), linear(120, 126, 136), CHECKS, 0.8, shift),
        "carpet": Material((red, green, blue), (0.8 * red, 0.8 * green, 0.8 * blue), CHECKS, 0.22, shift),
    }[floor]
    return np.array([rows[wall].row() for wall in range(6)])


def _wall_span(place: np.ndarray, wall: int) -> tuple[float, float]:
    return (place[ROOM_Z0], place[ROOM_Z1]) if wall < 2 else (place[ROOM_X0], place[ROOM_X1])


def _windows(place: np.ndarray, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Window openings (wall, u0, u1, top y, bottom y) in the first two walls of `order`."""
    openings = []
    for wall in order[:2]:
        low, high = _wall_span(place, wall)
        count = int(generator.integers(2, 4))
        step = (high - low) / count
        width = min(step * 0.55, 2.2)
        for index in range(count):
            middle = low + (index + 0.5) * step
            openings.append(
                (wall, middle - width / 2, middle + width / 2, place[CEILING_Y] + 0.5, place[GROUND_Y] - 0.85)
            )
    return np.array(openings)


def _panels(place: np.ndarray, order: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A door and pictures on the other two walls, a rug, and a light in the ceiling."""
    panels = []
    wood = Material(linear(122, 80, 48), texture=PLANKS, scale=0.5).row()
    for rank, wall in enumerate(order[2:]):
        low, high = _wall_span(place, wall)
        if rank == 0:
            door = generator.uniform(low + 1.2, low + 2.2)
            panels.append([wall, door - 0.55, door + 0.55, place[GROUND_Y] - 2.25, place[GROUND_Y], *wood])
            low = door + 1.0
        count = int(generator.integers(2, 4))
        for index in range(count):
            middle = low + (index + 0.5) * (high - low) / count
            width, height = generator.uniform(0.5, 0.85), generator.uniform(0.4, 0.6)
            top = -0.45 - height + generator.uniform(-0.1, 0.1)
            above, below = (tuple(generator.uniform(0.05, 0.75, 3)) for _ in range(2))
            art = Material(below, above, PICTURE, -(top + height), generator.uniform(0, 9)).row()
            panels.append([wall, middle - width, middle + width, top, top + 2 * height, *art])
    red, green, blue = color(str(generator.choice(list(COLORS))))
    rug = Material((0.6 * red + 0.08, 0.6 * green + 0.06, 0.6 * blue + 0.05), linear(196, 178, 150), GORES, 0.28).row()
    x, z = generator.uniform(-1.5, 1.5), generator.uniform(1.2, 2.6)
    wide, deep = generator.uniform(1.3, 1.9), generator.uniform(0.8, 1.2)
    panels.append([5, x - wide, x + wide, z - deep, z + deep, *rug])
    light = Material(linear(255, 250, 236), texture=GLOW).row()
    x, z = place[LAMP_X], place[LAMP_Z]
    panels.append([4, x - 0.35, x + 0.35, z - 0.35, z + 0.35, *light])
    return np.array(panels)


def _beams(place: np.ndarray, generator: np.random.Generator) -> tuple[Thing, ...]:
    """Wooden beams under the ceiling, from wall to wall."""
    wood = Material(linear(112, 76, 46), texture=PLAIN, shift=generator.uniform(0, 9))
    count = int(generator.integers(3, 5))
    depth, width = place[ROOM_Z1] - place[ROOM_Z0], place[ROOM_X1] - place[ROOM_X0]
    lift = place[GROUND_Y] - place[CEILING_Y] - 0.22
    middle = (place[ROOM_X0] + place[ROOM_X1]) / 2
    return tuple(
        Thing(
            "beam",
            None,
            (box(width, 0.22, 0.26, wood, (0, lift, 0)),),
            (middle, place[ROOM_Z0] + (i + 0.5) * depth / count),
        )
        for i in range(count)
    )
