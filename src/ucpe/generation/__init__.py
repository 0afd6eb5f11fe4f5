"""Prompt + camera (+ image) -> video: the pipeline, and what it may be asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ucpe.generation.defaults import Defaults
    from ucpe.generation.pipeline import CameraPipeline, CameraPipelineOutput, CameraVideo

__all__ = ["CameraPipeline", "CameraPipelineOutput", "CameraVideo", "Defaults"]


def __getattr__(name: str) -> Any:
    """Load diffusers where a name is first used, so that the command line shows its options at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{'defaults' if name == 'Defaults' else 'pipeline'}"), name)
