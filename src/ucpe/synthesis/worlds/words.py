"""The closed vocabulary of the worlds, and captions made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ucpe.synthesis.worlds.shapes import Color

SKIES = ("clear", "cloudy", "overcast", "sunset", "twilight")
PLAIN_SKIES = tuple(sky for sky in SKIES if sky != "cloudy")
"""Skies of the plain style, which draws no clouds."""

GROUNDS = ("grass", "sand", "snow", "earth", "paving")
SKYLINES = ("mountains", "hills", "forest", "city")
FLOORS = ("wooden", "tiled", "carpet")
OUTDOOR_OBJECTS = (
    "tower",
    "house",
    "pine",
    "tree",
    "column",
    "ball",
    "arch",
    "pyramid",
    "lighthouse",
    "silo",
    "cube",
    "balloon",
)
INDOOR_OBJECTS = ("table", "chair", "sofa", "bookcase", "cabinet", "lamp", "plant", "ball", "column", "cube")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (200, 44, 36),
    "orange": (232, 122, 28),
    "yellow": (240, 196, 40),
    "green": (44, 150, 66),
    "blue": (34, 92, 200),
    "purple": (128, 62, 172),
    "pink": (236, 124, 164),
    "white": (238, 234, 226),
    "black": (46, 46, 52),
}
"""sRGB values of the colour words."""

UNCOLORED = ("pine", "tree", "plant")
"""Objects whose name already says their colour."""

LITTLE_WORDS = "an and moving on the horizon under sky in room with floor walls outside empty plain"
"""What stands between the words above in captions."""

_COUNTS = {1: "a", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def linear(red: float, green: float, blue: float) -> Color:
    """Linear light of an sRGB colour given in 0..255."""

    def decode(value: float) -> float:
        value /= 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return decode(red), decode(green), decode(blue)


def color(word: str) -> Color:
    """Linear light of a colour word."""
    if word not in COLORS:
        raise ValueError(f"unknown colour {word!r}; choose from {', '.join(COLORS)}")
    return linear(*COLORS[word])


def caption(description: Mapping[str, Any]) -> str:
    """One sentence from a world's description."""
    things = listing([phrase(thing) for thing in description["objects"]])
    sky = description["sky"]
    article = "an" if sky[0] in "aeiou" else "a"
    if description["kind"] == "indoor":
        room = f"a room with a {description['ground']} floor and {description['walls']} walls"
        if description["ground"] == "carpet":
            room = f"a room with a carpet and {description['walls']} walls"
        return f"{things} in {room}, {article} {sky} sky outside" if things else f"{room}, {article} {sky} sky outside"
    skyline = "a city" if description["skyline"] == "city" else description["skyline"]
    ground = f"on {description['ground']}, {skyline} on the horizon, under {article} {sky} sky"
    return f"{things} {ground}" if things else f"an empty plain {ground}"


def phrase(thing: Mapping[str, Any]) -> str:
    """The words for one entry of a description's objects: "a red tower", "two pines", "a moving blue ball"."""
    count = thing["count"]
    adjectives = [word for word in ("moving" if thing["moving"] else None, thing["color"]) if word]
    noun = thing["name"] if count == 1 else plural(thing["name"])
    words = " ".join([*adjectives, noun])
    if count == 1 and words[0] in "aeiou":
        return f"an {words}"
    return f"{_COUNTS.get(count, str(count))} {words}"


def plural(noun: str) -> str:
    """Plural of a noun of the vocabulary."""
    return noun + ("es" if noun.endswith("ch") else "s")


def listing(phrases: Sequence[str]) -> str:
    """Phrases joined by commas and a final "and"."""
    if len(phrases) < 2:
        return "".join(phrases)
    return ", ".join(phrases[:-1]) + " and " + phrases[-1]


def vocabulary() -> tuple[str, ...]:
    """Every word a caption can contain, sorted."""
    words = {*SKIES, *GROUNDS, *SKYLINES, *FLOORS, *COLORS, *_COUNTS.values()}
    words |= {word for noun in (*OUTDOOR_OBJECTS, *INDOOR_OBJECTS) for word in (noun, plural(noun))}
    return tuple(sorted(words.union(LITTLE_WORDS.split())))
