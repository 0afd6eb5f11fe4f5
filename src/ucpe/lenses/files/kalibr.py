"""Kalibr camera chains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ucpe.files import write_file
from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import Section, calibration, choose
from ucpe.lenses.fisheye import FieldOfView, KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import EUCM, UCM, DoubleSphere, Mei

MODELS: dict[tuple[str, str], tuple[Any, str, str]] = {
    ("pinhole", "none"): (Pinhole, "fx fy cx cy", ""),
    ("pinhole", "radtan"): (BrownConrady, "fx fy cx cy", "k1 k2 p1 p2"),
    ("pinhole", "equidistant"): (KannalaBrandt, "fx fy cx cy", "k1 k2 k3 k4"),
    ("pinhole", "fov"): (FieldOfView.from_omega, "fx fy cx cy", "omega"),
    ("omni", "none"): (UCM, "xi fx fy cx cy", ""),
    ("omni", "radtan"): (Mei, "xi fx fy cx cy", "k1 k2 p1 p2"),
    ("eucm", "none"): (EUCM, "alpha beta fx fy cx cy", ""),
    ("ds", "none"): (DoubleSphere, "xi alpha fx fy cx cy", ""),
}
"""Camera model and distortion model -> our lens, its intrinsics in file order, its distortion coefficients."""

RADTAN = {"plumbbob": "radtan", "radialtangential": "radtan"}
"""Other names of the distortion, as other tools write them into a chain."""


class Kalibr:
    """`camchain.yaml`: one entry per camera (cam0, cam1, ...).

    Kalibr puts the centre of pixel (0, 0) at (0, 0): half a pixel is added to cx and cy when read and taken off
    when written.
    """

    name = "kalibr"
    description = "Kalibr camchain.yaml (pinhole, omni, eucm, ds; radtan, equidistant, fov or none)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return any(isinstance(entry, dict) and "intrinsics" in entry for entry in data.values())

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera of the chain."""
        cameras = [key for key, entry in content.data.items() if isinstance(entry, dict) and "intrinsics" in entry]
        return lens_of_camera(content.section(choose(cameras, camera, content.file)))

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Write a lens as a chain of one camera."""
        for (camera, distortion), (constructor, intrinsics, coefficients) in MODELS.items():
            if type(lens) is not constructor:
                continue
            values = calibration(lens, height, width)
            unkept = [name for name in values if name not in (*intrinsics.split(), *coefficients.split())]
            if any(values[name] for name in unkept):
                raise ValueError(f"Kalibr's {camera} + {distortion} has no {', '.join(unkept)}, which this lens needs")
            values |= {"cx": values["cx"] - 0.5, "cy": values["cy"] - 0.5}
            entry = {
                "camera_model": camera,
                "intrinsics": [values[name] for name in intrinsics.split()],
                "distortion_model": distortion,
                "distortion_coeffs": [values[name] for name in coefficients.split()],
                "resolution": [width, height],
            }
            return write_file(path, yaml.safe_dump({"cam0": entry}, sort_keys=False))
        known = ", ".join(
            sorted({constructor.kind for constructor, _, _ in MODELS.values() if hasattr(constructor, "kind")})
        )
        raise ValueError(f"Kalibr has no {lens.kind}; it has {known}: fit the lens to one of them first")


def lens_of_camera(entry: Section) -> Lens:
    """The lens that an entry of a chain describes."""
    distortion = entry.text("distortion_model").lower() if "distortion_model" in entry else "none"
    model = (entry.text("camera_model").lower(), RADTAN.get(re.sub("[-_ ]", "", distortion), distortion))
    if model not in MODELS:
        known = ", ".join(f"{camera} + {distortion}" for camera, distortion in MODELS)
        raise entry.error("camera_model", f"expected one of {known}; got {model[0]} + {model[1]}")
    constructor, intrinsics, distortion = MODELS[model]
    width, height = entry.image_size("resolution", "image_width image_height")
    values = dict(zip(intrinsics.split(), entry.numbers("intrinsics", intrinsics)))
    if distortion:
        key = entry.first("distortion_coeffs", "distortion_coefficients")
        if constructor is BrownConrady and len(entry.numbers(key)) == 5:
            distortion += " k3"
        values |= dict(zip(distortion.split(), entry.numbers(key, distortion)))
    values |= {"cx": values["cx"] + 0.5, "cy": values["cy"] + 0.5}
    return constructor(**values, width=width, height=height)
