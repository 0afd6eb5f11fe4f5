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
    upright,
)
from ucpe.trajectories.interpolation import interpolate_poses
from ucpe.trajectories.trajectory import Trajectory

COLUMNS = {12: (0, 3), 13: (1, 3), 16: (0, 4), 17: (1, 4)}
"""Numbers a line -> how many come before the matrix (a frame number), and its rows."""

BLOCK = (4, 3)
"""Numbers a line of matrices written row under row, and of the lines between them in Redwood's .log."""


class KITTI:
    """One line a frame: the 3 x 4 or 4 x 4 camera-to-world matrix row by row, with the same axes.

    KITTI-360 puts a frame number first; frames it leaves out are interpolated. Matrices may also be written row under
    row, as in 7-Scenes, ScanNet and Redwood's .log. Which way is up is not known.
    """

    name = "kitti"
    description = "KITTI and KITTI-360 .txt: 3x4 or 4x4 camera-to-world; 12, 13, 16, 17 or 4 numbers a line"

    def recognises(self, path: Path) -> bool:
        """Whether the first line holds a matrix, or the first rows do."""
        counts = [len(parse_numbers(row) or []) for row in first_rows(path, 4)]
        return any(count in COLUMNS for count in counts[:1]) or counts[-3:] == [4, 4, 4]

    def read(self, path: Path) -> Recording:
        """Poses of a file."""
        columns = len(parse_numbers((first_rows(path) or [""])[0]) or [])
        if columns in BLOCK:
            return Recording(_blocks(path))
        columns = columns if columns in COLUMNS else 12
        rows = read_rows(path, columns, f"{columns} numbers ({'frame, ' if columns % 4 else ''}camera-to-world)")
        values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
        before, height = COLUMNS[columns]
        poses = poses_of_rows(path, rows, upright(path, values[:, before:].reshape(-1, height, 4)))
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


def _blocks(path: Path) -> torch.Tensor:
    """Poses (N, 4, 4) of matrices written row under row."""
    rows = [row for row in read_rows(path, BLOCK, "4 numbers, a row of a matrix") if len(row.numbers) == 4]
    values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
    height = 4 if len(values) % 4 == 0 and (values[3] - values.new_tensor([0.0, 0, 0, 1])).abs().max() < 1e-6 else 3
    if len(values) % height:
        raise ValueError(f"{path}: expected whole matrices of {height} rows of 4 numbers, found {len(values)} rows")
    return poses_of_rows(path, rows[::height], upright(path, values.reshape(-1, height, 4)))
