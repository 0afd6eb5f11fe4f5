"""Calibrations of camodocal, as VINS-Mono, VINS-Fusion and their relatives hold them."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady
from ucpe.lenses.unified import Mei

MODELS: dict[str, tuple[Any, str, str]] = {
    "PINHOLE": (BrownConrady, "fx fy cx cy", "k1 k2 p1 p2"),
    "PINHOLE_FULL": (BrownConrady, "fx fy cx cy", "k1 k2 p1 p2 k3 k4 k5 k6"),
    "MEI": (Mei, "gamma1 gamma2 u0 v0", "k1 k2 p1 p2"),
    "KANNALA_BRANDT": (KannalaBrandt, "mu mv u0 v0", ""),
}
"""Model type -> our lens, its names for fx fy cx cy, and its distortion parameters."""


class Camodocal(ReadOnly):
    """`model_type` PINHOLE, PINHOLE_FULL, MEI or KANNALA_BRANDT (whose k2 ... k5 are OpenCV's k1 ... k4).

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "camodocal"
    description = "camodocal, VINS-Mono and VINS-Fusion .yaml (PINHOLE, MEI, KANNALA_BRANDT)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return "model_type" in data and isinstance(data.get("projection_parameters"), dict)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        kind = content.one_of("model_type", MODELS)
        constructor, names, distortion = MODELS[kind]
        projection = content.section("projection_parameters")
        width, height = content.image_size("image_width image_height")
        values = projection.shifted(names)
        if kind == "KANNALA_BRANDT":
            values |= {f"k{i}": projection.number(f"k{i + 1}", 0.0) for i in range(1, 5)}
        elif "distortion_parameters" in content:
            values |= content.section("distortion_parameters").coefficients(distortion)
        if kind == "MEI":
            values["xi"] = content.section("mirror_parameters").number("xi")
        return constructor(**values, width=width, height=height)
