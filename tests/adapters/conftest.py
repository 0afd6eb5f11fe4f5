from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from ucpe.lenses import UCM, KannalaBrandt, Pinhole
from ucpe.trajectories import Trajectory

torch.set_num_threads(1)

HEIGHT, WIDTH, FRAMES = 32, 48, 9


@dataclass
class Scene:
    """A tiny Wan, a batch of two clips for it, and two trajectories through different lenses."""

    transformer: nn.Module
    latents: Tensor
    cameras: list[Trajectory]
    timestep: Tensor = field(default_factory=lambda: torch.tensor([300, 700]))
    text: Tensor = field(default_factory=lambda: torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3)))

    size: ClassVar = {"height": HEIGHT, "width": WIDTH}

    def run(self, **kwargs):
        return self.transformer(self.latents, self.timestep, self.text, return_dict=False, **kwargs)[0]

    def steered(self, adapter, cameras=None):
        """Output under cameras, with the adapter attached to the transformer."""
        with adapter.camera(adapter.encode(cameras or self.cameras, **self.size)):
            return self.run()


def tiny_wan(**options):
    torch.manual_seed(0)
    sizes = {
        "num_attention_heads": 2,
        "attention_head_dim": 32,
        "in_channels": 4,
        "out_channels": 4,
        "text_dim": 8,
        "freq_dim": 8,
        "ffn_dim": 32,
        "num_layers": 2,
        "rope_max_seq_len": 32,
    }
    return WanTransformer3DModel(**{**sizes, **options}).eval()


def trajectories(frames=FRAMES):
    return [
        Trajectory.orbit(UCM(xfov=150, xi=1.2), degrees=40, frames=frames, pitch=-10, roll=5),
        Trajectory.pan(Pinhole(xfov=80), degrees=30, frames=frames, pitch=15),
    ]


@pytest.fixture
def make_wan():
    return tiny_wan


@pytest.fixture
def make_cameras():
    return trajectories


@pytest.fixture
def scene():
    torch.manual_seed(1)
    return Scene(tiny_wan(), torch.randn(2, 4, 3, HEIGHT // 8, WIDTH // 8), trajectories())


@pytest.fixture
def fisheye():
    """A lens whose image circle leaves corners without rays."""
    return UCM(xfov=200, xi=2.3)


@pytest.fixture
def other_model_lens():
    return KannalaBrandt(xfov=120, k1=0.02)


@pytest.fixture
def randomise():
    """Fill every parameter of a module with small random numbers, as if it had been trained."""

    def fill(module, scale=0.3):
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        return module

    return fill


def tiny_sana_wm(**options):
    """SANA-WM of the real class with two recurrent blocks and a softmax one, with weights that use every part."""
    from diffusers import SanaWMTransformer3DModel

    torch.manual_seed(0)
    sizes = {
        "in_channels": 4,
        "num_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "linear_head_dim": 32,
        "softmax_every_n": 3,
        "caption_channels": 8,
        "mlp_ratio": 1.0,
    }
    model = SanaWMTransformer3DModel(**{**sizes, **options}).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(("A_log", "dt_bias")):
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model


@dataclass
class WorldModelScene:
    """A tiny SANA-WM, two clips of 17 frames for it, and two trajectories through different lenses."""

    transformer: nn.Module
    latents: Tensor
    cameras: list[Trajectory]
    timestep: Tensor = field(default_factory=lambda: torch.tensor([[[0.0, 300, 300]], [[0.0, 700, 700]]]))
    text: Tensor = field(default_factory=lambda: torch.randn(2, 1, 5, 8, generator=torch.Generator().manual_seed(3)))

    size: ClassVar = {"height": 128, "width": 192}

    def run(self, **camera):
        mask = torch.ones(len(self.text), 5)
        return self.transformer(self.latents, self.timestep, self.text, mask=mask, return_dict=False, **camera)[0]

    def steered(self, adapter, cameras=None):
        """Output under cameras, with the adapter attached to the transformer."""
        with adapter.camera(adapter.encode(cameras or self.cameras, **self.size)):
            return self.run()


@pytest.fixture
def make_sana_wm():
    return tiny_sana_wm


@pytest.fixture
def world_model():
    pytest.importorskip("diffusers.models.transformers.transformer_sana_wm")
    torch.manual_seed(1)
    return WorldModelScene(tiny_sana_wm(), torch.randn(2, 4, 3, 4, 6), trajectories(17))
