"""XMP files that RealityCapture and RealityScan write beside images."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, local_name
from ucpe.lenses.pinhole import BrownConrady

FILM = 36.0
"""Millimetres of the longer side that `FocalLength35mm` is for."""

MODELS = ("perspective", "brown3", "brown4", "brown3t2", "brown4t2")


class RealityCapture(ReadOnly):
    """`xcr:FocalLength35mm`, `xcr:PrincipalPointU` and `V` in longer sides, `xcr:DistortionCoeficients` k1 k2 k3.

    A fourth coefficient, tangential ones and other models are refused unless they are 0. The file does not say the size
    of its image. The centre of pixel (0, 0) is at (0.5, 0.5), as here.
    """

    name = "realitycapture"
    description = "RealityCapture .xmp (perspective, brown3)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return "xmpmeta" in data and any("FocalLength35mm" in key for key in _entries(data["xmpmeta"]))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        entry = Section(_entries(content.data["xmpmeta"]), content.file, "xcr:", content.size)
        model = entry.text("DistortionModel").lower() if "DistortionModel" in entry else "brown3"
        coefficients = entry.numbers("DistortionCoeficients") if "DistortionCoeficients" in entry else []
        if model not in MODELS and any(coefficients):
            raise entry.error("DistortionModel", f"expected {' or '.join(MODELS)}; got {model}")
        if any(coefficients[3:]):
            raise entry.error(
                "DistortionCoeficients", f"expected k1 k2 k3 and zeros, got {coefficients}: no lens here has them"
            )
        if entry.number("Skew", 0.0):
            raise entry.error("Skew", f"expected no skew, got {entry.number('Skew'):g}")
        width, height = entry.image_size("ImageWidth ImageHeight")
        longer = max(width, height)
        focal = entry.number("FocalLength35mm") / FILM * longer
        return BrownConrady(
            fx=focal,
            fy=focal * entry.number("AspectRatio", 1.0),
            cx=width / 2 + entry.number("PrincipalPointU", 0.0) * longer,
            cy=height / 2 + entry.number("PrincipalPointV", 0.0) * longer,
            **dict(zip(("k1", "k2", "k3"), coefficients)),
            width=width,
            height=height,
        )


def _entries(root: Any) -> dict[str, str]:
    """Attributes and elements of all descriptions by their names, which XMP lets stand for each other."""
    found: dict[str, str] = {}
    for element in root.iter():
        found |= {local_name(key): value for key, value in element.attrib.items()}
        if element.text and element.text.strip():
            found[local_name(element.tag)] = element.text.strip()
    return found
