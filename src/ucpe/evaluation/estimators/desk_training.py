"""Trains the desk estimators on clips of procedural worlds and measures their own error on held-out worlds."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucpe.evaluation.estimators.desk_model import (
    CORRECTION_UNIT,
    HEIGHT,
    TRANSLATION_UNIT,
    WIDTH,
    XFOV_SPREAD,
    XI_SPREAD,
    DeskCalibrator,
    DeskMotion,
    ray_motion,
)
from ucpe.lenses import UCM
from ucpe.synthesis.desk_clips import VALIDATION_SEED, DeskClips, load_shard, render_shard
from ucpe.trajectories.rotations import rotation_log

MIRROR = (-1.0, 1.0, 1.0)
"""What a picture flipped left to right does to directions."""


@dataclass(frozen=True)
class DeskTraining:
    """How long and on how much the desk estimators train."""

    shards: int = 8
    """Training shards of 256 clips, rendered where they are missing."""
    calibrator_steps: int = 3600
    motion_steps: int = 1500
    batch: int = 64
    learning_rate: float = 2e-3
    batches_per_shard: int = 6
    """Batches drawn from a shard before the next one is read."""
    average: float = 0.998
    """Decay of the running average of the weights, which is what is kept."""
    seed: int = 0


def train(
    clips: str | Path, output: str | Path, settings: DeskTraining | None = None, log: Callable[[str], None] = print
) -> Path:
    """Train both desk estimators on the clips of a folder and write `desk_estimators.safetensors` to `output`.

    `clips` holds `train/` and `val/`; shards missing there are rendered first. A killed run continues where it was.
    """
    from ucpe.evaluation.estimators.desk import floors_of, save_weights

    settings, clips, output = settings or DeskTraining(), Path(clips), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    train_shards = [render_shard(shard, 0, clips / "train") for shard in range(settings.shards)]
    held_out = render_shard(0, VALIDATION_SEED, clips / "val")
    torch.manual_seed(settings.seed)
    calibrator = _fit(
        DeskCalibrator(), calibration_loss, train_shards, settings.calibrator_steps, settings, output, log
    )
    motion = _fit(DeskMotion(), motion_loss, train_shards, settings.motion_steps, settings, output, log)
    floors = floors_of(calibrator.half().float().eval(), motion.half().float().eval(), load_shard(held_out))
    log(json.dumps(floors))
    return save_weights(output / "desk_estimators.safetensors", calibrator, motion, floors, asdict(settings))


def calibration_loss(network: nn.Module, clips: DeskClips, generator: np.random.Generator, batch: int) -> Tensor:
    """Robust loss of up direction, field of view and xi over random frames."""
    clip, frame = _draw(clips, generator, batch)
    mirrored = torch.from_numpy(generator.random(batch) < 0.5)
    frames = _augmented([_pictures(clips, clip, frame)], mirrored, generator)[0]
    up, xfov, xi = network(frames)
    target = -clips.c2w[clip, frame, 1, :3] * torch.where(mirrored[:, None], torch.tensor(MIRROR), torch.ones(3))
    return (
        _robust(up.float() - target, 0.02).mul(4).sum(-1)
        + _robust((xfov.float() - clips.xfov[clip]) / XFOV_SPREAD, 0.05)
        + _robust((xi.float() - clips.xi[clip]) / XI_SPREAD, 0.1) / 2
    ).mean()


def motion_loss(network: nn.Module, clips: DeskClips, generator: np.random.Generator, batch: int) -> Tensor:
    """Robust loss of the rotation and translation between frames up to 4 apart, in either order."""
    clip, first = _draw(clips, generator, batch)
    step = torch.from_numpy(generator.choice([0, 1, 2, 4], batch, p=[0.05, 0.5, 0.25, 0.2]))
    step = step * torch.from_numpy(generator.choice([-1, 1], batch))
    second = (first + step).clamp(0, clips.video.shape[1] - 1)
    pictures = _augmented([_pictures(clips, clip, frame) for frame in (first, second)], clip < 0, generator)
    before, after = (((picture + 1) * 127.5).round().byte().movedim(1, -1).numpy() for picture in pictures)
    lens = UCM(xfov=clips.xfov[clip].double(), xi=clips.xi[clip].double())
    with torch.autocast("cpu", enabled=False):
        motion = ray_motion(before, after, lens, lens)
    rotation, translation = network(motion)
    start, end = clips.c2w[clip, first].double(), clips.c2w[clip, second].double()
    turn = start[:, :3, :3].mT @ end[:, :3, :3]
    shift = (start[:, :3, :3].mT @ (end[:, :3, 3:] - start[:, :3, 3:]))[..., 0]
    error = torch.rad2deg(rotation_log(turn.mT @ rotation.double()))
    return (
        _robust(error / CORRECTION_UNIT, 0.1).clamp(max=10).sum(-1)
        + _robust((translation.double() - shift) / TRANSLATION_UNIT, 0.2).sum(-1) / 2
    ).mean()


def _fit(
    network: nn.Module,
    loss_of: Callable[..., Tensor],
    shards: list[Path],
    steps: int,
    settings: DeskTraining,
    output: Path,
    log: Callable[[str], None],
) -> nn.Module:
    """The network with averaged weights after training; a checkpoint beside the output is continued."""
    name = type(network).__name__
    checkpoint = output / f"{name}.checkpoint.pt"
    averaged = copy.deepcopy(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=0.02)
    parts: tuple[Any, ...] = (network, averaged, optimizer)
    done, recent = 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        for part, values in zip(parts, state["parts"]):
            part.load_state_dict(values)
        done = state["done"]
    clips = None
    while done < steps:
        if clips is None or done % settings.batches_per_shard == 0:
            clips = load_shard(shards[(done // settings.batches_per_shard) % len(shards)])
        generator = np.random.default_rng([settings.seed, done])
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(network, clips, generator, settings.batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * _warm_then_decay(done, steps)
        optimizer.step()
        decay = min(settings.average, (done + 1) / (done + 10))
        for kept, value in zip(averaged.parameters(), network.parameters()):
            kept.data.lerp_(value.data, 1 - decay)
        recent, done = 0.98 * recent + 0.02 * loss.item(), done + 1
        if done % 100 == 0 or done == steps:
            log(f"{name} step {done}/{steps}: loss {recent / (1 - 0.98 ** min(done, 500)):.4f}")
            temporary = checkpoint.with_suffix(".tmp")
            torch.save({"parts": [part.state_dict() for part in parts], "done": done}, temporary)
            os.replace(temporary, checkpoint)
    return averaged.eval()


def _warm_then_decay(done: int, steps: int) -> float:
    """Factor on the learning rate: up over 100 steps, down to zero over the last 40 %."""
    return min(1.0, (done + 1) / 100, (steps - done) / (0.4 * steps))


def _draw(clips: DeskClips, generator: np.random.Generator, batch: int) -> tuple[Tensor, Tensor]:
    """Random clips and frames (batch,) each."""
    count, frames = clips.video.shape[:2]
    return torch.from_numpy(generator.integers(count, size=batch)), torch.from_numpy(
        generator.integers(frames, size=batch)
    )


def _pictures(clips: DeskClips, clip: Tensor, frame: Tensor) -> Tensor:
    """Frames (B, 3, H, W) in [-1, 1]."""
    return clips.video[clip, frame].movedim(-1, 1).float() / 127.5 - 1


def _augmented(pictures: list[Tensor], mirrored: Tensor, generator: np.random.Generator) -> list[Tensor]:
    """Pictures of one moment with the same mirroring, exposure and softness: what generated frames vary in."""
    batch = len(mirrored)
    gain = torch.from_numpy(generator.uniform(0.75, 1.25, (batch, 1, 1, 1))).float()
    offset = torch.from_numpy(generator.uniform(-0.15, 0.15, (batch, 3, 1, 1))).float()
    soft = torch.from_numpy(generator.random((batch, 1, 1, 1)) < 0.4)
    height = int(generator.integers(HEIGHT // 3, HEIGHT))
    size = (height, height * WIDTH // HEIGHT)
    noise = float(generator.uniform(0, 0.06))
    result = []
    for picture in pictures:
        small = nn.functional.interpolate(picture, size, mode="bilinear", antialias=True, align_corners=False)
        blurred = nn.functional.interpolate(small, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)
        picture = torch.where(soft, blurred, picture) * gain + offset
        grain = torch.from_numpy(generator.standard_normal(picture.shape, dtype=np.float32))
        picture = (picture + noise * grain).clamp(-1, 1)
        result.append(torch.where(mirrored[:, None, None, None], picture.flip(-1), picture))
    return result


def _robust(difference: Tensor, width: float) -> Tensor:
    """|difference|, rounded off below `width`."""
    return (difference * difference + width * width).sqrt() - width


__all__ = ["DeskTraining", "calibration_loss", "motion_loss", "train"]
