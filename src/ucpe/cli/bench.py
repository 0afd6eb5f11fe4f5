"""`ucpe bench`: the comparisons anyone can re-run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Latency:
    """Measure time per video, and what the camera adapter adds to it, on this machine."""

    models: tyro.conf.Positional[tuple[str, ...]] = ("desk",)
    """Models: `desk`, a pipeline folder with its adapter, or MODEL@ADAPTER of folders or hub ids."""
    frames: int | None = None
    """Frames per video. [default: the model's own]"""
    height: int | None = None
    width: int | None = None
    steps: int | None = None
    """Denoising steps. [default: the model's own]"""
    repeats: int = 3
    """Videos timed, after one that is not."""
    device: str | None = None
    """cpu, cuda, ... [default: cuda if there is one]"""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Write the numbers to this .json as well."""


def latency(arguments: Sequence[str]) -> None:
    """Time models and print Table D with them."""
    options = tyro.cli(Latency, args=arguments, prog="ucpe bench latency")
    import json

    import torch

    from ucpe.bench.latency import markdown, measure_latency
    from ucpe.generation import CameraPipeline

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    found = []
    for name in options.models:
        model, _, adapter = name.partition("@")
        pipeline = CameraPipeline.from_pretrained(None if model == "desk" else model, adapter or None).to(device)
        found.append(
            measure_latency(
                pipeline,
                name,
                frames=options.frames,
                height=options.height,
                width=options.width,
                steps=options.steps,
                repeats=options.repeats,
            )
        )
    print(markdown(found))
    if options.output is not None:
        options.output.write_text(json.dumps([item.to_dict() for item in found], indent=1) + "\n")


@dataclass
class Encodings:
    """Compare camera encodings in novel view synthesis: a small transformer sees two posed views and predicts a third.

    The same command again continues where the last one stopped.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-encodings")
    """Folder for clips, runs and, by number of steps, results.json, results.md, psnr.png and views.png."""
    contestants: tuple[str, ...] | None = None
    """Contestants by name. [default: all]"""
    encoding: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A class of yours that takes part too, as my_module:MyEncoding; may be repeated."""
    quick: bool = False
    """A first look within 10 minutes on 2 cores: 300 steps, 2 seeds, nothing trained on narrow lenses only."""
    seeds: int | None = None
    """Trainings of each contestant. [default: 3, or 2 if --quick]"""
    minutes: float | None = None
    """Start nothing that would not end within so many minutes; what was not run is shown as not run."""
    steps: int | None = None
    """Steps of each training. [default: 800, or 300 if --quick]"""
    clips: int | None = None
    """Clips to train on. [default: 12000, or 4096 if --quick]"""
    trainings: tuple[str, ...] | None = None
    """Sets of clips to train on: all, narrow. [default: both, or all if --quick]"""
    workers: int | None = None
    """Processes, of one thread each. [default: one per core]"""
    data: Path | None = None
    """Folder of rendered clips. [default: OUTPUT/clips]"""
    list: bool = False
    """Print the contestants and stop."""


def encodings(arguments: Sequence[str]) -> None:
    """Run the comparison of encodings and print its tables."""
    options = tyro.cli(Encodings, args=arguments, prog="ucpe bench encodings")
    from dataclasses import replace

    from ucpe.bench.camera_encodings import CONTESTANTS
    from ucpe.bench.encodings import QUICK, Benchmark, markdown, run_benchmark

    if options.list:
        print("\n".join(f"{name:<16} {title}" for name, (title, _) in CONTESTANTS.items()))
        return
    benchmark = QUICK if options.quick else Benchmark()
    benchmark = replace(
        benchmark,
        contestants=(*(options.contestants or benchmark.contestants), *options.encoding),
        seeds=benchmark.seeds if options.seeds is None else options.seeds,
        trainings=options.trainings or benchmark.trainings,
    )
    for name in ("steps", "clips"):
        if (value := getattr(options, name)) is not None:
            benchmark = replace(benchmark, training=replace(benchmark.training, **{name: value}))
    output = options.output / f"{benchmark.training.steps}-steps"
    results = run_benchmark(
        benchmark,
        output,
        options.data or options.output / "clips",
        options.workers,
        options.minutes,
        lambda done, total, name: print(f"{done}/{total} {name}", file=sys.stderr, flush=True),
    )
    print(markdown(results))
    print(f"wrote results.json, results.md, psnr.png and views.png to {output}")


SUBCOMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], None]]] = {
    "encodings": ("novel view synthesis with every camera encoding", encodings),
    "latency": ("time per video and what the adapter adds", latency),
}
"""Each comparison: what it is, and what runs it on the rest of the command line."""


def main(arguments: Sequence[str]) -> None:
    """Run the comparison named first."""
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<12} {text}" for name, (text, _) in SUBCOMMANDS.items()]
        print("usage: ucpe bench NAME ...\n\n" + "\n".join(lines))
        return
    if arguments[0] not in SUBCOMMANDS:
        sys.exit(f"ucpe bench: no comparison '{arguments[0]}'; there are {', '.join(SUBCOMMANDS)}")
    SUBCOMMANDS[arguments[0]][1](arguments[1:])
