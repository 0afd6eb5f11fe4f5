"""Cameras of DSO, LSD-SLAM and the TUM monoVO dataset: four lines of text."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import DSO, ReadOnly, Section, flat_numbers
from ucpe.lenses.fisheye import FieldOfView, KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole

MODELS: dict[str, tuple[Any, str]] = {
    "Pinhole": (Pinhole, "zero"),
    "FOV": (FieldOfView.from_omega, "omega"),
    "RadTan": (BrownConrady, "k1 k2 p1 p2"),
    "EquiDistant": (KannalaBrandt, "k1 k2 k3 k4"),
    "KannalaBrandt": (KannalaBrandt, "k1 k2 k3 k4"),
}
"""First word -> our lens and its distortion; a line without one is RadTan with eight numbers, FOV with five."""


class Dso(ReadOnly):
    """`[FOV] fx fy cx cy omega`, the width and height in pixels, and two lines about the rectified image (not used).

    Below 1, cx and cy are shares of the image, and so are fx and fy. Pixels count from the centre of pixel (0, 0) at
    (0, 0), to which half a pixel is added; shares count from its corner.
    """

    name = "dso"
    description = "DSO, LSD-SLAM and TUM monoVO camera.txt (Pinhole, FOV, RadTan, EquiDistant, KannalaBrandt)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return DSO in data

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        first, second = content.data[DSO]
        word = first.split()[0] if first.split()[0] in MODELS else ""
        values = flat_numbers(first.removeprefix(word)) or []
        model = word or {5: "FOV", 8: "RadTan"}.get(len(values), "FOV")
        if model == "FOV" and len(values) == 5 and not values[4]:
            model = "Pinhole"
        constructor, names = MODELS[model]
        if len(values) != 4 + len(names.split()):
            raise content.error("line 1", f"expected {model} fx fy cx cy {names}; got {first}")
        width, height = Section({"size": second}, content.file).image_size("size")
        fx, fy, cx, cy = values[:4]
        if cx < 1 and cy < 1:
            fx, fy, cx, cy = fx * width, fy * height, cx * width - 0.5, cy * height - 0.5
        coefficients = dict(zip(names.split(), values[4:])) if constructor is not Pinhole else {}
        return constructor(fx=fx, fy=fy, cx=cx + 0.5, cy=cy + 0.5, width=width, height=height, **coefficients)
