"""The nearest lens of another model, by Levenberg-Marquardt on the angles between rays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses.base import Lens, check_size, pixel_grid, stack_lenses
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.numerics import angle_between
from ucpe.lenses.pinhole import BrownConrady
from ucpe.lenses.planar import FOCAL_NAMES, PlanarLens

STARTS: dict[str, dict[str, tuple[float, ...]]] = {
    "ucm": {"xi": (0.0, 0.9, 2.0)},
    "mei": {"xi": (0.5, 1.5)},
    "eucm": {"alpha": (0.3, 0.6), "beta": (1.0,)},
    "double_sphere": {"xi": (-0.2, 0.2), "alpha": (0.6,)},
    "brown_conrady": {"k4": (0.0, 1.0)},
}
"""Model parameters that the search starts from, by model; those not named start at zero."""

TANGENTIAL = ("p1", "p2")
LATER = ("k3", "k4", "k5", "k6")
"""Terms that are fitted last, once the others are close."""

EXACT = 1e-22
"""Sum of squared angles in radians below which a fit has nothing left to gain."""

WIDER = tuple(1.02**step for step in range(1, 51))
"""Focal lengths to try when a fit leaves part of the image unseen, as multiples of the fitted one."""

SAMPLES = 6000
"""Rays over the image that a lens is fitted to; its error is measured at every pixel."""


MAX_RESIDUAL = 2e-3
"""Share of the image width that a lens may be off from the formula it is fitted to, root mean square."""


class LensFit(NamedTuple):
    """A fitted lens and its angular error in degrees over the pixels that both lenses see."""

    lens: PlanarLens
    rms: Tensor  # (*batch)
    maximum: Tensor  # (*batch)
    unseen: Tensor  # (*batch), share of the original's visible image that the fitted lens cannot see


def radial_lens(
    angles: np.ndarray,  # (N,) radians to the axis
    radii: np.ndarray,  # (N,) in focal lengths
    straight: bool,
    fx: float,
    fy: float,
    **scale: Any,
) -> PlanarLens:
    """The Brown-Conrady (straight) or Kannala-Brandt lens that shows angles at radii, by least squares."""
    across = np.tan(angles) if straight else angles
    powers = np.stack([across ** (2 * power + 1) for power in range(4 if straight else 5)], -1)
    terms = np.linalg.lstsq(powers, radii, rcond=None)[0]
    residual = fx * float(np.sqrt(np.mean((powers @ terms - radii) ** 2)))
    if not terms[0] > 0 or residual > MAX_RESIDUAL * scale["width"]:
        raise ValueError(f"none of our lenses bends like it (off by {residual:.1f} pixels)")
    factors = dict(zip(("k1", "k2", "k3", "k4"), (terms[1:] / terms[0]).tolist()))
    model: Any = BrownConrady if straight else KannalaBrandt
    return model(fx=float(fx * terms[0]), fy=float(fy * terms[0]), **scale, **factors)


def fit_lens(lens: Lens, model: type[Lens], height: int | None = None, width: int | None = None) -> LensFit:
    """Nearest lens of a planar model over the visible image of height x width; each batch entry on its own.

    The size is that of the lens's calibration, or 480 x 832 if it has none.
    The fit has square pixels and the principal point in the image centre, and is given by its field of view, where
    the original is so (`xfov`); otherwise it is a calibration in pixels of that size.
    """
    if not (isinstance(model, type) and issubclass(model, PlanarLens)):
        raise ValueError(f"a lens is fitted to a model with an image plane, such as UCM, got {model!r}")
    if not lens.central:
        raise ValueError(f"{lens.kind} has no single centre, so no {model.kind} comes near it at all distances")
    height, width = check_size(
        lens.settings.get("height", 480) if height is None else height,
        lens.settings.get("width", 832) if width is None else width,
    )
    lens = lens.to(torch.float64)
    if not lens.batch_shape:
        return _Fit(lens, model, height, width).best()
    fits = [_Fit(lens[index], model, height, width).best() for index in product(*map(range, lens.batch_shape))]
    same = len({tuple(fit.lens.parameters) for fit in fits}) == 1
    fitted = stack_lenses([fit.lens if same else fit.lens.calibrated(height, width) for fit in fits])
    errors = (torch.stack(values).reshape(lens.batch_shape) for values in zip(*(fit[1:] for fit in fits)))
    return LensFit(fitted._mapped(lambda value: value.reshape(lens.batch_shape)), *errors)


class _Fit:
    """One lens and one model."""

    def __init__(self, lens: Lens, model: Any, height: int, width: int):
        self.original, self.model, self.size = lens, model, (height, width)
        step = math.sqrt(height * width / SAMPLES)
        self.pixels, self.directions = _visible(lens, height, width, step)
        if len(self.pixels) < 10:
            raise ValueError(f"{lens} sees too little of a {height} x {width} image to be fitted")
        self.radians = _radians_per_pixel(lens, self.pixels, height, width)
        self.centred = "xfov" in lens.parameters or "pinhole_xfov" in lens.parameters
        symmetric = self.centred and not any(
            lens.parameters[name].any() for name in TANGENTIAL if name in lens.parameters
        )
        names = model(fx=1.0, width=width, height=height).model_parameters
        self.names = [name for name in names if not (symmetric and name in TANGENTIAL)]
        scale = [(1e-3, math.inf)] * 2 + [(-math.inf, math.inf)] * 2
        ranges = scale[: 1 if self.centred else 4] + [self._range(name) for name in self.names]
        self.low, self.high = torch.tensor(ranges, dtype=torch.float64).T

    def best(self) -> LensFit:
        """The fit with the smallest error from all starts."""
        values, cost = None, math.inf
        for start in self._starts():
            candidate = min(start, self._rough(start), key=self._cost)
            if self._cost(candidate) < cost:
                values, cost = candidate, self._cost(candidate)
            if cost < EXACT:
                break
        if values is None:
            raise ValueError(f"{self.model.kind} sees nothing of what {self.original} sees")
        values = self._refined(values)
        if not self._lens(values).unproject(self.pixels, *self.size).valid.all():
            values = min(values, self._refined(self._widened(values)), key=self._cost)
        return self._measured(self._lens(values))

    def _refined(self, values: Tensor) -> Tensor:
        return _descend(self._angles, values, self.low, self.high, iterations=50)

    def _widened(self, values: Tensor) -> Tensor:
        """The best of longer focal lengths, which let the model see more: past a hill that no descent crosses."""
        focal = torch.zeros_like(values)
        focal[: 1 if self.centred else 2] = values[: 1 if self.centred else 2]
        return min((values + (times - 1) * focal for times in WIDER), key=self._cost)

    def _cost(self, values: Tensor) -> float:
        """Sum of squared angles, in which a pixel that the candidate cannot see looks along the axis."""
        return self._angles(values).square().sum().item()

    def _rough(self, values: Tensor) -> Tensor:
        """Fit by projection, which is closer to linear: the first terms alone, then all."""
        later = torch.tensor([False] * (len(values) - len(self.names)) + [name in LATER for name in self.names])
        if later.any():
            values = _descend(self._projections, values, self.low, self.high, frozen=later)
        return _descend(self._projections, values, self.low, self.high)

    def _range(self, name: str) -> tuple[float, float]:
        return self.model.ranges.get(name, (-math.inf, math.inf))

    def _lens(self, values: Tensor) -> PlanarLens:
        height, width = self.size
        scale = {"fx": values[0], "fy": values[0]} if self.centred else dict(zip(FOCAL_NAMES, values[:4]))
        parameters = dict(zip(self.names, values[-len(self.names) :])) if self.names else {}
        return self.model(**scale, **parameters, width=width, height=height)

    def _starts(self) -> Iterator[Tensor]:
        """Model parameters to try, each with the scale that best maps the lens's rays to their pixels."""
        height, width = self.size
        starts = STARTS.get(self.model.kind, {})
        shapes = list(product(*(starts.get(name, (0.0,)) for name in self.names)))
        known = self.original.parameters
        own = tuple(known[name].item() if name in known else 0.0 for name in self.names)
        if all(low <= value <= high for value, (low, high) in zip(own, map(self._range, self.names))):
            shapes.insert(0, own)
        for shape in shapes:
            plain = self.model(fx=1.0, width=width, height=height, **dict(zip(self.names, shape)))
            plane, seen = plain.to_plane(self.directions)
            if seen.sum() < 10:
                continue
            plane, pixels = plane[seen], self.pixels[seen]
            if self.centred:
                centre = torch.tensor([width / 2, height / 2], dtype=torch.float64)
                scale = ((plane * (pixels - centre)).sum() / (plane * plane).sum())[None]
            else:
                columns = torch.stack([plane, torch.ones_like(plane)], -1).transpose(0, 1)
                scale = torch.linalg.lstsq(columns, pixels.T[..., None]).solution[..., 0].T.reshape(-1)
            start = torch.cat([scale, torch.tensor(shape, dtype=torch.float64)])
            yield torch.minimum(torch.maximum(start, self.low), self.high)

    def _projections(self, values: Tensor) -> Tensor:
        """Distances (rays * 2) in radians, to first order, between the lens's rays projected and their pixels."""
        pixels = self._lens(values).project(self.directions, *self.size)[0]
        return (self.radians @ (pixels - self.pixels)[..., None]).reshape(-1)

    def _angles(self, values: Tensor) -> Tensor:
        """Rotation vectors (rays * 3) in radians from the lens's rays to those of the candidate."""
        rays = self._lens(values).unproject(self.pixels, *self.size)
        axis = torch.linalg.cross(self.directions, rays.directions)
        angle, sine = angle_between(self.directions, rays.directions), axis.norm(dim=-1)
        gain = torch.where(sine > 1e-9, angle / sine.clamp(min=1e-9), torch.ones_like(sine))
        return (axis * gain[:, None]).reshape(-1)

    def _measured(self, lens: PlanarLens) -> LensFit:
        rays, original = (entry.rays(*self.size, dtype=torch.float64) for entry in (lens, self.original))
        both = rays.valid & original.valid
        errors = torch.rad2deg(angle_between(rays.directions[both], original.directions[both]))
        unseen = 1 - both.sum() / original.valid.sum()
        if self.centred:
            lens = self._by_field_of_view(lens)
        return LensFit(lens, errors.square().mean().sqrt(), errors.max(), unseen)

    def _by_field_of_view(self, lens: PlanarLens) -> PlanarLens:
        """The same lens given by xfov, if the ends of its middle row see anything."""
        height, width = self.size
        ends = torch.tensor([[0.0, height / 2], [float(width), height / 2]], dtype=torch.float64)
        rays = lens.unproject(ends, height, width)
        if not rays.valid.all():
            return lens
        axis = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
        xfov = torch.rad2deg(angle_between(rays.directions, axis.expand(2, 3)).sum())
        return self.model(xfov=xfov, **lens.model_parameters)


def _visible(lens: Lens, height: int, width: int, step: float) -> tuple[Tensor, Tensor]:
    """Pixels (n, 2) on a grid of the given spacing that the lens sees, and their directions (n, 3)."""
    rows, columns = max(2, round(height / step)), max(2, round(width / step))
    grid = pixel_grid(rows, columns, torch.float64).reshape(-1, 2)
    pixels = grid * torch.tensor([width / columns, height / rows], dtype=torch.float64)
    rays = lens.unproject(pixels, height, width)
    return pixels[rays.valid], rays.directions[rays.valid]


def _radians_per_pixel(lens: Lens, pixels: Tensor, height: int, width: int) -> Tensor:
    """Derivative (n, 3, 2) of a lens's directions in its pixels (n, 2), by differences over a hundredth of a pixel."""
    columns = []
    for step in torch.eye(2, dtype=torch.float64) * 0.01:
        ahead, behind = (lens.unproject(pixels + sign * step, height, width) for sign in (1, -1))
        slope = (ahead.directions - behind.directions) / 0.02
        columns.append(torch.where((ahead.valid & behind.valid)[:, None], slope, torch.zeros_like(slope)))
    return torch.stack(columns, -1)


def _descend(
    residuals_of: Callable[[Tensor], Tensor],  # (parameters,) -> (residuals,)
    values: Tensor,  # (parameters,)
    low: Tensor,  # (parameters,)
    high: Tensor,  # (parameters,)
    frozen: Tensor | None = None,  # (parameters,) bool
    iterations: int = 100,
) -> Tensor:
    """Parameters of the least squares found by Levenberg-Marquardt steps within a box."""
    residuals = residuals_of(values)
    cost, damping = (residuals @ residuals).item(), 1e-3
    for _ in range(iterations):
        jacobian = _jacobian(residuals_of, values, low, high)
        slope, curvature = jacobian.T @ residuals, jacobian.T @ jacobian
        free = ~(((values <= low) & (slope > 0)) | ((values >= high) & (slope < 0)))
        free = free if frozen is None else free & ~frozen
        gain = 0.0
        while damping < 1e12 and free.any():
            damped = curvature + damping * torch.diag(curvature.diagonal().clamp(min=1e-12))
            step = torch.zeros_like(values)
            step[free] = -torch.linalg.lstsq(damped[free][:, free], slope[free, None], driver="gelsd").solution[:, 0]
            candidate = torch.minimum(torch.maximum(values + step, low), high)
            trial = residuals_of(candidate)
            trial_cost = (trial @ trial).item()
            if trial_cost < cost:
                gain, damping = cost - trial_cost, damping / 10
                values, residuals, cost = candidate, trial, trial_cost
                break
            damping *= 4
        if gain <= 1e-9 * cost or cost < EXACT:
            break
    return values


def _jacobian(residuals_of: Callable[[Tensor], Tensor], values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Derivative (residuals, parameters) by central differences."""
    columns = []
    for index in range(len(values)):
        step = torch.zeros_like(values)
        step[index] = 1e-6 * max(1.0, values[index].abs().item())
        ahead, behind = torch.minimum(values + step, high), torch.maximum(values - step, low)
        columns.append((residuals_of(ahead) - residuals_of(behind)) / (ahead - behind)[index])
    return torch.stack(columns, -1)
