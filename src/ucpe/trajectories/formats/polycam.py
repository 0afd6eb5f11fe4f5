"""Raw data that Polycam exports from a phone."""

from __future__ import annotations

from pathlib import Path

import torch

from ucpe.lenses import Pinhole, stack_lenses
from ucpe.lenses.files.document import Section
from ucpe.reading import read_json_object
from ucpe.trajectories.formats.base import Y_UP, ReadOnly, Recording, natural_order, peek_json, poses_of_array
from ucpe.trajectories.formats.transforms import CAMERA

FOLDERS = ("keyframes/corrected_cameras", "keyframes/cameras", "corrected_cameras", "cameras", "")
"""Where, inside a given folder, cameras are looked for: first those that Polycam has corrected."""


class Polycam(ReadOnly):
    """A folder with a .json per keyframe: `t_00` ... `t_23` camera-to-world, `fx`, `fy`, `cx`, `cy`, `width`, `height`.

    Converted from ARKit's axes: OpenGL's in the camera, a world whose y is up. Keyframes are put in the order of their
    names; their rate is not known.
    """

    name = "polycam"
    description = "Polycam raw data: a folder with keyframes/cameras/*.json"

    def recognises(self, path: Path) -> bool:
        """Whether the folder holds such files."""
        files = _files(path)
        content = peek_json(files[0]) if files else None
        return isinstance(content, dict) and "t_00" in content and "t_23" in content

    def read(self, path: Path) -> Recording:
        """Poses, and a lens per frame."""
        files = _files(path)
        if not files:
            raise ValueError(f"{path}: expected a folder with keyframes/cameras/*.json")
        poses, lenses = [], []
        for file in files:
            camera = Section(read_json_object(file), str(file))
            poses.append([[camera.number(f"t_{row}{column}") for column in range(4)] for row in range(3)])
            width, height = camera.image_size("width height")
            values = {name: camera.number(name) for name in ("fx", "fy", "cx", "cy")}
            lenses.append(Pinhole(**values, width=width, height=height))
            if lenses[-1].settings != lenses[0].settings:
                raise ValueError(f"{file}: expected the image size of the keyframes before, {lenses[0].settings}")
        same = all(lens == lenses[0] for lens in lenses)
        c2w = poses_of_array(path, torch.tensor(poses, dtype=torch.float64).numpy()) @ CAMERA
        return Recording(c2w, lenses[0] if same else stack_lenses(lenses), up=Y_UP)


def _files(path: Path) -> list[Path]:
    """The keyframes of a folder in order, none if it has none."""
    if not path.is_dir():
        return []
    found = (list((path / folder).glob("*.json")) for folder in FOLDERS)
    return sorted(next(filter(None, found), []), key=lambda file: natural_order(file.name))
