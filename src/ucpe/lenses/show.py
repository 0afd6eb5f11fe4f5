"""The picture of a lens: a room through it, its angles, the Lat-Up map of a tilted camera, and its numbers.

`ucpe lens show` draws it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ucpe.figures import BLIND, INK, QUIET, hide_ticks, new_figure
from ucpe.lenses.base import Lens, Rays
from ucpe.lenses.planar import PlanarLens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM_LOW, ROOM_HIGH = np.array([-3.2, -1.9, -3.6]), np.array([3.2, 1.5, 4.4])
"""Corners of the room in metres around the camera, in camera axes at rest."""

TILE = 0.8
"""Edge of a checker square in metres."""

WALLS = {
    (0, 0): ("#8fb88a", "#d5e6cf"),
    (0, 1): ("#d98f5c", "#f6dcc4"),
    (1, 0): ("#e4e2dc", "#f6f5f1"),
    (1, 1): ("#6d625c", "#b9aca2"),
    (2, 0): ("#a184b5", "#e2d6ea"),
    (2, 1): ("#5d8fc2", "#d3e3f2"),
}
"""Two colours of each side of the room, by axis and by low or high end."""


def draw_lens(
    lens: Lens,  # no batch
    lat_up: Tensor,  # (h, w, 3), of the camera below
    c2w: Tensor,  # (4, 4)
    *,
    height: int = 480,
    width: int = 832,
    title: str = "",
    subtitle: str = "",
) -> Figure:
    """Picture of a lens in an image of height x width: room, angles, Lat-Up map and numbers."""
    if lens.batch_shape:
        raise ValueError(f"one lens is drawn at a time, not a batch of shape {tuple(lens.batch_shape)}: index it first")
    panel_width = 5.0
    panel_height = min(max(panel_width * height / width, 1.6), 6.0)
    panel_width = panel_height * width / height
    figure_width = 2 * panel_width + 0.9
    figure_height = 2 * panel_height + 1.85
    figure = new_figure(figure_width, figure_height)

    def panel(column: int, row: int, heading: str) -> Axes:
        left = 0.3 + column * (panel_width + 0.3)
        bottom = 0.3 + (1 - row) * (panel_height + 0.45)
        axes = figure.add_axes(
            (left / figure_width, bottom / figure_height, panel_width / figure_width, panel_height / figure_height)
        )
        axes.set_title(heading, loc="left", fontsize=10.5, color=INK, pad=6)
        hide_ticks(axes)
        return axes

    figure.text(
        0.3 / figure_width, 1 - 0.2 / figure_height, title or lens.kind, fontsize=16, color=INK, va="top", weight="bold"
    )
    figure.text(0.3 / figure_width, 1 - 0.53 / figure_height, subtitle, fontsize=10, color=QUIET, va="top")
    rows, columns = display_size(height, width)
    rays = lens.rays(rows, columns, dtype=torch.float64)
    _draw_room(panel(0, 0, "A room seen through it"), lens, c2w, rows, columns)
    _draw_angles(panel(1, 0, "Angle of each pixel to the optical axis"), rays)
    _draw_lat_up(panel(0, 1, "Lat-Up map: latitude and the direction of up"), lat_up.double().cpu().numpy(), rays)
    _draw_numbers(panel(1, 1, "Numbers"), lens, height, width)
    return figure


def checker_room(rays: Rays, c2w: Tensor) -> np.ndarray:
    """Colours (..., 3) in [0, 1] that rays see from a camera-to-world pose (4, 4) inside a room of checkered walls."""
    from matplotlib.colors import to_rgb

    rotation, position = c2w[:3, :3].double().cpu().numpy(), c2w[:3, 3].double().cpu().numpy()
    directions = rays.directions.double().cpu().numpy() @ rotation.T
    origins = rays.origins.double().cpu().numpy() @ rotation.T + position
    directions = np.where(np.abs(directions) < 1e-12, 1e-12, directions)
    distances = (np.where(directions > 0, ROOM_HIGH, ROOM_LOW) - origins) / directions
    axis = distances.argmin(-1)
    points = origins + distances.min(-1)[..., None] * directions
    colours = np.zeros((*axis.shape, 3))
    squares = np.floor((points - ROOM_LOW) / TILE + 1e-9)
    for (wall, end), pair in WALLS.items():
        there = (axis == wall) & ((directions[..., wall] > 0) == bool(end))
        along = [other for other in range(3) if other != wall]
        light = squares[..., along].sum(-1).astype(int) % 2 == 1
        dark_colour, light_colour = map(to_rgb, pair)
        colours[there] = np.where(light[there][:, None], light_colour, dark_colour)
    corner = np.sort(np.minimum(points - ROOM_LOW, ROOM_HIGH - points), -1)[..., 1]
    colours *= (0.82 + 0.18 * np.clip(corner / 0.9, 0, 1))[..., None]
    return np.where(rays.valid.cpu().numpy()[..., None], colours, to_rgb(BLIND))


def _draw_room(axes: Axes, lens: Lens, c2w: Tensor, rows: int, columns: int) -> None:
    fine = checker_room(lens.rays(2 * rows, 2 * columns), c2w)
    axes.imshow(fine.reshape(rows, 2, columns, 2, 3).mean((1, 3)), aspect="auto", interpolation="antialiased")


def _draw_angles(axes: Axes, rays: Rays) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = ["#1d2b64", "#31579c", "#3f8fb0", "#6dbb9a", "#e8c66a", "#e07a4f", "#9c2f4f"]
    dial = LinearSegmentedColormap.from_list("angle", colours)
    directions = rays.directions.numpy()
    angle = np.degrees(np.arctan2(np.hypot(directions[..., 0], directions[..., 1]), directions[..., 2]))
    angle = np.ma.masked_array(angle, ~rays.valid.numpy())
    widest = angle.max()
    step = next(step for step in (1, 2, 5, 10, 15, 20, 30) if widest / step <= 8 or step == 30)
    levels = np.arange(step, 0.98 * widest, step)
    axes.set_facecolor(BLIND)
    axes.imshow(angle, cmap=dial, vmin=0, vmax=180, aspect="auto")
    row, column = np.unravel_index(angle.argmin(), angle.shape)
    axes.plot(column, row, "+", color="white", markersize=9, markeredgewidth=1.6)
    if len(levels):
        widths = [2.2 if level == 90 else 1.0 for level in levels]
        lines = axes.contour(angle, levels=levels, colors="white", linewidths=widths)
        _label(axes, lines, (0.8, 0.6), (float(column), float(row)), "white")


def _draw_lat_up(axes: Axes, lat_up: np.ndarray, rays: Rays) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = ["#5b3d28", "#a5754a", "#e9d3b4", "#fbfaf6", "#bcd9ee", "#5b97c9", "#1f4f86"]
    sky = LinearSegmentedColormap.from_list("latitude", colours)
    valid = rays.valid.numpy()
    rows, columns = valid.shape
    latitude = np.ma.masked_array(np.degrees(lat_up[..., 2]), ~valid)
    axes.set_facecolor(BLIND)
    axes.imshow(latitude, cmap=sky, vmin=-90, vmax=90, aspect="auto")
    levels = np.arange(-75, 90, 15)
    levels = levels[(levels > latitude.min()) & (levels < latitude.max())]
    if len(levels):
        widths = [2.2 if level == 0 else 0.7 for level in levels]
        lines = axes.contour(latitude, levels=levels, colors=INK, linewidths=widths, linestyles="solid", alpha=0.75)
        _label(axes, lines, (0.0, 1.0), (0.12 * columns, 0.0), INK)
    spacing = math.sqrt(rows * columns / 130)
    across, down = max(2, round(columns / spacing)), max(2, round(rows / spacing))
    u = ((np.arange(across) + 0.5) * columns / across).astype(int)
    v = ((np.arange(down) + 0.5) * rows / down).astype(int)
    u, v = (grid.reshape(-1) for grid in np.meshgrid(u, v))
    up = lat_up[v, u, :2]
    drawn = np.hypot(*up.T) > 0.5
    shape: dict[str, Any] = {"width": 0.0035, "headwidth": 4.5, "headlength": 5, "pivot": "mid", "color": "#c2304f"}
    arrows = up[drawn, 0], up[drawn, 1]
    axes.quiver(u[drawn], v[drawn], *arrows, angles="xy", scale_units="xy", scale=1.8 / spacing, **shape)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)


def _draw_numbers(axes: Axes, lens: Lens, height: int, width: int) -> None:
    lines = lens_numbers(lens, height, width)
    inches = axes.bbox.height / axes.figure.dpi
    step = min(0.3 / inches, 0.98 / len(lines))
    size = min(11.0, 0.62 * 72 * step * inches)
    for index, (name, value) in enumerate(lines):
        place = 0.97 - index * step
        axes.text(0.0, place, name, fontsize=size, color=QUIET, va="top", transform=axes.transAxes)
        axes.text(0.40, place, value, fontsize=size, color=INK, va="top", transform=axes.transAxes)


def lens_numbers(lens: Lens, height: int, width: int) -> list[tuple[str, str]]:
    """What there is to say about a lens in an image of height x width, as names and values to print."""
    matrix = lens.intrinsics(height, width)
    degrees = (float(angle(height, width)) for angle in (lens.xfov, lens.yfov, lens.dfov))
    centre = torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64) + torch.tensor([width / 2, height / 2])
    ahead = lens.unproject(centre.double(), height, width).directions
    per_pixel = 2 * math.degrees(float((ahead[1] - ahead[0]).norm()))
    shape = lens.model_parameters if isinstance(lens, PlanarLens) else lens.parameters
    given = [f"{name} {float(value):.5g}" for name, value in shape.items() if float(value) != 0]
    given += [str(value) for name, value in lens.settings.items() if name not in ("width", "height")]
    lines = [("model", lens.kind)]
    for start in range(0, len(given), 3):
        lines.append(("parameters" if start == 0 else "", "   ".join(given[start : start + 3])))
    lines += [(name, f"{value:.2f}°") for name, value in zip(("across", "down", "widest"), degrees)]
    lines.append(
        ("visible", f"{100 * float(lens.rays(height, width).valid.double().mean()):.1f} % of {width} x {height} pixels")
    )
    lines.append(("focal length", f"{float(matrix[0, 0]):.2f}, {float(matrix[1, 1]):.2f} px"))
    lines.append(("principal point", f"{float(matrix[0, 2]):.2f}, {float(matrix[1, 2]):.2f} px"))
    lines.append(("at the centre", f"{per_pixel:.4f}° per pixel"))
    if not lens.central:
        reach = float(lens.rays(8, 16).origins.norm(dim=-1).max())
        lines.append(("ray origins", f"{reach:.3g} from the centre"))
    return lines


def _label(axes: Axes, lines: Any, towards: tuple[float, float], through: tuple[float, float], colour: str) -> None:
    """Write the degrees of each contour where it is nearest to a line across the image, away from the border."""
    import matplotlib.patheffects as effects

    halo = "#2c3350" if colour == "white" else "#ffffff"
    low, high = np.array([0.04, 0.07]), np.array([0.96, 0.93])
    normal = np.array([-towards[1], towards[0]]) / math.hypot(*towards)
    for level, segments in zip(lines.levels, lines.allsegs):
        points = np.concatenate(segments) if segments else np.zeros((0, 2))
        inside = axes.transAxes.inverted().transform(axes.transData.transform(points)) if len(points) else points
        points = points[((inside > low) & (inside < high)).all(-1)]
        if len(points):
            along = (points - through) @ np.array(towards)
            away = np.abs((points - through) @ normal) + 1e3 * (along < 0)
            across, down = points[away.argmin()]
            text = axes.text(across, down, f"{level:g}°", fontsize=8, color=colour, ha="center", va="center")
            text.set_path_effects([effects.withStroke(linewidth=3.0, foreground=halo, alpha=0.75)])


def display_size(height: int, width: int) -> tuple[int, int]:
    """Rows and columns at which the panels of an image of height x width are computed."""
    scale = math.sqrt(200_000 / (height * width))
    return max(8, round(height * scale)), max(8, round(width * scale))
