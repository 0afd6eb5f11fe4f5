"""A sheet to judge a generated video by: its frames under the commanded horizon, and the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ucpe.figures import new_figure, save_figure
from ucpe.generation.pipeline import CameraVideo
from ucpe.pages.drawings import overlay
from ucpe.trajectories import Trajectory

SHOWN, PIXELS = 5, 272
"""Frames of a video in its row, and pixels across each."""


def preview_sheet(videos: list[CameraVideo], path: str | Path) -> None:
    """Write a PNG with one row per video: frames under commanded latitudes and up arrows, and the path from above."""
    height, width = videos[0].frames.shape[1:3]
    tall = (2.6 * height / width + 0.42) * len(videos) + 0.1
    figure = new_figure(2.6 * (SHOWN + 1), tall)
    margins = {"wspace": 0.03, "hspace": 0.24, "left": 0.01, "right": 0.99, "top": 1 - 0.3 / tall, "bottom": 0.03}
    grid = figure.subplots(len(videos), SHOWN + 1, squeeze=False, gridspec_kw=margins)
    for row, video in zip(grid, videos):
        chosen = np.linspace(0, len(video.frames) - 1, SHOWN).round().astype(int)
        for axes, index in zip(row, chosen):
            axes.imshow(overlay(video.frames[index], video.camera[int(index)], PIXELS), interpolation="nearest")
            axes.set_axis_off()
        row[0].set_title(
            f"{video.prompt}   ·   {_camera_words(video.camera, height, width)}", fontsize=8, loc="left", pad=4
        )
        draw_path(row[-1], video.camera)
    save_figure(figure, path, dpi=110)


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
    axes.set(xticks=[], yticks=[])
    axes.set_title("from above", fontsize=7, pad=3)


def _camera_words(camera: Trajectory, height: int, width: int) -> str:
    lens = camera.lens_at(0)
    angles = camera.angles
    return (
        f"{lens.kind} {float(lens.xfov(height, width)):.0f}°, pitch {float(angles.pitch[0]):.0f}°, "
        f"roll {float(angles.roll[0]):.0f}°"
    )
