"""Orientation and lens from GeoCalib, as the paper measures: `ucpe evaluate --calibrator geocalib`.

Uses the `geocalib` package (https://github.com/cvg/GeoCalib) with its `radial` camera model: focal length, k1 and k2.
Weights are "distorted" or "pinhole", which the package downloads, or the path of a checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.evaluation.estimators.base import Calibration, Clip, LensModel, angles_of_up

RELEASED_WEIGHTS = ("pinhole", "distorted")


class GeoCalibEstimator:
    """GeoCalib's gravity direction and radial camera of single frames."""

    name = "geocalib"
    model: LensModel = "radial"

    def __init__(self, weights: str = "distorted", frames: int | None = None, device: str | None = None):
        try:
            from geocalib import GeoCalib
        except ImportError:
            raise ValueError(
                "calibration by GeoCalib needs its package: pip install git+https://github.com/cvg/GeoCalib; "
                "or pass stored results (--calibrator stored)"
            ) from None
        if weights not in RELEASED_WEIGHTS and not Path(weights).is_file():
            raise ValueError(f"no GeoCalib weights at {weights}; give a checkpoint or one of {RELEASED_WEIGHTS}")
        self.weights, self.frames = weights, frames
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.network = GeoCalib(weights=weights).to(self.device)

    def describe(self) -> dict[str, Any]:
        """Weights and settings."""
        return {"name": self.name, "weights": Path(self.weights).name, "model": self.model, "frames": self.frames}

    def files(self, name: str) -> list[Path]:
        """The checkpoint, if it is a file."""
        return [] if self.weights in RELEASED_WEIGHTS else [Path(self.weights)]

    def floor(self) -> dict[str, float] | None:
        """Not measured here."""
        return None

    def estimate(self, clip: Clip) -> Calibration:
        """Orientation and lens of every frame, or of `frames` of them spread evenly."""
        count = len(clip.frames) if self.frames is None else min(self.frames, len(clip.frames))
        chosen = np.unique(np.linspace(0, len(clip.frames) - 1, count).round().astype(int))
        rows = [self._calibrate(clip.frames[index]) for index in chosen]
        pitch, roll, yfov, k1, k2 = np.array(rows).T
        return Calibration(self.model, chosen, pitch, roll, {"yfov": yfov, "k1": k1, "k2": k2})

    def _calibrate(self, frame: np.ndarray) -> tuple[float, float, float, float, float]:
        image = torch.from_numpy(np.ascontiguousarray(frame)).movedim(-1, 0).float().to(self.device) / 255
        result = self.network.calibrate(image, camera_model="radial")
        camera, gravity = result["camera"], result["gravity"]
        # GeoCalib's gravity points up: (0, -1, 0) for a level camera with y down.
        pitch, roll = angles_of_up(gravity.vec3d[0].double().cpu().numpy())
        k1, k2 = camera.dist[0, :2].double().cpu().tolist()
        return float(pitch), float(roll), float(torch.rad2deg(camera.vfov[0])), k1, k2
