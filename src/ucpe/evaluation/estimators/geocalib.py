"""Orientation and lens from GeoCalib, as the paper measures: `ucpe evaluate --calibrator geocalib`.

Uses the `geocalib` package (https://github.com/cvg/GeoCalib) with its `radial` camera model: focal length, k1 and k2.
Weights are "distorted" or "pinhole", which the package downloads, or the path of a checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.evaluation.estimators.base import Calibration, Calibrator, Clip, LensModel, angles_of_up

RELEASED_WEIGHTS = ("pinhole", "distorted")


class GeoCalibEstimator(Calibrator):
    """GeoCalib's gravity direction and radial camera of single frames."""

    name = "geocalib"
    model: LensModel = "radial"

    def __init__(self, weights: str = "distorted", every: int = 1, shared: bool = False, device: str | None = None):
        try:
            from geocalib import GeoCalib
        except ImportError:
            raise ValueError(
                "calibration by GeoCalib needs its package: pip install git+https://github.com/cvg/GeoCalib; "
                "or pass stored results (--calibrator stored)"
            ) from None
        if weights not in RELEASED_WEIGHTS and not Path(weights).is_file():
            raise ValueError(f"no GeoCalib weights at {weights}; give a checkpoint or one of {RELEASED_WEIGHTS}")
        if every < 1:
            raise ValueError(f"GeoCalib looks at every n-th frame with n at least 1, got {every}")
        self.weights, self.every, self.shared = weights, every, shared
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.network = GeoCalib(weights=weights).to(self.device)

    def describe(self) -> dict[str, Any]:
        """Weights and settings."""
        weights = Path(self.weights).name
        return {"name": self.name, "weights": weights, "model": self.model, "every": self.every, "shared": self.shared}

    def files(self, name: str) -> list[Path]:
        """The checkpoint, if it is a file."""
        return [] if self.weights in RELEASED_WEIGHTS else [Path(self.weights)]

    def estimate(self, clip: Clip) -> Calibration:
        """Orientation and lens of every `every`-th frame; one lens for all of them if `shared`, as the authors do."""
        chosen = np.arange(0, len(clip.frames), self.every)
        groups = [chosen] if self.shared else chosen[:, None]
        pitch, roll, yfov, k1, k2 = np.concatenate([self._calibrate(clip.frames[group]) for group in groups]).T
        return Calibration(self.model, chosen, pitch, roll, {"yfov": yfov, "k1": k1, "k2": k2})

    def _calibrate(self, frames: np.ndarray) -> np.ndarray:
        """Pitch, roll, vertical field of view in degrees, k1 and k2 (N, 5) of frames (N, H, W, 3) that share a lens."""
        images = torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, 1).float().to(self.device) / 255
        single = len(images) == 1
        result = self.network.calibrate(
            images[0] if single else images, camera_model="radial", **({} if single else {"shared_intrinsics": True})
        )
        camera, gravity = result["camera"], result["gravity"]
        # GeoCalib's gravity points up: (0, -1, 0) for a level camera with y down.
        angles = angles_of_up(gravity.vec3d.double().cpu().numpy())
        lens = (torch.rad2deg(camera.vfov), camera.dist[..., 0], camera.dist[..., 1])
        numbers = [np.broadcast_to(value.double().cpu().numpy().reshape(-1), len(frames)) for value in lens]
        return np.stack([*angles, *numbers], axis=1)
