"""Which matches to keep (supplement A.3): the best first, as long as no panorama, motion, place or speed dominates."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

UNKNOWN = "unknown"
"""Category of a clip without one."""

BLOCK = 8192
"""Number of candidates looked at together: those that already break a limit are struck out at once."""


@dataclass(frozen=True)
class Scoring:
    """How good a clip is, from 0 to 1: the mean of quality, freedom from watermarks, and steadiness."""

    max_rotation: float = 30.0
    """Rotation score in degrees at which steadiness reaches 0; clips beyond it are not used (the paper removes
    "excessive drift" without a number)."""

    def __post_init__(self) -> None:
        if not 0 < self.max_rotation <= 180:
            raise ValueError(f"max_rotation must be in (0, 180] degrees, got {self.max_rotation:g}")

    def score(
        self,
        quality: np.ndarray,  # (P,)
        watermark: np.ndarray,  # (P,)
        rotation_score: np.ndarray,  # (P,) degrees
    ) -> np.ndarray:
        """Scores (P,); NaN for clips that turn too much to be used."""
        steadiness = 1 - rotation_score / self.max_rotation
        score = (quality + (1 - watermark) + steadiness) / 3
        return np.where(rotation_score <= self.max_rotation, score, np.nan)


@dataclass(frozen=True)
class Limits:
    """Diversity limits of a selection, at the paper's values."""

    per_panorama: int = 5
    """Maximum number of matches per panoramic clip."""
    per_motion: int = 100
    """Maximum number of matches per motion."""
    per_category: int = 1000
    """Maximum number of matches per category; a match is skipped once every category of its clip is full."""
    per_magnitude: int = 2000
    """Maximum number of matches per bin of motion magnitude."""
    magnitude_width: float = 10.0
    """Width of a bin of motion magnitude, in pixels per frame."""
    total: int | None = None
    """Maximum number of matches in all."""

    def __post_init__(self) -> None:
        for name in ("per_panorama", "per_motion", "per_category", "per_magnitude", "total"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        if not (math.isfinite(self.magnitude_width) and self.magnitude_width > 0):
            raise ValueError(f"magnitude_width must be a positive number, got {self.magnitude_width}")


TEST_LIMITS = Limits(per_panorama=2, per_motion=5, per_category=10, per_magnitude=40, total=68)
"""Limits of the test split. The paper says "stricter" and 272 test clips: 68 matches in four variants each, which come
from 64 panoramic clips in the published set. The other numbers are ours."""


@dataclass(frozen=True)
class ClipFacts:
    """What selection knows about the panoramic clips."""

    score: np.ndarray  # (P,) 0 to 1, NaN if not to be used
    magnitude: np.ndarray  # (P,) pixels per frame
    categories: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Candidates:
    """Matches to choose from."""

    clip: np.ndarray  # (C,) indices of the clips
    motion: np.ndarray  # (C,) indices of the motions
    rmse: np.ndarray  # (C,) near-plane depths

    def take(
        self,
        rows: np.ndarray,  # (S,)
    ) -> Candidates:
        """The candidates in some rows."""
        return Candidates(self.clip[rows], self.motion[rows], self.rmse[rows])


def select(candidates: Candidates, clips: ClipFacts, limits: Limits | None = None) -> np.ndarray:
    """Rows (S,) of the chosen candidates in the order in which they were chosen.

    Candidates are tried from the best to the worst clip, and for one clip from the closest motion on (then by row, so
    that the result depends on nothing else). Each is taken unless it breaks a limit.
    """
    limits = limits or Limits()
    places, number = _places(clips.categories)
    bins = np.floor(clips.magnitude / limits.magnitude_width).astype(np.int64)
    bins = np.unique(bins, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((candidates.motion, candidates.rmse, candidates.clip, -clips.score[candidates.clip]))
    order = order[~np.isnan(clips.score[candidates.clip[order]])]

    of_clip, of_bin = np.zeros(len(clips.score), np.int64), np.zeros(int(bins.max(initial=-1)) + 1, np.int64)
    of_motion = np.zeros(int(candidates.motion.max(initial=-1)) + 1, np.int64)
    of_category = np.append(np.zeros(number, np.int64), np.iinfo(np.int64).max // 2)
    chosen: list[int] = []
    total = math.inf if limits.total is None else limits.total

    def has_room(rows: Any) -> Any:
        """Whether a candidate, or each of several, breaks no limit."""
        clip = candidates.clip[rows]
        room = (of_motion[candidates.motion[rows]] < limits.per_motion) & (of_clip[clip] < limits.per_panorama)
        room &= of_bin[bins[clip]] < limits.per_magnitude
        return room & (of_category[places[clip]] < limits.per_category).any(-1)

    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        for row in block[has_room(block)].tolist():
            if len(chosen) >= total:
                return np.array(chosen, np.int64)
            if has_room(row):
                chosen.append(row)
                clip = candidates.clip[row]
                of_clip[clip] += 1
                of_motion[candidates.motion[row]] += 1
                of_bin[bins[clip]] += 1
                of_category[places[clip]] += 1
    return np.array(chosen, np.int64)


def is_test(key: str, share: float, seed: int = 0) -> bool:
    """Whether a source or motion is for testing; decided by its name alone, so new ones do not change the others.

    >>> sum(is_test(f"video {n}", 0.1) for n in range(1000))
    109
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def category_counts(categories: Sequence[Sequence[str]]) -> dict[str, int]:
    """Number of clips or matches in every category, largest first."""
    counts: dict[str, int] = {}
    for names in categories:
        for name in set(names) or {UNKNOWN}:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def evenness(counts: Mapping[str, int]) -> float:
    """Shannon entropy of counts relative to its largest value: 1 if all are equal, 0 if one has everything."""
    values = np.array([count for count in counts.values() if count], dtype=np.float64)
    if len(counts) < 2 or not len(values):
        return 1.0
    shares = values / values.sum()
    return abs(float((shares * np.log(shares)).sum() / math.log(len(counts))))


def _places(categories: Sequence[Sequence[str]]) -> tuple[np.ndarray, int]:
    """Category indices (P, K) of the clips, padded with the number of categories, and that number."""
    known: dict[str, int] = {}
    rows = [[known.setdefault(name, len(known)) for name in dict.fromkeys(names or [UNKNOWN])] for names in categories]
    places = np.full((len(rows), max(map(len, rows), default=1)), len(known), np.int64)
    for place, row in zip(places, rows):
        place[: len(row)] = row
    return places, len(known)
