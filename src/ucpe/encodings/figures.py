"""What each encoding tells attention, as pictures drawn with the encoding itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ucpe.encodings.absolute import plucker_rays, raw_parameters
from ucpe.encodings.frames import ray_frames, world_rays
from ucpe.encodings.learned import SMALLEST_MOMENT, RaySegments, RotaryRays
from ucpe.encodings.operators import DEPTHS, ENCODINGS, PAIRWISE, Operator, camera_operator
from ucpe.encodings.orientation import lat_up_map
from ucpe.figures import BLIND, INK, PAPER, QUIET, check_picture, hide_ticks, new_figure, save_figure
from ucpe.lenses.base import Lens
from ucpe.lenses.fisheye import Equidistant
from ucpe.lenses.numerics import norm
from ucpe.lenses.panoramic import Equirectangular
from ucpe.lenses.pinhole import Pinhole
from ucpe.lenses.unified import UCM
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT, WIDTH, HEAD_DIM = 30, 50, 64
QUERY_ROW, QUERY_COLUMN = 10, 15
_QUERY = QUERY_ROW * WIDTH + QUERY_COLUMN


def draw_encoding(name: str, path: str | Path, lens: Lens | None = None) -> None:
    """Write the picture of an encoding (a key of `DRAWINGS`), of the given lens or a telling one, to .png or .svg."""
    if name not in DRAWINGS:
        raise ValueError(f"no picture of {name!r}; there are {', '.join(DRAWINGS)}")
    check_picture(path)
    save_figure(DRAWINGS[name](lens), path)


def draw_relative(encoding: str, lens: Lens | None = None) -> Figure:
    """What a query at one pixel sees of all pixels of four cameras, through a relative encoding."""
    scene = _Scene(lens)
    query, arrived = _meetings(encoding, scene.lenses, scene.poses)
    rows = [
        ("same content in\ncamera channels", query[0], "mean logit"),
        ("same content in all\nchannels with RoPE", query[1], "mean logit"),
        ("length of a value\nwhen it arrives", arrived, "× its own"),
    ]
    return _draw_rows(encoding, scene, rows)


def draw_sightings(encoding: str, lens: Lens | None = None) -> Figure:
    """What a query at one pixel sees through an encoding that asks where its own camera sees the others' rays."""
    scene = _Scene(lens, one_model=True)
    together = scene.together()

    def logits(depths: Sequence[float], channels: slice) -> Tensor:
        size = (HEIGHT, WIDTH, HEAD_DIM)
        operator = camera_operator(encoding, together, scene.poses, *size, depths=depths)  # type: ignore[arg-type]
        return _pair_matrices(operator)[..., channels].mean(-1).reshape(4, HEIGHT, WIDTH)

    everything, camera, rotary = slice(None), slice(0, HEAD_DIM // 2), slice(HEAD_DIM // 2, None)
    if encoding == "urope":
        rows = [
            (f"same content,\npoints {depth:g} away", logits([depth], everything), "mean logit") for depth in (1.0, 4.0)
        ]
        rows.append(("same content,\nall depths", logits(DEPTHS, everything), "mean logit"))
    else:
        rows = [
            ("same content in\ncamera channels", logits(DEPTHS, camera), "mean logit"),
            ("same content in\nrotary channels", logits(DEPTHS, rotary), "mean logit"),
            ("same content in\nall channels", logits(DEPTHS, everything), "mean logit"),
        ]
    return _draw_rows(encoding, scene, rows)


def draw_rore(lens: Lens | None = None) -> Figure:
    """What a query at one pixel sees of all pixels of four cameras, with RoRE's frequencies before training."""
    scene = _Scene(lens)
    rays = scene.rays()
    ones = torch.ones(1, len(rays), HEAD_DIM)
    layer = RotaryRays(HEAD_DIM)
    maps = []
    for part in (slice(0, 3), slice(3, 6), slice(0, 6)):
        some = torch.zeros_like(rays)
        some[:, part] = rays[:, part]
        with torch.no_grad():
            query, key = layer(ones, ones, some)
        maps.append((key[0] @ query[0, _QUERY]).div(HEAD_DIM).reshape(4, HEIGHT, WIDTH))
    names = ("the direction\nalone", "the moment\nalone", "the whole ray")
    rows = [(f"same content, told\n{name}", values, "mean logit") for name, values in zip(names, maps)]
    return _draw_rows("rore", scene, rows)


def draw_raype(lens: Lens | None = None) -> Figure:
    """What RayPE adds between a query at one pixel and all pixels of four cameras, where its layers are identities."""
    scene = _Scene(lens)
    direction, moment = scene.rays().split(3, dim=-1)
    product = moment @ direction[_QUERY] + direction @ moment[_QUERY]
    unit = moment / norm(moment).clamp(min=SMALLEST_MOMENT)[..., None]
    added = (unit @ direction[_QUERY] + direction @ unit[_QUERY]) / 2  # lengths are normalised, both are unit vectors
    rows = [
        ("reciprocal product:\nzero where rays meet", product.reshape(4, HEIGHT, WIDTH), "units"),
        ("of unit moments,\nas it is added", added.reshape(4, HEIGHT, WIDTH), "mean logit"),
    ]
    return _draw_rows("raype", scene, rows)


def draw_rayrope(lens: Lens | None = None) -> Figure:
    """What a query at one pixel sees through RayRoPE, told three things about distances."""
    scene = _Scene(lens, one_model=True)
    layer = RaySegments(1, HEAD_DIM)
    rows = []
    told = {"all are 1 away": (0.0, 0.02), "all are 4 away": (math.log(4), 0.02), "nothing yet": (0.0, math.log(20))}
    for label, bias in told.items():
        with torch.no_grad():
            layer.distance.bias.copy_(torch.tensor(bias))
            tokens = torch.zeros(4 * HEIGHT * WIDTH, 1)
            cosine, sine = layer.turns(tokens, scene.together(), scene.poses, HEIGHT, WIDTH)
        seen = [t[0] for t in (cosine, sine)]
        meeting = (seen[0] * seen[0][_QUERY] + seen[1] * seen[1][_QUERY]).mean(-1).reshape(4, HEIGHT, WIDTH)
        rows.append((f"same content,\n{label}", meeting, "mean logit"))
    return _draw_rows("rayrope", scene, rows)


class _Scene:
    """Four cameras: the query's own, one turned, one moved, one with another lens."""

    def __init__(self, lens: Lens | None, one_model: bool = False):
        last = lens if lens and one_model else UCM(xfov=70, xi=0) if one_model else Pinhole(xfov=70)
        self.lenses: list[Lens] = [lens or UCM(xfov=140, xi=1.1)] * 3 + [last]
        self.poses = torch.stack([_pose(), _pose(yaw=25, pitch=10), _pose(right=1.0), _pose()])
        self.names = ["the query's own camera", "turned by 25°", "moved 1 unit right", "same place, 70° pinhole lens"]
        if lens and one_model:
            self.poses[3] = _pose(forward=1.0)
            self.names[3] = "moved 1 unit forward"

    def together(self) -> Lens:
        """The lenses as one, of batch shape (4,)."""
        first, last = self.lenses[0], self.lenses[3]
        if first is last:
            return first.expand(4)
        xfov, xi = (torch.stack([lens.parameters[name] for lens in self.lenses]) for name in ("xfov", "xi"))
        return UCM(xfov=xfov, xi=xi)

    def rays(self) -> Tensor:
        """Plücker rays (tokens, 6) of all cameras."""
        found = [plucker_rays(lens, self.poses[i : i + 1], HEIGHT, WIDTH) for i, lens in enumerate(self.lenses)]
        return torch.cat(found).flatten(0, 2)


def _draw_rows(encoding: str, scene: _Scene, rows: Sequence[tuple[str, Tensor, str]]) -> Figure:
    """One row of four cameras for each label, maps (4, HEIGHT, WIDTH) and unit."""
    title, knows = _ABOUT[encoding]
    subtitle = f"What the ringed query sees of others; its ray is the line. {knows}"
    figure = _figure(13.2, 1.1 + 1.8 * len(rows), title, subtitle)
    for r, (label, maps, unit) in enumerate(rows):
        low, high = {"mean logit": (0.0, 1.0), "× its own": (1.0, 1.1)}.get(unit, (0.0, 0.0))
        low, high = min(low, maps.min().item()), max(high, maps.max().item())
        colours = "magma" if unit == "mean logit" else "cividis" if unit == "× its own" else "RdBu"
        if colours == "RdBu":
            high = max(high, -low)
            low = -high
        image = None
        for c in range(4):
            axes = _panel(figure, (r, c), len(rows), scene.names[c], label)
            values = maps[c].numpy().copy()
            values[~_seen(scene.lenses[c])] = np.nan
            image = axes.imshow(
                values, cmap=colours, vmin=low, vmax=high, extent=(0, WIDTH, HEIGHT, 0), interpolation="nearest"
            )
            _graticule(axes, scene.lenses[c], scene.poses[c])
            _mark_query(axes, c, scene.lenses, scene.poses)
            axes.set_xlim(0, WIDTH), axes.set_ylim(HEIGHT, 0)
        _colour_bar(figure, image, r, len(rows), unit)
    return figure


def draw_lat_up(lens: Lens | None = None) -> Figure:
    """Latitude as colour, the horizon as a line and up as arrows, for four orientations."""
    from matplotlib import colormaps

    lenses = [lens] if lens else [Pinhole(xfov=80), UCM(xfov=180, xi=2.0), Equirectangular()]
    names = [lens.kind] if lens else ["pinhole 80°", "UCM 180°, ξ 2.0", "equirectangular"]
    orientations = {
        "level": _pose(),
        "pitched up 30°": _pose(pitch=30),
        "rolled by 25°": _pose(roll=25),
        "pitched down 40°, rolled by −15°": _pose(pitch=-40, roll=-15),
    }
    figure = _figure(
        13.2, 1.15 + 1.78 * len(lenses), "Lat-Up map", "Latitude of every ray (colour, horizon as a line) and up."
    )
    bands = colormaps["RdBu"].resampled(24)
    for r, (one, name) in enumerate(zip(lenses, names)):
        image = None
        for c, (title, pose) in enumerate(orientations.items()):
            axes = _panel(figure, (r, c), len(lenses), title, name)
            fine = lat_up_map(one, pose[None], 5 * HEIGHT, 5 * WIDTH)[0].numpy()
            latitude = np.degrees(fine[..., 2])
            latitude[~_seen(one, 5)] = np.nan
            extent = (0, WIDTH, HEIGHT, 0)
            image = axes.imshow(latitude, cmap=bands, vmin=-90, vmax=90, extent=extent)
            u, v = (np.arange(5 * n) / 5 + 0.1 for n in (WIDTH, HEIGHT))
            axes.contour(u, v, latitude, levels=[0], colors=INK, linewidths=1.3)
            coarse = lat_up_map(one, pose[None], HEIGHT // 4, WIDTH // 4)[0].numpy()
            u, v = np.meshgrid(np.arange(WIDTH // 4) * 4 + 2, np.arange(HEIGHT // 4) * 4 + 2)
            shown = np.hypot(coarse[..., 0], coarse[..., 1]) > 0
            right, down = coarse[..., 0][shown], coarse[..., 1][shown]
            arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 0.34, "pivot": "mid"}
            axes.quiver(u[shown], v[shown], right, down, color=INK, width=0.006, **arrows)
        _colour_bar(figure, image, r, len(lenses), "latitude (°)")
    return figure


def draw_plucker(lens: Lens | None = None) -> Figure:
    """Directions and moments as colours, before and after the world is moved: the same cameras, other numbers."""
    from matplotlib.colors import to_rgb

    lens = lens or UCM(xfov=140, xi=1.1)
    cameras = torch.stack([_pose(), _pose(yaw=25, right=1.0)])
    world = _pose(yaw=100, pitch=20, right=2.0, forward=1.0)
    poses = torch.cat([cameras, world @ cameras])
    names = ["camera 1", "camera 2", "camera 1, world moved", "camera 2, world moved"]
    rays = plucker_rays(lens, poses, HEIGHT, WIDTH)
    figure = _figure(
        13.2,
        4.75,
        "Plücker rays",
        "Red, green, blue are x, y, z (grey is zero): the same two cameras in another world get other numbers.",
    )
    for r, (label, channels) in enumerate((("direction d", rays[..., :3]), ("moment m", rays[..., 3:]))):
        scale = channels.abs().max()
        for c in range(4):
            axes = _panel(figure, (r, c), 2, names[c], label)
            colours = (0.5 + 0.5 * channels[c] / scale).numpy()
            colours[~_seen(lens)] = to_rgb(BLIND)
            axes.imshow(colours, extent=(0, WIDTH, HEIGHT, 0), interpolation="bilinear")
    return figure


def draw_raw(lens: Lens | None = None) -> Figure:
    """The 14 numbers of each frame of a moving, zooming camera, before and after the world is moved."""
    frames = 21
    steps = np.linspace(0, 1, frames)
    poses = torch.stack([_pose(yaw=50 * s, right=1.2 * s, forward=0.6 * s) for s in steps])
    zoom = lens or UCM(xfov=torch.linspace(60, 140, frames), xi=torch.linspace(0, 1.1, frames))
    world = _pose(yaw=100, pitch=20, right=2.0, forward=1.0)
    figure = _figure(
        13.2, 4.7, "Raw parameters", "3 × 4 c2w, xFoV / 180° and ξ of a camera that pans, moves and zooms."
    )
    for c, (title, view) in enumerate({"one world frame": poses, "another world frame": world @ poses}.items()):
        axes = figure.add_axes((0.085 + 0.44 * c, 0.13, 0.40, 0.62))
        values = raw_parameters(zoom, view, HEIGHT, WIDTH).T.numpy()
        image = axes.imshow(values, aspect="auto", cmap="RdBu_r", vmin=-2.5, vmax=2.5, interpolation="nearest")
        labels = [f"{row}{column}" for row in ("x: ", "y: ", "z: ") for column in ("right", "down", "forward", "t")]
        axes.set_yticks(range(14), [*labels, "xFoV / 180°", "ξ"] if c == 0 else [], fontsize=8.5, color=QUIET)
        axes.set_xticks([0, 5, 10, 15, 20])
        axes.tick_params(length=0, labelsize=8.5, labelcolor=QUIET)
        axes.set_xlabel("latent frame", fontsize=9, color=QUIET)
        axes.set_title(title, fontsize=10.5, color=INK, pad=7)
        axes.hlines([3.5, 7.5, 11.5], -0.5, frames - 0.5, color=PAPER, lw=2)
        axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, cax=figure.add_axes((0.945, 0.13, 0.011, 0.62)))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(labelsize=8, labelcolor=QUIET, length=0)
    return figure


def draw_frames(lens: Lens | None = None) -> Figure:
    """The x (red) and y (green) axes of every token's ray frame, drawn in the image, for both kinds of frame."""
    from matplotlib.colors import ListedColormap

    lenses = [lens] if lens else [Pinhole(xfov=100), Equidistant(xfov=235)]
    names = [lens.kind] if lens else ["pinhole 100°", "equidistant fisheye 235°"]
    notes = {"paper": "x from the camera's down axis", "transport": "smallest turn of the camera"}
    panels = [(one, name, frame) for one, name in zip(lenses, names) for frame in ("paper", "transport")]
    columns = len(panels)
    figure = _figure(3.3 * columns, 4.6, "Ray frames", "x (red) and y (green) of every ray's own frame; z is the ray.")
    for c, (one, name, frame) in enumerate(panels):
        axes = figure.add_axes((0.02 + c * 0.97 / columns, 0.05, 0.93 / columns, 0.66))
        size = 40
        transform, valid = ray_frames(one, torch.eye(4)[None], size, size, frame=frame)  # type: ignore[arg-type]
        axes.imshow(
            np.where(_seen(one, 10, size), 1.0, 0.0),
            extent=(0, size, size, 0),
            cmap=ListedColormap([BLIND, "#f4f5f8"]),
            vmin=0,
            vmax=1,
        )
        for column, colour in ((0, "#d1373f"), (1, "#2a9d5c")):
            axis = transform[0, ..., :3, column]
            tip, seen = one.project(transform[0, ..., :3, 2] + 0.02 * axis, size, size)
            for row in range(1, size, 3):
                for at in range(1, size, 3):
                    step = tip[row, at] - torch.tensor([at + 0.5, row + 0.5])
                    if valid[0, row, at] and seen[row, at] and 0 < step.norm() < 5:
                        step = 1.25 * step / step.norm()
                        axes.plot(
                            [at + 0.5, at + 0.5 + step[0]], [row + 0.5, row + 0.5 + step[1]], color=colour, lw=1.4
                        )
        axes.set_title(f"{name}\n{frame}: {notes[frame]}", fontsize=8.5, color=INK, pad=6)
        axes.set_xlim(0, size), axes.set_ylim(size, 0)
        _frame(axes)
    return figure


def _meetings(encoding: str, lenses: Sequence[Lens], poses: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Of D_1 D_2^-1 between query and tokens: mean diagonal (camera channels, all), and RMS gain of a value."""
    operator = Operator.cat(
        [
            camera_operator(encoding, lens, poses[i : i + 1], HEIGHT, WIDTH, HEAD_DIM, anchor=poses[0])  # type: ignore
            for i, lens in enumerate(lenses)
        ]
    )
    matrices = _pair_matrices(operator, whole=True)
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    gain = matrices.square().sum((-2, -1)).div(HEAD_DIM).sqrt()
    shape = (len(lenses), HEIGHT, WIDTH)
    arrived = gain if operator.transforms_value else torch.ones_like(gain)
    logits = (diagonal[:, : HEAD_DIM // 2].mean(-1).reshape(shape), diagonal.mean(-1).reshape(shape))
    return logits, arrived.reshape(shape)


def _pair_matrices(operator: Operator, whole: bool = False) -> Tensor:
    """Diagonals (tokens, head_dim) of D_1 D_2^-1 between the query and every token, or these matrices themselves."""
    basis = torch.eye(HEAD_DIM)[:, None]
    seen = operator.seen_cosine is not None
    queries = operator.tokens(slice(_QUERY, _QUERY + 1)).query(basis)[:, 0]
    basis = basis.expand(-1, operator.token_count, -1)
    keys = operator.key(basis, slice(0, 1))[0] if seen else operator.key(basis)
    return torch.einsum("ic,jtc->tij", queries, keys) if whole else torch.einsum("ic,itc->ti", queries, keys)


def _mark_query(axes: Axes, camera: int, lenses: Sequence[Lens], poses: Tensor) -> None:
    """The query's pixel in its own camera; in others the points of its ray, and a dot where it ends at infinity."""
    rays = world_rays(lenses[0], poses[:1], HEIGHT, WIDTH)
    origin, direction = rays.origins[0, QUERY_ROW, QUERY_COLUMN], rays.directions[0, QUERY_ROW, QUERY_COLUMN]
    if camera == 0:
        axes.plot(QUERY_COLUMN + 0.5, QUERY_ROW + 0.5, "o", ms=11, mfc="none", mec="#16c3d6", mew=2.2)
        return
    depths = torch.logspace(-0.2, 4, 200, dtype=torch.float64)
    points = origin + depths[:, None] * direction
    inside = (points - poses[camera, :3, 3]) @ poses[camera, :3, :3]
    pixels, seen = lenses[camera].project(inside, HEIGHT, WIDTH)
    shown = seen & (pixels >= 0).all(-1) & (pixels[:, 0] <= WIDTH) & (pixels[:, 1] <= HEIGHT)
    if shown.any():
        axes.plot(*pixels[shown].T.numpy(), color="#16c3d6", lw=1.8, solid_capstyle="round")
    if shown[-1]:
        axes.plot(*pixels[-1].numpy(), "o", ms=6, color="#16c3d6")


def _graticule(axes: Axes, lens: Lens, pose: Tensor) -> None:
    """World latitudes and longitudes every 15 degrees, as fine lines."""
    directions = world_rays(lens, pose[None], 3 * HEIGHT, 3 * WIDTH).directions[0].numpy()
    longitude = np.degrees(np.arctan2(directions[..., 0], directions[..., 2]))
    latitude = np.degrees(np.arcsin(np.clip(-directions[..., 1], -1, 1)))
    hidden = ~_seen(lens, 3) | (np.abs(longitude) > 165)
    u, v = (np.arange(3 * n) / 3 + 1 / 6 for n in (WIDTH, HEIGHT))
    for angles in (longitude, latitude):
        masked = np.ma.masked_where(hidden, angles)
        axes.contour(u, v, masked, levels=np.arange(-150, 151, 15), colors="white", linewidths=0.45, alpha=0.4)


def _seen(lens: Lens, scale: int = 1, size: int | None = None) -> np.ndarray:
    height, width = (size, size) if size else (HEIGHT, WIDTH)
    return lens.rays(scale * height, scale * width).valid.numpy()


def _pose(yaw: float = 0, pitch: float = 0, roll: float = 0, right: float = 0, forward: float = 0) -> Tensor:
    """c2w (4, 4) of a camera that looks right, then up, then tilts clockwise, in degrees."""
    angles = torch.tensor([pitch, yaw, roll], dtype=torch.float64)
    return pose_matrix(rotation_from_angles(*angles), torch.tensor([right, 0, forward], dtype=torch.float64))


def _figure(width: float, height: float, title: str, subtitle: str) -> Figure:
    figure = new_figure(width, height)
    figure.text(0.02, 1 - 0.38 / height, title, fontsize=17, weight="bold", color=INK, va="center")
    figure.text(0.02, 1 - 0.68 / height, subtitle, fontsize=10.5, color=QUIET, va="center")
    return figure


def _panel(figure: Figure, at: tuple[int, int], rows: int, title: str, label: str) -> Axes:
    """Axes at a row and one of four columns, with a title above the first row and a label beside the first column."""
    (row, column), (left, right, bottom, top) = at, (0.075, 0.925, 0.02, 1 - 1.1 / figure.get_figheight())
    width, height = (right - left) / 4, (top - bottom) / rows
    axes = figure.add_axes((left + column * width, top - (row + 1) * height, 0.95 * width, 0.93 * height))
    axes.set_title(title if row == 0 else "", fontsize=10.5, color=INK, pad=7)
    axes.set_ylabel(label if column == 0 else "", fontsize=9.5, color=INK, labelpad=10)
    _frame(axes)
    return axes


def _colour_bar(figure: Figure, image: Any, row: int, rows: int, label: str) -> None:
    top, bottom = 1 - 1.1 / figure.get_figheight(), 0.02
    height = (top - bottom) / rows
    bar = figure.colorbar(image, cax=figure.add_axes((0.937, top - (row + 0.93) * height, 0.010, 0.79 * height)))
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(labelsize=8, labelcolor=QUIET, length=0)
    bar.set_label(label, fontsize=9, color=QUIET)


def _frame(axes: Axes) -> None:
    axes.set_facecolor(BLIND)
    hide_ticks(axes)


_ABOUT = {
    "ucpe": ("UCPE", "Tokens that look the same way answer, through any lens."),
    "gta": ("GTA", "A camera answers as one, whatever its lens."),
    "prope": ("PRoPE", "A camera answers as one; its intrinsics scale the answer."),
    "cape": ("CaPE", "A camera answers as one, and its values arrive untouched."),
    "urope": ("URoPE", "Points of others' rays answer where the query's camera sees them."),
    "sightline": ("Sightline", "Rays answer by direction, and by where the query's camera sees them."),
    "rore": ("RoRE", "Rays with similar numbers answer; here before training."),
    "raype": ("RayPE", "Rays that meet add nothing; here with identities for its layers."),
    "rayrope": ("RayRoPE", "Segments answer by where the query's camera sees their ends."),
}
"""Title of a picture, and what it shows."""

DRAWINGS: dict[str, Callable[[Lens | None], Any]] = {
    **{name: partial(draw_sightings if name in PAIRWISE else draw_relative, name) for name in ENCODINGS},
    "rore": draw_rore,
    "raype": draw_raype,
    "rayrope": draw_rayrope,
    "lat-up": draw_lat_up,
    "plucker": draw_plucker,
    "raw": draw_raw,
    "frames": draw_frames,
}
"""Pictures by the name of what they show."""
