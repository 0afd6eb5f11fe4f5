"""Camera poses of MotionCtrl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucpe.reading import read_json
from ucpe.trajectories.formats.base import ReadOnly, Recording, peek_json, poses_of_array
from ucpe.trajectories.rotations import invert_pose


class MotionCtrl(ReadOnly):
    """A JSON list of 3 x 4 world-to-camera matrices, 12 numbers each, row by row.

    Converted by inversion; camera axes are ours. Lens, frame rate and up are not known.
    """

    name = "motionctrl"
    description = "MotionCtrl .json: a list of 3x4 world-to-camera matrices, 12 numbers each"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON list whose first entry holds 12 numbers."""
        content = peek_json(path)
        return isinstance(content, list) and bool(content) and _is_matrix(content[0])

    def read(self, path: Path) -> Recording:
        """Poses of a file."""
        rows = read_json(path)
        for frame, row in enumerate(rows):
            if not _is_matrix(row):
                raise ValueError(f"{path}: [{frame}]: expected 12 numbers, a world-to-camera matrix row by row")
        return Recording(invert_pose(poses_of_array(path, [[float(value) for value in row] for row in rows])))


def _is_matrix(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 12 and all(type(value) in (int, float) for value in row)
