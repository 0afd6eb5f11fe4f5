"""A picture of how even the places are before and after selection (the paper's figure)."""

from __future__ import annotations

import io
from pathlib import Path

from ucpe.synthesis.dataset import write_bytes
from ucpe.synthesis.motion.selection import evenness


def draw_balance(before: dict[str, int], after: dict[str, int], path: str | Path, most: int = 65) -> None:
    """Bars of the clips (before) and chosen matches (after) of each category, largest before first, as .png or .svg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(before)[:most]
    if not names:
        raise ValueError("no category to draw")
    figure = Figure(figsize=(max(6.0, 0.19 * len(names) + 2), 5.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axis, counts, what, color in (
        (upper, before, "clips before selection", "#9aa5b1"),
        (lower, after, "matches after selection", "#2b6cb0"),
    ):
        axis.bar(range(len(names)), [counts.get(name, 0) for name in names], color=color, width=0.8)
        axis.set_title(f"{what}: {sum(counts.values()):,}, evenness {evenness(counts):.2f}", loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", labelsize=8)
        axis.grid(axis="y", alpha=0.25)
        axis.set_axisbelow(True)
    lower.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    lower.set_xlim(-0.7, len(names) - 0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lstrip(".") or "png")
    write_bytes(Path(path), buffer.getvalue())
