"""How large adapters are beside the models they steer: the paper's parameter column, computed."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from ucpe.adapters.attachment import Adapter
from ucpe.adapters.camera_adapter import CameraAdapter
from ucpe.adapters.cameractrl import CameraCtrl
from ucpe.adapters.recammaster import ReCamMaster

WAN_LARGE = {"num_attention_heads": 40, "attention_head_dim": 128, "ffn_dim": 13824, "num_layers": 40}

PRESETS: dict[str, dict[str, Any]] = {
    "wan2.1-1.3b": {"num_attention_heads": 12, "attention_head_dim": 128, "ffn_dim": 8960, "num_layers": 30},
    "wan2.1-14b": WAN_LARGE,
    "wan2.1-i2v-14b": WAN_LARGE | {"in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 5120},
    "wan2.2-ti2v-5b": {
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "ffn_dim": 14336,
        "num_layers": 30,
        "in_channels": 48,
        "out_channels": 48,
    },
}
"""Published transformers, as arguments of diffusers' WanTransformer3DModel."""

PAPER_PIPELINE = 7.3e9
"""Parameters of the paper's base model: text encoder, transformer (wan2.1-1.3b) and autoencoder."""

PAPER_ROWS: list[tuple[str, type[Adapter], dict[str, Any], str]] = [
    ("UCPE 1/8, no Lat-Up", CameraAdapter, {"orientation": False}, "35.5M"),
    ("UCPE 1/8", CameraAdapter, {}, "35.6M"),
    ("UCPE 1/2", CameraAdapter, {"compression": 2}, "141M"),
    ("UCPE 1/4", CameraAdapter, {"compression": 4}, "71.0M"),
    ("UCPE 1/12", CameraAdapter, {"compression": 12}, "23.8M"),
    ("Pre-Attn 1/8", CameraAdapter, {"placement": "pre"}, "35.6M"),
    ("Post-Attn 1/8", CameraAdapter, {"placement": "post"}, "35.6M"),
    ("PRoPE 1/8", CameraAdapter, {"encoding": "prope"}, "35.6M"),
    ("GTA 1/8", CameraAdapter, {"encoding": "gta"}, "35.6M"),
    ("ReCamMaster", ReCamMaster, {}, "354M"),
    ("Wan CameraCtrl", CameraCtrl, {}, "1.5B"),
]
"""Rows of the paper's parameter column: name, class, options, what the paper prints."""


class AdapterSize(NamedTuple):
    """Trained parameters of one configuration."""

    name: str
    heads: str
    trained: int
    paper: str


def preset_transformer(name: str) -> nn.Module:
    """A published transformer at full size without memory, on torch's meta device."""
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    with torch.device("meta"):
        return WanTransformer3DModel(**PRESETS[name])


def adapter_sizes(transformer: nn.Module) -> list[AdapterSize]:
    """Trained parameters of every configuration of the paper on a transformer (which may be on the meta device)."""
    sizes = []
    for name, kind, options, paper in PAPER_ROWS:
        with torch.device("meta"):
            adapter = kind.for_transformer(transformer, **options)
        heads = f"{adapter.head_dim} x {adapter.heads}" if isinstance(adapter, CameraAdapter) else ""
        trained = sum(parameter.numel() for parameter in adapter.trainable_parameters(transformer))
        sizes.append(AdapterSize(name, heads, trained, paper))
    return sizes
