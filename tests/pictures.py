"""What is in a picture file, for tests that promise that something is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image


def pixels(path: Path) -> np.ndarray:
    """A picture (H, W, 3) in [0, 1]."""
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB"), np.float64) / 255


def shows(
    picture: np.ndarray,  # (H, W, 3) in [0, 1]
    colour: str,
    least: int = 10,
) -> bool:
    """Whether at least so many pixels have a colour, as matplotlib names it."""
    return int((np.abs(picture - to_rgb(colour)) < 0.03).all(-1).sum()) >= least


def filled_cells(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Share of pixels (rows, columns) that are not paper in each cell of a grid."""
    drawn = (picture < 0.97).any(-1)
    return np.array(
        [[cell.mean() for cell in np.array_split(row, columns, 1)] for row in np.array_split(drawn, rows, 0)]
    )
