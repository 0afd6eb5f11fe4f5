"""The stretch of time in which a panoramic clip and a motion are compared: the frames of one training clip."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ucpe.trajectories import Trajectory


@dataclass(frozen=True)
class Window:
    """The first frames of a clip at the rate of training videos."""

    frames: int = 81
    """Number of frames."""
    fps: float = 16.0
    """Frames per second."""
    max_stretch: float = 1.5
    """A motion shorter than the window is slowed down to fill it, by at most this factor; longer ones play at their
    own speed and are cut."""

    def __post_init__(self) -> None:
        if self.frames < 2 or not (math.isfinite(self.fps) and self.fps > 0):
            raise ValueError(
                f"a window needs at least 2 frames and a positive fps, got {self.frames} at {self.fps:g} fps"
            )
        if not self.max_stretch >= 1:
            raise ValueError(f"max_stretch must be at least 1, got {self.max_stretch:g}")

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the last."""
        return (self.frames - 1) / self.fps

    def clip_frames(self, fps: float) -> np.ndarray:
        """Frame numbers (frames,) of footage at `fps` that the window shows; `ucpe synthesize` films the same ones."""
        return np.array([int(n * (fps / self.fps) + 1e-6) for n in range(self.frames)])

    def of_motion(self, motion: Trajectory) -> Trajectory:
        """The motion's first seconds at the window's frames; ValueError if it is too short."""
        if motion.duration * self.max_stretch < self.duration - 1e-6:
            raise ValueError(
                f"{motion.duration:.2f} s long, too short for the window of {self.duration:.2f} s even if stretched by "
                f"{self.max_stretch:g}"
            )
        seconds = torch.linspace(0, min(motion.duration, self.duration), self.frames, dtype=torch.float64)
        at = seconds * motion.fps
        at = torch.where((at - at.round()).abs() < 1e-6, at.round(), at)
        sampled = motion.at(at)
        return Trajectory(sampled.c2w, sampled.lens, self.fps)
