"""Videos of held-out cameras by a model with an adapter, measured as `ucpe evaluate` does; resumable by video."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.desk import FRAMES, HEIGHT, WIDTH
from ucpe.evaluation.camera_metrics import calibration_errors, commanded_calibration
from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Calibration, PoseEstimate
from ucpe.evaluation.inputs import Job
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.evaluation.records import pose_metrics
from ucpe.evaluation.run import EvaluationSettings, evaluate
from ucpe.files import file_fingerprint
from ucpe.generation.pipeline import CameraPipeline
from ucpe.synthesis.dataset import ClipDataset
from ucpe.trajectories import Trajectory
from ucpe.video import write_video
from ucpe.work import OutOfTime

DESK = EstimatorChoice("desk")
"""What measures videos."""

PROTOCOL = "robust"
"""Pose protocol of every number; the records of each evaluation hold the other ones too."""

METRICS = ("FoVErr", "XFoVErr", "XiErr", "PitchErr", "RollErr", "RotErr", "TransErr", "CamMC", "SpeedErr")
"""What is measured of every video."""

MODES = {"text": "from text", "first-frame": "with a given first frame"}
"""How videos are generated, and what that is called."""

BATCH = 4
"""Videos that are generated at a time from text."""


def generate(
    pipe: CameraPipeline,
    clips: ClipDataset,
    count: int,
    first_frame: bool,
    folder: Path,
    steps: int | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Write videos with the captions and cameras (and first frames) of the first clips; those there are left alone.

    The noise of a video follows from its number alone, so that all contestants start from the same.
    """
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    missing = [index for index in range(count) if not video_path(folder, index).exists()]
    size = 1 if first_frame else BATCH
    for start in range(0, len(missing), size):
        if not goes_on():
            raise OutOfTime(f"{folder} with {count - len(missing) + start} of {count} videos")
        chosen = missing[start : start + size]
        shown = [clips.clip(index) for index in chosen]
        cameras = [clip.camera for clip in shown]
        image = shown[0].pictures.video(FRAMES, HEIGHT, WIDTH)[0].numpy() if first_frame else None
        made = pipe([clip.caption for clip in shown], cameras, image=image, seed=chosen, num_inference_steps=steps)
        for index, camera, video in zip(chosen, cameras, made.videos):
            write_video(video_path(folder, index), video.frames, camera.fps)


def measure(
    clips: ClipDataset, count: int, folder: Path, label: str, goes_on: Callable[[], bool] = lambda: True
) -> dict[str, np.ndarray]:
    """Errors (count,) of the generated videos by metric, NaN where a video could not be measured."""
    jobs = [Job(f"{index:04d}", video_path(folder, index), clips.clip(index).camera) for index in range(count)]

    def check(what: str, done: int, total: int, note: str = "") -> None:
        if done < total and not goes_on():
            raise OutOfTime(f"{folder} with {done} of {total} videos measured")

    settings = EvaluationSettings(pose=DESK, calibrator=DESK, protocol=PROTOCOL, label=label)
    results = evaluate(jobs, folder / "report", settings, progress=check)
    rows = [video.metrics(PROTOCOL) for video in results.videos]
    return {name: np.array([row.get(name, math.nan) for row in rows]) for name in METRICS}


def video_path(folder: Path, index: int) -> Path:
    """Where the video of a held-out camera is kept."""
    return folder / "videos" / f"{index:04d}.mp4"


def estimators() -> list[Any]:
    """Descriptions of the estimators and fingerprints of their weights."""
    used = (DESK.pose_estimator(), DESK.calibrator())
    return [[one.describe(), [file_fingerprint(path) for path in one.files("")]] for one in used]


def floors() -> dict[str, float]:
    """The estimators' own errors on true videos, by metric."""
    found = {**(DESK.pose_estimator().floor(PROTOCOL) or {}), **(DESK.calibrator().floor() or {})}
    return {name: found[name] for name in METRICS if name in found}


def constant_guess(cameras: list[Trajectory]) -> dict[str, float]:
    """Mean errors by metric of the best constant answer: median pitch, roll and lens of all cameras, and no motion."""
    wanted = [commanded_calibration(camera, "ucm", HEIGHT, WIDTH) for camera in cameras]
    pitch, roll = (np.median(np.concatenate([getattr(one, name) for one in wanted])) for name in ("pitch", "roll"))
    lens = {name: np.median(np.concatenate([one.lens[name] for one in wanted])) for name in wanted[0].lens}
    rows = []
    for camera, truth in zip(cameras, wanted):
        count = len(truth.frames)
        numbers = {name: np.full(count, value) for name, value in lens.items()}
        guess = Calibration("ucm", truth.frames, np.full(count, pitch), np.full(count, roll), numbers, {})
        still = PoseEstimate(torch.eye(4, dtype=torch.float64).expand(count, 4, 4), truth.frames, 1.0, True)
        poses = pose_metrics(camera, still, truth.frames / camera.fps, PROTOCOLS[PROTOCOL])
        rows.append(calibration_errors(guess, truth) | poses)
    found = {name: [row[name] for row in rows if name in row] for name in METRICS}
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def with_decoder(pipe: CameraPipeline, decoder: Path) -> CameraPipeline:
    """The pipeline with another autoencoder, which must understand the same latents: one with the same encoder."""
    from diffusers import AutoencoderKLWan

    other = AutoencoderKLWan.from_pretrained(decoder).eval()
    check_same_latents(pipe.pipe.vae, other, decoder)
    pipe.pipe.vae = other
    return pipe


def check_same_latents(first: Any, second: Any, name: Path) -> None:
    """ValueError unless encoders and latent statistics of two autoencoders agree, up to half precision."""
    held, others = (
        {key: value.float() for key, value in vae.state_dict().items() if key.startswith(("encoder.", "quant_conv."))}
        for vae in (first, second)
    )
    same = all(getattr(first.config, name) == getattr(second.config, name) for name in ("latents_mean", "latents_std"))
    same = same and held.keys() == others.keys()
    same = same and all(
        value.shape == others[key].shape and torch.allclose(value, others[key], rtol=2e-3, atol=1e-4)
        for key, value in held.items()
    )
    if not same:
        raise ValueError(f"{name} has another encoder than the autoencoder of the latents, so it cannot decode them")
