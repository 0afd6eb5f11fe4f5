"""OpenCV and ROS calibrations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ucpe.files import write_file
from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import Section, calibration, flat_numbers
from ucpe.lenses.files.kalibr import choose
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import UCM, Mei

MATRICES = ("cameramatrix", "intrinsicmatrix", "intrinsics", "intrinsic", "mtx", "k", "m")
DISTORTIONS = (
    "distortioncoefficients",
    "distortioncoeffs",
    "distcoeffs",
    "distcoeff",
    "distcoefs",
    "distortion",
    "dist",
    "d",
)
SIDES = ("", "0", "1", "2", "l", "r", "left", "right")
"""Spellings of keys, without case and punctuation: `Camera_Matrix`, `M1`, `left_camera_matrix`, `dist_coeffs`."""

FISHEYE_NAMES = ("fisheye", "equidistant", "kannala_brandt", "kannala_brandt4", "kannalabrandt", "opencv_fisheye")
RATIONAL = "k1 k2 p1 p2 k3 k4 k5 k6"


class OpenCV:
    """`camera_matrix`, `distortion_coefficients`, `image_width`, `image_height`, as OpenCV's samples and ROS write.

    Also YAML, JSON and XML with other spellings (`Camera_Matrix`, `K`, `mtx`), stereo files (`M1`, `D1`, `M2`, `D2`;
    cameras are called by their matrices) and files with a mapping per camera. A file with `xi` is `cv2.omnidir`; one
    with `fisheye: true`, `fisheye_model: 1` or a fisheye `distortion_model` is `cv2.fisheye`; any other is a pinhole
    with Brown-Conrady distortion. OpenCV puts the centre of pixel (0, 0) at (0, 0): half a pixel is added to cx and cy
    when read and taken off when written. A matrix with cx and cy in its last row is MATLAB's, transposed and with that
    centre at (1, 1).
    """

    name = "opencv"
    description = "OpenCV .yml, .xml or .json, ROS camera_info and rostopic echo (pinhole, fisheye, omnidir, stereo)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return bool(_cameras(data))

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of one camera."""
        cameras = _cameras(content.data)
        chosen = choose(list(cameras), camera, content.file) if len(cameras) > 1 or camera is not None else ""
        side, key = cameras[chosen] if chosen else next(iter(cameras.values()))
        if not key:
            return lens_of_section(content, side)
        shared = {name: value for name, value in content.data.items() if not isinstance(value, dict)}
        inner = content.section(key)
        return lens_of_section(Section({**shared, **inner.data}, inner.file, inner.prefix, inner.size), side)

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Write a pinhole, Brown-Conrady, Kannala-Brandt, UCM or Mei lens as OpenCV's FileStorage would."""
        if not isinstance(lens, Pinhole | BrownConrady | KannalaBrandt | UCM | Mei):
            raise ValueError(f"OpenCV has no {lens.kind}: fit the lens to kannala_brandt or mei first")
        import cv2
        import numpy as np

        values = calibration(lens, height, width)
        fx, fy, cx, cy = (values[name] for name in ("fx", "fy", "cx", "cy"))
        fisheye = isinstance(lens, KannalaBrandt)
        names = "k1 k2 k3 k4" if fisheye else "k1 k2 p1 p2" if "xi" in values else RATIONAL
        kind = cv2.FILE_STORAGE_FORMAT_JSON if path.suffix.lower() == ".json" else cv2.FILE_STORAGE_FORMAT_YAML
        storage = cv2.FileStorage(path.suffix, cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | kind)
        storage.write("image_width", width)
        storage.write("image_height", height)
        storage.write("camera_matrix", np.array([[fx, 0, cx - 0.5], [0, fy, cy - 0.5], [0, 0, 1]]))
        storage.write("distortion_coefficients", np.array([[values.get(name, 0.0) for name in names.split()]]))
        if fisheye:
            storage.write("fisheye_model", 1)
        if "xi" in values:
            storage.write("xi", values["xi"])
        write_file(path, storage.releaseAndGetString())


def lens_of_section(content: Section, side: str = "") -> Lens:
    """The lens that a mapping describes; `side` is what a stereo file adds to its keys ("1", "left")."""
    spelled = _spelled(content.data)
    matrix = _sides(content.data, MATRICES).get(side) or spelled.get("cameramatrix", "camera_matrix")
    fx, skew, cx, zero, fy, cy, x, y, _ = content.numbers(matrix, "fx skew cx 0 fy cy 0 0 1")
    matlab = not cx and not cy and bool(x or y)
    if matlab:
        skew, cx, cy, zero = zero, x - 1, y - 1, skew
    if abs(skew or zero) > 1e-9 * abs(fx):
        raise content.error(matrix, f"expected no skew, got {skew or zero:g}")
    width, height = _image_size(content, matlab)
    scale = {"fx": fx, "fy": fy, "cx": cx + 0.5, "cy": cy + 0.5, "width": width, "height": height}
    key = _sides(content.data, DISTORTIONS).get(side, "")
    coefficients = content.numbers(key) if key else []
    if "radialdistortion" in spelled:  # MATLAB
        key = spelled["radialdistortion"]
        tangential = (
            content.numbers(spelled["tangentialdistortion"]) if "tangentialdistortion" in spelled else [0.0, 0.0]
        )
        radial = [*content.numbers(key), 0.0, 0.0]
        coefficients = [*radial[:2], *tangential, *radial[2:-1]]
    if "xi" in spelled:
        xi = content.number(spelled["xi"])
        return Mei(xi=xi, **_named(content, key, coefficients, "k1 k2 p1 p2"), **scale)
    if _is_fisheye(content):
        return KannalaBrandt(**_named(content, key, coefficients, "k1 k2 k3 k4"), **scale)
    return BrownConrady(**_named(content, key, coefficients, RATIONAL), **scale)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _spelled(data: dict[str, Any]) -> dict[str, str]:
    return {_plain(key): key for key in data}


def _sides(data: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """The keys that spell one of the names, by what they add to it: {"": "K"} or {"1": "M1", "2": "M2"}."""
    found: dict[str, str] = {}
    for plain, key in _spelled(data).items():
        if names is MATRICES and len(flat_numbers(data[key]) or []) != 9:
            continue
        for name in names:
            side = next((side for side in SIDES if plain in (name + side, side + name)), None)
            if side is not None:
                found.setdefault(side, key)
    return found


def _cameras(data: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Cameras by name: what each adds to its keys, and the key of the mapping it is in, if it is in one."""
    found = {key: (side, "") for side, key in _sides(data, MATRICES).items()}
    if found or any(_plain(key) in ("cameramatrix", "intrinsicmatrix") for key in data):
        return found or {"camera_matrix": ("", "")}
    return {
        name: (side, name)
        for name, entry in data.items()
        if isinstance(entry, dict)
        for side in list(_sides(entry, MATRICES))[:1]
    }


def _image_size(content: Section, matlab: bool) -> tuple[int, int]:
    spelled = _spelled(content.data)
    pairs = ("imagewidth imageheight", "width height", "imgwidth imgheight", "cols rows", "w h")
    for across, down in (pair.split() for pair in pairs):
        if across in spelled and down in spelled:
            return content.image_size(f"{spelled[across]} {spelled[down]}")
    for plain in ("imagesize", "imgsize", "resolution", "size", "imageshape"):
        if plain in spelled:
            width, height = content.image_size(spelled[plain])
            rows_first = matlab or plain == "imageshape"
            return (height, width) if rows_first else (width, height)
    return content.image_size("image_width image_height")


def _is_fisheye(content: Section) -> bool:
    spelled = _spelled(content.data)
    if any(content.flag(spelled[name]) for name in ("fisheye", "fisheyemodel", "isfisheye") if name in spelled):
        return True
    keys = ("distortionmodel", "cameramodel", "modeltype", "model", "distortiontype", "cameratype", "projection")
    named = [content.data[spelled[key]] for key in keys if key in spelled]
    return any(isinstance(name, str) and name.lower() in FISHEYE_NAMES for name in named)


def _named(content: Section, key: str, coefficients: list[float], names: str) -> dict[str, float]:
    known = names.split()
    if any(coefficients[len(known) :]):
        raise content.error(key, f"expected {len(known)} coefficients ({names}) and zeros, got {coefficients}")
    return dict(zip(known, coefficients))
