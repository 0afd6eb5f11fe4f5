"""The unit of length of a clip: its near-plane depth. Also how fast its picture moves, for stage 2's balance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ucpe.synthesis.curation.flow import DISFlow, NetworkFlow, SphereFlow, sphere_directions
from ucpe.synthesis.curation.scale import DepthOptions, near_depth
from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step
from ucpe.synthesis.rows import poses_of

MOTION_WIDTH = 1024
"""Motion is given in pixels of a panorama this wide, as in PanoFlow, whatever the width of the footage."""


@dataclass(frozen=True)
class ScaleNormalization(Step):
    """Measures near-plane depth and motion; drops clips whose camera moves too little to tell."""

    name: ClassVar[str] = "scale"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"near_depth": pa.float64(), "motion_magnitude": pa.float64()}
    rules: ClassVar[tuple[Rule, ...]] = (Rule("no parallax", "motion_magnitude", "depth.min_parallax"),)

    depth: DepthOptions = field(default_factory=DepthOptions)
    motion_samples: int = 6
    """Number of pairs of neighbouring frames in which motion is measured."""
    network: Path | None = None
    """A flow network such as PanoFlow as an ONNX file, or `gmflow` (see `gmflow.py`), instead of OpenCV's DIS."""

    def check(self) -> None:
        """Raise ValueError or OSError if the flow network cannot be loaded."""
        self.flow()

    def run(self, clip: SourceClip) -> list[Row]:
        """Near-plane depth in the units of the poses (null without parallax), and mean flow in pixels per frame."""
        c2w = poses_of(clip.row["c2w"]).numpy()
        frames = clip.frames(height=self.depth.width // 2)
        flow = self.flow()
        try:
            near: float | None = near_depth(frames, c2w, flow, self.depth)
        except ValueError:
            near = None
        return [{"near_depth": near, "motion_magnitude": motion_magnitude(frames, flow, self.motion_samples)}]

    def flow(self) -> SphereFlow:
        """The method that measures flow."""
        if self.network is None:
            return DISFlow()
        if str(self.network) == "gmflow":
            from ucpe.synthesis.curation.gmflow import GMFlow

            return GMFlow()
        return NetworkFlow(self.network)

    def verdict(self, row: Row) -> str:
        """Dropped without parallax."""
        return "no parallax: the camera stands still or only turns" if row["near_depth"] is None else ""


def motion_magnitude(
    frames: np.ndarray,  # (N, H, W, 3) uint8 equirectangular
    flow: SphereFlow,
    samples: int = 6,
) -> float:
    """Mean length of the flow between neighbouring frames over the sphere, in pixels of a 1024 wide panorama."""
    height, width = frames.shape[1:3]
    directions = sphere_directions(height, width)
    area = np.cos((0.5 - (np.arange(height) + 0.5) / height) * np.pi)[:, None] * np.ones(width)
    places = np.unique(np.linspace(0, len(frames) - 2, min(samples, len(frames) - 1)).round().astype(int))
    lengths = []
    for place in places:
        chord = np.linalg.norm(flow(frames[place], frames[place + 1]) - directions, axis=-1)
        lengths.append(np.average(2 * np.arcsin(np.clip(chord / 2, 0, 1)), weights=area))
    return float(np.mean(lengths) * MOTION_WIDTH / (2 * np.pi)) if lengths else 0.0
