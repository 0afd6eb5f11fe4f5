"""The checkpoint layout of the paper's released code, read and written."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ucpe.adapters.attachment import check_weights, listed
from ucpe.files import atomic_file
from ucpe.reading import check_archive

if TYPE_CHECKING:
    from ucpe.adapters.camera_adapter import CameraAdapter

RELEASED_NAME = re.compile(r"pipe\.dit\.blocks\.(\d+)\.cam_self_attn\.(\w+\.(?:weight|bias))")
"""Name of a released weight: its block, and its name within the branch."""

BASE_NAME = re.compile(r"pipe\.dit\.(?!.*cam_self_attn)")
"""How the name of a weight of the base model starts, in a checkpoint of the whole model."""

RELEASED_GEOMETRY = {
    "token_position": "corner",
    "up_map": "released",
    "mask_invalid": False,
    "dark_token_world": "gravity",
}
"""What the released weights were trained with: tokens at their top left corner, an Up map slightly off, no mask, and
the gravity-aligned world also without Lat-Up."""

HEAD_DIM = 128
"""Channels of a head of every Wan transformer."""


def read_released(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Constructor options and weights of a `CameraAdapter` from a released checkpoint."""
    state = _read_state(Path(path))
    base = [name for name in state if BASE_NAME.match(name)]
    state = {name: value for name, value in state.items() if not BASE_NAME.match(name)}
    matches = {name: RELEASED_NAME.fullmatch(name) for name in state}
    weights = {f"blocks.{int(m[1])}.{m[2]}": state[name] for name, m in matches.items() if m}
    unexpected = [name for name, match in matches.items() if not match]
    first = next((weights[name] for name in weights if name.endswith(".q_proj.weight")), None)
    if first is None or first.ndim != 2:
        found = listed("unexpected", unexpected) if unexpected or not base else listed("weights of a base model", base)
        raise ValueError(f"{path} is no released camera adapter: {found}")
    if base:
        warnings.warn(
            f"{path} holds a whole model: {len(weights)} weights of the adapter used, {len(base)} others left"
        )
    inner, width = first.shape
    blocks = 1 + max(int(match[1]) for match in matches.values() if match)
    if not inner or not width or blocks > len(weights):
        raise ValueError(
            f"{path} is no released camera adapter: {len(weights)} weights for {blocks} blocks, the first of shape "
            f"{tuple(first.shape)}"
        )
    compression = max(1, width // inner)
    options = {
        "width": width,
        "num_blocks": blocks,
        "base_heads": width // HEAD_DIM,
        "compression": compression,
        "orientation": any(".cam_encoder." in name for name in weights),
        **RELEASED_GEOMETRY,
    }
    heads = max(1, width // HEAD_DIM // compression)
    if inner % heads == 0:
        options |= {"heads": heads, "head_dim": inner // heads}
    return options, weights | {name: state[name] for name in unexpected}


def load_released(adapter: CameraAdapter, weights: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Copy released weights into an adapter, or raise naming what is missing, unexpected or of another shape."""
    expected = adapter.state_dict()
    reshaped = [
        f"{name}: {tuple(weights[name].shape)}, expected {tuple(value.shape)}"
        for name, value in expected.items()
        if name in weights and weights[name].shape != value.shape
    ]
    missing, unexpected = expected.keys() - weights.keys(), weights.keys() - expected.keys()
    if missing or unexpected or reshaped:
        raise ValueError(
            f"{path} does not fit a camera adapter of {adapter.config['num_blocks']} blocks: "
            f"{listed('missing', missing)}; {listed('unexpected', unexpected)}; {listed('of another shape', reshaped)}"
        )
    check_weights(weights, path)
    adapter.load_state_dict(weights)


def write_released(adapter: CameraAdapter, path: str | os.PathLike[str]) -> None:
    """Write an adapter as a checkpoint that the released code loads."""
    for name, value in RELEASED_GEOMETRY.items():
        if adapter.config[name] != value:
            warnings.warn(
                f"this adapter was made with {name}={adapter.config[name]!r}, the released code runs it with {value!r}"
            )
    state = {}
    for name, value in adapter.state_dict().items():
        blocks, index, rest = name.split(".", 2)
        state[f"pipe.dit.{blocks}.{index}.cam_self_attn.{rest}"] = value.detach().cpu().contiguous()
    with atomic_file(Path(path)) as file:
        torch.save(state, file)


def _read_state(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return load_file(path)
    if zipfile.is_zipfile(path):
        check_archive(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} holds more than weights, or is damaged, and was not loaded: {error}") from None
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise ValueError(f"{path} holds no state dict of named tensors")
    for name, value in state.items():
        if value.layout is not torch.strided or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise ValueError(f"{path}: {name} promises {tuple(value.shape)}, more numbers than the file holds")
    return state
