"""Builders of the objects a world may hold, outdoors and indoors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ucpe.synthesis.worlds.shapes import (
    Color,
    Material,
    Motion,
    Shape,
    Thing,
    arch,
    box,
    cylinder,
    ellipsoid,
    sphere,
    tapered,
)
from ucpe.synthesis.worlds.surfaces import (
    BLOCKS,
    BOOKS,
    BRICK,
    CHECKS,
    FACADE,
    FOLIAGE,
    GLOW,
    GORES,
    PAINT,
    PLAIN,
    PLANKS,
    SHINGLES,
    STRIPES,
)
from ucpe.synthesis.worlds.words import UNCOLORED, color, linear

WHITE = linear(232, 228, 218)
STONE = linear(168, 160, 148)
MORTAR = linear(196, 190, 178)
BARK = linear(104, 74, 50)
WOOD = linear(150, 104, 62)
DARK = linear(56, 58, 64)
GLASS = linear(60, 84, 112)
PINE, PINE_LIGHT = linear(32, 84, 56), linear(58, 116, 62)
LEAVES, LEAVES_LIGHT = linear(66, 128, 44), linear(128, 172, 60)

Builder = Callable[[np.random.Generator, Color], list[Shape]]


def make_thing(
    name: str,
    color_word: str | None = None,
    position: tuple[float, float] = (0.0, 0.0),
    yaw: float = 0.0,
    seed: int | np.random.Generator = 0,
    motion: Motion | None = None,
    scale: float = 1.0,
) -> Thing:
    """An object of the vocabulary at (x, z); its proportions vary with the seed."""
    if name not in BUILDERS:
        raise ValueError(f"unknown object {name!r}; choose from {', '.join(BUILDERS)}")
    if name in UNCOLORED:
        if color_word is not None:
            raise ValueError(f"a {name} has its own colour; leave color_word out instead of {color_word!r}")
        paint = WHITE
    elif color_word is None:
        raise ValueError(f"a {name} needs a colour word")
    else:
        paint = color(color_word)
    generator = np.random.default_rng(seed)
    shapes = tuple(shape.scaled(scale) for shape in BUILDERS[name](generator, paint))
    return Thing(name, color_word, shapes, position, yaw, motion)


def plain(thing: Thing) -> Thing:
    """The same object in smooth paint; only stripes, gores and checks, which are large, keep their pattern."""
    kept = (GLOW, GORES, STRIPES)
    shapes = []
    for shape in thing.shapes:
        material = shape.material
        if material.texture == CHECKS:
            material = replace(material, scale=2 * material.scale)
        elif material.texture not in kept:
            material = replace(material, texture=PAINT)
        shapes.append(replace(shape, material=material))
    return replace(thing, shapes=tuple(shapes))


def _shade(paint: Color, factor: float) -> Color:
    red, green, blue = (min(max(value * factor, 0.0), 0.95) for value in paint)
    return red, green, blue


def _mix(first: Color, second: Color, share: float) -> Color:
    red, green, blue = (a + share * (b - a) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _tower(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width = generator.uniform(2.6, 3.4)
    height = generator.uniform(6.0, 8.0)
    shift = generator.uniform(0, 9)
    body = Material(paint, GLASS, FACADE, 0.95, shift)
    trim = Material(_mix(paint, WHITE, 0.55), texture=PLAIN, shift=shift)
    roof = Material(_shade(paint, 0.45), texture=SHINGLES, scale=0.4, shift=shift)
    shapes = [
        box(width + 0.35, 0.5, width + 0.35, Material(STONE, MORTAR, BLOCKS, 0.8, shift)),
        box(width, height, width, body, (0, 0.5, 0)),
        box(width + 0.5, 0.35, width + 0.5, trim, (0, height + 0.5, 0)),
    ]
    top = tapered((width + 0.1, width + 0.1), (0.05, 0.05), generator.uniform(1.6, 2.8), roof, (0, height + 0.85, 0))
    return [*shapes, top]


def _house(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, depth = generator.uniform(4.2, 5.2), generator.uniform(3.6, 4.4)
    height, rise = generator.uniform(2.6, 3.2), generator.uniform(1.6, 2.3)
    shift = generator.uniform(0, 9)
    walls = Material(paint, GLASS, FACADE, 1.25, shift)
    roof = Material(
        linear(118, 58, 46) if paint[0] < 0.4 else linear(70, 74, 88),
        texture=SHINGLES,
        scale=0.42,
        shift=shift,
    )
    door = Material(BARK, texture=PLANKS, scale=0.2, shift=shift)
    return [
        box(width, height, depth, walls),
        tapered((width + 0.5, depth + 0.7), (width + 0.5, 0.02), rise, roof, (0, height, 0)),
        box(0.9, 1.9, 0.12, door, (0.05, 0, -depth / 2)),
        box(0.9, 1.9, 0.12, door, (0.05, 0, depth / 2)),
        box(
            0.6,
            1.5,
            0.6,
            Material(linear(150, 84, 66), MORTAR, BRICK, 0.3),
            (width / 4, height + rise * 0.45, depth / 6),
        ),
    ]


def _pine(generator: np.random.Generator, paint: Color) -> list[Shape]:
    height, radius = generator.uniform(5.5, 8.0), generator.uniform(1.5, 2.0)
    needles = Material(PINE, PINE_LIGHT, FOLIAGE, 1.0, generator.uniform(0, 9))
    shapes = [cylinder(0.22, 1.4, Material(BARK, texture=PLANKS, scale=0.15))]
    for tier in range(3):
        size = radius * (1 - 0.25 * tier)
        shapes.append(cylinder(size, 0.42 * height, needles, (0, 0.9 + 0.25 * tier * (height - 0.9), 0), top=0.02))
    return shapes


def _tree(generator: np.random.Generator, paint: Color) -> list[Shape]:
    crown, trunk = generator.uniform(3.2, 4.4), generator.uniform(1.7, 2.4)
    leaves = Material(LEAVES, LEAVES_LIGHT, FOLIAGE, 1.0, generator.uniform(0, 9))
    side = generator.uniform(0.5, 0.9)
    return [
        cylinder(0.32, trunk + 0.8, Material(BARK, texture=PLANKS, scale=0.15), top=0.2),
        ellipsoid(crown, crown * 0.85, crown, leaves, (0, trunk, 0)),
        ellipsoid(crown * 0.7, crown * 0.6, crown * 0.7, leaves, (side, trunk + crown * 0.45, 0.2)),
        ellipsoid(crown * 0.65, crown * 0.55, crown * 0.65, leaves, (-side, trunk + crown * 0.1, -0.4)),
    ]


def _column(generator: np.random.Generator, paint: Color) -> list[Shape]:
    radius, height = generator.uniform(0.65, 0.95), generator.uniform(4.0, 5.4)
    shaft = Material(paint, _shade(paint, 0.6), STRIPES, generator.uniform(1.0, 1.6), generator.uniform(0, 9))
    stone = Material(_mix(paint, WHITE, 0.6), texture=PLAIN)
    return [
        box(2.7 * radius, 0.45, 2.7 * radius, stone),
        cylinder(radius, height, shaft, (0, 0.45, 0), top=0.85 * radius),
        box(2.5 * radius, 0.4, 2.5 * radius, stone, (0, height + 0.45, 0)),
    ]


def _ball(generator: np.random.Generator, paint: Color) -> list[Shape]:
    radius = generator.uniform(1.3, 1.9)
    material = Material(paint, _mix(paint, WHITE, 0.75), CHECKS, radius * np.pi / 4, generator.uniform(0, 9))
    return [sphere(radius, material)]


def _arch(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, height = generator.uniform(4.4, 5.6), generator.uniform(4.6, 5.8)
    gap = width * generator.uniform(0.48, 0.56)
    material = Material(paint, _mix(paint, MORTAR, 0.6), BLOCKS, 0.9, generator.uniform(0, 9))
    cap = Material(_mix(paint, WHITE, 0.5))
    return [
        arch(width, height, 1.5, gap, height * 0.42, material),
        box(width + 0.5, 0.45, 2.0, cap, (0, height, 0)),
    ]


def _pyramid(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, height = generator.uniform(4.8, 6.4), generator.uniform(3.6, 5.0)
    material = Material(paint, _shade(paint, 0.55), BLOCKS, 0.8, generator.uniform(0, 9))
    return [tapered((width, width), (0.02, 0.02), height, material)]


def _lighthouse(generator: np.random.Generator, paint: Color) -> list[Shape]:
    radius, height = generator.uniform(1.25, 1.6), generator.uniform(5.6, 7.2)
    stripes = Material(paint, WHITE, STRIPES, height / 3, generator.uniform(0, 9))
    cap = Material(_shade(paint, 0.6), texture=SHINGLES, scale=0.3)
    return [
        cylinder(radius * 1.25, 0.6, Material(STONE, MORTAR, BLOCKS, 0.7)),
        cylinder(radius, height, stripes, (0, 0.6, 0), top=0.72 * radius),
        cylinder(radius * 0.98, 0.25, Material(DARK), (0, height + 0.6, 0)),
        cylinder(radius * 0.5, 1.0, Material(linear(255, 236, 160), texture=GLOW), (0, height + 0.85, 0)),
        cylinder(radius * 0.72, 0.9, cap, (0, height + 1.85, 0), top=0.02),
    ]


def _silo(generator: np.random.Generator, paint: Color) -> list[Shape]:
    radius, height = generator.uniform(1.5, 2.0), generator.uniform(4.5, 6.5)
    body = Material(paint, _shade(paint, 0.6), PLANKS, 0.5, generator.uniform(0, 9))
    return [
        cylinder(radius, height, body),
        cylinder(radius * 1.04, 0.25, Material(WHITE), (0, height * 0.33, 0)),
        cylinder(radius * 1.04, 0.25, Material(WHITE), (0, height * 0.7, 0)),
        ellipsoid(
            2 * radius,
            1.6 * radius,
            2 * radius,
            Material(_mix(paint, WHITE, 0.35)),
            (0, height - 0.8 * radius, 0),
        ),
    ]


def _cube(generator: np.random.Generator, paint: Color) -> list[Shape]:
    size = generator.uniform(2.6, 3.4)
    return [box(size, size, size, Material(paint, _mix(paint, WHITE, 0.7), CHECKS, size / 4, 0.0))]


def _balloon(generator: np.random.Generator, paint: Color) -> list[Shape]:
    size, lift = generator.uniform(3.2, 4.2), generator.uniform(1.6, 2.6)
    cloth = Material(paint, _mix(paint, WHITE, 0.8), GORES, size * np.pi / 8, generator.uniform(0, 9))
    rope = Material(BARK)
    corners = [(x, z) for x in (-0.36, 0.36) for z in (-0.36, 0.36)]
    return [
        ellipsoid(size, 1.18 * size, size, cloth, (0, lift + 1.3, 0)),
        box(0.9, 0.7, 0.9, Material(WOOD, texture=PLANKS, scale=0.15), (0, lift, 0)),
        *[cylinder(0.03, 1.5, rope, (x, lift + 0.6, z)) for x, z in corners],
    ]


def _table(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, depth, height = generator.uniform(1.6, 2.1), generator.uniform(0.9, 1.2), 0.8
    wood = Material(paint, texture=PLANKS, scale=0.22, shift=generator.uniform(0, 9))
    legs = [(x * (width / 2 - 0.1), z * (depth / 2 - 0.1)) for x in (-1, 1) for z in (-1, 1)]
    return [
        box(width, 0.1, depth, wood, (0, height - 0.1, 0)),
        *[box(0.11, height - 0.1, 0.11, wood, (x, 0, z)) for x, z in legs],
    ]


def _chair(generator: np.random.Generator, paint: Color) -> list[Shape]:
    wood = Material(paint, texture=PLANKS, scale=0.18, shift=generator.uniform(0, 9))
    legs = [(x * 0.26, z * 0.26) for x in (-1, 1) for z in (-1, 1)]
    return [
        box(0.66, 0.1, 0.66, wood, (0, 0.5, 0)),
        box(0.66, 0.75, 0.1, wood, (0, 0.6, 0.28)),
        *[box(0.09, 0.5, 0.09, wood, (x, 0, z)) for x, z in legs],
    ]


def _sofa(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width = generator.uniform(2.0, 2.7)
    cloth = Material(paint, texture=PAINT, shift=generator.uniform(0, 9))
    cushion = Material(_mix(paint, WHITE, 0.18), texture=PAINT, shift=generator.uniform(0, 9))
    return [
        box(width, 0.35, 0.95, cloth, (0, 0.08, 0)),
        box(width, 0.62, 0.26, cloth, (0, 0.36, 0.35)),
        box(0.24, 0.32, 0.95, cloth, (-width / 2 + 0.12, 0.4, 0)),
        box(0.24, 0.32, 0.95, cloth, (width / 2 - 0.12, 0.4, 0)),
        box(width / 2 - 0.3, 0.16, 0.66, cushion, (-width / 4 + 0.1, 0.43, -0.1)),
        box(width / 2 - 0.3, 0.16, 0.66, cushion, (width / 4 - 0.1, 0.43, -0.1)),
    ]


def _bookcase(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, height = generator.uniform(1.5, 2.2), generator.uniform(2.0, 2.5)
    frame = Material(paint, texture=PLANKS, scale=0.3)
    shelves = Material(paint, WHITE, BOOKS, 0.24, generator.uniform(0, 9))
    return [
        box(width - 0.1, height - 0.12, 0.32, shelves, (0, 0.06, 0)),
        box(0.08, height, 0.42, frame, (-width / 2, 0, 0)),
        box(0.08, height, 0.42, frame, (width / 2, 0, 0)),
        box(width + 0.08, 0.08, 0.42, frame, (0, height - 0.06, 0)),
    ]


def _cabinet(generator: np.random.Generator, paint: Color) -> list[Shape]:
    width, height = generator.uniform(1.2, 1.8), generator.uniform(1.0, 1.9)
    body = Material(paint, texture=PLANKS, scale=width / 2.001, shift=generator.uniform(0, 9))
    knob = Material(DARK)
    return [
        box(width, height, 0.6, body, (0, 0.1, 0)),
        box(width + 0.1, 0.07, 0.68, Material(_shade(paint, 0.7)), (0, height + 0.1, 0)),
        box(width - 0.1, 0.1, 0.5, Material(DARK)),
        sphere(0.05, knob, (-0.1, height * 0.55, -0.33)),
        sphere(0.05, knob, (0.1, height * 0.55, -0.33)),
    ]


def _lamp(generator: np.random.Generator, paint: Color) -> list[Shape]:
    height = generator.uniform(1.5, 1.9)
    shade = Material(_mix(paint, linear(255, 244, 214), 0.3), texture=GLOW)
    return [
        cylinder(0.24, 0.06, Material(DARK)),
        cylinder(0.035, height, Material(DARK)),
        cylinder(0.36, 0.5, shade, (0, height - 0.15, 0), top=0.2),
    ]


def _plant(generator: np.random.Generator, paint: Color) -> list[Shape]:
    height = generator.uniform(0.9, 1.3)
    leaves = Material(LEAVES, LEAVES_LIGHT, FOLIAGE, 0.4, generator.uniform(0, 9))
    return [
        cylinder(0.24, 0.5, Material(linear(186, 104, 70)), top=0.33),
        cylinder(0.05, 0.8, Material(BARK), (0, 0.45, 0)),
        ellipsoid(0.9, height, 0.9, leaves, (0, 0.75, 0)),
        ellipsoid(0.6, 0.55, 0.6, leaves, (0.25, 0.65, 0.1)),
    ]


BUILDERS: dict[str, Builder] = {
    build.__name__.removeprefix("_"): build
    for build in (
        *(_tower, _house, _pine, _tree, _column, _ball, _arch, _pyramid, _lighthouse, _silo, _cube, _balloon),
        *(_table, _chair, _sofa, _bookcase, _cabinet, _lamp, _plant),
    )
}
"""What builds each object, outdoors and indoors, by its name."""
