"""`ucpe render`: 360 footage or a procedural world through any lens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ucpe.cli.cameras import CameraOptions, lens_label

if TYPE_CHECKING:
    import numpy as np
    from rich.progress import Progress

    from ucpe.trajectories import Trajectory


@dataclass
class Render:
    """Film a panorama or a world with a virtual camera, or with several in one pass (--lens fisheye,pinhole,cam.yaml).

    A panorama is what one point sees, so of a move only its turning shows: pan, tilt, roll, handheld, zoom.
    In a world (world:7 is number 7, world:7:indoor a room) every move shows, in near-plane depths.
    """

    panorama: Annotated[str, tyro.conf.Positional]
    """360 degree video or image, or world:NUMBER."""
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

    names = [name.strip() for name in options.camera.lens.split(",")] if options.camera.lens else [""]
    stems = [f"{options.output.stem}-{lens_label(name)}" if len(names) > 1 else options.output.stem for name in names]
    paths = [options.output.with_name(f"{stem}.mp4") for stem in stems]
    if len(set(paths)) < len(paths):
        raise ValueError(f"lenses must have different names to be written beside each other, got {', '.join(names)}")

    def cameras(frames: int, fps: float) -> list[Trajectory]:
        size = options.height, options.width
        return [replace(options.camera, lens=name or None).make_trajectory(frames, fps, *size) for name in names]

    with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        film = _film_world if options.panorama.startswith("world:") else _film_footage
        frames, fps = film(options, paths, cameras, bar)
    for path in paths:
        print(f"{path}  {frames} frames of {options.height} x {options.width} at {fps:g} fps")


def _film_footage(options: Render, paths: list[Path], cameras: Any, bar: Progress) -> tuple[int, float]:
    from ucpe.synthesis.footage import Footage, Shot, film

    footage = Footage(options.panorama, options.projection)
    numbers = footage.frame_numbers(options.frames, options.fps, options.start)
    fps = footage.info.fps if options.fps is None else options.fps
    shots = [
        Shot(path, camera.lens, camera.rotations.numpy(), options.height, options.width, fps)
        for path, camera in zip(paths, cameras(len(numbers), fps))
    ]
    task = bar.add_task(Path(options.panorama).name, total=len(numbers))
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
    return len(numbers), fps


def _film_world(options: Render, paths: list[Path], cameras: Any, bar: Progress) -> tuple[int, float]:
    from ucpe.synthesis.scenes import open_scene, pictures
    from ucpe.video import write_video

    scene = open_scene(options.panorama)
    frames = 81 if options.frames is None else options.frames
    fps = 16.0 if options.fps is None else options.fps
    task = bar.add_task(options.panorama, total=frames * len(paths))
    for path, camera in zip(paths, cameras(frames, fps)):
        filmed = pictures(scene, camera, options.height, options.width, start=options.start)

        def counted(filmed: Iterator[np.ndarray] = filmed) -> Iterator[np.ndarray]:
            for picture in filmed:
                yield picture
                bar.advance(task)

        write_video(path, counted(), fps, crf=options.crf)
    return frames, fps
