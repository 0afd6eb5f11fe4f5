"""Brown-Conrady distortion of an image plane and its inverse."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ucpe.lenses.base import Lens
from ucpe.lenses.numerics import angle_between, flatten_after, invert_increasing, smallest_positive_root, widest_dtype
from ucpe.lenses.planar import PlanarLens

RADIAL = ("k1", "k2", "k3", "k4", "k5", "k6")

MAX_ANGLE = math.radians(89.99)
"""Nothing is searched beyond the plane radius tan(89.99 degrees)."""

MAX_STEP = 0.3
"""Longest Newton step on the plane, so that strong tangential terms cannot throw the search off."""


CHUNK = 1 << 15
"""Pixels searched at a time, few enough for the processor's cache."""


class Distorted(PlanarLens):
    """Brown-Conrady distortion of the image plane of the lens that is named after it among the base classes.

    r(1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6) plus the tangential terms p1, p2. It is used only
    up to the radius where it stops growing: beyond that the image would fold over itself.
    """

    def to_plane(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of camera-frame points (*batch, ..., 3), and which are visible."""
        plane, seen = super().to_plane(points)  # type: ignore[safe-super]
        plane, one_to_one = self._distorted(torch.where(seen[..., None], plane, torch.zeros_like(plane)))
        return plane, seen & one_to_one

    def from_plane(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Unit directions (*batch, ..., 3) of plane coordinates (*batch, ..., 2), and which have a ray."""
        plane, reachable = self._undistorted(plane)
        directions, seen = super().from_plane(plane)  # type: ignore[safe-super]
        return directions, reachable & seen

    def max_xfov(self) -> Tensor:
        """Upper bound in degrees (*batch) of xfov for these model parameters."""
        if not self._tangential:
            return super().max_xfov()
        everything = torch.full(self.batch_shape, math.inf, dtype=widest_dtype(self.device), device=self.device)
        return torch.rad2deg(self._row_angle(self._search_row(everything)[0])[0])

    def _prepare(self) -> None:
        self._solved["limit"] = _monotone_radius(self)
        tangential = self.parameters["p1"], self.parameters["p2"]
        self._tangential = any(value.requires_grad or bool(value.any()) for value in tangential)

    def _half_row(self, xfov: Tensor) -> tuple[Tensor, Tensor]:
        if not self._tangential:
            return super()._half_row(xfov)
        angle = torch.deg2rad(xfov.expand(self.batch_shape))
        half, exists = self._search_row(angle)
        for _ in range(2):
            half = half - torch.where(exists, (self._row_angle(half)[0] - angle) / self._row_slope(half), 0)
        return half, exists

    def _differentiable_half_row(self, xfov: Tensor) -> Tensor:
        if not self._tangential:
            return super()._differentiable_half_row(xfov)
        half = self._solved["half_row"].to(xfov)
        error = self._row_angle(half)[0] - torch.deg2rad(xfov.expand(self.batch_shape))
        return half - (error - error.detach()) / self._row_slope(half)

    def _row_slope(self, half: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = half.detach().clone().requires_grad_()
            return torch.autograd.grad(self._row_angle(leaf)[0].sum(), leaf)[0]

    def _search_row(self, angle: Tensor) -> tuple[Tensor, Tensor]:
        """Half width (*batch) of the row that sees an angle in radians, or the widest visible, and whether it does."""
        share = torch.linspace(0, 1, 129, dtype=angle.dtype, device=angle.device)
        low, high = torch.zeros_like(angle), torch.full_like(angle, MAX_ANGLE)
        for _ in range(3):
            grid = torch.lerp(low[..., None], high[..., None], share)
            seen, visible = self._row_angle(grid.tan())
            narrow = visible & (seen < angle[..., None])
            count = narrow.long().cumprod(-1).sum(-1, keepdim=True)
            low = grid.gather(-1, (count - 1).clamp(min=0))[..., 0]
            high = grid.gather(-1, count.clamp(max=128))[..., 0]
        reached = visible.gather(-1, count.clamp(max=128))[..., 0] & (count[..., 0] <= 128)
        return low.tan(), reached

    def _row_angle(self, half: Tensor) -> tuple[Tensor, Tensor]:
        """Angle in radians (*batch, ...) that the plane from (-half, 0) to (half, 0) sees, and if both ends do."""
        zero = torch.zeros_like(half)
        ends = torch.stack([torch.stack([-half, zero], -1), torch.stack([half, zero], -1)], -2)
        directions, visible = self.from_plane(ends)
        axis = torch.tensor([0.0, 0.0, 1.0], dtype=half.dtype, device=half.device)
        return angle_between(directions, axis.expand_as(directions)).sum(-1), visible.all(-1)

    def _distorted(self, plane: Tensor) -> tuple[Tensor, Tensor]:
        """Distorted coordinates (*batch, ..., 2) of plane coordinates, and where the map is one to one."""
        limit = self._spread(self._solved["limit"], plane[..., 0])
        inside = (plane * plane).sum(-1) < limit * limit
        x, y = torch.where(inside[..., None], plane, torch.zeros_like(plane)).unbind(-1)
        coefficients = self._coefficients(x)
        distorted_x, distorted_y = _distort(x, y, coefficients)
        if self._tangential:
            inside = inside & _one_to_one(*_jacobian(x, y, coefficients))
        return torch.stack([distorted_x, distorted_y], -1), inside

    def _undistorted(self, distorted: Tensor) -> tuple[Tensor, Tensor]:
        """Plane coordinates (*batch, ..., 2) of distorted ones, and whether they exist.

        A Newton step of zero length after the search carries the gradient of the implicit function.
        """
        target_x, target_y = distorted.unbind(-1)
        batch = len(self.batch_shape)
        flat = (flatten_after(target, batch).split(CHUNK, -1) for target in (target_x, target_y))
        x, y, reachable = (torch.cat(parts, -1) for parts in zip(*(self._search(*part) for part in zip(*flat))))
        reachable = reachable.reshape(target_x.shape)
        x, y = (torch.where(reachable, value.reshape(target_x.shape).to(target_x.dtype), 0) for value in (x, y))
        coefficients = self._coefficients(target_x)
        value_x, value_y = _distort(x, y, coefficients)
        fixed = {name: value.detach() for name, value in coefficients.items()}
        error_x, error_y = value_x - target_x, value_y - target_y
        step_x, step_y = _solve(*_jacobian(x, y, fixed), error_x - error_x.detach(), error_y - error_y.detach())
        return torch.stack([x - step_x, y - step_y], -1), reachable

    def _search(self, target_x: Tensor, target_y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Plane coordinates (*batch, n) of distorted ones, and whether they exist."""
        coefficients = {name: value.detach() for name, value in self._coefficients(target_x).items()}
        limit = self._spread(self._solved["limit"], target_x)
        share = torch.linspace(0, 1, 513, dtype=target_x.dtype, device=target_x.device)
        nodes = (limit.atan().clamp(max=MAX_ANGLE) * share).tan()
        length = (target_x * target_x + target_y * target_y).sqrt()
        steps = 0 if self._tangential else 60
        radius, reachable = invert_increasing(lambda r: _radial(r, coefficients), length, nodes, steps)
        gain = torch.where(length > 0, radius / length.clamp(min=1e-300), 1)
        x, y = target_x * gain, target_y * gain
        return (
            self._add_tangential(x, y, target_x, target_y, limit, coefficients)
            if self._tangential
            else (x, y, reachable)
        )

    def _add_tangential(
        self, x: Tensor, y: Tensor, target_x: Tensor, target_y: Tensor, limit: Tensor, coefficients: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Newton steps from the radial solution (*batch, n); converged ones stop."""
        shape = x.shape
        x, y, target_x, target_y = (value.reshape(-1).clone() for value in (x, y, target_x, target_y))
        limit = limit.expand(shape).reshape(-1)
        every = {
            name: value if value.ndim == 0 else value.expand(shape).reshape(-1) for name, value in coefficients.items()
        }
        tolerance = 1e-13 * (1 + target_x.abs() + target_y.abs())
        reachable = torch.zeros_like(x, dtype=torch.bool)
        moving = torch.arange(len(x), device=x.device)
        for _ in range(20):
            here = {name: value if value.ndim == 0 else value[moving] for name, value in every.items()}
            at_x, at_y = x[moving], y[moving]
            value_x, value_y = _distort(at_x, at_y, here)
            error_x, error_y = value_x - target_x[moving], value_y - target_y[moving]
            jacobian = _jacobian(at_x, at_y, here)
            arrived = error_x.abs() + error_y.abs() < tolerance[moving]
            inside = at_x * at_x + at_y * at_y < limit[moving] ** 2
            reachable[moving] = arrived & inside & _one_to_one(*jacobian)
            step_x, step_y = (value.clamp(-MAX_STEP, MAX_STEP) for value in _solve(*jacobian, error_x, error_y))
            moving = moving[~arrived]
            if not len(moving):
                break
            x[moving], y[moving] = (at_x - step_x)[~arrived], (at_y - step_y)[~arrived]
        return x.reshape(shape), y.reshape(shape), reachable.reshape(shape)

    def _coefficients(self, like: Tensor) -> dict[str, Tensor]:
        names = (*RADIAL, "p1", "p2")
        return {name: self._parameter(name, like) for name in names if name in self.parameters}


def _distort(x: Tensor, y: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    squared = x * x + y * y
    above, below = _rational(squared, coefficients)
    gain, p1, p2 = above / below, coefficients["p1"], coefficients["p2"]
    skew = 2 * (p1 * y + p2 * x)
    return x * (gain + skew) + p2 * squared, y * (gain + skew) + p1 * squared


def _jacobian(x: Tensor, y: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The derivatives dx'/dx, dx'/dy = dy'/dx and dy'/dy."""
    gain, slope = _gain(x * x + y * y, coefficients)
    p1, p2 = coefficients["p1"], coefficients["p2"]
    xx = gain + 2 * slope * x * x + 2 * p1 * y + 6 * p2 * x
    yy = gain + 2 * slope * y * y + 6 * p1 * y + 2 * p2 * x
    return xx, 2 * (slope * x * y + p1 * x + p2 * y), yy


def _one_to_one(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """Whether the symmetric Jacobian is positive definite, as it is around the centre up to the first fold."""
    return (xx > 0) & (xx * yy > xy * xy)


def _solve(xx: Tensor, xy: Tensor, yy: Tensor, right_x: Tensor, right_y: Tensor) -> tuple[Tensor, Tensor]:
    """Solution of the symmetric 2 x 2 system; zero where it is singular."""
    determinant = xx * yy - xy * xy
    usable = determinant.abs() > 1e-12
    inverse = usable / torch.where(usable, determinant, torch.ones_like(determinant))
    return (yy * right_x - xy * right_y) * inverse, (xx * right_y - xy * right_x) * inverse


def _radial(radius: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Distorted radius and its derivative."""
    squared = radius * radius
    gain, slope = _gain(squared, coefficients)
    return radius * gain, gain + 2 * squared * slope


def _gain(squared: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Radial magnification and its derivative with respect to the squared radius."""
    above, below = _rational(squared, coefficients)
    k1, k2, k3, k4, k5, k6 = (coefficients.get(name, 0.0) for name in RADIAL)
    above_slope = k1 + squared * (2 * k2 + squared * (3 * k3))
    below_slope = k4 + squared * (2 * k5 + squared * (3 * k6))
    gain = above / below
    return gain, (above_slope - gain * below_slope) / below


def _rational(squared: Tensor, coefficients: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    k1, k2, k3, k4, k5, k6 = (coefficients.get(name, 0.0) for name in RADIAL)
    above = 1 + squared * (k1 + squared * (k2 + squared * k3))
    return above, 1 + squared * (k4 + squared * (k5 + squared * k6))


def _monotone_radius(lens: Lens) -> Tensor:
    """Smallest radius (*batch) at which the radial distortion stops growing or divides by zero; inf if none."""
    zero = torch.zeros((), dtype=torch.float64, device="cpu")
    given = [lens.parameters.get(name, zero).detach().double().cpu() for name in RADIAL]
    values = torch.stack(torch.broadcast_tensors(*given), -1)
    one = torch.ones_like(values[..., :1])
    above, below = torch.cat([one, values[..., :3]], -1), torch.cat([one, values[..., 3:]], -1)
    order = torch.arange(4, dtype=torch.float64, device="cpu")
    growth = _product((1 + 2 * order) * above, below) - _product(above, 2 * order * below)
    roots = torch.minimum(smallest_positive_root(growth[..., 1:]), smallest_positive_root(below[..., 1:]))
    return roots.sqrt()


def _product(first: Tensor, second: Tensor) -> Tensor:
    """Coefficients (..., 7) of the product of two cubics (..., 4)."""
    terms = first[..., :, None] * second[..., None, :]
    return torch.stack([terms.flip(-2).diagonal(power - 3, -2, -1).sum(-1) for power in range(7)], -1)
