"""`ucpe generate`: prompt + camera -> video."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ucpe.cli.cameras import CameraOptions


@dataclass
class Generate:
    """Generate a video of a prompt, seen by a camera.

    Beside the video a JSON file keeps everything needed to make it again.
    """

    prompt: Annotated[str | None, tyro.conf.Positional] = None
    """What to see."""
    camera: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("out.mp4")
    """Video file to write; a folder for a list."""
    image: Path | None = None
    """First frame, for models that take one."""
    model: str | None = None
    """Pipeline folder or hub id. [default: the desk model in the package]"""
    adapter: str | None = None
    """Adapter folder, hub id or released .bin. [default: the one inside the model's folder]"""
    list: Path | None = None
    """JSON or YAML list of videos to make (the released demo files work as they are)."""
    again: Path | None = None
    """Make the video of this JSON once more."""
    negative: str | None = None
    """What not to see."""
    guidance: float | None = None
    steps: int | None = None
    seed: int = 0
    height: int | None = None
    width: int | None = None
    frames: int | None = None
    fps: float | None = None
    preview: bool = False
    """Also write a sheet of frames with the commanded horizon drawn over them."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and generate."""
    options = tyro.cli(Generate, args=arguments, prog="ucpe generate")
    from ucpe.generation import CameraPipeline
    from ucpe.generation.loading import load_quietly
    from ucpe.generation.requests import Request, make_video, read_again, read_list

    shared: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("model", "adapter", "negative", "guidance", "steps", "seed", "height", "width")
    }
    if options.again is not None:
        requests = [read_again(options.again)]
        shared["model"], shared["adapter"] = requests[0].model, requests[0].adapter
    elif options.list is not None:
        requests = read_list(options.list, **shared)
    elif options.prompt is not None:
        requests = []
    else:
        raise ValueError('say what to see, e.g. ucpe generate "a red tower on grass" --lens fisheye --move orbit')
    load_quietly()
    pipe = CameraPipeline.from_pretrained(shared["model"], shared["adapter"])
    if not requests:
        camera = options.camera.make_trajectory(
            pipe.defaults.frames if options.frames is None else options.frames,
            pipe.defaults.fps if options.fps is None else options.fps,
            pipe.defaults.height if options.height is None else options.height,
            pipe.defaults.width if options.width is None else options.width,
        )
        requests = [Request(prompt=options.prompt or "", camera=camera, image=options.image, **shared)]
    several = len(requests) > 1 or options.list is not None
    for index, request in enumerate(requests):
        path = options.output / f"{index:03d}.mp4" if several else options.output
        written = make_video(pipe, request, path, preview=options.preview)
        print(json.dumps({name: str(file) for name, file in written.items()}))
