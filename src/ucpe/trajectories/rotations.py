"""Rotations: pitch, yaw and roll, the logarithm and exponential, and interpolation between poses.

A camera's orientation in a world with x right, y down, z forward is R = Ry(yaw) Rx(pitch) Rz(roll):

- positive yaw looks right,
- positive pitch looks up,
- positive roll tilts the camera clockwise as seen from behind it, so that the horizon turns counter-clockwise
  in its image.

Angles are degrees; rotation vectors are radians.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

GIMBAL = 1e-9
"""Length of the forward axis on the ground below which yaw and roll turn about the same axis."""


FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])
ArrayType = TypeVar("ArrayType", np.ndarray, Tensor)


def full_precision(function: FunctionType) -> FunctionType:
    """Decorator: run geometry outside autocast, which would round its matrix products to bfloat16."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return cast(FunctionType, run)


class Angles(NamedTuple):
    """Orientation of a camera in degrees, each (...)."""

    pitch: Tensor
    yaw: Tensor
    roll: Tensor


@full_precision
def rotation_from_angles(
    pitch: Tensor,  # (...)
    yaw: Tensor,  # (...)
    roll: Tensor,  # (...)
) -> Tensor:
    """Camera-to-world rotations (..., 3, 3) = Ry(yaw) Rx(pitch) Rz(roll) of angles in degrees.

    >>> zero = torch.tensor(0.0)
    >>> rotation_from_angles(torch.tensor(90.0), zero, zero)[:, 2].round().int().tolist()  # looks up
    [0, -1, 0]
    """
    pitch, yaw, roll = torch.broadcast_tensors(*(torch.deg2rad(angle) for angle in (pitch, yaw, roll)))
    return rotation_about(1, yaw) @ rotation_about(0, pitch) @ rotation_about(2, roll)


def angles_from_rotation(
    rotation: Tensor,  # (..., 3, 3)
) -> Angles:
    """Pitch in [-90, 90], yaw and roll in (-180, 180] degrees; straight up or down, roll is 0 by convention."""
    right, down, forward = rotation.unbind(-1)
    ground = torch.hypot(forward[..., 0], forward[..., 2])
    pitch = torch.atan2(-forward[..., 1], ground)
    vertical = ground < GIMBAL
    yaw = torch.where(
        vertical, torch.atan2(-right[..., 2], right[..., 0]), torch.atan2(forward[..., 0], forward[..., 2])
    )
    roll = torch.where(vertical, torch.zeros_like(yaw), torch.atan2(right[..., 1], down[..., 1]))
    return Angles(*(torch.rad2deg(angle) for angle in (pitch, yaw, roll)))


def rotation_log(
    rotation: Tensor,  # (..., 3, 3)
) -> Tensor:
    """Rotation vectors (..., 3), axis times angle in [0, pi] radians; accurate near 0 and near 180 degrees."""
    quaternion = quaternion_from_rotation(rotation)
    w, vector = quaternion[..., :1], quaternion[..., 1:]
    sine = vector.norm(dim=-1, keepdim=True)
    small = sine < 1e-8
    angle = 2 * torch.atan2(torch.where(small, torch.zeros_like(sine), sine), w)
    return vector * torch.where(small, 2 / w.clamp(min=0.5), angle / torch.where(small, torch.ones_like(sine), sine))


def rotation_exp(
    vector: Tensor,  # (..., 3)
) -> Tensor:
    """Rotations (..., 3, 3) of rotation vectors in radians."""
    half = vector.norm(dim=-1, keepdim=True) / 2
    return rotation_from_quaternion(torch.cat([half.cos(), vector * torch.sinc(half / math.pi) / 2], dim=-1))


def rotation_angle(
    rotation: Tensor,  # (..., 3, 3)
) -> Tensor:
    """Angle (...) in degrees, in [0, 180]: arccos((trace - 1) / 2) without its loss of digits near 0 and 180."""
    quaternion = quaternion_from_rotation(rotation)
    return torch.rad2deg(2 * torch.atan2(quaternion[..., 1:].norm(dim=-1), quaternion[..., 0]))


@full_precision
def slerp(
    start: Tensor,  # (..., 3, 3)
    end: Tensor,  # (..., 3, 3)
    fraction: Tensor,  # (...)
) -> Tensor:
    """Rotations (..., 3, 3) a fraction of the way along the shortest turn from start to end."""
    return start @ rotation_exp(rotation_log(start.mT @ end) * fraction[..., None])


def quaternion_from_rotation(
    rotation: Tensor,  # (..., 3, 3)
) -> Tensor:
    """Unit quaternions (..., 4) as (w, x, y, z) with w >= 0; exact at every angle."""
    m = rotation
    trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
    x, y, z = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    candidates = torch.stack(  # each row is the quaternion times four of its components: w, x, y, z
        [
            torch.stack([1 + trace, x, y, z], -1),
            torch.stack([x, 1 + 2 * m[..., 0, 0] - trace, xy, xz], -1),
            torch.stack([y, xy, 1 + 2 * m[..., 1, 1] - trace, yz], -1),
            torch.stack([z, xz, yz, 1 + 2 * m[..., 2, 2] - trace], -1),
        ],
        dim=-2,
    )
    largest = torch.diagonal(candidates, dim1=-2, dim2=-1).argmax(-1)
    chosen = torch.take_along_dim(candidates, largest[..., None, None], dim=-2)[..., 0, :]
    chosen = torch.where(chosen[..., :1] < 0, -chosen, chosen)
    return chosen / chosen.norm(dim=-1, keepdim=True)


def rotation_from_quaternion(
    quaternion: Tensor,  # (..., 4)
) -> Tensor:
    """Rotations (..., 3, 3) of quaternions (w, x, y, z) of any nonzero length."""
    w, x, y, z = (quaternion / quaternion.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, dim=-2)


def rotation_between(
    start: Tensor,  # (..., 3)
    end: Tensor,  # (..., 3)
) -> Tensor:
    """Smallest rotations (..., 3, 3) that turn one direction into another."""
    start, end = (vector / vector.norm(dim=-1, keepdim=True) for vector in torch.broadcast_tensors(start, end))
    quaternion = torch.cat([1 + (start * end).sum(-1, keepdim=True), torch.linalg.cross(start, end)], dim=-1)
    sideways = torch.eye(3, dtype=start.dtype, device=start.device)[start.abs().argmin(-1)]
    half_turn = torch.nn.functional.pad(torch.linalg.cross(start, sideways), (1, 0))
    opposite = quaternion.norm(dim=-1, keepdim=True) < 1e-7
    return rotation_from_quaternion(torch.where(opposite, half_turn, quaternion))


def nearest_rotation(
    matrix: ArrayType,  # (..., 3, 3)
) -> ArrayType:
    """Rotations (..., 3, 3) nearest to matrices, as arrays or tensors like them; never reflections."""
    linalg: Any = np.linalg if isinstance(matrix, np.ndarray) else torch.linalg
    left, _, right = linalg.svd(matrix)
    sign = linalg.det(left @ right)
    return left @ right + (sign - 1)[..., None, None] * (left[..., :, 2:] @ right[..., 2:, :])


def pose_matrix(
    rotation: Tensor,  # (..., 3, 3)
    position: Tensor,  # (..., 3)
) -> Tensor:
    """Poses (..., 4, 4) from rotations and positions."""
    shape = torch.broadcast_shapes(rotation.shape[:-2], position.shape[:-1])
    pose = torch.zeros(*shape, 4, 4, dtype=rotation.dtype, device=rotation.device)
    pose[..., :3, :3], pose[..., :3, 3], pose[..., 3, 3] = rotation, position, 1
    return pose


@full_precision
def invert_pose(
    pose: Tensor,  # (..., 4, 4)
) -> Tensor:
    """Inverse poses (..., 4, 4) of rigid motions: camera-to-world <-> world-to-camera."""
    inverse = pose[..., :3, :3].mT
    return pose_matrix(inverse, -(inverse @ pose[..., :3, 3:])[..., 0])


def rotation_about(axis: int, angle: Tensor) -> Tensor:
    """Rotations (..., 3, 3) about a coordinate axis by angles in radians."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    matrix = torch.zeros(*angle.shape, 3, 3, dtype=angle.dtype, device=angle.device)
    matrix[..., axis, axis] = 1
    matrix[..., first, first] = matrix[..., second, second] = angle.cos()
    matrix[..., first, second], matrix[..., second, first] = -angle.sin(), angle.sin()
    return matrix
