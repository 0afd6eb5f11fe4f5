"""Means with confidence intervals, and what failures do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
"""Bootstrap resamples behind an interval."""

LEVEL = 0.95
"""Coverage of an interval."""


@dataclass(frozen=True)
class Summary:
    """A metric over videos."""

    mean: float
    low: float
    high: float
    """95 % bootstrap interval of the mean over the videos that could be measured."""
    median: float
    count: int
    """Videos that could be measured."""
    failures: int
    worst_case: float
    """Mean over all attempted videos where a failure counts as the worst case."""


def summarise(values: Sequence[float], worst: Sequence[float] = (), seed: int = 0) -> Summary | None:
    """Summary of a metric over the videos measured and those that failed, whose worst-case values are given.

    A failure counts as its own worst-case value or the largest value measured, whichever is larger; values for which
    more is better must be negated by the caller. None if nothing was measured.
    """
    measured = np.asarray(values, np.float64)
    if len(measured) == 0:
        return None
    low, high = bootstrap_interval(measured, seed)
    failed = np.maximum(np.asarray(worst, np.float64), measured.max()) if len(worst) else np.zeros(0)
    return Summary(
        mean=float(measured.mean()),
        low=low,
        high=high,
        median=float(np.median(measured)),
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
