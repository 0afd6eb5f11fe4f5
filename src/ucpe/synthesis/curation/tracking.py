"""Poses of all frames of a clip; where tracking is lost, the clip is split, because the scene has changed there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch

from ucpe.synthesis.curation.poses import PoseTracker, SphericalMapper
from ucpe.synthesis.curation.segmentation import MIN_SECONDS
from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step
from ucpe.synthesis.rows import POSES, pose_column


@dataclass(frozen=True)
class Tracking(Step):
    """Finds the camera's motion; drops clips in which it is lost."""

    name: ClassVar[str] = "tracking"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"c2w": POSES, "track_error": pa.float64()}
    thresholds: ClassVar[tuple[str, ...]] = ("min_seconds", "max_error")
    requires: ClassVar[tuple[str, ...]] = ("pycolmap",)
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("tracked for", "", "min_seconds"),
        Rule("tracking lost", "", "mapper.min_inliers"),
        Rule("poses are inaccurate", "track_error", "max_error", "error of the map, degrees"),
    )

    backend: Literal["pycolmap", "stella_vslam"] = "pycolmap"
    """Panoramic structure from motion, or the paper's SLAM, whose program must be installed."""
    mapper: SphericalMapper = field(default_factory=SphericalMapper)
    stella_vocabulary: Path | None = None
    """stella_vslam's ORB vocabulary."""
    stella_binary: str = "run_image_slam"
    """Name or path of stella_vslam's program."""
    stella_config: Path | None = None
    """Settings file of stella_vslam."""
    seed: int = 0
    min_seconds: float = MIN_SECONDS
    """Minimum length in seconds; shorter tracked stretches are dropped."""
    max_error: float = 1.0
    """Maximum mean distance in degrees between features and where the map puts them."""

    def check(self) -> None:
        """Raise ValueError if something that the chosen backend needs is missing."""
        if self.backend == "pycolmap":
            super().check()
        else:
            self.tracker()

    def run(self, clip: SourceClip) -> list[Row]:
        """The stretches of the clip that were tracked, each in its own world; one row without poses if none was."""
        tracks = self.tracker().track(clip.frames(), seed=self.seed)
        if not tracks:
            return [{"c2w": None, "track_error": None}]
        return [
            {
                "start": clip.start + track.start,
                "stop": clip.start + track.stop,
                "c2w": pose_column(torch.from_numpy(np.asarray(track.c2w, np.float64))),
                "track_error": float(track.error) if math.isfinite(track.error) else None,
            }
            for track in tracks
        ]

    def verdict(self, row: Row) -> str:
        """Dropped if tracking is lost, the tracked stretch is too short, or its poses are inaccurate."""
        if row["c2w"] is None:
            return "tracking lost"
        if row["stop"] - row["start"] < self.min_seconds * row["fps"] - 1e-6:
            return f"tracked for under {self.min_seconds:g} s"
        error = row["track_error"]
        return "poses are inaccurate" if error is not None and error > self.max_error else ""

    def tracker(self) -> PoseTracker:
        """The backend, ready to run."""
        if self.backend == "pycolmap":
            return self.mapper
        from ucpe.synthesis.curation.stella import StellaVSLAM

        if self.stella_vocabulary is None:
            raise ValueError("stella_vslam needs its ORB vocabulary: give --tracking.stella-vocabulary")
        return StellaVSLAM(self.stella_vocabulary, self.stella_binary, self.stella_config)
