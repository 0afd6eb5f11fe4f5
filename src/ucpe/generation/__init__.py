"""Prompt + camera (+ image) -> video: the pipeline, and the small model that ships with the package."""

from ucpe.generation.pipeline import CameraPipeline, CameraVideo

__all__ = ["CameraPipeline", "CameraVideo"]
