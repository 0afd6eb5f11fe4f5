"""Is a clip a whole monoscopic equirectangular panorama? Decided from its geometry alone.

In such a panorama the left border continues at the right one, the first and the last row are each one point of the
sphere and hence of one colour, nothing is black on purpose, and the upper half looks unlike the lower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step
from ucpe.synthesis.layouts import (
    CUBE,
    LOOK_HEIGHT,
    POLES,
    STEREO,
    cube_edges_alike,
    halves_alike,
    pole_ratios,
    seam,
    whole_width,
)


@dataclass(frozen=True)
class ProjectionCheck(Step):
    """Drops black borders, stereo layouts, other projections, and panoramas without poles."""

    name: ClassVar[str] = "projection"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "border": pa.float64(),
        "stereo": pa.float64(),
        "stereo_layout": pa.string(),
        "cube": pa.float64(),
        "seam": pa.float64(),
        "poles": pa.float64(),
    }
    thresholds: ClassVar[tuple[str, ...]] = (
        "max_border", "max_stereo", "max_cube", "aspect_tolerance", "max_seam", "max_poles",
    )  # fmt: skip
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("black borders", "border", "max_border", "black border, share of the height or width"),
        Rule("stereo", "stereo", "max_stereo", "correlation of the two halves"),
        Rule(
            "cubemap: make it equirectangular first, with ucpe render VIDEO --lens equirectangular",
            "cube", "max_cube", "correlation along the hidden edges of a cubemap",
        ),
        Rule("not twice as wide as high", "aspect", "aspect_tolerance"),
        Rule(
            "not equirectangular: left and right borders do not meet",
            "seam", "max_seam", "difference across the seam, near 0 in a panorama",
        ),
        Rule(
            "poles missing: first or last row is not a single point",
            "poles", "max_poles", "variation along the poles, near 0 in a panorama",
        ),
    )  # fmt: skip

    looks: int = 12
    """Number of frames of a clip that are looked at."""
    black: float = 20.0
    """Maximum brightness, 0 to 255, of a black border."""
    max_border: float = 0.01
    """Maximum share of the height or width that black borders may take."""
    max_stereo: float = 0.7
    """Maximum correlation of the upper and lower, or left and right, halves; above it the picture is stereo."""
    max_cube: float = CUBE
    """Maximum correlation along the hidden edges of an equi-angular cubemap; above it the picture is a cubemap."""
    aspect_tolerance: float = 0.02
    """Maximum relative difference between width / height and 2. Uploads of 16:9 count as squeezed panoramas of 2:1."""
    max_seam: float = 1.0
    """Maximum difference across the seam: near 0 where the left and right border meet, above 1 where they do not."""
    max_poles: float = POLES
    """Maximum variation of the first or last row, relative to rows further in: 0 at a pole, 1 where it is missing."""

    def run(self, clip: SourceClip) -> list[Row]:
        """Measures of a few frames: for borders the part that is black in all of them, else the median."""
        frames = clip.frames(self.looks, LOOK_HEIGHT).astype(np.float32)
        layouts = {name: float(np.median([halves_alike(frame, name) for frame in frames])) for name in STEREO}
        layout = max(layouts, key=layouts.__getitem__)
        return [
            {
                "border": black_border(frames, self.black),
                "stereo": layouts[layout],
                "stereo_layout": layout,
                "cube": float(np.median([cube_edges_alike(frame) for frame in frames])),
                "seam": float(np.median([seam(frame) for frame in frames])),
                "poles": float(np.median([pole_ratios(frame) for frame in frames], axis=0).max()),
            }
        ]

    def verdict(self, row: Row) -> str:
        """The first rule that is broken; a stereo layout is named."""
        width = whole_width(row["height"], row["width"])
        reason = super().verdict({**row, "aspect": abs(width / row["height"] / 2 - 1)})
        return f"stereo, {row['stereo_layout']}" if reason == "stereo" else reason


def black_border(
    frames: np.ndarray,  # (N, H, W, 3)
    black: float = 20.0,
) -> float:
    """Share of the height or width, whichever is larger, that is black at the borders of all frames.

    A border ends in a straight line across the picture; a dark sky or floor does not.
    """
    brightest = frames.max(-1).max(0)  # (H, W)
    shares = []
    for picture in (brightest, brightest.T):
        lines = np.percentile(picture, 98, axis=1) <= black
        border = 0
        for ordered, content in ((lines, picture), (lines[::-1], picture[::-1])):
            depth = int(np.argmin(ordered)) if not ordered.all() else len(ordered)
            if 0 < depth < len(ordered):
                inside = content[min(depth + 1, len(ordered) - 1)]
                border += depth if (inside > black + 10).mean() > 0.5 else 0
            elif depth:
                border = len(ordered)
        shares.append(min(border / len(lines), 1.0))
    return max(shares)
