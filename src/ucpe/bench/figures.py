"""Pictures of a benchmark: dots with error bars, and grids of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ucpe.bench.statistics import Spread
from ucpe.bench.tables import NOT_RUN
from ucpe.figures import GRID, INK, hide_ticks, new_figure, quiet_axes, save_figure

COLORS = ("#3d6cb3", "#3a9a73", "#dd9a2f", "#c8553d", "#7a5aa6", "#5b6770")
MARKERS = "osD^vP"


def dot_plot(
    path: Path,
    panels: Mapping[str, Mapping[str, Mapping[str, Spread | None]]],
    label: str,
) -> Path:
    """Write a PNG with one panel per entry: a row per contestant and a dot per series, `panels[panel][row][series]`.

    Bars are one standard deviation between seeds; what was not run is said so.
    """
    rows = list(next(iter(panels.values())))
    series = list(next(iter(next(iter(panels.values())).values())))
    figure = new_figure(1.6 + 4.2 * len(panels), 1.1 + 0.34 * len(rows))
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)
    for axis, (title, panel) in zip(axes[0], panels.items()):
        for number, name in enumerate(series):
            found = [(index, value) for index, row in enumerate(rows) if (value := panel[row].get(name)) is not None]
            if not found:
                continue
            offset = (number - (len(series) - 1) / 2) * 0.17
            axis.errorbar(
                [value.mean for _, value in found],
                [index + offset for index, _ in found],
                xerr=[value.deviation or 0 for _, value in found],
                fmt=MARKERS[number % len(MARKERS)],
                color=COLORS[number % len(COLORS)],
                markersize=4.5,
                elinewidth=1.2,
                capsize=2,
                label=name,
            )
        for index, row in enumerate(rows):
            if all(value is None for value in panel[row].values()):
                axis.text(0.5, index, NOT_RUN, transform=axis.get_yaxis_transform(), color="#8a949e", size=8,
                          ha="center", va="center")  # fmt: skip
        axis.set_title(title, size=10, color=INK)
        axis.set_xlabel(label, color=INK)
        axis.set_yticks(range(len(rows)), rows)
        quiet_axes(axis, "x")
        axis.spines["left"].set_visible(False)
        for index in range(1, len(rows)):
            axis.axhline(index - 0.5, color=GRID, linewidth=0.5)
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    handles = {text: handle for axis in axes[0] for handle, text in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=len(series), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return save_figure(figure, path, dpi=130)


def curve_plot(
    path: Path,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]],
    levels: Mapping[str, Mapping[str, float]] | None = None,
) -> Path:
    """Write a PNG with one panel per label: a line per contestant through (step, value, deviation).

    `levels` are values to compare with by label and name, drawn as dotted lines.
    """
    figure = new_figure(1.5 + 4.2 * len(panels), 4.6)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (label, curves) in zip(axes, panels.items()):
        for number, (name, points) in enumerate(curves.items()):
            if points:
                steps, values, deviations = zip(*points)
                style = {
                    "color": COLORS[number % len(COLORS)],
                    "linestyle": ("-", "--", ":")[number // len(COLORS) % 3],
                }
                axis.errorbar(
                    steps, values, deviations, label=name, marker="o", markersize=3, capsize=2, linewidth=1.4, **style
                )
        for name, level in (levels or {}).get(label, {}).items():
            axis.axhline(level, color=INK, linewidth=0.8, linestyle=":")
            axis.text(1, level, name, transform=axis.get_yaxis_transform(), size=7, color=INK, ha="right", va="bottom")
            axis.set_ylim(bottom=0)
        axis.set_xlabel("steps", color=INK)
        axis.set_title(label, size=10, color=INK)
        quiet_axes(axis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=4, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.17, 1, 1))
    return save_figure(figure, path, dpi=130)


def coloured(
    values: np.ndarray,  # (H, W) in [0, 1]
    colours: str,
) -> np.ndarray:
    """Values as an image (H, W, 3) uint8 in a colour map of matplotlib's; light grey where they are not finite."""
    from matplotlib import colormaps

    image = colormaps[colours](np.nan_to_num(values).clip(0, 1))[..., :3]
    image[~np.isfinite(values)] = 0.88
    return (255 * image).round().astype(np.uint8)


def image_grid(
    path: Path,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[np.ndarray | None]],  # each (H, W, 3) uint8
) -> Path:
    """Write a PNG of small images under the names of their columns, beside the names of their rows."""
    height, width = next(image.shape[:2] for line in rows.values() for image in line if image is not None)
    figure = new_figure(0.9 + 0.92 * width / height * len(columns), 0.7 + 0.95 * len(rows))
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, (name, images) in zip(axes, rows.items()):
        for axis, image in zip(line, images):
            hide_ticks(axis)
            if image is None:
                axis.text(
                    0.5, 0.5, NOT_RUN, transform=axis.transAxes, color="#8a949e", size=7, ha="center", va="center"
                )
            else:
                axis.imshow(image, interpolation="nearest")
        line[0].set_ylabel(name, size=8, color=INK)
    for axis, name in zip(axes[0], columns):
        axis.set_title(name.replace(", ", ",\n").replace(" (", "\n(").replace(" + ", "\n+ "), size=7, color=INK)
    figure.tight_layout(pad=0.3, w_pad=0.15, h_pad=0.15)
    return save_figure(figure, path, dpi=110)
