"""A calibration used for images of another shape: cut, squeezed or extended."""

from __future__ import annotations

from typing import Literal

from ucpe.lenses.base import Lens, check_size
from ucpe.lenses.planar import PlanarLens

Fit = Literal["crop", "squeeze", "pad"]

SAME_ASPECT = 0.002
"""Relative difference between two aspects that rounding to whole pixels can make."""


def fit_image(lens: Lens, height: int, width: int, fit: Fit = "crop") -> tuple[Lens, str]:
    """A calibrated lens for images of height x width, and a sentence on what was done, empty if nothing was.

    `crop` cuts the calibration's image to the new aspect, `pad` extends it, both about its centre; `squeeze` keeps
    all of it and makes pixels that are not square.
    """
    height, width = check_size(height, width)
    if not isinstance(lens, PlanarLens) or "width" not in lens.settings:
        return lens, ""
    own_width, own_height = lens.settings["width"], lens.settings["height"]
    aspect, own_aspect = width / height, own_width / own_height
    if abs(aspect / own_aspect - 1) < SAME_ASPECT:
        return lens, ""
    shapes = f"a calibration of {own_width} x {own_height} for images of {width} x {height}"
    if fit == "squeeze":
        return lens, f"{shapes}: it is squeezed by {own_aspect / aspect:.3g}"
    wider = aspect > own_aspect
    if wider == (fit == "crop"):
        new_width, new_height = own_width, max(round(own_width / aspect), 1)
        change, edges = abs(own_height - new_height), f"of its {own_height} rows, half at the top and half below"
    else:
        new_width, new_height = max(round(own_height * aspect), 1), own_height
        change, edges = abs(own_width - new_width), f"of its {own_width} columns, half on either side"
    left, top = (own_width - new_width) / 2, (own_height - new_height) / 2
    window = lens.cropped(left, top, new_height, new_width, height=own_height, width=own_width)
    done = f"{change} {edges}, are cut" if fit == "crop" else f"{change} are added to {edges[3:]}"
    return window, f"{shapes}: {done}"
