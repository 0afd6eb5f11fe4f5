"""camera_path.json of nerfstudio's viewer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ucpe.lenses import Equidistant, Equirectangular, Lens, Pinhole
from ucpe.lenses.files.document import Section
from ucpe.reading import read_json_object
from ucpe.trajectories.formats.base import (
    Z_UP,
    ReadOnly,
    Recording,
    frame_rate_of_json,
    peek_json,
    poses_of_entries,
)
from ucpe.trajectories.formats.transforms import CAMERA

LENSES: dict[str, Any] = {"perspective": Pinhole, "fisheye": Equidistant, "equirectangular": Equirectangular}
"""Camera type -> our lens. As in nerfstudio, the focal length of a fisheye follows from `fov` like a pinhole's."""


class CameraPath(ReadOnly):
    """`camera_path` with a `camera_to_world` (16 or 12 numbers) and a vertical `fov` in degrees for every frame.

    Converted from OpenGL camera axes in a world whose z is up. As in nerfstudio, `seconds` is the length of the whole
    path. Other camera types than perspective, fisheye and equirectangular are refused.
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
        c2w = poses_of_entries(path, content, "camera_path", "camera_to_world") @ CAMERA
        rate = content.get("fps")
        if content.get("seconds"):
            rate = len(frames) / frame_rate_of_json(path, content["seconds"])
        return Recording(c2w, _lens(path, content), None if rate is None else frame_rate_of_json(path, rate), Z_UP)


def _lens(path: Path, content: dict[str, Any]) -> Lens | None:
    size = Section(content, str(path))
    kind = size.one_of("camera_type", LENSES, usual="perspective")
    if kind == "equirectangular":
        return Equirectangular()
    degrees = [frame.get("fov") for frame in content["camera_path"]]
    if None in degrees or not ("render_width" in size and "render_height" in size):
        return None
    width, height = size.image_size("render_width render_height")
    for index, fov in enumerate(degrees):
        if not isinstance(fov, int | float) or not 0 < fov < 180:
            raise ValueError(f"{path}, camera_path[{index}]: expected fov between 0 and 180 degrees, got {fov!r}")
    focal = [height / 2 / math.tan(math.radians(fov) / 2) for fov in degrees]
    constant = len(set(focal)) == 1
    fx = focal[0] if constant else torch.tensor(focal, dtype=torch.float64)
    return LENSES[kind](fx=fx, width=width, height=height)
