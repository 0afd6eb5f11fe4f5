"""`ucpe encoding`: show what an encoding lets attention see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.cameras import CameraOptions


@dataclass
class Show:
    """Draw what a query at one pixel sees of other pixels and cameras, or the map that an encoding feeds in."""

    encoding: Annotated[
        Literal["ucpe", "gta", "prope", "cape", "lat-up", "plucker", "raw", "frames"], tyro.conf.Positional
    ]
    """Relative encodings, absolute ones, or the ray frames behind UCPE."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Picture to write (.png, .svg, .pdf). [default: ENCODING.png]"""
    lens: str | None = None
    """Lens by name (pinhole, wide, fisheye, ...) or a calibration file. [default: lenses that tell encodings apart]"""
    xfov: float | None = None
    """Horizontal field of view in degrees, instead of the named lens's own."""
    xi: float | None = None
    """UCM distortion, instead of the named lens's own."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    command = tyro.extras.subcommand_cli_from_dict({"show": Show}, args=arguments, prog="ucpe encoding")
    from ucpe.encodings.figures import draw_encoding

    given = any(value is not None for value in (command.lens, command.xfov, command.xi))
    lens = CameraOptions(lens=command.lens, xfov=command.xfov, xi=command.xi).make_lens() if given else None
    output = command.output or Path(f"{command.encoding}.png")
    draw_encoding(command.encoding, output, lens)
    print(output)
