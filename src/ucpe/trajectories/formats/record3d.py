"""Recordings of the Record3D app."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucpe.lenses import Lens, Pinhole
from ucpe.lenses.files.document import Section
from ucpe.reading import MAX_TEXT_BYTES, parse_json, read_json_object
from ucpe.trajectories.formats.base import ReadOnly, Recording, Row, frame_rate_of_json, peek_json, unit_quaternions
from ucpe.trajectories.formats.transforms import CAMERA
from ucpe.trajectories.rotations import pose_matrix, rotation_from_quaternion


class Record3D(ReadOnly):
    """A .r3d file, or the `metadata` in it: `poses` (quaternion x y z w, position), `K` by columns, `w`, `h`, `fps`.

    Converted from camera-to-world with OpenGL camera axes. `perFrameIntrinsicCoeffs` make a lens per frame. Poses are
    relative to the first camera, so which way is up is not known.
    """

    name = "record3d"
    description = "Record3D .r3d, or its metadata (.json)"

    def recognises(self, path: Path) -> bool:
        """Whether the file is an archive called .r3d, or a JSON object with `poses` and a size."""
        if zipfile.is_zipfile(path):
            return path.suffix.lower() == ".r3d"
        content = peek_json(path)
        return isinstance(content, dict) and {"poses", "w", "h"} <= set(content)

    def read(self, path: Path) -> Recording:
        """Poses, lens and frame rate."""
        content = _metadata(path)
        poses = _table(path, content, "poses", 7)
        rows = [Row(number, row) for number, row in enumerate(poses.tolist(), start=1)]
        quaternions = unit_quaternions(path, poses[:, [3, 0, 1, 2]], rows)
        c2w = pose_matrix(rotation_from_quaternion(quaternions), poses[:, 4:]) @ CAMERA
        fps = content.get("fps")
        return Recording(c2w, _lens(path, content), None if fps is None else frame_rate_of_json(path, fps))


def _metadata(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        return read_json_object(path)
    try:
        with zipfile.ZipFile(path) as archive, archive.open("metadata") as file:
            data = file.read(MAX_TEXT_BYTES.allowed + 1)
        text = data.decode("utf-8-sig")
    except (
        KeyError,
        UnicodeError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
    ) as error:
        raise ValueError(f"{path}: not a readable Record3D file ({error})") from None
    MAX_TEXT_BYTES.check(len(data), path)
    content = parse_json(text, f"{path}, metadata")
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected metadata to be a JSON object")
    return content


def _table(path: Path, content: dict[str, Any], key: str, columns: int) -> Tensor:
    """Rows (N, columns) of numbers."""
    try:
        table = torch.tensor(content.get(key), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        table = torch.zeros(0)
    if table.ndim != 2 or table.shape[1] != columns or not len(table) or not table.isfinite().all():
        raise ValueError(f"{path}: {key}: expected rows of {columns} numbers")
    return table


def _lens(path: Path, content: dict[str, Any]) -> Lens | None:
    size = Section(content, str(path))
    width, height = size.image_size("w h")
    if content.get("perFrameIntrinsicCoeffs"):
        values = _table(path, content, "perFrameIntrinsicCoeffs", 4)
        count = len(_table(path, content, "poses", 7))
        if len(values) != count:
            raise ValueError(f"{path}: perFrameIntrinsicCoeffs: expected {count} rows, one a pose, found {len(values)}")
        values = values[0] if bool((values == values[0]).all()) else values
    elif "K" in content:
        values = torch.tensor(size.numbers("K", "fx 0 0 0 fy 0 cx cy 1"), dtype=torch.float64)[[0, 4, 6, 7]]
    else:
        return None
    return Pinhole(**dict(zip(("fx", "fy", "cx", "cy"), values.unbind(-1))), width=width, height=height)
