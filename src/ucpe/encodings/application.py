"""Multiplying tokens by block-diagonal camera operators without building them."""

from __future__ import annotations

import torch
from torch import Tensor


def apply_blocks(
    x: Tensor,  # (..., heads, tokens, head_dim)
    blocks: Tensor,  # (..., tokens or cameras, 4, 4)
    cosine: Tensor | None,  # (tokens, head_dim / 4)
    sine: Tensor | None,  # (tokens, head_dim / 4)
    tokens_per_block: int,
    forward: bool,
) -> Tensor:
    """Blocks on the first channels, rotations by +angle (forward) or -angle on the rest, in float32 or better."""
    dtype = torch.promote_types(x.dtype, blocks.dtype)
    split = x.shape[-1] if cosine is None else x.shape[-1] // 2
    geometric = x[..., :split].to(dtype)
    count = blocks.shape[-3]
    geometric = geometric.unflatten(-1, (split // 4, 4)).unflatten(-3, (count, tokens_per_block)).flatten(-3, -2)
    geometric = (geometric @ blocks.to(dtype).mT.unsqueeze(-4)).reshape(*x.shape[:-1], split)
    if cosine is None or sine is None:
        return geometric.to(x.dtype)
    spatial = x[..., split:].to(dtype).unflatten(-1, (2, 2, split // 4))
    cosine, sine = (t.to(dtype).unflatten(-1, (2, split // 4)) for t in (cosine, sine if forward else -sine))
    first, second = spatial.unbind(-2)
    rotated = torch.stack([first * cosine - second * sine, first * sine + second * cosine], dim=-2).flatten(-3)
    return torch.cat([geometric, rotated], dim=-1).to(x.dtype)
