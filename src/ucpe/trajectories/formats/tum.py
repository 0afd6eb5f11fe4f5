"""TUM trajectories, as written by ORB-SLAM, stella_vslam, evo and many others."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from ucpe.files import write_file
from ucpe.reading import MAX_FRAMES
from ucpe.trajectories.formats.base import (
    ImageSize,
    Recording,
    first_rows,
    frame_rate,
    names_columns,
    number,
    parse_numbers,
    read_rows,
    seconds_of,
    unit_quaternions,
    without_repeats,
)
from ucpe.trajectories.interpolation import interpolate_poses
from ucpe.trajectories.rotations import pose_matrix, quaternion_from_rotation, rotation_from_quaternion
from ucpe.trajectories.trajectory import Trajectory

COLUMNS = (8, 20)
"""Numbers of a line; OpenVINS and the RPG evaluation put 12 of covariances behind the pose."""

UNEVENNESS = 0.1
"""Deviation from even spacing, in frames, up to which poses are taken as they are."""


class TUM:
    """One line a frame: seconds, position, quaternion x y z w, camera-to-world with the same axes; `#` comments.

    Spaces or commas; times in seconds, or in milli-, micro- or nanoseconds with a warning. Poses that repeat a time
    are left out with a warning. Which way is up is not known: TUM's own files have z up, those of SLAM systems the
    first camera's. Unevenly spaced times (keyframes, lost frames) are resampled evenly at their median rate, with a
    warning. Covariances behind the pose are not used.
    """

    name = "tum"
    description = "TUM .txt: seconds, position and quaternion, 8 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first line holds 8 numbers, or 20."""
        return any(len(parse_numbers(row) or []) in COLUMNS for row in first_rows(path, 2))

    def read(self, path: Path) -> Recording:
        """Poses and frame rate of a file."""
        rows = read_rows(path, COLUMNS, "8 numbers (seconds, tx, ty, tz, qx, qy, qz, qw)", skip_title=True, used=8)
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        seconds, positions = values[:, 0], values[:, 1:4]
        quaternions = unit_quaternions(path, values[:, [7, 4, 5, 6]], rows)
        if "," in first_rows(path, 2)[-1] and not names_columns(path):
            warnings.warn(f"{path}: nothing says the order of its quaternions, taken as x y z w (EuRoC's are w x y z)")
        keep = without_repeats(path, seconds, rows)
        c2w = pose_matrix(rotation_from_quaternion(quaternions), positions)[keep]
        times = seconds_of(path, seconds[keep])
        return Recording(c2w) if times is None else evenly(path, c2w, times)

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses and times; the lens is not kept."""
        c2w = trajectory.c2w.double()
        quaternions = quaternion_from_rotation(c2w[:, :3, :3])[:, [1, 2, 3, 0]]
        lines = ["# seconds tx ty tz qx qy qz qw"]
        for frame, values in enumerate(torch.cat([c2w[:, :3, 3], quaternions], -1).tolist()):
            lines.append(" ".join(map(number, [frame / trajectory.fps, *values])))
        write_file(path, "\n".join(lines) + "\n")


def evenly(path: Path, c2w: torch.Tensor, seconds: torch.Tensor) -> Recording:
    """Poses at even times: as they are, or resampled at their median rate with a warning."""
    if len(seconds) < 3:
        return Recording(c2w, None, frame_rate(seconds))
    even = torch.linspace(0, 1, len(seconds), dtype=seconds.dtype) * (seconds[-1] - seconds[0]) + seconds[0]
    step = torch.diff(seconds).median()
    if (seconds - even).abs().max() <= UNEVENNESS * step:
        return Recording(c2w, None, frame_rate(seconds))
    count = round(float((seconds[-1] - seconds[0]) / step)) + 1
    MAX_FRAMES.check(count, path)
    at = torch.linspace(0, 1, count, dtype=seconds.dtype) * (seconds[-1] - seconds[0]) + seconds[0]
    warnings.warn(f"{path}: {len(seconds)} poses at uneven times were resampled to {count} even frames")
    return Recording(interpolate_poses(c2w, seconds, at), None, frame_rate(at))
