"""Which way is up in a panorama, from the scene's vertical lines.

Every straight line of the scene lies on a great circle of the panorama, and the normals of vertical ones are all
perpendicular to up. Up is the direction, within `SEARCH` of the picture's vertical, to which most edges' normals are
perpendicular.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SEARCH = 30.0
"""Degrees from the picture's vertical in which up is looked for."""

NARROW = 3.0
"""Degrees by which the normal of a vertical line may miss the horizontal plane."""

STEEP = 45.0
"""Degrees from the picture's vertical that an edge may run to be the edge of something vertical."""

BELT = (-20.0, 45.0)
"""Degrees of latitude between which edges are used: above the ground, whose texture runs everywhere, and away from the
poles, where every direction is vertical."""

PROMINENCE = 1.5
"""How many times more edges must agree on up than on the better directions around it, for it to be believed."""

FEWEST = 60
"""Edge pixels a frame that must agree."""


class Up(NamedTuple):
    """Up in the camera's axes (y down), degrees between it and the picture's, and how it stands out."""

    direction: np.ndarray  # (3,)
    lean: float
    prominence: float


def find_up(
    frames: np.ndarray,  # (N, H, W, 3) uint8, equirectangular
) -> Up | None:
    """Up as the vertical lines of some frames of a clip have it, None if they are too few or disagree."""
    found = [edge_normals(frame) for frame in frames]
    normals, weights = (np.concatenate(parts) for parts in zip(*found))
    fewest = FEWEST * len(frames)
    if len(normals) < fewest:
        return None
    best, prominence = np.array([0.0, -1.0, 0.0]), 0.0
    for span, step in ((SEARCH, 2.0), (2.0, 0.5), (0.5, 0.1)):
        candidates = _around(best, span, step)
        missed = np.abs(candidates @ normals.T)
        scores = np.maximum(1 - (missed / np.sin(np.radians(NARROW))) ** 2, 0) @ weights
        prominence = prominence or float(scores.max() / np.percentile(scores, 80))
        best = candidates[scores.argmax()]
    agreeing = np.abs(normals @ best) < np.sin(np.radians(NARROW))
    lean = float(np.degrees(np.arccos(np.clip(-best[1], -1, 1))))
    at_the_border = lean > SEARCH - NARROW
    return None if prominence < PROMINENCE or agreeing.sum() < fewest or at_the_border else Up(best, lean, prominence)


def edge_normals(
    frame: np.ndarray,  # (H, W, 3) uint8, equirectangular
) -> tuple[np.ndarray, np.ndarray]:
    """Unit normals (E, 3) of the great circles along steep edges, and weights (E,)."""
    import cv2

    grey = cv2.GaussianBlur(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (0, 0), 0.8).astype(np.float32)
    height, width = grey.shape
    padded = np.pad(grey, ((0, 0), (2, 2)), mode="wrap")
    across = cv2.Sobel(padded, cv2.CV_32F, 1, 0, scale=0.25)[:, 2:-2]
    down = cv2.Sobel(padded, cv2.CV_32F, 0, 1, scale=0.25)[:, 2:-2]
    latitude = (0.5 - (np.arange(height) + 0.5) / height) * np.pi
    longitude = ((np.arange(width) + 0.5) / width - 0.5) * 2 * np.pi
    cosine = np.cos(latitude)[:, None]
    east, south = across / np.maximum(cosine, 1e-3) * (height * 2 / width), down
    strength = np.hypot(east, south)
    steep = np.abs(south) < np.tan(np.radians(STEEP)) * np.abs(east)
    low, high = np.radians(BELT)
    used = steep & (np.abs(across) > 6) & ((latitude > low) & (latitude < high))[:, None]
    rows, columns = np.nonzero(used)
    lon, lat = longitude[columns], latitude[rows]
    eastward = np.stack([np.cos(lon), np.zeros_like(lon), -np.sin(lon)], -1)
    southward = np.stack([np.sin(lat) * np.sin(lon), np.cos(lat), np.sin(lat) * np.cos(lon)], -1)
    normals = east[used][:, None] * eastward + south[used][:, None] * southward
    return normals / strength[used][:, None], np.minimum(strength[used], 40.0)


def _around(direction: np.ndarray, span: float, step: float) -> np.ndarray:
    """Unit vectors (C, 3) on a grid of `step` degrees within `span` degrees of a direction near the vertical."""
    offsets = np.tan(np.radians(np.arange(-span, span + step / 2, step)))
    first, second = np.meshgrid(offsets, offsets)
    inside = np.hypot(first, second) <= np.tan(np.radians(span)) + 1e-9
    side = np.array([1.0, 0.0, 0.0]) - direction[0] * direction
    side /= np.linalg.norm(side)
    other = np.cross(direction, side)
    points = direction + first[inside][:, None] * side + second[inside][:, None] * other
    return points / np.linalg.norm(points, axis=1, keepdims=True)
