"""Camera estimators, one file each, behind two small protocols."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ucpe.evaluation.estimators.base import Calibrator, PoseEstimator

POSE_ESTIMATORS = {
    "colmap": ("colmap:ColmapEstimator", "structure from motion on rectified frames (pycolmap)"),
    "vipe": ("vipe:VipeEstimator", "ViPE, as in the paper (its command, or results=FOLDER)"),
    "stored": ("stored:StoredPoses", "poses another tool has written (results=FOLDER)"),
    "desk": ("desk:DeskMotionEstimator", "the bundled network for videos of the desk model"),
}
"""Pose estimators by name: module and class, and what they are."""

CALIBRATORS = {
    "geocalib": ("geocalib:GeoCalibEstimator", "GeoCalib, as in the paper (weights=NAME or PATH)"),
    "stored": ("stored:StoredCalibrations", "calibrations another tool has written (results=FOLDER)"),
    "desk": ("desk:DeskCalibrationEstimator", "the bundled network for videos of the desk model"),
}
"""Calibrators by name."""


TAKES_WEIGHTS = ("geocalib", "desk")
"""Estimators that can be given other weights."""

TAKES_RESULTS = {"vipe": "results", "stored": "folder"}
"""Estimators that read the results of an earlier run, and the argument for their folder."""


@dataclass(frozen=True)
class EstimatorChoice:
    """An estimator by name, with a folder of results or a path of weights where it takes one."""

    name: str
    results: Path | None = None
    weights: str | None = None
    every: int = 1
    """GeoCalib looks at every `every`-th frame."""
    shared: bool = False
    """Whether GeoCalib finds one lens for all frames of a video."""
    every_frame: bool = False
    """Whether COLMAP places every frame instead of four per second."""

    def pose_estimator(self) -> PoseEstimator:
        """The pose estimator of that name."""
        return self._make(POSE_ESTIMATORS, "pose estimator")

    def calibrator(self) -> Calibrator:
        """The calibrator of that name."""
        return self._make(CALIBRATORS, "calibrator")

    def _make(self, registry: dict[str, tuple[str, str]], what: str) -> Any:
        if self.name not in registry:
            known = "\n".join(f"  {name}: {text}" for name, (_, text) in registry.items())
            raise ValueError(f"no {what} '{self.name}'; there are\n{known}")
        module, _, symbol = registry[self.name][0].partition(":")
        options: dict[str, Any] = {}
        if (self.every, self.shared) != (1, False):
            if self.name != "geocalib":
                raise ValueError(f"only geocalib can skip frames or find one lens for all of them; this is {self.name}")
            options |= {"every": self.every, "shared": self.shared}
        if self.every_frame and self.name == "colmap":
            from ucpe.evaluation.estimators.colmap import ColmapSettings

            options["settings"] = ColmapSettings(keyframe_seconds=None)
        if self.weights is not None:
            if self.name not in TAKES_WEIGHTS:
                raise ValueError(f"the {what} {self.name} takes no weights; {', '.join(TAKES_WEIGHTS)} do")
            options["weights"] = self.weights
        if self.results is not None:
            if self.name not in TAKES_RESULTS:
                raise ValueError(f"the {what} {self.name} reads no stored results; {', '.join(TAKES_RESULTS)} do")
            options[TAKES_RESULTS[self.name]] = self.results
        elif self.name == "stored":
            raise ValueError(f"the stored {what} needs the folder of its results")
        return getattr(import_module(f"{__name__}.{module}"), symbol)(**options)
