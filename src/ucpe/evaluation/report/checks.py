"""One video against its camera, on a screen and as a picture: what `ucpe check` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ucpe.evaluation.checking import Check, Quantity
from ucpe.figures import new_figure, save_figure
from ucpe.pages.drawings import overlay

COLORS = {"obeyed": "#2f8f4e", "not obeyed": "#c0392b", "unsure": "#b7791f"}
"""Colours of the verdicts."""

MARKS = {"obeyed": "✓", "not obeyed": "✗", "unsure": "?"}


def lines_of(check: Check, plot_width: int = 60) -> list[str]:
    """Lines for the screen: the verdict, then each quantity in numbers and as a small plot."""
    lines = [f"{MARKS[check.verdict]} {check.name}: {check.verdict}"]
    for quantity in check.quantities:
        own = "own error not known" if quantity.floor is None else f"own error {_number(quantity.floor)}{quantity.unit}"
        lines += [
            "",
            f"{MARKS[quantity.verdict]} {quantity.name}: {quantity.verdict}{_amount(quantity)}; off by "
            f"{_number(quantity.error)}{quantity.unit} on average, up to {_number(quantity.tolerance)} is tolerated "
            f"({quantity.estimator}, {own}{'' if quantity.sure else ', not sure of itself'})",
            *terminal_plot(
                quantity.seconds, quantity.commanded, quantity.measured, quantity.tolerance, width=plot_width
            ),
        ]
        lines += [f"  → {hint}" for hint in [quantity.hint()] if hint]
    lines += [""] + [f"- {name} not measured: {reason}" for name, reason in check.missing.items()]
    if check.effect is not None:
        levels = f"{check.effect:.2f} of 255 levels"
        lines.append(
            f"✗ the camera changes nothing: without it the same seed gives the same video ({levels} apart)"
            if check.no_effect
            else f"✓ the camera has an effect: without it the same seed gives another video ({levels} apart)"
        )
    return [*lines, *(f"- {note}" for note in check.notes), "· told   ● measured   ◉ both"]


def terminal_plot(
    seconds: np.ndarray,  # (M,)
    told: np.ndarray,  # (M,)
    measured: np.ndarray,  # (M,)
    min_range: float = 1e-6,
    width: int = 60,
    height: int = 5,
) -> list[str]:
    """Two curves over time as lines of text, which span at least `min_range`."""
    low, high = (float(reduce(np.concatenate([told, measured]))) for reduce in (np.min, np.max))
    spare = max(min_range - (high - low), 0) / 2
    low, high = low - spare, high + spare
    grid = [[" "] * width for _ in range(height)]
    times = np.linspace(seconds[0], seconds[-1], width)
    for curve, mark in ((told, "·"), (measured, "●")):
        level = (np.interp(times, seconds, curve) - low) / (high - low) * (height - 1)
        for column, row in enumerate((height - 1 - level.round()).astype(int)):
            grid[row][column] = "◉" if grid[row][column] == "·" else mark
    labels = [_number(high), *[""] * (height - 2), _number(low)]
    return [f"{label:>8} ┤{''.join(row)}" for label, row in zip(labels, grid)]


def draw_check(check: Check, path: str | Path) -> None:
    """Write a picture: some frames under the commanded horizon, and every quantity over time."""
    columns = max(len(check.quantities), 1)
    figure = new_figure(12, 5.4, layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1, 1.35])
    frames, plots = parts
    figure.suptitle(f"{check.name}: {check.verdict}", fontsize=13, x=0.01, ha="left", color=COLORS[check.verdict])
    for axes, picture, number in zip(np.ravel(frames.subplots(1, len(check.shown))), check.frames, check.shown):
        one = check.camera[int(number) : int(number) + 1]
        axes.imshow(overlay(picture, one) if check.camera.up_known else picture)
        axes.set_title(f"frame {number}", fontsize=8)
        axes.set_axis_off()
    for axes, quantity in zip(np.ravel(plots.subplots(1, columns)), check.quantities):
        axes.plot(quantity.seconds, quantity.commanded, color="#888888", linewidth=3, label="told")
        axes.plot(quantity.seconds, quantity.measured, color=COLORS[quantity.verdict], linewidth=1.6, label="measured")
        axes.set_title(f"{quantity.name}: {quantity.verdict}", fontsize=10, color=COLORS[quantity.verdict])
        axes.set_xlabel(
            f"seconds\noff by {_number(quantity.error)}{quantity.unit}, tolerated {_number(quantity.tolerance)}",
            fontsize=8,
        )
        axes.set_ylabel(quantity.unit.strip(), fontsize=8)
        least = 2.2 * quantity.tolerance
        low, high = axes.get_ylim()
        if high - low < least:
            axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    save_figure(figure, path, dpi=110)


def _amount(quantity: Quantity) -> str:
    """How much of the commanded change was made, or what was measured where it stays the same, in words."""
    if quantity.name == "field of view" and quantity.followed is None:
        told, got = (float(np.median(values)) for values in (quantity.commanded, quantity.measured))
        return f", {_number(got)} of {_number(told)}{quantity.unit} told"
    if quantity.followed is None:
        return ""
    told, got = (float(values[-1] - values[0]) for values in (quantity.commanded, quantity.measured))
    if abs(told) <= quantity.tolerance:
        return f", {quantity.followed:.0%} of the change"
    return f", {_number(got)} of {_number(told)}{quantity.unit} told"


def _number(value: float) -> str:
    digits = 1 if abs(value) >= 10 else 2
    return f"{round(value, digits) + 0.0:.{digits}f}"
