"""Wan's training objective: flow matching with shifted noise levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class FlowMatching:
    """Straight paths from data to noise; the model predicts noise - data.

    `shift` > 1 moves training towards high noise, as Wan does for video; `weighting` "bell" is the weight that Wan
    fine-tuning uses, largest at middling timesteps, "none" weighs all alike.
    """

    shift: float = 5.0
    weighting: Literal["bell", "none"] = "bell"
    train_timesteps: int = 1000
    min_level: float = 0.0
    """Lowest noise level trained on, from 0 to 1; an expert of Wan2.2 A14B sees only its part."""
    max_level: float = 1.0
    """Highest noise level trained on."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_level < self.max_level <= 1:
            raise ValueError(
                f"min_level must be below max_level, both between 0 and 1, got {self.min_level} and {self.max_level}"
            )
        if self.shift <= 0:
            raise ValueError(f"shift must be above 0, got {self.shift}")
        if self.weighting not in ("bell", "none"):
            raise ValueError(f"weighting must be 'bell' or 'none', got {self.weighting!r}")

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Noise levels (count,) above 0 and within the range trained on, spread evenly before shifting."""
        offset = torch.rand((), generator=generator)
        uniform = (torch.randperm(count, generator=generator) + offset) / count
        low, high = (level / (self.shift - (self.shift - 1) * level) for level in (self.min_level, self.max_level))
        return self.shifted(high - uniform * (high - max(low, 1e-3)))

    def shifted(self, level: Tensor) -> Tensor:
        """Noise levels after the shift."""
        return self.shift * level / (1 + (self.shift - 1) * level)

    def weight(self, level: Tensor) -> Tensor:
        """Loss weight of each noise level, 1 on average over a sampling schedule."""
        if self.weighting == "none":
            return torch.ones_like(level)
        offset, mean = _bell_normalisation(self.shift, self.train_timesteps)
        return (_bell(level) - offset) / mean


def denoising_loss(
    prediction: Tensor,  # (B, C, F, h, w)
    velocity: Tensor,  # (B, C, F, h, w)
    level: Tensor,  # (B, 1, F, 1, 1), zero where the frame was given
    objective: FlowMatching,
    visible: Tensor | None = None,  # (B, 1, F, h, w) bool
) -> Tensor:
    """Weighted squared error (B,)."""
    return objective.weight(level.amax(dim=(1, 2, 3, 4))) * denoising_error(prediction, velocity, level, visible)


def denoising_error(
    prediction: Tensor,  # (B, C, F, h, w)
    velocity: Tensor,  # (B, C, F, h, w)
    level: Tensor,  # (B, 1, F, 1, 1), zero where the frame was given
    visible: Tensor | None = None,  # (B, 1, F, h, w) bool
) -> Tensor:
    """Squared error (B,) over the latent frames that are not given, where the lens sees anything."""
    error = (prediction.float() - velocity.float()).square()
    given = level[:, 0, :, 0, 0] == 0
    if visible is None:
        per_frame = error.mean(dim=(1, 3, 4))
        return per_frame.masked_fill(given, 0.0).sum(-1) / (~given).sum(-1).clamp(min=1)
    counted = visible[:, 0] & ~given[:, :, None, None]
    return (error.mean(dim=1) * counted).sum(dim=(1, 2, 3)) / counted.sum(dim=(1, 2, 3)).clamp(min=1)


def _bell(level: Tensor) -> Tensor:
    return torch.exp(-2 * (level - 0.5).square())


@cache
def _bell_normalisation(shift: float, steps: int) -> tuple[float, float]:
    """Lowest value and mean excess of the bell over the shifted schedule of `steps` timesteps."""
    level = torch.linspace(1, 1 / steps, steps, dtype=torch.float64)
    bell = _bell(shift * level / (1 + (shift - 1) * level))
    low = bell.min().item()
    mean = (bell - low).mean().item()
    return low, mean if math.isfinite(mean) and mean > 0 else 1.0
