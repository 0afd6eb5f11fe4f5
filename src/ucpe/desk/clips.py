"""Small clips of procedural worlds through random cameras: the desk model's data, rendered once and shared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ucpe.desk import FPS, FRAMES, HEIGHT, WIDTH
from ucpe.files import atomic_file
from ucpe.lenses import FAMILIES, UCM
from ucpe.trajectories.rotations import rotation_from_angles

if TYPE_CHECKING:
    from ucpe.synthesis.worlds.world import Style

CLIPS_PER_SHARD = 256
VALIDATION_SEED = 10_000_000
"""Worlds from this seed on are never trained on."""


@dataclass(frozen=True)
class CameraRanges:
    """Amounts, in degrees and near-plane depths, between which a random camera is drawn."""

    pitch: float = 30.0
    """First frame looks up or down by at most this."""
    roll: float = 25.0
    """First frame is tilted by at most this."""
    pan: float = 60.0
    """Yaw over the clip."""
    tilt: float = 20.0
    """Pitch over the clip."""
    twist: float = 15.0
    """Roll over the clip."""
    travel: float = 1.2
    """Distance over the clip."""


@dataclass
class DeskClips:
    """A batch of clips with their cameras."""

    video: Tensor  # (B, N, H, W, 3) uint8
    c2w: Tensor  # (B, N, 4, 4), gravity-aligned, in near-plane depths
    xfov: Tensor  # (B,) degrees
    xi: Tensor  # (B,)
    seeds: Tensor  # (B,)
    captions: list[str]
    families: list[str]
    near_depth: Tensor | None = None  # (B,) metres

    def lens(self, index: int) -> UCM:
        """Lens of one clip."""
        return UCM(xfov=self.xfov[index].double(), xi=self.xi[index].double())


def random_camera(
    generator: np.random.Generator, frames: int = FRAMES, ranges: CameraRanges | None = None
) -> tuple[str, UCM, np.ndarray]:
    """Lens family, lens and smooth poses (N, 4, 4) with unit near-plane depth, starting at the origin."""
    ranges = ranges or CameraRanges()
    family = FAMILIES[list(FAMILIES)[generator.integers(len(FAMILIES))]]
    lens = UCM(xfov=float(generator.uniform(*family.xfov)), xi=float(generator.uniform(*family.xi)))
    progress = _progress(generator, frames)
    yaw = generator.uniform(-180, 180) + progress * generator.uniform(-ranges.pan, ranges.pan)
    pitch = generator.uniform(-ranges.pitch, ranges.pitch) + progress * generator.uniform(-ranges.tilt, ranges.tilt)
    roll = generator.uniform(-ranges.roll, ranges.roll) + progress * generator.uniform(-ranges.twist, ranges.twist)
    poses = np.tile(np.eye(4), (frames, 1, 1))
    poses[:, :3, :3] = rotation_from_angles(*map(torch.from_numpy, (pitch, yaw, roll))).numpy()
    heading = generator.normal(size=3) * [1, 0.25, 1]
    distance = generator.uniform(0, ranges.travel) * (generator.random() < 0.9)
    poses[:, :3, 3] = _progress(generator, frames)[:, None] * distance * heading / np.linalg.norm(heading)
    return family.name, lens, poses


def render_shard(
    shard: int,
    first_seed: int,
    folder: Path,
    samples: int = 2,
    threads: int = 1,
    style: Style = "textured",
    kept: Sequence[int] = tuple(range(FRAMES)),
    clips: int | None = None,
) -> Path:
    """Render one shard of clips, unless it is already there; returns its path.

    Only the `kept` frames of every clip are rendered, and CLIPS_PER_SHARD `clips` unless told otherwise.
    """
    from ucpe.synthesis.worlds import World, render_clip

    clips = CLIPS_PER_SHARD if clips is None else clips
    path = Path(folder) / f"clips-{shard:05d}.safetensors"
    if path.exists():
        return path
    Path(folder).mkdir(parents=True, exist_ok=True)
    video = torch.empty(clips, len(kept), HEIGHT, WIDTH, 3, dtype=torch.uint8)
    c2w = torch.empty(clips, len(kept), 4, 4)
    seeds = first_seed + shard * clips + torch.arange(clips)
    lenses, captions, families, near = [], [], [], []
    for index, seed in enumerate(seeds.tolist()):
        generator = np.random.default_rng([seed, 13])
        world = World.sample(seed, kind="outdoor", style=style)
        while True:
            family, lens, poses = random_camera(generator)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            if world.clearance(metric[:, :3, 3]).min() > 0.5:
                break
        poses, metric = poses[list(kept)], metric[list(kept)]
        image = render_clip(world, lens, metric, HEIGHT, WIDTH, FPS, samples, threads=threads)
        video[index], c2w[index] = torch.from_numpy(image.color), torch.from_numpy(poses)
        lenses.append([lens.parameters["xfov"], lens.parameters["xi"]])
        captions.append(world.caption_of(image))
        families.append(family)
        near.append(world.near_depth)
    xfov, xi = torch.tensor(lenses, dtype=torch.float32).unbind(-1)
    tensors = {"video": video, "c2w": c2w, "xfov": xfov.contiguous(), "xi": xi.contiguous(), "seeds": seeds}
    tensors["near_depth"] = torch.tensor(near, dtype=torch.float32)
    with atomic_file(path) as file:
        save_file(tensors, file, {"captions": json.dumps(captions), "families": json.dumps(families)})
    return path


def load_shard(path: Path) -> DeskClips:
    """The clips of one shard."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return DeskClips(**tensors, captions=json.loads(metadata["captions"]), families=json.loads(metadata["families"]))


def shard_paths(folder: Path) -> list[Path]:
    """All complete shards of a folder, in order."""
    paths = sorted(Path(folder).glob("clips-*.safetensors"))
    if not paths:
        raise ValueError(f"no clips in {folder}; render them with `ucpe train desk-clips -o {folder}`")
    return paths


def _progress(generator: np.random.Generator, frames: int) -> np.ndarray:
    """A curve (N,) from 0 to 1: constant speed, eased, or accelerating."""
    time = np.linspace(0, 1, frames)
    curves = (time, time * time * (3 - 2 * time), time**1.7, 1 - (1 - time) ** 1.7)
    return curves[generator.integers(len(curves))]
