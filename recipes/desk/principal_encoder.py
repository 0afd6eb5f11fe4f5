"""An encoder that is known before training: principal components of small space-time blocks, in Wan's own layers.

Every residual block starts as the identity, the two downsampling stages gather 2 x 2 pixels and then 2 frames and keep
the components of largest variance. Still pictures and moving ones share coordinates: what a stage keeps of a pair of
frames is first the mean of both, then differences. Learning this from reconstructions takes a small model hours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LOG_VARIANCE = -8.0
HEADROOM = 20.0
"""How much larger the constant channel is than the signal, as energy: keeps the last normalisation almost linear."""


@torch.no_grad()
def fit_encoder(
    model: Any,
    video: Tensor,  # (B, 3, N, H, W) in [-1, 1]
) -> None:
    """Set the encoder of an `AutoencoderKLWan` with two downsampling stages to the components of some clips."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import patchify

    encoder = model.encoder
    stages = [layer for layer in encoder.down_blocks if hasattr(layer, "resample")]
    if len(stages) != 2 or any(stage.mode != "downsample3d" for stage in stages):
        raise ValueError("the encoder must halve size and frame rate twice")
    if encoder.conv_in.out_channels < encoder.conv_in.in_channels:
        raise ValueError(f"base_dim must be at least {encoder.conv_in.in_channels}, the channels of the input")
    for block in [*encoder.down_blocks, *encoder.mid_block.resnets]:
        if hasattr(block, "conv2"):
            _zero(block.conv2)
    for attention in encoder.mid_block.attentions:
        _zero(attention.proj)
    _set_identity(encoder.conv_in)
    for block in encoder.down_blocks:
        if hasattr(block, "conv2") and block.in_dim != block.out_dim:
            _set_identity(block.conv_shortcut)

    size = model.config.patch_size
    features = patchify(video, size) if size else video
    kept = [stages[0].dim, model.config.z_dim]
    for stage, components in zip(stages, kept):
        features = _fit_stage(stage, features, min(components, stage.dim))
    _fit_head(encoder, model.quant_conv, features)


def _fit_stage(stage: Any, features: Tensor, components: int) -> Tensor:
    """Set one stage; returns what it makes of the frames after the first, (B, components, N / 2, H / 2, W / 2)."""
    channels = features.shape[1]
    blocks = features.unfold(3, 2, 2).unfold(4, 2, 2)  # (B, C, N, h, w, 2, 2)
    vectors = blocks.permute(0, 2, 3, 4, 1, 5, 6).flatten(4)  # (B, N, h, w, 4 C)
    basis, mean = _principal(vectors, min(stage.dim, 4 * channels))
    convolution = stage.resample[1]
    _zero(convolution)
    convolution.weight[: len(basis), :channels, :2, :2] = basis.unflatten(1, (channels, 2, 2))
    convolution.bias[: len(basis)] = -basis @ mean
    space = (vectors - mean) @ basis.T  # (B, N, h, w, k)

    first, second = space[:, 1::2], space[:, 2::2]
    average, difference = (first + second) / 2, (second - first) / 2
    turned, _ = _principal(difference, len(basis), centred=False)
    spread = torch.cat(
        [average.flatten(0, -2).square().mean(0), (difference @ turned.T).flatten(0, -2).square().mean(0)]
    )
    chosen = spread.argsort(descending=True)[:components]
    averages = int((chosen < len(basis)).sum())  # the leading ones, as both halves are sorted
    differences = turned[: components - averages]
    time = stage.time_conv
    _zero(time)
    for index in range(averages):
        time.weight[index, index, 1:, 0, 0] = 0.5
    time.weight[averages:components, : len(basis), 1, 0, 0] = -differences / 2
    time.weight[averages:components, : len(basis), 2, 0, 0] = differences / 2
    paired = torch.cat([average[..., :averages], difference @ differences.T], dim=-1)
    single = space[:, :1, ..., :components]
    return torch.cat([single, paired], dim=1).permute(0, 4, 1, 2, 3)


def _fit_head(encoder: Any, quantise: Any, features: Tensor) -> None:
    """Carry the features through the last norm and activation, as pairs x and -x beside a large constant."""
    count = features.shape[1]
    widening = next(block for block in reversed(encoder.down_blocks) if hasattr(block, "conv2"))
    if widening.out_dim < 2 * count + 1 or widening.in_dim == widening.out_dim:
        raise ValueError(f"the last level must widen to at least {2 * count + 1} channels, got {widening.out_dim}")
    scale = features.transpose(0, 1).flatten(1).std(dim=1).sqrt()  # halfway between one variance for all and their own
    scale = scale * scale.square().mean().sqrt()
    constant = float((HEADROOM * 2 * count) ** 0.5)
    shortcut = widening.conv_shortcut
    _zero(shortcut)
    for index in range(count):
        shortcut.weight[index, index] = 1 / scale[index]
        shortcut.weight[count + index, index] = -1 / scale[index]
    shortcut.bias[2 * count] = constant
    length = (constant**2 + 2 * count) ** 0.5
    gain = length / encoder.norm_out.scale
    _zero(encoder.conv_out)
    for index in range(count):
        encoder.conv_out.weight[index, index, -1, 1, 1] = gain
        encoder.conv_out.weight[index, count + index, -1, 1, 1] = -gain
    _set_identity(quantise)
    quantise.weight[count:] = 0
    quantise.bias[count:] = LOG_VARIANCE


def _principal(vectors: Tensor, count: int, centred: bool = True) -> tuple[Tensor, Tensor]:
    """Orthonormal components (count, D) of vectors (..., D) by falling variance, and their mean."""
    flat = vectors.flatten(0, -2).double()
    mean = flat.mean(dim=0) if centred else torch.zeros_like(flat[0])
    covariance = (flat - mean).T @ (flat - mean)
    return torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :count].T.to(vectors), mean.to(vectors)


def _zero(layer: Any) -> None:
    layer.weight.zero_()
    layer.bias.zero_()


def _set_identity(layer: Any) -> None:
    """Channels to the same channels: the centre of the kernel, and its newest frame."""
    _zero(layer)
    centre = [size // 2 for size in layer.kernel_size]
    centre[0] = layer.kernel_size[0] - 1
    for index in range(min(layer.in_channels, layer.out_channels)):
        layer.weight[(index, index, *centre)] = 1
