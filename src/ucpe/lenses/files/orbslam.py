"""Settings of ORB-SLAM2, ORB-SLAM3 and OV2SLAM."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose
from ucpe.lenses.files.opencv import lens_of_section
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole

MODELS: dict[str, tuple[Any, str]] = {
    "PinHole": (BrownConrady, "k1 k2 p1 p2 k3"),
    "KannalaBrandt8": (KannalaBrandt, "k1 k2 k3 k4"),
    "Rectified": (Pinhole, ""),
}
"""Camera type -> our lens and its distortion parameters."""


class OrbSlam(ReadOnly):
    """`Camera.fx` or `Camera1.fx` and so on; `Camera.type` PinHole (if none is given), KannalaBrandt8 or Rectified.

    Cameras are called as in the file: Camera, Camera1, Camera2, and LEFT and RIGHT for the raw images of a stereo pair
    that ORB-SLAM2 rectifies. OV2SLAM's (`Camera.fxl`, `Camera.fxr`; pinhole or fisheye) are called left and right. The
    centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "orbslam"
    description = "ORB-SLAM2, ORB-SLAM3 and OV2SLAM settings (PinHole, KannalaBrandt8, Rectified)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return any(key in data for key in ("Camera.fx", "Camera1.fx", "Camera.fxl"))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        if "Camera.fxl" in content:
            return _ov2slam(content.dotted("Camera."), camera)
        cameras = [name for name in ("Camera", "Camera1", "Camera2") if f"{name}.fx" in content]
        cameras += [name for name in ("LEFT", "RIGHT") if f"{name}.K" in content]
        chosen = choose(cameras, camera, content.file)
        entry = content.dotted(f"{chosen}.")
        if chosen in ("LEFT", "RIGHT"):
            return lens_of_section(entry)
        constructor, distortion = MODELS[content.one_of("Camera.type", MODELS, usual="PinHole")]
        width, height = content.image_size("Camera.width Camera.height", "Camera.cols Camera.rows")
        values = {**entry.shifted("fx fy cx cy"), **entry.coefficients(distortion)}
        return constructor(**values, width=width, height=height)


def _ov2slam(entry: Section, camera: str | None) -> Lens:
    side = choose(["left", "right"], camera, entry.file)
    kind = entry.one_of(f"model_{side}", ("pinhole", "fisheye"))
    width, height = entry.image_size(f"{side}_nwidth {side}_nheight")
    scale = entry.shifted(" ".join(f"{name}{side[0]}" for name in ("fx", "fy", "cx", "cy")))
    distortion = [entry.number(f"{name}{side[0]}", 0.0) for name in ("k1", "k2", "p1", "p2")]  # also of a fisheye
    constructor, names = MODELS["KannalaBrandt8" if kind == "fisheye" else "PinHole"]
    return constructor(**scale, **dict(zip(names.split(), distortion)), width=width, height=height)
