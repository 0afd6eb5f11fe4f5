"""Cameras as world models take them: keys held for some frames, and poses with pinhole intrinsics."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Lens, Pinhole
from ucpe.reading import MAX_FRAMES
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles
from ucpe.trajectories.trajectory import DEFAULT_FPS, Trajectory

ACTIONS = re.compile(r"(?:(?P<map>[a-z]+):)?(?P<segments>[a-z]+-\d+(,[a-z]+-\d+)*)")
"""An action string, lower case and without spaces: `w-80,jw-40`, perhaps with the name of its key map in front."""

FRAME_SECONDS = 1 / 16
"""Duration of a frame for keys that ease, whatever rate the video is played at."""

DIRECTION = re.compile(r"wan-fun:\s*(left|right)?(up|down)?(in|out)?(?:\s+(?P<speed>\d*\.?\d+(?:e-?\d+)?))?", re.I)
"""A direction of Wan-Fun, and its speed."""

DIRECTION_SPEED = 1 / 54
SIGNS = {"": 0.0, "left": -1.0, "right": 1.0, "up": 1.0, "down": -1.0, "in": 1.0, "out": -1.0}

KEYS = set("wasdijkl")
MAX_ACTION_FRAMES = 100_000


@dataclass(frozen=True)
class KeyMap:
    """What keys do, and how far in a frame."""

    forward: str
    right: str
    turn_right: str
    look_up: str
    """Two keys each: that way, and the opposite."""
    step: float
    """Distance in a frame."""
    degrees: float
    """Turn in a frame."""
    pitch_limit: float
    """Degrees up and down."""
    eases: bool
    """Whether released keys coast to a stop, and pitch stops at its limit instead of one frame before."""


KEY_MAPS = {
    "diffusers": KeyMap("ws", "da", "lj", "ik", step=0.05, degrees=1.2, pitch_limit=85.0, eases=False),
    "sana": KeyMap("ws", "lj", "da", "ik", step=0.025, degrees=0.6, pitch_limit=60.0, eases=True),
}
"""Key maps of SANA-WM: in diffusers' pipeline j and l turn, in its own scripts a and d do."""

TAU_PRESS, TAU_COAST = 0.45, 1.0
"""Time constants in seconds: how fast speed follows held keys, and how fast it fades after they are released."""


def is_actions(text: str) -> bool:
    """Whether a text is an action string such as `w-80,jw-40` or `sana:w-80,aw-40`, perhaps with a mistake later on."""
    match = ACTIONS.fullmatch(_plain(text))
    return match is not None and set(match["segments"].split("-")[0]) <= KEYS | set("none")


def action_trajectory(
    actions: str,
    lens: Lens,
    *,
    frames: int | None = None,
    fps: float = DEFAULT_FPS,
    pitch: float = 0.0,
    yaw: float = 0.0,
    roll: float = 0.0,
) -> Trajectory:
    """The camera that keys steer: `<keys>-<frames>` segments joined by commas, `none` for no key; one frame more.

    Keys are those of diffusers' SANA-WM unless `sana:` stands in front. First angles are in degrees; `frames` cuts.
    """
    keys, held = _held_keys(actions)
    if frames is not None:
        if frames > len(held) + 1:
            raise ValueError(
                f"the actions {actions!r} make {len(held) + 1} frames, and {frames} are asked for: ask for fewer, or "
                f"add none-{frames - len(held) - 1}"
            )
        held = held[: frames - 1]
    return Trajectory(_roll_out(held, keys, pitch, yaw, roll), lens, fps)


def is_direction(text: str) -> bool:
    """Whether a text is a direction of Wan-Fun's camera models, such as `wan-fun:LeftUp` or `wan-fun:in 0.01`."""
    return text.lower().startswith("wan-fun:")


def direction_trajectory(
    text: str,
    lens: Lens,
    *,
    frames: int = 81,
    fps: float = DEFAULT_FPS,
    pitch: float = 0.0,
    yaw: float = 0.0,
    roll: float = 0.0,
) -> Trajectory:
    """The camera of Wan-Fun's direction (Left, Right, Up, Down, In, Out, or two as LeftUp) and speed a frame, or 1/54.

    Wan-Fun shears the world by speed for each frame of a turn; here it is the turn that moves the picture's centre as
    far. In and Out move by speed a frame, in near-plane depths. First angles are in degrees.
    """
    match = DIRECTION.fullmatch(text.strip())
    if match is None or not any(match.group(1, 2, 3)) or not (speed := float(match["speed"] or DIRECTION_SPEED)) > 0:
        raise ValueError(
            f"directions of Wan-Fun are Left, Right, Up, Down, In, Out or LeftUp and so on, with a speed a frame if "
            f"wanted, as in wan-fun:LeftUp 0.02; got {text!r}"
        )
    MAX_FRAMES.check(frames, text)
    sideways, upwards, along = (SIGNS[(word or "").lower()] for word in match.group(1, 2, 3))
    moved = speed * torch.arange(frames, dtype=torch.float64)
    turned = torch.rad2deg(moved.atan())
    heading = torch.from_numpy(_rotation(pitch, yaw, roll))
    rotation = heading @ rotation_from_angles(upwards * turned, sideways * turned, torch.zeros_like(turned))
    return Trajectory(pose_matrix(rotation, (along * moved)[:, None] * heading[:, 2]), lens, fps)


def turns_of_shears(
    w2c: Tensor,  # (N, 3, 4)
) -> Tensor:
    """World-to-camera matrices (N, 3, 4) in which Wan-Fun's shears (x or y moved by a share of z) are turns.

    Others are returned as they are.
    """
    plain = torch.eye(3, dtype=w2c.dtype).expand(len(w2c), 3, 3).clone()
    plain[:, :2, 2] = w2c[:, :2, 2]
    if not torch.equal(plain, w2c[:, :, :3]) or not plain[:, :2, 2].any():
        return w2c
    across, down = torch.rad2deg(w2c[:, :2, 2].atan()).unbind(-1)
    turn = rotation_from_angles(down, -across, torch.zeros_like(down)).mT
    return torch.cat([turn, w2c[:, :, 3:]], -1)


def to_pinhole_arrays(camera: Trajectory, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses (N, 4, 4) and `fx, fy, cx, cy` (N, 4) in pixels of height x width images, as SANA-WM takes them."""
    lens = camera.lens_per_frame()
    if not isinstance(lens, Pinhole):
        raise ValueError(
            f"a {lens.kind} lens has no pinhole intrinsics: give the trajectory itself to ucpe.CameraPipeline, which "
            "takes any lens, or fit a pinhole with lens.fit(ucpe.Pinhole)"
        )
    matrix = lens.intrinsics(height, width)
    numbers = matrix[:, [0, 1, 0, 1], [0, 1, 2, 2]]
    return camera.c2w.detach().cpu().float().numpy(), numbers.detach().cpu().float().numpy()


def from_pinhole_arrays(
    c2w: np.ndarray,  # (N, 4, 4)
    intrinsics: np.ndarray,  # (4,), (3, 3), (N, 4) or (N, 3, 3), pixels
    height: int,
    width: int,
    fps: float = DEFAULT_FPS,
) -> Trajectory:
    """The trajectory of poses and pinhole intrinsics of a height x width image, as SANA-WM takes and returns them."""
    numbers = torch.as_tensor(np.asarray(intrinsics), dtype=torch.float64)
    if numbers.shape[-2:] == (3, 3):
        numbers = numbers[..., [0, 1, 0, 1], [0, 1, 2, 2]]
    poses = torch.as_tensor(np.asarray(c2w), dtype=torch.float64)
    if numbers.shape not in ((4,), (len(poses), 4)):
        raise ValueError(
            f"intrinsics of {len(poses)} poses must be fx, fy, cx, cy or a 3 x 3 matrix, once or for every pose, "
            f"got the shape {np.asarray(intrinsics).shape}"
        )
    fx, fy, cx, cy = numbers.unbind(-1)
    return Trajectory(poses, Pinhole(fx=fx, fy=fy, cx=cx, cy=cy, width=width, height=height), fps)


def _plain(text: str) -> str:
    return "".join(text.replace("，", ",").lower().split())


def _held_keys(actions: str) -> tuple[KeyMap, list[str]]:
    """The key map of an action string, and the keys held in every frame after the first."""
    match = ACTIONS.fullmatch(_plain(actions))
    if match is None:
        raise ValueError(f"actions are <keys>-<frames> joined by commas, such as w-80,jw-40,none-8; got {actions!r}")
    if match["map"] not in (None, *KEY_MAPS):
        raise ValueError(f"no key map {match['map']!r} (in {actions!r}); there are {', '.join(KEY_MAPS)}")
    held: list[str] = []
    for segment in match["segments"].split(","):
        keys, count = segment.split("-")
        unknown = sorted(set(keys) - KEYS) if keys != "none" else []
        if unknown or not int(count):
            wrong = f"has no key {unknown[0]!r}: keys are w a s d i j k l" if unknown else "lasts no frame"
            raise ValueError(f"{segment!r} in the actions {actions!r} {wrong}")
        if len(held) + int(count) > MAX_ACTION_FRAMES:
            raise ValueError(f"the actions {actions!r} last more than {MAX_ACTION_FRAMES} frames")
        held += ["" if keys == "none" else keys] * int(count)
    return KEY_MAPS[match["map"] or "diffusers"], held


def _roll_out(held: list[str], keys: KeyMap, pitch: float, yaw: float, roll: float) -> Tensor:
    """Poses (frames + 1, 4, 4): turn, then walk on the ground along the heading."""
    speed = np.zeros(4)  # forward, right, turn right, look up
    rotation, position = _rotation(pitch, yaw, roll), np.zeros(3)
    rotations, positions, before = [rotation], [position], ""
    for pressed in held:
        pairs = (keys.forward, keys.right, keys.turn_right, keys.look_up)
        wanted = np.array([float(pair[0] in pressed) - float(pair[1] in pressed) for pair in pairs])
        wanted *= (keys.step, keys.step, keys.degrees, keys.degrees)
        speed = wanted if not keys.eases or set(pressed) - set(before) else _eased(speed, wanted)
        before = pressed
        look_up = min(max(pitch + speed[3], -keys.pitch_limit), keys.pitch_limit) - pitch
        if not keys.eases and not math.isclose(look_up, speed[3]):
            look_up = 0.0
        pitch += look_up
        rotation = _rotation(0.0, speed[2], 0.0) @ rotation @ _rotation(look_up, 0.0, 0.0)
        right, _, forward = rotation.T
        position = position + speed[0] * _level(forward) + speed[1] * _level(right)
        rotations.append(rotation)
        positions.append(position)
    return pose_matrix(torch.from_numpy(np.stack(rotations)), torch.from_numpy(np.stack(positions)))


def _eased(speed: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    seconds = np.where(np.abs(wanted) > 0, TAU_PRESS, TAU_COAST)
    return speed + (1 - np.exp(-FRAME_SECONDS / seconds)) * (wanted - speed)


def _level(direction: np.ndarray) -> np.ndarray:
    """The unit vector along a direction on the ground; zero for one that points straight up or down."""
    flat = direction * (1.0, 0.0, 1.0)
    length = np.linalg.norm(flat)
    return flat / length if length > 0 else flat


def _rotation(pitch: float, yaw: float, roll: float) -> np.ndarray:
    angles = (torch.tensor(float(value), dtype=torch.float64) for value in (pitch, yaw, roll))
    return rotation_from_angles(*angles).numpy()
