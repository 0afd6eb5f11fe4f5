"""Cameras at a few times, the path through them, and the few cameras that a given path passes through."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat, TypeAlias

import torch
from torch import Tensor

from ucpe.lenses import Lens
from ucpe.trajectories.interpolation import segment_of, smooth_curve
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

if TYPE_CHECKING:
    from ucpe.trajectories.trajectory import Trajectory

Easing: TypeAlias = "str | Callable[[Tensor], Tensor]"

EASINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda time: time,
    "ease": lambda time: time * time * (3 - 2 * time),
    "ease_in": lambda time: time * time,
    "ease_out": lambda time: time * (2 - time),
}
"""Progress of a move (0 to 1) against time (0 to 1): even, soft at both ends, at the start, at the end."""

POSE_VALUES = 6
"""Numbers of a pose: position, then pitch, yaw and roll."""


@dataclass(frozen=True)
class Keyframe:
    """A camera at a time in seconds: position (world units), angles (degrees), and focal length factor `zoom`.

    `lens` replaces the trajectory's lens; all keyframes have one, or none has. `easing` replaces the trajectory's on
    the way to the next keyframe.
    """

    seconds: float
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    pitch: float = 0.0
    yaw: float = 0.0
    roll: float = 0.0
    zoom: float = 1.0
    lens: Lens | None = None
    easing: Easing | None = None


def easing_function(easing: Easing) -> Callable[[Tensor], Tensor]:
    """The function of an easing's name, or the function itself."""
    if callable(easing):
        return easing
    if easing not in EASINGS:
        raise ValueError(f"easing must be one of {', '.join(EASINGS)} or a function, got {easing!r}")
    return EASINGS[easing]


def camera_at(
    keyframes: Sequence[Keyframe],
    at: Tensor,  # (M,) seconds
    easing: Easing = "smooth",
) -> tuple[Tensor, Lens | None, Tensor]:
    """Poses (M, 4, 4), lens (M,) if the keyframes have lenses, and zoom (M,) at times held at the first and last."""
    check_keyframes(keyframes)
    lenses = [key.lens for key in keyframes if key.lens is not None]
    if lenses and (len(lenses) < len(keyframes) or any(key.zoom != 1 for key in keyframes)):
        raise ValueError("either all keyframes have a lens and none a zoom, or none has a lens")
    if len({(lens.kind, *lens.parameters, str(lens.settings)) for lens in lenses}) > 1:
        raise ValueError(f"lenses of keyframes must be of one model, got {', '.join(map(str, lenses[:3]))}")
    rows = [
        [*key.position, key.pitch, key.yaw, key.roll, math.log(key.zoom)]
        + [float(value) for value in (key.lens.parameters.values() if key.lens else ())]
        for key in keyframes
    ]
    times = torch.tensor([key.seconds for key in keyframes], dtype=torch.float64)
    easings = [easing if key.easing is None else key.easing for key in keyframes[:-1]]
    path = _eased_path(torch.tensor(rows, dtype=torch.float64), times, at.double(), easings)
    poses = pose_matrix(rotation_from_angles(*path[:, 3:POSE_VALUES].unbind(-1)), path[:, :3])
    lens = lenses[0]._with(dict(zip(lenses[0].parameters, path[:, 7:].unbind(-1)))) if lenses else None
    return poses, lens, path[:, POSE_VALUES].exp()


def find_keyframes(trajectory: Trajectory, tolerance: float = 0.0, easing: str = "linear") -> list[Keyframe]:
    """The few cameras of a trajectory from which `Trajectory.keyframes` makes it again, each with its lens.

    Positions may be off by `tolerance`, angles and lens parameters by a hundred times that (in degrees). With 0, every
    frame that is not in line with its neighbours to 1e-11 is kept.
    """
    lens = trajectory.lens_per_frame()
    angles = [unwrapped(angle) for angle in trajectory.angles]
    parameters = [value.double().expand(len(trajectory)) for value in lens.parameters.values()]
    values = torch.stack([*trajectory.positions.double().unbind(-1), *angles, *parameters], -1).cpu()
    allowed = max(tolerance, 1e-11) * torch.tensor([1.0] * 3 + [100.0] * (values.shape[1] - 3), dtype=torch.float64)
    times = torch.arange(len(values), dtype=torch.float64)
    kept = sorted({0, len(values) - 1})
    while len(kept) < len(values):
        chosen = torch.tensor(kept)
        path = _eased_path(values[chosen], times[chosen], times, [easing] * (len(kept) - 1), POSE_VALUES)
        miss = ((path - values).abs() / allowed).amax(-1)
        miss[chosen] = 0
        if not miss.max() > 1:
            break
        kept = sorted({*kept, *_worst_of_each_segment(miss, kept)})
    found = []
    for frame in kept:
        x, y, z, pitch, yaw, roll = values[frame, :POSE_VALUES].tolist()
        seconds = frame / trajectory.fps
        found.append(Keyframe(seconds, (x, y, z), pitch, yaw, roll, lens=lens[frame], easing=easing))
    return found


def unwrapped(
    angles: Tensor,  # (N,) degrees
) -> Tensor:
    """The same angles without jumps over half a turn."""
    turns = torch.cat([torch.zeros_like(angles[:1]), torch.round(torch.diff(angles) / 360)])
    return angles - 360 * turns.cumsum(0)


def _worst_of_each_segment(miss: Tensor, kept: list[int]) -> list[int]:
    worst = []
    for start, stop in itertools.pairwise(kept):
        between = miss[start + 1 : stop]
        if len(between) and between.max() > 1:
            worst.append(start + 1 + int(between.argmax()))
    return worst


def _eased_path(
    values: Tensor,  # (N, d)
    times: Tensor,  # (N,)
    at: Tensor,  # (M,)
    easings: Sequence[Easing],  # (N - 1,)
    smooth_values: int = POSE_VALUES + 1,
) -> Tensor:
    """Values (M, d) on the way, each segment with its easing; "smooth" bends the first `smooth_values` of them only.

    Lens parameters have ranges, which a curve could leave and a straight line cannot.
    """
    if len(times) == 1:
        return values.expand(len(at), -1).clone()
    segment, fraction = segment_of(times, at)
    path = torch.empty(len(at), values.shape[1], dtype=values.dtype)
    curve = smooth_curve(values, times, at) if "smooth" in easings else path
    for easing in set(easings):
        here = torch.tensor([own == easing for own in easings])[segment]
        start, end = values[segment[here]], values[segment[here] + 1]
        progress = fraction[here] if easing == "smooth" else easing_function(easing)(fraction[here])
        path[here] = torch.lerp(start, end, progress[:, None])
        if easing == "smooth":
            path[here, :smooth_values] = curve[here, :smooth_values]
    return path


def check_keyframes(keyframes: Sequence[Keyframe]) -> None:
    """Raise ValueError unless there are keyframes, of finite numbers, in order of time."""
    if not keyframes:
        raise ValueError("keyframes must hold at least one camera")
    for index, key in enumerate(keyframes):
        positive("zoom", key.zoom)
        for name in ("seconds", "pitch", "yaw", "roll"):
            finite(f"{name} of keyframe {index}", getattr(key, name))
        for value in key.position:
            finite(f"position of keyframe {index}", value)
    for earlier, later in itertools.pairwise(keyframes):
        if not later.seconds > earlier.seconds:
            raise ValueError(
                f"keyframes must be in order of time, got {earlier.seconds:g} s before {later.seconds:g} s"
            )


def finite(name: str, value: float) -> None:
    """Raise ValueError unless a value is a finite number."""
    if not isinstance(value, SupportsFloat) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def positive(name: str, value: float) -> None:
    """Raise ValueError unless a value is a positive number."""
    if not isinstance(value, SupportsFloat) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
