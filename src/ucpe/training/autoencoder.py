"""Training the desk model's video autoencoder (diffusers' `AutoencoderKLWan` at laptop size)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan
from torch import Tensor
from torch.nn import functional

from ucpe.synthesis.desk_clips import DeskClips, load_shard, shard_paths
from ucpe.training.checkpoints import load_state, save_state


def desk_autoencoder_config() -> dict[str, Any]:
    """Constructor arguments of the desk autoencoder: 8 x 8 x 4 compression into 16 channels."""
    return {
        "base_dim": 16,
        "decoder_base_dim": 24,
        "z_dim": 16,
        "dim_mult": [1, 2, 4],
        "num_res_blocks": 1,
        "temperal_downsample": [True, True],
        "patch_size": 2,
        "in_channels": 12,
        "out_channels": 12,
        "latents_mean": [0.0] * 16,
        "latents_std": [1.0] * 16,
    }


@dataclass
class AutoencoderRecipe:
    """Everything that decides how the autoencoder is trained."""

    config: dict[str, Any] = field(default_factory=desk_autoencoder_config)
    steps: int = 3000
    batch: int = 4
    frames: int = 9
    height: int = 48
    width: int = 56
    learning_rate: float = 2e-3
    warmup: int = 100
    kl_weight: float = 1e-3
    edge_weight: float = 1.0
    ema: float = 0.998
    seed: int = 0
    checkpoint_every: int = 200


def train_autoencoder(
    recipe: AutoencoderRecipe, data: Path, output: Path, report: Callable[[int, dict[str, float]], None]
) -> AutoencoderKLWan:
    """Train on rendered clips, continuing from the newest checkpoint in `output`; saves and returns the model."""
    torch.manual_seed(recipe.seed)
    model = AutoencoderKLWan(**recipe.config)
    averaged = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    output.mkdir(parents=True, exist_ok=True)
    (output / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2))
    start = 0
    if state := load_state(output / "checkpoints"):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        averaged, start = state["averaged"], state["step"]

    for step in range(start, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe.steps, recipe.warmup)
        video = _random_crops(recipe, step, data)
        loss, parts = _loss(model, video, recipe, step)
        if not math.isfinite(loss.item()):
            raise ValueError(f"loss is {loss.item()} at step {step}; the last checkpoint in {output} is intact")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        decay = min(recipe.ema, (step + 1) / (step + 10))
        for name, value in model.state_dict().items():
            averaged[name].lerp_(value, 1 - decay)
        report(step, parts)
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == recipe.steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "averaged": averaged}
            save_state(output / "checkpoints", step + 1, state)
    model.load_state_dict(averaged)
    return _with_latent_statistics(model, recipe, data, output)


def to_model_range(video: Tensor) -> Tensor:
    """Videos (B, N, H, W, 3) uint8 as (B, 3, N, H, W) float in [-1, 1]."""
    return video.permute(0, 4, 1, 2, 3).float() / 127.5 - 1


def _loss(
    model: AutoencoderKLWan, video: Tensor, recipe: AutoencoderRecipe, step: int
) -> tuple[Tensor, dict[str, float]]:
    torch.manual_seed(recipe.seed * 1_000_003 + step)
    posterior = model.encode(video).latent_dist
    decoded = model.decode(posterior.sample()).sample
    pixel = functional.l1_loss(decoded, video)
    edges = sum(functional.l1_loss(decoded.diff(dim=axis), video.diff(dim=axis)) for axis in (2, 3, 4)) / 3
    kl = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
    loss = pixel + recipe.edge_weight * edges + recipe.kl_weight * kl
    psnr = -10 * math.log10(functional.mse_loss(decoded.detach(), video).item() / 4)
    return loss, {"loss": loss.item(), "pixel": pixel.item(), "edges": float(edges), "kl": kl.item(), "psnr": psnr}


def _random_crops(recipe: AutoencoderRecipe, step: int, data: Path) -> Tensor:
    """Crops (B, 3, N, H, W) from clips of one shard, chosen by the step alone."""
    generator = torch.Generator().manual_seed(recipe.seed * 7_919 + step)

    def draw(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    clips = _shard(data, step)
    crops = []
    for _ in range(recipe.batch):
        video = clips.video[draw(len(clips.video))]
        count, height, width = video.shape[:3]
        stride = 1 + draw((count - 1) // (recipe.frames - 1))
        start = draw(count - (recipe.frames - 1) * stride)
        top, left = draw(height - recipe.height + 1), draw(width - recipe.width + 1)
        crop = video[start::stride][: recipe.frames, top : top + recipe.height, left : left + recipe.width]
        crops.append(crop.flip(2) if draw(2) else crop)
    return to_model_range(torch.stack(crops))


_SHARDS: dict[Path, DeskClips] = {}


def _shard(data: Path, step: int, steps_per_shard: int = 25) -> DeskClips:
    paths = shard_paths(data)
    path = paths[step // steps_per_shard % len(paths)]
    if path not in _SHARDS:
        _SHARDS.clear()
        _SHARDS[path] = load_shard(path)
    return _SHARDS[path]


def _schedule(step: int, steps: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


@torch.no_grad()
def _with_latent_statistics(
    model: AutoencoderKLWan, recipe: AutoencoderRecipe, data: Path, output: Path
) -> AutoencoderKLWan:
    """The model with the mean and spread of its latents in its config, as Wan's pipelines expect; saved."""
    video = to_model_range(load_shard(shard_paths(data)[0]).video[:64])
    latents = torch.cat([model.encode(clip).latent_dist.mode() for clip in video.split(8)])
    mean, spread = latents.mean(dim=(0, 2, 3, 4)), latents.std(dim=(0, 2, 3, 4))
    model.register_to_config(latents_mean=mean.tolist(), latents_std=spread.tolist())
    model.save_pretrained(output / "vae")
    return model
