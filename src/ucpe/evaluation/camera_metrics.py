"""Errors of orientation and lens: pitch, roll, vertical field of view, and distortion (supplement C)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ucpe.encodings import lat_up_map
from ucpe.evaluation.estimators.base import LENS_NUMBERS, Calibration, LensModel
from ucpe.lenses import UCM, BrownConrady, Lens
from ucpe.lenses.base import pixel_grid
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

METRIC_NAMES = {"pitch": "PitchErr", "roll": "RollErr", "yfov": "FoVErr", "xfov": "XFoVErr", "xi": "XiErr"}
METRIC_NAMES |= {"k1": "K1Err", "k2": "K2Err"}
"""Metric of each number in a calibration; FoV is the vertical field of view, as in the paper."""

FIELD_ROWS, FIELD_FRAMES = 12, 16
"""Rows of the grid, and about how many frames, on which latitudes and up directions are compared."""

MAX_FIT_ERROR = 2.0
"""Maximum root mean square error in degrees of a lens model that counts as expressing a lens."""

MAX_RADIAL_ANGLE = 85.0
"""Maximum angle in degrees from the optical axis; a lens that sees beyond it has no radial model."""


def calibration_errors(estimated: Calibration, wanted: Calibration) -> dict[str, float]:
    """Mean absolute error of each metric over the common frames, in degrees or the units of the lens numbers.

    A lens that should not change is compared by its medians over the frames. Frames with NaN on either side are
    skipped, and a metric without any frame is left out.
    """
    if estimated.model != wanted.model:
        raise ValueError(f"cannot compare a {estimated.model} calibration with a {wanted.model} one")
    frames, ours, theirs = np.intersect1d(estimated.frames, wanted.frames, return_indices=True)
    if len(frames) == 0:
        raise ValueError("the two calibrations have no frame in common")
    errors = {}
    for name in ("pitch", "roll"):
        difference = np.abs(wrapped(getattr(estimated, name)[ours] - getattr(wanted, name)[theirs]))
        if np.isfinite(difference).any():
            errors[METRIC_NAMES[name]] = float(np.nanmean(difference))
    for name in LENS_NUMBERS[estimated.model]:
        got, expected = estimated.lens[name][ours], wanted.lens[name][theirs]
        known = np.isfinite(got) & np.isfinite(expected)
        if known.any():
            constant = np.ptp(expected[known]) < 1e-9
            difference = (
                np.median(got[known]) - np.median(expected[known]) if constant else got[known] - expected[known]
            )
            errors[METRIC_NAMES[name]] = float(np.mean(np.abs(difference)))
    return errors


View = tuple[Tensor, Lens | None]
"""Rotation (3, 3) of a camera, and its lens if that is known."""


def views_of_camera(camera: Trajectory) -> dict[int, View]:
    """The view of every frame of a camera, by number."""
    return {frame: (camera.rotations[frame].double(), camera.lens_at(frame)) for frame in range(len(camera))}


def views_of_calibration(calibration: Calibration, height: int, width: int) -> dict[int, View]:
    """The view of every frame whose pitch and roll are known, by number; without yaw."""
    rows = np.flatnonzero(np.isfinite(calibration.pitch) & np.isfinite(calibration.roll)).tolist()
    angles = (torch.from_numpy(angle) for angle in (calibration.pitch, 0 * calibration.pitch, calibration.roll))
    rotations = rotation_from_angles(*angles)
    return {
        int(calibration.frames[row]): (rotations[row], lens_of_numbers(calibration, row, height, width)) for row in rows
    }


def orientation_errors(found: dict[int, View], wanted: dict[int, View], height: int, width: int) -> dict[str, float]:
    """Mean errors in degrees of gravity, and of the latitude and up direction of pixels, by which GeoCalib is judged.

    They are over some of the common frames, and over a coarse grid of pixels that both lenses see.
    """
    frames = sorted(found.keys() & wanted.keys())
    up = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    size = (FIELD_ROWS, max(round(FIELD_ROWS * width / height), 2))
    apart: dict[str, list[float]] = {"GravityErr": [], "LatitudeErr": [], "UpErr": []}
    for frame in frames[:: max(len(frames) // FIELD_FRAMES, 1)]:
        (turned, lens), (told, real) = found[frame], wanted[frame]
        apart["GravityErr"].append(float(_angles_between(up @ turned, up @ told)))
        if lens is None or real is None:
            continue
        poses = (pose_matrix(rotation, torch.zeros(3).double())[None] for rotation in (turned, told))
        got, expected = (lat_up_map(one, pose, *size)[0] for one, pose in zip((lens, real), poses))
        seen = lens.rays(*size).valid & real.rays(*size).valid
        drawn = seen & (got[..., :2].norm(dim=-1) > 0.5) & (expected[..., :2].norm(dim=-1) > 0.5)
        if drawn.any():
            apart["LatitudeErr"].append(float((got - expected)[..., 2][seen].abs().mean().rad2deg()))
            apart["UpErr"].append(float(_angles_between(got[drawn][:, :2], expected[drawn][:, :2]).mean()))
    return {name: float(np.mean(values)) for name, values in apart.items() if values}


def lens_of_numbers(calibration: Calibration, row: int, height: int, width: int) -> Lens | None:
    """The lens that a calibration found for one of its frames; None where it is unknown or impossible."""
    numbers = {name: float(values[row]) for name, values in calibration.lens.items()}
    if not all(np.isfinite(value) for value in numbers.values()):
        return None
    try:
        if calibration.model == "ucm":
            return UCM(xfov=numbers["xfov"], xi=numbers["xi"])
        tangent = np.tan(np.radians(numbers["yfov"] / 2)) * width / height
        xfov = float(np.degrees(2 * np.arctan(tangent)))
        return BrownConrady(pinhole_xfov=xfov, k1=numbers["k1"], k2=numbers["k2"])
    except ValueError:
        return None


def _angles_between(first: Tensor, second: Tensor) -> Tensor:
    cosine = (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return cosine.clamp(-1, 1).acos().rad2deg()


def commanded_calibration(
    camera: Trajectory, model: LensModel, height: int, width: int, *, gravity: bool = True
) -> Calibration:
    """What a perfect calibrator of a lens model would say about a camera, in images of height x width.

    Without `gravity` (paths relative to a first frame of unknown tilt) pitch and roll are NaN.
    """
    angles = camera.angles
    unknown = np.full(len(camera), np.nan)
    pitch, roll = (
        (angle.double().cpu().numpy() for angle in (angles.pitch, angles.roll)) if gravity else (unknown, unknown)
    )
    numbers, details = lens_numbers(camera.lens, model, height, width)
    lens = {name: np.broadcast_to(value, len(camera)).copy() for name, value in numbers.items()}
    return Calibration(model, np.arange(len(camera)), pitch, roll, lens, details)


def lens_numbers(lens: Lens, model: LensModel, height: int, width: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """LENS_NUMBERS (*batch) of a lens in a lens model, and the fit's root mean square error in degrees as `fit_rms`.

    A lens that the model cannot express (a fisheye as radial) has NaN numbers.
    """
    if lens.batch_shape:
        entries = [lens_numbers(lens[index], model, height, width) for index in range(lens.batch_shape[0])]
        stacked = {name: np.stack([numbers[name] for numbers, _ in entries]) for name in LENS_NUMBERS[model]}
        return stacked, {"fit_rms": max(details["fit_rms"] for _, details in entries)}
    if model == "radial":
        fit = fit_radial(lens, height, width)
        yfov = np.degrees(2 * np.arctan(height / 2 / fit.focal))
        numbers, rms = {"yfov": yfov, "k1": fit.k1, "k2": fit.k2}, fit.rms
    else:
        yfov, xfov = (float(angle) for angle in (lens.yfov(height, width), lens.xfov(height, width)))
        if isinstance(lens, UCM):
            xi, rms = float(lens.parameters["xi"]), 0.0
        else:
            nearest = lens.fit(UCM, height, width)
            xi, rms = float(nearest.lens.parameters["xi"]), float(nearest.rms)
        numbers = {"yfov": yfov, "xfov": xfov, "xi": xi}
    expressed = rms <= MAX_FIT_ERROR
    return {name: np.array(value if expressed else np.nan) for name, value in numbers.items()}, {"fit_rms": rms}


class RadialFit(NamedTuple):
    """The radial model nearest to a lens: pixel radius = focal (r + k1 r^3 + k2 r^5) with r = tan(angle)."""

    focal: float  # pixels
    k1: float
    k2: float
    rms: float  # degrees


def fit_radial(lens: Lens, height: int, width: int) -> RadialFit:
    """The radial model of calibration tools (square pixels, centred) nearest to a lens, by linear least squares.

    `Lens.fit` searches all eight Brown-Conrady parameters by angles; this model has two, and a closed form.
    """
    rows, columns = 48, max(round(48 * width / height), 8)
    pixels = pixel_grid(rows, columns, torch.float64) * torch.tensor([width / columns, height / rows])
    rays = lens.unproject(pixels, height, width)
    angles = torch.atan2(rays.directions[..., :2].norm(dim=-1), rays.directions[..., 2])
    used = rays.valid & (angles < np.radians(MAX_RADIAL_ANGLE))
    centre = torch.tensor([width / 2, height / 2], dtype=torch.float64)
    distance = (pixels - centre).norm(dim=-1)[used].numpy()
    angle = angles[used].numpy()
    radius = np.tan(angle)
    powers = np.stack([radius, radius**3, radius**5], axis=1)
    solution = np.linalg.lstsq(powers, distance, rcond=None)[0]
    focal, cubic, quintic = solution.tolist()
    order = np.argsort(distance)
    error = np.degrees(np.interp(powers @ solution, distance[order], angle[order]) - angle)
    missed = 1 - used.sum().item() / max(rays.valid.sum().item(), 1)
    rms = float(np.sqrt(np.mean(error**2))) if missed == 0 and focal > 0 else np.inf
    return RadialFit(focal, cubic / focal, quintic / focal, rms)


def wrapped(
    degrees: np.ndarray,  # (...)
) -> np.ndarray:
    """Angles in [-180, 180)."""
    return (degrees + 180) % 360 - 180
