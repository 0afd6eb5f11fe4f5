"""A sheet to judge a generated video by: its frames under the commanded horizon, and the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.encodings import lat_up_map
from ucpe.encodings.latitudes import latitude_lines
from ucpe.figures import new_figure, save_figure
from ucpe.generation.pipeline import CameraVideo
from ucpe.lenses import Lens
from ucpe.trajectories import Trajectory

SHOWN = 5
HORIZON, LINES = "#ffd400", "#ffffff"


def preview_sheet(videos: list[CameraVideo], path: str | Path, overlay: bool = True) -> None:
    """Write a PNG with one row per video: frames under commanded latitudes and up arrows, and the path from above."""
    height, width = videos[0].frames.shape[1:3]
    tall = (2.6 * height / width + 0.42) * len(videos) + 0.1
    figure = new_figure(2.6 * (SHOWN + 1), tall)
    margins = {"wspace": 0.03, "hspace": 0.24, "left": 0.01, "right": 0.99, "top": 1 - 0.3 / tall, "bottom": 0.03}
    grid = figure.subplots(len(videos), SHOWN + 1, squeeze=False, gridspec_kw=margins)
    for row, video in zip(grid, videos):
        chosen = np.linspace(0, len(video.frames) - 1, SHOWN).round().astype(int)
        for axes, index in zip(row, chosen):
            axes.imshow(video.frames[index], extent=(0, width, height, 0), interpolation="bicubic")
            if overlay:
                draw_latitudes(axes, video.camera.lens_at(index), video.camera.c2w[index], height, width)
            axes.set_axis_off()
        row[0].set_title(
            f"{video.prompt}   ·   {_camera_words(video.camera, height, width)}", fontsize=8, loc="left", pad=4
        )
        draw_path(row[-1], video.camera)
    save_figure(figure, path, dpi=110)


def draw_latitudes(axes: Any, lens: Lens, c2w: torch.Tensor, height: int, width: int, arrows: bool = True) -> None:
    """Draw latitude lines (the horizon thick) and up arrows of a camera (4, 4) over an image on matplotlib axes."""
    for level, pieces in latitude_lines(lens, c2w, height, width).items():
        for piece in pieces:
            axes.plot(*piece.T, color=LINES if level else HORIZON, linewidth=0.5 if level else 1.6, clip_on=True)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    if not arrows:
        return
    rows, columns = 4, max(4, round(4 * width / height))
    up = lat_up_map(lens, c2w[None].double(), rows, columns)[0]
    across, down = np.meshgrid((np.arange(columns) + 0.5) * width / columns, (np.arange(rows) + 0.5) * height / rows)
    axes.quiver(
        across, down, up[..., 0], -up[..., 1], color=LINES, alpha=0.75, pivot="tail", scale=22, width=0.004, headwidth=4
    )  # fmt: skip


def draw_path(axes: Any, camera: Trajectory) -> None:
    """Draw a camera path from above: where it is and where it looks, dark to bright over time."""
    positions, forward = camera.positions.numpy()[:, [0, 2]], camera.rotations.numpy()[:, [0, 2], 2]
    reach = max(np.ptp(positions, axis=0).max(), 0.4)
    shade = np.linspace(0, 1, len(camera))
    steps = np.linspace(0, len(camera) - 1, min(len(camera), 9)).round().astype(int)
    axes.plot(*positions.T, color="#999999", linewidth=1)
    axes.quiver(
        *positions[steps].T, *forward[steps].T, shade[steps], cmap="viridis", scale=2.6, width=0.016, pivot="tail"
    )  # fmt: skip
    middle = (positions.min(0) + positions.max(0)) / 2
    axes.set_xlim(middle[0] - 1.1 * reach, middle[0] + 1.1 * reach)
    axes.set_ylim(middle[1] - 1.1 * reach, middle[1] + 1.1 * reach)
    axes.set_aspect("equal", adjustable="box")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title("from above", fontsize=7, pad=3)


def _camera_words(camera: Trajectory, height: int, width: int) -> str:
    lens = camera.lens_at(0)
    angles = camera.angles
    return (
        f"{lens.kind} {float(lens.xfov(height, width)):.0f}°, pitch {float(angles.pitch[0]):.0f}°, "
        f"roll {float(angles.roll[0]):.0f}°"
    )
