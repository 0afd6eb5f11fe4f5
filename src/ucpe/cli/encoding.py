"""`ucpe encoding`: show what an encoding lets attention see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.cameras import LensOptions
from ucpe.cli.parsing import parse


@dataclass
class Show:
    """Draw what a query at one pixel sees of other pixels and cameras, or the map that an encoding feeds to the model.

    If no lens is given, it shows lenses on which encodings differ.
    """

    encoding: Annotated[
        Literal["ucpe", "sightline", "urope", "rayrope", "rore", "raype", "prope", "gta", "cape"]
        | Literal["lat-up", "plucker", "raw", "frames"],
        tyro.conf.Positional,
    ]
    """Relative encodings, absolute ones, or the ray frames behind UCPE."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Picture to write (.png, .svg, .pdf). [default: ENCODING.png]"""
    lens: Annotated[LensOptions, tyro.conf.arg(name="")] = field(default_factory=LensOptions)


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    command = parse({"show": Show}, arguments, "ucpe encoding")
    from ucpe.encodings.figures import HEIGHT, WIDTH, draw_encoding

    lens = command.lens.fitted(command.lens.make_lens(), HEIGHT, WIDTH) if command.lens.lens_given() else None
    output = command.output or Path(f"{command.encoding}.png")
    draw_encoding(command.encoding, output, lens)
    print(output)
