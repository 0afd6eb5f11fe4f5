"""Clips to train on: our dataset, PanShot as published, and the desk clips."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open

from ucpe.desk import FPS
from ucpe.desk.clips import shard_paths
from ucpe.lenses import UCM
from ucpe.synthesis.dataset import ClipDataset, DatasetClip, open_dataset
from ucpe.trajectories import Trajectory


def open_source(folder: str | Path, split: str = "train") -> ClipDataset:
    """The clips of a folder, whichever of the known layouts it has; `split` is "train" or "test"."""
    folder = Path(folder)
    if any(folder.glob("clips-*.safetensors")):
        return DeskClipFiles(folder)
    if not (folder / "metadata.parquet").is_file() and not (folder / "PanShot").is_dir():
        raise ValueError(
            f"{folder} holds no clips: expected metadata.parquet (`ucpe synthesize`), a folder PanShot (the published "
            "dataset) or clips-*.safetensors (`ucpe train desk-clips`)"
        )
    dataset = open_dataset(folder, split)
    if not len(dataset):
        raise ValueError(f"{folder} has no clip of the split {split!r} with a caption and a near-plane depth")
    return dataset


class DeskClipFiles(ClipDataset):
    """The desk model's clips: rendered shards of safetensors."""

    def __init__(self, folder: Path):
        self.fps = FPS
        self.rows: list[tuple[Path, int]] = []
        self.captions: list[str] = []
        self._families: list[str] = []
        poses, lenses = [], []
        for path in shard_paths(folder):
            with safe_open(path, "pt") as file:
                metadata = file.metadata()
                poses.append(file.get_tensor("c2w"))
                lenses.append(torch.stack([file.get_tensor("xfov"), file.get_tensor("xi")], -1))
            self.rows += [(path, row) for row in range(len(poses[-1]))]
            self.captions += json.loads(metadata["captions"])
            self._families += json.loads(metadata["families"])
        self.c2w, self.lenses = torch.cat(poses).double(), torch.cat(lenses).double()

    def __len__(self) -> int:
        return len(self.rows)

    def clip(self, index: int) -> DatasetClip:
        """What is known of a clip without reading its pictures."""
        path, row = self.rows[index]
        camera = Trajectory(self.c2w[index], UCM(xfov=self.lenses[index, 0], xi=self.lenses[index, 1]), self.fps)
        name = f"{path.stem}-{row:03d}"
        return DatasetClip(name, path, self.captions[index], camera, self._families[index], row=row)
