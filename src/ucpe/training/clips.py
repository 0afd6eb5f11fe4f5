"""Where training clips come from: our dataset, PanShot as published, the desk clips; one small protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from ucpe.files import file_fingerprint
from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames


@dataclass(frozen=True)
class TrainingClip:
    """What is known of a clip without reading its pictures."""

    name: str
    """For messages: where the clip is."""
    caption: str
    camera: Trajectory
    family: str
    """Lens family, by which validation is reported."""


@dataclass(frozen=True)
class Pictures:
    """Where the pictures of a clip are: in a video, or in a row of a shard of desk clips. Any process can read them."""

    path: Path
    row: int | None = None

    def __str__(self) -> str:
        return str(self.path) if self.row is None else f"{self.path}, clip {self.row}"

    def key(self) -> str:
        """Short name that changes when the pictures do, the same wherever the file lies."""
        return file_fingerprint(self.path) + ("" if self.row is None else f"-{self.row:03d}")

    def video(self, frames: int, height: int, width: int) -> Tensor:
        """The first frames at a size, (N, H, W, 3) uint8."""
        if self.row is None:
            video = torch.from_numpy(read_frames(self.path, frames=frames))
        else:
            with safe_open(self.path, "pt") as file:
                video = file.get_slice("video")[self.row]
        return sized(video, str(self), frames, height, width)


class TrainingClips(Protocol):
    """A numbered set of clips with captions and cameras. Another layout on disk is another class with these members."""

    def __len__(self) -> int:
        """How many clips there are."""

    def __getitem__(self, index: int) -> TrainingClip:
        """One clip without its pictures; cheap."""

    def pictures(self, index: int) -> Pictures:
        """Where the pictures of a clip are."""


def open_source(folder: str | Path, split: str = "train") -> TrainingClips:
    """The clips of a folder, whichever of the known layouts it has; `split` is "train" or "test"."""
    folder = Path(folder)
    if any(folder.glob("clips-*.safetensors")):
        return DeskClipFiles(folder)
    if (folder / "metadata.parquet").is_file() or (folder / "PanShot").is_dir():
        return DatasetClips(folder, split)
    raise ValueError(
        f"{folder} holds no clips: expected metadata.parquet (`ucpe synthesize`), a folder PanShot (the published "
        "dataset) or clips-*.safetensors (`ucpe train desk-clips`)"
    )


class DatasetClips:
    """The folder that `ucpe synthesize` writes, or PanShot as its authors publish it."""

    def __init__(self, folder: Path, split: str = "train"):
        from ucpe.synthesis.dataset import open_dataset

        self.dataset = open_dataset(folder, split)
        if not len(self.dataset):
            raise ValueError(f"{folder} has no clip of the split {split!r} with a caption and a near-plane depth")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> TrainingClip:
        """One clip without its pictures."""
        clip = self.dataset.clip(index)
        return TrainingClip(str(clip.video), clip.caption, clip.camera, clip.family)

    def pictures(self, index: int) -> Pictures:
        """The video file of a clip."""
        return Pictures(self.dataset.clip(index).video)


class DeskClipFiles:
    """The desk model's clips: rendered shards of safetensors."""

    def __init__(self, folder: Path):
        from ucpe.desk import FPS
        from ucpe.desk.clips import shard_paths

        self.fps = FPS
        self.rows: list[Pictures] = []
        self.captions: list[str] = []
        self.families: list[str] = []
        poses, lenses = [], []
        for path in shard_paths(folder):
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
                poses.append(file.get_tensor("c2w"))
                lenses.append(torch.stack([file.get_tensor("xfov"), file.get_tensor("xi")], -1))
            self.rows += [Pictures(path, row) for row in range(len(poses[-1]))]
            self.captions += json.loads(metadata["captions"])
            self.families += json.loads(metadata["families"])
        self.c2w, self.lenses = torch.cat(poses).double(), torch.cat(lenses).double()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> TrainingClip:
        """One clip without its pictures."""
        lens = UCM(xfov=self.lenses[index, 0], xi=self.lenses[index, 1])
        camera = Trajectory(self.c2w[index], lens, self.fps)
        return TrainingClip(str(self.rows[index]), self.captions[index], camera, self.families[index])

    def pictures(self, index: int) -> Pictures:
        """The shard of a clip, and its row in it."""
        return self.rows[index]


def sized(video: Tensor, name: str, frames: int, height: int, width: int) -> Tensor:
    """The first frames of a video (N, H, W, 3) uint8 at another size of the same shape."""
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
