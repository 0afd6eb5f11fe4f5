"""The unit of length of a clip: its near-plane depth, from dense flow and the epipolar geometry of bearings.

Each frame is compared with one far enough away for parallax. Depth is distance from the camera. A frame's near-plane
depth is the 25th percentile over its pixels, and a clip's is the median over its frames (supplement A.2).

Pixels that cannot be measured are filled from their surroundings. Leaving them out would shift the percentile: nothing
moves around the epipoles, and when a camera moves straight up inside a room, they show what is nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ucpe.synthesis.curation.flow import (
    DISFlow,
    SphereFlow,
    normalise,
    sample_panorama,
    sphere_directions,
    turn_panorama,
)
from ucpe.synthesis.curation.poses import check_frames

NEAR_PERCENTILE = 25
"""Percentile of a frame's depths that is its near-plane depth."""

ROUNDS = 6
"""Maximum number of partners that a frame is compared with, each at a better distance than the one before."""


@dataclass(frozen=True)
class DepthOptions:
    """What counts as a reliable depth; distances are in pixels of a panorama `width` wide."""

    width: int = 640
    """Wider frames are reduced to this."""
    samples: int = 16
    """Number of frames of a clip that are measured, evenly spaced."""
    baseline: float = 0.15
    """Distance to aim at between compared frames, in near-plane depths."""
    min_parallax: float = 0.75
    """Minimum parallax of a reliable pixel: how many pixels it moves because the camera moves."""
    epipole: float = 8.0
    """Degrees around the direction of motion and its opposite in which nothing is measured, as nothing moves there."""
    tolerance: float = 0.5
    """Maximum difference in pixels between flow there and back, and between flow and epipolar line."""
    min_share: float = 0.05
    """Minimum share of reliable pixels for a frame to count."""


def near_depth(
    frames: np.ndarray,  # (n, H, W, 3) uint8 equirectangular
    c2w: np.ndarray,  # (n, 4, 4)
    flow: SphereFlow | None = None,
    options: DepthOptions | None = None,
) -> float:
    """Near-plane depth of a clip, in the units of its poses; ValueError if the camera moves too little to tell."""
    frames, options, flow = check_frames(frames), options or DepthOptions(), flow or DISFlow()
    c2w = np.asarray(c2w, np.float64)
    if c2w.shape != (len(frames), 4, 4) or not np.isfinite(c2w).all():
        raise ValueError(f"expected a finite pose (4, 4) for each of {len(frames)} frames, got shape {c2w.shape}")
    frames = _reduced(frames, options.width)
    found: list[float] = []
    for place in np.unique(np.linspace(0, len(frames) - 1, options.samples).round().astype(int)):
        near = _near_depth_of(int(place), frames, c2w, flow, options, float(np.median(found)) if found else None)
        if near is not None:
            found.append(near)
    if not found:
        raise ValueError(
            "no frame shows enough parallax to measure depth: the camera stands still, moves too little, or what "
            "it shows has no texture"
        )
    return float(np.median(found))


def rescale(
    c2w: np.ndarray,  # (n, 4, 4)
    near: float,
) -> np.ndarray:
    """Poses (n, 4, 4) in units in which a near-plane depth of `near` becomes 1."""
    if not (np.isfinite(near) and near > 0):
        raise ValueError(f"a near-plane depth is a positive number, got {near:g}")
    scaled = np.array(c2w, np.float64)
    scaled[:, :3, 3] /= near
    return scaled


def depth_of(
    first: np.ndarray,  # (H, W, 3) uint8
    second: np.ndarray,  # (H, W, 3) uint8
    motion: np.ndarray,  # (4, 4), from the second camera to the first
    flow: SphereFlow,
    options: DepthOptions,
) -> np.ndarray:
    """Distance (H, W) of what the first panorama shows; NaN where it is too far to tell, and everywhere if unreliable.

    Where flow is inconsistent, and around the epipoles, the nearest pixel with consistent flow is used.
    """
    height, width = first.shape[:2]
    turned = turn_panorama(second, motion[:3, :3])
    there, back = flow(first, turned), flow(turned, first)
    directions = sphere_directions(height, width)
    depth, parallax, beside = triangulate(directions, there, motion[:3, 3])
    returned = normalise(sample_panorama(back, there))
    astray = np.linalg.norm(returned - directions, axis=-1)
    along = np.abs(directions @ normalise(motion[:3, 3]))
    pixel = 2 * np.pi / width
    consistent = (np.maximum(astray, beside) < options.tolerance * pixel) & (
        along < np.cos(np.radians(options.epipole))
    )
    moving = parallax > options.min_parallax * pixel
    if (consistent & moving).mean() < options.min_share:
        return np.full_like(depth, np.nan)
    return nearest_known(np.where(moving, depth, np.nan), consistent)


def nearest_known(
    values: np.ndarray,  # (H, W) of a panorama
    known: np.ndarray,  # (H, W) bool, at least one of them
) -> np.ndarray:
    """Values (H, W) with each unknown one replaced by the nearest known one."""
    import cv2

    width = values.shape[1]
    side = ((0, 0), (width // 2, width // 2))
    wide, wide_known = np.pad(values, side, mode="wrap"), np.pad(known, side, mode="wrap")
    unknown = (~wide_known).astype(np.uint8)
    labels = cv2.distanceTransformWithLabels(unknown, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)[1]
    by_label = np.zeros(labels.max() + 1, values.dtype)
    by_label[labels[wide_known]] = wide[wide_known]
    return by_label[labels][:, width // 2 : width // 2 + width]


def triangulate(
    before: np.ndarray,  # (..., 3) unit directions from the first position
    after: np.ndarray,  # (..., 3) unit directions, in the same axes, from the second
    translation: np.ndarray,  # (3,) second position seen from the first
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance (...) from the first position, parallax (...) and distance from the epipolar plane (...) in radians.

    Parallax is negative, and depth meaningless, where a point would have to lie behind the camera.
    """
    baseline = np.linalg.norm(translation)
    axis = translation / max(float(baseline), 1e-300)
    across = before - (before @ axis)[..., None] * axis
    size = np.linalg.norm(across, axis=-1)
    across = across / np.maximum(size, 1e-12)[..., None]
    outside = np.cross(np.broadcast_to(axis, across.shape), across)
    beside = np.abs((after * outside).sum(-1))
    inside = np.arctan2((after * across).sum(-1), after @ axis)
    parallax = inside - np.arctan2(size, before @ axis)
    sine = np.sin(parallax)
    return baseline * np.sin(inside) / np.where(np.abs(sine) < 1e-12, 1e-12, sine), parallax, beside


def _near_depth_of(
    place: int, frames: np.ndarray, c2w: np.ndarray, flow: SphereFlow, options: DepthOptions, guess: float | None
) -> float | None:
    """Near-plane depth of one frame, from a partner at the right distance for that depth; None if unreliable."""
    away = np.linalg.norm(c2w[:, :3, 3] - c2w[place, :3, 3], axis=1)
    if not away.any():
        return None
    wanted = options.baseline * guess if guess else float(np.min(away[away > 0]))
    tried: set[int] = set()
    near = None
    for _ in range(ROUNDS):
        other = _partner(place, away, wanted)
        if other in tried:
            break
        tried.add(other)
        motion = np.linalg.inv(c2w[place]) @ c2w[other]
        depth = depth_of(frames[place], frames[other], motion, flow, options)
        if np.isnan(depth).all():
            wanted = 2 * max(wanted, away[other])
        else:
            near = float(np.nanpercentile(depth, NEAR_PERCENTILE))
            wanted = options.baseline * near
    return near


def _partner(
    place: int,
    away: np.ndarray,  # (n,) distances
    wanted: float,
) -> int:
    """The frame nearest in time that is about as far away as wanted, or the one furthest away."""
    far = np.flatnonzero(away >= 0.9 * wanted)
    return int(far[np.abs(far - place).argmin()]) if len(far) else int(away.argmax())


def _reduced(frames: np.ndarray, width: int) -> np.ndarray:
    import cv2

    if frames.shape[2] <= width:
        return frames
    size = (width, round(frames.shape[1] * width / frames.shape[2]))
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])
