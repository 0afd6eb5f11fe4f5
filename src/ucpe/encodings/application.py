"""Multiplying tokens by block-diagonal camera operators without building them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def apply_blocks(
    x: Tensor,  # (..., heads, tokens, head_dim)
    blocks: Tensor,  # (..., tokens or cameras, 4, 4)
    cosine: Tensor | None,  # (..., tokens, angles), None without RoPE; leading dimensions as those of x
    sine: Tensor | None,  # (..., tokens, angles)
    tokens_per_block: int = 1,
    *,
    transpose: bool = False,
    forward: bool = True,
) -> Tensor:
    """Blocks (or their transposes) on the first channels, turns by the angle (forward) or back on the last 2 x angles.

    Computed in float32 or better and returned in the dtype of x. On a CPU, unless compiled or differentiated with
    respect to the blocks, one pass over memory does it all.
    """
    if _takes_kernel(x, blocks):
        return _OnePass.apply(x, blocks, cosine, sine, tokens_per_block, transpose, forward)
    return _compose(x, blocks, cosine, sine, tokens_per_block, transpose, forward)


def _compose(
    x: Tensor,
    blocks: Tensor,
    cosine: Tensor | None,
    sine: Tensor | None,
    tokens_per_block: int,
    transpose: bool,
    forward: bool,
) -> Tensor:
    """Out of torch operations: differentiable in everything, and what torch.compile fuses."""
    dtype = torch.promote_types(x.dtype, blocks.dtype)
    split = x.shape[-1] - (0 if cosine is None else 2 * cosine.shape[-1])
    groups = x[..., :split].to(dtype).unflatten(-1, (split // 4, 4))
    groups = groups.unflatten(-3, (blocks.shape[-3], tokens_per_block)).flatten(-3, -2)
    matrices = (blocks if transpose else blocks.mT).to(dtype).unsqueeze(-4)
    device = "cpu" if x.device.type == "meta" else x.device.type
    with torch.autocast(device, enabled=False):  # would round the geometry
        moved = groups @ matrices  # row vectors: (M v)^T = v^T M^T
    moved = moved.unflatten(-2, (tokens_per_block, split // 4)).flatten(-4, -3).flatten(-2)
    if cosine is None or sine is None:
        return moved.to(x.dtype)
    count = cosine.shape[-1] // 2
    pairs = x[..., split:].to(dtype).unflatten(-1, (2, 2, count))  # axis, half of a pair, frequency
    cosine, sine = (t.to(dtype).unflatten(-1, (2, 1, count)) for t in (cosine, sine if forward else -sine))
    turned = (pairs * cosine + pairs.flip(-2) * torch.cat([-sine, sine], dim=-2)).flatten(-3)
    return torch.cat([moved, turned.expand(*moved.shape[:-1], -1)], dim=-1).to(x.dtype)


class _OnePass(torch.autograd.Function):
    """The CPU kernel; linear in x, so its gradient is the transposed operator on the gradient."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        from ucpe.encodings.kernels import apply_blocks_cpu

        return apply_blocks_cpu(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.arguments = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        blocks, cosine, sine, tokens_per_block, transpose, forward = ctx.arguments
        gradient = apply_blocks(
            gradients[0], blocks, cosine, sine, tokens_per_block, transpose=not transpose, forward=not forward
        )
        return gradient, None, None, None, None, None, None


def _takes_kernel(x: Tensor, blocks: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.device.type == blocks.device.type == "cpu"
        and x.dtype == blocks.dtype
        and not blocks.requires_grad
        and x.numel() > 0
        and torch.broadcast_shapes(x.shape[:-3], blocks.shape[:-3]) == x.shape[:-3]
    )
