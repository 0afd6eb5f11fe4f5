"""The first frame of a video, and what cropping it does to the lens it was taken with."""

from __future__ import annotations

from ucpe.lenses import Lens
from ucpe.lenses.planar import PlanarLens


def lens_of_cropped(lens: Lens, image_size: tuple[int, int], height: int, width: int) -> Lens:
    """The lens of a photograph that is resized and cropped around its centre to a video of height x width.

    `image_size` is (width, height) in pixels. A lens that is not calibrated for the picture's shape already describes
    the video, and stays as it is.
    """
    across, down = image_size
    if not isinstance(lens, PlanarLens) or "width" not in lens.settings:
        return lens
    same_shape = abs(lens.settings["width"] * down - lens.settings["height"] * across) <= max(across, down)
    if not same_shape:
        return lens
    scale = max(width / across, height / down)
    resized = max(height, round(down * scale)), max(width, round(across * scale))
    left, top = (resized[1] - width) // 2, (resized[0] - height) // 2
    return lens.cropped(left, top, height, width, height=resized[0], width=resized[1])
