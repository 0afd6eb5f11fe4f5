"""Wan's video autoencoder on whole clips at once: the numbers of its cached passes, in fewer and larger operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def encode_whole(model: Any, video: Tensor) -> Any:
    """Latent distribution of clips (B, 3, N, H, W) in [-1, 1], as `AutoencoderKLWan.encode` gives it."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import DiagonalGaussianDistribution, patchify

    hidden = video if model.config.patch_size is None else patchify(video, model.config.patch_size)
    encoder = model.encoder
    hidden = encoder.conv_in(hidden)
    for layer in encoder.down_blocks:
        hidden = _shrink(layer, hidden) if hasattr(layer, "resample") else layer(hidden)
    hidden = encoder.conv_out(encoder.nonlinearity(encoder.norm_out(encoder.mid_block(hidden))))
    return DiagonalGaussianDistribution(model.quant_conv(hidden))


def decode_whole(model: Any, latents: Tensor) -> Tensor:
    """Clips (B, 3, N, H, W) from latents (B, C, F, h, w), as `AutoencoderKLWan.decode` before it clamps them."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify

    decoder = model.decoder
    hidden = decoder.mid_block(decoder.conv_in(model.post_quant_conv(latents)))
    for block in decoder.up_blocks:
        for layer in block.resnets:
            hidden = layer(hidden)
        for layer in block.upsamplers or ():
            hidden = _enlarge(layer, hidden)
    hidden = decoder.conv_out(decoder.nonlinearity(decoder.norm_out(hidden)))
    return hidden if model.config.patch_size is None else unpatchify(hidden, model.config.patch_size)


def _shrink(layer: Any, hidden: Tensor) -> Tensor:
    """Half the size, and of the frames after the first one half the number."""
    hidden = _each_frame(layer.resample, hidden)
    if layer.mode == "downsample3d" and hidden.shape[2] > 1:
        hidden = torch.cat([hidden[:, :, :1], layer.time_conv(hidden)], dim=2)
    return hidden


def _enlarge(layer: Any, hidden: Tensor) -> Tensor:
    """Twice the size, and of the frames after the first one twice the number."""
    if layer.mode == "upsample3d" and hidden.shape[2] > 1:
        pairs = layer.time_conv(hidden[:, :, 1:]).unflatten(1, (2, -1))  # the first frame stays outside its reach
        hidden = torch.cat([hidden[:, :, :1], pairs.movedim(1, 3).flatten(2, 3)], dim=2)
    return _each_frame(layer.resample, hidden)


def _each_frame(images: Any, hidden: Tensor) -> Tensor:
    batch = hidden.shape[0]
    return images(hidden.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, -1)).transpose(1, 2)
