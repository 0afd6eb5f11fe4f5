"""How new layers start, so that a fresh adapter changes nothing."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

LayerType = TypeVar("LayerType", bound=nn.Module)


def zeroed(layer: LayerType) -> LayerType:
    """The layer with all weights and biases zero."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
