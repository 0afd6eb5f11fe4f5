"""Dense optical flow on the sphere: for each pixel of a panorama, where another panorama shows the same thing.

A planar method sees the panorama twice, with its borders wrapped around: upright for the belt around the equator, and
turned by a right angle for the polar caps, which are torn apart in the upright one.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PADDING = 1 / 8
"""Share of the width that is repeated beyond the left and the right border."""

BELT = np.pi / 4
"""Largest latitude in radians at which the upright panorama is used."""

POLES_TO_EQUATOR = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
"""Turns up to the front and down to the back, so that both poles lie on the equator."""


SphereFlow = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Dense flow between two equirectangular panoramas (H, W, 3) uint8: unit directions (H, W, 3) float32 at which the
second shows what each pixel of the first shows."""


class WrappedFlow(ABC):
    """Flow on the sphere from flow on the plane."""

    @abstractmethod
    def plane(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 2) by which each pixel moves right and down, between pictures (h, w, 3) uint8."""

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Unit directions (H, W, 3) float32 at which the second shows what each pixel of the first shows."""
        height, width = first.shape[:2]
        directions = sphere_directions(height, width)
        upright = self._flow(first, second)
        turned = self._flow(turn_panorama(first, POLES_TO_EQUATOR), turn_panorama(second, POLES_TO_EQUATOR))
        turned = sample_panorama(turned, directions @ POLES_TO_EQUATOR.T.astype(np.float32)) @ POLES_TO_EQUATOR
        belt = np.abs(directions[..., 1:2]) <= np.sin(BELT)
        return normalise(np.where(belt, upright, turned).astype(np.float32))

    def _flow(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Directions (H, W, 3) from the planar flow in one orientation."""
        height, width = first.shape[:2]
        pad = round(PADDING * width)
        wide = [np.pad(picture, ((0, 0), (pad, pad), (0, 0)), mode="wrap") for picture in (first, second)]
        flow = self.plane(*wide)[:, pad : pad + width]
        columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
        return directions_of_pixels(columns + flow[..., 0], rows + flow[..., 1], height, width)


class DISFlow(WrappedFlow):
    """OpenCV's dense inverse search; no download, about as good as classical flow gets."""

    def __init__(self) -> None:
        import cv2

        self.method = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)  # type: ignore[attr-defined]
        self.method.setFinestScale(0)  # at half the size, its default, flow comes out 2 % short

    def plane(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 2) by which each pixel moves right and down, between pictures (h, w, 3) uint8."""
        import cv2

        grey = [cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) for picture in (first, second)]
        return self.method.calc(*grey, None)  # type: ignore[call-overload]


class NetworkFlow(WrappedFlow):
    """A flow network such as PanoFlow or RAFT, exported to an ONNX file.

    Its two inputs are pictures (1, 3, h, w) float32, RGB from 0 to 255, with sides that are multiples of 8; its last
    output is the flow (1, 2, h, w) in pixels.
    """

    def __init__(self, path: str | Path):
        try:
            import onnxruntime
        except ImportError:
            raise ValueError("a flow network needs ONNX Runtime: pip install onnxruntime") from None
        if not Path(path).is_file():
            raise FileNotFoundError(f"no flow network {path}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ValueError(f"{path}: ONNX Runtime cannot load this network: {error}") from None
        self.path = Path(path)
        if len(self.session.get_inputs()) != 2:
            raise ValueError(f"{path}: a flow network has 2 inputs, this one has {len(self.session.get_inputs())}")

    def plane(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 2) by which each pixel moves right and down, between pictures (h, w, 3) uint8."""
        height, width = first.shape[:2]
        pictures = [np.moveaxis(extended(picture, 8), -1, 0)[None].astype(np.float32) for picture in (first, second)]
        inputs = {value.name: picture for value, picture in zip(self.session.get_inputs(), pictures)}
        flow = np.asarray(self.session.run(None, inputs)[-1])
        expected = (1, 2, *pictures[0].shape[2:])
        if flow.shape != expected:
            raise ValueError(f"{self.path}: expected a flow of shape {expected} as last output, got {flow.shape}")
        return np.moveaxis(flow[0], 0, -1)[:height, :width]


def extended(picture: np.ndarray, multiple: int) -> np.ndarray:
    """A picture (h, w, 3) with its last row and column repeated until its sides are multiples of a number of pixels."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, -height % multiple), (0, -width % multiple), (0, 0)), mode="edge")


@functools.lru_cache(maxsize=8)
def sphere_directions(height: int, width: int) -> np.ndarray:
    """Unit directions (H, W, 3) float32 of the pixels of an equirectangular panorama; its centre is +z."""
    columns, rows = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    directions = directions_of_pixels(columns, rows, height, width)
    directions.setflags(write=False)
    return directions


def directions_of_pixels(columns: np.ndarray, rows: np.ndarray, height: int, width: int) -> np.ndarray:
    """Unit directions (..., 3) float32 of pixels (...) of a panorama, which may lie beyond its borders."""
    longitude, latitude = (columns / width - 0.5) * 2 * np.pi, (rows / height - 0.5) * np.pi
    flat = np.cos(latitude)
    return np.stack([flat * np.sin(longitude), np.sin(latitude), flat * np.cos(longitude)], -1).astype(np.float32)


def sample_panorama(
    picture: np.ndarray,  # (H, W, C) uint8 or float32
    directions: np.ndarray,  # (H, W, 3) unit
    smooth: bool = False,
) -> np.ndarray:
    """What a panorama shows in given directions (H, W, C): bilinear, or bicubic if `smooth`."""
    import cv2

    height, width = picture.shape[:2]
    x, y, z = np.moveaxis(directions, -1, 0)
    columns = (np.arctan2(x, z) / (2 * np.pi) + 0.5) * width + 1.5
    rows = (np.arcsin(np.clip(y, -1, 1)) / np.pi + 0.5) * height + 1.5
    over = [np.roll(row, width // 2, axis=1) for row in (picture[1::-1], picture[:-3:-1])]
    tall = np.concatenate([over[0], picture, over[1]])
    wide = np.pad(tall, ((0, 0), (2, 2), (0, 0)), mode="wrap")
    method = cv2.INTER_CUBIC if smooth else cv2.INTER_LINEAR
    return cv2.remap(wide, columns.astype(np.float32), rows.astype(np.float32), method)


def turn_panorama(
    picture: np.ndarray,  # (H, W, 3) uint8
    rotation: np.ndarray,  # (3, 3)
) -> np.ndarray:
    """The panorama (H, W, 3) turned so that what it showed in direction d is shown in direction rotation @ d."""
    directions = sphere_directions(*picture.shape[:2]) @ rotation.astype(np.float32)
    return sample_panorama(picture, directions, smooth=True)


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., 3) at length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
