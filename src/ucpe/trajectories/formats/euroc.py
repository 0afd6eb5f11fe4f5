"""EuRoC ground truth."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ucpe.trajectories.formats.base import (
    Z_UP,
    ReadOnly,
    Recording,
    first_rows,
    names_columns,
    parse_numbers,
    read_rows,
    seconds_of,
    unit_quaternions,
    without_repeats,
)
from ucpe.trajectories.formats.tum import evenly
from ucpe.trajectories.rotations import pose_matrix, rotation_from_quaternion

NANOSECONDS = 1e15
"""Times from here on are nanoseconds since 1970."""

MAX_COLUMNS = 1000
"""Numbers of a line, of which those behind the pose are not used."""


class EuRoC(ReadOnly):
    """`data.csv`: nanoseconds, position, quaternion w x y z, and velocities and biases that are not used.

    The poses are the body's (the IMU's) in a world whose z is up: a camera's extrinsics make them the camera's.
    """

    name = "euroc"
    description = "EuRoC .csv: nanoseconds, position and quaternion w x y z of the body, 8 numbers a line or more"

    def recognises(self, path: Path) -> bool:
        """Whether the header names a quaternion that starts with w, or lines hold nanoseconds and 16 numbers more."""
        if path.is_dir():
            return False
        header = names_columns(path)
        if header:
            return bool(re.search(r"q\w*_?w\b.*q\w*_?x\b", header, re.I))
        numbers = [parse_numbers(row) or [] for row in first_rows(path)]
        return any(len(row) == 17 and row[0] > NANOSECONDS for row in numbers)

    def read(self, path: Path) -> Recording:
        """Poses of the body and frame rate."""
        expected = "nanoseconds, position and quaternion"
        rows = read_rows(path, range(8, MAX_COLUMNS), expected, skip_title=True, used=8)
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        values[:, 4:8] = unit_quaternions(path, values[:, 4:8], rows)
        keep = without_repeats(path, values[:, 0], rows)
        values = values[keep]
        c2w = pose_matrix(rotation_from_quaternion(values[:, 4:8]), values[:, 1:4])
        seconds = (
            (values[:, 0] - values[0, 0]) * 1e-9 if values[-1, 0] > NANOSECONDS else seconds_of(path, values[:, 0])
        )
        even = Recording(c2w) if seconds is None else evenly(path, c2w, seconds)
        return even._replace(up=Z_UP, body=True)
