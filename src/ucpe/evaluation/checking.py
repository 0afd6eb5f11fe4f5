"""Did one video follow its camera? Pitch, roll, field of view, turn and travel against the command: `ucpe check`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from ucpe.evaluation.camera_metrics import METRIC_NAMES, commanded_calibration, wrapped
from ucpe.evaluation.consistency import scene_consistency
from ucpe.evaluation.estimators.base import (
    Calibration,
    Calibrator,
    Clip,
    EstimationFailure,
    PoseEstimate,
    PoseEstimator,
)
from ucpe.evaluation.inputs import read_clip
from ucpe.evaluation.pose_metrics import (
    displacement,
    frame_errors,
    largest_translation,
    least_squares_scale,
    relative_to_first,
    scaled,
)
from ucpe.evaluation.protocols import ROTATION_ONLY
from ucpe.evaluation.records import camera_of_clip, estimated, frame_times
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_angle, rotation_log

Verdict = Literal["obeyed", "not obeyed", "unsure"]

TOLERANCES = {"pitch": 5.0, "roll": 5.0, "field of view": 8.0, "turn": 3.0, "travel": 0.12}
"""Maximum mean error of a video that follows its camera, in degrees (travel: in near-plane depths)."""

TOLERATED_SHARE = {"turn": 0.15, "travel": 0.2}
"""Share of the largest commanded turn or travel that is tolerated, if that is more than TOLERANCES."""

SURE_AGREEMENT, SURE_PLACED = 0.8, 0.9
"""Share of agreeing matches, and of placed frames, below which a disagreement may be the estimator's own."""

LENS_AGREEMENT, SURE_LENS_AGREEMENT = 0.9, 0.97
"""Minimum shares of agreeing matches for a field of view to follow from motion at all, and for it to be believed where
it is not the commanded one."""

EXPLAINED, WITH_PARALLAX = 95.0, 5.0
"""Minimum percentages of matches that fit the commanded cameras, and of those that also need them to travel, for two
motions to count as possible where another one was measured: a small or flat picture does not tell them apart."""

STILL_TURN = 1.0
"""A commanded path that turns by less than this many degrees counts as not turning."""

NO_EFFECT = 1.0
"""Maximum mean difference, in levels of 255, between videos that count as the same; compression makes as much."""


@dataclass(frozen=True)
class Quantity:
    """One quantity of a camera over time, as commanded and as measured."""

    name: str
    unit: str
    seconds: np.ndarray  # (M,)
    commanded: np.ndarray  # (M,)
    measured: np.ndarray  # (M,)
    error: float
    """Mean error over the frames (for the field of view, the median), in `unit`."""
    tolerance: float
    estimator: str
    floor: float | None = None
    """The estimator's own mean error, if it is known."""
    sure: bool = True
    """Whether the estimator has reason to believe itself."""
    by_motion: bool = False
    """Whether it follows from the measured path."""

    @property
    def verdict(self) -> Verdict:
        """Whether the command was obeyed; unsure where the estimator's own error may decide that."""
        floor = self.floor or 0.0
        if self.error + floor <= self.tolerance:
            return "obeyed"
        return "not obeyed" if self.sure and self.error - floor > self.tolerance else "unsure"

    @property
    def followed(self) -> float | None:
        """How much of the commanded change was made: 1 all, 0 none, -1 its mirror image; None if none was commanded."""
        told, got = (values - values[0] for values in (self.commanded, self.measured))
        return float(got @ told / (told @ told)) if np.abs(told).max() > self.tolerance else None

    def hint(self) -> str:
        """What a person may want to look at, where it is not obeyed."""
        if self.verdict != "not obeyed" or self.followed is None:
            return ""
        if self.followed < -0.4:
            return "it goes the other way: is the path camera-to-world, with x right, y down, z forward?"
        if abs(self.followed) < 0.25:
            return "the command is ignored: is the adapter attached and trained?"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name != "name"
        }
        return plain | {"verdict": self.verdict, "followed": self.followed}


@dataclass(frozen=True)
class Check:
    """What was found about one video."""

    name: str
    quantities: list[Quantity]
    missing: dict[str, str]
    """Quantities that could not be measured, and why."""
    camera: Trajectory
    """The commanded camera of every frame."""
    frames: np.ndarray  # (K, H, W, 3) uint8: some of the video, for the picture
    shown: np.ndarray  # (K,) their numbers
    notes: list[str] = field(default_factory=list)
    effect: float | None = None
    """Mean absolute difference, in levels of 255, from the video that the same seed gives without the camera."""

    @property
    def no_effect(self) -> bool:
        """Whether the camera is known to change nothing."""
        return self.effect is not None and self.effect <= NO_EFFECT

    @property
    def verdict(self) -> Verdict:
        """Not obeyed if a quantity is not, or the camera has no effect; obeyed if turn, travel and all others are."""
        verdicts = {quantity.name: quantity.verdict for quantity in self.quantities}
        if "not obeyed" in verdicts.values() or self.no_effect:
            return "not obeyed"
        decided = {"turn", "travel"} <= verdicts.keys() and set(verdicts.values()) == {"obeyed"}
        return "obeyed" if decided else "unsure"

    def to_dict(self) -> dict[str, Any]:
        """Everything but pictures, as plain data."""
        return {
            "video": self.name,
            "verdict": self.verdict,
            "quantities": {quantity.name: quantity.to_dict() for quantity in self.quantities},
            "missing": self.missing,
            "notes": self.notes,
            "difference_without_camera": self.effect,
        }


def check_video(
    video: str | Path,
    camera: Trajectory,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None = None,
    *,
    gravity: bool | None = None,
    without: str | Path | None = None,
    tolerance: float = 1.0,
) -> Check:
    """Compare a video with its commanded camera; `without` is the video that the same seed gives without the camera.

    `gravity` says whether the camera's world has a known vertical (by default the camera says so). `tolerance` is a
    factor by which all tolerances are multiplied.
    """
    if not tolerance > 0:
        raise ValueError(f"the factor on tolerances must be above 0, got {tolerance:g}")
    clip = read_clip(video)
    effect = None if without is None else effect_of(clip.frames, read_clip(without).frames)
    told = camera_of_clip(camera, clip)
    seconds = frame_times(camera, clip)
    commanded = seconds <= camera.duration + 1e-6  # what is seen after the end of the path was not commanded
    quantities: list[Quantity] = []
    missing: dict[str, str] = {}
    notes: list[str] = []
    known = camera.up_known if gravity is None else gravity
    try:
        if calibrator is None:
            raise EstimationFailure("no calibrator (--calibrator geocalib, or stored)")
        calibration = estimated(lambda: calibrator.estimate(clip))
        quantities += compare_calibration(calibration, told, clip, commanded, seconds, calibrator, known, missing)
    except EstimationFailure as failure:
        missing |= dict.fromkeys(("pitch", "roll", "field of view"), str(failure))
    try:
        if pose is None:
            raise EstimationFailure("no pose estimator (--pose)")
        estimate = estimated(lambda: pose.estimate(clip, told.lens))
        quantities += compare_poses(estimate, told, commanded, seconds, pose, notes)
        if "field of view" in missing and "measured_xfov" in estimate.details:
            found = compare_field_of_view(estimate, seconds, pose)
            if found is None:
                missing["field of view"] = (
                    "too few matches agree with the motion to tell the lens, or it turns too little"
                )
            else:
                quantities.append(found)
                del missing["field of view"]
    except EstimationFailure as failure:
        missing |= dict.fromkeys(("turn", "travel"), str(failure))
    quantities = [replace(quantity, tolerance=tolerance * quantity.tolerance) for quantity in quantities]
    missed = any(found.verdict == "not obeyed" for found in quantities if found.name in ("turn", "travel"))
    if missed and fits(clip.frames, told):
        quantities = [replace(found, sure=found.sure and not found.by_motion) for found in quantities]
        notes.append("the commanded path fits the matches too: larger or more varied pictures would tell which it was")
    shown = np.unique(np.linspace(0, len(clip.frames) - 1, 5).round().astype(int))
    return Check(Path(video).name, quantities, missing, told, clip.frames[shown], shown, notes, effect)


def effect_of(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    without: np.ndarray,  # (M, H, W, 3) uint8
) -> float:
    """Mean absolute difference of two videos in levels of 255, over the frames they have in common."""
    if frames.shape[1:] != without.shape[1:]:
        raise ValueError(
            f"the video without the camera is {without.shape[1]} x {without.shape[2]}, this one {frames.shape[1]} x "
            f"{frames.shape[2]}: they must come from the same model and seed"
        )
    common = min(len(frames), len(without))
    apart = [np.abs(a.astype(np.int16) - b).mean() for a, b in zip(frames[:common], without[:common])]
    return float(np.mean(apart))


def fits(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    camera: Trajectory,  # N poses
) -> bool:
    """Whether the matches between frames fit the commanded cameras, so that they are no evidence of other ones."""
    try:
        shares = scene_consistency(frames, camera)
    except EstimationFailure:
        return False
    return shares["EpipolarShare"] >= EXPLAINED and shares.get("ParallaxShare", WITH_PARALLAX) >= WITH_PARALLAX


def compare_poses(
    estimate: PoseEstimate,
    camera: Trajectory,
    commanded: np.ndarray,  # (N,) bool
    seconds: np.ndarray,  # (N,)
    estimator: PoseEstimator,
    notes: list[str],
) -> list[Quantity]:
    """Turn and travel, both measured along the command: motion the other way is negative."""
    rows = np.flatnonzero(commanded[estimate.frames])
    if len(rows) < 2:
        raise EstimationFailure("fewer than two of the placed frames are within the path")
    frames = estimate.frames[rows]
    told = relative_to_first(camera.c2w[frames].double())
    got = relative_to_first(estimate.c2w[rows].double())
    still = largest_translation(told) < ROTATION_ONLY
    if still or estimate.metric:
        got = scaled(got, 1 / (estimate.near_depth or 1.0))
    else:
        size = displacement(got)
        got = scaled(got, least_squares_scale(told, got) or (displacement(told) / size if size > 0 else 0.0))
        notes.append("travel: only direction and shape are compared; one camera alone cannot tell how far it went")
    errors = frame_errors(told, got)
    placed = len(estimate.frames) / (estimate.looked_at or len(seconds))
    agreement = estimate.details.get("agreement", 1.0)
    sure = placed >= SURE_PLACED and agreement >= SURE_AGREEMENT
    if "agreement" in estimate.details:
        notes.append(f"{estimator.name} placed {placed:.0%} of the frames, and {agreement:.1%} of the matches agree")
    floor = estimator.floor("robust") or {}
    series = (
        ("turn", "°", _turned, errors.rotation, floor.get("RotErr")),
        ("travel", " depths", _travelled, errors.translation, floor.get("TransErr")),
    )
    found = []
    for name, unit, curve, error, own in series:
        wanted = curve(told, told)
        tolerance = max(TOLERANCES[name], TOLERATED_SHARE[name] * float(np.abs(wanted).max()))
        values = (seconds[frames], wanted, curve(told, got), float(error.mean()))
        found.append(Quantity(name, unit, *values, tolerance, estimator.name, own, sure, by_motion=True))
    return found


def compare_calibration(
    calibration: Calibration,
    camera: Trajectory,
    clip: Clip,
    commanded: np.ndarray,  # (N,) bool
    seconds: np.ndarray,  # (N,)
    calibrator: Calibrator,
    gravity: bool,
    missing: dict[str, str],
) -> list[Quantity]:
    """Pitch, roll and vertical field of view of every frame; what the camera does not say is added to `missing`."""
    wanted = commanded_calibration(camera, calibrator.model, clip.height, clip.width, gravity=gravity)
    rows = calibration.rows(commanded[calibration.frames])
    floor = calibrator.floor() or {}
    series = {
        "pitch": (rows.pitch, wanted.pitch[rows.frames], "pitch"),
        "roll": (rows.roll, wanted.roll[rows.frames], "roll"),
        "field of view": (rows.lens["yfov"], wanted.lens["yfov"][rows.frames], "yfov"),
    }
    found = []
    for name, (got, told, number) in series.items():
        known = np.isfinite(got) & np.isfinite(told)
        if not known.any():
            missing[name] = (
                f"the lens has no equivalent in the {calibrator.model} model of {calibrator.name}"
                if number == "yfov"
                else "the camera does not say which way is up (--up, --level)"
            )
            continue
        apart = wrapped(got - told)[known]
        error = abs(np.median(apart)) if number == "yfov" else np.abs(apart).mean()
        values = (seconds[rows.frames][known], told[known], told[known] + apart, float(error))
        own = floor.get(METRIC_NAMES[number])
        found.append(Quantity(name, "°", *values, TOLERANCES[name], calibrator.name, own))
    return found


def compare_field_of_view(estimate: PoseEstimate, seconds: np.ndarray, estimator: PoseEstimator) -> Quantity | None:
    """Horizontal field of view, from the lens that explains the motion best; None if that is not certain.

    It is the field of view of the rectified video, which spans at most 100 degrees.
    """
    found, xfov = estimate.details["measured_xfov"], estimate.details["xfov"]
    if found is None or estimate.details.get("agreement", 1.0) < LENS_AGREEMENT:
        return None
    told, got = np.full(len(estimate.frames), xfov), np.full(len(estimate.frames), found)
    times = seconds[estimate.frames]
    values = (times, told, got, abs(found - xfov))
    sure = estimate.details.get("agreement", 1.0) >= SURE_LENS_AGREEMENT
    return Quantity(
        "field of view", "°", *values, TOLERANCES["field of view"], estimator.name, sure=sure, by_motion=True
    )


def _turned(told: Tensor, got: Tensor) -> np.ndarray:
    """Degrees (N,) that a path has turned since its first pose, along the commanded turns if there are any."""
    wanted, steps = (rotation_log(path[:-1, :3, :3].mT @ path[1:, :3, :3]) for path in (told, got))
    if float(rotation_angle(told[:, :3, :3]).max()) < STILL_TURN:
        return rotation_angle(got[:, :3, :3]).numpy()
    return np.degrees(_progress(wanted, steps))


def _travelled(told: Tensor, got: Tensor) -> np.ndarray:
    """Distance (N,) that a path has travelled since its first pose, along the commanded steps if there are any."""
    wanted, steps = (path[1:, :3, 3] - path[:-1, :3, 3] for path in (told, got))
    if largest_translation(told) < ROTATION_ONLY:
        return got[:, :3, 3].norm(dim=1).numpy()
    return _progress(wanted, steps)


def _progress(
    wanted: Tensor,  # (N - 1, 3)
    steps: Tensor,  # (N - 1, 3)
) -> np.ndarray:
    """Sum (N,) of the steps so far, each projected onto the wanted step."""
    along = (steps * wanted).sum(1) / wanted.norm(dim=1).clamp(min=1e-9)
    return np.concatenate([[0.0], along.cumsum(0).numpy()])
