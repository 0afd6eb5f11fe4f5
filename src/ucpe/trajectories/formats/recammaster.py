"""camera_extrinsics.json of ReCamMaster and its MultiCamVideo data."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ucpe.lenses.files.document import choose
from ucpe.reading import read_json_object
from ucpe.trajectories.formats.base import ReadOnly, Recording, natural_order, peek_json, poses_of_array

UNREAL = torch.tensor([[0.0, 1, 0], [0, 0, -1], [1, 0, 0]], dtype=torch.float64)
"""From Unreal's axes (x forward, y right, z up, left-handed) to ours."""

CENTIMETRES = 100.0


class ReCamMaster(ReadOnly):
    """`frameN` -> `camNN` -> "[x x x 0] [y y y 0] [z z z 0] [position 1]", the axes of an Unreal camera in centimetres.

    Converted from Unreal's left-handed axes, in the world and in the camera, to ours; positions become metres. The
    camera is chosen as camera_extrinsics.json:cam03.
    """

    name = "recammaster"
    description = "ReCamMaster camera_extrinsics.json (camera_extrinsics.json:cam01 chooses a camera)"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON object whose first frame holds cameras."""
        content = peek_json(path)
        first = next(iter(content.items()), ("", None)) if isinstance(content, dict) else ("", None)
        cameras = first[1].values() if re.fullmatch(r"frame\d+", first[0]) and isinstance(first[1], dict) else ()
        return bool(cameras) and all(isinstance(value, str | list) for value in cameras)

    def read(self, path: Path, camera: str | None = None) -> Recording:
        """Poses of one camera."""
        content = read_json_object(path)
        names = sorted((key for key in content if key.startswith("frame")), key=natural_order)
        cameras = list(content[names[0]]) if names and isinstance(content[names[0]], dict) else []
        camera = choose(cameras, camera, str(path))
        rows = []
        for name in names:
            text = content[name].get(camera, "") if isinstance(content[name], dict) else ""
            try:
                numbers = [float(word) for word in re.sub(r"[\[\],]", " ", str(text)).split()]
            except ValueError:
                numbers = []
            if len(numbers) != 16:
                raise ValueError(f"{path}: {name}.{camera}: expected 4 rows of 4 numbers, found {text!r}")
            rows.append(numbers)
        unreal = torch.tensor(rows, dtype=torch.float64).reshape(-1, 4, 4).mT
        rotation = UNREAL @ unreal[:, :3, :3] @ UNREAL.mT
        position = unreal[:, :3, 3] @ UNREAL.mT / CENTIMETRES
        c2w = poses_of_array(path, torch.cat([rotation, position[:, :, None]], -1).numpy())
        return Recording(c2w, up=(0.0, -1.0, 0.0))
