"""`ucpe train RECIPE --data dataset/ -o run/`: train an adapter, a baseline, or the parts of the desk model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.parsing import parse
from ucpe.training.recipes import RECIPES, Recipe
from ucpe.work import Calls, Item, WorkOptions, complete, progress_bar, run

USAGE = """usage: ucpe train RECIPE --data FOLDER -o FOLDER [--FIELD VALUE ...]
       ucpe train RECIPE --dry-run [--data FOLDER]
       ucpe train --list

RECIPE is a name from --list, or a Python file that defines recipe().
`ucpe train RECIPE --help` lists every field of it."""


@dataclass
class Options:
    """Train by a recipe. The same command again continues where the last one stopped."""

    recipe: tyro.conf.OmitArgPrefixes[Recipe]
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("run")
    """Folder for recipe, curve, checkpoints, samples and result."""
    data: Path | None = None
    """Clips: what `ucpe synthesize` writes, PanShot as published, or desk clips."""
    validation: Path | None = None
    """Clips to validate on; by default the test split of the data."""
    cache: Path | None = None
    """Where encoded clips and captions are kept; by default DATA/encoded."""
    tracker: str = "tensorboard"
    """Where to log the curve: any tracker of accelerate (tensorboard, wandb, mlflow, ...), or none."""
    skip_broken: bool = False
    """Train without clips that cannot be read, instead of stopping."""
    encoding: WorkOptions = field(default_factory=WorkOptions)
    encode_only: bool = False
    """Stop once all clips are encoded, for example on a cluster before `accelerate launch` trains."""
    dry_run: bool = False
    """Print parameters, memory and steps per epoch, and check one batch."""


@dataclass
class ClipOptions:
    """Render the desk model's clips: small videos of procedural worlds through random cameras."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder for the shards."""
    shards: int = 64
    """Number of shards, of 256 clips each."""
    first: int = 0
    """Number of the first shard, to share the work between machines."""
    validation: bool = False
    """Render worlds that training never sees."""
    style: Literal["plain", "textured"] = "plain"
    """Large tiles, smooth skies and clear edges, or worlds with texture."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)


def main(arguments: list[str]) -> None:
    """Run `ucpe train`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    if arguments[0] == "--list":
        _list()
        return
    name, rest = arguments[0], arguments[1:]
    if name.startswith("-"):
        raise ValueError(f"the recipe comes first: ucpe train RECIPE {' '.join(arguments)}")
    if name == "desk-clips":
        _render(parse(ClipOptions, rest, f"ucpe train {name}"))
    else:
        _train(name, rest)


def _train(name: str, arguments: list[str]) -> None:
    from ucpe.training import runs

    options = parse(Options, arguments, f"ucpe train {name}", default=Options(runs.find_recipe(name)))
    if options.dry_run:
        from ucpe.training.dry_run import dry_run

        for label, value in dry_run(options.recipe, options.data, options.output, options.cache).lines():
            print(f"{label:<24}{value}")
        return
    if options.data is None:
        raise ValueError("name the folder of clips to train on: --data FOLDER")
    result = runs.run(
        options.recipe,
        options.data,
        options.output,
        validation=options.validation,
        cache=options.cache,
        tracker=options.tracker,
        skip_broken=options.skip_broken,
        encoding=options.encoding,
        encode_only=options.encode_only,
    )
    if os.environ.get("RANK", "0") == "0":
        print(result)


def _render(options: ClipOptions) -> None:
    from ucpe.desk.clips import VALIDATION_SEED, render_shard

    seed = VALIDATION_SEED if options.validation else 0
    stage = Calls(partial(render_shard, first_seed=seed, folder=options.output, style=options.style), "shards")
    items = [Item(str(number), number) for number in range(options.first, options.first + options.shards)]
    with progress_bar(pace=True) as show:
        complete(run(stage, items, progress=show, **vars(options.work)))
    print(options.output)


def _list() -> None:
    for name, recipe in RECIPES.items():
        print(f"{name:<28}{recipe.summary()}")
    print(f"{'desk-clips':<28}render the desk model's clips of procedural worlds")
