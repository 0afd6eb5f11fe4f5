"""What a trajectory format is, and what reading and writing one have in common."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
import zlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Lens
from ucpe.reading import MAX_LINE, open_bytes, read_json, read_lines
from ucpe.trajectories.rotations import nearest_rotation, pose_matrix
from ucpe.trajectories.trajectory import ROTATION_TOLERANCE, Trajectory

OUR_UP = (0.0, -1.0, 0.0)
"""Up in our worlds."""

Y_UP = (0.0, 1.0, 0.0)
"""Up in the worlds of ARKit."""

Z_UP = (0.0, 0.0, 1.0)
"""Up in the worlds of Blender, nerfstudio, EuRoC and others."""

SQUARE = 0.02
"""How far the axes of a scaled rotation may be from right angles (cosine)."""

MAX_AXIS = 0.1
"""How far the axes of a scaled rotation may be from unit length."""

MAX_STEP = 10.0
"""Seconds between two poses beyond which times are taken to be in a smaller unit."""

MAX_WHOLE_STEP = 2.0
"""The same for times that are whole numbers, as a count of milliseconds is."""

MAX_DATED_STEP = 100.0
"""The same for times since 1970, whose size tells their unit."""


class Recording(NamedTuple):
    """What a file says: poses, and the lens, frame rate and up direction if it knows them."""

    c2w: Tensor  # (N, 4, 4) float64; camera axes are x right, y down, z forward, the world is the file's own
    lens: Lens | None = None
    fps: float | None = None
    up: tuple[float, float, float] | None = None
    """Direction of up in the file's world; None where the format does not say."""
    body: bool = False
    """Whether the poses are those of a vehicle or sensor rig, to which a camera is mounted."""


@dataclass(frozen=True)
class ImageSize:
    """Pixels of the image that a format's intrinsics are written for, when the lens has no size of its own."""

    height: int = 480
    width: int = 832


class TrajectoryFormat(Protocol):
    """One file format of camera trajectories."""

    name: str
    """Name of the format, as given to `load` and `save`."""

    description: str
    """One line for people: what the file is."""

    def recognises(self, path: Path) -> bool:
        """Whether the content of a file or folder is of this format."""

    def read(self, path: Path) -> Recording:
        """Poses of a file; raises ValueError naming the line that is wrong."""

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write a file that `read` returns unchanged."""


class ReadOnly:
    """A format that is read and not written."""

    name: str

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Refuse."""
        raise ValueError(f"{self.name} files are read, not written: save the path as .json, or in another format")


class Row(NamedTuple):
    """The numbers of one line of a text file."""

    line: int
    numbers: list[float]


def read_rows(
    path: Path, columns: int | Container[int], expected: str, skip_title: bool = False, used: int | None = None
) -> list[Row]:
    """Rows of numbers of a text file; blank lines, `#` comments and (if asked) a title line are skipped.

    Of each row only the first `used` numbers are kept, by default all.
    """
    rows = []
    allowed = (columns,) if isinstance(columns, int) else columns
    for line, text in enumerate(read_lines(path), start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        numbers = parse_numbers(text)
        if numbers is None and skip_title and line == 1:
            continue
        if numbers is None or len(numbers) not in allowed:
            found = f"{len(numbers)} numbers" if numbers is not None else f"{text.strip()[:60]!r}"
            raise ValueError(f"{path}, line {line}: expected {expected}, found {found}")
        numbers = numbers[:used]
        if not torch.isfinite(torch.tensor(numbers)).all():
            raise ValueError(f"{path}, line {line}: expected finite numbers, found {text.strip()[:60]!r}")
        rows.append(Row(line, numbers))
    if not rows:
        raise ValueError(f"{path} holds no poses: expected {expected}")
    return rows


def first_rows(path: Path, count: int = 1, comments: bool = False) -> list[str]:
    """The first lines of a text file that are neither blank nor comments; none if it is not text."""
    found: list[str] = []
    try:
        with open_bytes(path) as data:
            encoding = json.detect_encoding(data.read(4))
        with io.TextIOWrapper(open_bytes(path), encoding) as file:
            while text := file.readline(MAX_LINE.allowed + 1):
                MAX_LINE.check(len(text), path)
                if text.strip() and (comments or not text.lstrip().startswith("#")):
                    found.append(text)
                if len(found) == count:
                    break
    except (UnicodeError, OSError, EOFError, zlib.error):
        return []
    return found


def names_columns(path: Path) -> str:
    """The first line of a text file if it names columns, otherwise nothing."""
    lines = first_rows(path, 1, comments=True)
    header = lines[0].lstrip("# ") if lines else ""
    return header if parse_numbers(header) is None and "," in header else ""


def parse_numbers(text: str) -> list[float] | None:
    """The numbers of a line before any comment, between spaces, commas or semicolons; None if there is more."""
    try:
        return [float(word) for word in re.sub("[,;]", " ", text.split("#")[0]).split()]
    except ValueError:
        return None


def poses_of_rows(
    path: Path,
    rows: Sequence[Row],
    matrices: Tensor,  # (N, 3, 4)
) -> Tensor:
    """Poses (N, 4, 4) of 3 x 4 matrices that were read from rows of a file, checked to be rigid."""
    rotation = unscaled(path, matrices[:, :, :3])
    off = (rotation.mT @ rotation - torch.eye(3, dtype=rotation.dtype)).abs().amax((-2, -1))
    bad = (off > ROTATION_TOLERANCE) | (torch.linalg.det(rotation) < 0)
    if bad.any():
        row = rows[int(bad.nonzero()[0])]
        raise ValueError(f"{path}, line {row.line}: expected a rotation (orthonormal, determinant +1), found none")
    return pose_matrix(rotation, matrices[:, :, 3])


def poses_of_array(path: Path, array: Any) -> Tensor:
    """Poses (N, 4, 4) in float64 of an array (N, 3, 4) or (N, 4, 4), or of rows (N, 12) or (N, 16)."""
    array = np.asarray(array)
    matrices = array.reshape(len(array), -1, 4) if array.ndim == 2 and array.shape[1] in (12, 16) else array
    if matrices.ndim != 3 or matrices.shape[1:] not in ((3, 4), (4, 4)) or array.dtype.kind != "f":
        raise ValueError(
            f"{path}: expected a floating array of shape (frames, 3, 4) or (frames, 4, 4), found {array.dtype} "
            f"{array.shape}"
        )
    poses = upright(path, torch.from_numpy(matrices.astype(np.float64)))
    return pose_matrix(unscaled(path, poses[:, :, :3]), poses[:, :, 3])


def poses_of_entries(path: Path, content: dict[str, Any], name: str, key: str) -> Tensor:
    """Poses (N, 4, 4) in float64 of a list of objects, each with 12 or 16 numbers, nested or flat, under a key."""
    matrices = []
    for index, entry in enumerate(content[name]):
        try:
            matrix = torch.tensor(entry[key], dtype=torch.float64).flatten()
        except (KeyError, TypeError, ValueError, RuntimeError):
            matrix = torch.zeros(0)
        if len(matrix) not in (12, 16):
            raise ValueError(f"{path}, {name}[{index}].{key}: expected a matrix of 4 rows of 4 numbers")
        matrices.append(torch.cat([matrix, matrix.new_tensor([0, 0, 0, 1])])[:16].reshape(4, 4))
    return poses_of_array(path, torch.stack(matrices))


def upright(
    path: Path,
    matrices: Tensor,  # (N, 3, 4) or (N, 4, 4)
) -> Tensor:
    """The upper three rows (N, 3, 4) of matrices; those with 0 0 0 1 in their last column are transposed, and said so.

    Raises ValueError where neither the last row nor the last column is 0 0 0 1.
    """
    last = matrices.new_tensor([0.0, 0, 0, 1])
    if matrices.shape[1] == 3 or torch.allclose(matrices[:, 3], last.expand(len(matrices), 4), atol=1e-6):
        return matrices[:, :3]
    if not torch.allclose(matrices[:, :, 3], last.expand(len(matrices), 4), atol=1e-6):
        raise ValueError(f"{path}: expected 0 0 0 1 in the last row of every 4 x 4 matrix")
    warnings.warn(f"{path}: its matrices are transposed (0 0 0 1 is their last column) and were turned")
    return matrices.mT[:, :3]


def unscaled(
    path: Path,
    rotation: Tensor,  # (N, 3, 3)
) -> Tensor:
    """Rotations (N, 3, 3) whose axes are up to 10 % too long or short at unit length, with a warning; others as is."""
    lengths = rotation.norm(dim=-2, keepdim=True)
    straight = rotation / lengths.clamp(min=1e-12)
    identity = torch.eye(3, dtype=rotation.dtype)
    off = (rotation.mT @ rotation - identity).abs().amax((-2, -1))
    square = (straight.mT @ straight - identity).abs().amax((-2, -1)) < SQUARE
    scaled = (off > ROTATION_TOLERANCE) & square & ((lengths - 1).abs() < MAX_AXIS).all(-1).all(-1)
    scaled &= torch.linalg.det(rotation) > 0
    if not scaled.any():
        return rotation
    frame = int(scaled.nonzero()[0])
    warnings.warn(
        f"{path}: the rotations of {int(scaled.sum())} poses are scaled (pose {frame + 1} by "
        f"{float(lengths[frame].mean()):.4g}) and were made rotations"
    )
    rotation = rotation.clone()
    rotation[scaled] = nearest_rotation(straight[scaled])
    return rotation


def seconds_of(
    path: Path,
    stamps: Tensor,  # (N,)
) -> Tensor | None:
    """Seconds (N,) of a file's timestamps in seconds, milli-, micro- or nanoseconds; None where they count frames.

    A unit other than seconds, and numbers that only count frames, are said in a warning.
    """
    if len(stamps) < 2:
        return stamps - stamps
    steps = torch.diff(stamps)
    if bool((steps == 1).all()) and float(stamps[0]) < 1e8:
        warnings.warn(f"{path}: its times count frames (0, 1, 2, ...), so its frame rate is not known")
        return None
    step = float(steps[steps > 0].median()) if bool((steps > 0).any()) else 0.0
    last = abs(float(stamps[-1]))
    epochs = ((1e8, 1.0, ""), (1e11, 1e-3, "milli"), (1e14, 1e-6, "micro"), (1e17, 1e-9, "nano"))
    _, unit, name = next((epoch for epoch in reversed(epochs) if last >= epoch[0]), (0.0, math.inf, ""))
    if not step * unit < MAX_DATED_STEP:
        longest = MAX_WHOLE_STEP if bool((stamps == stamps.round()).all()) else MAX_STEP
        units = ((unit, name) for _, unit, name in epochs if step * unit <= longest)
        unit, name = next(units, (1.0, ""))
    if name:
        warnings.warn(f"{path}: its times are taken as {name}seconds")
    return (stamps - stamps[0]) * unit


def unit_quaternions(
    path: Path,
    quaternions: Tensor,  # (N, 4)
    rows: Sequence[Row],
) -> Tensor:
    """Quaternions (N, 4) of unit length; those up to 10 % too long or short with a warning, others raise."""
    lengths = quaternions.norm(dim=-1, keepdim=True)
    off = (lengths[:, 0] - 1).abs()
    bad = ~(off < MAX_AXIS)
    if bad.any():
        line = rows[int(bad.nonzero()[0])].line
        raise ValueError(f"{path}, line {line}: expected a quaternion of length 1, found {float(lengths[bad][0]):.4g}")
    if (off > 0.01).any():
        warnings.warn(f"{path}: {int((off > 0.01).sum())} quaternions are not of length 1 and were made so")
    return quaternions / lengths


def without_repeats(
    path: Path,
    seconds: Tensor,  # (N,)
    rows: Sequence[Row],
) -> Tensor:
    """Which rows (N,) to keep of those with the same time: the first, with a warning; a time that runs back raises."""
    steps = torch.diff(seconds)
    backwards = (steps < 0).nonzero()
    if len(backwards):
        raise ValueError(f"{path}, line {rows[int(backwards[0]) + 1].line}: expected a time later than before")
    keep = torch.cat([torch.ones(1, dtype=torch.bool), steps > 0])
    if not keep.all():
        line = rows[int((~keep).nonzero()[0])].line
        warnings.warn(
            f"{path}: {int((~keep).sum())} poses repeat the time before (line {line} first) and were left out"
        )
    return keep


def frame_rate_of_json(path: Path, value: Any) -> float:
    """The frame rate that a JSON file gives, checked to be a positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{path}: expected fps as a positive number, found {value!r}")
    return float(value)


def peek_json(path: Path) -> Any:
    """Parsed JSON of a file that looks like it, otherwise None."""
    start = first_rows(path)
    if not path.is_file() or not start or start[0].lstrip()[0] not in "[{":
        return None
    try:
        return read_json(path)
    except ValueError:
        return None


def image_size_of(lens: Lens, size: ImageSize) -> ImageSize:
    """The size a lens was calibrated at, otherwise the one given."""
    if "width" in lens.settings:
        return ImageSize(lens.settings["height"], lens.settings["width"])
    return size


def frame_rate(
    seconds: Tensor,  # (N,)
) -> float | None:
    """Frames per second of evenly spaced times, None for a single frame."""
    duration = float(seconds[-1] - seconds[0])
    return (len(seconds) - 1) / duration if len(seconds) > 1 and duration > 0 else None


def number(value: float) -> str:
    """Shortest text that reads back as the same number."""
    return repr(float(value))


def natural_order(name: str) -> list[tuple[int, str]]:
    """Key that sorts frame_10 after frame_9."""
    parts = re.split(r"(\d+)", str(name))
    return [(len(part.lstrip("0")), part.lstrip("0")) if part.isdigit() else (-1, part) for part in parts]
