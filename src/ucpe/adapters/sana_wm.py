"""SANA-WM's own camera branch, driven by any lens."""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch
from diffusers import __version__ as diffusers_version
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter, read_tuned
from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of, first_argument
from ucpe.encodings import Operator, lat_up_map, plucker_rays, ray_frames
from ucpe.lenses import UCM, Pinhole
from ucpe.trajectories import Trajectory

BRANCH = ("_cam.", "plucker_")
"""Parts of the names of the camera branch's parameters in diffusers' `SanaWMTransformer3DModel`."""

CAMERA_ARGUMENTS = ("camera_conditions", "cam_pos_embeds", "chunk_plucker")
"""Arguments of the transformer's `forward` through which it takes its cameras."""

RAYMAP_CHANNELS = 20
"""Numbers of a pinhole camera, which the transformer asks for and does not read where it is given ray matrices."""


FRAMES_AT_ONCE = 64
"""Frames whose rays are computed together: a minute of video then costs as much a frame as a second."""


class SanaWMCamera(Adapter):
    """Cameras of any lens for SANA-WM, which has a UCPE branch of its own but fixes its lens to a pinhole.

    Has no weights. Every call gets the ray transforms of its tokens, and the Plücker rays of all video frames (or the
    Lat-Up map, in a model configured without them), from our lenses: what it would compute itself from a pinhole. Like
    there, poses are relative to the first frame, so the world frame is free, and rays start at the top left corner of
    their token. Tokens without a ray take no part in the camera branch. With `trained`, the branch's weights are
    trained, saved with this adapter and put in place by `attach`.
    """

    @register_to_config
    def __init__(
        self,
        width: int = 2240,
        num_blocks: int = 20,
        backbone: str = "SanaWMTransformer3DModel",
        patch_size: tuple[int, int, int] = (1, 1, 1),
        temporal_stride: int = 8,
        spatial_stride: int = 32,
        plucker: bool = True,
        trained: bool = False,
    ):
        super().__init__()

    @property
    def tunes_transformer(self) -> bool:  # type: ignore[override]
        """Whether the branch is trained."""
        return self.config["trained"]

    @classmethod
    def for_transformer(cls, transformer: nn.Module, **options: Any) -> SanaWMCamera:
        """The cameras of a SANA-WM transformer; takes the options of the constructor."""
        config = backbone_of(transformer).transformer.config
        plucker = getattr(config, "use_chunk_plucker_post_attn", True)
        return super().for_transformer(transformer, **{"plucker": plucker, **options})

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **kwargs: Any) -> SanaWMCamera:  # type: ignore[override]
        """Read the cameras of a SANA-WM, with its branch if that was trained, from a directory or the hub."""
        config: Any = cls.load_config(name, **kwargs)
        adapter: Any = cls.from_config(config)
        if adapter.config["trained"]:
            adapter._tuned = read_tuned(name, kwargs)
        return adapter

    def tuned_parameters(self, transformer: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """The camera branch, if it is trained: projections, norms and convolutions, and what embeds the camera."""
        if not self.config["trained"]:
            return []
        parts = BRANCH if self.config["plucker"] else (*BRANCH, "raymap_embedder.")
        named = backbone_of(transformer).transformer.named_parameters()
        return [(name, value) for name, value in named if any(part in name for part in parts)]

    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """Rays of a clip as SANA-WM takes them, and its Plücker images or Lat-Up map."""
        camera = camera.relative_to_first()
        latent = self._token_cameras(camera)
        rows, columns = (size // self.config["spatial_stride"] for size in (height, width))
        if self.config["plucker"]:
            features = chunked_plucker(camera, self.config["temporal_stride"], rows, columns)
        else:
            features = _lat_up(latent, rows, columns)
        return {"operator": ray_operator(latent, grid.rows, grid.columns), "features": features}

    def _check_fit(self, backbone: Backbone) -> None:
        super()._check_fit(backbone)
        missing = [name for name in CAMERA_ARGUMENTS if name not in _arguments(backbone.transformer)]
        missing += [
            f"blocks[{index}].attn.cam_attn(token_valid_mask=)"
            for index, block in enumerate(backbone.blocks)
            if "token_valid_mask" not in _arguments(getattr(backbone.attention(block), "cam_attn", None))
        ]
        if missing:
            raise ValueError(
                f"diffusers {diffusers_version} has another SANA-WM than the 0.42 that this is written for: "
                f"{', '.join(missing[:3])} moved; install diffusers 0.42"
            )

    def _hook(self, backbone: Backbone) -> list[Any]:
        branches: list[Any] = [backbone.attention(block).cam_attn for block in backbone.blocks]
        return [
            backbone.transformer.register_forward_pre_hook(self._give_camera, with_kwargs=True),
            *(branch.register_forward_pre_hook(self._leave_out, with_kwargs=True) for branch in branches),
        ]

    def _give_camera(self, transformer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The transformer's arguments with our cameras in place of those it was called with, in its own dtype."""
        if self._idle:
            return None
        tokens = first_argument(args, kwargs)
        condition = self._condition(tokens, tokens)
        assert condition.operator is not None and condition.features is not None
        kind = {"dtype": transformer.dtype}
        features = condition.features.to(**kind)
        camera = {
            "camera_conditions": features.new_zeros(condition.batch, condition.grid.frames, RAYMAP_CHANNELS),
            "cam_pos_embeds": {
                "absmap": features,
                "P": condition.operator.blocks.to(**kind),
                "P_inv": condition.operator.inverse.to(**kind),
            },
            "chunk_plucker": features if self.config["plucker"] else None,
        }
        return args, {**kwargs, **camera}

    def _leave_out(self, branch: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Arguments of a block's camera attention, with tokens that have no ray left out of it."""
        if self._idle:
            return None
        query = args[0]
        operator = self._condition(query, query).operator
        assert operator is not None
        if operator.valid is None:
            return None
        valid = operator.valid.to(query.dtype)
        given = kwargs.get("token_valid_mask")
        return args, {**kwargs, "token_valid_mask": valid if given is None else given * valid}


def ray_operator(camera: Trajectory, rows: int, columns: int) -> Operator:
    """Transforms between the world and the ray of every token, all frames of a trajectory in turn."""
    frames = ray_frames(camera.lens, camera.c2w, rows, columns, position="corner")
    valid = None if frames.valid.all() else frames.valid.flatten()
    blocks, inverse = (t.flatten(0, 2).float() for t in (frames.world_to_ray, frames.ray_to_world))
    return Operator(blocks, inverse, head_dim=4, valid=valid)


def chunked_plucker(camera: Trajectory, stride: int, rows: int, columns: int) -> Tensor:
    """Plücker rays (6 stride, latent frames, rows, columns) of the video frames that end at each latent frame.

    The first latent frame, with no frames before it, gets those that follow; as in SANA-WM.
    """
    parts = [camera[start : start + FRAMES_AT_ONCE] for start in range(0, len(camera), FRAMES_AT_ONCE)]
    rays = torch.cat([plucker_rays(part.lens, part.c2w, rows, columns, position="corner") for part in parts])
    starts = (torch.arange(0, len(camera), stride) - (stride - 1)).clamp(min=0)
    frames = (starts[:, None] + torch.arange(stride)).clamp(max=len(camera) - 1)
    return rays[frames].permute(1, 4, 0, 2, 3).flatten(0, 1)


def _lat_up(camera: Trajectory, rows: int, columns: int) -> Tensor:
    """Lat-Up map (3, latent frames, rows, columns) of latent pixels; of UCM lenses with SANA-WM's own Up map."""
    released = isinstance(camera.lens, UCM | Pinhole)
    chart = lat_up_map(camera.lens, camera.c2w, rows, columns, position="corner", released_up=released)
    return chart.movedim(-1, 0)


def _arguments(module: nn.Module | None) -> Any:
    return () if module is None else inspect.signature(module.forward).parameters
