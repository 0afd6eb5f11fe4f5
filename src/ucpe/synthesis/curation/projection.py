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

from ucpe.synthesis.curation.steps import Clip, Row, Step

LOOK_HEIGHT = 320
"""Height in pixels at which clips are looked at."""

POLE_DISTANCE = 0.06
"""Share of the height between the first row and the one that it is compared with."""

PLAIN = 6.0
"""Standard deviation in grey levels of a row below which nothing can be said of a pole."""


@dataclass(frozen=True)
class ProjectionCheck(Step):
    """Drops black borders, stereo layouts, other projections, and panoramas without poles."""

    name: ClassVar[str] = "projection"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "border": pa.float64(),
        "stereo": pa.float64(),
        "stereo_layout": pa.string(),
        "seam": pa.float64(),
        "poles": pa.float64(),
    }
    thresholds: ClassVar[tuple[str, ...]] = (
        "largest_border", "largest_stereo", "aspect_tolerance", "largest_seam", "largest_poles",
    )  # fmt: skip

    looks: int = 12
    """Frames of a clip that are looked at."""
    black: float = 20.0
    """Brightness, 0 to 255, up to which a border is black."""
    largest_border: float = 0.01
    """Share of the height or width that black borders may take."""
    largest_stereo: float = 0.7
    """Correlation of the two halves of a picture, upper and lower or left and right, up to which it is one picture."""
    aspect_tolerance: float = 0.02
    """How far width / height may be from 2, as a share."""
    largest_seam: float = 3.0
    """How many times more than neighbouring columns the first and the last column may differ."""
    largest_poles: float = 0.7
    """How much the first or the last row may vary, in units of rows further in."""

    def run(self, clip: Clip) -> list[Row]:
        """Measures of a few frames: the median over them, for borders the smallest."""
        frames = clip.frames(self.looks, LOOK_HEIGHT).astype(np.float32)
        layouts = {name: float(np.median([halves_alike(frame, name) for frame in frames])) for name in LAYOUTS}
        layout = max(layouts, key=layouts.__getitem__)
        return [
            {
                "border": black_border(frames, self.black),
                "stereo": layouts[layout],
                "stereo_layout": layout,
                "seam": float(np.median([seam_ratio(frame) for frame in frames])),
                "poles": float(np.median([pole_ratios(frame) for frame in frames], axis=0).max()),
            }
        ]

    def verdict(self, row: Row) -> str:
        """The first rule that is broken."""
        if row["border"] > self.largest_border:
            return "black borders"
        if row["stereo"] > self.largest_stereo:
            return f"stereo, {row['stereo_layout']}"
        if abs(row["width"] / row["height"] / 2 - 1) > self.aspect_tolerance:
            return "not twice as wide as high"
        if row["seam"] > self.largest_seam:
            return "not equirectangular: left and right borders do not meet"
        return "poles missing: first or last row is no point" if row["poles"] > self.largest_poles else ""


LAYOUTS = ("top-bottom", "left-right")


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


def halves_alike(
    frame: np.ndarray,  # (H, W, 3)
    layout: str,
) -> float:
    """Correlation of detail in the two halves, -1 to 1, at the sideways shift at which it is highest."""
    import cv2

    grey = frame.mean(-1)
    grey = grey - cv2.GaussianBlur(grey, (0, 0), grey.shape[0] / 20)
    height, width = grey.shape
    if layout == "top-bottom":
        first, second = grey[: height // 2], grey[height // 2 : height // 2 * 2]
    else:
        first, second = grey[:, : width // 2], grey[:, width // 2 : width // 2 * 2]
    shift = max(first.shape[1] // 25, 1)
    inner = np.ascontiguousarray(first[:, shift:-shift])
    if inner.std() < 1e-3 or second.std() < 1e-3:
        return 0.0
    return float(cv2.matchTemplate(np.ascontiguousarray(second), inner, cv2.TM_CCOEFF_NORMED).max())


def seam_ratio(
    frame: np.ndarray,  # (H, W, 3)
) -> float:
    """How much the first and the last column differ, in units of how much neighbouring columns do; 1 in a panorama.

    Medians over rows: an edge of the scene on the seam changes nothing.
    """
    across = np.median(np.abs(frame[:, 0] - frame[:, -1]).mean(-1))
    within = np.median(np.abs(np.diff(frame, axis=1)).mean(-1), axis=0)
    return float(across / max(np.percentile(within, 75), 0.5))


def pole_ratios(
    frame: np.ndarray,  # (H, W, 3)
) -> tuple[float, float]:
    """How much the first and the last row vary, in units of rows further in: 0 at a pole, 1 where it is cut off."""
    grey = frame.mean(-1)
    inward = max(round(POLE_DISTANCE * len(grey)), 1)
    top = grey[0].std() / max(grey[inward].std(), PLAIN)
    return float(top), float(grey[-1].std() / max(grey[-1 - inward].std(), PLAIN))
