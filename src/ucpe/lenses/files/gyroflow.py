"""Gyroflow lens profiles."""

from __future__ import annotations

import warnings
from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady

MODELS: dict[str, tuple[Any, str]] = {
    "opencv_fisheye": (KannalaBrandt, "k1 k2 k3 k4"),
    "opencv_standard": (BrownConrady, "k1 k2 p1 p2 k3 k4 k5 k6"),
}
"""Distortion model -> our lens and its coefficients in file order."""


class Gyroflow(ReadOnly):
    """`fisheye_params` {camera_matrix, distortion_coeffs} for images of `calib_dimension`; OpenCV's fisheye by default.

    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy. A profile of stretched footage (behind
    an anamorphic lens) is for that shape, and says so.
    """

    name = "gyroflow"
    description = "Gyroflow lens profile .json (OpenCV fisheye and standard)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return isinstance(data.get("fisheye_params"), dict) and "calib_dimension" in data

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        constructor, names = MODELS[content.one_of("distortion_model", MODELS, usual="opencv_fisheye")]
        if content.data.get("digital_lens"):
            lens = content.data["digital_lens"]
            raise content.error("digital_lens", f"{lens} bends the image after the lens, and has no lens here")
        parameters = content.section("fisheye_params")
        fx, _, cx, _, fy, cy, *_ = parameters.numbers("camera_matrix", "fx 0 cx 0 fy cy 0 0 1")
        coefficients = parameters.numbers("distortion_coeffs")
        if len(coefficients) > len(names.split()):
            raise parameters.error("distortion_coeffs", f"expected {names}, got {len(coefficients)} numbers")
        width, height = content.section("calib_dimension").image_size("w h")
        stretch = [content.number(f"input_{way}_stretch", 1.0) for way in ("horizontal", "vertical")]
        if any(factor not in (0, 1) for factor in stretch):
            warnings.warn(
                f"{content.file}: for footage stretched by {stretch[0]:g} x {stretch[1]:g} to the shape of {width} x "
                f"{height} pixels; with the footage as recorded use --fit squeeze"
            )
        scale = {"fx": fx, "fy": fy, "cx": cx + 0.5, "cy": cy + 0.5, "width": width, "height": height}
        return constructor(**dict(zip(names.split(), coefficients)), **scale)
