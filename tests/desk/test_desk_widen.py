import json

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from recipes.desk.principal_encoder import fit_encoder
from recipes.desk.widen import Options, widen, widen_decoder

from ucpe import CameraPipeline
from ucpe.desk import WEIGHTS
from ucpe.desk.clips import load_shard, render_shard
from ucpe.desk.model import autoencoder_config
from ucpe.training.encoded import encode_video, to_model_range


def fitted(video: torch.Tensor, channels: int, **sizes) -> AutoencoderKLWan:
    """An autoencoder with the principal components of videos (B, 3, N, H, W) and a random decoder."""
    torch.manual_seed(channels)
    model = AutoencoderKLWan(**autoencoder_config(channels=channels, **sizes))
    fit_encoder(model, video)
    return model.eval()


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    render_shard(0, 0, folder, samples=1, style="plain", clips=6)
    return folder


@torch.no_grad()
def test_a_wider_autoencoder_decodes_as_the_narrower_one_did(clips):
    video = to_model_range(load_shard(clips / "clips-00000.safetensors").video)[..., :32, :48]
    sizes = {"base_dim": 16, "decoder_base_dim": 8}
    narrow, wide = fitted(video, 8, **sizes), fitted(video, 16, **sizes)
    widen_decoder(narrow, wide, video)
    before, after = (model.decode(model.encode(video).latent_dist.mode()).sample for model in (narrow, wide))
    assert (after - before).square().mean() < 0.05 * before.var()  # latents agree to a hundredth of their variance


@pytest.mark.slow
@torch.no_grad()
def test_a_widened_model_sees_in_new_latents_what_it_saw_in_its_own(clips, tmp_path):
    video = to_model_range(load_shard(clips / "clips-00000.safetensors").video)
    wider = fitted(video, 64, base_dim=45)
    wider.register_to_config(latents_std=[wider.encode(video).latent_dist.mode().std().item()] * 64)
    wider.save_pretrained(tmp_path / "vae")
    widen(Options(tmp_path / "vae", clips, tmp_path / "model"))
    folders = (WEIGHTS, tmp_path / "model")
    seen = []
    for folder in folders:
        vae = AutoencoderKLWan.from_pretrained(folder / "vae", torch_dtype=torch.float32)
        transformer = WanTransformer3DModel.from_pretrained(folder / "transformer", torch_dtype=torch.float32)
        seen.append(transformer.patch_embedding(encode_video(vae, video)))
    assert (seen[1] - seen[0]).square().mean() < 0.1 * seen[0].var()
    assert json.loads((tmp_path / "model" / "transformer" / "config.json").read_text())["in_channels"] == 64
    assert CameraPipeline.from_pretrained(tmp_path / "model").adapter.config["spatial_stride"] == 8
