"""The Lat-Up map: where the horizon is and which way is up, at every token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ucpe.encodings.frames import Position, as_poses, token_grid, token_rays
from ucpe.lenses.base import Lens
from ucpe.lenses.numerics import norm
from ucpe.lenses.panoramic import Panorama
from ucpe.lenses.pinhole import Pinhole
from ucpe.lenses.unified import UCM

POLE_SINE = 1e-6
"""Sine of the angle to the zenith or nadir below which no direction in the image is up."""

FAR = 1e6
"""Distance, in world units, at which rays of non-central lenses are compared."""


def lat_up_map(
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4), gravity-aligned: world up is (0, -1, 0)
    height: int,
    width: int,
    delta: float = 0.1,
    *,
    position: Position = "center",
    released_up: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Lat-Up map (..., N, height, width, 3): unit up direction (u, v) in the image, and latitude in radians.

    Up is where a token moves in the image when its ray turns by `delta` radians towards the zenith; where the lens does
    not see the turned ray, it is turned away from the zenith instead and the move reversed. No ray turns past a pole:
    within 2 `delta` of one it goes half of the way, so up points at the zenith. Up is zero at the poles and where
    neither turn is visible; all channels are zero where the token has no ray. `released_up` reproduces the released
    code's Up map for its weights (UCM only): its third Rodrigues term, and its projection of rays out of sight.
    """
    if not (math.isfinite(delta) and 0 < delta < math.pi / 2):
        raise ValueError(f"delta must be in (0, pi/2) radians, got {delta}")
    c2w = as_poses(c2w)
    rays = token_rays(lens, height, width, position, c2w)
    pixels = token_grid(height, width, position, c2w)
    batch = torch.broadcast_shapes(lens.batch_shape, c2w.shape[:-2])
    lens = lens.expand(*batch) if lens.batch_shape else lens
    direction = rays.directions.expand(*batch, height, width, 3)
    origin = rays.origins.expand_as(direction)
    valid = rays.valid.expand(direction.shape[:-1])

    up = -c2w[..., None, None, 1, :3]  # world up in the camera frame
    sine = (direction * up).sum(-1)
    towards_up = up - direction * sine[..., None]
    cosine = norm(towards_up)
    latitude = torch.atan2(sine, cosine)

    defined = valid & (cosine > POLE_SINE)
    tangent = towards_up / torch.where(defined, cosine, torch.ones_like(cosine))[..., None]
    if released_up:
        turned = _turn(direction, tangent, torch.full_like(sine, delta)) + _released_term(direction, up, c2w, delta)
        shift = _released_project(lens, turned, height, width) - pixels
    else:
        upward = (math.pi / 2 - latitude).div(2).clamp(max=delta)
        forward, seen = _shift(lens, pixels, origin, _turn(direction, tangent, upward), height, width)
        if not seen[defined].all():
            downward = (math.pi / 2 + latitude).div(2).clamp(max=delta)
            backward, seen_back = _shift(lens, pixels, origin, _turn(direction, tangent, -downward), height, width)
            forward = torch.where(seen[..., None], forward, -backward)
            seen = seen | seen_back
        shift, defined = forward, defined & seen

    length = norm(shift)
    defined = defined & (length > 0)
    up_direction = shift / torch.where(defined, length, torch.ones_like(length))[..., None]
    up_direction = torch.where(defined[..., None], up_direction, torch.zeros_like(up_direction))
    latitude = torch.where(valid, latitude, torch.zeros_like(latitude))
    return torch.cat([up_direction, latitude[..., None]], dim=-1).to(dtype)


def _turn(direction: Tensor, tangent: Tensor, angle: Tensor) -> Tensor:
    """Directions (..., 3) turned by angles in radians towards unit tangents; Rodrigues' third term is zero here."""
    return angle.cos()[..., None] * direction + angle.sin()[..., None] * tangent


def _shift(
    lens: Lens, pixels: Tensor, origin: Tensor, turned: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Displacement (..., 2) in tokens from each token to where its turned ray projects, and whether it is visible."""
    projected, seen = lens.project(turned if lens.central else origin + FAR * turned, height, width)
    shift = projected - pixels
    if isinstance(lens, Panorama):
        period = 360 / lens.parameters["xfov"].to(shift) * width
        period = period.reshape(*period.shape, *(1,) * (shift.ndim - 1 - period.ndim)) if period.ndim else period
        across = torch.remainder(shift[..., 0] + period / 2, period) - period / 2
        shift = torch.stack([across, shift[..., 1]], dim=-1)
    return shift, seen


def _released_term(direction: Tensor, up: Tensor, c2w: Tensor, delta: float) -> Tensor:
    """The released code's third Rodrigues term in the camera frame: k * k * sum(d) * (1 - cos delta), elementwise."""
    rotation = c2w[..., None, None, :3, :3]
    axis = torch.linalg.cross(direction, up.expand_as(direction))
    axis = axis / norm(axis).clamp(min=1e-8)[..., None]
    axis, world = (rotation @ axis[..., None])[..., 0], (rotation @ direction[..., None])[..., 0]
    term = axis * axis * world.sum(-1, keepdim=True) * (1 - math.cos(delta))
    return (rotation.mT @ term[..., None])[..., 0]


def _released_project(lens: Lens, points: Tensor, height: int, width: int) -> Tensor:
    """UCM projection (..., 2) without a visibility test, as the released code projects."""
    if not isinstance(lens, UCM | Pinhole):
        raise ValueError(f"released_up is for the released weights' UCM lenses, got {lens.kind}")
    matrix = lens.intrinsics(height, width).to(points)[..., None, None, :, :]
    xi = lens.parameters.get("xi", torch.zeros((), device="cpu"))
    xi = (xi.expand(lens.batch_shape)[..., None, None] if xi.ndim else xi).to(points)
    plane = points[..., :2] / (points[..., 2] + xi * norm(points))[..., None]
    return plane * matrix.diagonal(dim1=-2, dim2=-1)[..., :2] + matrix[..., :2, 2]
