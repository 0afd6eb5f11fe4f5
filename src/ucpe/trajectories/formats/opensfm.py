"""OpenSfM's reconstruction.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ucpe.lenses import BrownConrady, Equirectangular, KannalaBrandt, Lens
from ucpe.reading import read_json
from ucpe.trajectories.formats.base import Z_UP, ReadOnly, Recording, natural_order, peek_json
from ucpe.trajectories.rotations import invert_pose, pose_matrix, rotation_exp

MODELS: dict[str, tuple[Any, str]] = {
    "perspective": (BrownConrady, "k1 k2"),
    "brown": (BrownConrady, "k1 k2 p1 p2 k3"),
    "fisheye": (KannalaBrandt, "k1 k2"),
    "fisheye_opencv": (KannalaBrandt, "k1 k2 k3 k4"),
    "spherical": (Equirectangular, ""),
    "equirectangular": (Equirectangular, ""),
}
"""Projection type -> our lens and its distortion."""


class OpenSfM(ReadOnly):
    """A reconstruction with `cameras` and `shots`. Of a list, the one with the most shots is taken.

    Converted from world-to-camera axis-angle vectors and translations, by inversion, in a world whose z is up;
    focal lengths are shares of the longer side. Shots are put in the order of their names.
    """

    name = "opensfm"
    description = "OpenSfM reconstruction.json"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON list of reconstructions, or one."""
        content = peek_json(path)
        first = content[0] if isinstance(content, list) and content else content
        return isinstance(first, dict) and "shots" in first and "cameras" in first

    def read(self, path: Path) -> Recording:
        """Poses and lens."""
        content = read_json(path)
        parts = content if isinstance(content, list) else [content]
        boxes = [part.get(key) if isinstance(part, dict) else None for part in parts for key in ("shots", "cameras")]
        if not boxes or not all(isinstance(box, dict) for box in boxes):
            raise ValueError(f"{path}: expected reconstructions with objects `shots` and `cameras`")
        largest = max(parts, key=lambda part: len(part["shots"]))
        shots = sorted(largest["shots"].items(), key=lambda shot: natural_order(shot[0]))
        if not shots:
            raise ValueError(f"{path} holds no shot")
        try:
            shape = (len(shots), 3)
            rotation = torch.tensor([shot["rotation"] for _, shot in shots], dtype=torch.float64).reshape(shape)
            translation = torch.tensor([shot["translation"] for _, shot in shots], dtype=torch.float64).reshape(shape)
            cameras = [largest["cameras"][shot["camera"]] for _, shot in shots]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path}: expected rotation, translation and a known camera in every shot ({error})"
            ) from None
        if not all(isinstance(camera, dict) for camera in cameras):
            raise ValueError(f"{path}: expected every camera to be a JSON object")
        w2c = pose_matrix(rotation_exp(rotation), translation)
        return Recording(invert_pose(w2c), _lens(path, cameras), up=Z_UP)


def _lens(path: Path, cameras: list[dict[str, Any]]) -> Lens:
    first = cameras[0]
    if any(camera != first for camera in cameras):
        raise ValueError(f"{path}: frames of one trajectory need one camera, and this reconstruction has several")
    kind = first.get("projection_type", "perspective")
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"{path}: projection_type: expected one of {', '.join(MODELS)}; got {kind!r}")
    constructor, names = MODELS[kind]
    if constructor is Equirectangular:
        return Equirectangular()
    try:
        width, height = int(first["width"]), int(first["height"])
        longer = max(width, height)
        focal_x = float(first["focal_x"] if "focal_x" in first else first["focal"])
        focal_y = float(first.get("focal_y", focal_x))
        values = {name: float(first.get(name, 0.0)) for name in names.split()}
        centre = float(first.get("c_x", 0.0)), float(first.get("c_y", 0.0))
        return constructor(
            fx=focal_x * longer,
            fy=focal_y * longer,
            cx=width / 2 + centre[0] * longer,
            cy=height / 2 + centre[1] * longer,
            width=width,
            height=height,
            **values,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: camera of type {kind}: {error}") from None
