"""WoodScape's fisheye calibrations."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.fisheye import RadialPolynomial


class WoodScape(ReadOnly):
    """`intrinsic` with `model: radial_poly`: radius in pixels = k1 θ + k2 θ² + k3 θ³ + k4 θ⁴.

    `cx_offset` and `cy_offset` count from the image centre, as here: nothing is converted. Image rows are stretched
    by `aspect_ratio`.
    """

    name = "woodscape"
    description = "WoodScape calibration .json (radial_poly)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return (isinstance(data.get("intrinsic"), dict) and "poly_order" in data["intrinsic"]) or _is_polynomial(data)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        entry = content.section("intrinsic")
        if entry.text("model") != "radial_poly":
            raise entry.error("model", f"expected radial_poly, got {entry.text('model')}")
        width, height = entry.image_size("width height")
        focal = entry.number("k1")
        if not focal > 0:
            raise entry.error("k1", f"expected a number above 0, got {focal:g}")
        return RadialPolynomial(
            **{f"k{i}": entry.number(f"k{i + 1}", 0.0) / focal for i in range(1, 4)},
            fx=focal,
            fy=focal * entry.number("aspect_ratio", 1.0),
            cx=width / 2 + entry.number("cx_offset", 0.0),
            cy=height / 2 + entry.number("cy_offset", 0.0),
            width=width,
            height=height,
        )


def _is_polynomial(data: dict[str, Any]) -> bool:
    return isinstance(data.get("intrinsic"), dict) and data["intrinsic"].get("model") == "radial_poly"
