"""`ucpe bench`: the comparisons anyone can re-run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ucpe.cli.parsing import given, parse
from ucpe.files import write_json
from ucpe.work import Progress, WorkOptions, progress_bar


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
    """Number of videos that are timed, after one that is not."""
    device: str | None = None
    """cpu, cuda, ... [default: cuda if there is one]"""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Write the numbers to this .json as well."""


def latency(arguments: Sequence[str]) -> None:
    """Time models and print Table D with them."""
    options = parse(Latency, arguments, "ucpe bench latency")

    import torch

    from ucpe.bench.latency import markdown, measure_latency
    from ucpe.generation.pipeline import CameraPipeline

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    found = []
    for name in options.models:
        model, _, adapter = name.partition("@")
        pipeline = CameraPipeline.from_pretrained(None if model == "desk" else model, adapter or None).to(device)
        sizes = {size: getattr(options, size) for size in ("frames", "height", "width", "steps", "repeats")}
        found.append(measure_latency(pipeline, name, **sizes))
    print(markdown(found))
    if options.output is not None:
        write_json(options.output, [item.to_dict() for item in found])


@dataclass
class Comparison:
    """What every comparison takes."""

    contestants: tuple[str, ...] | None = None
    """Contestants by name; --list shows them. [default: by length]"""
    quick: bool = False
    """A first look: fewer steps, seeds and contestants."""
    seeds: int | None = None
    """Number of trainings of each contestant, one per seed. [default: by length]"""
    steps: int | None = None
    """Number of steps of each training. [default: by length]"""
    minutes: float | None = None
    """Stop after about this many minutes. What was done is kept, and the rest is shown as not run."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)
    data: Path | None = None
    """Folder of clips to train on. [default: rendered into OUTPUT/clips]"""
    list: bool = False
    """Print the contestants in the order in which they are run, and stop."""

    def running(self, show: Progress) -> dict[str, Any]:
        """How the comparison runs, as its function takes it."""
        return {"minutes": self.minutes, "progress": show, **vars(self.work)}


@dataclass
class Encodings(Comparison):
    """Compare camera encodings in novel view synthesis: a small transformer sees two posed views and predicts a third.

    800 steps and 3 seeds by default (an estimated hour and a half on 2 cores), 300 and 2 with --quick (a quarter of an
    hour), 20,000 and 2 of the best six with --long (a night, in several goes). The same command again continues where
    the last one stopped.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-encodings")
    """Folder for clips, runs and, by number of steps, results.json, results.md and pictures."""
    encoding: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A class of yours that takes part too, as my_module:MyEncoding; may be repeated."""
    long: bool = False
    """Train much longer: what is left of the differences?"""
    clips: int | None = None
    """Number of clips to train on. [default: by length]"""
    trainings: tuple[str, ...] | None = None
    """Sets of clips to train on: all, narrow. [default: both, or all if --quick or --long]"""
    reference: str | None = None
    """Contestant that the others are compared to. [default: ucpe]"""


def encodings(arguments: Sequence[str]) -> None:
    """Run the comparison of encodings and print its tables."""
    options = parse(Encodings, arguments, "ucpe bench encodings")
    from dataclasses import replace

    from ucpe.bench.camera_encodings import CONTESTANTS
    from ucpe.bench.encodings import LONG, QUICK, Benchmark, markdown, run_benchmark

    if options.list:
        return _list(CONTESTANTS)
    benchmark = _length(options, QUICK, LONG, Benchmark())
    benchmark = replace(
        benchmark,
        contestants=(*(options.contestants or benchmark.contestants), *options.encoding),
        training=replace(benchmark.training, **given(options, "steps", "clips")),
        **given(options, "seeds", "trainings", "reference"),
    )
    output = options.output / f"{benchmark.training.steps}-steps"
    with progress_bar() as show:
        results = run_benchmark(benchmark, output, options.data or options.output / "clips", **options.running(show))
    print(f"{markdown(results)}\nwrote results.json, results.md and pictures to {output}")


@dataclass
class Generation(Comparison):
    """Compare how fast small video models, each with its own camera encoding, learn from scratch to follow a camera.

    700 steps, 32 cameras and 3 seeds by default; half of that, one seed and four contestants with --quick; ten times
    the steps with --long, for a night. The same command again continues where the last one stopped. `ucpe bench
    generation frozen` compares adapters on a frozen base instead: the rows of the paper's Table 1.
    """

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("bench-generation")
    """Folder for clips, runs and, by number of steps, results.json, results.md, curves.png and views.png."""
    adapter: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An Adapter of yours that takes part too, as my_module:MyAdapter; may be repeated."""
    long: bool = False
    """Ten times the steps: do the others catch up?"""
    clips: int | None = None
    """Number of clips to train on. [default: by length]"""
    cameras: int | None = None
    """Number of held-out cameras. [default: by length]"""
    checks: int | None = None
    """Number of times that videos are measured, evenly over the steps. [default: by length]"""


@dataclass
class Frozen(Generation):
    """Compare camera adapters on one small frozen video model that never saw a camera: the rows of the paper's Table 1.

    1,000 steps, 32 cameras and 2 seeds by default; 200 steps, one seed and four contestants with --quick; ten times the
    steps with --long. The same command again continues where the last one stopped.
    """

    base: str | None = None
    """Another base, as `recipes/desk/pair_base.py` writes it. [default: the bundled one]"""


def generation(arguments: Sequence[str]) -> None:
    """Run the comparison of trainings from scratch, or of adapters on a frozen base, and print its tables."""
    frozen = arguments[:1] == ["frozen"]
    name = "ucpe bench generation" + " frozen" * frozen
    options = parse(Frozen if frozen else Generation, arguments[frozen:], name)
    from dataclasses import replace

    from ucpe.bench import generation as bench
    from ucpe.bench.pair_model import known

    if options.list:
        return _list(known(frozen))
    lengths = (
        (bench.QUICK_FROZEN, bench.LONG_FROZEN, bench.FROZEN)
        if frozen
        else (bench.QUICK, bench.LONG, bench.Benchmark())
    )
    benchmark = _length(options, *lengths)
    benchmark = replace(
        benchmark,
        contestants=(*(options.contestants or benchmark.contestants), *options.adapter),
        **given(options, "seeds", "steps", "clips", "cameras", "checks", *["base"] * frozen),
    )
    output = options.output / f"{benchmark.steps}-steps{'-frozen' * frozen}"
    data = options.data or options.output / "clips"
    with progress_bar() as show:
        results = bench.run_benchmark(benchmark, output, data, **options.running(show))
    print(f"{bench.markdown(results)}\nwrote results.json, results.md, curves.png and views.png to {output}")


def _list(contestants: Mapping[str, tuple[str, Any]]) -> None:
    for name, (title, _) in contestants.items():
        print(f"{name:<16} {title}")


def _length(options: Any, quick: Any, long: Any, usual: Any) -> Any:
    """The benchmark of the length asked for."""
    if options.quick and options.long:
        raise ValueError("name --quick or --long, not both")
    return quick if options.quick else long if options.long else usual


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
