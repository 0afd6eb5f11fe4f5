"""Which way is up in a panorama, from the scene's vertical lines.

Every straight line of the scene lies on a great circle of the panorama, and the great circle of a vertical line has a
normal perpendicular to up. So up is the direction near the picture's vertical that is perpendicular to most normals. If
another direction is nearly as good, up is unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ucpe.synthesis.curation.flow import normalise, sample_panorama

SEARCH = 36.0
"""Up is looked for within this many degrees of the picture's vertical."""

NARROW = 3.0
"""Degrees by which the normal of a vertical line may miss the horizontal plane."""

BELT = (-30.0, 50.0)
"""Degrees of latitude between which segments are used: above the ground, whose texture runs everywhere, and away from
the ceiling, whose lines may all run one way."""

APART = 10.0
"""A direction at least this many degrees from the best one competes with it."""

PROMINENCE = 1.7
"""Up is believed if its score is more than this many times the score of any competing direction."""

FEWEST = 4
"""Minimum number of agreeing segments per frame, on average."""

VIEWS = 6
"""Perspective views around the horizon in which segments are found, as lines of the scene are straight there."""

HALF_VIEW = 40.0
"""Degrees from the centre of a view to its border."""

BLUR = 0.7
"""Standard deviation in pixels of the blur before segments are found."""

BEND = 40.0
"""Degrees by which gradients along one segment may differ. A jagged edge is then one segment, instead of many steps
along the pixel grid."""

SHORTEST, LONGEST = 5.0, 30.0
"""Lengths in degrees: shorter segments are not used, longer ones count as if they were this long."""


class Up(NamedTuple):
    """Which way is up, and how sure that is."""

    direction: np.ndarray  # (3,) unit vector in the camera's axes (y down)
    lean: float  # degrees from the picture's vertical
    prominence: float  # score, as a multiple of the best competing direction's


def find_up(
    frames: np.ndarray,  # (N, H, W, 3) uint8, equirectangular
) -> Up | None:
    """The up direction that vertical lines in some frames of a clip agree on; None if they are too few or disagree."""
    normals, lengths = (np.concatenate(parts) for parts in zip(*map(segment_normals, frames)))
    if len(normals) < FEWEST * len(frames):
        return None
    candidates = _around_vertical()
    scores = np.maximum(1 - (candidates @ normals.T / np.sin(np.radians(NARROW))) ** 2, 0) @ lengths
    best = candidates[scores.argmax()]
    rival = scores[candidates @ best < np.cos(np.radians(APART))].max()
    for _ in range(4):
        agreeing = np.abs(normals @ best) < np.sin(np.radians(NARROW))
        if agreeing.sum() < FEWEST * len(frames):
            return None
        best = np.linalg.eigh((normals * lengths[:, None])[agreeing].T @ normals[agreeing])[1][:, 0]
        best = -best * np.sign(best[1])
    prominence = float(scores.max() / max(rival, 1e-9))
    lean = float(np.degrees(np.arccos(np.clip(-best[1], -1, 1))))
    return Up(best, lean, prominence) if prominence > PROMINENCE and lean < SEARCH - NARROW else None


def segment_normals(
    frame: np.ndarray,  # (H, W, 3) uint8, equirectangular
) -> tuple[np.ndarray, np.ndarray]:
    """Unit normals (S, 3) of the great circles along line segments, and the segments' lengths (S,) in degrees."""
    import cv2

    detector = cv2.createLineSegmentDetector(cv2.LSD_REFINE_STD, ang_th=BEND)
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)[..., None]
    focal = frame.shape[1] / (2 * np.pi)
    side = round(2 * focal * np.tan(np.radians(HALF_VIEW)))
    offsets = (np.arange(side) + 0.5 - side / 2) / focal
    across, down = np.meshgrid(offsets, offsets)
    rays = normalise(np.stack([across, down, np.ones_like(across)], -1))
    ends = [np.zeros((0, 2, 3))]
    for yaw in np.arange(VIEWS) * 2 * np.pi / VIEWS:
        turn = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
        view = sample_panorama(grey, (rays @ turn.T).astype(np.float32), smooth=True)
        found = detector.detect(cv2.GaussianBlur(view, (0, 0), BLUR))[0]
        if found is not None:
            places = (found.reshape(-1, 2, 2) + 0.5 - side / 2) / focal
            ends.append(normalise(np.concatenate([places, np.ones_like(places[..., :1])], -1)) @ turn.T)
    first, second = np.concatenate(ends).swapaxes(0, 1)
    normals = np.cross(first, second)
    sine = np.linalg.norm(normals, axis=-1)
    lengths = np.degrees(np.arcsin(sine.clip(0, 1)))
    latitude = -np.degrees(np.arcsin(normalise(first + second)[:, 1]))
    used = (lengths > SHORTEST) & (latitude > BELT[0]) & (latitude < BELT[1])
    return normals[used] / sine[used, None], lengths[used].clip(max=LONGEST)


def _around_vertical(step: float = 1.5) -> np.ndarray:
    """Unit vectors (C, 3), about `step` degrees apart, within `SEARCH` degrees of the picture's vertical."""
    edge = np.tan(np.radians(SEARCH))
    offsets = np.tan(np.radians(np.arange(-SEARCH, SEARCH + step / 2, step)))
    across, along = np.meshgrid(offsets, offsets)
    inside = np.hypot(across, along) <= edge + 1e-9
    return normalise(np.stack([across[inside], -np.ones(inside.sum()), along[inside]], -1))
