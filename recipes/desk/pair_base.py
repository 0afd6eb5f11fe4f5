"""Train the frozen base of `ucpe bench generation frozen`: a video model of pairs that never saw a camera.

    python -m recipes.desk.pair_base --data pairs/ -o run/

The same command again continues where the last one stopped. Every pair is also shown mirrored. The result,
`run/pair_base.safetensors`, holds the averaged weights and the latents that they belong to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from ucpe.bench.generation import FIT_CLIPS
from ucpe.bench.pair_clips import PAIRS, PrincipalLatents, load_pairs, missing_shards
from ucpe.bench.pair_model import PairModel, save_base
from ucpe.bench.runs import Budget, render_all
from ucpe.desk.model import make_tokenizer
from ucpe.synthesis.worlds import vocabulary
from ucpe.work import progress_bar


@dataclass
class Options:
    """Train a base on pairs, without a camera."""

    data: Path
    """Folder of pairs; missing ones are rendered there."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the checkpoint and the result."""
    steps: int = 7_000
    clips: int = 8192
    checkpoint_every: int = 500


def main() -> None:
    """Train what is missing."""
    options = tyro.cli(Options)
    shards = missing_shards(options.clips, 0, options.data, **PAIRS)
    render_all(shards, Budget())
    pairs = load_pairs(options.data, options.clips)
    latents = PrincipalLatents.fit(pairs.video[:FIT_CLIPS])
    tokenizer = make_tokenizer(vocabulary())
    words = tokenizer(pairs.captions, padding="max_length", return_tensors="pt")["input_ids"].repeat(2, 1)
    sides = [latents.encode(part) for video in (pairs.video, pairs.video.flip(3)) for part in video.split(256)]
    encoded = torch.cat(sides)
    model = PairModel("none", 0, len(tokenizer), options.steps)
    checkpoint = options.output / "checkpoint.safetensors"
    options.output.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        model.load(checkpoint)
    loss = math.nan
    with progress_bar(pace=True) as show:
        while model.step < options.steps:
            step = model.train_step(encoded, words, lambda chosen: None)
            loss = step if math.isnan(loss) else 0.99 * loss + 0.01 * step
            show("pair base", model.step, options.steps, f"loss {loss:.4f}")
            if model.step % options.checkpoint_every == 0 or model.step == options.steps:
                model.save(checkpoint, {})
    save_base(options.output / "pair_base.safetensors", model, latents)


if __name__ == "__main__":
    main()
