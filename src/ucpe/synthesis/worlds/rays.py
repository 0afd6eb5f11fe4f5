"""Rays as arrays: reading them from arrays or tensors, how wide they are, and finer ones between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ucpe.compiled import kernel


def array(value: Any, dtype: Any) -> np.ndarray:
    """A contiguous, writable NumPy array (so that compiled code needs one version) of an array, tensor or numbers."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.require(value, dtype, ["C", "W"])


def unpack_rays(rays: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(origins (..., 3) or (1, 3), directions (..., 3), valid (...)) as contiguous float32 and bool arrays."""
    origins, directions, valid = rays
    directions, origins = array(directions, np.float32), array(origins, np.float32)
    if directions.shape[-1:] != (3,) or origins.shape[-1:] != (3,):
        raise ValueError(f"rays need origins and directions (..., 3), got {origins.shape} and {directions.shape}")
    if valid is None:
        valid = np.ones(directions.shape[:-1], bool)
    valid = array(np.broadcast_to(array(valid, bool), directions.shape[:-1]), bool)
    if not (np.isfinite(directions).all() or np.isfinite(directions[valid]).all()) or not np.isfinite(origins).all():
        raise ValueError("rays must be finite wherever they are valid")
    if origins.size == 3 or not origins.any():
        origins = origins.reshape(-1, 3)[:1].copy() if origins.size else np.zeros((1, 3), np.float32)
    else:
        origins = array(np.broadcast_to(origins, directions.shape), np.float32)
    return origins, directions, valid


def ray_widths(directions: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Angle in radians (..., H, W) from each unit ray of a grid (..., H, W, 3) to its nearest neighbour."""
    height, width = valid.shape[-2:]
    widths = np.empty((valid.size // max(height * width, 1), height, width), np.float32)
    _neighbour_angles(directions.reshape(*widths.shape, 3), valid.reshape(widths.shape), widths)
    return widths.reshape(valid.shape)


def finer_rays(
    origins: np.ndarray, directions: np.ndarray, valid: np.ndarray, samples: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rays of a grid samples times finer on both axes, interpolated from each ray and its valid neighbours."""
    if valid.ndim < 2:
        raise ValueError("samples > 1 needs a grid of rays (..., H, W, 3); pass finer rays or samples=1")
    steps = ((np.arange(samples) + 0.5) / samples - 0.5).astype(np.float32)

    def refine(values: np.ndarray) -> np.ndarray:
        down, right = _slope(values, valid, -3), _slope(values, valid, -2)
        *lead, height, width, _ = values.shape
        fine = np.empty((*lead, height, samples, width, samples, 3), np.float32)
        for i, j in np.ndindex(samples, samples):
            fine[..., :, i, :, j, :] = values + steps[i] * down + steps[j] * right
        return fine.reshape(*lead, height * samples, width * samples, 3)

    fine_valid = np.ascontiguousarray(valid.repeat(samples, -1).repeat(samples, -2))
    return origins if len(origins) == 1 and origins.ndim == 2 else refine(origins), refine(directions), fine_valid


def _slope(values: np.ndarray, valid: np.ndarray, axis: int) -> np.ndarray:
    """Change per pixel along an axis, from the valid neighbours on both sides (zero where there is none)."""
    size = values.shape[axis]
    if size < 2:
        return np.zeros_like(values)
    both = np.take(valid, range(size - 1), axis + 1) & np.take(valid, range(1, size), axis + 1)
    step = np.diff(values, axis=axis) * both[..., None]
    edge, none = np.zeros_like(np.take(values, [0], axis)), np.zeros_like(np.take(valid, [0], axis + 1))
    total = np.concatenate([step, edge], axis) + np.concatenate([edge, step], axis)
    count = np.concatenate([both, none], axis + 1).astype(np.float32) + np.concatenate([none, both], axis + 1)
    return total / np.maximum(count, 1)[..., None]


@kernel(nogil=True, error_model="numpy")
def _neighbour_angles(directions, valid, widths):
    frames, height, width = valid.shape
    for frame in range(frames):
        for row in range(height):
            for column in range(width):
                least = np.inf
                for side in range(4):
                    i = row + (1 if side == 0 else -1 if side == 1 else 0)
                    j = column + (1 if side == 2 else -1 if side == 3 else 0)
                    if 0 <= i < height and 0 <= j < width and valid[frame, i, j]:
                        x = directions[frame, i, j, 0] - directions[frame, row, column, 0]
                        y = directions[frame, i, j, 1] - directions[frame, row, column, 1]
                        z = directions[frame, i, j, 2] - directions[frame, row, column, 2]
                        square = x * x + y * y + z * z
                        if square > 0.0:
                            least = min(least, square)
                widths[frame, row, column] = np.sqrt(least) if least < np.inf and valid[frame, row, column] else 0.0
