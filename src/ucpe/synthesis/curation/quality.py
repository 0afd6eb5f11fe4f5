"""How good pictures look, from 0 to 1, without a reference: sharp, free of noise and blocks, well exposed.

The score is the product of four factors, each 1 in a good picture and 0 in a hopeless one:

- sharpness: how much of the contrast between neighbours a blur removes (Crete et al. 2007); little if it was blurred;
- noise: standard deviation of a Laplacian difference (Immerkaer 1996) in the calmer parts of the picture;
- blocks: differences at the borders of 8 x 8 blocks against those elsewhere;
- exposure: contrast, and how much is neither black nor white.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step

BLOCK = 8
"""Side in pixels of the blocks of JPEG and of old video codecs."""

STEP = 6.0
"""Grey levels beyond which a difference between neighbours belongs to the scene, not to a block."""

FAULTS = {"sharpness": "blurred", "cleanness": "noisy", "smoothness": "blocky", "exposure": "badly exposed"}
"""The four factors, and what a picture is in which one is low."""


@dataclass(frozen=True)
class QualityCheck(Step):
    """Drops hopeless pictures and scores the others."""

    name: ClassVar[str] = "quality"
    columns: ClassVar[Mapping[str, pa.DataType]] = dict.fromkeys((*FAULTS, "quality"), pa.float64())
    thresholds: ClassVar[tuple[str, ...]] = ("min_quality",)
    rules: ClassVar[tuple[Rule, ...]] = (Rule("low quality", "quality", "min_quality", "quality score", lowest=True),)

    backend: Literal["statistics", "q-align"] = "statistics"
    """Ours, or the paper's Q-Align through pyiqa, which must be installed (and wants a GPU)."""
    stills: int = 3
    """Number of frames of a clip that are judged, at full size."""
    min_quality: float = 0.2
    """Score below which a clip is dropped. The paper gives no number: it ranks clips by this score."""

    def check(self) -> None:
        """Raise ValueError if Q-Align is chosen and its package is missing."""
        if self.backend == "q-align":
            _pyiqa()

    def run(self, clip: SourceClip) -> list[Row]:
        """Factors and score, each 0 to 1, averaged over a few frames."""
        if self.backend == "q-align":
            score = float(np.mean([q_align(still) for still in clip.stills(self.stills)]))
            return [dict.fromkeys(self.columns) | {"quality": score}]
        factors = np.mean([picture_factors(still) for still in clip.stills(self.stills)], axis=0)
        return [dict(zip(FAULTS, factors.tolist())) | {"quality": float(factors.prod())}]

    def verdict(self, row: Row) -> str:
        """Dropped with a low score; the reason names the worst factor."""
        if row["quality"] >= self.min_quality:
            return ""
        known = {fault: row[name] for name, fault in FAULTS.items() if row[name] is not None}
        return f"low quality: {min(known, key=known.__getitem__)}" if known else "low quality"


def picture_factors(
    picture: np.ndarray,  # (H, W, 3) uint8
) -> tuple[float, float, float, float]:
    """Sharpness, cleanness, smoothness and exposure of a panorama between 60 degrees north and south, each 0 to 1."""
    import cv2

    sixth = len(picture) // 6 // BLOCK * BLOCK
    grey = cv2.cvtColor(np.ascontiguousarray(picture[sixth : len(picture) - sixth]), cv2.COLOR_RGB2GRAY)
    grey = grey.astype(np.float32)
    return (
        _ramp(blur(grey), 0.7, 0.45),
        _ramp(noise(grey), 16.0, 3.0),
        _ramp(blocks(grey), 3.0, 1.4),
        _ramp(float(grey.std()), 4.0, 20.0) * _ramp(float(((grey <= 6) | (grey >= 249)).mean()), 0.9, 0.4),
    )


def blur(
    grey: np.ndarray,  # (H, W) float32
) -> float:
    """Crete's blur from 0 (sharp) to 1: the share of differences between neighbours that survives another blur."""
    import cv2

    worst = 0.0
    for axis, size in ((0, (1, 9)), (1, (9, 1))):
        before = np.abs(np.diff(grey, axis=axis))
        after = np.abs(np.diff(cv2.blur(grey, size), axis=axis))
        lost = np.maximum(before - after, 0).sum()
        worst = max(worst, 1 - float(lost / max(before.sum(), 1e-6)))
    return worst


def noise(
    grey: np.ndarray,  # (H, W) float32
) -> float:
    """Standard deviation of noise in grey levels, where the picture is calm and neither black nor white."""
    import cv2

    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    size = 16
    rows, columns = (side // size for side in grey.shape)
    tiles = np.abs(cv2.filter2D(grey, -1, kernel))[: rows * size, : columns * size]
    tiles = tiles.reshape(rows, size, columns, size).mean((1, 3)) * np.sqrt(np.pi / 2) / 6
    level = grey[: rows * size, : columns * size].reshape(rows, size, columns, size).mean((1, 3))
    usable = (level > 16) & (level < 240)
    return float(np.percentile(tiles[usable], 20)) if usable.any() else 0.0


def blocks(
    grey: np.ndarray,  # (H, W) float32
) -> float:
    """How many times more neighbours differ at the borders of 8 x 8 blocks than elsewhere; 1 without blocks."""
    worst = 1.0
    for picture in (grey, grey.T):
        steps = np.minimum(np.abs(np.diff(picture, axis=1)), STEP).mean(0)
        usable = len(steps) // BLOCK * BLOCK
        by_place = steps[:usable].reshape(-1, BLOCK).mean(0)
        elsewhere = np.delete(by_place, BLOCK - 1).mean()
        worst = max(worst, float(by_place[BLOCK - 1] / max(elsewhere, 0.05)))
    return worst


def q_align(
    picture: np.ndarray,  # (H, W, 3) uint8
) -> float:
    """Mean of Q-Align's image quality and aesthetics, brought from 1..5 to 0..1."""
    import torch

    tensor = torch.from_numpy(picture.copy()).permute(2, 0, 1)[None].float() / 255
    metric = _q_align()
    scores = [float(metric(tensor, task_=task)) for task in ("quality", "aesthetic")]
    return float(np.clip((np.mean(scores) - 1) / 4, 0, 1))


def _ramp(value: float, worst: float, best: float) -> float:
    return float(np.clip((value - worst) / (best - worst), 0, 1))


@cache
def _q_align() -> Any:
    return _pyiqa().create_metric("qalign")


def _pyiqa() -> Any:
    try:
        import pyiqa
    except ImportError as error:
        raise ValueError(
            f"Q-Align needs pyiqa ({error}): pip install pyiqa, or leave the backend at statistics"
        ) from None
    return pyiqa
