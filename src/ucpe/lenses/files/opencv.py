"""OpenCV and ROS calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import Section, calibration, write_text
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import UCM, Mei

MATRIX_KEYS = ("camera_matrix", "cameraMatrix", "camera-matrix", "K", "mtx")
DISTORTION_KEYS = ("distortion_coefficients", "distCoeffs", "dist_coeffs", "distortion", "D", "dist")
FISHEYE_NAMES = ("fisheye", "equidistant", "kannala_brandt", "kannala_brandt4")
RATIONAL = "k1 k2 p1 p2 k3 k4 k5 k6"


class OpenCV:
    """`camera_matrix`, `distortion_coefficients`, `image_width`, `image_height`, as OpenCV's samples and ROS write.

    A file with `xi` is `cv2.omnidir`; one with `fisheye_model: 1` or a fisheye `distortion_model` is `cv2.fisheye`;
    any other is a pinhole with Brown-Conrady distortion. OpenCV puts the centre of pixel (0, 0) at (0, 0): half a
    pixel is added to cx and cy when read and taken off when written.
    """

    name = "opencv"
    description = "OpenCV .yml, .yaml or .json, and ROS camera_info (pinhole, fisheye, omnidir)"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return any(key in data for key in MATRIX_KEYS)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file."""
        matrix = content.first(*MATRIX_KEYS)
        fx, skew, cx, zero, fy, cy, *_ = content.numbers(matrix, "fx skew cx 0 fy cy 0 0 1")
        if skew or zero:
            raise content.error(matrix, f"expected no skew, got {skew or zero:g}")
        width, height = _image_size(content)
        scale = {"fx": fx, "fy": fy, "cx": cx + 0.5, "cy": cy + 0.5, "width": width, "height": height}
        key = next((key for key in DISTORTION_KEYS if key in content), "")
        coefficients = content.numbers(key) if key else []
        if "xi" in content:
            return Mei(xi=content.number("xi"), **_named(content, key, coefficients, "k1 k2 p1 p2"), **scale)
        if _is_fisheye(content):
            return KannalaBrandt(**_named(content, key, coefficients, "k1 k2 k3 k4"), **scale)
        return BrownConrady(**_named(content, key, coefficients, RATIONAL), **scale)

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
        write_text(path, storage.releaseAndGetString())


def _image_size(content: Section) -> tuple[int, int]:
    for width, height in (("image_width", "image_height"), ("width", "height"), ("imageWidth", "imageHeight")):
        if width in content:
            return content.whole(width), content.whole(height)
    for key in ("image_size", "imageSize", "img_size", "resolution", "size"):
        if key in content:
            first, second = content.numbers(key, "width height")
            return int(first), int(second)
    raise content.error("image_width", "missing; expected the size in pixels, as image_width and image_height")


def _is_fisheye(content: Section) -> bool:
    if "fisheye_model" in content and content.number("fisheye_model"):
        return True
    named = [content.text(key) for key in ("distortion_model", "camera_model", "model_type") if key in content]
    return any(name.lower() in FISHEYE_NAMES for name in named)


def _named(content: Section, key: str, coefficients: list[float], names: str) -> dict[str, float]:
    known = names.split()
    if any(coefficients[len(known) :]):
        raise content.error(key, f"expected {len(known)} coefficients ({names}) and zeros, got {coefficients}")
    return dict(zip(known, coefficients))
