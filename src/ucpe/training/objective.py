"""Wan's training objective: flow matching with shifted noise levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class FlowMatching:
    """Straight paths from data to noise; the model predicts noise - data.

    `shift` > 1 moves training towards high noise, as Wan does for video; `weighting` "bell" is the weight that Wan
    fine-tuning uses, largest at middling timesteps, "none" weighs all alike.
    """

    shift: float = 5.0
    weighting: str = "bell"
    train_timesteps: int = 1000

    def __post_init__(self) -> None:
        if self.shift <= 0:
            raise ValueError(f"shift must be above 0, got {self.shift}")
        if self.weighting not in ("bell", "none"):
            raise ValueError(f"weighting must be 'bell' or 'none', got {self.weighting!r}")

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Noise levels (count,) in (0, 1], spread evenly over the batch before shifting."""
        offset = torch.rand((), generator=generator)
        uniform = (torch.randperm(count, generator=generator) + offset) / count
        return self.shifted(1 - uniform * (1 - 1e-3))

    def shifted(self, level: Tensor) -> Tensor:
        """Noise levels after the shift."""
        return self.shift * level / (1 + (self.shift - 1) * level)

    def noisy(self, latents: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """Latents with noise mixed in at levels that broadcast to them."""
        return (1 - level) * latents + level * noise

    def weight(self, level: Tensor) -> Tensor:
        """Loss weight of each noise level, 1 on average over a sampling schedule."""
        if self.weighting == "none":
            return torch.ones_like(level)
        offset, mean = _bell_normalisation(self.shift, self.train_timesteps)
        return (_bell(level) - offset) / mean


def denoising_loss(
    prediction: Tensor,  # (B, C, F, h, w)
    latents: Tensor,
    noise: Tensor,
    level: Tensor,  # (B, 1, F, 1, 1), zero where the frame was given
    objective: FlowMatching,
) -> Tensor:
    """Weighted squared error (B,) over the latent frames that are not given."""
    error = (prediction.float() - (noise - latents).float()).square().mean(dim=(1, 3, 4))
    given = level[:, 0, :, 0, 0] == 0
    error = error.masked_fill(given, 0.0).sum(-1) / (~given).sum(-1).clamp(min=1)
    return objective.weight(level.amax(dim=(1, 2, 3, 4))) * error


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
