"""EuRoC ground truth."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ucpe.reading import read_lines
from ucpe.trajectories.formats.base import (
    Z_UP,
    ReadOnly,
    Recording,
    Row,
    first_rows,
    names_columns,
    parse_numbers,
    seconds_of,
    unit_quaternions,
    without_repeats,
)
from ucpe.trajectories.formats.tum import evenly
from ucpe.trajectories.rotations import pose_matrix, rotation_from_quaternion

NANOSECONDS = 1e15
"""Times from here on are nanoseconds since 1970."""


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
        rows = []
        for line, text in enumerate(read_lines(path), start=1):
            numbers = parse_numbers(text)
            if not text.strip() or text.lstrip().startswith("#") or (numbers is None and line == 1):
                continue
            if numbers is None or len(numbers) < 8:
                found = f"{len(numbers)} numbers" if numbers is not None else repr(text.strip()[:60])
                raise ValueError(f"{path}, line {line}: expected nanoseconds, position and quaternion, found {found}")
            rows.append(Row(line, numbers[:8]))
        if not rows:
            raise ValueError(f"{path} holds no poses: expected nanoseconds, position and quaternion")
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        if not torch.isfinite(values).all():
            line = rows[int((~torch.isfinite(values).all(-1)).nonzero()[0])].line
            raise ValueError(f"{path}, line {line}: expected finite numbers")
        values[:, 4:8] = unit_quaternions(path, values[:, 4:8], rows)
        keep = without_repeats(path, values[:, 0], rows)
        values = values[keep]
        c2w = pose_matrix(rotation_from_quaternion(values[:, 4:8]), values[:, 1:4])
        seconds = (
            (values[:, 0] - values[0, 0]) * 1e-9 if values[-1, 0] > NANOSECONDS else seconds_of(path, values[:, 0])
        )
        even = Recording(c2w) if seconds is None else evenly(path, c2w, seconds)
        return even._replace(up=Z_UP, body=True)
