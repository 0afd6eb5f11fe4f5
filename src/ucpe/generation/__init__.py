"""Prompt + camera (+ image) -> video: the pipeline, and the small model that ships with the package."""

from ucpe.generation.defaults import Defaults
from ucpe.generation.pipeline import CameraPipeline, CameraPipelineOutput, CameraVideo

__all__ = ["CameraPipeline", "CameraPipelineOutput", "CameraVideo", "Defaults"]
