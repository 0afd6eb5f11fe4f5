"""The ReCamMaster baseline: raw camera parameters added before self-attention, which is trained along."""

from __future__ import annotations

from functools import partial
from typing import Any

from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter, absolute_poses
from ucpe.adapters.backbones import (
    Backbone,
    TokenGrid,
    backbone_of,
    first_argument,
    with_first_argument,
    with_first_result,
)
from ucpe.adapters.initialisation import zeroed
from ucpe.encodings import raw_parameters
from ucpe.trajectories import Trajectory

CAMERA_PARAMETERS = 14
"""Rows of the 3 x 4 camera-to-world pose, xFoV / 180 degrees, xi."""


class ReCamMaster(Adapter):
    """ReCamMaster for any video transformer: a camera embedding before, a projector after every self-attention.

    Poses are relative to the first frame; with `orientation`, they are gravity-aligned with the first yaw at zero.
    Lenses must be UCM or pinhole: others have no xi (fit one with `lens.fit(UCM)`).
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
        self.blocks = nn.ModuleList(ReCamMasterBlock(width) for _ in range(num_blocks))

    def tuned_parameters(self, transformer: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """The transformer's self-attention layers."""
        backbone = backbone_of(transformer)
        tuned = {id(value) for block in backbone.blocks for value in backbone.attention(block).parameters()}
        return [(name, value) for name, value in backbone.transformer.named_parameters() if id(value) in tuned]

    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """Raw camera parameters of a clip, one row for every latent frame."""
        camera = self._token_cameras(absolute_poses(camera, self.config["orientation"]))
        return {"features": raw_parameters(camera.lens, camera.c2w, height, width)}

    def _hook(self, backbone: Backbone) -> list[Any]:
        handles = []
        for branch, block in zip(self.blocks, backbone.blocks):
            attention = backbone.attention(block)
            handles.append(attention.register_forward_pre_hook(partial(self._embed, branch), with_kwargs=True))
            handles.append(attention.register_forward_hook(partial(self._project, branch)))
        return handles

    def _embed(self, branch: Any, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tokens = first_argument(args, kwargs)
        condition = self._condition(tokens, branch.projector.weight)
        embedded = branch.embed(condition.features).repeat_interleave(condition.grid.rows * condition.grid.columns, 1)
        share = self._share(tokens, condition)
        embedded = embedded if share is None else embedded[:, share.part]
        return with_first_argument(args, kwargs, tokens + embedded.to(tokens.dtype))

    def _project(self, branch: Any, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        return with_first_result(output, branch.project)


class ReCamMasterBlock(nn.Module):
    """The layers of one block: a camera embedding from zero and a projector from the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.cam_encoder = zeroed(nn.Linear(CAMERA_PARAMETERS, width))
        self.projector = zeroed(nn.Linear(width, width))
        nn.init.eye_(self.projector.weight)

    def embed(
        self,
        parameters: Tensor,  # (batch, frames, 14)
    ) -> Tensor:
        """What every token of a frame gets before self-attention (batch, frames, width)."""
        return self.cam_encoder(parameters.to(self.cam_encoder.weight.dtype))

    def project(
        self,
        hidden_states: Tensor,  # (batch, tokens, width)
    ) -> Tensor:
        """The output of self-attention, projected (batch, tokens, width)."""
        return self.projector(hidden_states.to(self.projector.weight.dtype)).to(hidden_states.dtype)
