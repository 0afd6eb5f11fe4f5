"""A shot as plain data: lens and path as keyframes, the scene to preview it in, and what to generate."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import torch

from ucpe.lenses import Lens, lens_from_dict
from ucpe.trajectories import Keyframe, Trajectory
from ucpe.trajectories.keyframes import EASINGS, camera_at
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

EASING_NAMES = ("smooth", *EASINGS)

MAX_FRAMES = 2000
MAX_SIDE = 4096
MAX_TEXT = 4000

UPLOADED = re.compile(r"[0-9a-f]{24}\.[a-z0-9]{2,5}")
"""Names of files in the studio's uploads."""

VERSION = 1


@dataclass(frozen=True)
class Key:
    """A camera at a frame number: position (near-plane depths), angles (degrees), lens, and easing to the next key."""

    frame: float
    lens: dict[str, Any]
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    pitch: float = 0.0
    yaw: float = 0.0
    roll: float = 0.0
    easing: str = "smooth"

    def keyframe(self, lens: Lens | None) -> Keyframe:
        """The same as a keyframe of a trajectory of one frame per second."""
        return Keyframe(self.frame, self.position, self.pitch, self.yaw, self.roll, lens=lens, easing=self.easing)

    def optics(self) -> Lens:
        """The lens as an object, made once for the same numbers: a drag turns the camera and leaves its lens alone."""
        return _optics(json.dumps(self.lens))

    def pose(self) -> torch.Tensor:
        """Camera-to-world pose (4, 4)."""
        angles = torch.tensor([self.pitch, self.yaw, self.roll], dtype=torch.float64)
        return pose_matrix(rotation_from_angles(*angles), torch.tensor(self.position, dtype=torch.float64))


@dataclass(frozen=True)
class Shot:
    """Everything a person decides; None leaves a choice to the model. Nothing here changes in place: see `edits`."""

    keys: tuple[Key, ...] = (Key(0.0, {"model": "ucm", "xfov": 100.0, "xi": 0.0}),)
    frames: int = 17
    fps: float = 8.0
    height: int = 270
    width: int = 480
    scene: str = "world:13"
    prompt: str = "a pink lighthouse and a blue arch on grass, a city on the horizon, under a clear sky"
    negative: str = ""
    seed: int = 0
    steps: int | None = None
    guidance: float | None = None
    video_height: int | None = None
    video_width: int | None = None
    image: str | None = None
    """First frame: a file of the studio's uploads."""

    def __post_init__(self) -> None:
        _check(self)
        _ = self.camera

    @cached_property
    def camera(self) -> Trajectory:
        """The camera of every frame; it stands still before the first and after the last keyframe."""
        lenses = [key.optics() for key in self.keys]
        steady = all(key.lens == self.keys[0].lens for key in self.keys)
        keyframes = [key.keyframe(None if steady else lens) for key, lens in zip(self.keys, lenses)]
        c2w, lens, _ = camera_at(keyframes, torch.arange(self.frames))
        return Trajectory(c2w, lens or lenses[0], self.fps)

    def key_at(self, frame: float) -> int | None:
        """Index of the keyframe at a frame, if there is one."""
        return next((index for index, key in enumerate(self.keys) if abs(key.frame - frame) < 0.5), None)

    @property
    def last_frame(self) -> int:
        """Number of the last frame."""
        return self.frames - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` turns back into this shot."""
        return {"format": "ucpe-shot", "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Any) -> Shot:
        """The shot of plain values; ValueError where they are none."""
        if not isinstance(values, dict) or values.get("format") != "ucpe-shot":
            raise ValueError("not a shot of the studio")
        if values.get("version") != VERSION:
            raise ValueError(f"a shot of version {values.get('version')!r}; this software reads version {VERSION}")
        known = {entry.name for entry in fields(cls)}
        try:
            keys = tuple(Key(**{**key, "position": tuple(key["position"])}) for key in values["keys"])
            return cls(**{name: value for name, value in values.items() if name in known and name != "keys"}, keys=keys)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a whole shot of the studio ({error!r})") from None


@lru_cache(maxsize=256)
def _optics(lens: str) -> Lens:
    return lens_from_dict(json.loads(lens))


def _check(shot: Shot) -> None:
    _check_whole("frames", shot.frames, 1, MAX_FRAMES)
    _check_whole("height", shot.height, 16, MAX_SIDE)
    _check_whole("width", shot.width, 16, MAX_SIDE)
    _check_whole("seed", shot.seed, 0, 2**63 - 1)
    for name, high in (("steps", 1000), ("video_height", MAX_SIDE), ("video_width", MAX_SIDE)):
        if getattr(shot, name) is not None:
            _check_whole(name.replace("video_", ""), getattr(shot, name), 1, high)
    if shot.height % 2 or shot.width % 2:
        raise ValueError(f"height and width must be even, got {shot.height} x {shot.width}")
    if not 0 < shot.fps <= 1000:
        raise ValueError(f"fps must be above 0 and at most 1000, got {shot.fps!r}")
    if shot.guidance is not None and not 0 <= shot.guidance <= 100:
        raise ValueError(f"guidance must be from 0 to 100, got {shot.guidance!r}")
    if max(len(shot.prompt), len(shot.negative)) > MAX_TEXT:
        raise ValueError(f"a prompt has at most {MAX_TEXT} characters, got {max(len(shot.prompt), len(shot.negative))}")
    if shot.image is not None and not UPLOADED.fullmatch(str(shot.image)):
        raise ValueError("a first frame is a file of the studio's uploads")
    if not shot.keys:
        raise ValueError("a path needs at least one keyframe")
    for key in shot.keys:
        if not 0 <= key.frame <= shot.last_frame:
            raise ValueError(f"a keyframe must lie within frames 0 to {shot.last_frame}, got {key.frame:g}")
        if key.easing not in EASING_NAMES:
            raise ValueError(f"easing must be one of {', '.join(EASING_NAMES)}, got {key.easing!r}")


def _check_whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
