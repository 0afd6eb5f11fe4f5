"""The Fréchet distance between two Gaussians fitted to features: what FID and FVD are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Gaussian:
    """Mean (D,) and covariance (D, D) of features."""

    mean: np.ndarray
    covariance: np.ndarray
    count: int

    @classmethod
    def of(
        cls,
        features: np.ndarray,  # (N, D)
    ) -> Gaussian:
        """The Gaussian fitted to at least two features."""
        features = np.asarray(features, np.float64)
        if features.ndim != 2 or len(features) < 2:
            raise ValueError(f"a covariance needs at least two features of shape (N, D), got {features.shape}")
        return cls(features.mean(0), np.atleast_2d(np.cov(features, rowvar=False)), len(features))


def frechet_distance(first: Gaussian, second: Gaussian) -> float:
    """Squared Fréchet distance |m1 - m2|^2 + trace(C1 + C2 - 2 (C1 C2)^1/2) of two Gaussians.

    The root's trace is computed from (C1^1/2 C2 C1^1/2)^1/2, which has the same trace, is symmetric, and stays real
    even with fewer features than dimensions.
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(f"cannot compare features of {first.mean.shape[0]} and {second.mean.shape[0]} dimensions")
    difference = first.mean - second.mean
    root = _square_root(first.covariance)
    crossed = np.linalg.eigvalsh(root @ second.covariance @ root)
    trace = np.sqrt(np.clip(crossed, 0, None)).sum()
    distance = difference @ difference + np.trace(first.covariance) + np.trace(second.covariance) - 2 * trace
    return max(float(distance), 0.0)


def _square_root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
