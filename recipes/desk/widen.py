"""Start a desk model for new latents from one that was trained on others.

    python -m recipes.desk.widen --autoencoder autoencoder/vae --data clips/ -o widened/

The old latents are regressed on the new ones and the other way round. Both maps go into the first and the last layer of
the transformer; all other weights stay, so what it knows of cameras and words does too. Likewise the decoder.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor

from ucpe.desk import WEIGHTS
from ucpe.desk.clips import load_shard, shard_paths
from ucpe.desk.model import transformer_config
from ucpe.training.encoded import encode_video, to_model_range

FITTED_CLIPS = 48


@dataclass
class Options:
    """Put other latents under a trained desk model."""

    autoencoder: Path
    """Folder of the new autoencoder."""
    data: Path
    """Folder of desk clips, on which both kinds of latents are compared."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the new pipeline."""
    model: Path = WEIGHTS
    """Folder of the trained pipeline."""


@torch.no_grad()
def widen(options: Options) -> None:
    """Write the pipeline, with an error of the latents that each map leaves."""
    from diffusers import AutoencoderKLWan, WanTransformer3DModel

    video = to_model_range(load_shard(shard_paths(options.data)[0]).video[:FITTED_CLIPS])
    kinds = (options.model / "vae", options.autoencoder)
    autoencoders: list[Any] = [AutoencoderKLWan.from_pretrained(folder, torch_dtype=torch.float32) for folder in kinds]
    old, new = (
        torch.cat([encode_video(vae, clip) for clip in video.split(8)]).transpose(0, 1).flatten(1).T
        for vae in autoencoders
    )
    trained: Any = WanTransformer3DModel.from_pretrained(options.model / "transformer", torch_dtype=torch.float32)
    made: Any = WanTransformer3DModel(**transformer_config(new.shape[1]))
    weights = trained.state_dict()
    inwards, offset = _regression(new, old)
    outwards, _ = _regression(old, new)
    first = weights["patch_embedding.weight"]  # (width, old, 1, 2, 2)
    weights["patch_embedding.weight"] = torch.einsum("woabc,on->wnabc", first, inwards)
    weights["patch_embedding.bias"] += torch.einsum("woabc,o->w", first, offset)
    for name in ("proj_out.weight", "proj_out.bias"):
        last = weights[name].unflatten(0, (-1, old.shape[1]))  # (places in a patch, old, ...)
        weights[name] = torch.einsum("po...,no->pn...", last, outwards).flatten(0, 1)
    made.load_state_dict(weights)
    made.save_pretrained(options.output / "transformer")
    widen_decoder(autoencoders[0], autoencoders[1], video)
    autoencoders[1].save_pretrained(options.output / "vae")
    for part in ("scheduler", "text_encoder", "tokenizer", "camera_adapter"):
        shutil.copytree(options.model / part, options.output / part, dirs_exist_ok=True)
    for file in ("model_index.json", "generation.json"):
        shutil.copy(options.model / file, options.output / file)


@torch.no_grad()
def widen_decoder(old: Any, new: Any, video: Tensor) -> None:
    """Give an autoencoder the decoder of another with fewer channels of latents, as `video` shows them."""
    raw = [
        torch.cat([vae.encode(clip).latent_dist.mode() for clip in video.split(8)]).transpose(0, 1).flatten(1).T
        for vae in (old, new)
    ]
    matrix, offset = _regression(raw[1], raw[0])
    weights = {name: value for name, value in old.state_dict().items() if name.startswith("decoder.")}
    channels, wider = old.config.z_dim, new.config.z_dim
    mixing = old.post_quant_conv.weight.flatten(1)  # (old, old)
    weights["post_quant_conv.weight"] = torch.eye(wider)
    weights["post_quant_conv.weight"][:channels] = mixing @ matrix
    weights["post_quant_conv.bias"] = torch.zeros(wider)
    weights["post_quant_conv.bias"][:channels] = mixing @ offset + old.post_quant_conv.bias
    weights["post_quant_conv.weight"] = weights["post_quant_conv.weight"].reshape(wider, wider, 1, 1, 1)
    first = weights["decoder.conv_in.weight"]
    weights["decoder.conv_in.weight"] = first.new_zeros(first.shape[0], wider, *first.shape[2:])
    weights["decoder.conv_in.weight"][:, :channels] = first
    new.load_state_dict({**new.state_dict(), **weights})


def _regression(
    given: Tensor,  # (M, C)
    wanted: Tensor,  # (M, D)
) -> tuple[Tensor, Tensor]:
    """Matrix (D, C) and offset (D,) of the best linear guess; prints what it leaves unexplained."""
    known = torch.cat([given, torch.ones_like(given[:, :1])], dim=1).double()
    solution = torch.linalg.lstsq(known, wanted.double()).solution  # (C + 1, D)
    left = (known @ solution - wanted).square().mean() / wanted.double().var(dim=0).mean()
    print(f"{given.shape[1]} -> {wanted.shape[1]} channels: {left:.1%} of the variance unexplained")
    return solution[:-1].T.float(), solution[-1].float()


if __name__ == "__main__":
    widen(tyro.cli(Options))
