"""Where sampled objects stand: around a clear middle, each seen beside the others."""

from __future__ import annotations

import math

import numpy as np

from ucpe.synthesis.worlds.intersect import ROOM_X0, ROOM_X1, ROOM_Z0, ROOM_Z1
from ucpe.synthesis.worlds.objects import make_thing
from ucpe.synthesis.worlds.shapes import Motion, Thing
from ucpe.synthesis.worlds.surroundings import Surroundings
from ucpe.synthesis.worlds.words import COLORS, INDOOR_OBJECTS, OUTDOOR_OBJECTS, UNCOLORED

CLEAR_RADIUS = 4.0
"""Metres around the origin that outdoor objects leave free, moving ones too."""

STEEPEST = 0.9
"""Largest height of an object relative to its distance, so that its top is seen by a level camera."""

INDOOR_SCALE = {"ball": 0.42, "column": 0.5, "cube": 0.36}
"""Scale of outdoor objects that also stand in rooms."""

WALL_GAP = 0.05
"""Metres between furniture and the wall behind it."""

CLASHING = {
    "grass": ("green",),
    "sand": ("yellow",),
    "snow": ("white",),
    "earth": ("red",),
    "paving": ("black",),
}
"""Colours too close to the ground's."""


def scatter(ground: str, generator: np.random.Generator, moving: bool, count: int | None) -> tuple[Thing, ...]:
    """Outdoor objects, the first ahead (+z), the others spread to both sides and around."""
    count = int(generator.integers(2, 4)) if count is None else count
    bearings = _bearings(count, generator)
    movers = set(range(int(generator.integers(1, 3)))) if moving else set()
    colors = _colors(count, generator, CLASHING[ground])
    names = _names(count, generator, OUTDOOR_OBJECTS, ("balloon", "ball", "cube"), len(movers))
    things = []
    for index, (bearing, room) in enumerate(bearings):
        name = names[index]
        motion = _outdoor_motion(name, bearing, generator) if index in movers else None
        seed = int(generator.integers(2**31))
        thing = make_thing(
            name, None if name in UNCOLORED else colors[index], yaw=_facing(bearing, generator), seed=seed
        )
        reach = thing.radius + (motion.reach if motion else 0.0)
        near = max(CLEAR_RADIUS + reach, reach / math.sin(min(room, 1.4)), thing.height / STEEPEST)
        distance = near + generator.uniform(0.4, 3.0)
        position = (distance * math.sin(bearing), distance * math.cos(bearing))
        things.append(make_thing(name, thing.color, position, thing.yaw, seed, motion))
    return tuple(things)


def furnish(
    surroundings: Surroundings, walls: str, generator: np.random.Generator, moving: bool, count: int | None
) -> tuple[Thing, ...]:
    """Furniture along the walls of a room, away from its corners."""
    count = int(generator.integers(4, 7)) if count is None else count
    bearings = _bearings(count, generator)
    movers = {0} if moving else set()
    colors = _colors(count, generator, (walls,))
    names = _names(count, generator, INDOOR_OBJECTS, ("ball",), len(movers))
    place = surroundings.place
    things = []
    for index, (bearing, _) in enumerate(bearings):
        name = names[index]
        seed = int(generator.integers(2**31))
        scale = INDOOR_SCALE.get(name, 1.2)
        color = None if name in UNCOLORED else colors[index]
        motion = (
            Motion(hop=generator.uniform(0.6, 1.1), period=generator.uniform(1.6, 2.6)) if index in movers else None
        )
        wide, deep = make_thing(name, color, seed=seed, scale=scale).half_size
        position, yaw = _along_wall(place, bearing, wide, deep)
        things.append(make_thing(name, color, position, yaw, seed, motion, scale))
    return tuple(things)


def _along_wall(place: np.ndarray, bearing: float, wide: float, deep: float) -> tuple[tuple[float, float], float]:
    """Place (x, z) and yaw in degrees of furniture with its back to the wall that a bearing meets."""
    east, north = math.sin(bearing), math.cos(bearing)
    side, end = (place[ROOM_X1] if east > 0 else -place[ROOM_X0]), (place[ROOM_Z1] if north > 0 else -place[ROOM_Z0])
    at_side = side / max(abs(east), 1e-9) < end / max(abs(north), 1e-9)
    x = side - WALL_GAP - (deep if at_side else wide)
    z = end - WALL_GAP - (wide if at_side else deep)
    if at_side:
        z = min(z, x * abs(north / east))
        yaw = 90.0 if east > 0 else -90.0
    else:
        x = min(x, z * abs(east / north))
        yaw = 0.0 if north > 0 else 180.0
    return (math.copysign(x, east), math.copysign(z, north)), yaw


def _bearings(count: int, generator: np.random.Generator) -> list[tuple[float, float]]:
    """Azimuth of each object and the half angle it may fill without hiding another, in radians."""
    if count < 0 or count > 12:
        raise ValueError(f"a world holds 0 to 12 objects, got {count}")
    if count <= 3:
        side = generator.choice((-1.0, 1.0))
        ahead = generator.uniform(-16, 16)
        spread = [ahead, ahead + side * generator.uniform(48, 78), ahead - side * generator.uniform(48, 110)]
        return [(math.radians(bearing), math.radians(24)) for bearing in spread[:count]]
    step = 360.0 / count
    start = generator.uniform(-0.25, 0.25) * step
    result = []
    for index in range(count):
        jitter = generator.uniform(-0.12, 0.12) * step if index else 0.0
        result.append((math.radians((start + index * step + jitter + 180) % 360 - 180), math.radians(0.36 * step)))
    return result


def _names(
    count: int, generator: np.random.Generator, words: tuple[str, ...], mobile: tuple[str, ...], movers: int
) -> list[str]:
    """Object names, the first `movers` of them able to move; all different but for a pair of trees now and then."""
    first = [str(word) for word in generator.permutation(mobile)][:movers]
    rest = [str(word) for word in generator.permutation(words) if word not in first]
    names = [*first, *rest, *rest][:count]
    if count >= 3 and names[-1] in UNCOLORED and generator.random() < 0.5:
        names[-2] = names[-1]
    return names


def _colors(count: int, generator: np.random.Generator, avoid: tuple[str, ...]) -> list[str]:
    """Colour words, all different while there are enough."""
    words = [word for word in COLORS if word not in avoid]
    order = [str(word) for word in generator.permutation(words)]
    return [order[index % len(order)] for index in range(count)]


def _facing(bearing: float, generator: np.random.Generator) -> float:
    """Yaw in degrees that turns an object's front roughly to the origin."""
    return math.degrees(bearing) + float(generator.uniform(-30, 30))


def _outdoor_motion(name: str, bearing: float, generator: np.random.Generator) -> Motion:
    """A motion that suits the object: balloons drift, balls hop, cubes slide and turn."""
    across = (math.cos(bearing), -math.sin(bearing))
    phase = float(generator.uniform(0, 1))
    if name == "balloon":
        drift, lift = generator.uniform(0.5, 1.0), generator.uniform(0.6, 1.2)
        return Motion((drift * across[0], lift, drift * across[1]), period=generator.uniform(4, 7), phase=phase)
    if name == "ball":
        return Motion(hop=generator.uniform(1.5, 2.5), period=generator.uniform(1.8, 3.0), phase=phase)
    slide = generator.uniform(1.0, 2.0)
    period, spin = generator.uniform(3, 6), generator.uniform(-40, 40)
    return Motion((slide * across[0], 0.0, slide * across[1]), period=period, phase=phase, spin=spin)
