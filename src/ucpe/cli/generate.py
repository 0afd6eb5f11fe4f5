"""`ucpe generate`: prompt + camera -> video."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ucpe.cli.cameras import CameraOptions
from ucpe.cli.parsing import given, parse
from ucpe.generation.options import Sampling, Setup

if TYPE_CHECKING:
    from ucpe.generation.checks import ModelFacts
    from ucpe.generation.defaults import Defaults
    from ucpe.generation.pipeline import CameraPipeline
    from ucpe.generation.requests import Request
    from ucpe.trajectories import Trajectory

PRESETS: dict[str, dict[str, Any]] = {
    "released": {"scheduler": "euler", "shift": 5.0, "guidance": 5.0, "steps": 50},
}
"""Sampling by name; options given beside a preset replace its own."""


@dataclass
class Generate:
    """Generate a video of a prompt, seen by a camera.

    Beside the video a JSON file keeps everything needed to make it again.
    """

    prompt: Annotated[str | None, tyro.conf.Positional] = None
    """What to see."""
    camera: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("out.mp4")
    """Video file to write (.mp4); a folder for a list."""
    image: Path | None = None
    """First frame, for models that take one."""
    model: str | None = None
    """Pipeline folder or hub id. [default: the desk model in the package]"""
    adapter: str | None = None
    """Adapter folder, hub id or released .bin; FIRST,SECOND for two transformers. [default: what the model's
    folder holds]"""
    list: Path | None = None
    """JSON or YAML list of videos to make (the released demo files work as they are)."""
    again: Path | None = None
    """Make the video of this JSON once more, with all its options except those given here."""
    frames: int | None = None
    """Number of frames of the video; the paths of a list are resampled to it. [default: the model's]"""
    fps: float | None = None
    """Frames per second. [default: the model's]"""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = field(default_factory=Sampling)
    negative_file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with what not to see."""
    preset: Literal["released"] | None = None
    """Sampling of the paper's released demo: Euler, shift 5, guidance 5, 50 steps."""
    setup: Annotated[Setup, tyro.conf.arg(name="")] = field(default_factory=Setup)
    preview: bool = False
    """Also write a sheet of frames with the commanded horizon drawn over them."""
    check: bool = False
    """Also make the video that the same seed gives without the camera, and say whether the camera was obeyed, as `ucpe
    check` does; exits with 3 if it was not, 4 if that is not certain."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line, check everything, then load the model and generate."""
    options = parse(Generate, arguments, "ucpe generate", config=(tyro.conf.UseAppendAction,))
    given = [name for name in ("prompt", "list", "again") if getattr(options, name) is not None]
    if options.prompt is not None and not options.prompt.strip():
        raise ValueError("the prompt is empty: say what to see")
    if len(given) != 1:
        named = " and ".join("a prompt" if name == "prompt" else f"--{name}" for name in given) or "none of them"
        raise ValueError(
            'say what to see, as in: ucpe generate "a red tower on grass" --lens fisheye --move orbit; or give one of '
            f"--list and --again. Got {named}"
        )
    from ucpe.generation.checks import check_output, check_request, read_facts
    from ucpe.generation.loading import load_quietly
    from ucpe.generation.requests import read_again
    from ucpe.generation.setup import resolved

    load_quietly()
    check_output(options.output, folder=options.list is not None)
    recorded = None if options.again is None else read_again(options.again)
    wanted = asked_for(options, recorded)
    facts = read_facts(wanted["model"], wanted["adapter"])
    wanted["setup"] = resolved(wanted["setup"], facts.defaults)
    requests = make_requests(options, wanted, facts, recorded)
    for note in dict.fromkeys(note for request in requests for note in check_request(request, facts)):
        warnings.warn(note, stacklevel=1)
    names = (
        [options.output] if options.list is None else [options.output / f"{i:03d}.mp4" for i in range(len(requests))]
    )
    videos = [(request.with_defaults(facts.defaults), path) for request, path in zip(requests, names)]
    if options.check:
        from ucpe.cli.check import find_pose_estimator

        for size in {(request.height or 0, request.width or 0) for request, _ in videos}:
            find_pose_estimator("auto", size)  # says what is missing, if anything is, before the work begins
    pipe = generate(videos, options.preview)
    if options.check:
        check(videos, pipe)


def asked_for(options: Generate, recorded: Request | None) -> dict[str, Any]:
    """Fields of a request that the options decide: given ones, over a preset's, over the recorded ones."""
    given = {name: getattr(options, name) for name in ("model", "adapter", "image")}
    given |= vars(options.sampling) | vars(options.setup)
    if options.negative_file is not None:
        if given["negative"] is not None:
            raise ValueError("give --negative or --negative-file, not both")
        given["negative"] = options.negative_file.read_text(encoding="utf-8").strip()
    chosen = {name: value for name, value in given.items() if value is not None and value is not False and value != ()}
    given = PRESETS.get(options.preset or "", {}) | chosen
    for_setup = {name: given.pop(name) for name in Setup.__dataclass_fields__ if name in given}
    if recorded is not None:
        return {
            **{name: getattr(recorded, name) for name in recorded.__dataclass_fields__},
            **given,
            "setup": replace(recorded.setup, **for_setup),
        }
    return {"model": None, "adapter": None, **given, "setup": Setup(**for_setup)}


def make_requests(
    options: Generate, wanted: dict[str, Any], facts: ModelFacts, recorded: Request | None
) -> list[Request]:
    """The videos asked for: one of a prompt, one made again, or those of a list."""
    from ucpe.generation.requests import Request, read_list

    defaults = facts.defaults
    for name, number in (("frames", options.frames), ("fps", options.fps)):
        if number is not None and not number > 0:
            raise ValueError(f"--{name} must be a positive number, got {number}")
    placed = {} if options.list is None else given(options.camera, "up", "level", "scale", "fit")
    if options.prompt is None and options.camera != CameraOptions(**placed):
        raise ValueError(f"--{'list' if recorded is None else 'again'} already says what the camera is: leave it out")
    if recorded is not None:
        if options.frames is not None or options.fps is not None:
            camera = recorded.camera
            wanted["camera"] = camera.resample(options.frames or len(camera), options.fps or camera.fps)
        return [Request(**wanted)]
    frames, fps = options.frames or defaults.frames, options.fps or defaults.fps
    if options.list is not None:
        listed = read_list(options.list, frames, fps, options.camera.asked_up(), **wanted)
        return [replace(request, camera=_placed(request, options, defaults)) for request in listed]
    size = (wanted.get("height") or defaults.height, wanted.get("width") or defaults.width)
    camera = options.camera.make_trajectory(frames, fps, *size, stride=facts.temporal_stride or 1)
    return [Request(options.prompt or "", camera, **wanted)]


def _placed(request: Request, options: Generate, defaults: Defaults) -> Trajectory:
    """The camera of a list's request, scaled as asked for and its calibration fitted to the video's shape."""
    camera = options.camera.scaled(request.camera)
    size = request.height or defaults.height, request.width or defaults.width
    return camera.with_lens(options.camera.fitted(camera.lens, *size))


def generate(videos: list[tuple[Request, Path]], preview: bool) -> CameraPipeline | None:
    """Make the videos that are not there yet, with progress and a line for each; return the pipeline, if any."""
    from functools import partial

    from ucpe.generation.requests import is_made, make_video
    from ucpe.generation.setup import load_pipeline, peak_memory
    from ucpe.work import progress_bar

    waiting = [(request, path) for request, path in videos if not is_made(path, request)]
    for _, path in [video for video in videos if video not in waiting]:
        print(f"{path} is there already, made from the same request")
    if not waiting:
        return None
    first = waiting[0][0]
    pipe = load_pipeline(first.model, first.adapter, first.setup)
    done = len(videos) - len(waiting)
    try:
        with progress_bar(pace=True) as show:
            for request, path in waiting:
                if len(videos) > 1:
                    show("videos", done, len(videos))
                show("denoising steps", 0, request.steps or 0)
                started = time.monotonic()
                written = make_video(pipe, request, path, preview=preview, on_step=partial(show, "denoising steps"))
                done += 1
                peak = peak_memory(first.setup.device or "cpu") / 1e9
                print(
                    f"{len(request.camera)} frames of {request.height} x {request.width} in "
                    f"{time.monotonic() - started:.1f} s, peak memory {peak:.1f} GB: "
                    f"{', '.join(map(str, written.values()))}",
                    flush=True,
                )
            if len(videos) > 1:
                show("videos", done, len(videos))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped with {done} of {len(videos)} videos made; the same command makes the others"
        ) from None
    return pipe


def check(videos: list[tuple[Request, Path]], pipe: CameraPipeline | None) -> None:
    """Check videos against their cameras, and against what the same seed gives without the camera."""
    from functools import partial

    from ucpe.cli.check import EXIT_CODES, find_calibrator, find_pose_estimator, run_check
    from ucpe.generation.requests import make_video_without_camera
    from ucpe.generation.setup import load_pipeline
    from ucpe.video import probe_video
    from ucpe.work import progress_bar

    verdicts = []
    for request, path in videos:
        pipe = pipe or load_pipeline(request.model, request.adapter, request.setup)
        without = path.with_suffix(".without-camera.mp4")
        with progress_bar(pace=True) as show:
            show("denoising steps without the camera", 0, request.steps or 0)
            make_video_without_camera(pipe, request, without, partial(show, "denoising steps without the camera"))
        info = probe_video(path)
        size = (info.height, info.width)
        estimators = (find_pose_estimator("auto", size), find_calibrator("auto", size))
        verdicts.append(run_check(path, request.camera, *estimators, without=without).verdict)
    worst = next((verdict for verdict in ("not obeyed", "unsure") if verdict in verdicts), "obeyed")
    if worst != "obeyed":
        raise SystemExit(EXIT_CODES[worst])
