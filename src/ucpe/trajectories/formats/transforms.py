"""transforms.json of nerfstudio, instant-ngp and Blender."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ucpe.files import write_file
from ucpe.lenses.files.transforms import lens_from_transforms, lens_to_transforms
from ucpe.reading import read_json
from ucpe.trajectories.formats.base import (
    Z_UP,
    ImageSize,
    Recording,
    frame_rate_of_json,
    image_size_of,
    natural_order,
    peek_json,
    poses_of_entries,
)
from ucpe.trajectories.trajectory import Trajectory

WORLD = torch.tensor([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64, device="cpu")
"""From a world with z up and y forward to ours with y down and z forward, as `gravity_aligned` turns it."""

CAMERA = torch.diag(torch.tensor([1.0, -1, -1, 1], dtype=torch.float64, device="cpu"))
"""From our camera axes to OpenGL's: y up, z backward."""

NO_TURN = torch.eye(4, dtype=torch.float64, device="cpu")
"""The `applied_transform` of a world as it came."""


class Transforms:
    """`frames` with a `transform_matrix` each, and intrinsics for all or in each.

    Converted from camera-to-world with OpenGL camera axes (x right, y up, z backward: the y and z columns change
    sign) in a world whose z is up (turned so that up is [0, -1, 0]). Frames are put in the order of their file names.
    With `applied_transform`, as nerfstudio makes the file from COLMAP, up is unknown.
    """

    name = "nerfstudio"
    description = "nerfstudio, instant-ngp and Blender transforms.json"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON object with a list `frames`."""
        content = peek_json(path)
        return isinstance(content, dict) and isinstance(content.get("frames"), list)

    def read(self, path: Path) -> Recording:
        """Poses, lens and (if the file says) frame rate."""
        content = read_json(path)
        frames = content.get("frames") if isinstance(content, dict) else None
        if not isinstance(frames, list) or not frames:
            raise ValueError(f"{path}: expected an object with a list `frames` of at least one")
        poses = poses_of_entries(path, content, "frames", "transform_matrix")
        names = [frame.get("file_path") for frame in frames]
        order = list(range(len(frames)))
        if all(names):
            order.sort(key=lambda index: natural_order(names[index]))
        c2w = poses[order] @ CAMERA
        lens = lens_from_transforms(content, str(path)) if _has_lens(content) else None
        if lens is not None and lens.batch_shape:
            lens = lens[torch.tensor(order)]
        fps = content.get("fps")
        up = None if "applied_transform" in content else Z_UP  # turned COLMAP worlds, whose up nobody knows
        return Recording(c2w, lens, None if fps is None else frame_rate_of_json(path, fps), up)

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses, lens and frame rate; image names are frame_00000.png and so on."""
        size = image_size_of(trajectory.lens, size)
        world = WORLD.mT if trajectory.up_known else NO_TURN
        matrices = (world @ trajectory.c2w.double() @ CAMERA).tolist()
        frames: list[dict[str, Any]] = []
        for index, matrix in enumerate(matrices):
            own = trajectory.lens[index] if trajectory.lens.batch_shape else None
            intrinsics = lens_to_transforms(own, size.height, size.width) if own else {}
            frames.append({"file_path": f"images/frame_{index:05d}.png", "transform_matrix": matrix, **intrinsics})
        shared = {} if trajectory.lens.batch_shape else lens_to_transforms(trajectory.lens, size.height, size.width)
        applied = {} if trajectory.up_known else {"applied_transform": NO_TURN[:3].tolist()}
        content = {**shared, "fps": trajectory.fps, **applied, "frames": frames}
        write_file(path, json.dumps(content, indent=1) + "\n")


def _has_lens(content: dict[str, Any]) -> bool:
    entries = [content, *content["frames"]]
    return any(key in entry for entry in entries for key in ("fl_x", "camera_angle_x", "camera_model"))
