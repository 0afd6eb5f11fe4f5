"""Lenses by camera and lens name, from the Lensfun database: "GoPro HERO4", "Canon EF 24-70mm f/2.8L II USM@35"."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ucpe.lenses.base import Lens
from ucpe.lenses.fitting import radial_lens

PREFIX = "lensfun:"
FULL_FRAME = math.hypot(36, 24)
"""Diagonal in millimetres of a sensor with a crop factor of 1."""

USUAL_SIZE = (1920, 1280)
"""Width and height in pixels where none is given; Lensfun's lenses are measured on images of 3:2."""


def lensfun_lens(name: str, size: tuple[int, int] | None = None) -> Lens:
    """The lens of a camera or lens by name, with "@MILLIMETRES" after that of a zoom, for images (width, height).

    Rectilinear lenses become Brown-Conrady, fisheyes Kannala-Brandt, fitted to Lensfun's own correction.
    """
    try:
        import lensfunpy
    except ImportError:
        raise ValueError("Lensfun's database needs lensfunpy: pip install 'ucpe[lensfun]'") from None
    name, _, focal = name.partition("@")
    lens, crop = _find(lensfunpy.Database(), name.strip())
    millimetres = _focal_length(lens, focal)
    width, height = size or USUAL_SIZE
    if size is None:
        warnings.warn(
            f"{PREFIX}{name} does not say its image size: taken as {width} x {height} (--lens-size WIDTHxHEIGHT)"
        )
    angles, radii = _samples(lensfunpy, lens, crop, millimetres, width, height)
    straight = lens.type == lensfunpy.LensType.RECTILINEAR
    try:
        return radial_lens(angles, radii, straight, 1.0, 1.0, cx=width / 2, cy=height / 2, width=width, height=height)
    except ValueError as error:
        raise ValueError(f"{PREFIX}{name}: {error}") from None


def _find(database: Any, name: str) -> tuple[Any, float]:
    """The lens of a camera, or of this name, and the crop factor."""
    cameras = _named(database.cameras, name)
    lenses = _named(database.lenses, name)
    if len(lenses) == 1 and (len(cameras) != 1 or _full_name(lenses[0]) == name.lower()):
        return lenses[0], lenses[0].crop_factor
    if len(cameras) == 1:
        fitting = database.find_lenses(cameras[0])
        if len(fitting) == 1:
            return fitting[0], cameras[0].crop_factor
        raise ValueError(f"{PREFIX}{name} takes {len(fitting)} lenses; name the lens, such as {_listed(fitting)}")
    if not cameras and not lenses:
        raise ValueError(f"{PREFIX}{name}: no camera and no lens of that name in Lensfun's database")
    raise ValueError(f"{PREFIX}{name} may be several: {_listed([*cameras, *lenses])}")


def _named(entries: Any, name: str) -> list[Any]:
    """The entries called so, or else those with all words of the name in theirs."""
    words = name.lower().split()
    exact = [entry for entry in entries if _full_name(entry) == " ".join(words)]
    return exact or [entry for entry in entries if words and all(word in _full_name(entry) for word in words)]


def _full_name(entry: Any) -> str:
    maker, model = entry.maker.lower(), entry.model.lower()
    return model if model.startswith(maker) else f"{maker} {model}"


def _listed(entries: list[Any]) -> str:
    names = list(dict.fromkeys(_full_name(entry) for entry in entries))
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _focal_length(lens: Any, text: str) -> float:
    low, high = float(lens.min_focal), float(lens.max_focal)
    if not text and low == high:
        return low
    try:
        millimetres = float(text)
    except ValueError:
        millimetres = math.nan
    if not low <= millimetres <= high:
        raise ValueError(f"{PREFIX}{_full_name(lens)} needs its focal length, {low:g} to {high:g}: NAME@MILLIMETRES")
    return millimetres


def _samples(
    lensfunpy: Any, lens: Any, crop: float, millimetres: float, width: int, height: int
) -> tuple[np.ndarray, np.ndarray]:
    """Angles to the axis in radians, and the pixel radii at which the lens shows them, out to the corners."""
    modifier = lensfunpy.Modifier(lens, crop, width, height)
    flags = lensfunpy.ModifyFlags.GEOMETRY | lensfunpy.ModifyFlags.DISTORTION
    modifier.initialize(millimetres, 4.0, 1000.0, 1.0, lensfunpy.LensType.FISHEYE, np.uint8, flags)
    shown = np.asarray(modifier.apply_geometry_distortion(), np.float64)
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    steps = np.linspace(0, 1, 200)[1:, None] * centre
    places = np.round(centre - steps).astype(int)
    angles = np.linalg.norm(places - centre, axis=1) / (millimetres * crop / FULL_FRAME * math.hypot(width, height))
    radii = np.linalg.norm(shown[places[:, 1], places[:, 0]] - centre, axis=1)
    kept = np.isfinite(radii) & (radii <= np.linalg.norm(centre)) & (angles < math.radians(89))
    kept &= np.cumprod(np.diff(radii, prepend=0) > -0.5).astype(bool)
    return angles[kept], radii[kept]
