"""How much memory a recipe needs, before anything is downloaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ucpe.adapters import Backbone, backbone_of
from ucpe.lenses import UCM
from ucpe.training.base_models import DTYPES, build_denoiser, sized_transformer
from ucpe.training.denoiser import Batch, Denoiser
from ucpe.training.recipes import Recipe
from ucpe.trajectories import Trajectory


@dataclass(frozen=True)
class Memory:
    """Bytes on each device, of one process that holds everything."""

    trained_parameters: int
    frozen_parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all."""
        return self.weights + self.gradients + self.optimizer + self.activations


def estimate_memory(recipe: Recipe) -> Memory:
    """Memory of one training process: weights counted exactly, activations measured on one block and scaled up.

    Leaves out what the allocator and libraries take, usually 1 to 3 GB on a GPU.
    """
    with torch.device("meta"):
        model = build_denoiser(recipe, sized_transformer(recipe))
    trained = sum(parameter.numel() for parameter in model.trained_parameters().values())
    frozen = sum(parameter.numel() for parameter in model.parameters()) - trained
    return Memory(
        trained_parameters=trained,
        frozen_parameters=frozen,
        weights=4 * trained + DTYPES[recipe.precision].itemsize * frozen,
        gradients=4 * trained,
        optimizer=(12 if recipe.ema else 8) * trained,
        activations=activation_bytes(recipe),
    )


def activation_bytes(recipe: Recipe) -> int:
    """Bytes kept for the backward pass of `micro_batch` clips, at the peak.

    What a block keeps is linear in the tokens, so it is measured with few of them, on weights that are not loaded.
    With gradient checkpointing every block keeps its input, and one block at a time all that it needs.
    """
    with torch.device("meta"):
        backbone = backbone_of(sized_transformer(recipe))
    layers, width = len(backbone.blocks), backbone.width
    tokens = _tokens(recipe, backbone)
    fixed, per_token = _line(recipe, 1)
    if recipe.gradient_checkpointing:
        return int(layers * tokens * width * DTYPES[recipe.precision].itemsize + fixed + per_token * tokens)
    two_fixed, two_per_token = _line(recipe, 2)
    fixed += (layers - 1) * (two_fixed - fixed)
    per_token += (layers - 1) * (two_per_token - per_token)
    return int(fixed + per_token * tokens)


def saved_bytes(model: Denoiser, batch: Batch, precision: str = "no") -> int:
    """Bytes of activations that a forward pass keeps for the backward pass, each storage once."""
    storages: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    autocast = torch.autocast("cpu", DTYPES[precision], enabled=precision != "no")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
        model(batch)
    return sum(storages.values())


def example_batch(recipe: Recipe, model: Denoiser, frames: int, height: int, width: int) -> Batch:
    """A batch of zeros with a resting camera, for a video of `micro_batch` clips of that many pixels."""
    config, backbone = model.transformer.config, backbone_of(model.transformer)
    clips, stride = recipe.micro_batch, backbone.spatial_stride
    size = ((frames - 1) // backbone.temporal_stride + 1, height // stride, width // stride)
    channels = config.get("out_channels", config.in_channels)
    latents = torch.zeros(clips, channels, *size)
    camera = Trajectory(torch.eye(4, dtype=torch.float64).repeat(frames, 1, 1), UCM(xfov=100.0, xi=0.0))
    extra = config.in_channels - channels
    text_width = config.get("text_dim", config.get("caption_channels"))
    image_width = config.get("image_dim")
    return Batch(
        latents,
        latents.clone(),
        torch.full((clips, 1, size[0], 1, 1), 0.5),
        torch.ones(clips, recipe.text_tokens, text_width),
        None if model.adapter is None else model.adapter.encode([camera] * clips, height, width),
        image=torch.zeros(clips, extra, *size) if extra else None,
        image_embeds=torch.zeros(clips, 257, image_width) if image_width else None,
    )


def _line(recipe: Recipe, layers: int) -> tuple[float, float]:
    """Bytes that a transformer of few blocks keeps: a fixed part, and bytes per token."""
    recipe = replace(recipe, gradient_checkpointing=False, micro_batch=1, frames=1)
    with torch.device("meta"):
        model = build_denoiser(recipe, sized_transformer(recipe, num_layers=layers))
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(DTYPES[recipe.precision])
    model.to_empty(device="cpu")
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor) and value.is_meta:  # a table that is no buffer, as SANA-WM's rotary embedding
                setattr(module, name, torch.ones_like(value, device="cpu"))
    points = []
    backbone = backbone_of(model.transformer)
    for rows in (2, 4):
        sized = replace(recipe, height=rows * _token_pixels(backbone)[0], width=4 * _token_pixels(backbone)[1])
        batch = example_batch(sized, model, 1, sized.height, sized.width)
        tokens = _tokens(sized, backbone)
        points.append((tokens, saved_bytes(model, batch, recipe.precision)))
    (few, less), (many, more) = points
    per_token = (more - less) / (many - few)
    return less - per_token * few, per_token


def _tokens(recipe: Recipe, backbone: Backbone) -> int:
    """Tokens of a forward pass."""
    rows, columns = _token_pixels(backbone)
    frames = ((recipe.frames - 1) // backbone.temporal_stride + 1) // backbone.patch_size[0]
    return recipe.micro_batch * frames * (recipe.height // rows) * (recipe.width // columns)


def _token_pixels(backbone: Backbone) -> tuple[int, int]:
    """Height and width of a token, pixels of the video."""
    _, rows, columns = backbone.patch_size
    return backbone.spatial_stride * rows, backbone.spatial_stride * columns
