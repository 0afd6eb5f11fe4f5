"""Train the desk estimators on clips of procedural worlds, and measure their own error on held-out worlds.

python -m recipes.desk.estimators --clips clips/ --output weights/
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from recipes.desk.whole_clips import decode_whole, encode_whole
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ucpe import desk
from ucpe.desk import FPS, HEIGHT, WIDTH
from ucpe.desk.clips import VALIDATION_SEED, DeskClips, load_shard, render_shard
from ucpe.desk.networks import (
    CORRECTION_UNIT,
    TRANSLATION_UNIT,
    XFOV_SPREAD,
    XI_SPREAD,
    DeskCalibrator,
    DeskMatcher,
    DeskMotion,
    RayMotion,
    best_rotation,
    cell_rays,
    ray_motion,
)
from ucpe.evaluation.camera_metrics import calibration_errors, commanded_calibration
from ucpe.evaluation.estimators.desk import calibrate, load_weights, track
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.files import atomic_file, file_fingerprint, fingerprint_of
from ucpe.lenses import UCM
from ucpe.training.encoded import to_model_range
from ucpe.training.recipes import has_bf16
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_log

SAME_CELL = 0.995
"""Cosine between a turned ray and the nearest cell from which that is its match: half a cell of the widest lens."""

MIRROR = (-1.0, 1.0, 1.0)
"""What a picture flipped left to right does to directions."""


@dataclass(frozen=True)
class DeskTraining:
    """How long and on how much the desk estimators train."""

    shards: int = 8
    """Training shards of 256 clips, rendered where they are missing."""
    autoencoded: float = 0.5
    """Share of clips that are seen through the desk model's autoencoder, as soft as what is to be measured."""
    calibrator_steps: int = 3600
    flow_steps: int = 1500
    matcher_steps: int = 2500
    matching_steps: int = 1000
    batch: int = 64
    matcher_batch: int = 24
    learning_rate: float = 2e-3
    batches_per_shard: int = 6
    """Batches drawn from a shard before the next one is read."""
    average: float = 0.998
    """Decay of the running average of the weights, which is what is kept."""
    seed: int = 0


def train(
    clips: str | Path,
    output: str | Path,
    settings: DeskTraining | None = None,
    initial: str | Path | None = None,
    log: Callable[[str], None] = print,
) -> Path:
    """Train the desk estimators on the clips of a folder and write `estimators.safetensors` to `output`.

    `clips` holds `train/` and `val/`; shards missing there are rendered first. Starts from the weights in `initial`, if
    given; a network with no steps stays as it is there. A killed run continues where it was.
    """
    settings, clips, output = settings or DeskTraining(), Path(clips), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    shards = [render_shard(shard, 0, clips / "train") for shard in range(settings.shards)]
    held_out = load_shard(render_shard(0, VALIDATION_SEED, clips / "val"))
    if settings.autoencoded:
        for shard in shards:
            through_autoencoder(shard)
            log(f"{shard.name} is there through the autoencoder")
    torch.manual_seed(settings.seed)
    calibrator, motion, training = DeskCalibrator(), DeskMotion(), asdict(settings)
    if initial is not None:
        earlier = load_weights(Path(initial))
        training["initial"] = earlier[2]["training"]
        calibrator.load_state_dict(earlier[0].state_dict())
        motion.load_state_dict(earlier[1].state_dict())

    def fit(name: str, network: Any, loss: Callable[..., Tensor], steps: int, batch: int) -> Any:
        return _fit(name, network, loss, shards, steps, batch, settings, output, log)

    by_flow = partial(motion_loss, ray_motion, (0, 1, 1, 1, 2, 4))
    motion.by_flow = fit("flow", motion.by_flow, by_flow, settings.flow_steps, settings.batch)
    motion.matcher = fit("matcher", motion.matcher, matching_loss, settings.matcher_steps, settings.matcher_batch)
    by_matching = partial(motion_loss, motion.matcher.requires_grad_(False), (0, 2, 4, 4, 8))
    motion.by_matching = fit("matching", motion.by_matching, by_matching, settings.matching_steps, settings.batch)
    calibrator = fit("calibrator", calibrator, calibration_loss, settings.calibrator_steps, settings.batch)
    floors = floors_of(calibrator.half().float().eval(), motion.half().float().eval(), held_out)
    log(json.dumps(floors))
    return save_weights(output / "estimators.safetensors", calibrator, motion, floors, training)


def through_autoencoder(shard: Path) -> Tensor:
    """Videos (B, N, H, W, 3) uint8 of a shard, encoded and decoded by the desk model; kept in a folder beside it."""
    weights = desk.WEIGHTS / "vae" / "diffusion_pytorch_model.safetensors"
    digest = fingerprint_of(file_fingerprint(weights), file_fingerprint(shard))
    path = shard.parent / "autoencoded" / f"{shard.stem}-{digest[:12]}.safetensors"
    if not path.exists():
        from diffusers import AutoencoderKLWan

        path.parent.mkdir(exist_ok=True)
        model, decoded = AutoencoderKLWan.from_pretrained(weights.parent, torch_dtype=torch.float32), []
        for video in load_shard(shard).video.split(8):
            with torch.no_grad():
                restored = decode_whole(model, encode_whole(model, to_model_range(video)).mode())
            decoded.append(((restored.float().clamp(-1, 1).movedim(1, -1) + 1) * 127.5).round().byte())
        with atomic_file(path) as temporary:
            save_file({"video": torch.cat(decoded)}, temporary)
    return load_file(path)["video"]


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


def motion_loss(
    look: Callable[..., RayMotion],
    gaps: tuple[int, ...],
    network: nn.Module,
    clips: DeskClips,
    generator: np.random.Generator,
    batch: int,
) -> Tensor:
    """Robust loss of the rotation and translation between frames some `gaps` apart, in either order."""
    pair = _draw_pair(clips, generator, batch, gaps)
    lens = UCM(xfov=clips.xfov[pair.clip].double(), xi=clips.xi[pair.clip].double())
    before, after = (((picture + 1) * 127.5).round().byte().movedim(1, -1).numpy() for picture in pair.pictures)
    with torch.autocast("cpu", enabled=False):
        motion = look(before, after, lens, lens)
    rotation, translation = network(motion)
    error = torch.rad2deg(rotation_log(pair.turn.mT @ rotation.double()))
    return (
        _robust(error / CORRECTION_UNIT, 0.1).clamp(max=10).sum(-1)
        + _robust((translation.double() - pair.shift) / TRANSLATION_UNIT, 0.2).sum(-1) / 2
    ).mean()


def matching_loss(network: DeskMatcher, clips: DeskClips, generator: np.random.Generator, batch: int) -> Tensor:
    """Robust loss of the rotation that matches give, and how unlikely they hold the cells that it leads to."""
    pair = _draw_pair(clips, generator, batch, (1, 2, 4, 8, 16))
    grain = _grain_of_the_screen(batch, generator)
    first, second = ((picture + grain).clamp(-1, 1) for picture in pair.pictures)
    rays, seen = cell_rays(UCM(xfov=clips.xfov[pair.clip].double(), xi=clips.xi[pair.clip].double()))
    chance, weight = network.match(first, second, seen, seen)
    with torch.autocast("cpu", enabled=False):
        end = nn.functional.normalize(chance.double() @ rays, dim=-1)
        rotation = best_rotation(rays, end, weight.double() / weight.double().sum(-1, keepdim=True).clamp(min=1e-9))
        error = torch.rad2deg(rotation_log(pair.turn.mT @ rotation)).norm(dim=-1)
        closeness, cell = ((rays @ pair.turn) @ rays.mT).masked_fill(~seen[:, None], -1).max(-1)
        both = seen & (closeness > SAME_CELL)
        surprise = -chance.gather(-1, cell[..., None])[..., 0].clamp(min=2e-3).log()
        surprise = (surprise * both).sum(-1) / both.sum(-1).clamp(min=1)
        return (_robust(error / 5, 0.1) + 0.2 * surprise).mean()


def _fit(
    name: str,
    network: nn.Module,
    loss_of: Callable[..., Tensor],
    shards: list[Path],
    steps: int,
    batch: int,
    settings: DeskTraining,
    output: Path,
    log: Callable[[str], None],
) -> nn.Module:
    """The network with averaged weights after training; a checkpoint beside the output is continued."""
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
        turn = done // settings.batches_per_shard
        if clips is None or done % settings.batches_per_shard == 0:
            clips = _mixed(
                shards[turn % len(shards)], settings.autoencoded, np.random.default_rng([settings.seed, turn])
            )
        generator = np.random.default_rng([settings.seed, done])
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bf16()):
            loss = loss_of(network, clips, generator, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * _warm_then_decay(done, steps)
        optimizer.step()
        decay = min(settings.average, (done + 1) / (done + 10))
        for kept, value in zip(averaged.parameters(), network.parameters()):
            kept.data.lerp_(value.data, 1 - decay)
        recent, done = 0.98 * recent + 0.02 * loss.item(), done + 1
        if done % 100 == 0 or done == steps:
            log(f"{name} step {done}/{steps}: loss {recent / (1 - 0.98 ** min(done, 500)):.4f}")
            with atomic_file(checkpoint) as temporary:
                torch.save({"parts": [part.state_dict() for part in parts], "done": done}, temporary)
    return averaged.eval()


def _mixed(shard: Path, autoencoded: float, generator: np.random.Generator) -> DeskClips:
    """A shard of which a share of the clips went through the autoencoder."""
    clips = load_shard(shard)
    if not autoencoded:
        return clips
    soft = torch.from_numpy(generator.random(len(clips.video)) < autoencoded)
    return replace(clips, video=torch.where(soft[:, None, None, None, None], through_autoencoder(shard), clips.video))


class FramePair(NamedTuple):
    """Two frames of one clip each and how the camera moved from the first to the second."""

    clip: Tensor  # (B,)
    pictures: list[Tensor]  # two of (B, 3, H, W) in [-1, 1]
    turn: Tensor  # (B, 3, 3)
    shift: Tensor  # (B, 3)


def _draw_pair(clips: DeskClips, generator: np.random.Generator, batch: int, gaps: tuple[int, ...]) -> FramePair:
    """Frames some `gaps` apart, in either order."""
    clip, _ = _draw(clips, generator, batch)
    gap = generator.choice(gaps, batch)
    early = (generator.random(batch) * (clips.video.shape[1] - gap)).astype(int)
    swap = generator.random(batch) < 0.5
    first, second = (torch.from_numpy(np.where(swap, a, b)) for a, b in ((early + gap, early), (early, early + gap)))
    pictures = _augmented([_pictures(clips, clip, frame) for frame in (first, second)], clip < 0, generator)
    start, end = clips.c2w[clip, first].double(), clips.c2w[clip, second].double()
    shift = (start[:, :3, :3].mT @ (end[:, :3, 3:] - start[:, :3, 3:]))[..., 0]
    return FramePair(clip, pictures, start[:, :3, :3].mT @ end[:, :3, :3], shift)


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


def _grain_of_the_screen(batch: int, generator: np.random.Generator) -> Tensor:
    """Texture (B, 3, H, W) that does not move with the scene, as in generated videos; none for half of the batch."""
    size = int(generator.integers(2, 7))
    grain = torch.from_numpy(generator.standard_normal((batch, 3, HEIGHT // size, WIDTH // size), dtype=np.float32))
    strength = torch.from_numpy(generator.uniform(-0.15, 0.15, (batch, 1, 1, 1))).float().clamp(min=0)
    return strength * nn.functional.interpolate(grain, (HEIGHT, WIDTH), mode="bilinear")


def _robust(difference: Tensor, width: float) -> Tensor:
    """|difference|, rounded off below `width`."""
    return (difference * difference + width * width).sqrt() - width


def floors_of(calibrator: nn.Module, motion: nn.Module, clips: DeskClips) -> dict[str, dict[str, float]]:
    """Mean errors of both networks over clips with known cameras, by the metrics of the `robust` protocol."""
    protocol = PROTOCOLS["robust"]
    calibration: list[dict[str, float]] = []
    pose: list[dict[str, float]] = []
    for index in range(len(clips.video)):
        frames = clips.video[index].numpy()
        camera = Trajectory(clips.c2w[index].double(), clips.lens(index), FPS)
        wanted = commanded_calibration(camera, "ucm", HEIGHT, WIDTH)
        calibration.append(calibration_errors(calibrate(calibrator, frames), wanted))  # type: ignore[arg-type]
        estimated = track(motion, frames, camera.lens)  # type: ignore[arg-type]
        pose.append(protocol.evaluate(camera.c2w, estimated, near_depth=1.0, metric=True))
    return {"calibration": _means(calibration), "pose": _means(pose)}


def save_weights(
    path: Path, calibrator: nn.Module, motion: nn.Module, floors: dict[str, Any], training: dict[str, Any]
) -> Path:
    """Write both networks in half precision with their floors and training settings."""
    networks = {"calibrator": calibrator, "motion": motion}
    tensors = {
        f"{name}.{key}": value.half().contiguous()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, {"ucpe": json.dumps({"floors": floors, "training": training})})
    return path


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for row in rows for name in row})
    values = {name: [row[name] for row in rows if name in row and np.isfinite(row[name])] for name in names}
    return {name: round(float(np.mean(value)), 4) for name, value in values.items() if value}


if __name__ == "__main__":
    tyro.cli(train)
