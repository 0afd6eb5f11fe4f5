"""EuRoC's sensor.yaml, which Kimera's camera files follow: one camera of a Kalibr chain."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section
from ucpe.lenses.files.kalibr import lens_of_camera


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
        described = {"camera_model": "pinhole", **content.data}
        return lens_of_camera(Section(described, content.file, content.prefix, content.size))
