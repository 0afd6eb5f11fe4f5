"""Numerical helpers of the lenses: safe gradients, searching and inverting growing functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def norm(vector: Tensor) -> Tensor:
    """Length (...) of vectors (..., n) with a finite gradient at zero."""
    squared = (vector * vector).sum(-1)
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1).sqrt(), squared)


def largest_component(vector: Tensor) -> Tensor:
    """Largest absolute component (..., 1) of vectors (..., n), without gradient; 1 for the zero vector."""
    largest = vector.detach().abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, torch.ones_like(largest))


def safe_sqrt(value: Tensor) -> tuple[Tensor, Tensor]:
    """Square root where positive (1 elsewhere, with zero gradient), and where that is."""
    positive = value > 0
    return torch.where(positive, value, torch.ones_like(value)).sqrt(), positive


def safe_divide(numerator: Tensor, denominator: Tensor, usable: Tensor) -> Tensor:
    """Quotient where usable, with no NaN in value or gradient elsewhere."""
    return numerator / torch.where(usable, denominator, torch.ones_like(denominator))


def angle_between(first: Tensor, second: Tensor) -> Tensor:
    """Angle in radians (...) between directions (..., 3), accurate also when small."""
    return torch.atan2(norm(torch.linalg.cross(first, second)), (first * second).sum(-1))


def widest_dtype(device: torch.device) -> torch.dtype:
    """Most precise floating dtype that a device has."""
    return torch.float32 if device.type == "mps" else torch.float64


def geometry_dtype() -> torch.dtype:
    """Dtype of results when none is asked for: torch's default, but float32 at least."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def flatten_after(value: Tensor, count: int) -> Tensor:
    """All dimensions after the first `count` as one, detached and in the widest dtype."""
    shape = (*value.shape[:count], math.prod(value.shape[count:]))
    return value.detach().to(widest_dtype(value.device)).reshape(shape)


def furthest(
    visible: Callable[[Tensor], Tensor],  # (..., n) -> (..., n) bool
    end: Tensor,  # (...)
) -> Tensor:
    """Largest value (...) in [0, end] up to which everything is visible; 0 if nothing is."""
    low, high = torch.zeros_like(end), end
    if bool(visible(end[..., None]).all()):
        return end
    share = torch.linspace(0, 1, 513, dtype=end.dtype, device=end.device)
    for _ in range(5):
        grid = torch.lerp(low[..., None], high[..., None], share)
        count = visible(grid).long().cumprod(-1).sum(-1, keepdim=True)
        low = grid.gather(-1, (count - 1).clamp(min=0))[..., 0]
        high = grid.gather(-1, count.clamp(max=512))[..., 0]
    return low


def invert_increasing(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],  # (*batch, n) -> value, slope
    target: Tensor,  # (*batch, n), not negative
    nodes: Tensor,  # (*batch, m), ascending from 0, over which the function grows from 0
    steps: int = 60,
) -> tuple[Tensor, Tensor]:
    """Solution (*batch, n) of function(x) = target, and where it exists; the last node where it does not.

    A table of the function at the nodes brackets every solution, then guarded Newton steps find it.
    """
    nodes = nodes.expand(*target.shape[:-1], nodes.shape[-1])
    table = function(nodes)[0].cummax(-1).values
    exists = target < table[..., -1:]
    above = torch.searchsorted(table, target.contiguous(), right=True).clamp(1, nodes.shape[-1] - 1)
    low, high = nodes.gather(-1, above - 1), nodes.gather(-1, above)
    low_value, high_value = table.gather(-1, above - 1), table.gather(-1, above)
    x = low + (high - low) * (target - low_value) / (high_value - low_value).clamp(min=1e-300)
    x = torch.where(exists, x, high)
    for _ in range(steps):
        value, slope = function(x)
        error = value - target
        if not bool(((error.abs() > 1e-14 * (1 + target)) & exists).any()):
            break
        low, high = torch.where(error < 0, x, low), torch.where(error > 0, x, high)
        newton = x - error / slope
        step = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        x = torch.where(exists, step, x)
    return x, exists


def smallest_positive_root(coefficients: Tensor) -> Tensor:
    """Smallest s > 0 (...) with 1 + a1 s + ... + an s^n = 0, for coefficients (..., n); inf where there is none."""
    count = coefficients.shape[-1]
    companion = torch.diag(coefficients.new_ones(count - 1), -1).repeat(*coefficients.shape[:-1], 1, 1)
    companion[..., 0, :] = -coefficients.double().cpu()
    try:
        reciprocal = torch.linalg.eigvals(companion)
    except RuntimeError:
        largest = coefficients.abs().max().item()
        raise ValueError(f"the distortion coefficients are too large to compute with, up to {largest:g}") from None
    real = (reciprocal.imag.abs() <= 1e-8 * reciprocal.abs()) & (reciprocal.real > 1e-12)
    return 1 / torch.where(real, reciprocal.real, torch.zeros_like(reciprocal.real)).amax(-1)
