"""OpenSfM's reconstruction.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ucpe.lenses import Lens
from ucpe.lenses.files.document import Section
from ucpe.lenses.files.opensfm import lens_of_camera
from ucpe.reading import read_json
from ucpe.trajectories.formats.base import Z_UP, ReadOnly, Recording, natural_order, peek_json
from ucpe.trajectories.rotations import invert_pose, pose_matrix, rotation_exp


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
    return lens_of_camera(Section(first, str(path), "cameras."))
