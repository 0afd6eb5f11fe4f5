"""Means with confidence intervals, and what failures do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
"""Number of bootstrap resamples behind an interval."""

LEVEL = 0.95
"""Coverage of an interval."""


@dataclass(frozen=True)
class Summary:
    """A metric over videos."""

    mean: float | None
    """Mean over the videos that could be measured; None if there is none."""
    low: float | None
    high: float | None
    """95 % bootstrap interval of that mean; None for fewer than two videos, which say nothing about their spread."""
    median: float | None
    count: int
    """Number of videos that could be measured."""
    failures: int
    worst_case: float
    """Mean over all attempted videos where a failure counts as the worst case."""


def summarise(values: Sequence[float], worst: Sequence[float] = (), seed: int = 0) -> Summary | None:
    """Summary of a metric over the measured `values` and the failed videos, given their `worst` values.

    A failure counts as its own worst value or the largest measured value, whichever is larger; values for which more is
    better must be negated by the caller. None if there is no video at all.
    """
    measured = np.asarray(values, np.float64)
    if len(measured) + len(worst) == 0:
        return None
    low, high = bootstrap_interval(measured, seed) if len(measured) > 1 else (None, None)
    failed = np.maximum(np.asarray(worst, np.float64), measured.max(initial=-np.inf))
    return Summary(
        mean=float(measured.mean()) if len(measured) else None,
        low=low,
        high=high,
        median=float(np.median(measured)) if len(measured) else None,
        count=len(measured),
        failures=len(failed),
        worst_case=float(np.concatenate([measured, failed]).mean()),
    )


def bootstrap_interval(
    values: np.ndarray,  # (N,)
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; the same values and seed always give the same interval."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(len(values), size=(resamples, len(values)))
    low, high = np.quantile(values[chosen].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
