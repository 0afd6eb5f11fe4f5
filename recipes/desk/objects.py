"""Whether the objects that a caption names are seen in their colour, by a small network that learned it on true clips.

    python -m recipes.desk.objects --data clips/ --held-out held-out/ -o objects/ [--videos FOLDER]

The network looks at patches of 17 pixels, so it cannot guess objects from the scene. Half of its training frames are
blurred, as generated ones may be. The threshold of each colour is set on the last shard of the training clips, which
the network does not see. How often the check is right is printed for held-out true clips, for colours that a caption
names and for those it does not; then the same for the videos of `recipes.desk.evaluate generate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from ucpe.desk.clips import load_shard, shard_paths
from ucpe.files import atomic_file
from ucpe.synthesis.worlds.words import COLORS, UNCOLORED
from ucpe.training.encoded import to_model_range
from ucpe.video import read_video
from ucpe.work import progress_bar

KINDS = (*COLORS, "tree")
"""Colours of objects; the last stands for those that need no colour word."""

FRAMES = (0, 4, 8, 12, 16)
"""Frames of a clip that are looked at."""

FALSE_ALARMS = 0.05
"""Share of true clips without a colour in which it is taken for seen."""

STEPS, BATCH = 1600, 16


@dataclass
class Options:
    """Count clips in which named objects are seen in their colour."""

    data: Path
    """Folder of desk clips that the network is trained on."""
    held_out: Path
    """Folder of desk clips whose first shard has the captions."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder that keeps the network."""
    videos: Path | None = None
    """Folder of generated videos, named by the number of their clip."""


def named(caption: str) -> Tensor:
    """Which of KINDS a caption names (K,)."""
    words = set(re.findall(r"\w+", caption.split(" on ")[0]))
    trees = {word for name in UNCOLORED for word in (name, name + "s")}
    return torch.tensor([*(color in words for color in COLORS), bool(trees & words)])


class ColorCheck(nn.Module):
    """Clips -> how much speaks for an object of each kind."""

    thresholds: Tensor

    def __init__(self, width: int = 24):
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for step in (1, 2, 3):
            layers += [nn.Conv2d(channels, step * width, 5 if step == 1 else 3, stride=2, padding=1), nn.SiLU()]
            channels = step * width
        self.patches = nn.Sequential(*layers, nn.Conv2d(channels, channels, 1), nn.SiLU(), nn.Conv2d(channels, 10, 1))
        self.register_buffer("thresholds", torch.zeros(len(KINDS)))

    def forward(
        self,
        video: Tensor,  # (B, N, H, W, 3) uint8
        blur: float = 0.0,
    ) -> Tensor:
        """Scores (B, K): those of the patches that speak most for a kind."""
        frames = to_model_range(video[:, FRAMES]).transpose(1, 2).flatten(0, 1)  # (B * F, 3, H, W)
        if blur:
            kernel = torch.exp(-0.5 * (torch.arange(-4, 5) / blur) ** 2)
            kernel = (kernel[:, None] * kernel / kernel.sum() ** 2).expand(3, 1, 9, 9)
            frames = functional.conv2d(functional.pad(frames, (4, 4, 4, 4), "replicate"), kernel, groups=3)
        patches = self.patches(frames).unflatten(0, (len(video), -1)).transpose(1, 2).flatten(2)
        return patches.topk(12, dim=-1).values.mean(-1)


def train(folder: Path) -> ColorCheck:
    """A network fitted to the clips of a folder."""
    torch.manual_seed(0)
    check = ColorCheck()
    optimizer = torch.optim.AdamW(check.parameters(), lr=2e-3, weight_decay=0.01)
    *paths, last = shard_paths(folder)
    shards = [load_shard(path) for path in paths]
    labels = [torch.stack([named(caption) for caption in shard.captions]).float() for shard in shards]
    with progress_bar(pace=True) as show:
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * min(1.0, (step + 1) / 50, (STEPS - step) / (0.5 * STEPS))
            which = int(torch.randint(len(shards), ()))
            chosen = torch.randint(len(labels[which]), (BATCH,))
            blur = float(torch.rand(()) * 2) if torch.rand(()) < 0.5 else 0.0
            scores = check(shards[which].video[chosen], max(blur, 0.3) if blur else 0.0)
            loss = functional.binary_cross_entropy_with_logits(scores, labels[which][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            show("objects", step + 1, STEPS, f"loss {loss.item():.3f}")
    clips = load_shard(last)
    there = torch.stack([named(caption) for caption in clips.captions])
    scores = scores_of(check, list(clips.video))
    for kind in range(len(KINDS)):
        check.thresholds[kind] = scores[~there[:, kind], kind].quantile(1 - FALSE_ALARMS)
    return check


@torch.no_grad()
def scores_of(check: ColorCheck, videos: list[Tensor]) -> Tensor:
    """Scores (B, K) of videos (N, H, W, 3) uint8."""
    return torch.cat([check(video[None]) for video in videos])


def main() -> None:
    """Print how often named and other colours are taken for seen, in true and in generated videos."""
    options = tyro.cli(Options)
    kept = options.output / "objects.safetensors"
    if kept.exists():
        check = ColorCheck()
        check.load_state_dict(load_file(kept))
    else:
        check = train(options.data)
        options.output.mkdir(parents=True, exist_ok=True)
        with atomic_file(kept) as file:
            save_file(check.state_dict(), file)
    clips = load_shard(shard_paths(options.held_out)[0])
    sources = {"true": dict(enumerate(clips.video))}
    if options.videos is not None:
        sources["generated"] = {
            int(path.stem): torch.from_numpy(np.stack([frame.rgb for frame in read_video(path)]))
            for path in sorted(options.videos.glob("*.mp4"))
        }
    for name, videos in sources.items():
        wanted = torch.stack([named(clips.captions[index]) for index in videos])
        seen = scores_of(check, list(videos.values())) > check.thresholds
        whole = (seen | ~wanted).all(1)[wanted.any(1)]
        shares = [seen[wanted], whole, seen[~wanted]]
        right, all_right, wrong = (f"{share.float().mean():.1%}" for share in shares)
        print(
            f"{name:<10} {len(videos)} clips: named objects seen in their colour {right}, all of a clip's {all_right}; "
            f"colours that were not named {wrong}"
        )


if __name__ == "__main__":
    main()
