"""Moves one after another and at once, in words: "dolly-in 0.5 with tilt-up 10, then pan-left 30, then static"."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ucpe.lenses import Lens
from ucpe.trajectories.moves import NAMED_MOVES
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles
from ucpe.trajectories.trajectory import Trajectory

THEN, WITH = re.compile(r"\s*,?\s*\bthen\b\s*,?\s*|\s*,\s*"), re.compile(r"\s+(?:with|and)\s+")
"""What stands between moves in turn, and between moves at once."""


def is_sequence(text: str) -> bool:
    """Whether a text says more than the name of a move."""
    return len(text.split()) > 1 or "," in text


def move_sequence(text: str, lens: Lens, *, frames: int = 81, **shot: Any) -> Trajectory:
    """The moves of a text in turn, each for the same share of the frames; `shot` are the first camera's options.

    A move is a name and, if wanted, its amount in degrees, near-plane depths or as a factor: "pan-left 30". Moves
    joined by `with` happen at once, along and about the axes of the camera they start from.
    """
    parts = THEN.split(text.strip())
    if not all(parts):
        raise ValueError(f"a move is missing before or after a comma or 'then' in {text!r}")
    if frames < len(parts) + 1:
        raise ValueError(f"{len(parts)} moves in turn need {len(parts) + 1} frames or more, got {frames}: {text!r}")
    ends = [round((frames - 1) * number / len(parts)) for number in range(len(parts) + 1)]
    whole: Trajectory | None = None
    for part, start, end in zip(parts, ends, ends[1:]):
        if whole is not None:
            last = whole[-1]
            angles = {name: float(getattr(last.angles, name)) for name in ("pitch", "yaw", "roll")}
            shot, lens = {**shot, **angles}, last.lens_at(0)
        made = [_named(words, lens, frames=end - start + 1, **shot) for words in WITH.split(part)]
        whole = _at_once(made) if whole is None else whole.then(_at_once(made))
    assert whole is not None
    return whole


def _named(words: str, lens: Lens, **shot: Any) -> Trajectory:
    """The move that words such as "pan-left 30" name."""
    name, *amounts = words.split()
    if name not in NAMED_MOVES:
        raise ValueError(f"no move {name!r} (in {words!r}); there are {', '.join(NAMED_MOVES)}")
    if not amounts:
        return Trajectory.move(name, lens, **shot)
    option = list(inspect.signature(getattr(Trajectory, NAMED_MOVES[name][0])).parameters)[1]
    try:
        (amount,) = map(float, amounts)
    except ValueError:
        raise ValueError(f"a move is a name and at most one number, as in 'pan-left 30', got {words!r}") from None
    if option == "shot":
        raise ValueError(f"a {name} has no amount, got {words!r}")
    return Trajectory.move(name, lens, **{option: amount}, **shot)


def _at_once(moves: list[Trajectory]) -> Trajectory:
    """Moves from one camera as one: their turns about each axis, and their ways, are added."""
    first = moves[0]
    changing = [move.lens for move in moves if move.lens.batch_shape]
    if len(changing) > 1:
        raise ValueError("only one of several moves at once can zoom")
    if len(moves) == 1:
        return first
    angles = [
        sum(getattr(move.angles, name) - getattr(first.angles, name)[0] for move in moves)
        + getattr(first.angles, name)[0]
        for name in ("pitch", "yaw", "roll")
    ]
    positions = sum((move.positions for move in moves[1:]), start=first.positions)
    return Trajectory(pose_matrix(rotation_from_angles(*angles), positions), (changing or [first.lens])[0], first.fps)
