"""Camera control as modules beside a frozen video transformer: the spatial attention adapter and its baselines."""

from ucpe.adapters.attachment import Adapter
from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of
from ucpe.adapters.camera_adapter import CameraAdapter
from ucpe.adapters.cameractrl import CameraCtrl
from ucpe.adapters.condition import CameraCondition
from ucpe.adapters.loading import load_adapter
from ucpe.adapters.recammaster import ReCamMaster
from ucpe.adapters.sana_wm import SanaWMCamera
from ucpe.adapters.scope import SCoPE

__all__ = [
    "Adapter",
    "Backbone",
    "CameraAdapter",
    "CameraCondition",
    "CameraCtrl",
    "ReCamMaster",
    "SCoPE",
    "SanaWMCamera",
    "TokenGrid",
    "backbone_of",
    "load_adapter",
]
