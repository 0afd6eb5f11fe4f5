"""The camera of any video as a path to follow again: `ucpe track`.

Flat videos go through a pose estimator of `ucpe evaluate`, with a known lens or a focal length found by COLMAP; 360
degree videos go through the panoramic mapper of curation. Lengths are in near-plane depths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucpe.evaluation.estimators import Calibrator, PoseEstimator
from ucpe.evaluation.estimators.base import Clip, EstimationFailure, PoseEstimate, up_of_angles
from ucpe.files import temporary_folder
from ucpe.lenses import Equirectangular, Lens, Pinhole
from ucpe.synthesis.curation.scale import NEAR_PERCENTILE
from ucpe.synthesis.footage import Footage
from ucpe.synthesis.layouts import Layout, Stereo, left_eye, reduced
from ucpe.synthesis.panoramas import Panorama, Projection, View
from ucpe.synthesis.structure import (
    extract_features,
    largest_map,
    load_pycolmap,
    mapping_options,
    match_features,
    write_picture,
)
from ucpe.trajectories import Trajectory
from ucpe.video import VideoError, probe_video, read_video

FEWEST_PLACED = 0.5
"""Minimum share of the frames that must be placed for a path to be believed."""

SURE_AGREEMENT = 0.9
"""Minimum share of agreeing matches of a sure track; most correct tracks of rendered worlds reach it."""

CALIBRATION_FRAMES = 24
"""Number of frames from which the focal length is found."""

SHALLOWEST = 1e-3
"""Minimum sine of the angle below the horizon at which a ray is taken to meet the ground."""

UP_LOOKS = 6
"""Number of frames of a panorama in which vertical lines are looked for."""


@dataclass
class TrackedCamera:
    """The camera of a video, and how sure it is."""

    camera: Trajectory
    start: float
    """Second of the video at which the path begins."""
    placed: int
    frames: int
    """Number of frames that were looked at; `placed` of them were placed."""
    lens_known: bool = True
    agreement: float | None = None
    """Share of matches between frames that agree with the poses, or None if the estimator does not say."""
    notes: list[str] = field(default_factory=list)

    @property
    def sure(self) -> bool:
        """Whether the lens is known, nearly all frames were placed and nearly all matches agree."""
        agree = self.agreement is None or self.agreement >= SURE_AGREEMENT
        return self.lens_known and agree and self.placed >= 0.95 * self.frames

    def lines(self) -> list[str]:
        """What a person should know, one line each."""
        camera = self.camera
        kind = "sure" if self.sure else "unsure: look at it before you use it"
        agreement = "" if self.agreement is None else f", {self.agreement:.0%} of the matches agree"
        return [
            f"{kind}: {self.placed} of {self.frames} frames placed{agreement}",
            f"{len(camera)} poses at {camera.fps:g} fps from second {self.start:.2f}",
            f"path of {camera.path_length():.3g} near-plane depths, turning {camera.maximum_rotation():.1f} degrees",
            *self.notes,
        ]


def track_video(
    path: str | Path,
    estimator: PoseEstimator,
    lens: Lens | None = None,
    calibrator: Calibrator | None = None,
    *,
    start: float = 0.0,
    frames: int | None = None,
    every: int = 1,
    height: int = 480,
    projection: Projection | None = None,
    stereo: Stereo | None = None,
) -> TrackedCamera:
    """The camera of a video, at the video's frame rate; if it cannot be found, ValueError says why.

    Looks at every `every`-th of `frames` frames from `start` seconds on, at most `height` pixels high. With an
    equirectangular lens the video is a panorama, whose `projection` and `stereo` are recognised from its content if not
    given. Without a lens, the focal length of a pinhole is estimated.
    """
    known, panoramic = lens is not None, isinstance(lens, Equirectangular)
    if not panoramic and (projection or stereo):
        raise ValueError(f"{path}: --projection and --stereo are for 360 degree videos: add --lens equirectangular")
    layout = Footage(path, projection, stereo).layout if panoramic else None
    clip, fps = read_part(path, start, frames, every, height, layout)
    if len(clip.frames) < 2:
        raise ValueError(f"{path}: motion needs at least two frames, got {len(clip.frames)}")
    try:
        if layout and lens is not None:
            estimate, up, notes = _track_panorama(clip)
            notes += [layout.note] * bool(layout.note)
        else:
            notes = []
            if lens is None:
                lens = estimate_focal_length(clip)
                xfov = float(lens.xfov(clip.height, clip.width))
                notes.append(
                    f"lens estimated: a pinhole of {xfov:.1f} degrees; if that is wrong, turns are wrong by as much "
                    "(--lens or --xfov give a known one)"
                )
            estimate = estimator.estimate(clip, lens)
            up = None if calibrator is None else _calibrated_up(clip, estimate, calibrator)
    except EstimationFailure as failure:
        raise ValueError(f"{path}: its camera cannot be found: {failure}") from None
    tracked = _tracked(path, clip, fps, estimate, lens, up, start, notes)
    tracked.lens_known = known
    return tracked


def read_part(
    path: str | Path, start: float, frames: int | None, every: int, height: int, layout: Layout | None = None
) -> tuple[Clip, float]:
    """Some frames of a video at a small size with their times, and its frame rate; with a `layout`, whole panoramas."""
    if start < 0 or every < 1 or height < 32 or (frames is not None and frames < 1):
        raise ValueError(
            f"start must be 0 or more, frames and every at least 1, height at least 32, got {start:g}, {frames}, "
            f"{every} and {height}"
        )
    info = probe_video(path)
    pictures, times = [], []
    for number, frame in enumerate(read_video(path, start=round(start * info.fps), frames=frames)):
        if number % every == 0:
            pictures.append(whole_panorama(frame.rgb, layout, height) if layout else reduced(frame.rgb, height))
            times.append(frame.time)
    if not pictures:
        raise VideoError(f"{path}: no frames from second {start:g} on")
    return Clip(Path(path).stem, np.stack(pictures), np.asarray(times) - times[0]), info.fps


def whole_panorama(
    picture: np.ndarray,  # (H, W, 3) uint8
    layout: Layout,
    height: int,
) -> np.ndarray:
    """What the left eye sees of a panorama in any layout, equirectangular (h, 2h, 3) and at most `height` high."""
    import cv2

    eye = left_eye(picture, layout.stereo)
    height = min(height, len(eye))
    if layout.projection == "eac":
        return _equirectangular_view(height).picture(Panorama(eye, "eac"), np.eye(3))
    size = (2 * height, height)
    return eye if eye.shape[1::-1] == size else cv2.resize(eye, size, interpolation=cv2.INTER_AREA)


@cache
def _equirectangular_view(height: int) -> View:
    return View(Equirectangular(), height, 2 * height)


def estimate_focal_length(clip: Clip) -> Pinhole:
    """A pinhole with the focal length that COLMAP finds by mapping some frames; EstimationFailure without a map."""
    load_pycolmap("finding the lens (or give --lens or --xfov)")
    chosen = np.unique(np.linspace(0, len(clip.frames) - 1, CALIBRATION_FRAMES).round().astype(int))
    with temporary_folder() as folder:
        images, database = folder / "images", folder / "matches.db"
        images.mkdir()
        for index in chosen:
            write_picture(images, index, clip.frames[index])
        extract_features(database, images, "SIMPLE_PINHOLE")
        match_features(database)
        largest = largest_map(database, images, folder / "map", mapping_options())
        if largest is None or largest.num_reg_images() < 0.5 * len(chosen):
            raise EstimationFailure(
                "its lens is not known and there is too little parallax to find it: give --lens or --xfov"
            )
        camera = next(iter(largest.cameras.values()))
        return Pinhole(xfov=2 * math.degrees(math.atan(clip.width / 2 / camera.focal_length)))


def view_depth(lens: Lens, height: int, width: int, up: Tensor | None = None) -> float:
    """Near-plane depth of a view over level ground, as a multiple of the whole panorama's near-plane depth.

    The unit of all commands is the panorama's, whose nearest quarter is the ground at the photographer's feet; a view
    ahead shows only farther things. `up` (3,) is up in the camera's frame; without it, the camera is level.
    """
    rays = lens.rays(max(height // 8, 2), max(width // 8, 2))
    down = rays.directions.new_tensor([0.0, 1.0, 0.0]) if up is None else -up.to(rays.directions) / up.norm()
    drop = (rays.directions @ down)[rays.valid]
    if not (drop > SHALLOWEST).any():
        return 1.0
    feet = 1 / math.sin(math.radians(90 - 90 * NEAR_PERCENTILE / 100))
    return float(torch.quantile(1 / drop[drop > SHALLOWEST], NEAR_PERCENTILE / 100)) / feet


def _track_panorama(clip: Clip) -> tuple[PoseEstimate, Tensor | None, list[str]]:
    from ucpe.synthesis.curation.gravity import find_up
    from ucpe.synthesis.curation.poses import SphericalMapper
    from ucpe.synthesis.curation.scale import near_depth, rescale

    tracks = SphericalMapper().track(clip.frames)
    if not tracks:
        raise EstimationFailure("the panoramic mapper found no two frames that belong together")
    best = max(tracks, key=lambda track: len(track.c2w))
    numbers, notes = np.arange(best.start, best.stop), []
    if len(tracks) > 1:
        notes.append(f"the track breaks {len(tracks) - 1} times; this is its longest part")
    c2w = np.linalg.inv(best.c2w[0]) @ best.c2w
    if best.moves:
        try:
            c2w = rescale(c2w, near_depth(clip.frames[best.start : best.stop], best.c2w))
        except ValueError as error:
            notes.append(f"lengths are in a unit of their own, not near-plane depths: {error}")
    else:
        notes.append("the camera only turns")
    notes.append(f"features lie {best.error:.2f} degrees from where the map puts them")
    looks = clip.frames[np.unique(np.linspace(best.start, best.stop - 1, UP_LOOKS).round().astype(int))]
    up = find_up(looks)
    notes.append("up is taken from vertical lines" if up else "too few vertical lines: up is the panorama's own")
    direction = torch.from_numpy(up.direction) if up else torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    return PoseEstimate(torch.from_numpy(c2w), numbers, 1.0), direction, notes


def _calibrated_up(clip: Clip, estimate: PoseEstimate, calibrator: Calibrator) -> Tensor:
    """Up (3,) in the frame of the first pose: the mean over frames of a calibrator's up directions."""
    found = calibrator.estimate(clip)
    poses = dict(zip(estimate.frames.tolist(), estimate.c2w))
    first = estimate.c2w[0, :3, :3]
    ups = []
    for frame, pitch, roll in zip(found.frames.tolist(), found.pitch, found.roll):
        if frame in poses and np.isfinite(pitch + roll):
            seen = torch.tensor(up_of_angles(pitch, roll), dtype=first.dtype)
            ups.append(first.T @ poses[frame][:3, :3] @ seen)
    if not ups:
        raise EstimationFailure("the calibrator says nothing about the frames that have poses")
    return torch.stack(ups).mean(0)


def _tracked(
    path: str | Path,
    clip: Clip,
    fps: float,
    estimate: PoseEstimate,
    lens: Lens,
    up: Tensor | None,
    start: float,
    notes: list[str],
) -> TrackedCamera:
    placed, total = len(estimate.frames), len(clip.frames)
    if placed < max(FEWEST_PLACED * total, 2):
        raise ValueError(
            f"{path}: its camera cannot be found: only {placed} of {total} frames could be placed; try a part of it "
            "with --start and --frames, or another --lens"
        )
    seconds = torch.from_numpy(clip.times[estimate.frames])
    camera = Trajectory.from_timestamps(estimate.c2w.double(), seconds, lens, fps).relative_to_first()
    if estimate.near_depth is not None and not isinstance(lens, Equirectangular):
        camera = camera.scaled(view_depth(lens, clip.height, clip.width, up))
        notes.append(
            "lengths are in near-plane depths of the whole surroundings, assuming level ground: being a third off is "
            "common, and near a wall they are several times too long (correct them with ucpe generate --scale FACTOR)"
        )
    if up is not None:
        camera = camera.gravity_aligned(up, in_first_camera=True)
    else:
        notes.append("up is not known: ucpe generate takes the first frame to be level (give --up to change that)")
    if estimate.near_depth is None:
        notes.append("lengths are in a unit of their own, not near-plane depths (ucpe generate --scale auto)")
    if estimate.details.get("method") == "rotation only":
        notes.append("the camera only turns")
    agreement = estimate.details.get("agreement")
    return TrackedCamera(camera, start + float(seconds[0]), placed, total, agreement=agreement, notes=notes)
