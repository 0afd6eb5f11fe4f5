"""The Wan CameraCtrl baseline: a Plücker video, convolved to tokens and added to the embedded video."""

from __future__ import annotations

from typing import Any, cast

import torch
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter, absolute_poses
from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of
from ucpe.adapters.initialisation import zeroed
from ucpe.encodings import plucker_rays
from ucpe.trajectories import Trajectory

PLUCKER_CHANNELS = 6
"""Direction and moment of a ray."""


class CameraCtrl(Adapter):
    """Wan CameraCtrl with rays of any lens; the whole transformer is trained along.

    Poses are relative to the first frame; with `orientation`, they are gravity-aligned with the first yaw at zero.
    Every pixel of every video frame has its ray: `encode` keeps 6 numbers for each.
    """

    tunes_transformer = True

    @register_to_config
    def __init__(
        self,
        width: int = 1536,
        num_blocks: int = 30,
        orientation: bool = False,
        backbone: str = "WanTransformer3DModel",
        patch_size: tuple[int, int, int] = (1, 2, 2),
        temporal_stride: int = 4,
        spatial_stride: int = 8,
    ):
        super().__init__()
        frames, rows, columns = patch_size
        channels = PLUCKER_CHANNELS * temporal_stride * frames * spatial_stride**2
        self.pixel_unshuffle = nn.PixelUnshuffle(spatial_stride)
        self.conv = zeroed(nn.Conv2d(channels, width, kernel_size=(rows, columns), stride=(rows, columns)))
        self.residual_block = ResidualBlock(width)

    def tuned_parameters(self, transformer: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """All of the transformer."""
        return list(backbone_of(transformer).transformer.named_parameters())

    def forward(
        self,
        packed: Tensor,  # (batch, frames, channels, height, width)
    ) -> Tensor:
        """What the camera adds to the embedded video (batch, tokens, width)."""
        images = packed.flatten(0, 1).to(self.conv.weight.dtype)
        features = self.residual_block(self.conv(self.pixel_unshuffle(images)))
        return features.unflatten(0, packed.shape[:2]).permute(0, 1, 3, 4, 2).flatten(1, 3)

    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """Plücker video (frames, channels, height, width) with the video frames of a token as channels.

        The first frame stands alone in a video autoencoder's latents; it is repeated to fill its token.
        """
        camera = absolute_poses(camera, self.config["orientation"])
        plucker = plucker_rays(camera.lens, camera.c2w, height, width).movedim(-1, 1)
        together = self.config["temporal_stride"] * self.config["patch_size"][0]
        missing = grid.frames * together - len(plucker)
        plucker = torch.cat([plucker[:1].expand(missing, -1, -1, -1), plucker])
        return {"features": plucker.unflatten(0, (grid.frames, together)).flatten(1, 2)}

    def _hook(self, backbone: Backbone) -> list[Any]:
        def add(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            condition = self._condition(output, self.conv.weight)
            features = self.forward(cast(Tensor, condition.features))
            return backbone.add_to_embedding(output, features.to(output.dtype))

        return [backbone.embedding.register_forward_hook(add)]


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside the identity, the second from zero."""

    def __init__(self, width: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, kernel_size=3, padding=1)
        self.conv2 = zeroed(nn.Conv2d(width, width, kernel_size=3, padding=1))

    def forward(
        self,
        features: Tensor,  # (batch, width, rows, columns)
    ) -> Tensor:
        """Features (batch, width, rows, columns) refined over neighbouring tokens."""
        return features + self.conv2(self.conv1(features).relu())
