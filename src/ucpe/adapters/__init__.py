"""Camera control as modules beside a frozen video transformer: the spatial attention adapter and its baselines."""

from ucpe.adapters.attachment import Adapter
from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of
from ucpe.adapters.camera_adapter import CameraAdapter
from ucpe.adapters.condition import CameraCondition

__all__ = ["Adapter", "Backbone", "CameraAdapter", "CameraCondition", "TokenGrid", "backbone_of"]
