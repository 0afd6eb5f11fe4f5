"""Any lens -> pinhole: what pose estimators need, through the two ray operators (supplement C)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Lens, Pinhole
from ucpe.lenses.base import pixel_grid

MAX_XFOV = 100.0
"""Maximum horizontal field of view in degrees of rectified views (supplement C)."""

FAR = 1e6
"""Distance at which rays of a non-central lens are assumed to meet the pinhole's rays."""


class Rectifier:
    """Resamples images of one lens to a pinhole of at most `max_xfov` degrees, of the same size.

    >>> from ucpe.lenses import UCM
    >>> rectifier = Rectifier(UCM(xfov=180, xi=2.0), height=48, width=84)
    >>> round(rectifier.pinhole.xfov(48, 84).item()), rectifier(np.zeros((48, 84, 3), np.uint8)).shape
    (100, (48, 84, 3))
    """

    def __init__(self, lens: Lens, height: int, width: int, max_xfov: float = MAX_XFOV):
        if lens.batch_shape:
            raise ValueError(f"a rectifier takes one lens; index the batch {tuple(lens.batch_shape)} first")
        if not 0 < max_xfov < 180:
            raise ValueError(f"max_xfov of a pinhole must be in (0, 180) degrees, got {max_xfov:g}")
        self.lens, self.height, self.width = lens, height, width
        xfov = min(float(lens.xfov(height, width)), max_xfov)
        if xfov <= 0:
            raise ValueError(f"{lens} sees nothing along the middle row of a {height} x {width} image")
        self.pinhole = Pinhole(xfov=xfov)

    def __call__(
        self,
        image: np.ndarray,  # (height, width) or (height, width, channels)
    ) -> np.ndarray:
        """Rectified image of the same shape, black where the lens sees nothing."""
        import cv2

        if image.shape[:2] != (self.height, self.width):
            raise ValueError(f"this rectifier is for {self.height} x {self.width} images, got {image.shape[:2]}")
        return cv2.remap(image, *self._fixed_maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)

    @cached_property
    def valid(self) -> np.ndarray:
        """Mask (height, width) of the rectified pixels that the original image shows."""
        pixels, seen = self._source
        inside = (pixels >= 0.5).all(-1) & (pixels[..., 0] <= self.width - 0.5) & (pixels[..., 1] <= self.height - 0.5)
        return (seen & inside).numpy()

    @cached_property
    def _source(self) -> tuple[Tensor, Tensor]:
        """Pixel (height, width, 2) of the original image that each rectified pixel shows, and whether there is one."""
        grid = pixel_grid(self.height, self.width, torch.float64)
        rays = self.pinhole.unproject(grid, self.height, self.width).directions
        return self.lens.project(rays if self.lens.central else rays * FAR, self.height, self.width)

    @cached_property
    def _fixed_maps(self) -> tuple[np.ndarray, np.ndarray]:
        import cv2

        pixels, seen = self._source
        position = torch.where(seen[..., None], pixels - 0.5, torch.full_like(pixels, -10.0)).float().numpy()
        columns, rows = np.ascontiguousarray(position[..., 0]), np.ascontiguousarray(position[..., 1])
        return cv2.convertMaps(columns, rows, cv2.CV_16SC2)


def rectify_video(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    lens: Lens,  # batch shape () or (N,)
    max_xfov: float = MAX_XFOV,
) -> tuple[np.ndarray, Pinhole, np.ndarray]:
    """Rectified frames (N, H, W, 3), their common pinhole, and a mask (N, H, W) of the pixels that are seen.

    A lens that changes over time is rectified to the narrowest view of all frames, so that one pinhole fits them.
    """
    height, width = frames.shape[1:3]
    if lens.batch_shape not in ((), (len(frames),)):
        raise ValueError(
            f"{len(frames)} frames need a lens of batch shape () or ({len(frames)},), got {lens.batch_shape}"
        )
    if lens.batch_shape:
        cap = min(max_xfov, float(lens.xfov(height, width).min()))
        rectifiers = [Rectifier(lens[index], height, width, cap) for index in range(len(frames))]
    else:
        rectifiers = [Rectifier(lens, height, width, max_xfov)] * len(frames)
    rectified = np.stack([rectifier(frame) for rectifier, frame in zip(rectifiers, frames)])
    return rectified, rectifiers[0].pinhole, np.stack([rectifier.valid for rectifier in rectifiers])
