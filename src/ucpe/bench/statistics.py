"""What repeated runs allow one to say: means with spread, and paired differences with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

LEVEL = 0.95
"""Coverage of every interval."""

Verdict = Literal["better", "worse", "undecided", "one seed"]


@dataclass(frozen=True)
class Spread:
    """A metric over seeds."""

    mean: float
    deviation: float | None
    """Standard deviation between seeds, None for a single one."""
    seeds: int
    clips: int
    """Clips, or videos, that it is the mean of, the same ones with every seed."""


@dataclass(frozen=True)
class Difference:
    """How much larger one contestant's metric is than another's, on the same seeds and the same clips."""

    mean: float
    low: float | None
    """End of the interval, None if one seed cannot give one."""
    high: float | None
    seeds: int
    clips: int
    more_is_better: bool = True
    verdict: Verdict = field(init=False)
    """"better" or "worse" only where the interval leaves out zero."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", self._judge())

    def _judge(self) -> Verdict:
        if self.low is None or self.high is None:
            return "one seed"
        if not (self.low > 0 or self.high < 0):
            return "undecided"
        return "better" if (self.low > 0) == self.more_is_better else "worse"


def spread_of(
    seeds: Mapping[int, np.ndarray],  # (clips,) each, NaN where a clip could not be measured
) -> Spread | None:
    """Mean and spread over the clips that were measured with every seed; None without seeds."""
    return spread(_measured(list(seeds.values()))) if seeds else None


def difference_of(
    seeds: Mapping[int, np.ndarray],  # (clips,) each, NaN where a clip could not be measured
    reference: Mapping[int, np.ndarray],
    more_is_better: bool = True,
) -> Difference | None:
    """Difference to a reference, on the seeds and measured clips that both have in common."""
    both = sorted(seeds.keys() & reference.keys())
    if not both:
        return None
    first, second = np.split(_measured([found[seed] for found in (seeds, reference) for seed in both]), 2)
    return paired_difference(first, second, more_is_better=more_is_better)


def spread(
    values: np.ndarray,  # (seeds, clips)
) -> Spread:
    """Mean over seeds and clips, and the standard deviation of the seeds' means."""
    means = np.asarray(values, np.float64).mean(1)
    deviation = float(means.std(ddof=1)) if len(means) > 1 else None
    return Spread(float(means.mean()), deviation, *np.shape(values))


def paired_difference(
    first: np.ndarray,  # (seeds, clips)
    second: np.ndarray,  # (seeds, clips), of the same seeds and clips
    level: float = LEVEL,
    more_is_better: bool = True,
) -> Difference:
    """Mean of first - second with an interval for new seeds and new clips alike.

    Seeds and clips are two samples: the variance of the mean is that of the seeds' means over the number of seeds plus
    that of the clips' means over the number of clips (which counts what is left over twice, so it errs on the wide
    side), with Welch and Satterthwaite's degrees of freedom. With few seeds the interval is wide, as it should be.
    """
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    if difference.ndim != 2 or difference.size == 0:
        raise ValueError(f"values must be (seeds, clips), got {difference.shape}")
    seeds, clips = difference.shape
    mean = float(difference.mean())
    if seeds < 2:
        return Difference(mean, None, None, seeds, clips, more_is_better)
    parts = [(difference.mean(1).var(ddof=1) / seeds, seeds - 1)]
    if clips > 1:
        parts.append((difference.mean(0).var(ddof=1) / clips, clips - 1))
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Difference(mean, mean, mean, seeds, clips, more_is_better)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    reach = t_quantile((1 + level) / 2, freedom) * math.sqrt(variance)
    return Difference(mean, mean - reach, mean + reach, seeds, clips, more_is_better)


def _measured(rows: list[np.ndarray]) -> np.ndarray:
    """Rows (N, clips) of the clips measured in every row, or of all clips if there are none."""
    values = np.stack(rows)
    measured = np.isfinite(values).all(0)
    return values[:, measured] if measured.any() else values


def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t distribution for probability in [0.5, 1) and at least one degree of freedom.

    >>> round(t_quantile(0.975, 2), 4)
    4.3027
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"need probability in [0.5, 1) and freedom >= 1, got {probability} and {freedom}")
    # With t = sqrt(freedom) tan(angle) the density is cos(angle)^(freedom - 1), and the range finite.
    end = math.atan(12 / math.sqrt(freedom)) if freedom > 20 else math.pi / 2
    angle = np.linspace(0, end, 40_001)
    density = np.cos(angle).clip(0) ** (freedom - 1)
    share = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    return float(math.sqrt(freedom) * np.tan(np.interp(2 * probability - 1, share / share[-1], angle)))
