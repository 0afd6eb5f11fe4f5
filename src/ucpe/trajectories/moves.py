"""Camera moves as constructors of `Trajectory`, every amount a parameter.

Each move starts at the origin with any `pitch`, `yaw` and `roll`. Pans turn about the vertical, and ground moves stay
level, whatever way the camera is tilted; "right" and "forward" are the first camera's heading on the ground.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import torch
from torch import Tensor

from ucpe.lenses import Lens, PlanarLens
from ucpe.reading import MAX_FRAMES
from ucpe.trajectories.keyframes import Easing, Keyframe, camera_at, check_keyframes, easing_function, finite, positive
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

MovesType = TypeVar("MovesType", bound="Moves")
SWAYS = 16
"""Sine waves that make up each channel of a handheld camera."""


class Shot(TypedDict, total=False):
    """What every move takes besides its amounts: `frames`, `fps`, first `pitch`, `yaw`, `roll` (degrees), `easing`."""

    frames: int
    fps: float
    pitch: float
    yaw: float
    roll: float
    easing: Easing


class Moves:
    """Constructors of `Trajectory`, each taking a lens, its own amounts and the options of `Shot`."""

    if TYPE_CHECKING:

        def __init__(self, c2w: Tensor, lens: Lens, fps: float) -> None: ...

    @classmethod
    def static(cls, lens: Lens, **shot: Unpack[Shot]) -> Self:
        """A camera that stands still."""
        return _rig(cls, lens, _Timing("static", shot))

    @classmethod
    def pan(cls, lens: Lens, degrees: float = 30.0, **shot: Unpack[Shot]) -> Self:
        """Turn about the vertical, to the right if positive."""
        timing = _Timing("pan", shot, degrees=degrees)
        return _rig(cls, lens, timing, yaw=degrees * timing.progress)

    @classmethod
    def tilt(cls, lens: Lens, degrees: float = 20.0, **shot: Unpack[Shot]) -> Self:
        """Look up if positive, down if negative."""
        timing = _Timing("tilt", shot, degrees=degrees)
        return _rig(cls, lens, timing, pitch=degrees * timing.progress)

    @classmethod
    def roll(cls, lens: Lens, degrees: float = 20.0, **shot: Unpack[Shot]) -> Self:
        """Turn about the optical axis, clockwise as seen from behind the camera if positive."""
        timing = _Timing("roll", shot, degrees=degrees)
        return _rig(cls, lens, timing, roll=degrees * timing.progress)

    @classmethod
    def truck(cls, lens: Lens, distance: float = 1.0, **shot: Unpack[Shot]) -> Self:
        """Move sideways on the ground, to the right if positive."""
        timing = _Timing("truck", shot, distance=distance)
        return _rig(cls, lens, timing, right=distance * timing.progress)

    @classmethod
    def dolly(cls, lens: Lens, distance: float = 1.0, along_view: bool = False, **shot: Unpack[Shot]) -> Self:
        """Move forward if positive: on the ground, or straight to where the camera looks with `along_view`."""
        timing = _Timing("dolly", shot, distance=distance, along_view=along_view)
        slope = math.radians(timing.pitch) if along_view else 0.0
        travelled = distance * timing.progress
        return _rig(cls, lens, timing, up=math.sin(slope) * travelled, forward=math.cos(slope) * travelled)

    @classmethod
    def pedestal(cls, lens: Lens, distance: float = 1.0, **shot: Unpack[Shot]) -> Self:
        """Move straight up if positive, down if negative."""
        timing = _Timing("pedestal", shot, distance=distance)
        return _rig(cls, lens, timing, up=distance * timing.progress)

    @classmethod
    def orbit(cls, lens: Lens, degrees: float = 40.0, radius: float = 1.0, **shot: Unpack[Shot]) -> Self:
        """Circle a subject `radius` ahead on the ground and keep facing it, moving to the right if positive."""
        positive("radius", radius)
        timing = _Timing("orbit", shot, degrees=degrees, radius=radius)
        turned = degrees * timing.progress
        angle = torch.deg2rad(turned)
        return _rig(cls, lens, timing, yaw=-turned, right=radius * angle.sin(), forward=radius * (1 - angle.cos()))

    @classmethod
    def arc(cls, lens: Lens, degrees: float = 45.0, radius: float = 1.0, **shot: Unpack[Shot]) -> Self:
        """Drive round a bend of that radius, looking where the path goes; a right bend if positive."""
        positive("radius", radius)
        timing = _Timing("arc", shot, degrees=degrees, radius=radius)
        turned = degrees * timing.progress
        angle, side = torch.deg2rad(turned).abs(), math.copysign(1.0, degrees)
        return _rig(
            cls, lens, timing, yaw=turned, right=side * radius * (1 - angle.cos()), forward=radius * angle.sin()
        )

    @classmethod
    def spiral(
        cls,
        lens: Lens,
        degrees: float = 360.0,
        radius: float = 1.0,
        end_radius: float = 0.5,
        height: float = 0.5,
        **shot: Unpack[Shot],
    ) -> Self:
        """Circle a subject at `radius` while closing in to `end_radius` and rising by `height`, always facing it."""
        positive("radius", radius)
        positive("end_radius", end_radius)
        timing = _Timing("spiral", shot, degrees=degrees, radius=radius, end_radius=end_radius, height=height)
        turned, rise = degrees * timing.progress, height * timing.progress
        angle, distance = torch.deg2rad(turned), radius + (end_radius - radius) * timing.progress
        return _rig(
            cls,
            lens,
            timing,
            yaw=-turned,
            pitch=_pitch_to_subject(timing, radius, distance, rise),
            right=distance * angle.sin(),
            up=rise,
            forward=radius - distance * angle.cos(),
        )

    @classmethod
    def crane(
        cls,
        lens: Lens,
        height: float = 1.0,
        distance: float = 0.0,
        subject_distance: float | None = 2.0,
        **shot: Unpack[Shot],
    ) -> Self:
        """Rise by `height` and move forward by `distance`, tilting to keep a subject that far ahead in the middle.

        With `subject_distance=None` the pitch stays as it is.
        """
        timing = _Timing("crane", shot, height=height, distance=distance, subject_distance=subject_distance)
        rise, travelled = height * timing.progress, distance * timing.progress
        pitch = torch.zeros_like(rise)
        if subject_distance is not None:
            _check_ahead(subject_distance, distance)
            pitch = _pitch_to_subject(timing, subject_distance, subject_distance - travelled, rise)
        return _rig(cls, lens, timing, pitch=pitch, up=rise, forward=travelled)

    @classmethod
    def handheld(
        cls,
        lens: Lens,
        degrees: float = 0.7,
        distance: float = 0.01,
        min_hertz: float = 0.2,
        max_hertz: float = 2.5,
        seed: int = 0,
        **shot: Unpack[Shot],
    ) -> Self:
        """Standing with a camera in the hand: random turns and sways (RMS degrees, RMS world units on each axis).

        All of it lies between `min_hertz` and `max_hertz`, slower waves being larger. A seed is one shake in time: more
        frames or another frame rate sample the same one.
        """
        timing = _Timing(
            "handheld", shot, degrees=degrees, distance=distance, min_hertz=min_hertz, max_hertz=max_hertz, seed=seed
        )
        if not 0 < min_hertz < max_hertz:
            raise ValueError(f"need 0 < min_hertz < max_hertz, got {min_hertz:g} and {max_hertz:g}")
        if timing.frames > 1 and max_hertz >= timing.fps / 2:
            raise ValueError(
                f"max_hertz must be below half the frame rate, {timing.fps / 2:g} hertz, got {max_hertz:g}"
            )
        seconds = torch.arange(timing.frames, dtype=torch.float64, device="cpu") / timing.fps
        shake = _band_limited(6, seconds, min_hertz, max_hertz, seed)
        pitch, yaw, roll = degrees * shake[:3]
        right, up, forward = distance * shake[3:]
        return _rig(cls, lens, timing, pitch=pitch, yaw=yaw, roll=roll, right=right, up=up, forward=forward)

    @classmethod
    def zoom(cls, lens: Lens, factor: float = 2.0, **shot: Unpack[Shot]) -> Self:
        """Lengthen the focal length by a factor (shorten it below 1) at an even perceived rate; the camera stays."""
        positive("factor", factor)
        timing = _Timing("zoom", shot, factor=factor)
        return _rig(cls, zoom_lens(lens, factor**timing.progress), timing)

    @classmethod
    def dolly_zoom(
        cls,
        lens: Lens,
        distance: float = -1.0,
        subject_distance: float = 1.0,
        subject_width: float = 0.5,
        **shot: Unpack[Shot],
    ) -> Self:
        """Back away from a subject in the middle of the view while zooming so that it keeps its size in the image.

        A subject of `subject_width` that faces the camera keeps its size. A positive `distance` approaches it.
        """
        timing = _Timing(
            "dolly_zoom", shot, distance=distance, subject_distance=subject_distance, subject_width=subject_width
        )
        positive("subject_width", subject_width)
        _check_ahead(subject_distance, distance)
        planar = _zoomable(lens)
        depth = subject_distance - distance * timing.progress
        edge = torch.stack([torch.full_like(depth, subject_width / 2), torch.zeros_like(depth), depth], -1)
        radius, seen = planar.to_plane(edge)
        if not seen.all():
            raise ValueError(
                f"the lens cannot see the edge of a subject {subject_width:g} wide from {depth.min().item():g} away"
            )
        carried = cls.dolly(lens, distance, along_view=True, **shot)
        return cls(carried.c2w, zoom_lens(lens, radius[0, 0] / radius[:, 0]), timing.fps)  # type: ignore[attr-defined]

    @classmethod
    def keyframes(cls, lens: Lens, keyframes: Sequence[Keyframe], fps: float = 16.0, easing: Easing = "smooth") -> Self:
        """Pass through cameras at given times: on one smooth curve, or eased from each to the next.

        Angles are interpolated as numbers, so yaw 0 to 720 turns twice.
        """
        positive("fps", fps)
        check_keyframes(keyframes)
        first, last = keyframes[0].seconds, keyframes[-1].seconds
        count = math.floor((last - first) * fps + 1e-6) + 1
        MAX_FRAMES.check(count, "keyframes")
        at = first + torch.arange(count, dtype=torch.float64, device="cpu") / fps
        c2w, own_lens, zoom = camera_at(keyframes, at.clamp(max=last), easing)
        if any(key.zoom != 1 for key in keyframes):
            lens = zoom_lens(lens, zoom)
        return cls(c2w, own_lens or lens, fps)

    @classmethod
    def move(cls, name: str, lens: Lens, **options: Any) -> Self:
        """The move of that name (see NAMED_MOVES: "pan-left", "orbit", ...), its amounts overridden by options.

        Amounts go the way the name says: "pan-left" with degrees=30 turns left, "zoom-out" with factor=2 halves.
        Keys held for some frames ("w-80,jw-40") are a move too (see `action_trajectory`), and so are Wan-Fun's
        directions ("wan-fun:LeftUp 0.02") and several moves ("dolly-in 0.5 with tilt-up 10, then pan-left 30"; see
        `move_sequence`).
        """
        from ucpe.trajectories.sequences import is_sequence, move_sequence
        from ucpe.trajectories.world_models import action_trajectory, direction_trajectory, is_actions, is_direction

        if is_actions(name) or is_direction(name):
            if unknown := sorted(options.keys() - {"frames", "fps", "pitch", "yaw", "roll"}):
                raise ValueError(f"the actions {name!r} say how far the camera moves: leave {unknown[0]} out")
            steered = direction_trajectory if is_direction(name) else action_trajectory
            return cast("Self", steered(name, lens, **options))
        if is_sequence(name):
            if unknown := sorted(options.keys() - Shot.__annotations__):
                raise ValueError(f"the moves {name!r} say their amounts themselves: leave {unknown[0]} out")
            return cast("Self", move_sequence(name, lens, **options))
        if name not in NAMED_MOVES:
            raise ValueError(f"no move {name!r}; there are {', '.join(NAMED_MOVES)}")
        method, amounts = NAMED_MOVES[name]
        constructor = getattr(cls, method)
        taken = [key for key in inspect.signature(constructor).parameters if key not in ("lens", "shot")]
        taken += Shot.__annotations__
        unknown = [key for key in options if key not in taken]
        if unknown:
            raise ValueError(f"move {name!r} takes {', '.join(taken)}, not {unknown[0]}")
        directed = {key: _directed(key, options[key], usual) for key, usual in amounts.items() if key in options}
        return constructor(lens, **{**amounts, **options, **directed})


NAMED_MOVES: dict[str, tuple[str, dict[str, float]]] = {
    "static": ("static", {}),
    "pan-left": ("pan", {"degrees": -30}),
    "pan-right": ("pan", {"degrees": 30}),
    "tilt-up": ("tilt", {"degrees": 20}),
    "tilt-down": ("tilt", {"degrees": -20}),
    "roll-left": ("roll", {"degrees": -20}),
    "roll-right": ("roll", {"degrees": 20}),
    "truck-left": ("truck", {"distance": -1}),
    "truck-right": ("truck", {"distance": 1}),
    "dolly-in": ("dolly", {"distance": 1}),
    "dolly-out": ("dolly", {"distance": -1}),
    "pedestal-up": ("pedestal", {"distance": 1}),
    "pedestal-down": ("pedestal", {"distance": -1}),
    "orbit-left": ("orbit", {"degrees": -40}),
    "orbit-right": ("orbit", {"degrees": 40}),
    "arc-left": ("arc", {"degrees": -45}),
    "arc-right": ("arc", {"degrees": 45}),
    "crane-up": ("crane", {"height": 1}),
    "crane-down": ("crane", {"height": -1}),
    "zoom-in": ("zoom", {"factor": 2}),
    "zoom-out": ("zoom", {"factor": 0.5}),
    "dolly-zoom": ("dolly_zoom", {}),
    **{name: (name, {}) for name in ("pan", "tilt", "roll", "truck", "dolly", "pedestal", "orbit", "arc", "spiral")},
    **{name: (name, {}) for name in ("crane", "handheld", "zoom")},
}
"""Moves by the name a person would say: the constructor and its amounts."""


def zoom_lens(
    lens: Lens,
    factor: Tensor,  # (N,)
) -> Lens:
    """The lens with its focal length multiplied by factors, batch shape (N,)."""
    planar = _zoomable(lens)
    parameters = {name: value.expand(factor.shape) for name, value in planar.parameters.items()}
    if "fx" in parameters:
        return planar._with({**parameters, "fx": parameters["fx"] * factor, "fy": parameters["fy"] * factor})
    if "pinhole_xfov" in parameters:
        half = torch.tan(torch.deg2rad(parameters["pinhole_xfov"]) / 2) / factor
        return planar._with({**parameters, "pinhole_xfov": 2 * torch.rad2deg(half.atan())})
    half_row = 1 / planar.calibrated(2, 2).parameters["fx"].double() / factor
    ends = torch.stack([-half_row, half_row], -1)
    directions, seen = planar.from_plane(torch.stack([ends, torch.zeros_like(ends)], -1))
    if not seen.all():
        raise ValueError(
            f"{planar} cannot zoom out to {factor.min().item():.3g} of its focal length: the image would be wider "
            "than the lens sees; start from a smaller xfov"
        )
    angles = torch.rad2deg(torch.atan2(directions[..., :2].norm(dim=-1), directions[..., 2]))
    return planar._with({**parameters, "xfov": angles.sum(-1)})


def _directed(name: str, amount: float, usual: float) -> float:
    """The amount as the move's name implies it: 30 of "pan-left" is -30, 2 of "zoom-out" is 1/2."""
    if name == "factor":
        return 1 / amount if usual < 1 < amount else amount
    return -amount if usual < 0 else amount


class _Timing:
    """The options of a shot with their defaults, and the progress (frames,) of its move."""

    def __init__(self, move: str, shot: Shot, **amounts: float | None):
        unknown = [name for name in shot if name not in Shot.__annotations__]
        if unknown:
            raise ValueError(f"move {move!r} takes {', '.join([*amounts, *Shot.__annotations__])}, not {unknown[0]}")
        frames, fps = shot.get("frames", 81), shot.get("fps", 16.0)
        self.pitch, self.yaw, self.roll = shot.get("pitch", 0.0), shot.get("yaw", 0.0), shot.get("roll", 0.0)
        for name, amount in {**amounts, "pitch": self.pitch, "yaw": self.yaw, "roll": self.roll}.items():
            if amount is not None:
                finite(name, amount)
        positive("fps", fps)
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise ValueError(f"frames must be a whole number, at least 1, got {frames!r}")
        self.frames, self.fps = frames, fps
        MAX_FRAMES.check(frames, f"move {move!r}")
        even = torch.linspace(0, 1, frames, dtype=torch.float64, device="cpu")
        self.progress = easing_function(shot.get("easing", "linear"))(even)


def _rig(
    cls: type[MovesType],
    lens: Lens,
    timing: _Timing,
    **offsets: Tensor,  # pitch, yaw, roll in degrees; right, up, forward in world units: each (frames,)
) -> MovesType:
    """A trajectory from what each axis of a camera rig does, starting from the shot's pitch, yaw and roll."""
    still = torch.zeros(timing.frames, dtype=torch.float64, device="cpu")
    pitch, yaw, roll, right, up, forward = (
        offsets.get(name, still) for name in ("pitch", "yaw", "roll", "right", "up", "forward")
    )
    heading = rotation_from_angles(*torch.tensor([0.0, timing.yaw, 0.0], dtype=torch.float64, device="cpu"))
    position = torch.stack([right, -up, forward], -1) @ heading.mT
    rotation = rotation_from_angles(timing.pitch + pitch, timing.yaw + yaw, timing.roll + roll)
    return cls(pose_matrix(rotation, position), lens, timing.fps)


def _check_ahead(subject_distance: float, moved: float) -> None:
    if not subject_distance > max(0.0, moved):
        raise ValueError(f"subject_distance must be above 0 and the {moved:g} moved forward, got {subject_distance:g}")


def _pitch_to_subject(timing: _Timing, first_distance: float, distance: Tensor, rise: Tensor) -> Tensor:
    """Change of pitch (frames,) that keeps the point first seen in the image centre, after rising above the ground."""
    if abs(timing.pitch) > 89:
        raise ValueError(f"a move around a subject ahead needs a pitch within 89 degrees, got {timing.pitch:g}")
    subject_height = first_distance * math.tan(math.radians(timing.pitch))
    return torch.rad2deg(torch.atan2(subject_height - rise, distance)) - timing.pitch


def _band_limited(channels: int, seconds: Tensor, min_hertz: float, max_hertz: float, seed: int) -> Tensor:
    """Random signals (channels, frames) of RMS 1 about their mean between two frequencies in hertz, 0 at time 0."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(2, channels, SWAYS, generator=generator, dtype=torch.float64, device="cpu")
    frequency = min_hertz * (max_hertz / min_hertz) ** ((torch.arange(SWAYS, device="cpu") + draw[0]) / SWAYS)
    phase = 2 * math.pi * draw[1]
    amplitude = 1 / frequency
    amplitude = amplitude * (2 / (amplitude * amplitude).sum(-1, keepdim=True)).sqrt()
    angle = 2 * math.pi * frequency[..., None] * seconds.double() + phase[..., None]
    return (amplitude[..., None] * (angle.sin() - phase[..., None].sin())).sum(1)


def _zoomable(lens: Lens) -> PlanarLens:
    if not isinstance(lens, PlanarLens):
        raise ValueError(f"{lens.kind} has no focal length to zoom")
    if lens.batch_shape:
        raise ValueError(f"zooming starts from one lens, got one of batch shape {tuple(lens.batch_shape)}")
    return lens
