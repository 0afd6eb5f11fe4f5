"""Figures drawn by matplotlib without a display: their colours and their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ucpe.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, GRID, BLIND, PAPER = "#22262e", "#6b7180", "#d8dee4", "#d9dce2", "#ffffff"
"""Colours of text, of lesser text, of grid lines, of what a lens cannot see, and of the background."""

PICTURES = (".png", ".svg", ".pdf", ".jpg")
"""Kinds of files that a figure is written as."""


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """An empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor=PAPER, **options)


def save_figure(figure: Figure, path: str | Path, dpi: float = 100) -> Path:
    """Write a figure in one step, as what the path ends in; returns the path."""
    path = check_picture(path)
    with atomic_file(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=dpi)
    return path


def check_picture(path: str | Path) -> Path:
    """The path; ValueError unless a figure can be written as it."""
    path = Path(path)
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"pictures are written as {', '.join(PICTURES)}, not {path.name!r}")
    return path


def hide_ticks(axes: Axes) -> None:
    """Leave out ticks and borders of axes."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def quiet_axes(axes: Axes, grid: Literal["x", "y", "both"] = "both") -> None:
    """A faint grid behind what is drawn, no border above and to the right, and no tick marks."""
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)
