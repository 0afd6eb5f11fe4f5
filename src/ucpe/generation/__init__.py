"""Prompt + camera (+ image) -> video: the pipeline, and what it may be asked for."""
