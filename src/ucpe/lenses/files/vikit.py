"""Cameras of vikit, as FAST-LIVO and the first SVO hold them."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose
from ucpe.lenses.fisheye import FieldOfView, KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady

MODELS: dict[str, tuple[Any, str]] = {
    "Pinhole": (BrownConrady, "k1 k2 p1 p2"),
    "PinholeNoDistortion": (BrownConrady, ""),
    "PinholeRadialTangential": (BrownConrady, "k1 k2 p1 p2"),
    "PinholeEquidistant": (KannalaBrandt, "k1 k2 k3 k4"),
    "PinholeAtan": (FieldOfView.from_omega, "omega"),
    "ATAN": (FieldOfView.from_omega, "omega"),
    "EquidistantCamera": (KannalaBrandt, "k1 k2 k3 k4"),
}
"""Camera model -> our lens and what `cam_d0` ... `cam_d3` are."""


class Vikit(ReadOnly):
    """`cam_model`, `cam_width`, `cam_fx`, ..., and `cam_d0` ... or `k1` ...; alone, or by camera.

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy. `scale`, by which a program shrinks
    its images, changes nothing.
    """

    name = "vikit"
    description = "FAST-LIVO and vikit .yaml (Pinhole, EquidistantCamera, ATAN)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return bool(_cameras(data))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        cameras = _cameras(content.data)
        entry = Section(cameras[choose(list(cameras), camera, content.file)], content.file, size=content.size)
        kind = entry.one_of("cam_model", MODELS)
        constructor, names = MODELS[kind]
        width, height = entry.image_size("cam_width cam_height")
        values = {name: entry.number(f"cam_d{i}", entry.number(name, 0.0)) for i, name in enumerate(names.split())}
        scale = entry.shifted("cam_fx cam_fy cam_cx cam_cy")
        if kind == "ATAN":  # PTAM's, in shares of the image
            sides = {"fx": width, "fy": height, "cx": width, "cy": height}
            scale = {name: entry.number(f"cam_{name}") * side for name, side in sides.items()}
        return constructor(**scale, **values, width=width, height=height)


def _cameras(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    entries = {"camera": data} if "cam_model" in data else data
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict) and "cam_model" in entry}
