"""`ucpe render`: 360 footage or a procedural world through any lens."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ucpe.cli.cameras import CameraOptions, LayoutOptions, lens_label
from ucpe.cli.parsing import parse

if TYPE_CHECKING:
    import numpy as np

    from ucpe.synthesis.footage import Footage
    from ucpe.trajectories import Trajectory
    from ucpe.work import Progress


@dataclass
class Render:
    """Film a panorama or a world with a virtual camera, or with several in one pass (--lens fisheye,pinhole,cam.yaml).

    A panorama is what one point sees, so only the rotations and zooms of a move show: pan, tilt, roll, handheld, zoom.
    In a world (world:7 is number 7, world:7:indoor a room) every move shows, in near-plane depths.
    """

    panorama: Annotated[str, tyro.conf.Positional]
    """360 degree video or image, or world:NUMBER."""
    camera: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("out.mp4")
    """Video (.mp4) to write, or a still (.png, .jpg, ...) of its first frame; several lenses give out-LENS.mp4."""
    layout: Annotated[LayoutOptions, tyro.conf.arg(name="")] = field(default_factory=LayoutOptions)
    height: int = 480
    width: int = 832
    frames: int | None = None
    """Number of frames to make. [default: all of the video; 81 of an image]"""
    fps: float | None = None
    """Frames per second to make. [default: as in the video; 16 for an image]"""
    start: float = 0.0
    """Second of the video to start at."""
    interpolation: Literal["bilinear", "lanczos"] = "bilinear"
    antialias: bool = True
    """Average panorama pixels where the lens shows them smaller."""
    crf: float = 17
    """Quality of the H.264 file: lower is better and larger."""
    threads: int = 1
    """Number of threads that render, one lens each, and number of threads that decode."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and render."""
    options = parse(Render, arguments, "ucpe render")
    from ucpe.synthesis.footage import IMAGE_SUFFIXES
    from ucpe.work import progress_bar

    still = options.output.suffix.lower() in IMAGE_SUFFIXES
    if not still and options.output.suffix.lower() != ".mp4":
        raise ValueError(f"cannot write {options.output}: videos are .mp4, stills {', '.join(IMAGE_SUFFIXES)}")
    if still and options.frames not in (None, 1):
        raise ValueError(f"{options.output} is one picture; {options.frames} frames make a video: -o NAME.mp4")
    names = [name.strip() for name in options.camera.lens.split(",")] if options.camera.lens else [""]
    stems = [f"{options.output.stem}-{lens_label(name)}" if len(names) > 1 else options.output.stem for name in names]
    paths = [options.output.with_name(f"{stem}{options.output.suffix}") for stem in stems]
    if len(set(paths)) < len(paths):
        raise ValueError(f"lenses must have different names to be written beside each other, got {', '.join(names)}")

    def cameras(frames: int, fps: float) -> list[Trajectory]:
        size = options.height, options.width
        given = [
            replace(options.camera, lens=name or None, yaw=0.0).make_trajectory(frames, fps, *size) for name in names
        ]
        return [_turned(camera, options.camera.yaw) for camera in given]

    if still:
        _take_stills(options, paths, cameras)
        return
    with progress_bar() as show:
        film = _film_world if options.panorama.startswith("world:") else _film_footage
        frames, fps = film(options, paths, cameras, show)
    for path in paths:
        print(f"{path}  {frames} frames of {options.height} x {options.width} at {fps:g} fps")


def _turned(camera: Trajectory, yaw: float) -> Trajectory:
    from ucpe.trajectories import DEFAULT_LENS, Trajectory

    return camera.transformed(Trajectory.static(DEFAULT_LENS, yaw=yaw, frames=1).c2w[0]) if yaw else camera


def _open_footage(options: Render) -> Footage:
    from ucpe.synthesis.footage import Footage

    footage = Footage(options.panorama, options.layout.projection, options.layout.stereo)
    for note in footage.notes:
        _note(options, note)
    return footage


def _note(options: Render, text: str) -> None:
    print(f"note: {Path(options.panorama).name}: {text}", file=sys.stderr)


def _take_stills(options: Render, paths: list[Path], cameras: Any) -> None:
    from PIL import Image

    from ucpe.files import atomic_file
    from ucpe.synthesis.scenes import PanoramaScene, open_scene, pictures

    if options.panorama.startswith("world:"):
        scene = open_scene(options.panorama)
    else:
        footage = _open_footage(options)
        footage.frame_numbers(1, options.fps, options.start)
        scene = PanoramaScene(footage, interpolation=options.interpolation, antialias=options.antialias)
    for path, camera in zip(paths, cameras(1, options.fps or 16.0)):
        picture = next(pictures(scene, camera, options.height, options.width, start=options.start))
        with atomic_file(path) as temporary:
            Image.fromarray(picture).save(temporary, Image.registered_extensions()[path.suffix.lower()])
        print(f"{path}  {options.height} x {options.width}, at second {options.start:g}")


def _film_footage(options: Render, paths: list[Path], cameras: Any, show: Progress) -> tuple[int, float]:
    from ucpe.synthesis.footage import Shot, film

    footage = _open_footage(options)
    numbers = footage.frame_numbers(options.frames, options.fps, options.start)
    fps = footage.info.fps if options.fps is None else options.fps
    shots = [
        Shot(path, camera.lens, camera.rotations.numpy(), options.height, options.width, fps)
        for path, camera in zip(paths, cameras(len(numbers), fps))
    ]
    name, done = Path(options.panorama).name, itertools.count(1)
    written = film(
        footage,
        shots,
        numbers,
        interpolation=options.interpolation,
        antialias=options.antialias,
        crf=options.crf,
        threads=options.threads,
        to_the_end=True,
        progress=lambda: show(name, next(done), len(numbers)),
    )
    frames = written[0].frames
    if frames < len(numbers):
        _note(options, f"cannot be decoded from frame {numbers[frames]} on: the video ends there")
    return frames, fps


def _film_world(options: Render, paths: list[Path], cameras: Any, show: Progress) -> tuple[int, float]:
    from ucpe.synthesis.scenes import open_scene, pictures
    from ucpe.video import write_video

    scene = open_scene(options.panorama)
    frames = 81 if options.frames is None else options.frames
    fps = 16.0 if options.fps is None else options.fps
    done = itertools.count(1)
    for path, camera in zip(paths, cameras(frames, fps)):
        filmed = pictures(scene, camera, options.height, options.width, start=options.start)

        def counted(filmed: Iterator[np.ndarray] = filmed) -> Iterator[np.ndarray]:
            for picture in filmed:
                yield picture
                show(options.panorama, next(done), frames * len(paths))

        write_video(path, counted(), fps, crf=options.crf)
    return frames, fps
