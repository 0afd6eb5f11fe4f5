"""EuRoC's sensor.yaml, which Kimera's camera files follow."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole

MODELS: dict[str, tuple[Any, str]] = {
    "none": (Pinhole, ""),
    "radialtangential": (BrownConrady, "k1 k2 p1 p2 k3"),
    "radtan": (BrownConrady, "k1 k2 p1 p2 k3"),
    "plumbbob": (BrownConrady, "k1 k2 p1 p2 k3"),
    "equidistant": (KannalaBrandt, "k1 k2 k3 k4"),
}
"""Distortion model -> our lens and its coefficients in file order."""


class EuRoC(ReadOnly):
    """`camera_model: pinhole`, `intrinsics` [fu, fv, cu, cv], `distortion_model` and its coefficients, `resolution`.

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "euroc"
    description = "EuRoC and Kimera sensor.yaml (radial-tangential, equidistant)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return "intrinsics" in data and ("camera_model" in data or "distortion_model" in data)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        kind = content.text("camera_model").lower() if "camera_model" in content else "pinhole"
        if kind != "pinhole":
            raise content.error("camera_model", f"expected pinhole, got {kind}")
        distortion = content.text("distortion_model") if "distortion_model" in content else "none"
        plain = distortion.lower().replace("-", "").replace("_", "")
        if plain not in MODELS:
            raise content.error(
                "distortion_model", f"expected radial-tangential, equidistant or none; got {distortion}"
            )
        constructor, names = MODELS[plain]
        fx, fy, cx, cy = content.numbers("intrinsics", "fu fv cu cv")
        values = {"fx": fx, "fy": fy, "cx": cx + 0.5, "cy": cy + 0.5}
        if names:
            key = content.first("distortion_coefficients", "distortion_coeffs")
            coefficients = content.numbers(key)
            if not 4 <= len(coefficients) <= len(names.split()):
                raise content.error(key, f"expected {names}, got {len(coefficients)} numbers")
            values |= dict(zip(names.split(), coefficients))
        width, height = content.image_size("resolution", "image_width image_height")
        return constructor(**values, width=width, height=height)
