"""RealEstate10K camera files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard

import torch

from ucpe.files import write_file
from ucpe.lenses import UCM, Lens, Pinhole, PlanarLens
from ucpe.trajectories.formats.base import (
    ImageSize,
    Recording,
    Row,
    first_rows,
    frame_rate,
    image_size_of,
    number,
    parse_numbers,
    poses_of_rows,
    read_rows,
)
from ucpe.trajectories.rotations import invert_pose, quaternion_from_rotation, rotation_from_quaternion
from ucpe.trajectories.trajectory import Trajectory
from ucpe.trajectories.world_models import turns_of_shears

COLUMNS = 19
HEIGHT = 720
"""Rows of the image that the normalised intrinsics are scaled to; columns follow so that pixels are square."""


class RealEstate10K:
    """A title line (the video's address), then one line a frame: microseconds, intrinsics, world-to-camera.

    Converted from world-to-camera with the same axes, by inversion (rotations, printed with nine digits, are made
    exactly orthonormal), and from intrinsics fx fy cx cy as fractions of the image's width and height to a pinhole
    calibrated in pixels (one for all frames if they agree). CameraCtrl's and VideoX-Fun's files, whose first number
    counts frames or is always 0, hold no frame rate; the shears of VideoX-Fun's become turns.
    """

    name = "realestate10k"
    description = "RealEstate10K .txt: pinhole intrinsics and world-to-camera, 19 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first or second line holds 19 numbers."""
        return any(len(parse_numbers(row) or []) == COLUMNS for row in first_rows(path, 2))

    def read(self, path: Path) -> Recording:
        """Poses, pinhole and frame rate of a file."""
        expected = "19 numbers (microseconds, fx, fy, cx, cy, two zeros, 3x4 world-to-camera)"
        rows = read_rows(path, COLUMNS, expected, skip_title=True)
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        seconds = values[:, 0] / 1e6
        steps = torch.diff(values[:, 0])
        counted = len(rows) > 1 and bool((steps == steps[0]).all()) and float(steps[0]) in (0.0, 1.0)
        backwards = (steps <= 0).nonzero()
        if len(backwards) and not counted:
            row = rows[int(backwards[0]) + 1]
            raise ValueError(f"{path}, line {row.line}: expected a timestamp later than the line before")
        w2c = poses_of_rows(path, rows, turns_of_shears(values[:, 7:].reshape(-1, 3, 4)))
        w2c[:, :3, :3] = rotation_from_quaternion(quaternion_from_rotation(w2c[:, :3, :3]))
        rate = None if counted else frame_rate(seconds)
        return Recording(invert_pose(w2c), _pinhole(path, rows, values[:, 1:5]), rate)

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write pinhole cameras; any other lens raises."""
        size = image_size_of(trajectory.lens, size)
        lens = _as_pinhole(trajectory.lens).calibrated(size.height, size.width)
        scale = {"fx": size.width, "fy": size.height, "cx": size.width, "cy": size.height}
        columns = [(lens.parameters[name].double() / pixels).expand(len(trajectory)) for name, pixels in scale.items()]
        w2c = invert_pose(trajectory.c2w.double())
        lines = ["written by ucpe"]
        for frame, (pose, intrinsics) in enumerate(zip(w2c.tolist(), torch.stack(columns, -1).tolist())):
            values = [*intrinsics, 0.0, 0.0, *pose[0], *pose[1], *pose[2]]
            lines.append(" ".join([str(round(frame * 1e6 / trajectory.fps)), *map(number, values)]))
        write_file(path, "\n".join(lines) + "\n")


def _pinhole(path: Path, rows: list[Row], intrinsics: torch.Tensor) -> Pinhole:
    bad = ~(intrinsics[:, :2] > 0).all(-1)
    if bad.any():
        line = rows[int(bad.nonzero()[0])].line
        raise ValueError(f"{path}, line {line}: expected focal lengths fx and fy above 0 in columns 2 and 3")
    width = max(round(HEIGHT * float(intrinsics[0, 1] / intrinsics[0, 0])), 1)
    constant = bool((intrinsics == intrinsics[0]).all())
    fx, fy, cx, cy = (intrinsics[0] if constant else intrinsics).unbind(-1)
    return Pinhole(fx=fx * width, fy=fy * HEIGHT, cx=cx * width, cy=cy * HEIGHT, width=width, height=HEIGHT)


def is_pinhole(lens: Lens) -> TypeGuard[PlanarLens]:
    """Whether a lens is a pinhole, the only kind these files can hold."""
    return isinstance(lens, Pinhole) or (isinstance(lens, UCM) and not lens.parameters["xi"].any())


def _as_pinhole(lens: Lens) -> PlanarLens:
    if is_pinhole(lens):
        return lens
    raise ValueError(
        f"RealEstate10K files hold pinhole cameras only, got {lens}: use with_lens(lens.fit(Pinhole).lens) or another "
        "format (.json keeps every lens)"
    )
