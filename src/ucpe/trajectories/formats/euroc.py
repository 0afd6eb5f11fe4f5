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
    parse_numbers,
    seconds_of,
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
        """Whether the header names a quaternion that starts with w, or lines with commas start with nanoseconds."""
        if path.is_dir():
            return False
        header = _header(path)
        if header:
            return bool(re.search(r"q\w*_?w\b.*q\w*_?x\b", header, re.I))
        rows = first_rows(path)
        numbers = parse_numbers(rows[0]) if rows and "," in rows[0] else None
        return bool(numbers) and len(numbers or []) in (8, 17) and (numbers or [0])[0] > NANOSECONDS

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
        bad = ~((values[:, 4:8].norm(dim=-1) - 1).abs() <= 0.01)
        if bad.any() or not torch.isfinite(values).all():
            line = rows[int(bad.nonzero()[0]) if bad.any() else 0].line
            raise ValueError(f"{path}, line {line}: expected a quaternion of length 1 in numbers 5 to 8")
        keep = without_repeats(path, values[:, 0], rows)
        values = values[keep]
        c2w = pose_matrix(rotation_from_quaternion(values[:, 4:8]), values[:, 1:4])
        seconds = (
            (values[:, 0] - values[0, 0]) * 1e-9 if values[-1, 0] > NANOSECONDS else seconds_of(path, values[:, 0])
        )
        even = Recording(c2w) if seconds is None else evenly(path, c2w, seconds)
        return even._replace(up=Z_UP, body=True)


def _header(path: Path) -> str:
    """The first line, if it names columns."""
    lines = first_rows(path, 1, comments=True)
    return lines[0] if lines and parse_numbers(lines[0].lstrip("# ")) is None and "," in lines[0] else ""
