"""Solid shapes, what they are made of, the objects built from them, and how objects move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ucpe.synthesis.worlds.solids import ARCH, BLOCK, ELLIPSOID, ROUND, SHAPE_COLUMNS
from ucpe.synthesis.worlds.surfaces import MATERIAL_COLUMNS, PLAIN

Offset = tuple[float, float, float]
"""x, height of the base above the ground, and z, in metres."""

Color = tuple[float, float, float]
"""Linear-light red, green, blue, 0..1."""


@dataclass(frozen=True)
class Material:
    """Colour, accent colour (mortar, glass, second stripe), texture and the size of its pattern in metres."""

    color: Color
    accent: Color = (0.5, 0.5, 0.5)
    texture: int = PLAIN
    scale: float = 1.0
    shift: float = 0.0

    def row(self) -> list[float]:
        """The material as the shading code reads it."""
        row = [*self.color, *self.accent, float(self.texture), self.scale, self.shift]
        assert len(row) == MATERIAL_COLUMNS
        return row


@dataclass(frozen=True)
class Shape:
    """A convex solid (or an arch) standing upright; sizes in metres, positions relative to its object."""

    kind: int
    height: float
    bottom: tuple[float, float]  # half width and half depth at the base
    top: tuple[float, float]  # the same at the top; an arch: half width of the passage, height of its walls
    material: Material
    offset: Offset = (0.0, 0.0, 0.0)

    def scaled(self, factor: float) -> Shape:
        """The same shape, larger or smaller about the foot of its object."""
        (a0, b0), (a1, b1), (x, up, z) = self.bottom, self.top, self.offset
        return replace(
            self,
            height=self.height * factor,
            bottom=(a0 * factor, b0 * factor),
            top=(a1 * factor, b1 * factor),
            offset=(x * factor, up * factor, z * factor),
            material=replace(self.material, scale=self.material.scale * factor),
        )

    @property
    def reach(self) -> float:
        """Horizontal radius around its own axis that holds the shape."""
        if self.kind == BLOCK:
            return math.hypot(max(self.bottom[0], self.top[0]), max(self.bottom[1], self.top[1]))
        if self.kind == ROUND:
            return max(self.bottom[0], self.top[0])
        return math.hypot(*self.bottom) if self.kind == ARCH else max(self.bottom)


def box(width: float, height: float, depth: float, material: Material, offset: Offset = (0.0, 0.0, 0.0)) -> Shape:
    """A box by its full width (x), height and depth (z)."""
    half = (width / 2, depth / 2)
    return Shape(BLOCK, height, half, half, material, offset)


def tapered(
    bottom: tuple[float, float],
    top: tuple[float, float],
    height: float,
    material: Material,
    offset: Offset = (0.0, 0.0, 0.0),
) -> Shape:
    """A box whose full width and depth change linearly from bottom to top: pyramids, gable roofs, obelisks."""
    halves = (bottom[0] / 2, bottom[1] / 2), (top[0] / 2, top[1] / 2)
    return Shape(BLOCK, height, *halves, material, offset)


def cylinder(
    radius: float, height: float, material: Material, offset: Offset = (0.0, 0.0, 0.0), top: float | None = None
) -> Shape:
    """An upright cylinder; another `top` radius makes it a cone (0) or a frustum."""
    top = radius if top is None else top
    return Shape(ROUND, height, (radius, radius), (top, top), material, offset)


def ellipsoid(width: float, height: float, depth: float, material: Material, offset: Offset = (0.0, 0.0, 0.0)) -> Shape:
    """An ellipsoid by its full width, height and depth, resting on its lowest point."""
    half = (width / 2, depth / 2)
    return Shape(ELLIPSOID, height, half, half, material, offset)


def sphere(radius: float, material: Material, offset: Offset = (0.0, 0.0, 0.0)) -> Shape:
    """A sphere resting on its lowest point."""
    return ellipsoid(2 * radius, 2 * radius, 2 * radius, material, offset)


def arch(width: float, height: float, depth: float, gap: float, spring: float, material: Material) -> Shape:
    """A box with a passage along z, `gap` wide, straight up to `spring` and closed by a half circle."""
    if not (0 < gap < width and spring > 0 and spring + gap / 2 < height):
        raise ValueError(
            f"the passage (gap {gap}, spring {spring}) does not fit in an arch of width {width}, height {height}"
        )
    return Shape(ARCH, height, (width / 2, depth / 2), (gap / 2, spring), material)


@dataclass(frozen=True)
class Motion:
    """Periodic motion of an object: swaying along a vector, hopping, and turning about its own axis."""

    sway: tuple[float, float, float] = (0.0, 0.0, 0.0)  # metres: x, up, z
    hop: float = 0.0  # metres
    period: float = 4.0  # seconds
    phase: float = 0.0  # turns
    spin: float = 0.0  # degrees per second

    @property
    def reach(self) -> float:
        """Greatest horizontal distance from the resting place, metres."""
        return math.hypot(self.sway[0], self.sway[2])

    def at(self, time: float) -> tuple[float, float, float, float]:
        """Offset (x, up, z) in metres and turn in degrees at a time in seconds."""
        wave = math.sin(2 * math.pi * (time / self.period + self.phase))
        x, up, z = (wave * amount for amount in self.sway)
        return x, up + self.hop * abs(wave), z, self.spin * time


@dataclass(frozen=True)
class Thing:
    """A named object of a world: shapes that stand and move together."""

    name: str
    color: str | None  # colour word; None where the name says it (a pine)
    shapes: tuple[Shape, ...]
    position: tuple[float, float] = (0.0, 0.0)  # x, z
    yaw: float = 0.0  # degrees
    motion: Motion | None = None

    @property
    def radius(self) -> float:
        """Horizontal radius in metres around its position that holds it, at rest."""
        return max(math.hypot(shape.offset[0], shape.offset[2]) + shape.reach for shape in self.shapes)

    @property
    def half_size(self) -> tuple[float, float]:
        """Half width and half depth in metres around its position, before it is turned."""
        wide = max(abs(shape.offset[0]) + max(shape.bottom[0], shape.top[0]) for shape in self.shapes)
        deep = max(abs(shape.offset[2]) + max(shape.bottom[1], shape.top[1]) for shape in self.shapes)
        return wide, deep

    @property
    def height(self) -> float:
        """Height of its highest point above the ground, at rest."""
        return max(shape.offset[1] + shape.height for shape in self.shapes)


class Packed(NamedTuple):
    """Shapes of many things at one moment, as the ray caster reads them."""

    shapes: np.ndarray  # (S, SHAPE_COLUMNS)
    kinds: np.ndarray  # (S,) int64
    materials: np.ndarray  # (S, MATERIAL_COLUMNS)
    owners: np.ndarray  # (S,) int16, the index of the thing


def pack(things: Sequence[Thing], ground: float, time: float = 0.0) -> Packed:
    """Tables of all shapes of `things` at `time` seconds, standing on the plane y = ground."""
    shapes, kinds, materials, owners = [], [], [], []
    for owner, thing in enumerate(things):
        x, up, z, turn = thing.motion.at(time) if thing.motion else (0.0, 0.0, 0.0, 0.0)
        yaw = math.radians(thing.yaw + turn)
        cosine, sine = math.cos(yaw), math.sin(yaw)
        for shape in thing.shapes:
            side, lift, ahead = shape.offset
            base = (
                thing.position[0] + x + cosine * side + sine * ahead,
                ground - up - lift,
                thing.position[1] + z + cosine * ahead - sine * side,
            )
            sizes = (shape.bottom[0], shape.top[0], shape.bottom[1], shape.top[1])
            centre = (base[0], base[1] - shape.height / 2, base[2])
            beyond = max if shape.kind == ELLIPSOID else math.hypot
            radius = beyond(shape.reach, shape.height / 2)
            shapes.append([*base, cosine, sine, shape.height, *sizes, *centre, radius * (1 + 1e-9)])
            kinds.append(shape.kind)
            materials.append(shape.material.row())
            owners.append(owner)
    return Packed(
        np.array(shapes, float).reshape(-1, SHAPE_COLUMNS),
        np.array(kinds, np.int64),
        np.array(materials, float).reshape(-1, MATERIAL_COLUMNS),
        np.array(owners, np.int16),
    )
