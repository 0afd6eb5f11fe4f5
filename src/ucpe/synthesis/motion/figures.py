"""Pictures of stage 2: how even the places are before and after selection (the paper's figure), and single matches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.figures import new_figure, quiet_axes, save_figure
from ucpe.synthesis.motion.candidates import read_motions
from ucpe.synthesis.motion.selection import evenness
from ucpe.synthesis.motion.window import Window
from ucpe.synthesis.rows import CURATED, MATCHES, part_files, poses_of_row, rows_with
from ucpe.trajectories import umeyama

ARROWS = 9
"""Number of view directions drawn along a path."""


def draw_balance(panels: Mapping[str, Mapping[str, int]], path: str | Path, most: int = 65) -> None:
    """Draw counts by category, one panel per entry of `panels`, ordered by the first panel; to a .png or .svg."""
    panels = {what: counts for what, counts in panels.items() if counts}
    if not panels:
        raise ValueError("no category to draw")
    first, *others = panels.values()
    names = list(dict.fromkeys([*sorted(first, key=lambda name: -first[name]), *(n for one in others for n in one)]))[
        :most
    ]
    figure = new_figure(max(6.0, 0.19 * len(names) + 2), 0.6 + 2.3 * len(panels), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (what, counts), color in zip(axes, panels.items(), ("#9aa5b1", "#2b6cb0")):
        axis.bar(range(len(names)), [counts.get(name, 0) for name in names], color=color, width=0.8)
        most_common = max(counts.values(), default=0)
        title = f"{what}: at most {most_common:,} of a category, evenness {evenness(counts):.2f}"
        axis.set_title(title, loc="left", fontsize=10)
        quiet_axes(axis, "y")
        axis.tick_params(axis="y", labelsize=8)
    axes[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes[-1].set_xlim(-0.7, len(names) - 0.3)
    save_figure(figure, path, dpi=110)


def draw_matches(matches: str | Path, curated: str | Path, motions: str | Path, clip: str, path: str | Path) -> None:
    """Draw a clip's path from above with each matched motion laid on it, and where the transferred camera looks."""
    rows = [row for file in part_files(Path(matches)) for row in rows_with(file, MATCHES, "clip", [clip]).to_pylist()]
    if not rows:
        raise ValueError(f"{matches}: clip {clip!r} has no match")
    erp = _clip_poses(Path(curated), clip)[rows[0]["frames"]].numpy()
    window = Window(len(erp), rows[0]["fps"], max_stretch=math.inf)
    library = {motion.id: motion.trajectory for motion in read_motions(motions, jittery_share=0)[0]}
    columns, lines = min(len(rows), 3), -(-len(rows) // 3)
    figure = new_figure(3.6 * columns, 3.7 * lines, layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axis in axes[len(rows) :]:
        axis.set_visible(False)
    for axis, row in zip(axes, rows):
        if row["motion"] not in library:
            raise ValueError(f"{motions}: no motion {row['motion']!r}, which {matches} names")
        motion, target = window.of_motion(library[row["motion"]]).positions, torch.from_numpy(erp[:, :3, 3])
        laid = umeyama(motion, target, vertical=True).apply(motion).numpy()
        _draw_match(axis, erp, laid, np.array(row["rotations"]).reshape(-1, 3, 3))
        axis.set_title(f"{row['motion']}\nRMSE {row['rmse']:.3f}", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False, loc="best")
    save_figure(figure, path)


def _draw_match(axis: Any, erp: np.ndarray, laid: np.ndarray, rotations: np.ndarray) -> None:
    path = erp[:, :3, 3]
    axis.plot(path[:, 0], path[:, 2], color="#9aa5b1", linewidth=4, solid_capstyle="round", label="panoramic clip")
    axis.plot(laid[:, 0], laid[:, 2], color="#dd6b20", linewidth=1.5, linestyle="--", label="motion, aligned")
    shown = np.linspace(0, len(path) - 1, ARROWS).round().astype(int)
    forward = (erp[:, :3, :3] @ rotations)[shown, :, 2]
    length = 0.18 * max(float(np.ptp(np.concatenate([path, laid])[:, [0, 2]], axis=0).max()), 1e-6)
    tips = path[shown] + length * forward
    axis.plot(tips[:, 0], tips[:, 2], alpha=0)
    axis.quiver(
        *path[shown][:, [0, 2]].T,
        *(length * forward[:, [0, 2]]).T,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.008,
        color="#2b6cb0",
        zorder=3,
        label="camera looks",
    )
    axis.scatter(*path[0, [0, 2]], color="#2b6cb0", s=18, zorder=4)
    axis.set_aspect("equal", adjustable="datalim")
    axis.margins(0.1)
    axis.tick_params(labelsize=8)
    axis.set_xlabel("right", fontsize=8)
    axis.set_ylabel("forward", fontsize=8)
    axis.grid(alpha=0.25)


def _clip_poses(curated: Path, clip: str) -> torch.Tensor:
    for part in part_files(curated):
        table = rows_with(part, CURATED, "id", [clip], ["c2w"])
        if len(table):
            return poses_of_row(table["c2w"], 0)
    raise ValueError(f"{curated}: no clip {clip!r}")
