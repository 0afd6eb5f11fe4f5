"""The Parquet rows that stages hand on: curated clips, motions and matches; one part per source, whole or absent.

Poses are camera-to-world in a gravity-aligned world (x right, y down, z forward), each pose as the 12 numbers of its
upper 3 x 4 block, row by row. `CURATED` is what any curation must write to be matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
import torch
from torch import Tensor

from ucpe.files import atomic_file
from ucpe.trajectories.rotations import pose_matrix

BLOCK = 4096
"""Number of rows that are written, and read, together."""

POSES = pa.list_(pa.list_(pa.float32(), 12))
"""One pose per frame."""

CURATED = pa.schema(
    {
        "id": pa.string(),  # unique over all parts
        "source": pa.string(),  # the video a clip was cut from: its clips are all for training or all for testing
        "video": pa.string(),  # the clip's own file, relative to the part's folder; "" if there is none
        "c2w": POSES,  # one per frame of the clip, in units of its near-plane depth
        "fps": pa.float64(),
        "quality": pa.float64(),  # 0 to 1, 1 is best
        "watermark": pa.float64(),  # 0 to 1, 0 is none
        "rotation_score": pa.float64(),  # largest rotation relative to the first frame, degrees
        "categories": pa.list_(pa.string()),  # what the place is; may be empty
        "motion_magnitude": pa.float64(),  # mean length of the optical flow, pixels per frame
    }
)
"""A curated panoramic clip."""

MOTIONS = pa.schema(
    {
        "id": pa.string(),  # collection/name
        "collection": pa.string(),  # where it comes from
        "split": pa.string(),  # "train" or "test" if its collection says so, "" otherwise
        "labels": pa.list_(pa.string()),  # what people wrote about it
        "c2w": POSES,  # gravity-aligned, first position at the origin, any scale
        "fps": pa.float64(),
        "velocity": pa.float64(),  # largest rotational velocity, degrees per second
        "exact": pa.bool_(),  # computed, not estimated from a video: never jittery
        "dropped": pa.string(),  # why it is not a candidate, "" if it is one
    }
)
"""The motion of a perspective camera whose rotations may be transferred."""

PAIRS = pa.schema(
    {
        "clip": pa.string(),
        "split": pa.string(),
        "dropped": pa.string(),  # why the clip was not matched, "" if it was
        "motions": pa.list_(pa.string()),  # best first
        "rmse": pa.list_(pa.float32()),  # near-plane depths
        "scale": pa.list_(pa.float32()),
        "yaw": pa.list_(pa.float32()),  # degrees
    }
)
"""The best motions of one clip."""

MATCHES = pa.schema(
    {
        "clip": pa.string(),
        "motion": pa.string(),
        "split": pa.string(),  # "train" or "test": no clip, source or motion is in both
        "score": pa.float64(),  # of the clip, 0 to 1
        "rmse": pa.float32(),  # of the aligned motion's positions against the clip's, near-plane depths
        "scale": pa.float32(),  # by which the motion was scaled to fit
        "yaw": pa.float32(),  # degrees by which it was turned about the vertical
        "fps": pa.float64(),
        "frames": pa.list_(pa.int32()),  # frame numbers of the clip that the rotations belong to
        "rotations": pa.list_(pa.list_(pa.float32(), 9)),  # camera to panorama, row by row
    }
)
"""A clip to film with the rotations of a motion: poses are [R_erp R | t_erp]."""

FINGERPRINT = b"fingerprint"
CURATED_FOLDER = b"curated"
"""Metadata of matches: where their clips are, relative to the file."""


def part_files(path: Path) -> list[Path]:
    """The Parquet files of a folder and its subfolders in order, or the given file itself."""
    path = Path(path)
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    files = [file for file in files if not any(name.startswith(".") for name in file.relative_to(path).parts)]
    if not files:
        raise ValueError(f"no Parquet file in {path}")
    return files


def read_part(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """Columns of a Parquet file, by default all of the schema, in the schema's types."""
    blocks = [block for group in range(row_groups(path)) for block in read_blocks(path, schema, columns, group)]
    return pa.concat_tables(blocks) if blocks else schema.empty_table().select(columns or schema.names)


def row_groups(path: Path) -> int:
    """Number of row groups in a Parquet file; each can be read by itself."""
    with _readable(path):
        return parquet.ParquetFile(path).num_row_groups


def read_blocks(path: Path, schema: pa.Schema, columns: Sequence[str] | None, group: int) -> Iterator[pa.Table]:
    """Columns of one row group, by default all of the schema, in the schema's types; a few rows at a time."""
    wanted = pa.schema([schema.field(name) for name in (columns or schema.names)])
    with _readable(path):
        file = parquet.ParquetFile(path, buffer_size=1 << 20)
        if missing := [name for name in wanted.names if name not in file.schema_arrow.names]:
            raise ValueError(f"{path}: no column {', '.join(missing)}; it needs {', '.join(schema.names)}")
        for batch in file.iter_batches(BLOCK, row_groups=[group], columns=wanted.names):
            batch.validate(full=True)
            yield pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)


def take_rows(path: Path, schema: pa.Schema, rows: Sequence[int]) -> pa.Table:
    """Some rows of a Parquet file by their indices; blocks after the last one are not read."""
    found, start = [schema.empty_table()], 0
    blocks = (block for group in range(row_groups(path)) for block in read_blocks(path, schema, None, group))
    while start <= max(rows, default=-1):
        block = next(blocks)
        found.append(block.take([row - start for row in rows if 0 <= row - start < block.num_rows]))
        start += block.num_rows
    return pa.concat_tables(found)


def rows_with(
    path: Path, schema: pa.Schema, column: str, values: Iterable[str], columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of a Parquet file with one of some values in a column; the other columns are read only if there are any."""
    wanted = compute.is_in(read_part(path, schema, [column])[column], value_set=pa.array(list(values), pa.string()))
    if not compute.any(wanted).as_py():
        return schema.empty_table()
    return read_part(path, schema, columns).filter(wanted)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable table ({error})") from None


def write_part(path: Path, table: pa.Table, fingerprint: str = "") -> None:
    """Write a Parquet file in one step, with a fingerprint of what it was made from."""
    metadata = {**(table.schema.metadata or {}), FINGERPRINT: fingerprint.encode()}
    with atomic_file(path) as file:
        parquet.write_table(table.replace_schema_metadata(metadata), file)


def is_current(path: Path, fingerprint: str) -> bool:
    """Whether a file exists and carries this fingerprint."""
    if not Path(path).is_file():
        return False
    try:
        return (parquet.read_schema(path).metadata or {}).get(FINGERPRINT) == fingerprint.encode()
    except (pa.ArrowInvalid, OSError):
        return False


def table_of(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table; every column of the schema must be there."""
    rows = list(rows)
    if missing := [name for row in rows for name in schema.names if name not in row]:
        raise ValueError(f"a row lacks {missing[0]}; it needs {', '.join(schema.names)}")
    return pa.Table.from_pylist(rows, schema=schema)


def pose_column(
    c2w: Tensor,  # (N, 4, 4)
) -> list[np.ndarray]:
    """Poses as a row's `c2w`, N times 12 numbers."""
    return list(c2w[:, :3].reshape(-1, 12).detach().cpu().numpy().astype(np.float32))


def poses_of(numbers: Any) -> Tensor:
    """Poses (N, 4, 4) float64 of a row's `c2w`, N times 12 numbers."""
    upper = torch.from_numpy(np.array(numbers, np.float64)).reshape(-1, 3, 4)
    return pose_matrix(upper[:, :, :3], upper[:, :, 3])


def poses_of_row(column: pa.ChunkedArray, index: int) -> Tensor:
    """Poses (N, 4, 4) float64 of one row of a `c2w` column."""
    return poses_of(column[index].values.flatten().to_numpy(zero_copy_only=False))


def flat_poses(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """All poses (F, 12) of a `c2w` column one after the other, and the index (P + 1,) at which each row starts."""
    rows = column.combine_chunks()
    if isinstance(rows, pa.ChunkedArray):
        rows = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], rows.type)
    return rows.values.flatten().to_numpy(zero_copy_only=False).reshape(-1, 12), rows.offsets.to_numpy()
