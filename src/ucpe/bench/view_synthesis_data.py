"""Triples of small views of procedural worlds with exact cameras: the novel view benchmark's data, rendered once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ucpe.files import atomic_file
from ucpe.lenses import FAMILIES, UCM, BrownConrady, Lens, Pinhole
from ucpe.trajectories.rotations import rotation_from_angles

SIZE = 48
"""Height and width of a view in pixels."""

VIEWS = 3
"""Two given views, then the view to predict."""

CLIPS_PER_SHARD = 256

FORMAT = "ucpe-view-triples-1"
"""Name and version of what a shard holds; a change of anything below that changes a pixel changes it."""

TEST_SEED = 20_000_000
"""Worlds from this seed on are never trained on."""

SAMPLES = 2
"""Rays per pixel along each side."""

CLEARANCE = 0.3
"""Metres that every camera keeps from every surface."""

UNSEEN_LENS = {"xfov": 100.0, "k1": -0.2, "k2": 0.03}
"""The Brown-Conrady lens that no training set holds."""


@dataclass(frozen=True)
class Part:
    """A set of clips: which lens families it draws from, and the share of clips whose views have different ones."""

    families: tuple[str, ...]
    """None of them: the unseen Brown-Conrady lens."""
    mixed: float
    first_seed: int


TRAINING_PARTS = {
    "all": Part(tuple(FAMILIES), mixed=0.5, first_seed=0),
    "narrow": Part(("pinhole", "wide"), mixed=0.5, first_seed=0),
}
TEST_PARTS = {
    **{name: Part((name,), mixed=0, first_seed=TEST_SEED) for name in FAMILIES},
    "mixed": Part(tuple(FAMILIES), mixed=1, first_seed=TEST_SEED),
    "brown-conrady": Part((), mixed=0, first_seed=TEST_SEED),
}
PARTS = {**TRAINING_PARTS, **TEST_PARTS}
"""All parts by name; clip i of every part with the same first seed shows the same world from the same cameras."""


@dataclass
class Triples:
    """Clips of three views: two given, one to predict."""

    images: Tensor  # (B, 3, H, W, 3) uint8, zero where invalid
    valid: Tensor  # (B, 3, H, W) bool, pixels that see something
    c2w: Tensor  # (B, 3, 4, 4) float64, gravity-aligned, in near-plane depths
    lens: Lens  # batch shape (B, 3) or ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor | slice) -> Triples:
        """The clips at these indices."""
        lens = self.lens[index] if self.lens.batch_shape else self.lens
        return Triples(self.images[index], self.valid[index], self.c2w[index], lens)


def pinhole_of(lens: Lens) -> Pinhole:
    """The pinhole with a lens's horizontal field of view: what a user who ignores distortion would state."""
    return Pinhole(xfov=lens.parameters["xfov"])


def random_poses(generator: np.random.Generator) -> np.ndarray:
    """Poses (3, 4, 4) scattered around a random orientation, with unit near-plane depth."""
    middle = generator.uniform([-20, -180, -15], [20, 180, 15])
    pitch, yaw, roll = (middle + generator.uniform([-12, -30, -12], [12, 30, 12], size=(VIEWS, 3))).T
    poses = np.tile(np.eye(4), (VIEWS, 1, 1))
    poses[:, :3, :3] = rotation_from_angles(*map(torch.from_numpy, (pitch, yaw, roll))).numpy()
    poses[:, :3, 3] = generator.uniform([-0.5, -0.2, -0.5], [0.5, 0.2, 0.5], size=(VIEWS, 3))
    return poses


def random_lens(part: Part, generator: np.random.Generator) -> Tensor:
    """xFoV in degrees and xi (3, 2) of the views of a clip, one lens for all of them or one each."""
    draws = VIEWS if generator.random() < part.mixed else 1
    lenses = []
    for _ in range(draws):
        family = FAMILIES[part.families[generator.integers(len(part.families))]]
        lenses.append([generator.uniform(*family.xfov), generator.uniform(*family.xi)])
    return torch.tensor(lenses, dtype=torch.float64).expand(VIEWS, 2).clone()


def render_shard(name: str, shard: int, folder: Path) -> Path:
    """Render one shard of a part, unless it is already there; returns its path."""
    from ucpe.synthesis.worlds import World, render_clip

    path = _path(folder, name, shard)
    if path.exists():
        return path
    part = PARTS[name]
    images = torch.empty(CLIPS_PER_SHARD, VIEWS, SIZE, SIZE, 3, dtype=torch.uint8)
    valid = torch.empty(CLIPS_PER_SHARD, VIEWS, SIZE, SIZE, dtype=torch.bool)
    c2w = torch.empty(CLIPS_PER_SHARD, VIEWS, 4, 4, dtype=torch.float64)
    lenses = torch.zeros(CLIPS_PER_SHARD, VIEWS, 2, dtype=torch.float64)
    for index in range(CLIPS_PER_SHARD):
        seed = part.first_seed + shard * CLIPS_PER_SHARD + index
        world = World.sample(seed)
        generator = np.random.default_rng([seed, 17])
        while True:
            poses = random_poses(generator)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            if world.clearance(metric[:, :3, 3]).min() > CLEARANCE:
                break
        if part.families:
            lenses[index] = random_lens(part, np.random.default_rng([seed, 19]))
        image = render_clip(world, _lens(part, lenses[index]), metric, SIZE, SIZE, samples=SAMPLES, threads=1)
        valid[index] = torch.from_numpy(image.valid)
        images[index] = torch.from_numpy(image.color * image.valid[..., None])
        c2w[index] = torch.from_numpy(poses)
    with atomic_file(path) as file:
        save_file({"images": images, "valid": valid, "c2w": c2w, "lens": lenses}, file, {"format": FORMAT})
    return path


def missing_shards(counts: dict[str, int], folder: Path) -> Iterator[tuple[str, int]]:
    """Part and number of every shard missing in `folder` for this number of clips per part."""
    for name, count in counts.items():
        for shard in range(-(-count // CLIPS_PER_SHARD)):
            path = _path(folder, name, shard)
            if not path.exists():
                yield name, shard
                continue
            with safe_open(path, "pt") as file:
                found = (file.metadata() or {}).get("format")
            if found != FORMAT:
                raise ValueError(f"{path} holds {found}, not {FORMAT}; remove the folder or name another with --data")


def load_clips(name: str, count: int, folder: Path) -> Triples:
    """The first `count` clips of a part."""
    part = PARTS[name]
    shards = [load_file(_path(folder, name, shard)) for shard in range(-(-count // CLIPS_PER_SHARD))]
    tensors = {key: torch.cat([shard[key] for shard in shards])[:count] for key in shards[0]}
    lens = _lens(part, tensors.pop("lens"))
    return Triples(**tensors, lens=lens)


def _lens(part: Part, parameters: Tensor) -> Lens:
    """The lens of xFoV and xi (..., 2), or the unseen one of a part without families."""
    if not part.families:
        return BrownConrady(**UNSEEN_LENS)
    return UCM(xfov=parameters[..., 0], xi=parameters[..., 1])


def _path(folder: Path, name: str, shard: int) -> Path:
    return Path(folder) / f"{name}-{shard:05d}.safetensors"
