"""Camera centres and points once rotations are known: solved linearly, in alternation.

Where a scene has a far background, rotations follow from it alone. A flat foreground, which two motions explain equally
well, cannot mislead then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ucpe.trajectories.rotations import nearest_rotation

ROUNDS = 40
"""Number of rounds in which points and centres are solved for, one after the other."""

Pair = tuple[int, int]

Fits = dict[Pair, tuple[np.ndarray, float]]
"""The rotation (3, 3) from one frame to another by pair, and the share of matches that agree with it."""


@dataclass
class Tracks:
    """Rays to the same point from several frames."""

    track: np.ndarray  # (M,) index of each ray's point
    frame: np.ndarray  # (M,)
    ray: np.ndarray  # (M, 3) unit, in the camera frame
    count: int


def build_tracks(matches: Sequence[tuple[int, int, np.ndarray]], rays: dict[int, np.ndarray]) -> Tracks:
    """Tracks through pairs of frames (first, second, (K, 2) feature indices); no track has two rays of one frame."""
    parent: dict[Pair, Pair] = {}

    def root(node: Pair) -> Pair:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for first, second, features in matches:
        for one, other in features.tolist():
            a, b = root((first, one)), root((second, other))
            parent[max(a, b)] = min(a, b)
    members: dict[Pair, list[Pair]] = {}
    for node in parent:
        members.setdefault(root(node), []).append(node)
    kept = [nodes for nodes in members.values() if len({frame for frame, _ in nodes}) == len(nodes) > 1]
    nodes = [node for group in kept for node in group]
    return Tracks(
        np.repeat(np.arange(len(kept)), [len(group) for group in kept]),
        np.array([frame for frame, _ in nodes], int),
        np.array([rays[frame][feature] for frame, feature in nodes]).reshape(-1, 3),
        len(kept),
    )


def average_rotations(fits: Fits, frames: int, sweeps: int = 30) -> np.ndarray | None:
    """Camera-to-world rotations (N, 3, 3) from turns between pairs of frames; None if no pair leads to some frame."""
    world = {0: np.eye(3)}
    for frame in range(1, frames):
        before = [first for first in world if (first, frame) in fits]
        if not before:
            return None
        best = max(before, key=lambda first: fits[first, frame][1])
        world[frame] = world[best] @ fits[best, frame][0].T
    rotation = np.stack([world[frame] for frame in range(frames)])
    for _ in range(sweeps):
        total = np.zeros_like(rotation)
        for (first, second), (turn, share) in fits.items():
            total[first] += share * rotation[second] @ turn
            total[second] += share * rotation[first] @ turn.T
        rotation = nearest_rotation(total)
        rotation = rotation[0].T @ rotation
    return rotation


def solve_centres(
    tracks: Tracks,
    rotation: np.ndarray,  # (N, 3, 3) camera to world
    pair: Pair,
    tolerance: float,
) -> np.ndarray:
    """Camera centres (N, 3), in a world of unknown scale, from which the rays best meet in points.

    Centres and points are solved for in alternation, from the motion between one pair of frames. `tolerance` is the
    angle in radians by which a ray may miss its point before it counts less.
    """
    frames = len(rotation)
    ray = (rotation[tracks.frame] @ tracks.ray[..., None])[..., 0]
    across = np.eye(3) - ray[:, :, None] * ray[:, None, :]
    centre = np.full((frames, 3), np.nan)
    centre[pair[0]], centre[pair[1]] = 0, pair_translation(tracks, ray, pair, tolerance)
    order = sorted(range(frames), key=lambda frame: min(abs(frame - pair[0]), abs(frame - pair[1])))
    trust = np.ones(len(ray))
    point, depth = np.zeros((tracks.count, 3)), np.ones(len(ray))
    for _ in range(ROUNDS):
        placed = np.isfinite(centre).all(1)
        used = placed[tracks.frame]
        weight = np.where(used, trust / np.maximum(depth, 1e-3) ** 2, 0)
        point, known = meet_lines(across, np.nan_to_num(centre)[tracks.frame], weight, tracks.track, tracks.count)
        new = [frame for frame in order if not placed[frame]][: max(2, frames // 4)]
        resected, seen = meet_lines(
            across, point[tracks.track], known[tracks.track] * trust / depth**2, tracks.frame, frames
        )
        for frame in range(frames):
            if seen[frame] and frame != pair[0] and (placed[frame] or frame in new):
                centre[frame] = resected[frame]
        length = np.linalg.norm(centre[pair[1]])
        centre, point = centre / length, point / length
        sight = point[tracks.track] - np.nan_to_num(centre)[tracks.frame]
        distance = np.linalg.norm(sight, axis=1)
        angle = np.linalg.norm(sight / np.maximum(distance, 1e-12)[:, None] - ray, axis=1)
        trust = np.where(known[tracks.track], 1 / (1 + (angle / tolerance) ** 2) ** 2, 1.0)
        depth = np.where(known[tracks.track], np.clip(distance, 1e-3, 1e3), 1.0)
    return centre


def pair_translation(tracks: Tracks, ray: np.ndarray, pair: Pair, tolerance: float) -> np.ndarray:
    """Unit vector (3,) from the first to the second centre of a pair whose rays (M, 3) are in the world."""
    position = np.full((2, tracks.count), -1)
    for side, frame in enumerate(pair):
        rows = np.flatnonzero(tracks.frame == frame)
        position[side, tracks.track[rows]] = rows
    first, second = position[:, (position >= 0).all(0)]
    normal = np.cross(ray[first], ray[second])
    weight = np.ones(len(normal))
    direction = np.zeros(3)
    for _ in range(20):
        _, vectors = np.linalg.eigh((normal * weight[:, None]).T @ normal)
        direction = vectors[:, 0]
        weight = 1 / (1 + (normal @ direction / tolerance) ** 2) ** 2
    # The point lies in front of both where the rays bend towards each other.
    bend = ((ray[first] - ray[second]) @ direction) * weight
    return direction if bend.sum() > 0 else -direction


def meet_lines(
    across: np.ndarray, target: np.ndarray, weight: np.ndarray, group: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The point (count, 3) nearest to the weighted lines through targets of each group, and if it has two lines."""
    weighted = weight[:, None, None] * across
    total, pulled = np.zeros((count, 3, 3)), np.zeros((count, 3))
    np.add.at(total, group, weighted)
    np.add.at(pulled, group, (weighted @ target[..., None])[..., 0])
    size = np.trace(total, axis1=1, axis2=2)
    lines = np.bincount(group, weights=weight > 0, minlength=count)
    solution = np.linalg.solve(total + (1e-9 * size + 1e-30)[:, None, None] * np.eye(3), pulled[..., None])[..., 0]
    return solution, lines >= 2
