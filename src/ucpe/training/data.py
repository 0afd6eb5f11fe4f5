"""What a training step eats: latents, captions and cameras of clips, encoded once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory

if TYPE_CHECKING:
    from diffusers import AutoencoderKLWan


@dataclass
class Example:
    """One encoded clip."""

    latents: Tensor  # (C, F, h, w), normalised as Wan's pipelines do
    caption: str
    camera: Trajectory
    family: str


class Source(Protocol):
    """A set of encoded clips."""

    def __len__(self) -> int:
        """How many clips there are."""

    def __getitem__(self, index: int) -> Example:
        """One clip."""


class DeskLatents:
    """The desk clips of a folder as latents, held in memory; encoded by a VAE once and kept beside the clips."""

    def __init__(self, vae: AutoencoderKLWan, folder: Path, fps: float = 8.0):
        from ucpe.synthesis.desk_clips import shard_paths

        key = weights_fingerprint(vae)
        cached = [_encode_shard(vae, path, key) for path in shard_paths(folder)]
        self.latents = torch.cat([shard["latents"] for shard, _ in cached])
        self.c2w = torch.cat([shard["c2w"] for shard, _ in cached]).double()
        self.lenses = torch.stack(
            [torch.cat([shard[name] for shard, _ in cached]) for name in ("xfov", "xi")], -1
        ).double()
        self.captions = [caption for _, metadata in cached for caption in json.loads(metadata["captions"])]
        self.families = [family for _, metadata in cached for family in json.loads(metadata["families"])]
        self.fps = fps

    def __len__(self) -> int:
        return len(self.latents)

    def __getitem__(self, index: int) -> Example:
        """One clip."""
        lens = UCM(xfov=self.lenses[index, 0], xi=self.lenses[index, 1])
        camera = Trajectory(self.c2w[index], lens, self.fps)
        return Example(self.latents[index].float(), self.captions[index], camera, self.families[index])


def weights_fingerprint(model: torch.nn.Module) -> str:
    """Short name for a model's weights, the same on every machine."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:12]


@torch.no_grad()
def encode_video(vae: AutoencoderKLWan, video: Tensor) -> Tensor:
    """Normalised latents (B, C, F, h, w) of videos (B, 3, N, H, W) in [-1, 1]."""
    latents = vae.encode(video.to(vae.dtype)).latent_dist.mode().float()
    mean, spread = (
        torch.tensor(vae.config[name], device=latents.device).reshape(1, -1, 1, 1, 1)
        for name in ("latents_mean", "latents_std")
    )
    return (latents - mean) / spread


def _encode_shard(vae: AutoencoderKLWan, path: Path, key: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    from ucpe.synthesis.desk_clips import load_shard
    from ucpe.training.autoencoder import to_model_range

    cache = path.parent / f"latents-{key}" / path.name
    if not cache.exists():
        clips = load_shard(path)
        latents = torch.cat([encode_video(vae, to_model_range(video)) for video in clips.video.split(8)])
        tensors = {"latents": latents.half(), "c2w": clips.c2w, "xfov": clips.xfov, "xi": clips.xi}
        cache.parent.mkdir(exist_ok=True)
        temporary = cache.with_suffix(f".{os.getpid()}.tmp")
        save_file(tensors, temporary, {"captions": json.dumps(clips.captions), "families": json.dumps(clips.families)})
        os.replace(temporary, cache)
    with safe_open(cache, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def pick(source: Source, indices: Sequence[int]) -> tuple[Tensor, list[str], list[Trajectory]]:
    """Latents (B, C, F, h, w), captions and cameras of some clips."""
    examples = [source[index] for index in indices]
    latents = torch.stack([example.latents for example in examples])
    return latents, [example.caption for example in examples], [example.camera for example in examples]
