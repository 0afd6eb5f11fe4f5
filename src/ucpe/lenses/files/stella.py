"""Camera settings of stella_vslam and OpenVSLAM."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.fisheye import Division, KannalaBrandt
from ucpe.lenses.panoramic import Equirectangular
from ucpe.lenses.pinhole import BrownConrady

MODELS: dict[str, tuple[Any, str]] = {
    "perspective": (BrownConrady, "k1 k2 p1 p2 k3"),
    "fisheye": (KannalaBrandt, "k1 k2 k3 k4"),
    "equirectangular": (Equirectangular, ""),
    "radial_division": (Division, "distortion"),
}
"""Model -> our lens and its distortion parameters."""


class Stella(ReadOnly):
    """`Camera: {model, fx, ..., cols, rows}`, or `Camera.model`, `Camera.fx`, ... as OpenVSLAM writes.

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "stella"
    description = "stella_vslam and OpenVSLAM .yaml (perspective, fisheye, equirectangular, radial_division)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        camera = data.get("Camera")
        return "Camera.model" in data or (isinstance(camera, dict) and "model" in camera)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        entry = content.section("Camera") if "Camera" in content else content.dotted("Camera.")
        constructor, distortion = MODELS[entry.one_of("model", MODELS)]
        if constructor is Equirectangular:
            return Equirectangular()
        width, height = entry.image_size("cols rows")
        values = {**entry.shifted("fx fy cx cy"), **entry.coefficients(distortion)}
        if constructor is Division:
            values["k"] = values.pop("distortion", 0.0)
        return constructor(**values, width=width, height=height)
