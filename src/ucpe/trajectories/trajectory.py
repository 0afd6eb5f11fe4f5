"""A camera over time: one pose per frame, a lens that may change, and a frame rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucpe.lenses import FAMILIES, Lens
from ucpe.reading import MAX_FRAMES
from ucpe.trajectories.frames import latent_frame_indices
from ucpe.trajectories.interpolation import interpolate_lens, interpolate_poses
from ucpe.trajectories.keyframes import positive
from ucpe.trajectories.moves import Moves
from ucpe.trajectories.rotations import (
    Angles,
    angles_from_rotation,
    full_precision,
    invert_pose,
    pose_matrix,
    rotation_angle,
    rotation_between,
    rotation_from_angles,
    rotation_log,
)

DEFAULT_LENS: Lens = FAMILIES["pinhole"].typical()
"""Lens of a trajectory file that holds none: 100 degrees, undistorted, the middle of the paper's pinhole family."""

DEFAULT_FPS = 16.0
"""Frame rate assumed for files that state none: the paper's."""

ROTATION_TOLERANCE = 1e-3
"""How far R^T R of a pose may be from the identity."""


class Trajectory(Moves):
    """Camera-to-world poses in a world with x right, y down, z forward, seen through a lens, at `fps`.

    Moves and files give float64 on the CPU; `to` changes that. Nothing here changes a trajectory in place. `up_known`
    says whether the world's up is really [0, -1, 0]: where it is not, as in many files, pitch and roll mean nothing
    until `gravity_aligned` or `levelled` says which way is up.

    >>> from ucpe.lenses import UCM
    >>> camera = Trajectory.orbit(UCM(xfov=180, xi=2.0), degrees=40, frames=81, fps=16, pitch=-10, roll=5)
    >>> len(camera), len(camera.latent_frames()), round(camera.maximum_rotation(), 6)
    (81, 21, 40.0)
    """

    def __init__(
        self,
        c2w: Tensor,  # (N, 4, 4)
        lens: Lens,  # batch shape () or (N,)
        fps: float = DEFAULT_FPS,
        *,
        up_known: bool = True,
    ):
        self.c2w = _checked_poses(c2w)
        self.lens = lens
        self.fps = float(fps)
        self.up_known = up_known
        if lens.batch_shape not in ((), (len(c2w),)):
            raise ValueError(
                f"a lens for {len(c2w)} frames has batch shape () or ({len(c2w)},), got {tuple(lens.batch_shape)}"
            )
        positive("fps", self.fps)

    def __len__(self) -> int:
        return len(self.c2w)

    def __repr__(self) -> str:
        up = "" if self.up_known else ", up unknown"
        return f"Trajectory({len(self)} frames, {self.fps:g} fps, {self.lens}{up})"

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Trajectory:
        """Some of the frames; one frame is a trajectory of length 1, and a step divides the frame rate."""
        fps = self.fps
        if isinstance(index, slice):
            fps /= abs(index.step or 1)
            index = list(range(len(self))[index])
        rows = torch.atleast_1d(torch.as_tensor(index, device="cpu"))
        if rows.numel():
            rows = torch.arange(len(self), device="cpu")[rows]
        if not rows.numel():
            raise ValueError(f"no frame of {len(self)} is left by that index")
        return self._with(self.c2w[rows], self.lens[rows] if self.lens.batch_shape else self.lens, fps)

    def __add__(self, other: Trajectory) -> Trajectory:
        """All frames of this trajectory, then all of the other, each where it is: a cut."""
        return Trajectory.concatenate([self, other])

    @full_precision
    def __matmul__(self, other: Trajectory) -> Trajectory:
        """The other camera carried by this one: at every frame its pose is taken in this camera's frame.

        `dolly @ pan` drives straight while the camera pans; `pan @ dolly` drives where the pan points. The lens is
        the carried camera's, unless only the carrier's changes over time.
        """
        if len(self) != len(other) and 1 not in (len(self), len(other)):
            raise ValueError(
                f"only trajectories of equal length combine, got {len(self)} and {len(other)} frames: resample one"
            )
        if self.fps != other.fps and len(self) == len(other):
            raise ValueError(f"only trajectories of equal frame rate combine, got {self.fps:g} and {other.fps:g} fps")
        fps = self.fps if len(self) >= len(other) else other.fps
        lens = self.lens if self.lens.batch_shape and not other.lens.batch_shape else other.lens
        c2w = self.c2w @ other.c2w
        return self._with(c2w, lens.expand(len(c2w)) if lens.batch_shape == (1,) else lens, fps)

    @property
    def positions(self) -> Tensor:
        """Camera centres (N, 3) in the world."""
        return self.c2w[:, :3, 3]

    @property
    def rotations(self) -> Tensor:
        """Camera-to-world rotations (N, 3, 3)."""
        return self.c2w[:, :3, :3]

    @property
    def angles(self) -> Angles:
        """Pitch (up), yaw (right) and roll (clockwise from behind) of every frame, degrees, each (N,)."""
        return angles_from_rotation(self.rotations)

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the last."""
        return (len(self) - 1) / self.fps

    def to(self, *args: Any, **kwargs: Any) -> Trajectory:
        """The same trajectory on another device or in another floating dtype, at least float32.

        Half precision rounds rotations too coarsely to remain rotations, so asking for it gives float32.
        """
        if self.c2w.to(*args, **kwargs).dtype in (torch.bfloat16, torch.float16):
            args, kwargs = (), {"device": self.c2w.to(*args, **kwargs).device, "dtype": torch.float32}
        return self._with(self.c2w.to(*args, **kwargs), self.lens.to(*args, **kwargs))

    def with_lens(self, lens: Lens) -> Trajectory:
        """The same poses seen through another lens."""
        return self._with(self.c2w, lens)

    def lens_at(self, frame: int) -> Lens:
        """The lens of one frame."""
        return self.lens[int(frame)] if self.lens.batch_shape else self.lens

    def lens_per_frame(self) -> Lens:
        """The lens with batch shape (N,), also where it does not change."""
        return self.lens if self.lens.batch_shape else self.lens.expand(len(self))

    @staticmethod
    def concatenate(parts: Sequence[Trajectory]) -> Trajectory:
        """All frames of several trajectories in turn, each where it is."""
        if not parts:
            raise ValueError("nothing to concatenate")
        rates = {part.fps for part in parts}
        if len(rates) > 1:
            raise ValueError(f"trajectories to concatenate need one frame rate, got {sorted(rates)}: resample them")
        known = all(part.up_known for part in parts)
        c2w = torch.cat([part.c2w for part in parts])
        return Trajectory(c2w, _concatenate_lenses(parts), parts[0].fps, up_known=known)

    @full_precision
    def then(self, other: Trajectory) -> Trajectory:
        """This move, then the other one starting from the last camera of this: len(self) + len(other) - 1 frames.

        The other's world is turned about the vertical to this camera's heading, so pans stay level and "forward"
        means forward; where its first pitch or roll differ from the last here, they are carried on from here.
        """
        last, first = self[-1], other[0]
        turn = last.angles.yaw - first.angles.yaw
        zero = torch.zeros_like(turn)
        placed = rotation_from_angles(zero, turn, zero)[0]
        rotations = placed @ other.rotations @ first.rotations[0].mT @ placed.mT @ last.rotations[0]
        positions = last.positions + (other.positions - first.positions) @ placed.mT
        moved = self._with(pose_matrix(rotations, positions), other.lens, other.fps)
        return self + moved[1:] if len(moved) > 1 else self

    def at(
        self,
        frames: Tensor,  # (M,)
    ) -> Trajectory:
        """The trajectory at fractional frame numbers, clamped to its ends; whole numbers give those frames exactly."""
        at = torch.as_tensor(frames, dtype=self.c2w.dtype, device=self.c2w.device)
        times = torch.arange(len(self), dtype=self.c2w.dtype, device=self.c2w.device)
        lens = interpolate_lens(self.lens, times, at) if self.lens.batch_shape else self.lens
        return self._with(interpolate_poses(self.c2w, times, at), lens)

    def resample(self, frames: int | None = None, fps: float | None = None) -> Trajectory:
        """Another number of frames over the same path (rotation by slerp, position on a smooth curve).

        `frames` alone keeps the duration; `fps` alone keeps the speed; both play the whole path at that rate.
        """
        if frames is None and fps is None:
            raise ValueError("resample needs frames, fps or both")
        if fps is not None:
            positive("fps", fps)
        last = len(self) - 1
        if frames is None:
            assert fps is not None
            count = math.floor(self.duration * fps + 1e-6) + 1
            MAX_FRAMES.check(count, "resampling")
            at = (torch.arange(count, dtype=torch.float64, device="cpu") * self.fps / fps).clamp(max=last)
        elif frames < 1:
            raise ValueError(f"frames must be at least 1, got {frames}")
        else:
            MAX_FRAMES.check(frames, "resampling")
            at = torch.arange(frames, dtype=torch.float64, device="cpu") * (last / max(frames - 1, 1))
            if fps is None:
                fps = self.fps * (frames - 1) / last if last and frames > 1 else self.fps
        at = torch.where((at - at.round()).abs() < 1e-9, at.round(), at)
        moved = self.at(at)
        return self._with(moved.c2w, moved.lens, fps)

    @staticmethod
    def from_timestamps(
        c2w: Tensor,  # (N, 4, 4)
        seconds: Tensor,  # (N,)
        lens: Lens,
        fps: float,
    ) -> Trajectory:
        """Poses taken at uneven, increasing times, sampled evenly at `fps` from the first to the last."""
        positive("fps", fps)
        if not (torch.diff(seconds) > 0).all():
            raise ValueError("timestamps must increase")
        count = math.floor(float(seconds[-1] - seconds[0]) * fps + 1e-6) + 1
        MAX_FRAMES.check(count, "resampling")
        even = torch.arange(count, dtype=seconds.dtype, device=seconds.device) / fps
        at = (seconds[0] + even).clamp(max=float(seconds[-1]))
        if lens.batch_shape:
            lens = interpolate_lens(lens, seconds, at)
        return Trajectory(interpolate_poses(c2w, seconds, at), lens, fps)

    def latent_frames(self, stride: int = 4) -> Trajectory:
        """The cameras of a video transformer's latent frames: video frames 0, stride, 2 stride, ..."""
        rows = latent_frame_indices(len(self), stride)
        picked = self[rows]
        return self._with(picked.c2w, picked.lens, self.fps / stride)

    @full_precision
    def transformed(
        self,
        transform: Tensor,  # (4, 4)
    ) -> Trajectory:
        """The same camera in another world frame: every pose multiplied by a rigid transform from the left.

        A transform that turns the vertical makes up unknown.
        """
        vertical = (transform[1, :3].detach().double().cpu() - torch.tensor([0.0, 1.0, 0.0])).abs().max() < 1e-6
        known = self.up_known and bool(vertical)
        return Trajectory(transform.to(self.c2w) @ self.c2w, self.lens, self.fps, up_known=known)

    @full_precision
    def relative_to_first(self) -> Trajectory:
        """In the first camera's frame: the first pose becomes the identity, gravity is forgotten."""
        moved = self.transformed(invert_pose(self.c2w[0]))
        return Trajectory(moved.c2w, moved.lens, moved.fps, up_known=False)

    @full_precision
    def zero_first_yaw(self) -> Trajectory:
        """World turned about its vertical and moved so that the first camera has yaw 0 at the origin; gravity stays."""
        yaw = self.angles.yaw[0]
        zero = torch.zeros_like(yaw)
        turn = rotation_from_angles(zero, -yaw, zero)
        return self.transformed(pose_matrix(turn, -turn @ self.positions[0]))

    @full_precision
    def gravity_aligned(
        self,
        up: Tensor | Sequence[float],  # (3,)
        *,
        in_first_camera: bool = False,
    ) -> Trajectory:
        """World turned by the smallest rotation that takes `up` to [0, -1, 0].

        `up` is a direction in this world or, with `in_first_camera`, in the first camera's frame (as single-image
        calibration estimates it).
        """
        direction = torch.as_tensor(up, dtype=self.c2w.dtype, device=self.c2w.device)
        if direction.shape != (3,) or not torch.isfinite(direction).all() or direction.norm() == 0:
            raise ValueError(f"up must be a nonzero direction of 3 numbers, got {direction.tolist()}")
        if in_first_camera:
            direction = self.rotations[0] @ direction
        turn = rotation_between(direction, direction.new_tensor([0.0, -1.0, 0.0]))
        turned = self.transformed(pose_matrix(turn, torch.zeros_like(direction)))
        return Trajectory(turned.c2w, turned.lens, turned.fps)

    def levelled(self) -> Trajectory:
        """World turned so that the first camera looks level, with pitch 0 and roll 0."""
        return self.gravity_aligned([0.0, -1.0, 0.0], in_first_camera=True)

    def scaled(self, factor: float) -> Trajectory:
        """Translations multiplied by a factor; 1 / near-plane depth makes that depth the unit."""
        positive("scale factor", factor)
        return self._with(pose_matrix(self.rotations, self.positions * factor))

    def path_length(self) -> float:
        """Length of the polygon through the camera centres, in world units."""
        return torch.diff(self.positions, dim=0).norm(dim=-1).sum().item()

    @full_precision
    def maximum_rotation(self) -> float:
        """The paper's rotation score: largest angle in degrees between the first frame and any other."""
        return rotation_angle(self.rotations[0].mT @ self.rotations).max().item()

    @full_precision
    def angular_velocity(self) -> Tensor:
        """Angular velocity (N - 1, 3) between frames in degrees per second, about the axes of the camera."""
        return torch.rad2deg(rotation_log(self.rotations[:-1].mT @ self.rotations[1:])) * self.fps

    @staticmethod
    def load(
        path: str | Path,
        lens: Lens | None = None,
        fps: float | None = None,
        format: str | None = None,
        *,
        up: str | Sequence[float] | None = None,
        extrinsics: str | Path | None = None,
    ) -> Trajectory:
        """Read a trajectory file of any known format, recognised by its content.

        A given lens or frame rate replaces the file's; a file without them gets DEFAULT_LENS and DEFAULT_FPS. `up` is
        the up direction of the file's world ("+z", "0,0,1") or "first" for a level first camera, instead of what the
        format says; without it, `up_known` tells whether the format says anything. `extrinsics` is a calibration that
        says how the camera is mounted (EuRoC's sensor.yaml, Kalibr's camchain), for files with poses of a body.
        """
        from ucpe.trajectories.formats import load_trajectory

        return load_trajectory(path, lens=lens, fps=fps, format=format, up=up, extrinsics=extrinsics)

    def save(self, path: str | Path, format: str | None = None) -> None:
        """Write a trajectory file; the format follows from the name where that is clear (.json keeps everything)."""
        from ucpe.trajectories.formats import save_trajectory

        save_trajectory(self, path, format=format)

    def _with(self, c2w: Tensor, lens: Lens | None = None, fps: float | None = None) -> Trajectory:
        """Other poses in the same world, by default with the same lens and frame rate."""
        return Trajectory(c2w, lens or self.lens, self.fps if fps is None else fps, up_known=self.up_known)


def _checked_poses(c2w: Tensor) -> Tensor:
    if not isinstance(c2w, Tensor) or c2w.ndim != 3 or c2w.shape[1:] != (4, 4) or len(c2w) == 0:
        shape = tuple(c2w.shape) if isinstance(c2w, Tensor) else type(c2w).__name__
        raise ValueError(f"c2w must be a tensor of shape (frames, 4, 4) with at least one frame, got {shape}")
    if not c2w.is_floating_point():
        raise ValueError(f"c2w must be of a floating dtype, got {c2w.dtype}")
    if c2w.is_meta:
        return c2w
    values = c2w.detach().double()
    rotation = values[:, :3, :3]
    identity = torch.eye(3, dtype=rotation.dtype, device=rotation.device)
    rigid = (rotation.mT @ rotation - identity).abs().amax((-2, -1)) < ROTATION_TOLERANCE
    bottom = (values[:, 3] == values.new_tensor([0.0, 0.0, 0.0, 1.0])).all(-1)
    for good, expectation in (
        (torch.isfinite(values).all(-1).all(-1), "finite numbers"),
        (rigid & (torch.linalg.det(rotation) > 0), "a rotation (orthonormal, determinant +1) in its upper left"),
        (bottom, "[0, 0, 0, 1] as its last row"),
    ):
        if not good.all():
            frame = int((~good).nonzero()[0])
            raise ValueError(f"c2w of frame {frame} must hold {expectation}, got {c2w[frame].tolist()}")
    return c2w


def _concatenate_lenses(parts: Sequence[Trajectory]) -> Lens:
    lenses = [part.lens for part in parts]
    first = lenses[0]
    if any(type(lens) is not type(first) or lens.settings != first.settings for lens in lenses):
        raise ValueError(
            f"trajectories to concatenate need lenses of one model and calibration size, got {lenses}: "
            "fit one to the other's model, or use with_lens"
        )
    if all(lens == first and not lens.batch_shape for lens in lenses):
        return first
    full = [part.lens_per_frame() for part in parts]
    names = first.parameters
    if any(lens.parameters.keys() != names.keys() for lens in full):
        raise ValueError(f"trajectories to concatenate need lenses with the same parameters, got {lenses}")
    joined = {
        name: torch.cat([lens.parameters[name].expand(len(part)) for lens, part in zip(full, parts)]) for name in names
    }
    return first._with(joined)
