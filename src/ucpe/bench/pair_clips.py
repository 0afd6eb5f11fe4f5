"""Clips of the generation benchmark: a first frame and four from the far end of a motion, as two latent frames.

Latents are principal components of blocks of 8 x 8 pixels (and four frames), decoded linearly: nothing is learned, and
no autoencoder's taste stands between a model and what it was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ucpe.desk import HEIGHT, WIDTH
from ucpe.desk.clips import CLIPS_PER_SHARD, DeskClips, load_shard, render_shard, shard_paths
from ucpe.trajectories import Trajectory

KEPT = (0, 13, 14, 15, 16)
"""Frames of a 17-frame clip: the first, and those of the last latent frame."""

PAIRS: dict[str, Any] = {"style": "plain", "kept": KEPT}
"""How pairs are rendered, unlike other desk clips."""

STRIDE = 8
"""Pixels along a side of a latent pixel."""

CHANNELS = 16
"""Components kept of a block."""


@dataclass
class PairClips:
    """Pairs with their cameras and captions."""

    video: Tensor  # (B, 5, H, W, 3) uint8
    cameras: list[Trajectory]
    captions: list[str]
    near_depth: Tensor  # (B,) metres

    def __len__(self) -> int:
        return len(self.video)


def missing_shards(clips: int, first_seed: int, folder: Path, **how: Any) -> dict[str, partial[Path]]:
    """What renders the shards, by name, that bring a folder to this number of desk clips."""
    numbers = range(-(-clips // CLIPS_PER_SHARD))
    missing = [number for number in numbers if not (folder / f"clips-{number:05d}.safetensors").exists()]
    return {f"{folder.name} {number}": partial(render_shard, number, first_seed, folder, **how) for number in missing}


def load_pairs(folder: Path, clips: int) -> PairClips:
    """The first clips of a folder."""
    parts: list[DeskClips] = []
    for path in shard_paths(folder):
        parts.append(load_shard(path))
        if sum(len(part.video) for part in parts) >= clips:
            break
    cameras = [
        Trajectory(part.c2w[index].double(), part.lens(index), fps=8)
        for part in parts
        for index in range(len(part.video))
    ]
    near = [part.near_depth for part in parts if part.near_depth is not None]
    video = torch.cat([part.video for part in parts])[:clips]
    if len(video) < clips or len(near) < len(parts):
        raise ValueError(f"{folder} holds {len(video)} pairs of this benchmark, and {clips} are needed: remove it")
    captions = [caption for part in parts for caption in part.captions]
    return PairClips(video, cameras[:clips], captions[:clips], torch.cat(near)[:clips])


@dataclass
class PrincipalLatents:
    """Orthonormal components of first frames and of groups of four, and the deviation of each component."""

    means: tuple[Tensor, Tensor]
    bases: tuple[Tensor, Tensor]  # (CHANNELS, 3 * 8 * 8) and (CHANNELS, 4 * 3 * 8 * 8)
    scales: tuple[Tensor, Tensor]  # (CHANNELS,)

    @classmethod
    def fit(cls, video: Tensor) -> PrincipalLatents:
        """Components of videos (B, 5, H, W, 3) uint8."""
        means, bases, scales = [], [], []
        for blocks in _blocks(video):
            flat = blocks.flatten(0, -2).double()
            mean = flat.mean(0)
            values, vectors = torch.linalg.eigh((flat - mean).T @ (flat - mean) / len(flat))
            means.append(mean.float())
            bases.append(vectors.flip(1)[:, :CHANNELS].T.float())
            # Between the components' own deviations and one for all: large ones stay large, and are learned first.
            deviation = values.flip(0)[:CHANNELS].sqrt()
            scales.append((deviation * deviation.square().mean().sqrt()).sqrt().float())
        return cls(tuple(means), tuple(bases), tuple(scales))  # type: ignore[arg-type]

    def encode(self, video: Tensor) -> Tensor:
        """Latents (B, CHANNELS, 2, H / 8, W / 8) of videos (B, 5, H, W, 3) uint8."""
        frames = [
            (blocks - mean) @ basis.T / scale
            for blocks, mean, basis, scale in zip(_blocks(video), self.means, self.bases, self.scales)
        ]
        return torch.stack(frames, dim=1).permute(0, 4, 1, 2, 3).contiguous()

    def decode(self, latents: Tensor) -> np.ndarray:
        """First and last frame (B, 2, H, W, 3) uint8 of latents (B, CHANNELS, 2, h, w)."""
        frames = []
        for index, (mean, basis, scale) in enumerate(zip(self.means, self.bases, self.scales)):
            blocks = (latents[:, :, index].permute(0, 2, 3, 1) * scale) @ basis + mean  # (B, h, w, N * 8 * 8 * 3)
            blocks = blocks.unflatten(3, (-1, STRIDE, STRIDE, 3))[:, :, :, -1]  # (B, h, w, 8, 8, 3)
            frames.append(blocks.transpose(2, 3).flatten(1, 2).flatten(2, 3))
        picture = torch.stack(frames, dim=1).clamp(0, 1) * 255
        return picture.round().byte().numpy()


def _blocks(video: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks (B, h, w, D) of the first frame and of the other four, 0..1."""
    split = video.float().div(255).unflatten(3, (WIDTH // STRIDE, STRIDE)).unflatten(2, (HEIGHT // STRIDE, STRIDE))
    blocks = split.permute(0, 2, 4, 1, 3, 5, 6)  # (B, h, w, N, 8, 8, 3)
    return blocks[:, :, :, :1].flatten(3), blocks[:, :, :, 1:].flatten(3)
