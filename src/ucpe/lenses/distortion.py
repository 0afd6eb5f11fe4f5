"""Brown-Conrady distortion of an image plane and its inverse."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses.base import Lens
from ucpe.lenses.inversion import iteration_dtype, solve_increasing
from ucpe.lenses.planar import PlanarLens, norm

RADIAL = ("k1", "k2", "k3", "k4", "k5", "k6")
LARGEST_RADIUS = math.tan(math.radians(89.99))
"""Plane radius beyond which nothing is searched: a ray 0.01 degrees from the image plane."""

LARGEST_STEP = 0.3
"""Longest Newton step on the plane, so that strong tangential terms cannot throw the search off."""


class DistortedLens(PlanarLens):
    """An ideal lens followed by Brown-Conrady distortion of its image plane."""

    @abstractmethod
    def ideal_to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Undistorted plane coordinates (*batch, ..., 2) of points (*batch, ..., 3), and which are visible."""

    @abstractmethod
    def ideal_from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of undistorted plane coordinates, and which have a ray."""

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        plane, seen = self.ideal_to_plane(points)
        plane, monotone = self._distortion.apply(torch.where(seen[..., None], plane, torch.zeros_like(plane)))
        return plane, seen & monotone

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        plane, reachable = self._distortion.invert(plane)
        directions, seen = self.ideal_from_plane(plane)
        return directions, reachable & seen

    def _check_parameters(self) -> None:
        self._distortion = PlaneDistortion(self)

    def _reaches(self, xfov: Tensor) -> Tensor:
        if not self._distortion.tangential:
            return super()._reaches(xfov)
        return torch.deg2rad(xfov) < self._row_angle(self._half_row_limit())

    def _half_row(self, xfov: Tensor) -> Tensor:
        if not self._distortion.tangential:
            return super()._half_row(xfov)
        target = torch.deg2rad(xfov)
        low, high = torch.zeros_like(target.detach(), dtype=torch.float64), self._half_row_limit()
        for _ in range(60):
            half = (low + high) / 2
            narrow = self._row_angle(half) < target
            low, high = torch.where(narrow, half, low), torch.where(narrow, high, half)
        half = ((low + high) / 2).detach()
        with torch.enable_grad():
            leaf = half.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self._row_angle(leaf).sum(), leaf)
        return half - (self._row_angle(half) - target) / slope

    def _row_angle(self, half: Tensor) -> Tensor:
        """Angle in radians (*batch) that the plane from (-half, 0) to (half, 0) sees."""
        directions = self.from_plane(_row_ends(half))[0]
        return torch.atan2(norm(directions[..., :2]), directions[..., 2]).sum(-1)

    def _half_row_limit(self) -> Tensor:
        """Half width (*batch) up to which both ends of a row have a ray, at most LARGEST_RADIUS."""
        like = next((value for value in self.parameters.values() if value.ndim), torch.zeros(()))
        low = torch.zeros(self.batch_shape, dtype=torch.float64, device=like.device)
        high = torch.full_like(low, LARGEST_RADIUS)
        for _ in range(70):
            half = torch.where(high - low > 1, (low * high + 1e-6).sqrt(), (low + high) / 2)
            visible = self.from_plane(_row_ends(half))[1].all(-1)
            low, high = torch.where(visible, half, low), torch.where(visible, high, half)
        return low


class PlaneDistortion:
    """r(1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6) plus the tangential terms p1, p2.

    It is used only up to the radius where it stops growing: beyond that the image would fold over itself.
    """

    def __init__(self, lens: Lens):
        self._lens = lens
        self._limit = _monotone_radius(lens)
        self.tangential = bool(lens.parameters["p1"].any() or lens.parameters["p2"].any())

    def apply(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Distorted coordinates (*batch, ..., 2) of plane coordinates, and where the map is one to one."""
        limit = self._limit_like(plane[..., 0])
        inside = (plane * plane).sum(-1) < limit * limit
        plane = torch.where(inside[..., None], plane, torch.zeros_like(plane))
        distorted, jacobian = self._evaluate(plane, self._coefficients(plane[..., 0]))
        return distorted, inside & (_determinant(jacobian) > 0)

    def invert(self, distorted: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) whose distortion is given, and which exist."""
        precise = iteration_dtype(distorted)
        target = distorted.detach().to(precise)
        coefficients = self._coefficients(target[..., 0])
        fixed = {name: value.detach().to(precise) for name, value in coefficients.items()}
        limit = self._limit_like(target[..., 0])

        length = target.norm(dim=-1)
        radius, reachable = solve_increasing(
            lambda r: _radial(r, fixed), length, limit.clamp(max=LARGEST_RADIUS).expand(length.shape)
        )
        plane = target * torch.where(length > 0, radius / length.clamp(min=1e-300), torch.ones_like(radius))[..., None]
        if self.tangential:
            for _ in range(15):
                value, jacobian = self._evaluate(plane, fixed)
                plane = plane - _solve(jacobian, value - target).clamp(-LARGEST_STEP, LARGEST_STEP)
            value, jacobian = self._evaluate(plane, fixed)
            error = (value - target).norm(dim=-1)
            reachable = (error < 1e-9 * (1 + length)) & (plane.norm(dim=-1) < limit) & (_determinant(jacobian) > 0)
        plane = torch.where(reachable[..., None], plane, torch.zeros_like(plane)).to(distorted.dtype)
        return self._differentiable(plane, distorted, coefficients), reachable

    def _differentiable(self, plane: Tensor, distorted: Tensor, coefficients: dict[str, Tensor]) -> Tensor:
        """One more Newton step, which carries the gradient of the implicit function."""
        value, jacobian = self._evaluate(plane, coefficients)
        return plane - _solve(jacobian.detach(), value - distorted)

    def _coefficients(self, like: Tensor) -> dict[str, Tensor]:
        names = (*RADIAL, "p1", "p2")
        return {name: self._lens._parameter(name, like) for name in names if name in self._lens.parameters}

    def _limit_like(self, like: Tensor) -> Tensor:
        limit = self._limit.to(like.device)
        return limit.reshape(limit.shape + (1,) * (like.ndim - limit.ndim)) if limit.ndim else limit

    def _evaluate(self, plane: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distorted coordinates (..., 2) and their Jacobian (..., 2, 2)."""
        x, y = plane.unbind(-1)
        squared = x * x + y * y
        gain, slope = _gain(squared, coefficients)
        p1, p2 = coefficients["p1"], coefficients["p2"]
        distorted_x = x * gain + 2 * p1 * x * y + p2 * (squared + 2 * x * x)
        distorted_y = y * gain + p1 * (squared + 2 * y * y) + 2 * p2 * x * y
        xx = gain + 2 * slope * x * x + 2 * p1 * y + 6 * p2 * x
        yy = gain + 2 * slope * y * y + 6 * p1 * y + 2 * p2 * x
        xy = 2 * slope * x * y + 2 * p1 * x + 2 * p2 * y
        jacobian = torch.stack([torch.stack([xx, xy], -1), torch.stack([xy, yy], -1)], -2)
        return torch.stack([distorted_x, distorted_y], -1), jacobian


def _row_ends(half: Tensor) -> Tensor:
    """The plane points (..., 2, 2) at (-half, 0) and (half, 0)."""
    return torch.stack([torch.stack([sign * half, torch.zeros_like(half)], -1) for sign in (-1, 1)], -2)


def _gain(squared: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Radial magnification and its derivative with respect to the squared radius."""
    zero = torch.zeros_like(squared)
    k1, k2, k3, k4, k5, k6 = (coefficients.get(name, zero) for name in RADIAL)
    above = 1 + squared * (k1 + squared * (k2 + squared * k3))
    below = 1 + squared * (k4 + squared * (k5 + squared * k6))
    above_slope = k1 + squared * (2 * k2 + squared * 3 * k3)
    below_slope = k4 + squared * (2 * k5 + squared * 3 * k6)
    return above / below, (above_slope * below - above * below_slope) / (below * below)


def _radial(radius: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Distorted radius and its derivative."""
    squared = radius * radius
    gain, slope = _gain(squared, coefficients)
    return radius * gain, gain + 2 * squared * slope


def _monotone_radius(lens: Lens) -> Tensor:
    """Smallest radius (*batch) at which the radial distortion stops growing or divides by zero; inf if none."""
    values = {name: lens.parameters[name].detach().double().cpu() for name in RADIAL if name in lens.parameters}
    shape = torch.broadcast_shapes(*(value.shape for value in values.values()))
    stacked = torch.stack([values.get(name, torch.zeros(())).expand(shape) for name in RADIAL], -1)
    limits = [_smallest_stationary_radius(row) for row in stacked.reshape(-1, len(RADIAL)).numpy()]
    return torch.tensor(limits, dtype=torch.float64).reshape(shape)


def _smallest_stationary_radius(coefficients: np.ndarray) -> float:
    above, below = (np.poly1d([*reversed(part), 1.0]) for part in (coefficients[:3], coefficients[3:]))
    squared = np.poly1d([1.0, 0.0])
    growth = (above + 2 * squared * above.deriv()) * below - 2 * squared * above * below.deriv()
    roots = np.concatenate([growth.roots, below.roots])
    real = roots.real[(np.abs(roots.imag) <= 1e-9 * (1 + np.abs(roots.real))) & (roots.real > 0)]
    return float(np.sqrt(real.min())) if len(real) else math.inf


def _determinant(matrix: Tensor) -> Tensor:
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]


def _solve(matrix: Tensor, vector: Tensor) -> Tensor:
    """Solution (..., 2) of a 2 x 2 system; zero where the matrix is singular."""
    determinant = _determinant(matrix)
    usable = determinant.abs() > 1e-12
    first = matrix[..., 1, 1] * vector[..., 0] - matrix[..., 0, 1] * vector[..., 1]
    second = matrix[..., 0, 0] * vector[..., 1] - matrix[..., 1, 0] * vector[..., 0]
    solution = (
        torch.stack([first, second], -1) / torch.where(usable, determinant, torch.ones_like(determinant))[..., None]
    )
    return torch.where(usable[..., None], solution, torch.zeros_like(solution))
