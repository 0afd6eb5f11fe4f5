"""Pictures of a trajectory: the path and what the camera sees in 3D, from above, and its angles over time.

`ucpe trajectory show` draws them; a .png is a still, a .html is one self-contained page that turns with the mouse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.figures import INK, PAPER, PICTURES, QUIET, new_figure, save_figure
from ucpe.files import write_file
from ucpe.trajectories.frustum import Frustum, frustum
from ucpe.trajectories.trajectory import Trajectory

TIME_COLOURS = ["#31408f", "#7a4fa3", "#c9527e", "#ee8054", "#f5b84c"]
"""First frame to last."""

ANGLE_COLOURS = {"pitch": "#c9406b", "yaw": "#2f6fb2", "roll": "#3c9a5f"}
FAINT, FAINT_GRID = "#c9ccd3", "#eceef2"

FRUSTUM_SHARE = 0.22
"""Depth of a drawn frustum, as a share of how far the camera moves."""


def show_trajectory(
    trajectory: Trajectory,
    path: str | Path,
    *,
    title: str = "",
    views: int = 7,
    height: int = 480,
    width: int = 832,
) -> None:
    """Draw a trajectory to a .png (or .svg, .pdf) picture or a self-contained .html page.

    `views` cameras are drawn along the way, each as the lens sees an image of height x width.
    """
    path = Path(path)
    scene = _scene(trajectory, title or path.stem, views, height, width)
    if path.suffix.lower() in (".html", ".htm"):
        page = _page(scene).to_html(
            include_plotlyjs=True, full_html=True, default_height="97vh", config={"displaylogo": False}
        )
        write_file(path, page)
    elif path.suffix.lower() in PICTURES:
        save_figure(_picture(scene), path, dpi=110)
    else:
        raise ValueError(f"a trajectory is shown as {', '.join(PICTURES)} or .html, not {path.name!r}")


def draw_path(
    figure: Any,
    trajectory: Trajectory,
    region: tuple[float, float, float, float],
    *,
    views: int = 7,
    height: int = 480,
    width: int = 832,
) -> None:
    """Draw only path and views in 3D into a region (left, bottom, width, height) of a figure, in its fractions."""
    axes = figure.add_axes(region, projection="3d", computed_zorder=False)
    _draw_space(axes, _scene(trajectory, "", views, height, width), region)


@dataclass
class _View:
    """One drawn camera, in drawing coordinates (right, forward, up)."""

    colour: str
    origin: np.ndarray  # (3,)
    cap: np.ndarray  # (rings, border, 3)
    border: np.ndarray  # (border + 1, 3)
    corners: np.ndarray  # (4, 3)
    top: np.ndarray  # (3, 3), a triangle above the upper border
    row: np.ndarray  # (columns, 3)


@dataclass
class _Scene:
    """All that is drawn, in drawing coordinates (right, forward, up)."""

    title: str
    facts: str
    path: np.ndarray  # (frames, 3)
    views: list[_View]
    seconds: np.ndarray  # (frames,)
    angles: dict[str, np.ndarray]  # name -> (frames,) degrees, without jumps
    xfov: np.ndarray | None  # (frames,) degrees, if the lens changes
    low: np.ndarray  # (3,)
    high: np.ndarray  # (3,)

    @property
    def grid_step(self) -> float:
        """Spacing of the ground grid: 1, 2 or 5 times a power of ten."""
        raw = float((self.high - self.low)[:2].max()) / 9
        power = 10.0 ** math.floor(math.log10(raw))
        return next(step * power for step in (1, 2, 5, 10) if step * power >= raw)

    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Ground lines along right and along forward, whole multiples of the step that cover the scene."""
        step = self.grid_step
        lines = []
        for axis in (0, 1):
            first, last = math.floor(self.low[axis] / step), math.ceil(self.high[axis] / step)
            lines.append(np.arange(first, last + 1) * step)
        return lines[0], lines[1]

    def ground(self) -> list[list[tuple[float, float, float]]]:
        """The ends of each line of the ground grid."""
        (across, along), floor = self.grid(), self.low[2]
        lines = [[(x, along[0], floor), (x, along[-1], floor)] for x in across]
        return lines + [[(across[0], y, floor), (across[-1], y, floor)] for y in along]


def _scene(trajectory: Trajectory, title: str, drawn: int, height: int, width: int) -> _Scene:
    settings = trajectory.lens.settings
    height, width = settings.get("height", height), settings.get("width", width)
    trajectory = trajectory.to(device="cpu", dtype=torch.float64)
    path = _drawn(trajectory.positions)
    extent = float(np.linalg.norm(path.max(0) - path.min(0)))
    size = FRUSTUM_SHARE * extent if extent > 1e-9 else 1.0
    moves = extent > 1e-9 or trajectory.maximum_rotation() > 1e-3 or bool(trajectory.lens.batch_shape)
    count = min(drawn, len(trajectory)) if moves else 1
    frames = sorted({round(i * (len(trajectory) - 1) / max(count - 1, 1)) for i in range(count)})
    lens = trajectory.lens
    shared = None if lens.batch_shape else frustum(lens, height, width)
    views = []
    for frame in frames:
        shape = shared or frustum(lens[frame], height, width)
        colour = _time_colour(frame / max(len(trajectory) - 1, 1))
        views.append(_view(shape, trajectory.c2w[frame], size, colour))
    points = np.concatenate([path, *(view.cap.reshape(-1, 3) for view in views)])
    low, high = points.min(0), points.max(0)
    short = 0.3 * float((high - low).max()) - (high - low)
    low, high = low - np.maximum(short, 0) / 2, high + np.maximum(short, 0) / 2
    angles = {name: np.unwrap(value.numpy(), period=360) for name, value in trajectory.angles._asdict().items()}
    xfov = trajectory.lens.xfov(height, width).detach().numpy()
    return _Scene(
        title=title,
        facts=_facts(trajectory, xfov),
        path=path,
        views=views,
        seconds=np.arange(len(trajectory)) / trajectory.fps,
        angles=angles,
        xfov=xfov if trajectory.lens.batch_shape and np.ptp(xfov) > 1e-6 else None,
        low=low,
        high=high,
    )


def _facts(trajectory: Trajectory, xfov: np.ndarray) -> str:
    seen = f"{xfov.min():.0f}°" if np.ptp(xfov) < 0.5 else f"{xfov.flat[0]:.0f}° to {xfov.flat[-1]:.0f}°"
    frames = "1 frame" if len(trajectory) == 1 else f"{len(trajectory)} frames"
    length, turn = trajectory.path_length(), trajectory.maximum_rotation()
    facts = [
        f"{frames} at {trajectory.fps:.4g} fps",
        f"{trajectory.lens.kind.replace('_', ' ')}, {seen} wide",
        f"path {length:.3g} long" if length > 1e-6 else "stays in place",
        f"turns by up to {turn:.1f}°" if turn > 0.05 else "does not turn",
    ]
    return "   ·   ".join(facts)


def _view(shape: Frustum, c2w: torch.Tensor, size: float, colour: str) -> _View:
    def placed(points: torch.Tensor) -> np.ndarray:
        return _drawn((points * size) @ c2w[:3, :3].mT + c2w[:3, 3])

    across, above = torch.tensor([[0.12, 0.0, 0.0], [0.0, -0.17, 0.0]], dtype=shape.top.dtype)
    top = torch.stack([shape.top - across, shape.top + above, shape.top + across])
    parts = {name: placed(getattr(shape, name)) for name in ("origin", "cap", "border", "corners", "row")}
    return _View(colour=colour, top=placed(top), **parts)


def _drawn(points: torch.Tensor) -> np.ndarray:
    """Drawing coordinates (..., 3) as right, forward, up of world points with x right, y down, z forward."""
    return torch.stack([points[..., 0], points[..., 2], -points[..., 1]], -1).numpy()


def _time_colour(fraction: float) -> str:
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    return to_hex(LinearSegmentedColormap.from_list("time", TIME_COLOURS)(fraction))


def _picture(scene: _Scene) -> Any:
    figure = new_figure(12, 6.75)
    figure.text(0.03, 0.935, scene.title, fontsize=19, weight="bold", color=INK)
    figure.text(0.03, 0.895, scene.facts, fontsize=11, color="#5d626d")
    axes = figure.add_axes((0.0, 0.0, 0.6, 0.9), projection="3d", computed_zorder=False)
    _draw_space(axes, scene, (0.035, 0.04, 0.575, 0.82))
    _draw_from_above(figure.add_axes((0.67, 0.44, 0.30, 0.43)), scene)
    _draw_angles(figure.add_axes((0.67, 0.085, 0.30, 0.25)), scene)
    return figure


def _draw_space(axes: Any, scene: _Scene, region: tuple[float, float, float, float]) -> None:
    """Path and views in 3D, filling a region (left, bottom, width, height) of the figure."""
    from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection

    floor = scene.low[2]
    across, along = scene.grid()
    axes.add_collection3d(Line3DCollection(scene.ground(), colors="#e3e5ea", linewidths=0.8, zorder=0))
    axes.plot(scene.path[:, 0], scene.path[:, 1], np.full(len(scene.path), floor), color="#b9bdc7", lw=1.8, zorder=1)
    axes.set_xlim(across[0], across[-1])
    axes.set_ylim(along[0], along[-1])
    axes.set_zlim(floor, scene.high[2])
    axes.set_box_aspect((np.ptp(across), np.ptp(along), scene.high[2] - floor))
    axes.view_init(elev=24, azim=-62)
    nearest_last = sorted(scene.views, key=lambda view: _depth(axes, view.cap.mean((0, 1))))
    for order, view in enumerate(nearest_last, start=2):
        faces = Poly3DCollection(
            view.cap.reshape(-1, 3)[_quads(view.cap)], facecolors=view.colour, alpha=0.13, linewidths=0, zorder=order
        )
        marker = Poly3DCollection([view.top], facecolors=view.colour, linewidths=0, zorder=order + 0.2)
        edges = [[view.origin, corner] for corner in view.corners]
        sides = Line3DCollection(edges, colors=view.colour, linewidths=0.9, alpha=0.8, zorder=order + 0.1)
        for collection in (faces, sides, marker):
            axes.add_collection3d(collection)
        axes.plot(*view.border.T, color=view.colour, lw=1.4, zorder=order + 0.3)
        drop = np.stack([view.origin, [*view.origin[:2], floor]])
        axes.plot(*drop.T, color="#d0d3db", lw=0.8, ls=(0, (2, 2)), zorder=1)
    if len(scene.path) > 1:
        segments = np.stack([scene.path[:-1], scene.path[1:]], 1)
        colours = [_time_colour(t) for t in np.linspace(0, 1, len(segments))]
        path = Line3DCollection(segments, colors=colours, linewidths=3.2, capstyle="round", zorder=100)
        axes.add_collection3d(path)
    axes.scatter(*scene.path[0], color=TIME_COLOURS[0], s=46, depthshade=False, zorder=101)
    _draw_compass(axes, scene)
    axes.set_axis_off()
    axes.patch.set_visible(False)
    for artist in axes.get_children():
        artist.set_clip_on(False)
    _fit(axes, scene, region)


def _depth(axes: Any, point: np.ndarray) -> float:
    """Nearness of a point to the viewer."""
    elevation, azimuth = math.radians(axes.elev), math.radians(axes.azim)
    flat = math.cos(elevation)
    towards = np.array([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)])
    return float(point @ towards)


def _fit(axes: Any, scene: _Scene, region: tuple[float, float, float, float]) -> None:
    """Scale and move 3D axes until the drawing fills a region (left, bottom, width, height) of the figure."""
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    figure = axes.get_figure()
    across, along = scene.grid()
    floor, step = scene.low[2], scene.grid_step
    ground = [[x, y, floor] for x in (across[0], across[-1]) for y in (along[0] - 0.5 * step, along[-1])]
    triad = [[across[0], along[0], floor + 0.2 * np.ptp(across)]]
    points = np.concatenate([ground, triad, scene.path, *(view.cap.reshape(-1, 3) for view in scene.views)])
    points = np.concatenate([points, *(view.top for view in scene.views)])
    box = axes.get_position(original=True)
    axes.apply_aspect(box)
    x, y, _ = proj_transform(*points.T, axes.get_proj())
    drawn = figure.transFigure.inverted().transform(axes.transData.transform(np.column_stack([x, y])))
    low, high = drawn.min(0), drawn.max(0)
    zoom = min(region[2] / (high[0] - low[0]), region[3] / (high[1] - low[1]))
    middle = np.array([region[0] + region[2] / 2, region[1] + region[3] / 2])
    corner = middle + zoom * (np.array([box.x0, box.y0]) - (low + high) / 2)
    axes.set_position((*corner, zoom * box.width, zoom * box.height))


def _draw_compass(axes: Any, scene: _Scene) -> None:
    across, along = scene.grid()
    floor, step = scene.low[2], scene.grid_step
    corner = np.array([across[0], along[0], floor])
    length = min(step, 0.14 * float((scene.high - scene.low).max()))
    for name, direction in (("right", (1, 0, 0)), ("forward", (0, 1, 0)), ("up", (0, 0, 1))):
        end = corner + length * np.array(direction)
        axes.plot(*np.stack([corner, end]).T, color="#8d93a1", lw=1.8, zorder=1)
        label = corner + 1.25 * length * np.array(direction)
        axes.text(*label, name, fontsize=9, color=QUIET, ha="center", va="center", zorder=102)
    middle = (across[-1] + across[0]) / 2
    text = f"one square: {step:g}"
    axes.text(middle, along[0] - 0.35 * step, floor, text, fontsize=9, color="#8d93a1", ha="center", va="center")


def _draw_from_above(axes: Any, scene: _Scene) -> None:
    from matplotlib.collections import LineCollection

    for view in scene.views:
        fan = np.concatenate([view.origin[None], view.row])[:, :2]
        axes.fill(*fan.T, color=view.colour, alpha=0.16, lw=0)
        axes.plot(*np.concatenate([fan, fan[:1]]).T, color=view.colour, lw=1.1)
    segments = list(np.stack([scene.path[:-1, :2], scene.path[1:, :2]], 1))
    colours = [_time_colour(t) for t in np.linspace(0, 1, max(len(segments), 1))]
    axes.add_collection(LineCollection(segments, colors=colours, linewidths=2.6, capstyle="round", zorder=3))
    axes.scatter(*scene.path[0, :2], color=TIME_COLOURS[0], s=34, zorder=4)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.set_axisbelow(True)
    axes.set_title("from above", fontsize=11, color=INK, loc="left", pad=6)
    _label(axes, "right", "forward")


def _draw_angles(axes: Any, scene: _Scene) -> None:
    widths = {"pitch": 3.6, "yaw": 2.4, "roll": 1.2}
    marker = "o" if len(scene.seconds) == 1 else None
    for name, values in scene.angles.items():
        label = f"{name} {_span(values)}"
        axes.plot(scene.seconds, values, color=ANGLE_COLOURS[name], lw=widths[name], label=label, marker=marker)
    low = min(values.min() for values in scene.angles.values())
    high = max(values.max() for values in scene.angles.values())
    room = max(0.08 * (high - low), (10 - (high - low)) / 2)
    axes.set_ylim(low - room, high + room)
    if scene.xfov is not None:
        twin = axes.twinx()
        twin.plot(scene.seconds, scene.xfov, color=INK, lw=1.6, ls=(0, (3, 2)))
        axes.plot([], [], color=INK, lw=1.6, ls=(0, (3, 2)), label=f"view {_span(scene.xfov)} (right)")
        _plain(twin)
    axes.margins(x=0)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, fontsize=8.5, frameon=False, handlelength=1.1,
        columnspacing=1.0, handletextpad=0.4,
    )  # fmt: skip
    _label(axes, "seconds", "degrees")


def _span(values: np.ndarray) -> str:
    numbers = [f"{round(float(value)) + 0}°" for value in (values[0], values[-1])]
    return numbers[0] if numbers[0] == numbers[1] else f"{numbers[0]} → {numbers[1]}"


def _label(axes: Any, across: str, up: str) -> None:
    axes.grid(color=FAINT_GRID, lw=0.8)
    axes.set_xlabel(across, fontsize=9, color=QUIET, labelpad=2)
    axes.set_ylabel(up, fontsize=9, color=QUIET, labelpad=2)
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.tick_params(labelsize=8.5, colors=QUIET, length=0)
    axes.spines[:].set_visible(False)


def _page(scene: _Scene) -> Any:
    import plotly.graph_objects as graph
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"type": "scene", "rowspan": 2}, {"type": "xy"}], [None, {"type": "xy"}]],
        column_widths=[0.68, 0.32],
        row_heights=[0.6, 0.4],
        horizontal_spacing=0.04,
        vertical_spacing=0.2,
        subplot_titles=["", "from above", ""],
    )
    _add_space(graph, figure, scene)
    for view in scene.views:
        fan = np.concatenate([view.origin[None], view.row, view.origin[None]])[:, :2]
        filled = {"mode": "lines", "fill": "toself", "line": {"color": view.colour, "width": 1}, "opacity": 0.45}
        figure.add_trace(graph.Scatter(**_xyz(fan), **filled, hoverinfo="skip", showlegend=False), row=1, col=2)
    marker = {"color": scene.seconds, "colorscale": TIME_COLOURS, "size": 4}
    path = {"mode": "lines+markers", "text": _labels(scene), "hoverinfo": "text", "showlegend": False}
    line = {"color": FAINT}
    figure.add_trace(graph.Scatter(**_xyz(scene.path[:, :2]), **path, marker=marker, line=line), row=1, col=2)
    curves = {**scene.angles, **({} if scene.xfov is None else {"field of view": scene.xfov})}
    for name, values in curves.items():
        line = {"color": ANGLE_COLOURS.get(name, INK), "dash": "solid" if name in ANGLE_COLOURS else "dot"}
        figure.add_trace(graph.Scatter(x=scene.seconds, y=values, name=name, line=line), row=2, col=2)
    _style_page(figure, scene)
    return figure


def _add_space(graph: Any, figure: Any, scene: _Scene) -> None:
    floor = scene.low[2]
    shadow = np.column_stack([scene.path[:, :2], np.full(len(scene.path), floor)])
    quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    flat = {"ambient": 1.0, "diffuse": 0.0, "specular": 0.0}
    for points, colour, width in ((_polyline(scene.ground()), "#e1e4ea", 1), (shadow, "#b9bdc7", 3)):
        line = {"color": colour, "width": width}
        figure.add_trace(graph.Scatter3d(**_xyz(points), line=line, **quiet))
    for view in scene.views:
        quads = _quads(view.cap)
        corners = dict(zip("ijk", np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]).T))
        mesh = {"color": view.colour, "lighting": flat, "hoverinfo": "skip"}
        figure.add_trace(graph.Mesh3d(**_xyz(view.cap.reshape(-1, 3)), **corners, **mesh, opacity=0.16))
        figure.add_trace(graph.Mesh3d(**_xyz(view.top), i=[0], j=[1], k=[2], **mesh))
        outline = _polyline([list(view.border), *([view.origin, corner] for corner in view.corners)])
        line = {"color": view.colour, "width": 3}
        figure.add_trace(graph.Scatter3d(**_xyz(outline), line=line, **quiet))
    colours = {"color": scene.seconds, "colorscale": TIME_COLOURS}
    path = {"mode": "lines+markers", "line": {**colours, "width": 7}, "marker": {**colours, "size": 3}}
    figure.add_trace(
        graph.Scatter3d(**_xyz(scene.path), **path, text=_labels(scene), hoverinfo="text", showlegend=False)
    )


def _style_page(figure: Any, scene: _Scene) -> None:
    hidden = {"visible": False, "showbackground": False}
    figure.update_layout(
        title={"text": f"<b>{scene.title}</b><br><sup>{scene.facts}</sup>", "x": 0.02, "font": {"size": 22}},
        font={"family": "system-ui, sans-serif", "color": INK},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        margin={"l": 10, "r": 20, "t": 90, "b": 50},
        scene={
            "aspectmode": "data",
            "xaxis": hidden,
            "yaxis": hidden,
            "zaxis": hidden,
            "camera": {
                "eye": {"x": 0.75, "y": -1.45, "z": 0.8},
                "center": {"x": 0, "y": 0, "z": -0.12},
                "up": {"x": 0, "y": 0, "z": 1},
            },
        },
        legend={"x": 0.70, "y": 0.33, "yanchor": "bottom", "orientation": "h"},
    )
    quiet = {"gridcolor": FAINT_GRID, "zeroline": False}
    figure.update_xaxes(title_text="right", row=1, col=2, **quiet)
    figure.update_yaxes(title_text="forward", scaleanchor="x", scaleratio=1, row=1, col=2, **quiet)
    figure.update_xaxes(title_text="seconds", row=2, col=2, **quiet)
    figure.update_yaxes(title_text="degrees", row=2, col=2, **quiet)


def _labels(scene: _Scene) -> list[str]:
    rows = zip(scene.seconds, *scene.angles.values())
    return [
        f"frame {frame}, {seconds:.2f} s<br>pitch {pitch:.1f}°, yaw {yaw:.1f}°, roll {roll:.1f}°"
        for frame, (seconds, pitch, yaw, roll) in enumerate(rows)
    ]


def _xyz(points: np.ndarray) -> dict[str, np.ndarray]:
    """Points (N, 2) or (N, 3) as plotly takes them: x, y and perhaps z."""
    return dict(zip("xyz", points.T))


def _polyline(pieces: list[Any]) -> np.ndarray:
    """Several lines as one, parted by NaN (points, 3)."""
    gap = np.full((1, 3), np.nan)
    return np.concatenate([part for piece in pieces for part in (np.asarray(piece, dtype=float), gap)])


def _quads(cap: np.ndarray) -> np.ndarray:
    """Faces (faces, 4) of a cap (rings, border, 3), as numbers of its points."""
    index = np.arange(cap[..., 0].size).reshape(cap.shape[:2])
    following = np.roll(index, -1, axis=1)
    return np.stack([index[:-1], index[1:], following[1:], following[:-1]], -1).reshape(-1, 4)
