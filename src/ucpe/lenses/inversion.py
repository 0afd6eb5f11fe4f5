"""Inverting a growing function by safeguarded Newton steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def iteration_dtype(like: Tensor) -> torch.dtype:
    """Precision for iterations: float64 wherever the device has it."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def solve_increasing(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],  # x -> value, slope
    target: Tensor,  # (...)
    limit: Tensor,  # (...), the function grows on [0, limit]
    iterations: int = 100,
) -> tuple[Tensor, Tensor]:
    """Solution (...) in [0, limit) of function(x) = target >= 0 with function(0) = 0, and where it exists."""
    low, high = torch.zeros_like(target), limit.clone()
    exists = target < function(high)[0]
    x = torch.minimum(target, limit / 2)
    for _ in range(iterations):
        value, slope = function(x)
        below = value < target
        low, high = torch.where(below, x, low), torch.where(below, high, x)
        newton = x - (value - target) / torch.where(slope > 0, slope, torch.ones_like(slope))
        inside = (newton > low) & (newton < high) & (slope > 0)
        step = torch.where(inside, newton, (low + high) / 2)
        if not bool(((step - x).abs() > 1e-15 * (1 + x.abs()))[exists].any()):
            break
        x = step
    return torch.where(exists, x, torch.zeros_like(x)), exists
