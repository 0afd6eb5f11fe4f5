"""Fisheyes of Scaramuzza's OCamCalib, also as MultiCol-SLAM and Kimera hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import OCAM, ReadOnly, Section, warn_of_misfit
from ucpe.lenses.fitting import radial_lens


class Scaramuzza(ReadOnly):
    """A polynomial z(rho) for the ray (x, y, z) at rho = |x, y| on the sensor, an affine matrix and its centre.

    OCamCalib's `calib_results.txt`; MultiCol-SLAM's `Camera.a0` ...; Kimera's `camera_model: omni`. The nearest
    Kannala-Brandt lens is taken, with a warning that says by how many pixels it is off. The inverse polynomials are not
    used: they are fitted to the others. The centre of pixel (0, 0) is at (0, 0): half a pixel is added to the centre.
    """

    name = "scaramuzza"
    description = "OCamCalib calib_results.txt, MultiCol-SLAM and Kimera's omni .yaml"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return OCAM in data or "omni_affine" in data or all(key in data for key in ("Camera.a0", "Camera.Iw"))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        if OCAM in content:
            lines = Section(dict(zip(OCAM_LINES, content.data[OCAM])), content.file)
            polynomial, (row, column) = lines.numbers("polynomial")[1:], lines.numbers("center", "row column")
            c, d, e = lines.numbers("affine", "c d e")
            affine, centre = [[1, e], [d, c]], [column, row]
            height, width = lines.image_size("size")
        elif "omni_affine" in content:
            polynomial = content.numbers("distortion_coefficients")
            across, along, down = content.numbers("omni_affine", "c d e")
            affine, centre = [[1, across], [along, down]], content.numbers("omni_distortion_center", "x y")
            width, height = content.image_size("resolution")
        else:
            entry = content.dotted("Camera.")
            polynomial = [entry.number(f"a{power}") for power in range(entry.whole("nrpol"))]
            affine = [[entry.number("c"), entry.number("d")], [entry.number("e"), 1]]
            centre = [entry.number("u0"), entry.number("v0")]
            width, height = entry.image_size("Iw Ih")
        return _nearest(polynomial, np.array(affine), np.array(centre) + 0.5, width, height, content.file)


OCAM_LINES = ("polynomial", "inverse", "center", "affine", "size")


def _nearest(
    polynomial: list[float],
    affine: np.ndarray,  # (2, 2) sensor to pixels, across and down
    centre: np.ndarray,  # (2,) pixels
    width: int,
    height: int,
    file: str,
) -> Lens:
    """The Kannala-Brandt lens nearest to the polynomial inside the image."""
    focal = abs(polynomial[0])
    if not focal > 0 or not affine[0, 0] * affine[1, 1] > 0:
        raise ValueError(f"{file}: expected a polynomial that does not begin with 0 and an affine matrix near 1")
    corner = np.hypot(*np.maximum(centre, [width, height] - centre))
    radii = np.linspace(0, corner, 2000)[1:]
    ahead = np.polynomial.polynomial.polyval(radii, polynomial) * np.sign(polynomial[0])
    angles = np.arctan2(radii, ahead)
    kept = np.logical_and.accumulate(np.diff(angles, prepend=0) > 0)
    angles, radii = angles[kept], radii[kept]
    fx, fy = focal * affine[0, 0], focal * affine[1, 1]
    lens = radial_lens(
        angles, radii / focal, False, fx=fx, fy=fy, cx=centre[0], cy=centre[1], width=width, height=height
    )
    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)[:, None]
    unit = np.stack(np.broadcast_arrays(np.cos(turns), np.sin(turns)), -1)  # (24, 1, 2)
    sideways = np.sin(angles)[:, None] * unit
    points = np.dstack([sideways, np.broadcast_to(np.cos(angles), sideways.shape[:2])])
    warn_of_misfit(lens, points, radii[:, None] * unit @ affine.T + centre, file)
    return lens
