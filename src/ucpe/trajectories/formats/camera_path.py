"""camera_path.json of nerfstudio's viewer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ucpe.lenses import Equirectangular, Lens, Pinhole
from ucpe.reading import read_json_object
from ucpe.trajectories.formats.base import Z_UP, ReadOnly, Recording, frame_rate_of_json, peek_json, poses_of_array
from ucpe.trajectories.formats.transforms import CAMERA


class CameraPath(ReadOnly):
    """`camera_path` with a `camera_to_world` (16 or 12 numbers) and a vertical `fov` in degrees for every frame.

    Converted from OpenGL camera axes in a world whose z is up. Other camera types than perspective and
    equirectangular are refused.
    """

    name = "camera_path"
    description = "nerfstudio viewer camera_path.json"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON object with a list `camera_path`."""
        content = peek_json(path)
        return isinstance(content, dict) and isinstance(content.get("camera_path"), list)

    def read(self, path: Path) -> Recording:
        """Poses, lens and frame rate."""
        content = read_json_object(path)
        frames = content.get("camera_path")
        if not isinstance(frames, list) or not frames:
            raise ValueError(f"{path}: expected a list `camera_path` of at least one camera")
        poses = [_pose(frame, f"{path}, camera_path[{index}]") for index, frame in enumerate(frames)]
        c2w = poses_of_array(path, torch.stack(poses).numpy()) @ CAMERA
        rate = content.get("fps")
        if rate is None and content.get("seconds"):
            rate = len(frames) / frame_rate_of_json(path, content["seconds"])
        return Recording(c2w, _lens(path, content), None if rate is None else frame_rate_of_json(path, rate), Z_UP)


def _pose(frame: Any, where: str) -> torch.Tensor:
    try:
        matrix = torch.tensor(frame["camera_to_world"], dtype=torch.float64).flatten()
    except (KeyError, TypeError, ValueError):
        matrix = torch.zeros(0)
    if len(matrix) not in (12, 16):
        raise ValueError(f"{where}: expected camera_to_world, a matrix of 16 or 12 numbers")
    return matrix.reshape(-1, 4)[:3]


def _lens(path: Path, content: dict[str, Any]) -> Lens | None:
    kind = content.get("camera_type", "perspective")
    if kind == "equirectangular":
        return Equirectangular()
    if kind != "perspective":
        raise ValueError(f"{path}: camera_type: expected perspective or equirectangular, got {kind!r}")
    width, height = content.get("render_width"), content.get("render_height")
    degrees = [frame.get("fov") for frame in content["camera_path"]]
    if not isinstance(width, int) or not isinstance(height, int) or None in degrees:
        return None
    for index, fov in enumerate(degrees):
        if not isinstance(fov, int | float) or not 0 < fov < 180:
            raise ValueError(f"{path}, camera_path[{index}]: expected fov between 0 and 180 degrees, got {fov!r}")
    focal = [height / 2 / math.tan(math.radians(fov) / 2) for fov in degrees]
    constant = len(set(focal)) == 1
    return Pinhole(fx=focal[0] if constant else torch.tensor(focal, dtype=torch.float64), width=width, height=height)
