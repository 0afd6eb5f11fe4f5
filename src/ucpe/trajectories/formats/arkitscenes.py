"""lowres_wide.traj of ARKitScenes."""

from __future__ import annotations

from pathlib import Path

import torch

from ucpe.trajectories.formats.base import (
    Z_UP,
    ReadOnly,
    Recording,
    first_rows,
    parse_numbers,
    read_rows,
    seconds_of,
    without_repeats,
)
from ucpe.trajectories.formats.tum import evenly
from ucpe.trajectories.rotations import invert_pose, pose_matrix, rotation_exp


class ARKitScenes(ReadOnly):
    """One line a frame: seconds, world-to-camera axis-angle vector in radians, translation in metres.

    Converted by inversion; camera axes are ours, in a world whose z is up. Times are treated as TUM's. Lines that end
    with a unit quaternion are something else, as are those with commas or named columns (an IMU's measurements).
    """

    name = "arkitscenes"
    description = "ARKitScenes .traj: seconds, axis-angle and translation, 7 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first lines hold 7 numbers between spaces, the last four of which are not a quaternion."""
        lines = first_rows(path, 2)
        rows = [parse_numbers(row) or [] for row in lines if "," not in row]
        return len(rows) == len(lines) > 0 and all(
            len(row) == 7 and abs(sum(x * x for x in row[3:]) - 1) > 0.02 for row in rows
        )

    def read(self, path: Path) -> Recording:
        """Poses and frame rate of a file."""
        rows = read_rows(path, 7, "7 numbers (seconds, rx, ry, rz, tx, ty, tz)")
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        keep = without_repeats(path, values[:, 0], rows)
        c2w = invert_pose(pose_matrix(rotation_exp(values[keep, 1:4]), values[keep, 4:]))
        times = seconds_of(path, values[keep, 0])
        recording = Recording(c2w) if times is None else evenly(path, c2w, times)
        return recording._replace(up=Z_UP)
