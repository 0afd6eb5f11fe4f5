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
