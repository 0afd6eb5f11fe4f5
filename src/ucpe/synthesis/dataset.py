"""Clips on disk: `metadata.parquet`, one row per clip, beside `videos/`; read, written and exported.

Hugging Face `datasets` reads the folder as it is (`load_dataset("videofolder", data_dir=...)`, by its column
`file_name`). Poses are camera-to-world, gravity-aligned, in units of the clip's near-plane depth, the first camera at
the origin.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import Unpack

from ucpe.files import atomic_file, file_fingerprint, fingerprint_of
from ucpe.lenses import lens_family, lens_from_dict
from ucpe.reading import inside, parse_json
from ucpe.trajectories import Trajectory
from ucpe.work import Item, JsonParts, Quarantine, Stage, WorkArguments, complete, folder_lock, run

METADATA = "metadata.parquet"

SHARDS = ".shards"
"""Folder with a record of each exported shard."""


@dataclass(frozen=True)
class Pictures:
    """Where the pictures of a clip are: in a video, or in a row of a shard of desk clips. Any process can read them."""

    path: Path
    row: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.row is None else f"{self.path}, clip {self.row}"

    def key(self) -> str:
        """Short name that changes when the pictures do, and is the same wherever the file lies."""
        return file_fingerprint(self.path) + ("" if self.row is None else f"-{self.row:03d}")

    def read(self, frames: int | None = None) -> Tensor:
        """The pictures (N, H, W, 3) uint8: all, or the first `frames`."""
        if self.row is None:
            from ucpe.video import read_frames

            return torch.from_numpy(read_frames(self.path, frames=frames))
        from safetensors import safe_open

        with safe_open(self.path, "pt") as file:
            return file.get_slice("video")[self.row][:frames]

    def video(self, frames: int, height: int, width: int) -> Tensor:
        """The first `frames` pictures, resized to (frames, height, width, 3) uint8."""
        return sized(self.read(frames), str(self), frames, height, width)


@dataclass(frozen=True)
class DatasetClip:
    """What is known about a clip without reading its pictures."""

    id: str
    video: Path
    caption: str
    camera: Trajectory
    family: str
    """Name of the lens's family, as `ucpe.lenses.lens_family` gives it."""
    source: str = ""
    split: str = "train"
    variant: str = "original"
    near_depth: float = 1.0
    """Near-plane depth by which positions were divided, in their original units."""
    height: int = 480
    width: int = 832
    categories: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    row: int | None = None
    """Row of the clip if `video` is a shard of desk clips, else None."""

    @property
    def pictures(self) -> Pictures:
        """Where its pictures are."""
        return Pictures(self.video, self.row)


class ClipDataset(Dataset[dict[str, Any]]):
    """Clips as a torch Dataset: an item has `video` (N, H, W, 3) uint8, `c2w` (N, 4, 4), `lens`, `caption` and `id`.

    `clip(index)` is all that is known about a clip, without decoding it. A DataLoader stacks lenses of one model.
    """

    def __init__(self, clips: Sequence[DatasetClip]):
        self.clips = clips

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One clip with its pictures."""
        clip = self.clip(index)
        return {
            "id": clip.id,
            "video": self.video(index),
            "caption": clip.caption,
            "c2w": clip.camera.c2w,
            "lens": clip.camera.lens,
        }

    def clip(self, index: int) -> DatasetClip:
        """What is known about a clip without reading its pictures."""
        return self.clips[index]

    def families(self) -> list[str]:
        """Lens families of all clips."""
        return [self.clip(index).family for index in range(len(self))]

    def names(self) -> list[str]:
        """Names of the video files of all clips, without suffix."""
        return [self.clip(index).video.stem for index in range(len(self))]

    def video(self, index: int, frames: int | None = None) -> Tensor:
        """The pictures (N, H, W, 3) uint8 of a clip: all, or the first `frames`."""
        return self.clip(index).pictures.read(frames)


class ClipFolder(ClipDataset):
    """The folder that `ucpe synthesize` writes; rows stay in compact columns until asked for."""

    def __init__(self, folder: str | Path, split: str | None = None):
        self.folder, self.split = Path(folder), split
        table = read_metadata(self.folder)
        if split is not None:
            import pyarrow.compute as compute

            table = table.filter(compute.equal(table["split"], split))
        self.table = table

    def __reduce__(self) -> tuple[Any, ...]:
        return ClipFolder, (self.folder, self.split)  # another process reads the table itself

    def __len__(self) -> int:
        return self.table.num_rows

    def families(self) -> list[str]:
        """Lens families of all clips."""
        return self.table["family"].to_pylist()

    def names(self) -> list[str]:
        """Names of the video files of all clips, without suffix."""
        return [Path(name).stem for name in self.table["file_name"].to_pylist()]

    def clip(self, index: int) -> DatasetClip:
        """What is known about a clip without reading its pictures."""
        row = self.table.slice(range(len(self))[index], 1).to_pylist()[0]
        return clip_of_row(self.folder, row)


class PanShotFolder(ClipDataset):
    """PanShot as its authors publish it (a folder with `PanShot` and `PanFlow` inside), with the same interface."""

    def __init__(self, folder: str | Path, split: str = "train"):
        from ucpe.trajectories.formats.captioned import read_panshot

        self.folder, self.split = Path(folder), split
        self.cameras = [camera for camera in read_panshot(folder, split) if camera.scale is not None]

    def __len__(self) -> int:
        return len(self.cameras)

    def names(self) -> list[str]:
        """Names of the video files of all clips, without suffix."""
        return [camera.video.stem for camera in self.cameras if camera.video is not None]

    def clip(self, index: int) -> DatasetClip:
        """What is known about a clip without reading its pictures; its size is the published 480 x 832."""
        camera = self.cameras[index]
        assert camera.video is not None and camera.scale is not None
        match = camera.pose.stem  # the video's name is this, then the lens
        return DatasetClip(
            id=camera.video.stem,
            video=camera.video,
            caption=camera.caption,
            camera=camera.trajectory(),
            family=lens_family(camera.lens),
            source=match.rsplit("-", 3)[0],
            split=self.split,
            variant=PANSHOT_VARIANTS.get(match.rsplit("-", 1)[-1].rsplit("_", 1)[0], "original"),
            near_depth=1 / camera.scale,
        )


PANSHOT_VARIANTS = {"no_rot_aug": "original", "yaw_aug": "yaw", "yaw_pitch_aug": "yaw_pitch", "linear_aug": "panning"}
"""Our names for PanShot's variants."""


def open_dataset(folder: str | Path, split: str | None = None) -> ClipDataset:
    """The clips of a folder, ours or PanShot's."""
    folder = Path(folder)
    if (folder / METADATA).is_file():
        return ClipFolder(folder, split)
    if (folder / "PanShot").is_dir():
        return PanShotFolder(folder, split or "train")
    raise ValueError(f"{folder}: holds neither {METADATA} (`ucpe synthesize`) nor a folder PanShot")


def sized(video: Tensor, name: str, frames: int, height: int, width: int) -> Tensor:
    """The first `frames` of a video (N, H, W, 3) uint8, resized to height x width, which must have its aspect ratio."""
    count, rows, columns = video.shape[:3]
    if count < frames:
        raise ValueError(f"{name} has {count} frames, training needs {frames}: set --frames {(count - 1) // 4 * 4 + 1}")
    if abs(rows * width / (columns * height) - 1) > 0.02:
        raise ValueError(
            f"{name} is {rows} x {columns}: at {height} x {width} it would be squeezed, and no longer fit its lens"
        )
    video = video[:frames]
    if (rows, columns) == (height, width):
        return video
    import cv2

    pictures = [cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in video.numpy()]
    return torch.stack([torch.from_numpy(picture) for picture in pictures])


FACTS = ("id", "source", "split", "caption", "family", "variant", "near_depth", "height", "width")
"""Columns of `metadata.parquet` that are fields of a clip as they are."""


def clip_row(clip: DatasetClip, seed: int = 0, start: int = 0) -> dict[str, Any]:
    """The row of a clip in `metadata.parquet`."""
    parameters = clip.camera.lens.parameters
    numbers = {name: float(parameters[name]) if name in parameters else None for name in ("xfov", "xi")}
    if numbers["xfov"] is None:
        numbers["xfov"] = float(clip.camera.lens.xfov(clip.height, clip.width))
    return {
        **{name: getattr(clip, name) for name in FACTS},
        "file_name": f"videos/{clip.video.name}",
        "lens": json.dumps(clip.camera.lens.to_dict()),
        **numbers,
        "poses": clip.camera.c2w[:, :3].reshape(-1, 12).float().tolist(),
        "fps": clip.camera.fps,
        "frames": len(clip.camera),
        "categories": list(clip.categories),
        "scores": json.dumps(clip.scores, sort_keys=True),
        "start": start,
        "seed": seed,
    }


def clip_of_row(folder: Path, row: dict[str, Any]) -> DatasetClip:
    """The clip of a row of `metadata.parquet`, whose video lies in the folder."""
    where = f"{folder / METADATA}, clip {row['id']!r}"
    if missing := [name for name in schema().names if row.get(name) is None and name not in ("xfov", "xi")]:
        raise ValueError(f"{where}: no value for {', '.join(missing)}")
    try:
        poses = torch.tensor(row["poses"], dtype=torch.float64).reshape(-1, 3, 4)
        last = torch.tensor([0.0, 0, 0, 1], dtype=torch.float64).expand(len(poses), 1, 4)
        lens = lens_from_dict(parse_json(row["lens"], "lens"))
        camera = Trajectory(torch.cat([poses, last], 1), lens, row["fps"])
        scores = {str(name): float(score) for name, score in parse_json(row["scores"], "scores").items()}
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{where}: {error}") from None
    if row["id"] != inside("", row["id"], where).name:
        raise ValueError(f"{where}: an id must not contain a path")
    return DatasetClip(
        **{name: row[name] for name in FACTS},
        video=inside(folder, row["file_name"], where),
        camera=camera,
        categories=tuple(row["categories"]),
        scores=scores,
    )


def schema() -> Any:
    """Columns of `metadata.parquet`."""
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int64()
    columns = {name: text for name in ("file_name", "id", "source", "split", "caption", "family", "variant", "lens")}
    columns |= {"xfov": number, "xi": number, "poses": pa.list_(pa.list_(pa.float32()))}
    columns |= {"fps": number, "frames": whole, "height": whole, "width": whole, "near_depth": number}
    return pa.schema({**columns, "categories": pa.list_(text), "scores": text, "start": whole, "seed": whole})


def write_metadata(folder: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write `metadata.parquet` from its rows; return their number."""
    import pyarrow as pa

    from ucpe.synthesis.rows import BLOCK

    rows, tables = iter(rows), [schema().empty_table()]
    while block := list(islice(rows, BLOCK)):
        tables.append(pa.Table.from_pylist(block, schema()))
    table = pa.concat_tables(tables)
    write_table(folder, table)
    return table.num_rows


def write_table(folder: Path, table: Any) -> None:
    """Write `metadata.parquet`, sorted by id, in one step."""
    import pyarrow.parquet as parquet

    from ucpe.synthesis.rows import BLOCK

    with atomic_file(folder / METADATA) as file:
        parquet.write_table(table.sort_by("id"), file, row_group_size=BLOCK)


def read_metadata(folder: Path, columns: Sequence[str] | None = None) -> Any:
    """The table of a dataset, or some of its columns."""
    from ucpe.synthesis.rows import read_part

    if not (folder / METADATA).is_file():
        raise ValueError(f"{folder}: no {METADATA}; `ucpe synthesize` writes one once all its clips are made")
    return read_part(folder / METADATA, schema(), columns)


@dataclass
class Exporting(Stage):
    """Writes a tar shard of some clips; its part notes the shard's size."""

    dataset: ClipDataset
    folder: Path
    name = "shards"

    def __post_init__(self) -> None:
        self.parts = JsonParts(self.folder / SHARDS)

    def find(self, item: Item) -> dict[str, Any] | None:
        """The record of a shard whose file is there, complete; else None."""
        part = super().find(item)
        file = self.folder / f"{item.id}.tar"
        return part if part is not None and file.is_file() and file.stat().st_size == part["bytes"] else None

    def process(self, task: tuple[str, Sequence[int]]) -> dict[str, Any]:
        """Write one shard, given its name and the indices of its clips; return its record."""
        path, indices = self.folder / f"{task[0]}.tar", task[1]
        with atomic_file(path) as partial, tarfile.open(partial, "w") as tar:
            for index in indices:
                for name, content in _members(self.dataset.clip(index)):
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
        return {"bytes": path.stat().st_size}

    def fingerprint(self, indices: Sequence[int]) -> str:
        """Fingerprint of some clips: of what is known about them, and of their videos."""
        clips = [self.dataset.clip(index) for index in indices]
        for clip in clips:
            if not clip.video.is_file():
                raise FileNotFoundError(f"{clip.video}: the video of clip {clip.id} is not there")
        return fingerprint_of([[clip_row(clip), file_fingerprint(clip.video)] for clip in clips])


def export_webdataset(
    dataset: ClipDataset,
    folder: str | Path,
    shard_clips: int = 100,
    **work: Unpack[WorkArguments],
) -> list[Path]:
    """Write tar shards of ID.mp4, ID.txt (caption) and ID.json (the rest) for WebDataset; same clips, same bytes."""
    if shard_clips < 1:
        raise ValueError(f"a shard holds at least 1 clip, got {shard_clips}")
    stage = Exporting(dataset, Path(folder))
    starts = range(0, len(dataset), shard_clips)
    shards = {
        f"clips-{number:06d}": range(start, min(start + shard_clips, len(dataset)))
        for number, start in enumerate(starts)
    }
    items = [Item(name, (name, indices), stage.fingerprint(indices)) for name, indices in shards.items()]
    with folder_lock(stage.folder):
        complete(run(stage, items, quarantine=Quarantine(stage.folder / SHARDS), **work))
    return [stage.folder / f"{name}.tar" for name in shards]


def _members(clip: DatasetClip) -> Iterator[tuple[str, bytes]]:
    row = clip_row(clip)
    facts = {key: value for key, value in row.items() if key not in ("file_name", "caption", "seed", "start")}
    facts |= {"lens": json.loads(row["lens"]), "scores": clip.scores}
    yield f"{clip.id}.mp4", clip.video.read_bytes()
    yield f"{clip.id}.txt", clip.caption.encode()
    yield f"{clip.id}.json", json.dumps(facts, sort_keys=True).encode()
