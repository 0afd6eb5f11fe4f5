"""Steady and upright: how far a clip turns (the paper's rotation score), how much it shakes, and whether it is level.

Footage from stabilised 360 degree cameras keeps its orientation, with gravity pointing down in the picture. A clip that
turns, shakes or leans is not stabilised, and says nothing about absolute orientation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch

from ucpe.synthesis.curation.gravity import find_up
from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step
from ucpe.synthesis.rows import poses_of
from ucpe.trajectories.rotations import nearest_rotation, rotation_angle

LOOK_HEIGHT = 256
"""Height in pixels at which vertical lines are looked for."""


@dataclass(frozen=True)
class RotationCheck(Step):
    """Drops clips that turn, shake or lean."""

    name: ClassVar[str] = "rotation"
    columns: ClassVar[Mapping[str, pa.DataType]] = dict.fromkeys(
        ("rotation_score", "shake", "sway", "lean"), pa.float64()
    )
    thresholds: ClassVar[tuple[str, ...]] = ("max_rotation", "max_shake", "max_sway", "max_lean")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("not stabilised: shakes", "shake", "max_shake", "shake, degrees"),
        Rule("not stabilised: turns too far", "rotation_score", "max_rotation", "rotation score, degrees"),
        Rule("not stabilised: its vertical moves", "sway", "max_sway", "movement of the vertical, degrees"),
        Rule("not level: vertical lines lean", "lean", "max_lean", "lean of vertical lines, degrees"),
    )

    looks: int = 6
    """Number of frames in which vertical lines are looked for."""
    shake_window: float = 0.5
    """Seconds over which a steady camera turns evenly."""
    max_rotation: float = 30.0
    """Maximum rotation score in degrees. The paper removes "excessive drift" without a number; this is stage 2's."""
    max_shake: float = 1.0
    """Maximum root mean square angle in degrees between the camera's rotation and its mean over the shake window."""
    max_sway: float = 6.0
    """Maximum angle in degrees between the camera's vertical and that of the first frame."""
    max_lean: float = 6.0
    """Maximum angle in degrees between the picture's vertical and the scene's vertical lines, if there are enough."""

    def run(self, clip: SourceClip) -> list[Row]:
        """Angles in degrees from the clip's poses, and from vertical lines in a few frames (null if there are none)."""
        rotations = poses_of(clip.row["c2w"]).numpy()[:, :3, :3]
        up = find_up(clip.frames(self.looks, LOOK_HEIGHT))
        return [
            {
                "rotation_score": rotation_score(rotations),
                "shake": shake(rotations, max(round(self.shake_window * clip.fps), 3)),
                "sway": sway(rotations),
                "lean": None if up is None else up.lean,
            }
        ]


def rotation_score(
    rotations: np.ndarray,  # (N, 3, 3)
) -> float:
    """Largest rotation relative to the first frame, in degrees."""
    return float(rotation_angle(torch.from_numpy(rotations[0].T @ rotations)).max())


def shake(
    rotations: np.ndarray,  # (N, 3, 3)
    window: int,
) -> float:
    """Root mean square angle, in degrees, between each rotation and the mean rotation of the window around it."""
    half, count = window // 2, len(rotations)
    means = []
    for index in range(count):
        reach = min(half, index, count - 1 - index)
        means.append(nearest_rotation(rotations[index - reach : index + reach + 1].sum(0)))
    angles = rotation_angle(torch.from_numpy(np.swapaxes(np.stack(means), 1, 2) @ rotations))
    return float(angles.square().mean().sqrt())


def sway(
    rotations: np.ndarray,  # (N, 3, 3)
) -> float:
    """Largest angle in degrees between the camera's vertical axis and the first frame's. Yaw does not count."""
    cosines = (rotations[:, :, 1] @ rotations[0, :, 1]).clip(-1, 1)
    return float(np.degrees(np.arccos(cosines)).max())
