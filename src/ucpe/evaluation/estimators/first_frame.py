"""The up direction of a video's first frame by a calibrator, to align motions with gravity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ucpe.evaluation.estimators.base import Calibrator, Clip, EstimationFailure, up_of_angles
from ucpe.files import file_fingerprint
from ucpe.video import read_frames


class UpOfFirstFrame:
    """Asks a calibrator about the first frame alone; `ucpe match motions --calibrator NAME`."""

    def __init__(self, calibrator: Calibrator):
        self.calibrator = calibrator

    def up(self, video: Path) -> Sequence[float]:
        """Unit up direction (3,) in the frame of the first camera (x right, y down, z forward)."""
        try:
            found = self.calibrator.estimate(Clip(video.stem, read_frames(video, frames=1), np.zeros(1)))
        except EstimationFailure as failure:
            raise ValueError(f"no up vector: {failure}") from None
        return up_of_angles(found.pitch[0], found.roll[0])

    def describe(self) -> list[Any]:
        """The calibrator with its settings and weights."""
        return [self.calibrator.describe(), [file_fingerprint(path) for path in self.calibrator.files("")]]
