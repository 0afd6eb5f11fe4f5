"""The spatial attention adapter: a small camera-aware attention branch in every block."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter, absolute_poses
from ucpe.adapters.backbones import (
    Backbone,
    TokenGrid,
    backbone_of,
    first_argument,
    with_first_argument,
    with_first_result,
)
from ucpe.adapters.initialisation import zeroed
from ucpe.adapters.parallel import TokenShare
from ucpe.adapters.released import load_released, read_released, write_released
from ucpe.encodings import (
    ENCODINGS,
    LEARNED_ENCODINGS,
    AddedRays,
    Operator,
    RotaryRays,
    camera_attention,
    camera_operator,
    lat_up_map,
    plucker_rays,
    sightline_features,
)
from ucpe.encodings.frames import anchored_poses
from ucpe.lenses.base import Lens
from ucpe.trajectories import Trajectory

PLACEMENTS = ("parallel", "pre", "post")

BRANCH_ENCODINGS = (*ENCODINGS, *LEARNED_ENCODINGS)
"""Encodings that the attention of a branch can use."""


class CameraAdapter(Adapter):
    """One branch per block: tokens at 1/C of the width, attention under a camera encoding, and back through zeros.

    - `encoding`: what the branch's attention knows of cameras, one of `BRANCH_ENCODINGS`: "ucpe" (relative rays),
      "sightline" (ours), "urope", "prope", "gta", "cape", "raype", "rore".
    - `compression`: C; heads and their size follow from it as in the paper, unless `heads` and `head_dim` are given.
    - `placement`: "parallel" adds branch(x) to self-attention(x), "pre" gives self-attention x + branch(x), "post"
      adds branch(y) to the residual stream y after self-attention.
    - `orientation`: absolute pitch and roll, as a Lat-Up map added to the tokens of the branch. "sightline" adds rays
      in the upright frame of the first camera too, or without orientation in that camera's own frame.
    - `mask_invalid`: leave tokens that no ray reaches out of the keys of the branch's attention.
    - `dark_token_world`: world frame in which those tokens, if not left out, have the identity transform: "gravity"
      (aligned with the vertical) or "first" (the first camera's). None is "gravity" with orientation, else "first".
    """

    @register_to_config
    def __init__(
        self,
        width: int = 1536,
        num_blocks: int = 30,
        base_heads: int = 12,
        encoding: str = "ucpe",
        compression: int = 8,
        placement: str = "parallel",
        orientation: bool = True,
        heads: int | None = None,
        head_dim: int | None = None,
        backbone: str = "WanTransformer3DModel",
        patch_size: tuple[int, int, int] = (1, 2, 2),
        temporal_stride: int = 4,
        spatial_stride: int = 8,
        ray_frame: str = "paper",
        token_position: str = "center",
        up_map: str = "exact",
        mask_invalid: bool = True,
        dark_token_world: str | None = None,
    ):
        super().__init__()
        for name, value, choices in (
            ("encoding", encoding, BRANCH_ENCODINGS),
            ("placement", placement, PLACEMENTS),
            ("ray_frame", ray_frame, ("paper", "transport")),
            ("token_position", token_position, ("center", "corner")),
            ("up_map", up_map, ("exact", "released")),
            ("dark_token_world", dark_token_world, (None, "gravity", "first")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")
        if (heads is None) != (head_dim is None):
            raise ValueError(f"give heads and head_dim together or neither, got heads={heads} and head_dim={head_dim}")
        if heads is None or head_dim is None:
            heads, head_dim = head_layout(width, base_heads, compression)
        if heads < 1 or head_dim < 8 or head_dim % 8:
            raise ValueError(
                f"the branch needs one or more heads of a multiple of 8 channels, got {heads} of {head_dim}"
            )
        self.heads, self.head_dim = heads, head_dim
        self.blocks = nn.ModuleList(
            CameraAttention(width, heads, head_dim, orientation, mask_invalid, encoding) for _ in range(num_blocks)
        )

    @classmethod
    def for_transformer(cls, transformer: nn.Module, **options: Any) -> CameraAdapter:
        """A fresh adapter that fits a transformer; takes the options of the constructor."""
        return super().for_transformer(transformer, **{"base_heads": backbone_of(transformer).heads, **options})

    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """Operator, Lat-Up map and rays of a clip, as far as the encoding uses them."""
        encoding, orientation = self.config["encoding"], self.config["orientation"]
        position = self.config["token_position"]
        camera = self._token_cameras(self._placed(camera))
        geometry = (camera.lens, camera.c2w, grid.rows, grid.columns)
        encoded: dict[str, Any] = {"operator": self._operator(*geometry)}
        if encoding == "sightline":
            features = sightline_features(*geometry, upright=orientation, position=position)
            encoded["features"] = features.flatten(0, 2)
        elif orientation:
            released_up = self.config["up_map"] == "released"
            encoded["features"] = lat_up_map(*geometry, position=position, released_up=released_up).flatten(0, 2)
        if encoding in LEARNED_ENCODINGS:
            c2w = anchored_poses(camera.c2w, upright=orientation)
            rays = plucker_rays(camera.lens, c2w, grid.rows, grid.columns, position=position)
            encoded["rays"] = rays.flatten(0, 2)
        return encoded

    def _operator(self, lens: Lens, c2w: Tensor, rows: int, columns: int) -> Operator:
        """What attention does with cameras; encodings that learn from rays need token grid and lens alone."""
        encoding, position = self.config["encoding"], self.config["token_position"]
        if encoding in LEARNED_ENCODINGS:
            still = torch.eye(4, dtype=c2w.dtype).expand_as(c2w)
            rope = encoding == "raype"
            return camera_operator("gta", lens, still, rows, columns, self.head_dim, rope=rope, position=position)
        return camera_operator(
            encoding,
            lens,
            c2w,
            rows,
            columns,
            self.head_dim,
            position=position,
            frame=self.config["ray_frame"],
            anchor=self.config["mask_invalid"],
            heads=self.heads,
        )

    @classmethod
    def from_released(cls, path: str | os.PathLike[str], **options: Any) -> CameraAdapter:
        """An adapter from a checkpoint of the released code; options are those the file does not tell.

        What it was trained with and differs from ours (token positions, Up map, no mask) stays in the config.
        """
        found, weights = read_released(path)
        adapter = cls(**{**found, **options})
        load_released(adapter, weights, path)
        return adapter.eval()

    def export_released(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint that the released code loads."""
        write_released(self, path)

    def _placed(self, camera: Trajectory) -> Trajectory:
        """The camera in the world frame that dark tokens are encoded in; the choice leaves other tokens unchanged."""
        if self.config["mask_invalid"]:
            return camera
        world = self.config["dark_token_world"]
        return absolute_poses(camera, self.config["orientation"] if world is None else world == "gravity")

    def _hook(self, backbone: Backbone) -> list[Any]:
        handles = []
        for branch, block in zip(self.blocks, backbone.blocks):
            attention = backbone.attention(block)
            if self.config["placement"] == "parallel":
                handles.append(attention.register_forward_hook(partial(self._parallel, branch), with_kwargs=True))
            elif self.config["placement"] == "pre":
                handles.append(attention.register_forward_pre_hook(partial(self._pre, branch), with_kwargs=True))
            else:
                first, second = backbone.after_attention(block)
                post = _Post(self, branch, attention)
                handles.append(first.register_forward_pre_hook(post.before, with_kwargs=True))
                handles.append(second.register_forward_hook(post.after))
        return handles

    def _branch(self, branch: Any, attention: nn.Module, tokens: Tensor) -> Tensor:
        condition = self._condition(tokens, branch.q_proj.weight)
        backend = getattr(getattr(attention, "processor", None), "_attention_backend", None)
        share = self._share(tokens, condition)
        return branch(tokens, condition.operator, condition.features, backend, share, condition.rays)

    def _parallel(
        self, branch: nn.Module, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        return None if self._idle else add_to_first(output, self._branch(branch, module, first_argument(args, kwargs)))

    def _pre(
        self, branch: nn.Module, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._idle:
            return None
        tokens = first_argument(args, kwargs)
        return with_first_argument(args, kwargs, tokens + self._branch(branch, module, tokens))


class CameraAttention(nn.Module):
    """The branch of one block: project down, attend under the camera operator, project back from zero."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_dim: int,
        orientation: bool,
        mask_invalid: bool = True,
        encoding: str = "ucpe",
    ):
        super().__init__()
        self.heads = heads
        self.mask_invalid = mask_invalid
        self.q_proj = nn.Linear(width, heads * head_dim)
        self.k_proj = nn.Linear(width, heads * head_dim)
        self.v_proj = nn.Linear(width, heads * head_dim)
        self.out_proj = zeroed(nn.Linear(heads * head_dim, width))
        channels = (24 if encoding == "sightline" else 0) + (3 if orientation else 0)
        self.cam_encoder = zeroed(nn.Linear(channels, width)) if channels else None
        self.rotary_rays = RotaryRays(head_dim) if encoding == "rore" else None
        self.added_rays = AddedRays(heads, head_dim) if encoding == "raype" else None

    def forward(
        self,
        hidden_states: Tensor,  # (batch, tokens, width)
        operator: Operator,
        features: Tensor | None = None,  # (batch, tokens, 3), or of Sightline (batch, tokens, 24 or 27)
        backend: Any = None,
        share: TokenShare | None = None,
        rays: Tensor | None = None,  # (batch, tokens, 6) Plücker rays for RayPE and RoRE
    ) -> Tensor:
        """What the camera adds to the tokens (batch, tokens, width); `backend` is a choice of diffusers' dispatcher.

        With a `share`, these are the tokens of one process of several, and operator, features and rays are of all.
        """
        tokens = hidden_states.to(self.q_proj.weight.dtype)
        if self.cam_encoder is not None:
            assert features is not None
            features = features if share is None else features[:, share.part]
            tokens = tokens + self.cam_encoder(features.to(tokens.dtype))
        query, key, value = (
            projection(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        own, part = operator, slice(None) if share is None else share.part
        added = None
        if self.rotary_rays is not None:
            assert rays is not None
            query, key = self.rotary_rays(query, key, rays[:, part])
        if self.added_rays is not None:
            assert rays is not None
            for_query, for_key = self.added_rays(rays)
            added = (for_query[..., part, :], for_key)
        if share is not None:
            own, key, value = operator.tokens(share.part), share.gather(key), share.gather(value)
        masked = self.mask_invalid and operator.valid is not None
        backend = None if masked else backend
        options: dict[str, Any] = {"added": added, "diffusers": True, "backend": backend}
        attended = camera_attention(query, key, value, own, operator, None, masked, **options)
        return self.out_proj(attended.transpose(1, 2).flatten(2)).to(hidden_states.dtype)


class _Post:
    """Adds a branch to the residual stream between two modules that bracket what follows self-attention."""

    def __init__(self, adapter: CameraAdapter, branch: nn.Module, attention: nn.Module):
        self.adapter, self.branch, self.attention = adapter, branch, attention
        self.added: Tensor | None = None

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.adapter._idle:
            return None
        tokens = first_argument(args, kwargs)
        self.added = self.adapter._branch(self.branch, self.attention, tokens)
        return with_first_argument(args, kwargs, tokens + self.added)

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        added, self.added = self.added, None
        return None if added is None else add_to_first(output, added)


def head_layout(width: int, base_heads: int, compression: int) -> tuple[int, int]:
    """Heads and head size of a branch at 1/compression of the width; at 1536: 2 -> (6, 128), 8 -> (1, 192).

    The number of heads shrinks with the width; a head has a multiple of 8 channels, 4 per ray and 2 per axis of RoPE.

    >>> [head_layout(1536, 12, compression) for compression in (2, 4, 8, 12)]
    [(6, 128), (3, 128), (1, 192), (1, 128)]
    """
    if compression < 1:
        raise ValueError(f"compression must be at least 1, got {compression}")
    heads = max(1, base_heads // compression)
    head_dim = width // compression // heads // 8 * 8
    if head_dim == 0:
        raise ValueError(
            f"compression {compression} leaves {width // compression} of {width} channels, and a head needs 8: "
            f"use at most {width // 8}"
        )
    return heads, head_dim


def add_to_first(output: Any, added: Tensor) -> Any:
    """A module's output with something added to it, or to the first of several."""
    return with_first_result(output, lambda tokens: tokens + added.to(tokens.dtype))
