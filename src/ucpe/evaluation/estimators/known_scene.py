"""Turn and travel between two frames of a known scene, by geometry alone: a ground plane, and everything else far away.

For every candidate motion the first frame is reprojected into the later one, through the plane below the horizon and at
infinity above it, and compared pixel by pixel. Candidates lie symmetrically about standing still, so that no motion is
favoured, and nothing is learned: the estimate cannot know which model made a video.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Lens
from ucpe.trajectories.rotations import angles_from_rotation, rotation_from_angles

YAWS = torch.arange(-66, 67, 6.0)
"""Turns in degrees that are tried first: those that a desk camera may be commanded, and a little more."""

RADII = (0.2, 0.45, 0.7, 0.95, 1.2)
"""Distances of travel that are tried first, each in twelve directions, in near-plane depths."""

LIMITS = torch.tensor([70.0, 1.3, 0.6, 1.3])
"""Maximum turn in degrees, and maximum travel right, down and forward in near-plane depths, that are considered."""

STEPS = torch.tensor([3.0, 0.12, 0.08, 0.12])
"""First steps of the refinement: degrees of yaw, then right, down and forward; halved in every round."""

ROUNDS = 5
STARTS = 6
"""Number of best candidates that are refined."""

TRUNCATION = 0.2
"""Maximum colour difference (0..1) that counts: objects that stand on the ground do not follow the plane."""

STILLNESS = 0.001
"""Cost of one near-plane depth of travel: a camera that sees no ground should not appear to travel."""

CONTRAST = 0.1
"""Weight of local contrast beside colours."""

UNSEEN = 0.6
"""Cost of a pixel that the first frame does not show: at least this share of the difference between unrelated pixels of
the ground, or of what is above it. A lower cost would reward motions that leave the picture, a higher one those that
keep all of it."""


class Motion(NamedTuple):
    """Motion from the first frame to a later one."""

    yaw: float  # degrees to the right
    travel: Tensor  # (3,) right, down and forward of the first camera's heading, in near-plane depths
    error: float
    """Mean colour difference that remains, 0 to `TRUNCATION`."""


def commanded_motion(
    c2w: Tensor,  # (2, 4, 4) gravity-aligned
) -> Motion:
    """The motion between two commanded poses."""
    yaw = angles_from_rotation(c2w[:, :3, :3].double()).yaw
    level = rotation_from_angles(torch.zeros(()).double(), yaw[0], torch.zeros(()).double())
    travel = level.mT @ (c2w[1, :3, 3] - c2w[0, :3, 3]).double()
    return Motion(float((yaw[1] - yaw[0] + 180) % 360 - 180), travel, 0.0)


def estimate_motion(
    frames: np.ndarray,  # (2, H, W, 3) uint8: the first frame and a later one
    lens: Lens,
    pitch: Tensor,  # (2,) degrees
    roll: Tensor,  # (2,) degrees
    ground: float = 0.9,
    stride: int = 2,
) -> Motion:
    """Yaw and travel that best explain the later frame.

    `ground` is the height of the first camera above the ground in near-plane depths; one pixel in `stride` x `stride`
    of the later frame is compared.
    """
    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), frames.shape[1] / 40) for frame in frames])
    scene = _Scene(blurred, lens, pitch, roll, ground, 2 * stride)
    travels = _travels()
    candidates = torch.cat([YAWS.repeat_interleave(len(travels))[:, None], travels.repeat(len(YAWS), 1)], dim=1)
    cost = torch.cat([scene.cost(part) for part in candidates.split(256)])
    best = candidates[cost.argsort()[:STARTS]]
    scene = _Scene(frames, lens, pitch, roll, ground, stride)
    around = torch.cat([torch.zeros(1, 4), torch.eye(4), -torch.eye(4)])
    for step in range(ROUNDS):
        for _ in range(2):
            tried = (best[:, None] + around * STEPS / 2**step).clamp(-LIMITS, LIMITS)  # (starts, 9, 4)
            cost = scene.cost(tried.flatten(0, 1)).unflatten(0, tried.shape[:2])
            best = tried[torch.arange(len(tried)), cost.argmin(dim=1)]
    cost = scene.cost(best)
    yaw, *travel = best[cost.argmin()].tolist()
    return Motion(yaw, torch.tensor(travel, dtype=torch.float64), float(cost.min()))


class _Scene:
    """Two frames and what is known about their cameras."""

    def __init__(self, frames: np.ndarray, lens: Lens, pitch: Tensor, roll: Tensor, ground: float, stride: int) -> None:
        self.height, self.width = frames.shape[1:3]
        self.ground, self.lens = ground, lens
        zero = torch.zeros(2).double()
        self.upright = rotation_from_angles(pitch.double(), zero, roll.double()).float()  # (2, 3, 3)
        first, later = (_features(frame) for frame in frames)
        _, directions, valid = lens.rays(self.height, self.width, dtype=torch.float32)
        picked = (slice(stride // 2, None, stride),) * 2
        self.first, seen = first, valid[picked]
        self.rays = directions[picked][seen] @ self.upright[1].mT  # (P, 3), upright, before the turn
        self.later = later[picked][seen]  # (P, 4)
        below = self.rays[:, 1] > 1e-3
        self.unseen = UNSEEN * torch.where(below, _unrelated(self.later[below]), _unrelated(self.later[~below]))

    def cost(
        self,
        motions: Tensor,  # (M, 4): yaw in degrees, right, down, forward
    ) -> Tensor:
        """Mean colour difference (M,) between the later frame and the first, reprojected."""
        level = torch.zeros(len(motions))
        turn = rotation_from_angles(level, motions[:, 0], level)
        rays = self.rays @ turn.mT  # (M, P, 3)
        centre = motions[:, None, 1:]
        height = (self.ground - centre[..., 1]).clamp(min=0.05)
        distance = height / rays[..., 1].clamp(min=1e-4)
        points = torch.where(rays[..., 1:2] > 1e-3, centre + distance[..., None] * rays, rays)
        pixels, valid = self.lens.project(points @ self.upright[0], self.height, self.width)
        column, row = (pixels - 0.5).round().long().unbind(-1)
        inside = valid & (column >= 0) & (column < self.width) & (row >= 0) & (row < self.height)
        index = (row * self.width + column).where(inside, 0)
        error = _difference(self.first.flatten(0, 1)[index], self.later)
        seen = (error * inside).sum(dim=1, keepdim=True) / inside.sum(dim=1, keepdim=True).clamp(min=1)
        # In a blurred or noisy video even the right motion matches badly: looking away must not be cheaper than that.
        error = error.where(inside, torch.maximum(self.unseen, seen))
        return error.mean(dim=1) + STILLNESS * motions[:, 1:].norm(dim=1)


def _unrelated(
    pixels: Tensor,  # (P, 4)
) -> Tensor:
    """Mean difference between pixels that have nothing to do with each other."""
    shuffled = pixels[torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))]
    return _difference(shuffled, pixels).sum() / max(len(pixels), 1)


def _features(
    frame: np.ndarray,  # (H, W, 3) uint8
) -> Tensor:
    """Colours (0..1) and local contrast (H, W, 4), so that edges count in dark places too."""
    color = frame.astype(np.float32) / 255
    light = color.mean(-1)
    away = light - cv2.GaussianBlur(light, (0, 0), len(frame) / 10)
    contrast = away / np.sqrt(cv2.GaussianBlur(away**2, (0, 0), len(frame) / 10) + 0.02**2)
    return torch.from_numpy(np.dstack([color, CONTRAST * contrast]))


def _difference(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().mean(dim=-1).clamp(max=TRUNCATION)


def _travels() -> Tensor:
    """Travels (1 + 12 * radii, 3) that are tried first: none, and twelve directions on the ground."""
    angle = torch.arange(12) * torch.pi / 6
    ring = torch.stack([angle.sin(), torch.zeros(12), angle.cos()], dim=1)
    return torch.cat([torch.zeros(1, 3), *(radius * ring for radius in RADII)])
