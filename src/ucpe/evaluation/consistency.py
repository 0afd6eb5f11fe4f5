"""3D consistency: do the frames of a video show one rigid scene, filmed by the commanded cameras?

Everything is computed on bearings, so any lens will do. A match between two frames must lie where some depth puts it:
on the arc from the turned ray (infinitely far) to where a point right in front of the camera would be seen.
"""

from __future__ import annotations

import numpy as np
import torch

from ucpe.evaluation.estimators.base import EstimationFailure
from ucpe.evaluation.estimators.known_rotation import build_tracks, meet_lines
from ucpe.evaluation.pose_metrics import largest_translation
from ucpe.evaluation.protocols import ROTATION_ONLY
from ucpe.lenses import Lens
from ucpe.synthesis.layouts import reduced
from ucpe.trajectories import Trajectory

MAX_FRAMES, MAX_HEIGHT, MAX_FEATURES = 17, 360, 800
"""Maximum number of frames that are compared, of rows of pixels in each, and of features in each."""

GAPS = (1, 2, 4)
"""Distances between the two frames of a pair, counted in these frames."""

RATIO = 0.8
"""Maximum ratio between the distances of the best and the second best match of a feature."""

TOLERANCE_PIXELS = 2.0
"""Maximum distance in pixels between a match and where the cameras allow it."""

TRIANGULATIONS = 4
"""Number of times that a point is solved for, each time weighted by the distances found before."""

MIN_DEPTH = 0.1
"""Minimum distance between the camera and everything it sees, in near-plane depths."""

MIN_MATCHES = 50
"""Minimum number of matches for a verdict."""


def scene_consistency(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    camera: Trajectory,  # N poses
) -> dict[str, float]:
    """How well frames agree with one rigid scene under the commanded cameras.

    `EpipolarShare`: percentage of matches between frames that lie where the cameras allow them, in front of both.
    `ParallaxShare`: percentage of matches that do, and that no rotation explains; 0 in a video that is frozen or flat.
    `ReprojErr`: median distance in pixels between features and their triangulated points.
    """
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(len(frames), MAX_FRAMES)).round().astype(int))
    pictures = [reduced(frames[index], MAX_HEIGHT) for index in chosen]
    height, width = pictures[0].shape[:2]
    lenses = [camera.lens_at(index) for index in chosen]
    features = [_bearings(picture, lens) for picture, lens in zip(pictures, lenses)]
    pixel = pixel_angle(lenses[0], height, width)
    c2w = camera.c2w[chosen].double().numpy()
    pairs, distances, parallax = [], [], []
    for gap in GAPS:
        for first in range(len(chosen) - gap):
            second = first + gap
            matches = mutual_matches(features[first][1], features[second][1])
            rays = features[first][0][matches[:, 0]], features[second][0][matches[:, 1]]
            away, turned = arc_distance(*rays, np.linalg.inv(c2w[second]) @ c2w[first])
            allowed = away < TOLERANCE_PIXELS * pixel
            pairs.append((first, second, matches))
            distances.append(allowed)
            parallax.append(turned > TOLERANCE_PIXELS * pixel)
    allowed, moved = np.concatenate(distances), np.concatenate(parallax)
    if len(allowed) < MIN_MATCHES:
        raise EstimationFailure(f"only {len(allowed)} matches between frames, too few to judge by")
    result = {"EpipolarShare": 100 * float(allowed.mean())}
    if largest_translation(camera.c2w) >= ROTATION_ONLY:
        result["ParallaxShare"] = 100 * float((moved & allowed).mean())
    errors = reprojection_errors(pairs, [rays for rays, _ in features], c2w)
    if len(errors):
        result["ReprojErr"] = float(np.median(errors)) / pixel * frames.shape[1] / height
    return result


def arc_distance(
    before: np.ndarray,  # (M, 3) unit
    after: np.ndarray,  # (M, 3) unit
    motion: np.ndarray,  # (4, 4), from the first camera's frame to the second's
) -> tuple[np.ndarray, np.ndarray]:
    """Radians (M,) from each match to the nearest place that a depth beyond MIN_DEPTH allows, and to infinity's."""
    far = before @ motion[:3, :3].T
    near = far * MIN_DEPTH + motion[:3, 3]
    near = _unit(near)
    normal = np.cross(far, near)
    size = np.linalg.norm(normal, axis=1)
    unit = normal / np.maximum(size, 1e-12)[:, None]
    beside = ((np.cross(unit, far) * after).sum(1) >= 0) & ((np.cross(near, unit) * after).sum(1) >= 0)
    to_far, to_near = _angle(far, after), _angle(near, after)
    to_circle = np.arcsin(np.clip(np.abs((unit * after).sum(1)), 0, 1))
    return np.where(beside & (size > 1e-9), to_circle, np.minimum(to_far, to_near)), to_far


def reprojection_errors(
    pairs: list[tuple[int, int, np.ndarray]], rays: list[np.ndarray], c2w: np.ndarray
) -> np.ndarray:
    """Radians (K,) between the rays of tracks of three or more frames and the near or infinitely far point they fit."""
    tracks = build_tracks(pairs, dict(enumerate(rays)))
    long = np.bincount(tracks.track, minlength=tracks.count)[tracks.track] >= 3
    frame, track = tracks.frame[long], tracks.track[long]
    ray, centre = (c2w[frame, :3, :3] @ tracks.ray[long][..., None])[..., 0], c2w[frame, :3, 3]
    far = np.zeros((tracks.count, 3))
    np.add.at(far, track, ray)
    across, weight, sight = np.eye(3) - ray[:, :, None] * ray[:, None, :], np.ones(len(ray)), ray
    for _ in range(TRIANGULATIONS):
        point, _ = meet_lines(across, centre, weight, track, tracks.count)
        sight = point[track] - centre
        weight = 1 / np.maximum(np.linalg.norm(sight, axis=1), 1e-3) ** 2  # angles count, not distances
    errors = np.stack([_angle(_unit(sight), ray), _angle(_unit(far[track]), ray)])
    squares = np.stack([np.bincount(track, weights=error**2, minlength=tracks.count) for error in errors])
    return np.take_along_axis(errors, squares.argmin(0)[track][None], axis=0)[0]


def mutual_matches(
    first: np.ndarray,  # (A, D) unit
    second: np.ndarray,  # (B, D) unit
) -> np.ndarray:
    """Pairs (M, 2) of features that are each other's nearest, and clearly nearer than the second nearest."""
    if min(len(first), len(second)) < 2:
        return np.zeros((0, 2), int)
    likeness = first @ second.T
    best = likeness.argmax(1)
    rows = np.arange(len(first))
    mutual = likeness.argmax(0)[best] == rows
    top = likeness[rows, best]
    likeness[rows, best] = -1
    distance, next_best = (np.sqrt(np.maximum(2 - 2 * value, 0)) for value in (top, likeness.max(1)))
    kept = mutual & (distance < RATIO * next_best)
    return np.stack([rows[kept], best[kept]], axis=1)


def pixel_angle(lens: Lens, height: int, width: int) -> float:
    """Angle in radians between two neighbouring pixels in the middle of an image."""
    middle = torch.tensor([[width / 2 - 0.5, height / 2], [width / 2 + 0.5, height / 2]], dtype=torch.float64)
    one, other = lens.unproject(middle, height, width).directions.double().numpy()
    return float(_angle(one[None], other[None])[0])


def _bearings(picture: np.ndarray, lens: Lens) -> tuple[np.ndarray, np.ndarray]:
    """Unit rays (M, 3) and unit descriptors (M, 128) of the features of a picture that the lens sees."""
    import cv2

    gray = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    points, descriptors = cv2.SIFT.create(nfeatures=MAX_FEATURES).detectAndCompute(gray, None)  # type: ignore[call-overload]
    if not points:
        return np.zeros((0, 3)), np.zeros((0, 128), np.float32)
    pixels = torch.tensor([point.pt for point in points], dtype=torch.float64) + 0.5
    rays = lens.unproject(pixels, *gray.shape)
    seen = rays.valid.numpy()
    roots = np.sqrt(descriptors / np.maximum(descriptors.sum(1, keepdims=True), 1e-9))
    return rays.directions.double().numpy()[seen], roots[seen]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _angle(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Radians (M,) between unit vectors (M, 3), exact for small angles too."""
    return 2 * np.arcsin(np.clip(np.linalg.norm(one - other, axis=1) / 2, 0, 1))
