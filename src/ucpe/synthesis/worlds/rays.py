"""Rays as arrays: reading them from arrays or tensors, and how wide they are."""

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
