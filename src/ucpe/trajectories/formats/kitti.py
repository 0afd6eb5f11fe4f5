"""KITTI odometry poses."""

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
    number,
    parse_numbers,
    poses_of_rows,
    read_rows,
)
from ucpe.trajectories.interpolation import interpolate_poses
from ucpe.trajectories.trajectory import Trajectory

COLUMNS = {12: (0, 3), 13: (1, 3), 16: (0, 4), 17: (1, 4)}
"""Numbers a line -> how many come before the matrix (a frame number), and its rows."""


class KITTI:
    """One line a frame: the 3 x 4 or 4 x 4 camera-to-world matrix row by row, with the same axes.

    KITTI-360 puts a frame number first; frames it leaves out are interpolated. Which way is up is not known.
    """

    name = "kitti"
    description = "KITTI and KITTI-360 .txt: 3x4 or 4x4 camera-to-world, 12, 13, 16 or 17 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first line holds a matrix."""
        return any(len(parse_numbers(row) or []) in COLUMNS for row in first_rows(path))

    def read(self, path: Path) -> Recording:
        """Poses of a file."""
        columns = len(parse_numbers((first_rows(path) or [""])[0]) or [])
        columns = columns if columns in COLUMNS else 12
        rows = read_rows(path, columns, f"{columns} numbers ({'frame, ' if columns % 4 else ''}camera-to-world)")
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        before, height = COLUMNS[columns]
        poses = poses_of_rows(path, rows, values[:, before:].reshape(-1, height, 4)[:, :3])
        if not before:
            return Recording(poses)
        frames = values[:, 0]
        backwards = (torch.diff(frames) <= 0).nonzero()
        if len(backwards):
            line = rows[int(backwards[0]) + 1].line
            raise ValueError(f"{path}, line {line}: expected a frame number higher than the line before")
        every = torch.arange(int(frames[0]), int(frames[-1]) + 1).double()
        MAX_FRAMES.check(len(every), path)
        if len(every) > len(frames):
            warnings.warn(f"{path}: {len(every) - len(frames)} frames between those given were interpolated")
        return Recording(interpolate_poses(poses, frames, every))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses; lens and frame rate are not kept."""
        rows = trajectory.c2w[:, :3].double().reshape(-1, 12).tolist()
        write_file(path, "".join(" ".join(map(number, row)) + "\n" for row in rows))
