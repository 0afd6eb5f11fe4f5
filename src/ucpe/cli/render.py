"""`ucpe render`: 360 footage through any lens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.cameras import CameraOptions


@dataclass
class Render:
    """Film a panorama with a virtual camera, or with several in one pass (--lens fisheye,pinhole,camchain.yaml).

    A panorama is what one point sees, so of a move only its turning shows: pan, tilt, roll, handheld, zoom.
    """

    panorama: Annotated[Path, tyro.conf.Positional]
    """360 degree video or image."""
    camera: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("out.mp4")
    """Video to write; several lenses give out-LENS.mp4."""
    projection: Literal["equirectangular", "eac"] = "equirectangular"
    """How the panorama is laid out: 2:1, or the 3 x 2 equi-angular cubemap of YouTube."""
    height: int = 480
    width: int = 832
    frames: int | None = None
    """How many frames to make. [default: all of the video; 81 of an image]"""
    fps: float | None = None
    """Frames per second to make. [default: those of the video; 16 for an image]"""
    start: float = 0.0
    """Second of the video to start at."""
    interpolation: Literal["bilinear", "lanczos"] = "bilinear"
    antialias: bool = True
    """Average panorama pixels where the lens shows them smaller."""
    crf: float = 17
    """Quality of the H.264 file: lower is better and larger."""
    threads: int = 1
    """Threads over the lenses and for decoding."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and render."""
    options = tyro.cli(Render, args=arguments, prog="ucpe render")
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from ucpe.synthesis.footage import Footage, Shot, film

    footage = Footage(options.panorama, options.projection)
    numbers = footage.frame_numbers(options.frames, options.fps, options.start)
    fps = footage.info.fps if options.fps is None else options.fps
    names = [name.strip() for name in options.camera.lens.split(",")] if options.camera.lens else [""]
    shots = []
    for name in names:
        camera = replace(options.camera, lens=name or None).make_trajectory(len(numbers), fps)
        stem = f"{options.output.stem}-{Path(name).stem}" if len(names) > 1 else options.output.stem
        path = options.output.with_name(f"{stem}.mp4")
        shots.append(Shot(path, camera.lens, camera.rotations.numpy(), options.height, options.width, fps))
    if len({shot.path for shot in shots}) < len(shots):
        raise ValueError(f"lenses must have different names to be written beside each other, got {', '.join(names)}")
    with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(options.panorama.name, total=len(numbers))
        film(
            footage,
            shots,
            numbers,
            interpolation=options.interpolation,
            antialias=options.antialias,
            crf=options.crf,
            threads=options.threads,
            progress=lambda: bar.advance(task),
        )
    for shot in shots:
        print(f"{shot.path}  {len(numbers)} frames of {shot.height} x {shot.width} at {fps:g} fps")
