import pytest
import torch
from diffusers import AutoencoderKLWan
from recipes.desk.principal_encoder import fit_encoder

from ucpe.desk.model import autoencoder_config


def smooth_clips(count: int, seed: int) -> torch.Tensor:
    """Random smooth pictures that drift, (B, 3, 9, 32, 32) in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, 5, 9, 9, generator=generator, dtype=torch.float64)
    return torch.nn.functional.interpolate(coarse, (9, 32, 32), mode="trilinear").tanh()


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    model = AutoencoderKLWan(**autoencoder_config(decoder_base_dim=8)).double()
    fit_encoder(model, smooth_clips(24, 0))
    return model


@torch.no_grad()
def best_linear_error(vectors: torch.Tensor, latents: torch.Tensor) -> float:
    """Mean square error of the best linear read-out of vectors (n, D) from latents (n, C)."""
    design = torch.cat([latents, torch.ones(len(latents), 1, dtype=latents.dtype)], dim=1)
    return float((vectors - design @ torch.linalg.lstsq(design, vectors).solution).square().mean())


@torch.no_grad()
def test_latents_keep_almost_what_the_best_linear_code_of_that_size_keeps(fitted):
    clips = smooth_clips(24, 1)
    latents = fitted.encode(clips).latent_dist.mode()[:, :, 1:].movedim(1, -1).flatten(0, -2)
    cells = clips[:, :, 1:].unfold(2, 4, 4).unfold(3, 8, 8).unfold(4, 8, 8).movedim(1, 4).flatten(4).flatten(0, 3)
    values = torch.linalg.eigvalsh(torch.cov(cells.T))
    optimum = float(values[:-16].sum() / cells.shape[1])
    assert best_linear_error(cells, latents) < 1.6 * optimum + 1e-4 * float(cells.var())


@torch.no_grad()
def test_a_still_picture_has_one_code_whatever_the_frame(fitted):
    still = smooth_clips(2, 2)[:, :, :1].repeat(1, 1, 9, 1, 1)
    latents = fitted.encode(still).latent_dist.mode()
    largest = latents.transpose(0, 1).flatten(1).std(dim=1).argsort(descending=True)[:4]
    expected = latents[:, largest, :1].expand(-1, -1, 3, -1, -1)
    torch.testing.assert_close(latents[:, largest], expected, atol=0.1, rtol=0.05)


def test_latents_have_about_unit_spread_and_coarse_channels_are_larger(fitted):
    with torch.no_grad():
        latents = fitted.encode(smooth_clips(24, 0)).latent_dist.mode()
    spread = latents.transpose(0, 1).flatten(1).std(dim=1)
    assert 0.7 < latents.std() < 1.3
    assert spread.argmax() == 0
    assert spread[0] > 1.3 * spread[-1]


@pytest.mark.parametrize("fields", [{"base_dim": 8}, {"dim_mult": (1, 2, 2)}])
def test_sizes_that_cannot_hold_the_components_are_refused(fields):
    model = AutoencoderKLWan(**autoencoder_config(decoder_base_dim=8, **fields))
    with pytest.raises(ValueError, match="at least"):
        fit_encoder(model, smooth_clips(2, 0).float())
