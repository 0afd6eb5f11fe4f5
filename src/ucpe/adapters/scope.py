"""SCoPE, the released form of RayPE: rays of any lens added to the transformer's own queries and keys."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from diffusers.configuration_utils import register_to_config
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter, check_weights, listed
from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of, first_argument
from ucpe.encodings import AddedRays, plucker_rays
from ucpe.trajectories import Trajectory

TUNED_NAMES = {
    "self_attn.q": "attn1.to_q",
    "self_attn.k": "attn1.to_k",
    "self_attn.v": "attn1.to_v",
    "self_attn.o": "attn1.to_out.0",
    "self_attn.norm_q": "attn1.norm_q",
    "self_attn.norm_k": "attn1.norm_k",
    "norm3": "norm2",
    "ffn.0": "ffn.net.0.proj",
    "ffn.2": "ffn.net.2",
}
"""Layers of a block that are trained along, by their names in released weights, and in diffusers."""

RELEASED_NAME = re.compile(r"blocks\.(\d+)\.(?:self_attn\.plucker_pe\.([\w.]+)|([\w.]+)\.(weight|bias))")
"""Name of a released weight: its block, and its name in `AddedRays` or its layer in the transformer."""

BASE_NAME = re.compile(
    r"blocks\.\d+\.(cross_attn\.|modulation)|(head|patch_embedding|text_embedding|time_embedding|time_projection)\."
)
"""How the names of weights that stay the base model's start."""


class SCoPE(Adapter):
    """Plücker rays added to queries and keys of every self-attention, after norm and RoPE; for Wan transformers.

    Poses are relative to the first frame, so the world frame is free. The released weights are of Wan2.2 I2V A14B's
    `transformer`, of high noise; its self-attention, feed-forward layers and the norm before cross-attention were
    trained along. With `tuned=False`, the transformer keeps its own weights.
    """

    @register_to_config
    def __init__(
        self,
        width: int = 5120,
        num_blocks: int = 40,
        backbone: str = "WanTransformer3DModel",
        patch_size: tuple[int, int, int] = (1, 2, 2),
        temporal_stride: int = 4,
        spatial_stride: int = 8,
        tuned: bool = True,
    ):
        super().__init__()
        if backbone != "WanTransformer3DModel":
            raise ValueError(f"SCoPE knows the attention of Wan transformers, not of {backbone}")
        self.blocks = nn.ModuleList(AddedRays(1, width) for _ in range(num_blocks))

    @property
    def tunes_transformer(self) -> bool:  # type: ignore[override]
        """Whether weights of the transformer are trained along."""
        return self.config["tuned"]

    @classmethod
    def from_released(cls, folder: str | os.PathLike[str]) -> SCoPE:
        """An adapter from `high_noise_model` or `low_noise_model` of the released weights.

        The low-noise expert was released as it was before training: what its rays add is zero, and nothing is tuned.
        """
        added, tuned = read_released(Path(folder))
        blocks = 1 + max(int(name.split(".")[1]) for name in added)
        trained = any(value.any() for name, value in added.items() if name.endswith((".eq.2.weight", ".ek.2.weight")))
        with torch.device("meta"):
            adapter = cls(len(added["blocks.0.norm_pe_q.weight"]), blocks, tuned=trained)
        found, expected = ({name: t.shape for name, t in state.items()} for state in (added, adapter.state_dict()))
        if found != expected:
            wrong = {name for name, _ in found.items() ^ expected.items()}
            raise ValueError(f"{folder} is no SCoPE of {blocks} blocks: {listed('missing or of another shape', wrong)}")
        check_weights({**added, **tuned}, folder)
        adapter.load_state_dict(added, assign=True)
        adapter._tuned = tuned if trained else {}
        return adapter.eval()

    def tuned_parameters(self, transformer: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """Self-attention, feed-forward layers and the norms before cross-attention, unless nothing is tuned."""
        if not self.config["tuned"]:
            return []
        named = backbone_of(transformer).transformer.named_parameters()
        layers = tuple(TUNED_NAMES.values())
        return [(name, value) for name, value in named if name.split(".", 2)[-1].rpartition(".")[0] in layers]

    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """Plücker rays of a clip's tokens, relative to the first frame."""
        camera = self._token_cameras(camera.relative_to_first())
        return {"features": plucker_rays(camera.lens, camera.c2w, grid.rows, grid.columns).flatten(0, 2)}

    def _hook(self, backbone: Backbone) -> list[Any]:
        handles = []
        for layer, block in zip(self.blocks, backbone.blocks):
            attention: Any = backbone.attention(block)
            injection = _Injection(self, layer)
            handles.append(attention.register_forward_pre_hook(injection.prepare, with_kwargs=True))
            handles.append(attention.norm_q.register_forward_hook(partial(injection.add, "query")))
            handles.append(attention.norm_k.register_forward_hook(partial(injection.add, "key")))
        return handles


class _Injection:
    """Adds to queries and keys between their norm and RoPE what is meant to be added after RoPE: turned back by it."""

    def __init__(self, adapter: SCoPE, layer: Any):
        self.adapter, self.layer = adapter, layer
        self.added: dict[str, Tensor] = {}

    def prepare(self, attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.adapter._idle:
            return
        tokens = first_argument(args, kwargs)
        condition = self.adapter._condition(tokens, self.layer.alpha_q)
        assert condition.features is not None
        share = self.adapter._share(tokens, condition)
        rays = condition.features if share is None else condition.features[:, share.part]
        turns = args[3] if len(args) > 3 else kwargs["rotary_emb"]
        self.added = {name: turned_back(added[:, 0], *turns) for name, added in zip(("query", "key"), self.layer(rays))}

    def add(self, name: str, norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        added = self.added.pop(name, None)
        return output if added is None else output + added.to(output.dtype)


def turned_back(
    x: Tensor,  # (batch, tokens, width)
    cosine: Tensor,  # (1, tokens, 1, head_dim), each number twice in a row
    sine: Tensor,  # (1, tokens, 1, head_dim)
) -> Tensor:
    """What diffusers' RoPE for Wan turns into x; it turns channels 2 i and 2 i + 1 of a head together."""
    first, second = x.unflatten(-1, (-1, cosine.shape[-1] // 2, 2)).unbind(-1)
    cosine, sine = cosine[..., 0::2], sine[..., 1::2]
    return torch.stack([first * cosine + second * sine, second * cosine - first * sine], dim=-1).flatten(2)


def is_released(folder: Path) -> bool:
    """Whether a folder holds an expert of the released weights."""
    for file in folder.glob("*.safetensors"):
        try:
            with safe_open(file, framework="pt") as tensors:
                if any(".plucker_pe." in name for name in tensors.keys()):  # noqa: SIM118
                    return True
        except SafetensorError:
            return False
    return False


def read_released(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of a `SCoPE`, and of the layers of diffusers' transformer that were trained along, by their names."""
    added, tuned, unexpected = {}, {}, []
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                match = RELEASED_NAME.fullmatch(name)
                if match and match[2]:
                    added[f"blocks.{match[1]}.{match[2]}"] = tensors.get_tensor(name)
                elif match and match[3] in TUNED_NAMES:
                    tuned[f"blocks.{match[1]}.{TUNED_NAMES[match[3]]}.{match[4]}"] = tensors.get_tensor(name)
                elif not BASE_NAME.match(name):
                    unexpected.append(name)
    if unexpected or "blocks.0.norm_pe_q.weight" not in added:
        raise ValueError(f"{folder} holds no released SCoPE: {listed('unexpected', unexpected)}")
    return added, tuned
