"""Camera control for video transformers: Unified Camera Positional Encoding.

The names below load the library behind them when first used, so `import ucpe` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ucpe.adapters import CameraAdapter as CameraAdapter
    from ucpe.adapters import CameraCtrl as CameraCtrl
    from ucpe.adapters import ReCamMaster as ReCamMaster
    from ucpe.encodings import camera_attention as camera_attention
    from ucpe.encodings import camera_operator as camera_operator
    from ucpe.encodings import lat_up_map as lat_up_map
    from ucpe.generation.pipeline import CameraPipeline as CameraPipeline
    from ucpe.lenses import EUCM as EUCM
    from ucpe.lenses import UCM as UCM
    from ucpe.lenses import BrownConrady as BrownConrady
    from ucpe.lenses import DoubleSphere as DoubleSphere
    from ucpe.lenses import Equidistant as Equidistant
    from ucpe.lenses import Equirectangular as Equirectangular
    from ucpe.lenses import Equisolid as Equisolid
    from ucpe.lenses import KannalaBrandt as KannalaBrandt
    from ucpe.lenses import Lens as Lens
    from ucpe.lenses import Mei as Mei
    from ucpe.lenses import OmniStereo as OmniStereo
    from ucpe.lenses import Orthographic as Orthographic
    from ucpe.lenses import Pinhole as Pinhole
    from ucpe.lenses import Rays as Rays
    from ucpe.lenses import Stereographic as Stereographic
    from ucpe.lenses import lens_by_name as lens_by_name
    from ucpe.lenses import load_lens as load_lens
    from ucpe.trajectories import Keyframe as Keyframe
    from ucpe.trajectories import Trajectory as Trajectory

_HOMES = {
    "ucpe.lenses": (
        "UCM EUCM DoubleSphere Mei Pinhole BrownConrady KannalaBrandt Equidistant Equisolid Stereographic Orthographic "
        "Equirectangular OmniStereo Lens Rays lens_by_name load_lens"
    ),
    "ucpe.trajectories": "Trajectory Keyframe",
    "ucpe.encodings": "camera_attention camera_operator lat_up_map",
    "ucpe.adapters": "CameraAdapter ReCamMaster CameraCtrl",
    "ucpe.generation.pipeline": "CameraPipeline",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ucpe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
