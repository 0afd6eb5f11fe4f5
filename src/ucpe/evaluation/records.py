"""What is measured of one video, stored as one file, so that a run can be killed and continued."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch

from ucpe.evaluation.camera_metrics import calibration_errors, commanded_calibration, orientation_errors
from ucpe.evaluation.consistency import scene_consistency
from ucpe.evaluation.estimators.base import (
    Calibration,
    Calibrator,
    Clip,
    EstimationFailure,
    PoseEstimate,
    PoseEstimator,
    calibration_from_plain,
    calibration_to_plain,
    pose_from_plain,
    pose_to_plain,
)
from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.protocols import PROTOCOLS, Protocol, estimate_at, poses_at
from ucpe.files import file_fingerprint, fingerprint_of
from ucpe.lenses import UCM, Lens
from ucpe.trajectories import Trajectory
from ucpe.video import VideoError

RECORD_VERSION = 3
"""Raised when the content of a record changes, so that old ones are measured again."""

MIN_REGISTERED = 0.5
"""Share of a video's frames that a pose estimator must place for its result to count; fewer are filtered out."""

ORTHONORMAL = 1e-3
"""How far the rotation of an estimated pose may be from orthonormal."""

Estimate = TypeVar("Estimate")


@dataclass(frozen=True)
class Measuring:
    """What determines a record besides the video and its camera."""

    duration: float | None = None
    """Seconds at which the common timestamps end, for comparing methods of different lengths."""
    min_registered: float = MIN_REGISTERED
    consistency: bool = False
    """Whether frames are also compared with one rigid scene seen by the commanded cameras."""

    def __post_init__(self) -> None:
        if self.duration is not None and not self.duration > 0:
            raise ValueError(f"the duration to compare must be above 0 seconds, got {self.duration:g}")


def measure(
    job: Job, pose: PoseEstimator | None, calibrator: Calibrator | None, measuring: Measuring
) -> dict[str, Any]:
    """Everything measured of one video, as plain data; failures are part of it."""
    started = perf_counter()
    record = _facts(job)
    try:
        clip = read_clip(job.video, job.name)
    except VideoError as error:
        return unmeasured(job, "unreadable", str(error).replace(f"{job.video}: ", ""), pose, calibrator, measuring)
    record |= {
        "status": "read",
        "frames": len(clip.frames),
        "height": clip.height,
        "width": clip.width,
        "seconds_of_video": round(float(frame_times(job.camera, clip)[-1]), 6),
    }
    camera = camera_of_clip(job.camera, clip)
    seconds = {}
    parts: dict[str, Callable[[], dict[str, Any]]] = {}
    if pose is not None:
        parts["pose"] = lambda: _measure_poses(job, clip, camera, pose, measuring)
    if calibrator is not None:
        parts["calibration"] = lambda: _measure_calibration(job, clip, camera, calibrator)
    if measuring.consistency:
        parts["consistency"] = lambda: _measure_consistency(job, clip, camera)
    if job.reference is not None:
        parts["reference"] = lambda: _measure_reference(job, record, pose, calibrator, measuring)
    for name, measured in parts.items():
        before = perf_counter()
        record[name] = measured()
        seconds[name] = round(perf_counter() - before, 2)
    return record | {"seconds": {"total": round(perf_counter() - started, 2), **seconds}}


def unmeasured(
    job: Job,
    status: str,
    reason: str,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    measuring: Measuring,
) -> dict[str, Any]:
    """The record of a video that could not be measured. It counts as if nothing were known about its camera."""
    failed = {"status": status, "reason": reason}
    record = _facts(job) | failed
    if pose:
        record["pose"] = failed | {"uninformed": _uninformed_poses(job, measuring)}
    if calibrator:
        record["calibration"] = failed | {"uninformed": _uninformed_calibration(job, calibrator, None)}
    return record


def _facts(job: Job) -> dict[str, Any]:
    lens = job.camera.lens
    return {
        "name": job.name,
        "video": job.video.name,
        "family": job.family,
        "gravity": job.gravity,
        "lens": lens.to_dict() if not lens.batch_shape else {"model": lens.kind},
        "camera": camera_hash(job.camera),
        "seconds_of_path": round(job.camera.duration, 6),
        "has_reference": job.reference is not None,
    }


def camera_hash(camera: Trajectory) -> str:
    """Hash of a camera's poses to six digits, lens and frame rate: the same for all who told a model the same."""
    poses = np.round(camera.c2w[:, :3].double().numpy(), 6) + 0.0  # no negative zeros
    return fingerprint_of({"poses": poses.tolist(), "lens": camera.lens.to_dict(), "fps": round(camera.fps, 6)})


def frame_times(camera: Trajectory, clip: Clip) -> np.ndarray:
    """Time (N,) in seconds of every frame of a clip on the clock of its commanded camera.

    Frame by frame where the numbers of frames agree, whatever rate the file claims; by the file's own times otherwise.
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
) -> dict[str, Any]:
    result: dict[str, Any] = {"attempted": len(clip.frames), "registered": 0}
    try:
        if len(job.camera) < 2:
            raise EstimationFailure("the commanded path has one frame, so it says nothing about motion")
        estimate = estimated(lambda: estimator.estimate(clip, camera.lens))
        _check_estimate(estimate, len(clip.frames))
        looked_at = estimate.looked_at or len(clip.frames)
        result |= {"attempted": looked_at, "registered": len(estimate.frames), "estimate": pose_to_plain(estimate)}
        if len(estimate.frames) < max(measuring.min_registered * looked_at, 2):
            reason = f"only {len(estimate.frames)} of {looked_at} frames could be placed"
            return result | {
                "status": "filtered",
                "reason": reason,
                "uninformed": _uninformed_poses(job, measuring),
            }
    except EstimationFailure as failure:
        return result | {"status": "failed", "reason": str(failure), "uninformed": _uninformed_poses(job, measuring)}
    times = frame_times(job.camera, clip)
    metrics = {
        name: pose_metrics(job.camera, estimate, times, protocol, measuring.duration)
        for name, protocol in PROTOCOLS.items()
    }
    return result | {"status": "ok", "metrics": metrics}


def pose_metrics(
    camera: Trajectory,
    estimate: PoseEstimate,
    times: np.ndarray,  # (N,) seconds of all frames of the video
    protocol: Protocol,
    duration: float | None = None,
) -> dict[str, float]:
    """Metrics of an estimate of some frames of a video against its commanded camera."""
    end = camera.duration if duration is None else min(camera.duration, duration)
    seconds = protocol.timestamps(torch.from_numpy(times), end)
    estimated = estimate_at(estimate.c2w, torch.from_numpy(times[estimate.frames]), seconds)
    return protocol.evaluate(poses_at(camera, seconds), estimated, estimate.near_depth, estimate.metric)


def _measure_calibration(job: Job, clip: Clip, camera: Trajectory, calibrator: Calibrator) -> dict[str, Any]:
    result: dict[str, Any] = {"attempted": len(clip.frames), "model": calibrator.model}
    try:
        estimate = estimated(lambda: calibrator.estimate(clip))
        wanted = commanded_calibration(camera, calibrator.model, clip.height, clip.width, gravity=job.gravity)
        # What is seen after the end of the path was not commanded.
        wanted = wanted.rows(frame_times(job.camera, clip) <= max(job.camera.duration, 0) + 1e-6)
        metrics = estimated(lambda: calibration_errors(estimate, wanted))
        if job.gravity:
            within = estimate.rows(np.isin(estimate.frames, wanted.frames))
            metrics |= estimated(lambda: orientation_errors(within, camera, clip.height, clip.width))
    except EstimationFailure as failure:
        uninformed = _uninformed_calibration(job, calibrator, clip)
        return result | {"status": "failed", "reason": str(failure), "uninformed": uninformed}
    return result | {
        "status": "ok",
        "estimate": calibration_to_plain(estimate),
        "metrics": metrics,
        "fit_rms": _finite(wanted.details.get("fit_rms")),
    }


def _measure_reference(
    job: Job,
    record: dict[str, Any],
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    measuring: Measuring,
) -> dict[str, Any]:
    """The same measurements of the reference video, and the video's calibration against the reference's."""
    assert job.reference is not None
    try:
        clip = read_clip(job.reference, job.name)
    except VideoError as error:
        return {"status": "unreadable", "reason": str(error).replace(f"{job.reference}: ", "")}
    camera = camera_of_clip(job.camera, clip)
    result: dict[str, Any] = {"status": "read"}
    if pose is not None:
        result["pose"] = _measure_poses(job, clip, camera, pose, measuring)
        own = record["pose"]
        if result["pose"]["status"] == own["status"] == "ok":
            mine, real = (pose_from_plain(part["estimate"]) for part in (own, result["pose"]))
            own["against_reference"] = _against_reference(job, mine, real, record["frames"], clip, measuring)
        result["pose"].pop("estimate", None)
    if calibrator is not None:
        measured = _measure_calibration(job, clip, camera, calibrator)
        own = record["calibration"]
        if measured["status"] == "ok" and own["status"] == "ok":
            pair = (calibration_from_plain(own["estimate"]), calibration_from_plain(measured["estimate"]))
            own["against_reference"] = calibration_errors(*_same_times(*pair, record["frames"], len(clip.frames)))
        measured.pop("estimate", None)
        result["calibration"] = measured
    return result


def _against_reference(
    job: Job, own: PoseEstimate, real: PoseEstimate, frames: int, clip: Clip, measuring: Measuring
) -> dict[str, dict[str, float]]:
    """Metrics of a video's poses against the same estimator's poses of the reference video."""
    times = frame_times(job.camera, clip)
    c2w = estimate_at(real.c2w, torch.from_numpy(times[real.frames]), torch.from_numpy(times))
    fps = (len(times) - 1) / max(float(times[-1]), 1e-9)
    camera = Trajectory(c2w, job.camera.lens_at(0), fps)
    seconds = times if frames == len(times) else np.linspace(0, times[-1], frames)
    return {
        name: pose_metrics(camera, own, seconds, protocol, measuring.duration) for name, protocol in PROTOCOLS.items()
    }


def _measure_consistency(job: Job, clip: Clip, camera: Trajectory) -> dict[str, Any]:
    within = frame_times(job.camera, clip) <= job.camera.duration + 1e-6
    try:
        metrics = estimated(lambda: scene_consistency(clip.frames[within], camera[np.flatnonzero(within).tolist()]))
    except EstimationFailure as failure:
        return {"status": "failed", "reason": str(failure), "uninformed": {}}
    return {"status": "ok", "metrics": metrics}


def _same_times(
    estimate: Calibration, reference: Calibration, frames: int, reference_frames: int
) -> tuple[Calibration, Calibration]:
    """The reference's calibration at the frame numbers of the estimate, by share of the duration."""
    if frames == reference_frames:
        return estimate, reference
    shares = estimate.frames * ((reference_frames - 1) / max(frames - 1, 1))
    nearest = reference.rows(np.abs(reference.frames[None] - shares[:, None]).argmin(1))
    return estimate, replace(nearest, frames=estimate.frames)


def _uninformed_poses(job: Job, measuring: Measuring) -> dict[str, dict[str, float]]:
    """Metrics of a camera that never moves: the least that a failed video counts as."""
    still = torch.eye(4, dtype=torch.float64).expand(len(job.camera), 4, 4)
    estimate = PoseEstimate(still, np.arange(len(job.camera)), near_depth=1.0, metric=True)
    times = np.arange(len(job.camera)) / job.camera.fps
    return {
        name: pose_metrics(job.camera, estimate, times, protocol, measuring.duration)
        for name, protocol in PROTOCOLS.items()
    }


def _uninformed_calibration(job: Job, calibrator: Calibrator, clip: Clip | None) -> dict[str, float]:
    """Errors of a level camera with a 90 degree pinhole: the least that a failed video counts as."""
    height, width = (480, 832) if clip is None else (clip.height, clip.width)
    level = torch.eye(4, dtype=torch.float64).expand(len(job.camera), 4, 4)
    pinhole: Lens = UCM(xfov=90.0, xi=0.0)
    guess = commanded_calibration(Trajectory(level, pinhole), calibrator.model, height, width)
    wanted = commanded_calibration(job.camera, calibrator.model, height, width, gravity=job.gravity)
    return calibration_errors(guess, wanted)


def estimated(estimate: Callable[[], Estimate]) -> Estimate:
    """What an estimator says; whatever goes wrong inside it is this video's failure, not the run's."""
    try:
        return estimate()
    except (ValueError, RuntimeError, OSError) as error:
        raise EstimationFailure((str(error).strip().splitlines() or [type(error).__name__])[0][:300]) from None


def _check_estimate(estimate: PoseEstimate, frames: int) -> None:
    if not torch.isfinite(estimate.c2w).all():
        raise EstimationFailure("the estimator returned poses that are not finite")
    rotation = estimate.c2w[:, :3, :3].double()
    mirrored = torch.linalg.det(rotation) < 0
    if ((rotation.mT @ rotation - torch.eye(3)).abs().amax((1, 2)) > ORTHONORMAL).any() or mirrored.any():
        raise EstimationFailure("the estimator returned poses whose upper left 3 x 3 is no rotation")
    numbers = estimate.frames
    if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= frames or (np.diff(numbers) <= 0).any():
        raise EstimationFailure(f"the estimator returned frame numbers that do not fit a video of {frames} frames")


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
