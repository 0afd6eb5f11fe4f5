"""KITTI odometry poses."""

from __future__ import annotations

from pathlib import Path

import torch

from ucpe.trajectories.formats.base import (
    ImageSize,
    Recording,
    first_rows,
    number,
    parse_numbers,
    poses_of_rows,
    read_rows,
    write_atomically,
)
from ucpe.trajectories.trajectory import Trajectory


class KITTI:
    """One line a frame: the 3 x 4 camera-to-world matrix row by row, with the same axes."""

    name = "kitti"
    description = "KITTI .txt: 3x4 camera-to-world, 12 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first line holds 12 numbers."""
        return any(len(parse_numbers(row) or []) == 12 for row in first_rows(path))

    def read(self, path: Path) -> Recording:
        """Poses of a file."""
        rows = read_rows(path, 12, "12 numbers (3x4 camera-to-world)")
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        return Recording(poses_of_rows(path, rows, values.reshape(-1, 3, 4)))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses; lens and frame rate are not kept."""
        rows = trajectory.c2w[:, :3].double().reshape(-1, 12).tolist()
        write_atomically(path, "".join(" ".join(map(number, row)) + "\n" for row in rows))
