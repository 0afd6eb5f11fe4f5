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


SUBCOMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], None]]] = {
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
