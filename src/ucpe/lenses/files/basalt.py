"""Basalt's calibration JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import EUCM, DoubleSphere

MODELS: dict[str, tuple[Any, str]] = {
    "pinhole": (Pinhole, ""),
    "pinhole-radtan8": (BrownConrady, "k1 k2 p1 p2 k3 k4 k5 k6"),
    "kb4": (KannalaBrandt, "k1 k2 k3 k4"),
    "ds": (DoubleSphere, "xi alpha"),
    "eucm": (EUCM, "alpha beta"),
    "ucm": (EUCM, "alpha"),
}
"""Camera type -> our lens and its parameters; Basalt's ucm is an EUCM whose beta is 1."""


class Basalt(ReadOnly):
    """`value0` with lists `intrinsics` (of {camera_type, intrinsics}) and `resolution`; cameras are cam0, cam1, ...

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "basalt"
    description = "Basalt calibration .json (pinhole, pinhole-radtan8, kb4, ds, eucm, ucm)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        inner = data.get("value0")
        return isinstance(inner, dict) and isinstance(inner.get("intrinsics"), list)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        inner = content.section("value0")
        index = self._index(content, camera)
        where = f"{inner.prefix}intrinsics[{index}]."
        if not isinstance(inner.data["intrinsics"][index], dict):
            raise inner.error(f"intrinsics[{index}]", "expected a mapping with camera_type and intrinsics")
        entry = Section(inner.data["intrinsics"][index], content.file, where, content.size)
        constructor, names = MODELS[entry.one_of("camera_type", MODELS)]
        values = entry.section("intrinsics")
        sizes, key = inner.data.get("resolution"), f"resolution[{index}]"
        own = {key: sizes[index]} if isinstance(sizes, list) and len(sizes) > index else {}
        width, height = Section(own, content.file, inner.prefix, content.size).image_size(key)
        parameters = {name: values.number(name) for name in names.split()}
        return constructor(**values.shifted("fx fy cx cy"), **parameters, width=width, height=height)

    def mounting(self, content: Section, camera: str | None) -> Tensor | None:
        """Camera-to-body pose (4, 4) float64 of one camera, None where the file has none."""
        poses = content.section("value0").data.get("T_imu_cam")
        index = self._index(content, camera)
        if not isinstance(poses, list) or index >= len(poses) or not isinstance(poses[index], dict):
            return None
        entry = Section(poses[index], content.file, f"value0.T_imu_cam[{index}].")
        x, y, z, w = (entry.number(name) for name in ("qx", "qy", "qz", "qw"))
        square = x * x + y * y + z * z + w * w
        if not abs(square - 1) < 0.02:
            raise entry.error("qw", f"expected a quaternion of length 1, got {square**0.5:.4g}")
        cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
        pose = torch.eye(4, dtype=torch.float64)
        pose[:3, :3] += 2 * (w * cross + cross @ cross) / square
        pose[:3, 3] = torch.tensor([entry.number(name) for name in ("px", "py", "pz")], dtype=torch.float64)
        return pose

    def _index(self, content: Section, camera: str | None) -> int:
        """The number of the camera asked for."""
        cameras = [f"cam{index}" for index in range(len(content.section("value0").data["intrinsics"]))]
        return int(choose(cameras, camera, content.file)[3:])
