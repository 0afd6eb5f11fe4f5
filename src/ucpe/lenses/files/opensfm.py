"""Cameras of OpenSfM, as OpenDroneMap and Mapillary's tools hold them."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.panoramic import Equirectangular
from ucpe.lenses.pinhole import BrownConrady

MODELS: dict[str, tuple[Any, str]] = {
    "perspective": (BrownConrady, "k1 k2"),
    "simple_radial": (BrownConrady, "k1"),
    "radial": (BrownConrady, "k1 k2"),
    "brown": (BrownConrady, "k1 k2 p1 p2 k3"),
    "fisheye": (KannalaBrandt, "k1 k2"),
    "fisheye_opencv": (KannalaBrandt, "k1 k2 k3 k4"),
    "spherical": (Equirectangular, ""),
    "equirectangular": (Equirectangular, ""),
}
"""Projection type -> our lens and its distortion."""


class OpenSfM(ReadOnly):
    """`camera_models.json`: `projection_type`, `width`, `height`, `focal` by camera; also a reconstruction's `cameras`.

    Focal lengths and `c_x`, `c_y`, which count from the image centre, are shares of the longer side.
    """

    name = "opensfm"
    description = "OpenSfM camera_models.json and reconstruction.json"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return bool(_cameras(data))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        cameras = _cameras(content.data)
        chosen = choose(list(cameras), camera, content.file)
        return lens_of_camera(Section(cameras[chosen], content.file, f"{chosen}.", content.size))


def _cameras(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    inner = data.get("cameras", data)
    entries = inner.items() if isinstance(inner, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) and "projection_type" in entry}


def lens_of_camera(entry: Section) -> Lens:
    """The lens that an entry of `cameras` describes."""
    constructor, names = MODELS[entry.one_of("projection_type", MODELS, usual="perspective")]
    if constructor is Equirectangular:
        return Equirectangular()
    width, height = entry.image_size("width height")
    longer = max(width, height)
    focal = entry.number(entry.first("focal_x", "focal"))
    return constructor(
        fx=focal * longer,
        fy=entry.number("focal_y", focal) * longer,
        cx=width / 2 + entry.number("c_x", 0.0) * longer,
        cy=height / 2 + entry.number("c_y", 0.0) * longer,
        width=width,
        height=height,
        **entry.coefficients(names),
    )
