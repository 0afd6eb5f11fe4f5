"""`ucpe evaluate`: measure camera control of any videos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ucpe.cli.cameras import LensOptions, PathOptions
from ucpe.cli.parsing import given, parse
from ucpe.work import WorkOptions, progress_bar

if TYPE_CHECKING:
    from ucpe.evaluation.estimators import EstimatorChoice
    from ucpe.evaluation.inputs import Job
    from ucpe.trajectories import Trajectory


@dataclass
class Evaluate:
    """Measure how well videos follow their commanded cameras, and write a report.

    Videos are paired with cameras by name (`videos/a.mp4` with `cameras/a.json`, `.txt`, `.npy`, ...). A run that was
    stopped continues with the same command.
    """

    videos: tyro.conf.Positional[Path]
    """Folder of videos, or one video."""
    cameras: Path | None = None
    """Folder of camera files, one camera file for all, or a released demo .json (videos 0-cat.mp4, 1-dog.mp4, ...)."""
    dataset: Path | None = None
    """Folder of `ucpe synthesize` or of PanShot, instead of --cameras; its own videos are the references."""
    split: str = "test"
    """Split of the dataset."""
    realestate10k: Path | None = None
    """Folder of RealEstate10K pose files, instead of --cameras: the paper's setting (100 degrees, 81 frames)."""
    normalization: Path | None = None
    """File with the factor on RealEstate10K translations. [default: traj_normalization.txt among the pose files]"""
    reference: Path | None = None
    """Folder of real videos with the same names: the paper's ground truth for orientation and lens, FID and FVD."""
    captions: Path | None = None
    """JSON of {video name: caption} for the CLIP score."""
    lens: Annotated[LensOptions, tyro.conf.arg(name="")] = field(default_factory=LensOptions)
    place: Annotated[PathOptions, tyro.conf.arg(name="")] = field(default_factory=PathOptions)
    gravity: bool | None = None
    """Whether the cameras' vertical is known. [default: by format]"""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder of the report."""
    label: str | None = None
    """Name of the method in tables. [default: the folder of videos]"""
    pose: Literal["colmap", "vipe", "stored", "desk", "none"] = "colmap"
    """Pose estimator; `desk` is for videos of the desk model only."""
    pose_results: Path | None = None
    """Folder of results for --pose stored or vipe."""
    calibrator: Literal["geocalib", "stored", "desk", "none"] = "none"
    """Estimator of orientation and lens; `desk` is for videos of the desk model only."""
    calibrator_results: Path | None = None
    """Folder of results for --calibrator stored."""
    calibrator_weights: str | None = None
    """Checkpoint of GeoCalib. [default: its `distorted` weights]"""
    calibrator_every: int = 1
    """GeoCalib looks at one frame in this many; the authors take every fourth."""
    calibrator_shared: bool = False
    """GeoCalib finds one lens for all frames of a video, as the authors do."""
    every_frame: bool = False
    """COLMAP places every frame of a video instead of four per second; slower."""
    consistency: bool = False
    """Also measure how well frames agree with one rigid scene seen by the commanded cameras."""
    protocol: Literal["robust", "paper", "released", "released-re10k", "cameractrl"] = "robust"
    """Headline protocol of the pose metrics; all are stored."""
    against: Literal["commanded", "reference", "reference-poses"] = "commanded"
    """What the tables compare with: the command; for orientation and lens, what the estimators find in the reference
    videos; or the same for poses too. All are stored."""
    trusted_references: float = 1.0
    """Share of the reference videos to compare poses with, those whose own poses follow the command best (the authors
    take 0.5)."""
    leave_out_jittery: float = 0.0
    """Share of cameras to leave out, those that turn most suddenly (the authors: 0.2); the report names them."""
    duration: float | None = None
    """Seconds at which the common timestamps end, for methods of different lengths. [default: each video's own]"""
    fid: str | None = None
    """TorchScript Inception-v3 for FID."""
    fid_frames: int = 16
    """Number of frames of every video for FID; 0 takes all."""
    fvd: str | None = None
    """TorchScript I3D for FVD."""
    clip: str | None = None
    """CLIP model (folder or hub id) for the CLIP score."""
    qalign: str | None = None
    """Q-Align model (folder or hub id); needs --trust-remote-code."""
    quality: tuple[Literal["st-lpips", "vmaf", "flow-warp", "flow-warp-gmflow"], ...] = ()
    """Metrics that need no hub: st-lpips and vmaf against reference videos (pip install 'ucpe[quality]'), flow-warp
    between frames."""
    trust_remote_code: bool = False
    """Allow code that comes with a model to run."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)
    seed: int = 0
    """Seed of the confidence intervals."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    evaluate(parse(Evaluate, arguments, "ucpe evaluate"))


def evaluate(options: Evaluate) -> None:
    """Measure, write the report, print the table."""
    from rich.console import Console

    from ucpe.evaluation import run
    from ucpe.evaluation.quality import QualitySettings, measure_quality
    from ucpe.evaluation.records import Measuring
    from ucpe.evaluation.report.tables import markdown
    from ucpe.evaluation.report.write import run_table, write_report

    jobs, notes = find_jobs(options)
    settings = run.EvaluationSettings(
        pose=_choice(options.pose, options.pose_results, every_frame=options.every_frame),
        calibrator=_choice(
            options.calibrator,
            options.calibrator_results,
            options.calibrator_weights,
            every=options.calibrator_every,
            shared=options.calibrator_shared,
        ),
        protocol=options.protocol,
        trusted_references=options.trusted_references,
        measuring=Measuring(duration=options.duration, consistency=options.consistency),
        seed=options.seed,
        label=options.label or options.videos.resolve().stem,
    )
    weights = QualitySettings(
        options.fid,
        options.fvd,
        options.clip,
        options.qalign,
        trust_remote_code=options.trust_remote_code,
        frames=options.fid_frames or None,
        without_hub=options.quality,
    )
    console = Console(stderr=True)
    with progress_bar() as show:
        results = run.evaluate(
            jobs,
            options.output,
            settings,
            quality=lambda: measure_quality(jobs, weights),
            progress=show,
            notes=notes,
            **vars(options.work),
        )
    paths = write_report(options.output, jobs, options.against)
    print(markdown(run_table(results, options.against)))
    for failure in results.failures:
        console.print(f"{failure.name}: {failure.part} {failure.status}: {failure.reason}", highlight=False)
    console.print(f"wrote {options.output / 'results.json'}, {', '.join(path.name for path in paths)}")


def find_jobs(options: Evaluate) -> tuple[list[Job], list[str]]:
    """Videos paired with cameras as the options say, and what a reader of the results must know about the pairs."""
    import json
    from dataclasses import replace

    from ucpe.evaluation import inputs
    from ucpe.evaluation.run import shortened
    from ucpe.trajectories.formats.captioned import NORMALIZATION_FILE, read_normalization

    named = list(given(options, "cameras", "dataset", "realestate10k"))
    if len(named) != 1:
        raise ValueError(f"say what the cameras are with one of --cameras, --dataset, --realestate10k; got {named}")
    for name, needed, used in (
        ("lens", "cameras", options.lens.lens_given()),
        ("up, --level and --scale", "cameras", options.place.path_given()),
        ("gravity", "cameras", options.gravity is not None),
        ("normalization", "realestate10k", options.normalization is not None),
    ):
        if used and named != [needed]:
            raise ValueError(f"--{name} goes with --{needed}, not with --{named[0]}")
    notes, unused = [], []
    if options.dataset is not None:
        jobs = inputs.jobs_of_dataset(options.videos, options.dataset, options.split)
        unused = sorted(set(inputs.names_of_dataset(options.dataset, options.split)) - {job.name for job in jobs})
    elif options.realestate10k is not None:
        file = options.normalization or options.realestate10k / NORMALIZATION_FILE
        factor = read_normalization(file) if options.normalization or file.is_file() else 1.0
        jobs = inputs.jobs_of_realestate(options.videos, options.realestate10k, factor)
        notes.append(f"RealEstate10K setting: first 81 poses, 100° pinhole, translations times {factor:.6g}.")
        unused = inputs.cameras_without_video(options.realestate10k, jobs, ".txt")
        unused = [name for name in unused if f"{name}.txt" != NORMALIZATION_FILE]
    else:
        assert options.cameras is not None
        lens = options.lens.given_lens()
        jobs = inputs.jobs_of_folder(
            options.videos,
            options.cameras,
            lens=lens,
            gravity=options.gravity,
            up=options.place.asked_up(),
            extrinsics=options.lens.lens,
        )
        jobs = [replace(job, camera=_fitted(job, options)) for job in jobs]
        unknown = [job.name for job in jobs if not job.gravity]
        if unknown and options.gravity is None:
            notes.append(
                f"{len(unknown)} cameras do not say which way is up, so pitch and roll are not compared: "
                f"{shortened(unknown)}. Say it with --up +z, --up -y, ..., or --level."
            )
        if options.cameras.is_dir():
            unused = inputs.cameras_without_video(options.cameras, jobs)
    if options.reference is not None:
        jobs = inputs.with_references(jobs, options.reference)
    if options.against != "commanded" and not any(job.reference for job in jobs):
        raise ValueError(
            f"--against {options.against} needs reference videos (--reference, or a --dataset that holds its own)"
        )
    if options.trusted_references != 1 and options.against != "reference-poses":
        raise ValueError("--trusted-references goes with --against reference-poses")
    if unused and options.videos.is_dir():
        notes.append(f"{len(unused)} cameras have no video and are not counted: {shortened(unused)}.")
    if options.leave_out_jittery:
        jobs, left_out = inputs.without_jittery(jobs, options.leave_out_jittery)
        notes.append(
            f"The {len(left_out)} cameras that turn most suddenly are left out: {', '.join(sorted(left_out))} "
            f"(--leave-out-jittery {options.leave_out_jittery:g})."
        )
    if options.captions is not None:
        captions = json.loads(options.captions.read_text(encoding="utf-8"))
        jobs = [replace(job, caption=captions.get(job.name, job.caption)) for job in jobs]
    return jobs, notes


def _fitted(job: Job, options: Evaluate) -> Trajectory:
    """The job's camera scaled as asked for, its calibration fitted to the video's shape."""
    from ucpe.video import probe_video

    camera = options.place.scaled(job.camera)
    if "width" not in camera.lens.settings:
        return camera
    info = probe_video(job.video)
    return camera.with_lens(options.lens.fitted(camera.lens, info.height, info.width))


def _choice(
    name: str, results: Path | None = None, weights: str | None = None, **options: Any
) -> EstimatorChoice | None:
    from ucpe.evaluation.estimators import EstimatorChoice

    if name == "none":
        if results is not None or weights is not None:
            raise ValueError("results or weights are given for an estimator that is not chosen (--pose, --calibrator)")
        return None
    return EstimatorChoice(name, results, weights, **options)
