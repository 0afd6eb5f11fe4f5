"""Applying camera operators on a CPU: one pass over memory, compiled by numba at the first call."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from ucpe.compiled import kernel

VALUES_PER_THREAD = 2**20
"""Values that make it worth starting another thread."""


def apply_blocks_cpu(
    x: Tensor,  # (..., heads, tokens, head_dim) float32 or float64
    blocks: Tensor,  # (..., tokens or cameras, 4, 4) of the same dtype
    cosine: Tensor | None,  # (..., tokens, angles), None without RoPE; leading dimensions as those of x, or 1
    sine: Tensor | None,  # (..., tokens, angles)
    tokens_per_block: int,
    transpose: bool,
    forward: bool,
) -> Tensor:
    """Blocks (or their transposes) on the first channels, turns by the angle (forward) or back on the rest."""
    *batch, heads, tokens, head_dim = x.shape
    x = x.detach().reshape(-1, heads, tokens, head_dim)
    x = x if x.stride(-1) == 1 else x.contiguous()
    output = torch.empty_like(x)
    blocks = blocks.detach().expand(*batch, *blocks.shape[-3:]).reshape(-1, *blocks.shape[-3:]).contiguous()
    angles = [_angles(angle, batch, x) for angle in (cosine, sine)]
    arguments = (
        *(_memory(x), x.stride(), _memory(output), output.stride(), tuple(x.shape)),
        *(blocks.numpy(), *(angle.detach().numpy() for angle in angles)),
        *(tokens_per_block, transpose, forward),
    )

    threads = max(1, min(torch.get_num_threads(), x.numel() // VALUES_PER_THREAD))
    bounds = [tokens * i // threads for i in range(threads + 1)]
    others = [Thread(target=_apply, args=(*arguments, low, high)) for low, high in pairwise(bounds[1:])]
    for other in others:
        other.start()
    _apply(*arguments, bounds[0], bounds[1])  # type: ignore
    for other in others:
        other.join()
    return output.reshape(*batch, heads, tokens, head_dim)


def _angles(values: Tensor | None, batch: list[int], x: Tensor) -> Tensor:
    """Values (batch or 1, heads or 1, tokens, angles), none of them without RoPE."""
    if values is None:
        return x.new_zeros(1, 1, 0, 0)
    values = values.reshape(*(1,) * (len(batch) + 3 - values.ndim), *values.shape)
    if values.shape[:-3].numel() > 1:
        values = values.expand(*batch, *values.shape[-3:])
    return values.reshape(-1, *values.shape[-3:]).contiguous()


def _memory(tensor: Tensor) -> Any:
    """The memory a tensor spans, flat, so that the kernel is compiled once for all layouts."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,)).numpy()


@kernel(nogil=True, fastmath={"contract"}, error_model="numpy")
def _apply(
    x: Any,
    x_stride: tuple[int, int, int, int],
    output: Any,
    output_stride: tuple[int, int, int, int],
    shape: tuple[int, int, int, int],
    blocks: Any,
    cosine: Any,
    sine: Any,
    tokens_per_block: int,
    transpose: bool,
    forward: bool,
    start: int,
    stop: int,
) -> None:
    batch, heads, _, head_dim = shape
    quarter = cosine.shape[3] // 2
    groups = head_dim // 4 - quarter
    for b in range(batch):
        for h in range(heads):
            turn_cosine = cosine[min(b, cosine.shape[0] - 1), min(h, cosine.shape[1] - 1)]
            turn_sine = sine[min(b, sine.shape[0] - 1), min(h, sine.shape[1] - 1)]
            for token in range(start, stop):
                row = x[b * x_stride[0] + h * x_stride[1] + token * x_stride[2] :]
                target = output[b * output_stride[0] + h * output_stride[1] + token * output_stride[2] :]
                m = blocks[b, token // tokens_per_block]
                a0, a1, a2, a3 = m[0, 0], m[0, 1], m[0, 2], m[0, 3]
                b0, b1, b2, b3 = m[1, 0], m[1, 1], m[1, 2], m[1, 3]
                c0, c1, c2, c3 = m[2, 0], m[2, 1], m[2, 2], m[2, 3]
                d0, d1, d2, d3 = m[3, 0], m[3, 1], m[3, 2], m[3, 3]
                if transpose:
                    a1, a2, a3, b2, b3, c3, b0, c0, d0, c1, d1, d2 = b0, c0, d0, c1, d1, d2, a1, a2, a3, b2, b3, c3
                for i in range(0, 4 * groups, 4):
                    x0, x1, x2, x3 = row[i], row[i + 1], row[i + 2], row[i + 3]
                    target[i] = a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                    target[i + 1] = b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                    target[i + 2] = c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                    target[i + 3] = d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
                for axis in range(2 if quarter else 0):
                    first = 4 * groups + 2 * quarter * axis
                    for i in range(quarter):
                        cos, sin = turn_cosine[token, quarter * axis + i], turn_sine[token, quarter * axis + i]
                        sin = sin if forward else -sin
                        x0, x1 = row[first + i], row[first + quarter + i]
                        target[first + i] = cos * x0 - sin * x1
                        target[first + quarter + i] = sin * x0 + cos * x1
