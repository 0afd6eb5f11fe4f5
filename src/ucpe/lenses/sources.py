"""A lens from whatever a person says: a file, one camera of a file, or a name."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.files import load_lens, split_camera
from ucpe.lenses.lensfun import PREFIX, lensfun_lens
from ucpe.lenses.models import LENS_NAMES, lens_by_name


def find_lens(
    source: str, camera: str | int | None = None, size: tuple[int, int] | None = None, **parameters: Any
) -> Lens:
    """A calibration file ("camchain.yaml", "camchain.yaml:cam0") or a lens by name, with parameters to change.

    "lensfun:GoPro HERO4" is a lens of Lensfun's database.
    `size` is the (width, height) in pixels of a calibration that does not say.
    """
    lensfun = source.lower().startswith(PREFIX)
    if lensfun or split_camera(source)[0].exists():
        if parameters:
            named = " and ".join(f"--{name.replace('_', '-')}" for name in parameters)
            raise ValueError(f"{named} changes a named lens, not the calibration {source}")
        return lensfun_lens(source[len(PREFIX) :], size) if lensfun else load_lens(source, camera, size)
    if source.lower().replace("-", "_") not in [name.replace("-", "_") for name in LENS_NAMES]:
        raise ValueError(f"{source!r} is neither a file nor the name of a lens: {', '.join(LENS_NAMES)}")
    if size is not None:
        raise ValueError(f"--lens-size is for a calibration file; {source} has no size of its own")
    return lens_by_name(source, **parameters)
