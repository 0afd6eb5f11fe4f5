"""Camera rigs of OKVIS, SVO and maplab."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose
from ucpe.lenses.fisheye import FieldOfView, KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole

MODELS: dict[str, tuple[Any, str]] = {
    "none": (Pinhole, ""),
    "radialtangential": (BrownConrady, "k1 k2 p1 p2"),
    "plumb_bob": (BrownConrady, "k1 k2 p1 p2"),
    "radialtangential8": (BrownConrady, "k1 k2 p1 p2 k3 k4 k5 k6"),
    "fisheye": (FieldOfView.from_omega, "omega"),
    "equidistant": (KannalaBrandt, "k1 k2 k3 k4"),
}
"""Distortion -> our lens and its coefficients in file order, with dashes left out."""


class Aslam(ReadOnly):
    """A list `cameras`, called cam0, cam1, ...; or one camera of such a list alone.

    OKVIS: `image_dimension`, `focal_length`, `principal_point`, `distortion_type`, `distortion_coefficients`. SVO and
    maplab: `camera` with `type: pinhole`, `intrinsics` fu fv cu cv, `distortion` {type, parameters}, `image_width`.
    The centre of pixel (0, 0) is at (0, 0): half a pixel is added to cx and cy.
    """

    name = "aslam"
    description = "OKVIS, SVO and maplab .yaml (pinhole + radial-tangential, equidistant, SVO's fisheye or none)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return bool(_cameras(data))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        cameras = _cameras(content.data)
        chosen = choose(list(cameras), camera, content.file)
        entry = Section(cameras[chosen], content.file, f"{chosen}.", content.size)
        if "focal_length" in entry:
            distortion, key = entry.text("distortion_type"), "distortion_coefficients"
            values = [*entry.numbers("focal_length", "fx fy"), *entry.numbers("principal_point", "cx cy")]
            where = entry
        else:
            if entry.text("type") != "pinhole":
                raise entry.error("type", f"expected pinhole, got {entry.text('type')}")
            where, key = entry.section("distortion"), "parameters"
            distortion, values = where.text("type"), entry.numbers("intrinsics", "fu fv cu cv")
        plain = distortion.lower().replace("-", "")
        if plain not in MODELS:
            raise entry.error("distortion", f"expected one of {', '.join(MODELS)}; got {distortion}")
        constructor, names = MODELS[plain]
        width, height = entry.image_size("image_dimension", "image_width image_height")
        scale = dict(zip(("fx", "fy", "cx", "cy"), (values[0], values[1], values[2] + 0.5, values[3] + 0.5)))
        coefficients = dict(zip(names.split(), where.numbers(key, names))) if names else {}
        return constructor(**scale, **coefficients, width=width, height=height)


def _cameras(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listed = data.get("cameras", [data])
    rig = listed if isinstance(listed, list) else []
    entries = [entry.get("camera", entry) for entry in rig if isinstance(entry, dict)]
    return {f"cam{index}": entry for index, entry in enumerate(entries) if isinstance(entry, dict) and _is_one(entry)}


def _is_one(entry: dict[str, Any]) -> bool:
    """Whether a mapping describes a camera in OKVIS's way, or in SVO's."""
    svo = isinstance(entry.get("distortion"), dict) and "type" in entry and "intrinsics" in entry
    return svo or all(key in entry for key in ("focal_length", "principal_point", "distortion_type"))
