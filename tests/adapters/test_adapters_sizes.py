"""Full-size models on the meta device: the paper's parameter column to the last digit."""

import pytest
import torch

from ucpe.adapters import CameraAdapter, CameraCtrl, ReCamMaster
from ucpe.adapters.sizes import PRESETS, adapter_sizes, preset_transformer

EXACT = {
    "UCPE 1/8, no Lat-Up": 35_452_800,
    "UCPE 1/8": 35_637_120,
    "UCPE 1/2": 141_857_280,
    "UCPE 1/4": 71_043_840,
    "UCPE 1/12": 23_834_880,
    "Pre-Attn 1/8": 35_637_120,
    "Post-Attn 1/8": 35_637_120,
    "PRoPE 1/8": 35_637_120,
    "GTA 1/8": 35_637_120,
    "ReCamMaster": 354_908_160,
    "Wan CameraCtrl": 1_470_905_920,
}


@pytest.fixture(scope="module")
def wan():
    return preset_transformer("wan2.1-1.3b")


def test_exact_counts_of_the_paper(wan):
    assert sum(p.numel() for p in wan.parameters()) == 1_418_996_800
    assert {size.name: size.trained for size in adapter_sizes(wan)} == EXACT


def test_heads_of_the_paper(wan):
    heads = {size.name: size.heads for size in adapter_sizes(wan)}
    assert [heads[f"UCPE 1/{c}"] for c in (2, 4, 8, 12)] == ["128 x 6", "128 x 3", "192 x 1", "128 x 1"]


@pytest.mark.parametrize(
    ("preset", "kind"),
    [*((preset, CameraAdapter) for preset in PRESETS), ("wan2.1-1.3b", ReCamMaster), ("wan2.2-ti2v-5b", CameraCtrl)],
)
def test_full_size_models_attach_on_meta(preset, kind, make_cameras):
    """Published sizes run on the meta device, from encoded cameras to the output, with the right shapes."""
    with torch.device("meta"):
        transformer = preset_transformer(preset)
        adapter = kind.for_transformer(transformer).attach(transformer)
    stride = adapter.config.spatial_stride
    assert stride == (16 if preset == "wan2.2-ti2v-5b" else 8)
    config = transformer.config
    condition = adapter.encode(make_cameras(5)[:1], height=4 * stride, width=6 * stride)
    latents = torch.empty(1, config.in_channels, 2, 4, 6, device="meta")
    text = torch.empty(1, 512, config.text_dim, device="meta")
    image = torch.empty(1, 257, config.image_dim, device="meta") if config.image_dim else None
    with torch.no_grad(), adapter.camera(condition):
        output = transformer(latents, torch.empty(1, device="meta"), text, image, return_dict=False)[0]
    assert output.shape == (1, config.out_channels, 2, 4, 6)
