"""Attention between tokens that know their cameras."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ucpe.encodings.operators import Operator, check_anchors

GROUP_VALUES = 2**22
"""Maximum number of key values turned for several querying cameras at once, where keys depend on the query's camera."""


def camera_attention(
    query: Tensor,  # (..., heads, query tokens, head_dim)
    key: Tensor,  # (..., heads, key tokens, head_dim)
    value: Tensor,  # (..., heads, key tokens, head_dim)
    operator: Operator,
    key_operator: Operator | None = None,
    attention_mask: Tensor | None = None,  # broadcasts to (..., heads, query tokens, key tokens)
    mask_invalid: bool = True,
    *,
    added: tuple[Tensor, Tensor] | None = None,
    rescale: bool = False,
    discount: bool = False,
    diffusers: bool = False,
    backend: Any = None,
) -> Tensor:
    """Camera-aware attention output (..., heads, query tokens, head_dim): D Attn(D^T Q, D^-1 K, D^-1 V).

    `key_operator` is that of the keys where they belong to other cameras (sharing one anchor). A boolean mask keeps
    what is True, a float mask is added. Keys without a ray take no part if `mask_invalid`; a query left without any
    key gets zero. `added` holds what is added to transformed queries and keys (RayPE). `diffusers=True` runs diffusers'
    dispatcher, which honours a user's choice of attention backend.

    Far cameras make what they transform grow. SANA-WM's remedies depend on the world frame: `rescale` shrinks
    transformed queries, keys and values to the RMS they had before, `discount` divides the weight of a key by the
    square of its growth.
    """
    if key_operator is None:
        key_operator = operator
    elif not torch.compiler.is_compiling():
        check_anchors([operator, key_operator])
    limit = _shrunk if rescale else _as_is
    asked = limit(operator.query(query), query)
    if added is not None:
        asked, key_added = asked + added[0], added[1]
    mask, answered = _key_mask(attention_mask, key_operator.valid if mask_invalid else None)
    if operator.seen_cosine is None:
        groups: list[tuple[slice | None, slice]] = [(None, slice(None))]
    else:
        groups = [*operator.view_groups(max(1, GROUP_VALUES // key.numel()))]
    parts = []
    for views, rows in groups:
        count = 1 if views is None else views.stop - views.start
        moved = key_operator.key(key, views)
        seen = limit(moved, _of_views(key, views))
        seen = seen if added is None else seen + _of_views(key_added, views)
        weighted = mask
        if mask is not None and views is not None:
            by_head = mask[(None,) * (3 - mask.ndim)]
            weighted = _by_view(by_head[..., rows, :], count) if mask.shape[-2] > 1 else by_head.unsqueeze(-4)
        if discount:
            weighted = _plus(weighted, -2 * (_rms(moved) / _rms(_of_views(key, views))).clamp(min=1).log().mT)
        held = limit(key_operator.value(value, views), _of_views(value, views))
        wanted = asked if views is None else _by_view(asked[..., rows, :], count)
        found = _attend(wanted, seen, held, weighted, diffusers, backend)
        parts.append(found if views is None else found.movedim(-4, -3).flatten(-3, -2))
    output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
    if answered is not None:
        output = torch.where(answered, output, torch.zeros_like(output))
    return operator.output(output)


def _by_view(x: Tensor, count: int) -> Tensor:
    """Rows (..., heads, rows, n) of some views in a dimension for the views, (..., views, heads, rows / views, n)."""
    return x.unflatten(-2, (count, -1)).movedim(-3, -4)


def _of_views(x: Tensor, views: slice | None) -> Tensor:
    """Tensor (..., heads, tokens, n) with a dimension for views in front of the heads, where there are any."""
    return x if views is None else x.unsqueeze(-4)


def _rms(x: Tensor) -> Tensor:
    return x.float().square().mean(-1, keepdim=True).add(1e-6).sqrt()


def _shrunk(x: Tensor, before: Tensor) -> Tensor:
    """The tensor with no token's RMS above what it was before."""
    return x * (_rms(before) / _rms(x)).clamp(max=1).to(x.dtype)


def _as_is(x: Tensor, before: Tensor) -> Tensor:
    return x


def _plus(mask: Tensor | None, bias: Tensor) -> Tensor:
    """An additive mask out of a boolean, an additive or no mask and a bias."""
    if mask is None:
        return bias
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else mask + bias


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, diffusers: bool, backend: Any) -> Tensor:
    """Attention by torch's function, or by diffusers' dispatcher; both take no more than one leading dimension."""
    if mask is not None and mask.dtype != torch.bool and not diffusers:
        mask = mask.to(query.dtype)
    if query.ndim <= 4 and not diffusers:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    query, key, value = (t.expand(*batch, *t.shape[-3:]).reshape(-1, *t.shape[-3:]) for t in (query, key, value))
    if mask is not None:
        mask = mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
    if not diffusers:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask).unflatten(0, batch)
    from diffusers.models.attention_dispatch import dispatch_attention_fn

    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    output = dispatch_attention_fn(query, key, value, attn_mask=mask, backend=backend)
    return output.transpose(1, 2).unflatten(0, batch)


def _key_mask(mask: Tensor | None, valid: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Mask for attention in which every query keeps some key, and which queries (..., 1) truly have one."""
    if valid is not None:
        keys = valid[..., None, None, :]
        if mask is None:
            mask = keys
        elif mask.dtype == torch.bool:
            mask = mask & keys
        else:
            mask = mask.masked_fill(~keys, -torch.inf)
    if mask is None:
        return None, None
    kept = mask if mask.dtype == torch.bool else mask > -torch.inf
    answered = kept.any(-1, keepdim=True)
    if mask.dtype == torch.bool:
        return mask | ~answered, answered
    return mask.masked_fill(~answered, 0), answered
