"""What is drawn over pictures, as SVG: the horizon through a lens, the path from outside, and graphs over time."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from ucpe.encodings import lat_up_map
from ucpe.encodings.latitudes import latitude_lines, runs
from ucpe.lenses import Lens, Pinhole, lens_from_dict
from ucpe.studio.shot import Key, Shot
from ucpe.trajectories import Trajectory
from ucpe.trajectories.frustum import frustum
from ucpe.trajectories.keyframes import unwrapped

ARROW_ROWS = 4
MAX_FRUSTA = 14

ABOVE_LENS, ABOVE_HEIGHT, ABOVE_WIDTH = Pinhole(xfov=55.0), 380, 560
"""Lens and size of the view of the path from outside."""

GRAPHS = ("pitch", "yaw", "roll", "speed", "field of view")
GRAPH_WIDTH, GRAPH_HEIGHT, GRAPH_LEFT, GRAPH_RIGHT, KEY_ROW = 800, 42, 92, 92, 22
GRAPH_SIZE = GRAPH_WIDTH, KEY_ROW + GRAPH_HEIGHT * len(GRAPHS)

OVERLAYS = ("latitudes", "horizon", "arrows")
"""What can be drawn over a picture, from the bottom up."""


def overlay_paths(lens: Lens, c2w: torch.Tensor, height: int, width: int, shown: Collection[str]) -> list[str]:
    """The SVG path of each of OVERLAYS of a camera over its picture; empty where it is not shown."""
    levels = [-60, -30, 30, 60] * ("latitudes" in shown) + [0] * ("horizon" in shown)
    lines = latitude_lines(lens, c2w, height, width, levels) if levels else {}
    drawn = {level: "".join(_path(piece) for piece in pieces) for level, pieces in lines.items()}
    horizon = drawn.pop(0, "")
    return ["".join(drawn.values()), horizon, _arrows(lens, c2w, height, width) if "arrows" in shown else ""]


def _arrows(lens: Lens, c2w: torch.Tensor, height: int, width: int) -> str:
    columns = max(4, round(ARROW_ROWS * width / height))
    up = lat_up_map(lens, c2w[None].double(), ARROW_ROWS, columns, dtype=torch.float64)[0].tolist()
    length, path = 0.32 * height / ARROW_ROWS, []
    for row in range(ARROW_ROWS):
        for column in range(columns):
            x, y = (column + 0.5) * width / columns, (row + 0.5) * height / ARROW_ROWS
            right, down = (length * value for value in up[row][column][:2])
            if right or down:
                tip, side = (x + right, y + down), (-0.22 * down, 0.22 * right)
                neck = (x + 0.65 * right, y + 0.65 * down)
                path.append(f"M{x:.1f} {y:.1f}L{tip[0]:.1f} {tip[1]:.1f}")
                path.append(f"M{neck[0] + side[0]:.1f} {neck[1] + side[1]:.1f}L{tip[0]:.1f} {tip[1]:.1f}")
                path.append(f"L{neck[0] - side[0]:.1f} {neck[1] - side[1]:.1f}")
    return "".join(path)


@dataclass(frozen=True)
class Orbit:
    """Where the path is looked at from: around a target, in near-plane depths and degrees."""

    target: tuple[float, float, float] = (0.0, 0.0, 0.0)
    distance: float = 4.0
    azimuth: float = -35.0
    elevation: float = 35.0

    def key(self) -> Key:
        """The camera that looks from there."""
        azimuth, elevation = math.radians(self.azimuth), math.radians(self.elevation)
        back = self.distance * math.cos(elevation)
        x, y, z = self.target
        position = (x - back * math.sin(azimuth), y - self.distance * math.sin(elevation), z - back * math.cos(azimuth))
        return Key(0.0, ABOVE_LENS.to_dict(), position, -self.elevation, self.azimuth)

    def dragged(self, right: float, down: float) -> Orbit:
        """Seen from further round and higher, by degrees."""
        return replace(self, azimuth=self.azimuth + right, elevation=min(max(self.elevation + down, 3.0), 89.0))

    def closer(self, factor: float) -> Orbit:
        """Seen from nearer by a factor."""
        return replace(self, distance=min(max(self.distance / factor, 0.3), 200.0))

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (..., 2) of world points (..., 3), and which lie in front."""
        c2w = self.key().pose().numpy()
        seen = torch.from_numpy((points - c2w[:3, 3]) @ c2w[:3, :3])
        pixels, valid = ABOVE_LENS.project(seen, ABOVE_HEIGHT, ABOVE_WIDTH)
        return pixels.numpy(), valid.numpy()

    def on_level(self, x: float, y: float, level: float) -> np.ndarray | None:
        """The point (3,) of the horizontal plane y = level under a pixel; None above the horizon."""
        c2w = self.key().pose().numpy()
        pixel = torch.tensor([x, y], dtype=torch.float64)
        direction = c2w[:3, :3] @ ABOVE_LENS.unproject(pixel, ABOVE_HEIGHT, ABOVE_WIDTH).directions.numpy()
        distance = (level - c2w[1, 3]) / direction[1] if abs(direction[1]) > 1e-9 else -1
        return c2w[:3, 3] + distance * direction if 0 < distance < 500 else None


def around(shot: Shot) -> Orbit:
    """A place from which the whole path is seen."""
    positions = shot.camera.positions.numpy()
    low, high = positions.min(0), positions.max(0)
    x, y, z = ((low + high) / 2).tolist()
    return Orbit((x, y, z), distance=2.6 + 1.6 * float(np.linalg.norm(high - low)))


def path_svg(
    shot: Shot, now: tuple[Lens, torch.Tensor], frame: int, selected: int | None, orbit: Orbit, floor: float | None
) -> str:
    """The path with its keyframes and frusta, and the camera now, from outside; `floor` is the y of a grid to draw."""
    parts = [] if floor is None else [_grid(orbit, floor)]
    positions = shot.camera.positions.numpy()
    parts.append(f'<path class="path" d="{_seen_path(orbit, [positions])}"/>')
    keys = [round(key.frame) for key in shot.keys]
    drawn = keys if len(keys) <= MAX_FRUSTA else np.linspace(0, shot.last_frame, MAX_FRUSTA).round().astype(int)
    size = 0.35 * orbit.distance / 4
    for number in drawn:
        if number != frame:
            camera = shot.camera.lens_at(int(number)), shot.camera.c2w[int(number)]
            parts.append(_frustum(shot, camera, orbit, size, "frustum"))
    parts.append(_frustum(shot, now, orbit, size, "frustum now"))
    places, seen = orbit.project(np.array([key.position for key in shot.keys]))
    for index, ((x, y), visible) in enumerate(zip(places, seen)):
        if visible:
            chosen = " chosen" if index == selected else ""
            parts.append(f'<circle class="key{chosen}" cx="{x:.1f}" cy="{y:.1f}" r="{7 if chosen else 5}"/>')
    return "".join(parts)


def key_under(shot: Shot, orbit: Orbit, x: float, y: float, reach: float = 22) -> int | None:
    """Index of the keyframe nearest to a pixel of the view from outside, if one is near."""
    places, seen = orbit.project(np.array([key.position for key in shot.keys]))
    away = np.where(seen, np.linalg.norm(places - [x, y], axis=1), np.inf)
    return int(away.argmin()) if away.min() <= reach else None


def _frustum(shot: Shot, camera: tuple[Lens, torch.Tensor], orbit: Orbit, size: float, style: str) -> str:
    border, corners, rings = _frustum_shape(json.dumps(camera[0].to_dict()), shot.height, shot.width)
    c2w = camera[1].numpy()
    lines = [border, *rings, *(np.stack([np.zeros(3), corner]) for corner in corners)]
    placed = [size * line @ c2w[:3, :3].T + c2w[:3, 3] for line in lines]
    return f'<path class="{style}" d="{_seen_path(orbit, placed)}"/>'


@lru_cache(maxsize=256)
def _frustum_shape(lens: str, height: int, width: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Border (K, 3), corners (4, 3) and the middle row and column of a lens's view volume, one unit deep."""
    shape = frustum(lens_from_dict(json.loads(lens)), height, width)
    cap = shape.cap.numpy()
    sides = cap.shape[1] // 8
    column = np.concatenate([cap[::-1, sides], cap[1:, 5 * sides]])
    return shape.border.numpy()[::4], shape.corners.numpy(), [shape.row.numpy(), column]


def _grid(orbit: Orbit, floor: float, reach: int = 8) -> str:
    along = np.linspace(-reach, reach, 33)
    lines = []
    for offset in range(-reach, reach + 1):
        lines.append(np.stack([along, np.full_like(along, floor), np.full_like(along, offset)], -1))
        lines.append(np.stack([np.full_like(along, offset), np.full_like(along, floor), along], -1))
    return f'<path class="grid" d="{_seen_path(orbit, lines)}"/>'


def _seen_path(orbit: Orbit, lines: Sequence[np.ndarray]) -> str:
    """What is seen of lines (K, 3) in the world, as one SVG path."""
    pixels, seen = orbit.project(np.concatenate(lines))
    seen &= (np.abs(pixels) < 10 * ABOVE_WIDTH).all(-1)
    joined = seen[:-1] & seen[1:]
    joined[np.cumsum([len(line) for line in lines[:-1]], dtype=int) - 1] = False
    return "".join(_path(pixels[start : stop + 1]) for start, stop in runs(joined))


def _path(points: np.ndarray) -> str:
    return "M" + " ".join(map(str, points.round(1).ravel().tolist()))


def curves(shot: Shot) -> dict[str, np.ndarray]:
    """Values over the frames of each of GRAPHS: angles in degrees, speed in near-plane depths a second."""
    camera = shot.camera
    pitch, yaw, roll = (unwrapped(angle).numpy() for angle in camera.angles)
    steps = torch.diff(camera.positions, dim=0).norm(dim=-1).numpy() * camera.fps
    speed = np.concatenate([steps, steps[-1:]]) if len(steps) else np.zeros(1)
    xfov = camera.lens.xfov(shot.height, shot.width).double().expand(len(camera)).numpy()
    return dict(zip(GRAPHS, (pitch, yaw, roll, speed, xfov)))


def graph_x(shot: Shot, frame: float) -> float:
    """Where a frame stands in the graphs, in their units."""
    return GRAPH_LEFT + (GRAPH_WIDTH - GRAPH_LEFT - GRAPH_RIGHT) * frame / max(shot.last_frame, 1)


def graph_frame(shot: Shot, x: float) -> float:
    """The frame at a place in the graphs."""
    share = (x - GRAPH_LEFT) / (GRAPH_WIDTH - GRAPH_LEFT - GRAPH_RIGHT)
    return min(max(share * shot.last_frame, 0.0), float(shot.last_frame))


def graphs_svg(shot: Shot, curves: dict[str, np.ndarray], frame: int, selected: int | None) -> str:
    """Graphs of pitch, yaw, roll, speed and field of view, with keyframes above and the present moment across."""
    width, height = GRAPH_SIZE
    parts = []
    for row, (name, values) in enumerate(curves.items()):
        top = KEY_ROW + row * GRAPH_HEIGHT
        low, high = float(values.min()), float(values.max())
        middle, reach = (low + high) / 2, max(high - low, 1.0 if name != "speed" else 0.2) / 2
        y = top + GRAPH_HEIGHT / 2 - (values - middle) / reach * (GRAPH_HEIGHT / 2 - 6)
        points = np.stack([[graph_x(shot, number) for number in range(shot.frames)], y], -1)
        unit = "/s" if name == "speed" else "°"
        parts.append(f'<path class="rule" d="M{GRAPH_LEFT} {top}H{width - GRAPH_RIGHT}"/>')
        if len(points) > 1:
            parts.append(f'<path class="curve" d="{_path(points)}"/>')
        label = name.replace("field of ", '<tspan class="long">field of </tspan>')
        parts.append(f'<text class="name" x="0" y="{top + GRAPH_HEIGHT / 2 + 4}">{label}</text>')
        now = points[min(frame, len(points) - 1)]
        parts.append(f'<circle class="point" cx="{now[0]:.1f}" cy="{now[1]:.1f}" r="3.5"/>')
        digits, value = 2 if name == "speed" else 1, float(values[min(frame, len(values) - 1)])
        shown = f"{round(value, digits) + 0.0:.{digits}f}{unit}"
        parts.append(f'<text class="value" x="{width}" y="{top + GRAPH_HEIGHT / 2 + 4}">{shown}</text>')
    x = graph_x(shot, frame)
    parts.append(f'<path class="moment" d="M{x:.1f} {KEY_ROW - 4}V{height}"/>')
    for index, key in enumerate(shot.keys):
        at = graph_x(shot, key.frame)
        style = "key chosen" if index == selected else "key"
        parts.append(f'<path class="{style}" d="M{at:.1f} 2l8 8l-8 8l-8 -8z"/>')
    return "".join(parts)


def key_over(shot: Shot, x: float, y: float) -> int | None:
    """Index of the keyframe whose mark above the graphs is at a place."""
    if y > KEY_ROW + 8:
        return None
    away = [abs(graph_x(shot, key.frame) - x) for key in shot.keys]
    nearest = int(np.argmin(away))
    return nearest if away[nearest] <= 20 else None


def horizon_lines(camera: Trajectory, height: int, width: int) -> list[str]:
    """The horizon of every frame as an SVG path, for players that draw it in step."""
    lens = camera.lens_per_frame()
    frames = (latitude_lines(lens[frame], camera.c2w[frame], height, width, [0])[0] for frame in range(len(camera)))
    return ["".join(_path(piece) for piece in pieces) for pieces in frames]
