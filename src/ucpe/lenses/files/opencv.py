"""OpenCV and ROS calibrations."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from ucpe.files import write_file
from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import Section, calibration, choose, flat_numbers, is_word_list
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import UCM, Mei

MATRICES = (
    "cameramatrix",
    "intrinsicmatrix",
    "cameraintrinsic",
    "cameraintrinsics",
    "intrinsics",
    "intrinsic",
    "mtx",
    "k",
    "m",
)
PROJECTIONS = ("projectionmatrix", "p")
SCALARS = ("fx fy cx cy", "fx fy ppx ppy", "fx fy u0 v0")
DISTORTIONS = (
    "distortioncoefficients",
    "distortioncoeffs",
    "distcoeffs",
    "cameradistcoeffs",
    "distcoeff",
    "distcoefs",
    "distortion",
    "dist",
    "coeffs",
    "d",
)
SIDES = ("", "0", "1", "2", "3", "00", "01", "02", "03", "l", "r", "left", "right")
"""Spellings of keys, without case and punctuation: `Camera_Matrix`, `M1`, `left_camera_matrix`, `dist_coeffs`."""

FISHEYE_NAMES = (
    "fisheye", "equidistant", "kannalabrandt", "kannalabrandt4", "kannalabrandt8", "kb4", "kb8", "opencvfisheye",
)  # fmt: skip
STRAIGHT_NAMES = (
    "plumbbob", "rationalpolynomial", "radtan", "radialtangential", "brown", "brownconrady", "modifiedbrownconrady",
    "inversebrownconrady", "opencv", "fullopencv", "pinhole", "perspective", "none", "standard", "radial", "",
)  # fmt: skip
RATIONAL = "k1 k2 p1 p2 k3 k4 k5 k6"


class OpenCV:
    """`camera_matrix`, `distortion_coefficients`, `image_width`, `image_height`, as OpenCV's samples and ROS write.

    Also YAML, JSON and XML with other spellings (`Camera_Matrix`, `K`, `mtx`), stereo files (`M1`, `D1`, `M2`, `D2`;
    cameras are called by their matrices) and files with a mapping per camera. A file with `xi` is `cv2.omnidir`; one
    with `fisheye: true`, `fisheye_model: 1` or a fisheye `distortion_model` is `cv2.fisheye`; any other is a pinhole
    with Brown-Conrady distortion. Plain numbers (`fx`, `fy`, `cx`, `cy`, `k1`, ...) and KITTI's calib.txt (`P0` ...,
    `K_02` with `D_02`, `S_02`) are read too. OpenCV puts the centre of pixel (0, 0) at (0, 0): half a pixel is added to
    cx and cy when read and taken off when written. A matrix with cx and cy in its last row, and one beside
    `RadialDistortion`, is MATLAB's, with that centre at (1, 1) and rows before columns.
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
        side, inside = cameras[chosen] if chosen else next(iter(cameras.values()))
        if not inside:
            return lens_of_section(content, side)
        shared = {name: value for name, value in content.data.items() if not isinstance(value, dict)}
        inner = content
        for name in inside:
            inner = inner.section(name)
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
    fx, fy, cx, cy, matlab = _scale(content, side, spelled)
    width, height = _image_size(content, matlab, side)
    scale = {"fx": fx, "fy": fy, "cx": cx + 0.5, "cy": cy + 0.5, "width": width, "height": height}
    key = _sides(content.data, DISTORTIONS).get(side, "")
    coefficients = content.numbers(key) if key else [content.number(name, 0.0) for name in RATIONAL.split()]
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
    fisheye = _is_fisheye(content)
    if fisheye:
        coefficients = coefficients if key else [content.number(f"k{i}", 0.0) for i in range(1, 5)]
        return KannalaBrandt(**_named(content, key, coefficients, "k1 k2 k3 k4"), **scale)
    if fisheye is None and key and len(coefficients) == 4 and any(coefficients):
        warnings.warn(
            f"{content.file}: nothing says what the four numbers of {content.prefix}{key} are: taken as k1 k2 p1 p2 "
            "(add fisheye: true if cv2.fisheye found them)"
        )
    return BrownConrady(**_named(content, key, coefficients, RATIONAL), **scale)


def _scale(content: Section, side: str, spelled: dict[str, str]) -> tuple[float, float, float, float, bool]:
    """fx, fy, cx and cy, where the centre of pixel (0, 0) is (0, 0), and whether they are MATLAB's."""
    plain = next((names for names in SCALARS if all(name in spelled for name in names.split())), None)
    matrix = _sides(content.data, MATRICES).get(side) or spelled.get("cameramatrix")
    matrix = matrix or _sides(content.data, PROJECTIONS).get(side)
    if matrix is None and plain is not None:
        fx, fy, cx, cy = (content.number(spelled[name]) for name in plain.split())
        return fx, fy, cx, cy, False
    matrix = matrix or "camera_matrix"
    values = content.numbers(matrix, "fx skew cx 0 fy cy 0 0 1" if len(content.numbers(matrix)) < 12 else None)
    if len(values) in (12, 16):  # three or four columns more than K
        values = [value for row in range(3) for value in values[4 * row : 4 * row + 3]]
    fx, skew, cx, zero, fy, cy, x, y, _ = values
    transposed = not cx and not cy and bool(x or y)
    if transposed:
        skew, cx, cy, zero = zero, x, y, skew
    if abs(skew or zero) > 1e-9 * abs(fx):
        raise content.error(matrix, f"expected no skew, got {skew or zero:g}")
    matlab = transposed or "radialdistortion" in spelled
    return fx, fy, cx - matlab, cy - matlab, matlab


def _plain(key: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(key).lower())


def _spelled(data: dict[str, Any]) -> dict[str, str]:
    return {_plain(key): key for key in data}


def _sides(data: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """The keys that spell one of the names, by what they add to it: {"": "K"} or {"1": "M1", "2": "M2"}."""
    found: dict[str, str] = {}
    for plain, key in _spelled(data).items():
        count = len(flat_numbers(data[key]) or [])
        if (names is MATRICES and count not in (9, 12, 16)) or (names is PROJECTIONS and count != 12):
            continue
        for name in names:
            side = next((side for side in SIDES if plain in (name + side, side + name)), None)
            if side is not None:
                found.setdefault(side, key)
    return found


def _cameras(data: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Cameras by name: what each adds to its keys, and the keys of the mappings it is in."""
    sides = _sides(data, MATRICES) or _sides(data, PROJECTIONS)
    found: dict[str, tuple[str, tuple[str, ...]]] = {key: (side, ()) for side, key in sides.items()}
    if found or any(_plain(key) in ("cameramatrix", "intrinsicmatrix") for key in data):
        return found or {"camera_matrix": ("", ())}
    if _has_scalars(data):
        return {"camera": ("", ())}
    for name, entry in data.items():
        inner = _cameras(entry) if isinstance(entry, dict) else {}
        beside = [camera for camera, (_, inside) in inner.items() if not inside]
        for camera, (side, inside) in inner.items():
            if camera in beside[1:]:
                continue  # the first matrix of a camera's mapping is its own
            found[name if camera in beside or len(inner) == 1 else f"{name}.{camera}"] = (side, (name, *inside))
    return found


def _has_scalars(data: dict[str, Any]) -> bool:
    spelled = _spelled(data)
    return any(all(name in spelled for name in names.split()) for names in SCALARS) and not is_word_list(data)


def _image_size(content: Section, matlab: bool, side: str) -> tuple[int, int]:
    spelled = _spelled(content.data)
    pairs = ("imagewidth imageheight", "width height", "imgwidth imgheight", "cols rows", "w h")
    for across, down in (pair.split() for pair in pairs):
        if across in spelled and down in spelled:
            return content.image_size(f"{spelled[across]} {spelled[down]}")
    for plain in ("imagesize", "imgsize", "resolution", "size", "imageshape", "dim", f"s{side}"):
        if plain in spelled:
            width, height = content.image_size(spelled[plain])
            rows_first = matlab or plain == "imageshape"
            return (height, width) if rows_first else (width, height)
    return content.image_size("image_width image_height")


def _is_fisheye(content: Section) -> bool | None:
    """Whether a file says that its distortion is a fisheye's, or None if it does not say what it is."""
    spelled = _spelled(content.data)
    if any(content.flag(spelled[name]) for name in ("fisheye", "fisheyemodel", "isfisheye") if name in spelled):
        return True
    keys = ("distortionmodel", "distortiontype", "cameramodel", "modeltype", "model", "cameratype", "projection")
    named = {key: content.data[spelled[key]] for key in keys if key in spelled}
    names = {key: _plain(name) for key, name in named.items() if isinstance(name, str)}
    for key, name in names.items():
        if key.startswith("distortion") and name not in (*FISHEYE_NAMES, *STRAIGHT_NAMES):
            raise content.error(
                spelled[key], f"expected plumb_bob, rational_polynomial or equidistant; got {named[key]}"
            )
    if any(name in FISHEYE_NAMES for name in names.values()):
        return True
    return False if any(name in STRAIGHT_NAMES for name in names.values()) else None


def _named(content: Section, key: str, coefficients: list[float], names: str) -> dict[str, float]:
    known = names.split()
    if any(coefficients[len(known) :]):
        raise content.error(key, f"expected {len(known)} coefficients ({names}) and zeros, got {coefficients}")
    return dict(zip(known, coefficients))
