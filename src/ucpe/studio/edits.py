"""Every edit of a shot: a pure function from a shot to the next one. A change that makes no camera is a ValueError."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch

from ucpe.lenses import Lens, fit_image
from ucpe.studio.shot import Key, Shot
from ucpe.trajectories import Trajectory, find_keyframes
from ucpe.trajectories.moves import zoom_lens

MOVE_TOLERANCE = 1e-3
"""How near, in near-plane depths (and tenths of a degree), the keyframes of an inserted move come to it."""


def view_at(shot: Shot, frame: int) -> Key:
    """The camera of a frame as a keyframe, which need not be one of the shot's."""
    index = shot.key_at(frame)
    if index is not None:
        return shot.keys[index]
    before = [key for key in shot.keys if key.frame < frame] or shot.keys[:1]
    pitch, yaw, roll = (float(angle) for angle in shot.camera[frame].angles)
    x, y, z = shot.camera.positions[frame].tolist()
    yaw += 360 * round((before[-1].yaw - yaw) / 360)
    return Key(float(frame), shot.camera.lens_at(frame).to_dict(), (x, y, z), pitch, yaw, roll, before[-1].easing)


def put_key(shot: Shot, key: Key) -> Shot:
    """Add a keyframe, in place of the one at its frame if there is one."""
    index = shot.key_at(key.frame)
    return _with_keys(shot, [*(own for place, own in enumerate(shot.keys) if place != index), key])


def change_key(shot: Shot, index: int, **changes: Any) -> Shot:
    """Change numbers or easing of a keyframe."""
    changed = replace(shot.keys[index], **changes)
    return replace(shot, keys=(*shot.keys[:index], changed, *shot.keys[index + 1 :]))


def retime_key(shot: Shot, index: int, frame: float) -> Shot:
    """Move a keyframe in time, at most up to a frame before and after its neighbours."""
    low = shot.keys[index - 1].frame + 1 if index else 0
    high = shot.keys[index + 1].frame - 1 if index + 1 < len(shot.keys) else shot.last_frame
    return change_key(shot, index, frame=float(min(max(round(frame), math.ceil(low)), math.floor(high))))


def delete_key(shot: Shot, index: int) -> Shot:
    """Remove a keyframe; the last one stays."""
    if len(shot.keys) == 1:
        raise ValueError("a path needs at least one keyframe")
    return _with_keys(shot, [key for place, key in enumerate(shot.keys) if place != index])


def fitted(lens: Lens, shot: Shot) -> Lens:
    """A lens for pictures of the shot's shape; a warning says what is cut off the image that it was calibrated for."""
    lens, note = fit_image(lens, shot.height, shot.width)
    if note:
        warnings.warn(note)
    return lens


def set_lens(shot: Shot, lens: Lens, index: int | None = None) -> Shot:
    """Put another lens on the whole path, or on one keyframe; a keyframe of another model changes all of them."""
    plain = lens.to_dict()
    one_model = {_shape(plain)} == {_shape(key.lens) for key in shot.keys}
    if index is not None and one_model:
        return change_key(shot, index, lens=plain)
    return _with_keys(shot, [replace(key, lens=plain) for key in shot.keys])


def set_lens_parameter(shot: Shot, name: str, value: float, index: int | None = None) -> Shot:
    """Change one parameter of the lens on the whole path, or at one keyframe."""
    keys = list(shot.keys)
    for place in range(len(keys)) if index is None else [index]:
        keys[place] = replace(keys[place], lens={**keys[place].lens, name: float(value)})
    return _with_keys(shot, keys)


def zoomed(view: Key, factor: float) -> Key:
    """The camera with its focal length multiplied by a factor."""
    lens = zoom_lens(view.optics(), torch.tensor([factor], dtype=torch.float64))[0]
    return replace(view, lens=lens.to_dict())


def turned(view: Key, pitch: float = 0.0, yaw: float = 0.0, roll: float = 0.0) -> Key:
    """The camera turned by angles in degrees; the pitch stays within straight up and straight down."""
    pitch = min(max(view.pitch + pitch, -90.0), 90.0)
    return replace(view, pitch=pitch, yaw=view.yaw + yaw, roll=(view.roll + roll + 180) % 360 - 180)


def walked(view: Key, right: float = 0.0, up: float = 0.0, forward: float = 0.0) -> Key:
    """The camera moved along the ground in the direction of its heading, and up, in near-plane depths."""
    heading = math.radians(view.yaw)
    x, y, z = view.position
    moved = (
        x + right * math.cos(heading) + forward * math.sin(heading),
        y - up,
        z - right * math.sin(heading) + forward * math.cos(heading),
    )
    return replace(view, position=moved)


def insert_move(shot: Shot, move: str, frame: int = 0, **amounts: float) -> Shot:
    """A move of `Trajectory` from the camera at a frame to the end, in place of the keyframes after that frame."""
    start, count = view_at(shot, frame), shot.frames - frame
    if count < 2:
        raise ValueError("there is no room for a move at the last frame: go to an earlier one")
    angles = {"pitch": start.pitch, "yaw": start.yaw, "roll": start.roll}
    path = Trajectory.move(move, start.optics(), frames=count, fps=shot.fps, **angles, **amounts)
    c2w = path.c2w.clone()
    c2w[:, :3, 3] += torch.tensor(start.position, dtype=torch.float64)
    keys = keys_of(Trajectory(c2w, path.lens, 1.0), MOVE_TOLERANCE, "linear", frame, start.yaw)
    return _with_keys(shot, [*(key for key in shot.keys if key.frame < frame), *keys])


def open_path(shot: Shot, camera: Trajectory, tolerance: float = 0.0) -> Shot:
    """A trajectory's path, lens and frame rate in few keyframes, off by at most a tolerance (0: the same cameras)."""
    keys = keys_of(Trajectory(camera.c2w.double(), camera.lens, 1.0), tolerance, "smooth" if tolerance else "linear")
    return replace(shot, keys=tuple(keys), frames=len(camera), fps=camera.fps)


def simplify(shot: Shot, tolerance: float) -> Shot:
    """Fewer keyframes on nearly the same path."""
    camera = Trajectory(shot.camera.c2w, shot.camera.lens, 1.0)
    keys = keys_of(camera, tolerance, "smooth")
    if len(keys) >= len(shot.keys):
        raise ValueError(f"no fewer keyframes stay within {tolerance:g} of this path: let it be off by more")
    return replace(shot, keys=tuple(keys))


def keys_of(camera: Trajectory, tolerance: float, easing: str, first: int = 0, yaw: float | None = None) -> list[Key]:
    """Keyframes of a trajectory of one frame per second; they begin at frame `first`, within half a turn of `yaw`."""
    found = find_keyframes(camera, tolerance, easing)
    turns = 0 if yaw is None else 360 * round((yaw - found[0].yaw) / 360)
    keys = []
    for key in found:
        assert key.lens is not None
        frame, yaw = float(first + round(key.seconds)), key.yaw + turns
        keys.append(Key(frame, key.lens.to_dict(), key.position, key.pitch, yaw, key.roll, easing))
    return keys


def scale_path(shot: Shot, factor: float) -> Shot:
    """Multiply every distance from the first camera by a factor."""
    if not (math.isfinite(factor) and 0 < factor <= 1000):
        raise ValueError(f"scale must be above 0 and at most 1000, got {factor!r}")
    first = shot.keys[0].position

    def scaled(place: tuple[float, float, float]) -> tuple[float, float, float]:
        x, y, z = (start + (value - start) * factor for value, start in zip(place, first))
        return x, y, z

    return _with_keys(shot, [replace(key, position=scaled(key.position)) for key in shot.keys])


def turn_path(shot: Shot, degrees: float) -> Shot:
    """Turn the whole path about the vertical through its first camera, to the right if positive."""
    first = shot.keys[0].position
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))

    def about(place: tuple[float, float, float]) -> tuple[float, float, float]:
        x, z = place[0] - first[0], place[2] - first[2]
        return first[0] + cosine * x + sine * z, place[1], first[2] - sine * x + cosine * z

    keys = [replace(key, position=about(key.position), yaw=key.yaw + degrees) for key in shot.keys]
    return _with_keys(shot, keys)


def level_path(shot: Shot) -> Shot:
    """Take the roll out of every keyframe."""
    return _with_keys(shot, [replace(key, roll=0.0) for key in shot.keys])


def reverse_path(shot: Shot) -> Shot:
    """The path played backwards; an easing in becomes an easing out."""
    swapped = {"ease_in": "ease_out", "ease_out": "ease_in"}
    backwards = shot.keys[::-1]
    easings = [swapped.get(key.easing, key.easing) for key in backwards[1:]] + [backwards[0].easing]
    keys = [replace(key, frame=shot.last_frame - key.frame, easing=easing) for key, easing in zip(backwards, easings)]
    return _with_keys(shot, keys)


def set_length(shot: Shot, frames: int, fps: float) -> Shot:
    """Another number of frames and rate; the keyframes keep their share of the time."""
    stretch = (frames - 1) / max(shot.last_frame, 1)
    places = [round(key.frame * stretch) for key in shot.keys]
    if len(set(places)) < len(places):
        raise ValueError(f"{len(places)} keyframes do not fit {frames} frames: simplify the path or delete some")
    keys = tuple(replace(key, frame=float(place)) for key, place in zip(shot.keys, places))
    return replace(shot, keys=keys, frames=frames, fps=fps)


def _with_keys(shot: Shot, keys: list[Key]) -> Shot:
    return replace(shot, keys=tuple(sorted(keys, key=lambda key: key.frame)))


def _shape(lens: dict[str, Any]) -> tuple[Any, ...]:
    """What lenses of one path share: the model, its parameters' names and its settings."""
    return tuple((name, None if isinstance(value, float) else value) for name, value in lens.items())
