"""Cameras and calibrations that Metashape (once PhotoScan) exports as XML."""

from __future__ import annotations

from typing import Any

import numpy as np

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import ReadOnly, Section, choose, warn_of_misfit
from ucpe.lenses.fitting import radial_lens
from ucpe.lenses.panoramic import Equirectangular

PLANES: dict[str, Any] = {
    "frame": np.tan,
    "fisheye": lambda angle: angle,
    "equidistant_fisheye": lambda angle: angle,
    "equisolid_fisheye": lambda angle: 2 * np.sin(angle / 2),
}
"""Projection -> radius on the plane, before distortion, of an angle to the axis in radians."""


class Metashape(ReadOnly):
    """`<calibration type="frame">` with f, cx, cy from the image centre, b1, b2, k1 ... k4, p1, p2, in pixels.

    A `<document>` of cameras holds one for each `<sensor>`, which is called by its id; a saved calibration is the root.
    Metashape's p1 is our p2. What no lens of ours has (k4 and b2 of frames, tangential terms of fisheyes, the equisolid
    curve) is fitted, with a warning that says by how much the lens is off. The centre of pixel (0, 0) is at (0.5, 0.5),
    as here. PhotoScan before 1.2 and Agisoft Lens wrote fx, fy and skew, with cx and cy from the image's corner.
    """

    name = "metashape"
    description = "Metashape and PhotoScan .xml (frame, fisheye, equisolid fisheye, spherical)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return any(hasattr(data.get(name), "iter") for name in ("document", "calibration"))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one sensor."""
        root = next(iter(content.data.values()))
        if root.tag == "calibration":
            return _lens(root, root.findtext("projection", "frame"), content)
        sensors = {
            sensor.get("id", ""): sensor
            for sensor in root.iter("sensor")
            if sensor.get("type") == "spherical" or sensor.find("calibration") is not None
        }
        if not sensors:
            raise ValueError(f"{content.file}: expected a <sensor> with a <calibration> in Metashape's <document>")
        sensor = sensors[choose(list(sensors), camera, content.file)]
        calibrations = sorted(sensor.findall("calibration"), key=lambda entry: entry.get("class") == "adjusted")
        kind = sensor.get("type", "frame")
        return _lens(calibrations[-1], kind, content) if kind != "spherical" else Equirectangular()


def _renamed(entry: Section, width: int, height: int) -> Section:
    """PhotoScan's entries before 1.2 (fx, fy, skew, cx and cy from the corner, p1 and p2 as OpenCV's) as today's."""
    values = {key: value for key, value in entry.data.items() if key[0] == "k"}
    values |= {"f": entry.number("fy"), "b1": entry.number("fx") - entry.number("fy"), "b2": entry.number("skew", 0.0)}
    values |= {"cx": entry.number("cx") - width / 2, "cy": entry.number("cy") - height / 2}
    values |= {"p1": entry.number("p2", 0.0), "p2": entry.number("p1", 0.0)}
    return Section(values, entry.file, entry.prefix, entry.size)


def _lens(element: Any, kind: str, content: Section) -> Lens:
    kind = element.get("type", kind)
    if kind == "spherical":
        return Equirectangular()
    size = element.find("resolution")
    values = {child.tag: child.text or "" for child in element} | (dict(size.attrib) if size is not None else {})
    entry = Section(values, content.file, "calibration.", content.size)
    if kind not in PLANES:
        raise entry.error("type", f"expected one of {', '.join(PLANES)}, spherical; got {kind}")
    for name in ("corrections", "p3", "p4"):
        if name in entry and (name == "corrections" or entry.number(name)):
            raise entry.error(name, "expected none: no lens here has such terms; export without them")
    width, height = entry.image_size("width height")
    if "fx" in entry:
        entry = _renamed(entry, width, height)
    focal = entry.number("f")
    if not focal > 0:
        raise entry.error("f", f"expected a positive number, got {focal:g}")
    b1, b2, p1, p2 = (entry.number(name, 0.0) for name in ("b1", "b2", "p1", "p2"))
    centre = np.array([width / 2 + entry.number("cx", 0.0), height / 2 + entry.number("cy", 0.0)])
    powers = [1.0, *(entry.number(f"k{power}", 0.0) for power in range(1, 5))]

    corner = np.hypot(*np.maximum(centre, [width, height] - centre)) / focal
    angles = np.linspace(0, min(np.pi / 2 if kind == "frame" else np.pi, 4 * corner), 2000)[1:-1]
    radius = PLANES[kind](angles)
    bent = radius * np.polynomial.polynomial.polyval(radius**2, powers)
    kept = np.logical_and.accumulate((np.diff(bent, prepend=0) > 0) & (bent < corner))
    angles, radius, bent = angles[kept], radius[kept], bent[kept]
    lens = radial_lens(
        angles,
        bent,
        kind == "frame",
        fx=focal + b1,
        fy=focal,
        cx=centre[0],
        cy=centre[1],
        width=width,
        height=height,
        **({"p1": p2, "p2": p1} if kind == "frame" else {}),
    )

    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)[:, None]
    unit = np.stack([np.cos(turns), np.sin(turns)])  # (2, 24, 1)
    x, y = radius * unit
    x_bent = bent * unit[0] + p1 * (radius**2 + 2 * x**2) + 2 * p2 * x * y
    y_bent = bent * unit[1] + p2 * (radius**2 + 2 * y**2) + 2 * p1 * x * y
    meant = np.stack([x_bent * (focal + b1) + y_bent * b2, y_bent * focal], -1) + centre
    points = np.stack(np.broadcast_arrays(*np.sin(angles) * unit, np.cos(angles)), -1)
    warn_of_misfit(lens, points, meant, content.file)
    return lens
