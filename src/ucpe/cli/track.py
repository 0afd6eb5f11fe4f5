"""`ucpe track`: the camera of a video, as a path that can be followed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.cameras import LayoutOptions, LensOptions
from ucpe.cli.parsing import parse


@dataclass
class Track:
    """Find how the camera of a video moves and write it as a path: ucpe generate --camera path.json follows it.

    A 360 degree video is tracked with --lens equirectangular.
    """

    video: Annotated[Path, tyro.conf.Positional]
    """Video to track."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("path.json")
    """Path file to write: .json, or another format of ucpe trajectory convert, chosen by its name."""
    lens: Annotated[LensOptions, tyro.conf.arg(name="")] = field(default_factory=LensOptions)
    layout: Annotated[LayoutOptions, tyro.conf.arg(name="")] = field(default_factory=LayoutOptions)
    pose: Literal["colmap", "vipe", "stored", "desk"] = "colmap"
    """Pose estimator; `desk` is for videos of the desk model only."""
    pose_results: Path | None = None
    """Folder of results for --pose stored or vipe."""
    calibrator: Literal["geocalib", "stored", "desk", "none"] = "none"
    """Estimator of the up direction of a flat video; without it, up stays unknown."""
    calibrator_results: Path | None = None
    """Folder of results for --calibrator stored."""
    start: float = 0.0
    """Second of the video to start at."""
    frames: int | None = None
    """Number of frames to track. [default: all]"""
    every: int = 1
    """Look at one frame in this many, and interpolate between them; faster."""
    height: int = 480
    """Frames higher than this many pixels are reduced to it."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and track."""
    options = parse(Track, arguments, "ucpe track")
    from rich.console import Console

    from ucpe.evaluation.estimators import EstimatorChoice
    from ucpe.evaluation.tracking import track_video
    from ucpe.video import probe_video

    lens = None
    if options.lens.lens_given():
        info = probe_video(options.video)
        lens = options.lens.fitted(options.lens.make_lens(), info.height, info.width)
    estimator = EstimatorChoice(options.pose, options.pose_results, every_frame=True).pose_estimator()
    calibrator = None
    if options.calibrator != "none":
        calibrator = EstimatorChoice(options.calibrator, options.calibrator_results).calibrator()
    with Console(stderr=True).status(f"tracking {options.video.name}"):
        tracked = track_video(
            options.video,
            estimator,
            lens,
            calibrator,
            start=options.start,
            frames=options.frames,
            every=options.every,
            height=options.height,
            projection=options.layout.projection,
            stereo=options.layout.stereo,
        )
    tracked.camera.save(options.output)
    print("\n".join([*tracked.lines(), f"{options.output}: ucpe trajectory show {options.output} draws it"]))
