"""Which video frame each latent frame of a video transformer belongs to."""

from __future__ import annotations

import torch
from torch import Tensor


def latent_frame_indices(frames: int, stride: int = 4) -> Tensor:
    """Video frame of each latent frame, 0, stride, 2 stride, ... (1 + (frames - 1) / stride,): 81 frames -> 21.

    >>> latent_frame_indices(81)[-1]
    tensor(80)
    """
    if stride < 1:
        raise ValueError(f"stride must be at least 1, got {stride}")
    if frames < 1 or (frames - 1) % stride:
        below = max(frames - 1, 0) // stride * stride + 1
        raise ValueError(
            f"a video of {frames} frames has no whole number of latent frames at stride {stride}: "
            f"use {below} or {below + stride} frames"
        )
    return torch.arange(0, frames, stride, device="cpu")
