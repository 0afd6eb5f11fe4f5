"""Train the desk model's video autoencoder (diffusers' `AutoencoderKLWan` at laptop size).

python -m recipes.desk.autoencoder --data clips/ -o autoencoder/ --steps 3400

The same command again continues where the last one stopped.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from recipes.desk.critic import Critic, balance
from recipes.desk.principal_encoder import fit_encoder
from recipes.desk.whole_clips import decode_whole, encode_whole
from torch import Tensor
from torch.nn import functional

from ucpe.desk.clips import DeskClips, load_shard, shard_paths
from ucpe.desk.model import autoencoder_config
from ucpe.evaluation.quality_wheels import ShiftTolerantLpips
from ucpe.files import write_json
from ucpe.training.checkpoints import gather_state, load_checkpoint, restore_state, save_checkpoint
from ucpe.training.encoded import to_model_range
from ucpe.training.progress import CURVE_FILE, Curve
from ucpe.work import progress_bar

FITTED_CLIPS = 64
"""Clips whose principal components the encoder starts from."""


@dataclass(frozen=True)
class AutoencoderRecipe:
    """Everything that decides how the desk autoencoder is trained: 8 x 8 x 4 compression.

    The encoder starts as the principal components of the clips, and stays so unless it is trained too.
    """

    channels: int = 24
    """Channels of the latents. The last level of the encoder must have twice as many and one more."""
    base_dim: int = 17
    """Channels of the encoder's first layer."""
    decoder_base_dim: int = 32
    """Channels of the decoder's last layer."""
    dim_mult: tuple[int, ...] = (1, 2, 3)
    """Channels of each level, as multiples of these."""
    initial: str | None = None
    """Folder of an autoencoder to start from instead."""
    train_encoder: bool = False
    """Train the encoder too; otherwise latents stay what they are, and models of them stay valid."""
    precision: Literal["no", "bf16"] = "bf16"
    """Autocast dtype of the forward pass."""
    steps: int = 4000
    batch: int = 6
    frames: int = 17
    height: int = 48
    width: int = 56
    """Size of the crops it is trained on, pixels."""
    learning_rate: float = 2e-3
    warmup: int = 100
    kl_weight: float = 1e-3
    edge_weight: float = 1.0
    """Weight of the difference of neighbouring pixels and frames."""
    energy_weight: float = 0.0
    """Weight of the difference of gradient energies in windows of 4 x 4 pixels: an edge may move, but not fade."""
    perceptual_weight: float = 0.0
    """Weight of ST-LPIPS between some frames."""
    judged_frames: int = 8
    """Frames of a step that ST-LPIPS sees."""
    critic_weight: float = 0.0
    """Gradient of the critic's objection as a share of all others'."""
    critic_from: int = 1000
    """First step with the critic."""
    feature_weight: float = 1.0
    """Weight of the difference between the critic's features."""
    latent_noise: float = 0.0
    """Largest deviation of the noise that is added to latents, in their own: generated latents are not exact."""
    ema: float = 0.998
    seed: int = 0
    checkpoint_every: int = 200

    def config(self) -> dict[str, Any]:
        """Constructor arguments of `AutoencoderKLWan`."""
        return autoencoder_config(self.base_dim, self.decoder_base_dim, self.dim_mult, self.channels)


def train_autoencoder(recipe: AutoencoderRecipe, data: Path, output: Path, quiet: bool = False) -> Any:
    """Train on rendered clips, continuing from the newest checkpoint in `output`; saves and returns the model."""
    from diffusers import AutoencoderKLWan

    torch.manual_seed(recipe.seed)
    model: Any = AutoencoderKLWan(**recipe.config())
    if recipe.initial is None:
        fit_encoder(model, to_model_range(load_shard(shard_paths(data)[0]).video[:FITTED_CLIPS]))
    else:
        model.load_state_dict(AutoencoderKLWan.from_pretrained(recipe.initial).state_dict())
    for part in (model.encoder, model.quant_conv):
        part.requires_grad_(recipe.train_encoder)
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    averaged = {name: value.detach().clone() for name, value in parameters.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    likeness = ShiftTolerantLpips().network.requires_grad_(False) if recipe.perceptual_weight else None
    write_json(output / "recipe.json", asdict(recipe))
    start = 0
    if checkpoint := load_checkpoint(output / "checkpoints"):
        restore_state(checkpoint, parameters, optimizer, averaged)
        start = checkpoint.step
    critic = Critic()
    judging, remembered = dict(critic.named_parameters()), dict(critic.named_buffers())
    critic_optimizer = torch.optim.AdamW(judging.values(), lr=recipe.learning_rate / 2, betas=(0.5, 0.9))
    if critic_checkpoint := load_checkpoint(output / "critic"):
        restore_state(critic_checkpoint, judging, critic_optimizer, remembered)
    curve = Curve(output / CURVE_FILE, start)
    shards = _Shards(data)

    def save(steps: int) -> None:
        save_checkpoint(output / "critic", steps, gather_state(judging, critic_optimizer, remembered))
        save_checkpoint(output / "checkpoints", steps, gather_state(parameters, optimizer, averaged))

    with progress_bar(pace=True, shown=not quiet) as show:
        for step in range(start, recipe.steps):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * _schedule(step, recipe.steps, recipe.warmup)
            video = _random_crops(recipe, step, shards)
            loss, decoded, parts = _loss(model, likeness, video, recipe, step)
            if recipe.critic_weight and step >= recipe.critic_from:
                told = critic.loss(decoded, video)
                critic_optimizer.zero_grad(set_to_none=True)
                told.backward()
                critic_optimizer.step()
                objection, difference = critic.objection(decoded, video)
                loss = loss + recipe.feature_weight * difference
                share = balance(loss, objection, model.decoder.conv_out.weight)
                loss = loss + recipe.critic_weight * share * objection
                parts |= {"told": told.item(), "features": difference.item()}
            if not math.isfinite(loss.item()):
                save(step)
                raise ValueError(f"the loss is {loss.item()} at step {step}; the state before it is kept in {output}")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
            optimizer.step()
            decay = min(recipe.ema, (step + 1) / (step + 10))
            weights = [parameters[name].detach() for name in averaged]
            torch._foreach_lerp_(list(averaged.values()), weights, 1 - decay)
            curve.add(step, parts)
            show("desk-autoencoder", step + 1, recipe.steps, f"loss {parts['loss']:.4f}")
            if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == recipe.steps:
                save(step + 1)
    curve.close()
    model.load_state_dict(averaged, strict=False)
    return _with_latent_statistics(model, data, output)


def _loss(
    model: Any, likeness: Any, video: Tensor, recipe: AutoencoderRecipe, step: int
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """The loss, what the model made of the video, and numbers for the curve."""
    torch.manual_seed(recipe.seed * 1_000_003 + step)
    with torch.autocast(video.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        with torch.set_grad_enabled(recipe.train_encoder):
            posterior = encode_whole(model, video)
            latents = posterior.sample()
        if recipe.latent_noise:
            noise = recipe.latent_noise * torch.rand(len(latents), 1, 1, 1, 1)
            latents = latents + noise * latents.std() * torch.randn_like(latents)
        decoded = decode_whole(model, latents).float()
    pixel = functional.l1_loss(decoded, video)
    differences = [functional.l1_loss(decoded.diff(dim=axis), video.diff(dim=axis)) for axis in (2, 3, 4)]
    edges = torch.stack(differences).mean()
    mean, variance, log_variance = posterior.mean.float(), posterior.var.float(), posterior.logvar.float()
    kl = 0.5 * (mean.square() + variance - 1 - log_variance).mean()
    loss = pixel + recipe.edge_weight * edges + recipe.kl_weight * kl
    if recipe.energy_weight:
        loss = loss + recipe.energy_weight * functional.l1_loss(_local_energy(decoded), _local_energy(video))
    if recipe.perceptual_weight:
        made, true = (clip.transpose(1, 2).flatten(0, 1) for clip in (decoded, video))  # (B * N, 3, H, W)
        chosen = torch.randperm(len(made))[: recipe.judged_frames]
        loss = loss + recipe.perceptual_weight * likeness(made[chosen], true[chosen]).mean()
    psnr = -10 * math.log10(functional.mse_loss(decoded.detach().clamp(-1, 1), video).item() / 4)
    sharpness = (decoded.detach().diff(dim=-1).square().mean() / video.diff(dim=-1).square().mean()).item()
    shown = {"loss": loss.item(), "pixel": pixel.item(), "edges": edges.item(), "kl": kl.item(), "psnr": psnr}
    return loss, decoded, {**shown, "sharpness": sharpness}


def _local_energy(
    video: Tensor,  # (B, 3, N, H, W)
) -> Tensor:
    """Root mean square gradient (B * N, 1, h, w) in overlapping windows of 4 x 4 pixels."""
    frames = video.transpose(1, 2).flatten(0, 1)
    across, down = frames.diff(dim=-1)[..., :-1, :], frames.diff(dim=-2)[..., :-1]
    energy = (across.square() + down.square()).mean(dim=1, keepdim=True)
    return (functional.avg_pool2d(energy, 4, stride=2) + 1e-5).sqrt()


def _random_crops(recipe: AutoencoderRecipe, step: int, shards: _Shards) -> Tensor:
    """Crops (B, 3, N, H, W) from clips of one shard, chosen by the step alone."""
    generator = torch.Generator().manual_seed(recipe.seed * 7_919 + step)

    def draw(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    clips = shards.at(step)
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


class _Shards:
    """The shards of a folder in turn, one in memory at a time."""

    def __init__(self, folder: Path, steps_each: int = 25):
        self.paths, self.steps_each = shard_paths(folder), steps_each
        self.path: Path | None = None

    def at(self, step: int) -> DeskClips:
        """The shard of a step."""
        path = self.paths[step // self.steps_each % len(self.paths)]
        if path != self.path:
            self.clips, self.path = load_shard(path), path
        return self.clips


def _schedule(step: int, steps: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


@torch.no_grad()
def _with_latent_statistics(model: Any, data: Path, output: Path) -> Any:
    """The model with the mean and spread of its latents in its config, as Wan's pipelines expect; saved.

    One spread for all channels: coarse ones, which carry the scene, stay larger than fine ones.
    """
    video = to_model_range(load_shard(shard_paths(data)[0]).video[:FITTED_CLIPS])
    latents = torch.cat([model.encode(clip).latent_dist.mode() for clip in video.split(8)])
    mean, spread = latents.mean(dim=(0, 2, 3, 4)), latents.std().item()
    model.register_to_config(latents_mean=mean.tolist(), latents_std=[spread] * len(mean))
    model.save_pretrained(output / "vae")
    return model


@dataclass
class Options:
    """Train the desk model's autoencoder. The same command again continues where the last one stopped."""

    data: Path
    """Folder of desk clips."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for curve, checkpoints and the result, vae."""
    recipe: tyro.conf.OmitArgPrefixes[AutoencoderRecipe] = AutoencoderRecipe()


def main(arguments: list[str] | None = None) -> None:
    """Run the script."""
    options = tyro.cli(Options, args=arguments)
    train_autoencoder(options.recipe, options.data, options.output)
    print(options.output / "vae")


if __name__ == "__main__":
    main()
