import pytest
import torch
from diffusers import AutoencoderKLWan
from recipes.desk.whole_clips import decode_whole, encode_whole

from ucpe.desk.model import autoencoder_config


@pytest.mark.parametrize("frames", [1, 5, 17])
@pytest.mark.parametrize("patch", [None, 2])
def test_whole_clips_give_the_numbers_of_the_cached_passes(frames, patch):
    torch.manual_seed(0)
    config = autoencoder_config(base_dim=8, decoder_base_dim=8) | {"patch_size": patch}
    if patch is None:
        config |= {"in_channels": 3, "out_channels": 3}
    model = AutoencoderKLWan(**config).double()
    video = torch.rand(2, 3, frames, 16, 32, dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        expected = model.encode(video).latent_dist
        ours = encode_whole(model, video)
        torch.testing.assert_close(ours.parameters, expected.parameters, atol=1e-12, rtol=0)
        latents = 3 * torch.randn_like(expected.mean)
        decoded = decode_whole(model, latents)
        torch.testing.assert_close(decoded.clamp(-1, 1), model.decode(latents).sample, atol=1e-12, rtol=0)
        assert decoded.shape == video.shape
