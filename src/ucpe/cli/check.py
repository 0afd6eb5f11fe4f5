"""`ucpe check`: did this video follow its camera?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ucpe.cli.cameras import CameraOptions
from ucpe.cli.parsing import parse

if TYPE_CHECKING:
    from ucpe.evaluation.checking import Check
    from ucpe.evaluation.estimators import Calibrator, PoseEstimator
    from ucpe.trajectories import Trajectory
    from ucpe.video import VideoInfo

EXIT_CODES = {"obeyed": 0, "not obeyed": 3, "unsure": 4}
"""Exit code of each verdict."""


@dataclass
class CheckCommand:
    """Say whether a video follows its commanded camera: pitch, roll, field of view, turn and travel.

    The camera is a path file or a move, as for `ucpe generate`; a video that `ucpe generate` made knows its own. Exits
    with 0 if it was obeyed, 3 if not, 4 if that is not certain.
    """

    video: Annotated[Path, tyro.conf.Positional]
    """Video to check."""
    shot: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    without: Path | None = None
    """The video that the same seed gives without the camera: tells whether the camera has any effect."""
    pose: Literal["auto", "colmap", "vipe", "stored", "desk", "none"] = "auto"
    """Pose estimator. [auto: desk for videos of the desk model, else colmap]"""
    pose_results: Path | None = None
    """Folder of results for --pose stored or vipe."""
    calibrator: Literal["auto", "geocalib", "stored", "desk", "none"] = "auto"
    """Estimator of orientation and lens. [auto: desk for videos of the desk model, else geocalib if it is installed]"""
    calibrator_results: Path | None = None
    """Folder of results for --calibrator stored."""
    tolerance: float = 1.0
    """Factor by which all tolerances are multiplied."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Picture to write (.png, .svg, .pdf). [default: beside the video, NAME.check.png]"""
    json: bool = False
    """Print everything as JSON instead."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line, check, exit with the verdict's code."""
    options = parse(CheckCommand, arguments, "ucpe check")
    from ucpe.figures import check_picture
    from ucpe.video import probe_video

    if options.output is not None:
        check_picture(options.output)
    info = probe_video(options.video)
    size = (info.height, info.width)
    pose = find_pose_estimator(options.pose, size, options.pose_results)
    calibrator = find_calibrator(options.calibrator, size, options.calibrator_results)
    check = run_check(
        options.video,
        find_camera(options.video, options.shot, info),
        pose,
        calibrator,
        without=options.without,
        tolerance=options.tolerance,
        picture=options.output,
        as_json=options.json,
    )
    raise SystemExit(EXIT_CODES[check.verdict])


def run_check(
    video: Path,
    camera: Trajectory,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    *,
    without: Path | None = None,
    tolerance: float = 1.0,
    picture: Path | None = None,
    as_json: bool = False,
) -> Check:
    """Check one video, print what was found and write the picture."""
    from rich.console import Console

    from ucpe.evaluation.checking import check_video
    from ucpe.evaluation.report.checks import draw_check, lines_of

    picture = picture or video.with_suffix(".check.png")
    with Console(stderr=True).status(f"checking {video.name}"):
        check = check_video(video, camera, pose, calibrator, without=without, tolerance=tolerance)
        draw_check(check, picture)
    if as_json:
        print(json.dumps(check.to_dict(), indent=1))
    else:
        print("\n".join([*lines_of(check), f"drawn in {picture}"]))
    return check


def find_camera(video: Path, shot: CameraOptions, info: VideoInfo) -> Trajectory:
    """The camera that the options name, or the one in the record that `ucpe generate` wrote beside the video."""
    from ucpe.trajectories import Trajectory

    if shot == CameraOptions():
        record = video.with_suffix(".json")
        if not record.is_file():
            raise ValueError(f"say what the camera was (--camera FILE or --move ...): there is no record {record}")
        from ucpe.generation.requests import read_again

        return read_again(record).camera
    if shot.camera is None:
        return shot.make_trajectory(info.frames, info.fps, info.height, info.width)
    lens = shot.given_lens()
    path = shot.scaled(Trajectory.load(shot.camera, lens=lens, up=shot.asked_up(), extrinsics=shot.lens))
    return path.with_lens(shot.fitted(path.lens, info.height, info.width))


def find_pose_estimator(name: str, size: tuple[int, int], results: Path | None = None) -> PoseEstimator | None:
    """The pose estimator of a name, or the one that suits a video of a height and width."""
    from ucpe.evaluation.estimators import EstimatorChoice
    from ucpe.evaluation.estimators.colmap import ColmapEstimator, ColmapSettings

    name = ("desk" if is_desk(size) else "colmap") if name == "auto" else name
    if name == "none":
        return None
    if name == "colmap":
        return ColmapEstimator(ColmapSettings(free_lens=True))
    return EstimatorChoice(name, results).pose_estimator()


def find_calibrator(name: str, size: tuple[int, int], results: Path | None = None) -> Calibrator | None:
    """The calibrator of a name, or the one that suits a video of a height and width and is installed."""
    from importlib.util import find_spec

    from ucpe.evaluation.estimators import EstimatorChoice

    if name == "auto":
        name = "desk" if is_desk(size) else "geocalib" if find_spec("geocalib") else "none"
    return None if name == "none" else EstimatorChoice(name, results).calibrator()


def is_desk(size: tuple[int, int]) -> bool:
    """Whether a height and width are those of the desk model's videos."""
    from ucpe.desk import HEIGHT, WIDTH

    return size == (HEIGHT, WIDTH)
