"""`ucpe bench`: the comparisons anyone can re-run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ucpe.cli.parsing import parse
from ucpe.files import write_json
from ucpe.work import progress_bar


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
    options = parse(Latency, arguments, "ucpe bench latency")

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
        write_json(options.output, [item.to_dict() for item in found])


@dataclass
class Encodings:
    """Compare camera encodings in novel view synthesis: a small transformer sees two posed views and predicts a third.

    The same command again continues where the last one stopped.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-encodings")
    """Folder for clips, runs and, by number of steps, results.json, results.md and pictures."""
    contestants: tuple[str, ...] | None = None
    """Contestants by name. [default: all]"""
    encoding: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A class of yours that takes part too, as my_module:MyEncoding; may be repeated."""
    quick: bool = False
    """A first look in a quarter of an hour on 2 cores: 300 steps, 2 seeds, nothing trained on narrow lenses only."""
    long: bool = False
    """What longer training leaves: 20,000 steps of the best six, 2 seeds; a night on 2 cores, in several goes."""
    seeds: int | None = None
    """Trainings of each contestant. [default: 3, or 2 if --quick or --long]"""
    minutes: float | None = None
    """Start nothing that would not end within so many minutes; what was not run is shown as not run."""
    steps: int | None = None
    """Steps of each training. [default: 800, 300 if --quick, 20000 if --long]"""
    clips: int | None = None
    """Clips to train on. [default: 12000, 4096 if --quick, 48000 if --long]"""
    trainings: tuple[str, ...] | None = None
    """Sets of clips to train on: all, narrow. [default: both, or all if --quick or --long]"""
    workers: int | None = None
    """Processes, of one thread each. [default: one per core]"""
    engine: str = "local"
    """local; ray, which joins the cluster of RAY_ADDRESS or starts one on this machine; or ray://HOST:PORT."""
    data: Path | None = None
    """Folder of rendered clips. [default: OUTPUT/clips]"""
    list: bool = False
    """Print the contestants and stop."""


def encodings(arguments: Sequence[str]) -> None:
    """Run the comparison of encodings and print its tables."""
    options = parse(Encodings, arguments, "ucpe bench encodings")
    from dataclasses import replace

    from ucpe.bench.camera_encodings import CONTESTANTS
    from ucpe.bench.encodings import LONG, QUICK, Benchmark, markdown, run_benchmark

    if options.list:
        print("\n".join(f"{name:<16} {title}" for name, (title, _) in CONTESTANTS.items()))
        return
    if options.quick and options.long:
        raise ValueError("--quick and --long are two lengths: give one")
    benchmark = QUICK if options.quick else LONG if options.long else Benchmark()
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
    with progress_bar() as show:
        results = run_benchmark(
            benchmark,
            output,
            options.data or options.output / "clips",
            options.workers,
            options.minutes,
            show,
            options.engine,
        )
    print(markdown(results))
    print(f"wrote results.json, results.md and pictures to {output}")


@dataclass
class Generation:
    """Compare how fast small video models learn to follow a camera, each told cameras in one way, from scratch.

    The same command again continues where the last one stopped. `ucpe bench generation frozen` compares adapters on a
    frozen base instead: the rows of the paper's Table 1.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-generation")
    """Folder for clips, runs and, by number of steps, results.json, results.md, curves.png and views.png."""
    contestants: tuple[str, ...] | None = None
    """Contestants by name. [default: all]"""
    adapter: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An Adapter of yours that takes part too, as my_module:MyAdapter; may be repeated."""
    quick: bool = False
    """A first look: four contestants, one seed, 350 steps, 16 cameras."""
    long: bool = False
    """Ten times the steps and 64 cameras, for a night: do the others catch up?"""
    seeds: int | None = None
    """Trainings of each contestant. [default: 3, or 1 if --quick]"""
    steps: int | None = None
    """Steps of each training. [default: 700, or 350 if --quick, or 7000 if --long]"""
    clips: int | None = None
    """Clips to train on. [default: 4096, or 2048 if --quick, or 16384 if --long]"""
    cameras: int | None = None
    """Held-out cameras. [default: 32, or 16 if --quick, or 64 if --long]"""
    checks: int | None = None
    """How often, evenly over the steps, videos are measured. [default: 4, or 2 if --quick, or 10 if --long]"""
    minutes: float | None = None
    """Start nothing that would not end within so many minutes; what was not run is shown as not run."""
    workers: int | None = None
    """Processes, of one thread each. [default: one per core]"""
    engine: str = "local"
    """local; ray, which joins the cluster of RAY_ADDRESS or starts one on this machine; or ray://HOST:PORT."""
    data: Path | None = None
    """Folder of rendered clips. [default: OUTPUT/clips]"""
    list: bool = False
    """Print the contestants in the order in which they are run, and stop."""


def generation(arguments: Sequence[str]) -> None:
    """Run the comparison of trainings from scratch, or the one on a frozen base, and print its tables."""
    if arguments and arguments[0] == "frozen":
        return frozen(arguments[1:])
    options = parse(Generation, arguments, "ucpe bench generation")
    from dataclasses import replace

    from ucpe.bench.generation import LONG, QUICK, Benchmark, markdown, run_benchmark
    from ucpe.bench.pair_model import CONTESTANTS

    if options.list:
        print("\n".join(f"{name:<12} {title}" for name, (title, _) in CONTESTANTS.items()))
        return
    if options.quick and options.long:
        raise ValueError("name --quick or --long, not both")
    benchmark = QUICK if options.quick else LONG if options.long else Benchmark()
    given = {name: getattr(options, name) for name in ("seeds", "steps", "clips", "cameras", "checks")}
    benchmark = replace(
        benchmark,
        contestants=(*(options.contestants or benchmark.contestants), *options.adapter),
        **{name: value for name, value in given.items() if value is not None},
    )
    output = options.output / f"{benchmark.steps}-steps"
    data = options.data or options.output / "clips"
    with progress_bar() as show:
        results = run_benchmark(benchmark, output, data, options.workers, options.minutes, show, options.engine)
    print(markdown(results))
    print(f"wrote results.json, results.md, curves.png and views.png to {output}")


@dataclass
class Frozen:
    """Compare camera adapters in controlled generation: the rows of the paper's Table 1 on one small frozen base.

    The same command again continues where the last one stopped.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-generation-frozen")
    """Folder for clips, base, runs and, by number of steps, results.json, results.md, errors.png and views.png."""
    contestants: tuple[str, ...] | None = None
    """Contestants by name. [default: ucpe none recammaster cameractrl prope]"""
    all: bool = False
    """GTA and the rows without orientation too: all of Table 1 but the variants of UCPE's branch."""
    ablations: bool = False
    """Placement and compression of UCPE's branch too."""
    quick: bool = False
    """A first look: four contestants, 200 steps, 16 cameras."""
    seeds: int | None = None
    """Trainings of each contestant. [default: 2]"""
    minutes: float | None = None
    """Stop after so many minutes, with everything kept; what was not run is shown as not run."""
    steps: int | None = None
    """Steps of each contestant. [default: 1000, or 200 if --quick]"""
    base_steps: int | None = None
    """Train a base of so many steps instead of using the bundled one."""
    videos: int | None = None
    """Held-out cameras, each generated from text and with a given first frame. [default: 48, or 16 if --quick]"""
    learning_rate: float | None = None
    """Learning rate of all contestants. [default: 0.002]"""
    own_learning_rates: bool = False
    """The learning rate of each recipe (CameraCtrl's is a tenth of the others', as in the paper), not one for all."""
    data: Path | None = None
    """Desk clips to train on. [default: rendered into OUTPUT/clips]"""
    held_out: Path | None = None
    """Desk clips to generate and validate with. [default: rendered into OUTPUT/held-out]"""
    shards: int | None = None
    """Shards of 256 clips to train on; missing ones are rendered. [default: what DATA holds, or 6; 2 if --quick]"""
    base: Path | None = None
    """A pipeline folder to use as base. [default: the bundled one, which never saw a camera]"""
    autoencoder: Path | None = None
    """Autoencoder of a base that is trained. [default: the bundled one]"""
    decoder: Path | None = None
    """Autoencoder with the same encoder and a better decoder, for the videos."""
    workers: int | None = None
    """Processes, of one thread each. [default: one per core]"""
    engine: str = "local"
    """local; ray, which joins the cluster of RAY_ADDRESS or starts one on this machine; or ray://HOST:PORT."""
    list: bool = False
    """Print the contestants in the order in which they are run, and stop."""


def frozen(arguments: Sequence[str]) -> None:
    """Run the comparison of adapters on a frozen base and print its tables."""
    options = parse(Frozen, arguments, "ucpe bench generation frozen")
    from dataclasses import replace

    from ucpe.bench.adapter_contestants import CONTESTANTS, MAIN

    if options.list:
        for name, contestant in CONTESTANTS.items():
            print(f"{name:<22} {contestant.title:<16} {contestant.group}{', on demand' * (name not in MAIN)}")
        return
    from ucpe.bench import adapters as bench

    benchmark = bench.QUICK if options.quick else bench.Benchmark()
    chosen = options.contestants if options.contestants is not None else benchmark.contestants
    if options.all and options.contestants is not None:
        raise ValueError("name --contestants or --all, not both")
    if options.all:
        chosen = tuple(name for name, contestant in CONTESTANTS.items() if not contestant.ablation)
    if options.ablations:
        chosen = (*chosen, *(name for name, contestant in CONTESTANTS.items() if contestant.ablation))
    given = {name: getattr(options, name) for name in ("seeds", "steps", "base_steps", "videos")}
    if options.own_learning_rates and options.learning_rate is not None:
        raise ValueError("name --learning-rate or --own-learning-rates, not both")
    if options.learning_rate is not None and not options.learning_rate > 0:
        raise ValueError(f"a learning rate is positive, got {options.learning_rate:g}")
    benchmark = replace(
        benchmark,
        contestants=chosen,
        learning_rate=None if options.own_learning_rates else options.learning_rate or benchmark.learning_rate,
        **{name: value for name, value in given.items() if value is not None},
    )
    shared = options.output.resolve()
    rate = "" if options.learning_rate is None else f"-rate-{options.learning_rate:g}"
    rate = "-own-learning-rates" if options.own_learning_rates else rate
    paths = {name: getattr(options, name) for name in ("data", "held_out", "base", "autoencoder", "decoder")}
    folders = bench.Folders(
        shared / f"{benchmark.steps}-steps{rate}",
        shared,
        shards=2 if options.quick and options.shards is None and options.data is None else options.shards,
        **{name: None if path is None else path.resolve() for name, path in paths.items()},
    )
    with progress_bar() as show:
        results = bench.run_benchmark(benchmark, folders, options.workers, options.minutes, show, options.engine)
    print(bench.markdown(results))
    print(f"wrote results.json, results.md, errors.png and views.png to {folders.output}")


SUBCOMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], None]]] = {
    "encodings": ("novel view synthesis with every camera encoding", encodings),
    "generation": ("learning to follow a camera: from scratch, or (generation frozen) on a frozen base", generation),
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
