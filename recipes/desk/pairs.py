"""Train the desk model on pairs of latent frames first, then on whole clips.

    python -m recipes.desk.pairs --data clips/ --fresh --autoencoder autoencoder/vae -o model/ --minutes 120

A pair is one frame and four consecutive ones from anywhere in the same clip, forwards or backwards in time, mirrored or
not. Its 56 tokens teach turning and travelling sooner than the 140 of a whole clip. The same command again continues
where the last one stopped; `minutes` is the time of all goes together.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from ucpe.adapters import CameraAdapter, CameraCondition
from ucpe.adapters.backbones import TokenGrid
from ucpe.desk import FRAMES, HEIGHT, TEXT_TOKENS, WEIGHTS, WIDTH
from ucpe.desk.clips import DeskClips, load_shard, shard_paths
from ucpe.desk.model import make_text_encoder, make_tokenizer, make_transformer
from ucpe.encodings import camera_operator, lat_up_map
from ucpe.generation.loading import ADAPTER_FOLDER
from ucpe.lenses import UCM
from ucpe.synthesis.worlds import vocabulary
from ucpe.training.checkpoints import gather_state, load_checkpoint, restore_state, save_checkpoint
from ucpe.training.denoiser import Batch, Denoiser, PromptEncoder
from ucpe.training.encoded import encode_video, to_model_range
from ucpe.training.objective import FlowMatching, denoising_loss
from ucpe.training.progress import CURVE_FILE, Curve
from ucpe.work import progress_bar

ROWS, COLUMNS = HEIGHT // 16, WIDTH // 16
"""Tokens of a latent frame."""

BRANCH = {"heads": 4, "head_dim": 32}
"""Attention branch of a new adapter: two thirds of the width."""

MIRROR = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
FITTED_CLIPS = 40


@dataclass
class Options:
    """Train a desk model on pairs, then on whole clips."""

    data: Path
    """Folder of desk clips; shards that appear in it while the training runs are used too."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for the curve, checkpoints and the trained pipeline."""
    model: Path = WEIGHTS
    """Pipeline folder with its adapter to start from; its autoencoder must have a linear encoder."""
    fresh: bool = False
    """Take only scheduler and autoencoder from it, and start with new weights that know every word of the worlds."""
    autoencoder: Path | None = None
    """Folder of another autoencoder with a linear encoder."""
    minutes: float = 120
    """Training time in minutes."""
    pairs_until: float = 0.5
    """Share of the time in which all clips are pairs; after it a third of the steps."""
    batch: int = 16
    """Pairs in a step; whole clips are fewer, for the same number of tokens."""
    learning_rate: float = 1e-3
    warmup: int = 100
    decay: float = 0.3
    """Share of the time at the end over which the learning rate falls to zero."""
    first_frame: float = 0.6
    """Share of clips whose first frame is given."""
    drop_text: float = 0.1
    """Share of clips trained without their caption, for guidance."""
    ema: float = 0.999
    seed: int = 0
    checkpoint_every: int = 250
    precision: Literal["no", "bf16"] = "bf16"
    """Autocast dtype of the forward pass; attention stays in fp32, as its backward pass in bf16 is slow on a CPU."""


OBJECTIVE = FlowMatching(shift=3.0, weighting="none")


class FloatAttention(TorchFunctionMode):
    """Attention in fp32, whatever autocast says."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if function is not scaled_dot_product_attention:
            return function(*args, **named)
        with torch.autocast("cpu", enabled=False):
            return function(*map(_float, args), **{name: _float(value) for name, value in named.items()})


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


class LinearLatents:
    """An autoencoder's encoder as two matrices: of single frames, and of four. It is linear, and fast this way."""

    def __init__(self, vae: Any, video: Tensor):
        latents = torch.cat([encode_video(vae, clip) for clip in to_model_range(video).split(8)])
        latents = latents.permute(0, 2, 3, 4, 1)  # (B, F, h, w, C)
        groups = torch.stack([video[:, 1 + 4 * index : 5 + 4 * index] for index in range(4)], dim=1)
        self.matrices = [
            regression(blocks(video[:, :1]).flatten(0, -2), latents[:, 0].flatten(0, -2)),
            regression(blocks(groups.flatten(0, 1)).flatten(0, -2), latents[:, 1:].flatten(0, -2)),
        ]

    def __call__(
        self,
        frames: Tensor,  # (B, N, H, W, 3) uint8
    ) -> Tensor:
        """Latents (B, C, h, w) of N = 1 or 4 frames."""
        matrix, offset = self.matrices[frames.shape[1] > 1]
        return (blocks(frames) @ matrix + offset).permute(0, 3, 1, 2)


def blocks(
    frames: Tensor,  # (B, N, H, W, 3) uint8
) -> Tensor:
    """Blocks (B, h, w, N * 8 * 8 * 3) of 8 x 8 pixels in [-1, 1]."""
    split = frames.unflatten(3, (-1, 8)).unflatten(2, (-1, 8))  # (B, N, h, 8, w, 8, 3)
    return split.permute(0, 2, 4, 1, 3, 5, 6).flatten(3).float() / 127.5 - 1


def regression(given: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Matrix (D, C) and offset (C,) of the best linear guess; prints what it leaves unexplained."""
    known = torch.cat([given, torch.ones_like(given[:, :1])], dim=1).double()
    gram = known.T @ known + 1e-3 * torch.eye(known.shape[1]).double()
    solution = torch.linalg.solve(gram, known.T @ wanted.double())
    left = (known @ solution - wanted).square().mean() / wanted.double().var(dim=0).mean()
    print(f"{given.shape[1]} -> {wanted.shape[1]}: {left:.2%} of the variance is not linear", flush=True)
    return solution[:-1].float(), solution[-1].float()


class Shard:
    """Clips with the operator and Lat-Up map of every frame, as they are and mirrored."""

    def __init__(self, clips: DeskClips, head_dim: int):
        self.video, self.captions = clips.video, clips.captions
        lens = UCM(xfov=clips.xfov[:, None].double(), xi=clips.xi[:, None].double())
        self.sides = [_cameras(lens, side @ clips.c2w @ side, head_dim) for side in (torch.eye(4), MIRROR)]


def _cameras(lens: UCM, c2w: Tensor, head_dim: int) -> dict[str, Tensor]:
    """What attention needs of every frame, each (B, frames, tokens, ...)."""
    c2w = c2w.double()
    operator = camera_operator("ucpe", lens, c2w, ROWS, COLUMNS, head_dim)
    shape = (FRAMES, ROWS * COLUMNS)
    everywhere = torch.ones(len(c2w), FRAMES * ROWS * COLUMNS, dtype=torch.bool)
    valid = everywhere if operator.valid is None else operator.valid
    return {
        "blocks": operator.blocks.unflatten(1, shape),
        "inverse": operator.inverse.unflatten(1, shape),
        "valid": valid.unflatten(1, shape),
        "features": lat_up_map(lens, c2w, ROWS, COLUMNS).float().flatten(2, 3),
    }


class Clips:
    """All shards of a folder, with the batches that steps draw from them."""

    def __init__(self, folder: Path, latents: LinearLatents, head_dim: int):
        self.folder, self.latents, self.head_dim = folder, latents, head_dim
        self.shards: dict[Path, Shard] = {}
        self.rope = {
            frames: camera_operator(
                "ucpe", UCM(xfov=100.0), torch.eye(4).double().expand(frames, 4, 4), ROWS, COLUMNS, head_dim
            )
            for frames in (2, 5)
        }
        self.refresh()

    def refresh(self) -> None:
        """Take in shards that are new."""
        for path in shard_paths(self.folder):
            if path not in self.shards:
                self.shards[path] = Shard(load_shard(path), self.head_dim)
        self.all = list(self.shards.values())

    def draw(self, count: int, whole: bool, generator: torch.Generator) -> tuple[Tensor, list[str], CameraCondition]:
        """Latents (count, C, F, h, w), captions and cameras of random clips, whole or two latent frames of each."""

        def below(limit: int) -> int:
            return int(torch.randint(limit, (), generator=generator))

        firsts, groups, captions, cameras = [], [], [], []
        for _ in range(count):
            shard = self.all[below(len(self.all))]
            clip, side, backwards = below(len(shard.video)), below(2), below(2)
            order = list(range(FRAMES))[:: -1 if backwards else 1]
            start = 0 if whole else below(FRAMES)
            later = [1, 5, 9, 13] if whole else [below(FRAMES - 3)]
            video = shard.video[clip].flip(2) if side else shard.video[clip]
            firsts.append(video[order[start]][None])
            groups += [video[order[one : one + 4]] for one in later]
            chosen = [order[start], *(order[one + 3] for one in later)]
            cameras.append({name: value[clip][chosen].flatten(0, 1) for name, value in shard.sides[side].items()})
            captions.append(shard.captions[clip])
        later_latents = self.latents(torch.stack(groups)).unflatten(0, (count, -1)).transpose(1, 2)
        latents = torch.cat([self.latents(torch.stack(firsts))[:, :, None], later_latents], dim=2)
        joined = {name: torch.stack([camera[name] for camera in cameras]) for name in cameras[0]}
        return latents, captions, self.condition(joined, latents.shape[2])

    def condition(self, cameras: dict[str, Tensor], frames: int) -> CameraCondition:
        """Cameras of a batch of clips of so many latent frames."""
        operator = self.rope[frames].replaced(
            **{name: cameras[name] for name in ("blocks", "inverse", "valid")}, anchor=None
        )
        return CameraCondition(TokenGrid(frames, ROWS, COLUMNS), len(cameras["valid"]), operator, cameras["features"])


def load(options: Options) -> tuple[Any, Denoiser]:
    """The pipeline and what is trained of it."""
    from diffusers import AutoencoderKLWan, WanPipeline

    pipe: Any = WanPipeline.from_pretrained(options.model, torch_dtype=torch.float32)
    if options.autoencoder is not None:
        pipe.register_modules(vae=AutoencoderKLWan.from_pretrained(options.autoencoder, torch_dtype=torch.float32))
    torch.manual_seed(options.seed)
    if options.fresh:
        transformer = make_transformer(pipe.vae.config.z_dim)
        tokenizer = make_tokenizer(vocabulary())
        text_encoder = make_text_encoder(len(tokenizer))
        pipe.register_modules(transformer=transformer, tokenizer=tokenizer, text_encoder=text_encoder)
        pass_latents_through(transformer)
        adapter = CameraAdapter.for_transformer(transformer, **BRANCH)
    else:
        adapter = CameraAdapter.from_pretrained(options.model / ADAPTER_FOLDER, torch_dtype=torch.float32)
    prompts = PromptEncoder(pipe.tokenizer, pipe.text_encoder, TEXT_TOKENS)
    denoiser = Denoiser(pipe.transformer, adapter, prompts, expand_timesteps=True)
    denoiser.set_trainable(True)
    return pipe, denoiser


@torch.no_grad()
def pass_latents_through(transformer: Any) -> None:
    """Make a fresh transformer return roughly what it is given, so that it need not learn to carry noise to its end."""
    embed, read = transformer.patch_embedding, transformer.proj_out
    channels = embed.in_channels
    passed = embed.weight[0].numel()  # channels * places in a patch
    embed.weight[:passed] = torch.eye(passed).view(passed, *embed.weight.shape[1:])
    embed.bias[:passed] = 0
    read.weight *= 0.1
    read.bias.zero_()
    rows = torch.arange(passed).view(channels, -1).T.flatten()  # the output has places first, then channels
    read.weight[torch.arange(passed), rows] += 1
    for block in transformer.blocks:
        for last in (block.attn1.to_out[0], block.attn2.to_out[0], block.ffn.net[2]):
            last.weight *= 0.2


def train(options: Options) -> None:
    """Train for what is left of the minutes, and write the pipeline with averaged weights."""
    pipe, model = load(options)
    adapter: Any = model.adapter
    video = load_shard(shard_paths(options.data)[0]).video[:FITTED_CLIPS]
    with torch.no_grad():
        clips = Clips(options.data, LinearLatents(pipe.vae, video), adapter.head_dim)
    parameters = model.trained_parameters()
    averaged = {name: value.detach().clone() for name, value in parameters.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.02)
    step, spent = 0, 0.0
    spent_file = options.output / "seconds.txt"
    if checkpoint := load_checkpoint(options.output / "checkpoints"):
        restore_state(checkpoint, parameters, optimizer, averaged)
        step, spent = checkpoint.step, float(spent_file.read_text())
    curve = Curve(options.output / CURVE_FILE, step)
    began = time.monotonic() - spent
    done = 0.0
    with progress_bar(pace=True) as show:
        while done < 1:
            done = min(1.0, (time.monotonic() - began) / (60 * options.minutes))
            generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
            whole = done > options.pairs_until and bool(torch.rand((), generator=generator) > 1 / 3)
            rate = options.learning_rate * min(1.0, (step + 1) / options.warmup, max(0.02, (1 - done) / options.decay))
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = train_step(options, model, clips, whole, generator)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
            if not math.isfinite(loss.item()):
                raise ValueError(f"the loss is {loss.item()} at step {step}")
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            decay = min(options.ema, step / (step + 10))
            torch._foreach_lerp_(list(averaged.values()), [value.detach() for value in parameters.values()], 1 - decay)
            curve.add(step - 1, {"whole" if whole else "pair": loss.item(), "learning_rate": rate})
            show("desk-model", int(1000 * done), 1000, f"step {step}, loss {loss.item():.4f}")
            if step % options.checkpoint_every == 0 or done == 1:
                save_checkpoint(options.output / "checkpoints", step, gather_state(parameters, optimizer, averaged))
                spent_file.write_text(str(time.monotonic() - began))
                clips.refresh()
    curve.close()
    with torch.no_grad():
        for name, value in averaged.items():
            parameters[name].copy_(value)
    adapter.detach()
    pipe.save_pretrained(options.output / "model")
    adapter.save_pretrained(options.output / "model" / ADAPTER_FOLDER)
    (options.output / "model" / "generation.json").write_text((options.model / "generation.json").read_text())


def train_step(options: Options, model: Denoiser, clips: Clips, whole: bool, generator: torch.Generator) -> Tensor:
    """Loss of a batch."""
    count = max(1, options.batch * 2 // 5) if whole else options.batch
    latents, captions, condition = clips.draw(count, whole, generator)
    noise = torch.randn(latents.shape, generator=generator)
    level = OBJECTIVE.sample(count, generator).reshape(-1, 1, 1, 1, 1).repeat(1, 1, latents.shape[2], 1, 1)
    level[torch.rand(count, generator=generator) < options.first_frame, :, 0] = 0
    dropped = (torch.rand(count, generator=generator) < options.drop_text).tolist()
    captions = ["" if drop else caption for caption, drop in zip(captions, dropped)]
    batch = Batch(latents, noise, level, captions, condition)
    with FloatAttention(), torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
        predicted = model(batch)
    return denoising_loss(predicted.float(), batch.velocity, level, OBJECTIVE).mean()


if __name__ == "__main__":
    train(tyro.cli(Options))
