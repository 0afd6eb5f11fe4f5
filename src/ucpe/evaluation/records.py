"""What is measured of one video, stored as one file, so that a run can be killed and continued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Literal, TypeVar

import numpy as np
import torch

from ucpe.evaluation.camera_metrics import (
    calibration_errors,
    commanded_calibration,
    orientation_errors,
    views_of_calibration,
    views_of_camera,
)
from ucpe.evaluation.consistency import scene_consistency
from ucpe.evaluation.estimators.base import (
    Calibration,
    Calibrator,
    Clip,
    EstimationFailure,
    PoseEstimate,
    PoseEstimator,
    first_line,
)
from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.protocols import PROTOCOLS, Protocol, estimate_at
from ucpe.evaluation.results import CalibrationPart, ConsistencyPart, Measured, Metrics, Part, PosePart, VideoRecord
from ucpe.files import file_fingerprint, fingerprint_of
from ucpe.lenses import UCM, Lens
from ucpe.trajectories import Trajectory
from ucpe.video import VideoError

RECORD_VERSION = 4
"""Raised when the content of a record changes, so that old ones are measured again."""

MIN_REGISTERED = 0.5
"""Minimum share of a video's frames that a pose estimator must place; a video with fewer is filtered out."""

ORTHONORMAL = 1e-3
"""Maximum entry of R^T R - 1 for the rotation R of an estimated pose."""

Estimate = TypeVar("Estimate")


@dataclass(frozen=True)
class Measuring:
    """What determines a record besides the video and its camera."""

    duration: float | None = None
    """Seconds at which the common timestamps end, to compare videos of different lengths."""
    min_registered: float = MIN_REGISTERED
    consistency: bool = False
    """Whether frames are also compared with one rigid scene seen by the commanded cameras."""

    def __post_init__(self) -> None:
        if self.duration is not None and not self.duration > 0:
            raise ValueError(f"the duration to compare must be above 0 seconds, got {self.duration:g}")


def measure(job: Job, pose: PoseEstimator | None, calibrator: Calibrator | None, measuring: Measuring) -> VideoRecord:
    """Measure one video; failures are part of its record."""
    started = perf_counter()
    try:
        clip = read_clip(job.video, job.name)
    except VideoError as error:
        return unmeasured(job, "unreadable", str(error).replace(f"{job.video}: ", ""), pose, calibrator, measuring)
    camera = camera_of_clip(job.camera, clip)
    record = replace(
        _facts(job),
        frames=len(clip.frames),
        height=clip.height,
        width=clip.width,
        seconds_of_video=round(float(frame_times(job.camera, clip)[-1]), 6),
    )
    steps: dict[str, Callable[[VideoRecord], VideoRecord]] = {}
    if pose is not None:
        steps["pose"] = lambda record: replace(record, pose=_measure_poses(job, clip, camera, pose, measuring))
    if calibrator is not None:
        steps["calibration"] = lambda record: replace(
            record, calibration=_measure_calibration(job, clip, camera, calibrator)
        )
    if measuring.consistency:
        steps["consistency"] = lambda record: replace(record, consistency=_measure_consistency(job, clip, camera))
    if job.reference is not None:
        steps["reference"] = lambda record: _with_reference(job, record, pose, calibrator, measuring)
    seconds = {}
    for name, step in steps.items():
        before = perf_counter()
        record = step(record)
        seconds[name] = round(perf_counter() - before, 2)
    return replace(record, seconds={"total": round(perf_counter() - started, 2), **seconds})


def unmeasured(
    job: Job,
    status: Literal["failed", "unreadable"],
    reason: str,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    measuring: Measuring,
) -> VideoRecord:
    """The record of a video that could not be measured. It counts as if nothing were known about its camera."""
    record = replace(_facts(job), status=status, reason=reason)
    if pose:
        poses: PosePart = Part(status=status, reason=reason, uninformed=_uninformed_poses(job, measuring))
        record = replace(record, pose=poses)
    if calibrator:
        uninformed = _uninformed_calibration(job, calibrator, None)
        record = replace(record, calibration=Part(status=status, reason=reason, uninformed=uninformed))
    return record


def _facts(job: Job) -> VideoRecord:
    lens = job.camera.lens
    return VideoRecord(
        name=job.name,
        video=job.video.name,
        family=job.family,
        gravity=job.gravity,
        lens=lens.to_dict() if not lens.batch_shape else {"model": lens.kind},
        camera=camera_hash(job.camera),
        seconds_of_path=round(job.camera.duration, 6),
        has_reference=job.reference is not None,
    )


def camera_hash(camera: Trajectory) -> str:
    """Hash of a camera's poses (to six decimals), lens and frame rate: the same for all who command this camera."""
    poses = np.round(camera.c2w[:, :3].double().numpy(), 6) + 0.0  # no negative zeros
    return fingerprint_of({"poses": poses.tolist(), "lens": camera.lens.to_dict(), "fps": round(camera.fps, 6)})


def frame_times(camera: Trajectory, clip: Clip) -> np.ndarray:
    """Time (N,) in seconds of every frame of a clip on the clock of its commanded camera.

    If both have the same number of frames, frame by frame, whatever rate the file claims; else by the file's own times.
    """
    return np.arange(len(camera)) / camera.fps if len(camera) == len(clip.frames) else clip.times


def camera_of_clip(camera: Trajectory, clip: Clip) -> Trajectory:
    """The commanded camera of every frame of a clip."""
    if len(camera) == len(clip.frames):
        return camera
    sampled = camera.at(torch.from_numpy(clip.times) * camera.fps)
    fps = (len(clip.frames) - 1) / clip.duration if clip.duration > 0 else camera.fps
    return Trajectory(sampled.c2w, sampled.lens, fps)


def record_key(job: Job, pose: PoseEstimator | None, calibrator: Calibrator | None, measuring: Measuring) -> str:
    """Fingerprint of all that determines a record: file contents, camera, estimators and settings."""
    camera = {"c2w": job.camera.c2w.tolist(), "lens": job.camera.lens.to_dict(), "fps": job.camera.fps}
    content = {
        "version": RECORD_VERSION,
        "video": file_fingerprint(job.video),
        "reference": None if job.reference is None else file_fingerprint(job.reference),
        "camera": camera,
        "gravity": job.gravity,
        "pose": None if pose is None else pose.describe(),
        "calibrator": None if calibrator is None else calibrator.describe(),
        "files": [
            file_fingerprint(path)
            for estimator in (pose, calibrator)
            if estimator
            for path in estimator.files(job.name)
        ],
        "measuring": asdict(measuring),
    }
    return fingerprint_of(content)


def _measure_poses(
    job: Job, clip: Clip, camera: Trajectory, estimator: PoseEstimator, measuring: Measuring
) -> PosePart:
    result: PosePart = Part(status="failed", attempted=len(clip.frames), registered=0)
    try:
        if len(job.camera) < 2:
            raise EstimationFailure("the commanded path has one frame, so it says nothing about motion")
        estimate = estimated(lambda: estimator.estimate(clip, camera.lens))
        _check_estimate(estimate, len(clip.frames))
    except EstimationFailure as failure:
        return replace(result, reason=str(failure), uninformed=_uninformed_poses(job, measuring))
    looked_at, placed = estimate.looked_at or len(clip.frames), len(estimate.frames)
    result = replace(result, attempted=looked_at, registered=placed, estimate=estimate)
    if placed < max(measuring.min_registered * looked_at, 2):
        reason = f"only {placed} of {looked_at} frames could be placed"
        return replace(result, status="filtered", reason=reason, uninformed=_uninformed_poses(job, measuring))
    times = frame_times(job.camera, clip)
    return replace(result, status="ok", metrics=_by_protocol(job.camera, estimate, times, measuring))


def _by_protocol(
    camera: Trajectory, estimate: PoseEstimate, times: np.ndarray, measuring: Measuring
) -> dict[str, Metrics]:
    return {
        name: pose_metrics(camera, estimate, times, protocol, measuring.duration)
        for name, protocol in PROTOCOLS.items()
    }


def pose_metrics(
    camera: Trajectory,
    estimate: PoseEstimate,
    times: np.ndarray,  # (N,) seconds of all frames of the video
    protocol: Protocol,
    duration: float | None = None,
) -> Metrics:
    """Metrics of the estimated poses of some frames of a video against its commanded camera."""
    end = camera.duration if duration is None else min(camera.duration, duration)
    seconds = protocol.timestamps(torch.from_numpy(times), end)
    estimated = estimate_at(estimate.c2w, torch.from_numpy(times[estimate.frames]), seconds)
    commanded = camera.at(seconds * camera.fps).c2w
    return protocol.evaluate(commanded, estimated, estimate.near_depth, estimate.metric)


def _measure_calibration(job: Job, clip: Clip, camera: Trajectory, calibrator: Calibrator) -> CalibrationPart:
    result: CalibrationPart = Part(status="failed", attempted=len(clip.frames), model=calibrator.model)
    try:
        estimate = estimated(lambda: calibrator.estimate(clip))
        wanted = commanded_calibration(camera, calibrator.model, clip.height, clip.width, gravity=job.gravity)
        # What is seen after the end of the path was not commanded.
        wanted = wanted.rows(frame_times(job.camera, clip) <= max(job.camera.duration, 0) + 1e-6)
        metrics = estimated(lambda: calibration_errors(estimate, wanted))
        if job.gravity:
            size = clip.height, clip.width
            within = views_of_calibration(estimate.rows(np.isin(estimate.frames, wanted.frames)), *size)
            metrics |= estimated(lambda: orientation_errors(within, views_of_camera(camera), *size))
    except EstimationFailure as failure:
        return replace(result, reason=str(failure), uninformed=_uninformed_calibration(job, calibrator, clip))
    rms = float(wanted.details["fit_rms"])
    known = rms if np.isfinite(rms) else None
    return replace(result, status="ok", estimate=estimate, metrics=metrics, fit_rms=known)


def _with_reference(
    job: Job, record: VideoRecord, pose: PoseEstimator | None, calibrator: Calibrator | None, measuring: Measuring
) -> VideoRecord:
    """The record with the same measurements of the reference video, and with errors against them."""
    assert job.reference is not None
    try:
        clip = read_clip(job.reference, job.name)
    except VideoError as error:
        reason = str(error).replace(f"{job.reference}: ", "")
        return replace(record, reference=Measured(status="unreadable", reason=reason))
    camera = camera_of_clip(job.camera, clip)
    reference = Measured(
        status="read",
        pose=_measure_poses(job, clip, camera, pose, measuring) if pose else None,
        calibration=_measure_calibration(job, clip, camera, calibrator) if calibrator else None,
    )
    if record.pose and reference.pose and record.pose.status == reference.pose.status == "ok":
        against = _poses_against(job, record, reference.pose, clip, measuring)
        record = replace(record, pose=replace(record.pose, against_reference=against))
    if (
        record.calibration
        and reference.calibration
        and (record.calibration.status == reference.calibration.status == "ok")
    ):
        errors = _calibration_against(record, reference.calibration, clip)
        record = replace(record, calibration=replace(record.calibration, against_reference=errors))
    return replace(record, reference=reference.without_estimates())


def _poses_against(
    job: Job, record: VideoRecord, reference: PosePart, clip: Clip, measuring: Measuring
) -> dict[str, Metrics]:
    """Metrics of a video's poses against the same estimator's poses of the reference video."""
    assert record.pose and record.pose.estimate and reference.estimate and record.frames
    real = reference.estimate
    times = frame_times(job.camera, clip)
    c2w = estimate_at(real.c2w, torch.from_numpy(times[real.frames]), torch.from_numpy(times))
    fps = (len(times) - 1) / max(float(times[-1]), 1e-9)
    camera = Trajectory(c2w, job.camera.lens_at(0), fps)
    seconds = times if record.frames == len(times) else np.linspace(0, times[-1], record.frames)
    return _by_protocol(camera, record.pose.estimate, seconds, measuring)


def _calibration_against(record: VideoRecord, reference: CalibrationPart, clip: Clip) -> Metrics:
    """Errors of a video's calibration against the same estimator's calibration of the reference video."""
    assert record.calibration and record.calibration.estimate and reference.estimate
    assert record.frames and record.height and record.width
    found, wanted = _same_times(record.calibration.estimate, reference.estimate, record.frames, len(clip.frames))
    size = record.height, record.width
    views = views_of_calibration(found, *size), views_of_calibration(wanted, clip.height, clip.width)
    return calibration_errors(found, wanted) | orientation_errors(*views, *size)


def _measure_consistency(job: Job, clip: Clip, camera: Trajectory) -> ConsistencyPart:
    within = frame_times(job.camera, clip) <= job.camera.duration + 1e-6
    try:
        metrics = estimated(lambda: scene_consistency(clip.frames[within], camera[np.flatnonzero(within).tolist()]))
    except EstimationFailure as failure:
        return Part(status="failed", reason=str(failure), uninformed={})
    return Part(status="ok", metrics=metrics)


def _same_times(
    estimate: Calibration, reference: Calibration, frames: int, reference_frames: int
) -> tuple[Calibration, Calibration]:
    """The reference's calibration at the frame numbers of the estimate, by share of the duration."""
    if frames == reference_frames:
        return estimate, reference
    shares = estimate.frames * ((reference_frames - 1) / max(frames - 1, 1))
    nearest = reference.rows(np.abs(reference.frames[None] - shares[:, None]).argmin(1))
    return estimate, replace(nearest, frames=estimate.frames)


def _uninformed_poses(job: Job, measuring: Measuring) -> dict[str, Metrics]:
    """Metrics of a camera that never moves: the minimum error that a failed video counts with."""
    still = torch.eye(4, dtype=torch.float64).expand(len(job.camera), 4, 4)
    estimate = PoseEstimate(still, np.arange(len(job.camera)), near_depth=1.0, metric=True)
    times = np.arange(len(job.camera)) / job.camera.fps
    return _by_protocol(job.camera, estimate, times, measuring)


def _uninformed_calibration(job: Job, calibrator: Calibrator, clip: Clip | None) -> Metrics:
    """Errors of a level camera with a 90 degree pinhole: the minimum error that a failed video counts with."""
    height, width = (480, 832) if clip is None else (clip.height, clip.width)
    level = torch.eye(4, dtype=torch.float64).expand(len(job.camera), 4, 4)
    pinhole: Lens = UCM(xfov=90.0, xi=0.0)
    guess = commanded_calibration(Trajectory(level, pinhole), calibrator.model, height, width)
    wanted = commanded_calibration(job.camera, calibrator.model, height, width, gravity=job.gravity)
    return calibration_errors(guess, wanted)


def estimated(estimate: Callable[[], Estimate]) -> Estimate:
    """Call an estimator; whatever goes wrong inside it is this video's failure, not the run's."""
    try:
        return estimate()
    except (ValueError, RuntimeError, OSError) as error:
        raise EstimationFailure(first_line(error)) from None


def _check_estimate(estimate: PoseEstimate, frames: int) -> None:
    if not torch.isfinite(estimate.c2w).all():
        raise EstimationFailure("the estimator returned poses that are not finite")
    rotation = estimate.c2w[:, :3, :3].double()
    mirrored = torch.linalg.det(rotation) < 0
    if ((rotation.mT @ rotation - torch.eye(3)).abs().amax((1, 2)) > ORTHONORMAL).any() or mirrored.any():
        raise EstimationFailure("the estimator returned poses whose upper left 3 x 3 is not a rotation")
    numbers = estimate.frames
    if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= frames or (np.diff(numbers) <= 0).any():
        raise EstimationFailure(f"the estimator returned frame numbers that do not fit a video of {frames} frames")
