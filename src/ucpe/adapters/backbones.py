"""What adapters need to know of each family of video transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn


class TokenGrid(NamedTuple):
    """Video tokens of a call: how many frames, rows and columns."""

    frames: int
    rows: int
    columns: int


class Backbone(ABC):
    """One video transformer, seen through the few facts an adapter needs.

    Another family is a subclass that overrides where it differs, decorated with `register`. Its blocks must call their
    self-attention with the video tokens as the first argument (or `hidden_states`) and get them back as the result or
    the first of several.
    """

    transformer_class: str
    """Name of the diffusers class, by which the backbone is found."""

    temporal_stride = 4
    """Video frames per latent frame, after the first."""

    spatial_stride = 8
    """Video pixels per latent pixel."""

    block_list, patch_layer = "blocks", "patch_embedding"
    """Attributes of the transformer that hold its blocks, and the module that turns latents into tokens."""

    def __init__(self, transformer: Any):
        self.transformer = transformer

    @property
    def width(self) -> int:
        """Channels of a token."""
        config = self.transformer.config
        return config.num_attention_heads * config.attention_head_dim

    @property
    def heads(self) -> int:
        """Self-attention heads."""
        return self.transformer.config.num_attention_heads

    @property
    def patch_size(self) -> tuple[int, int, int]:
        """Latent frames, rows and columns of a token."""
        config = self.transformer.config
        if isinstance(config.patch_size, int):
            return (config.patch_size_t or 1, config.patch_size, config.patch_size)
        return tuple(config.patch_size)

    @property
    def blocks(self) -> nn.ModuleList:
        """The transformer's blocks, in order."""
        return getattr(self.transformer, self.block_list)

    @property
    def facts(self) -> dict[str, Any]:
        """What an adapter's configuration must say to fit this transformer."""
        sizes = {"width": self.width, "num_blocks": len(self.blocks), "patch_size": self.patch_size}
        return {"backbone": self.transformer_class, **sizes}

    @property
    def embedding(self) -> nn.Module:
        """The module that turns latents (and text, if it comes along) into tokens."""
        return getattr(self.transformer, self.patch_layer)

    def call_shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, TokenGrid]:
        """Batch size and token grid of a call with latents (batch, channels, frames, height, width)."""
        batch, _, *sizes = first_argument(args, kwargs).shape
        return batch, TokenGrid(*(size // patch for size, patch in zip(sizes, self.patch_size)))

    def add_to_embedding(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        """The output of `embedding` with `tokens` (batch, tokens, width) added to its video tokens."""
        return embedded + tokens

    def attention(self, block: Any) -> nn.Module:
        """Self-attention of a block."""
        return block.attn1

    @abstractmethod
    def after_attention(self, block: Any) -> tuple[nn.Module, nn.Module]:
        """Two modules that bracket what follows self-attention in a block: x + second(first(x)).

        A tensor is added to x itself by adding it to the first module's first argument and to the second module's
        (first) result.
        """


_BACKBONES: dict[str, type[Backbone]] = {}
"""Known backbones by the name of their transformer's class."""


def register(backbone: type[Backbone]) -> type[Backbone]:
    """Make a backbone known under its transformer's class name."""
    _BACKBONES[backbone.transformer_class] = backbone
    return backbone


def backbone_of(transformer: Any) -> Backbone:
    """The description of a transformer, found by its class or a base class of it."""
    transformer = getattr(transformer, "_orig_mod", transformer)
    for ancestor in type(transformer).__mro__:
        if ancestor.__name__ in _BACKBONES:
            return _BACKBONES[ancestor.__name__](transformer)
    raise ValueError(
        f"no camera adapter knows {type(transformer).__name__}; known transformers are {', '.join(_BACKBONES)} "
        "(describe another one with ucpe.adapters.backbones.register)"
    )


@register
class Wan(Backbone):
    """Wan2.1 T2V and I2V, Wan2.2 A14B and TI2V."""

    transformer_class = "WanTransformer3DModel"

    @property
    def spatial_stride(self) -> int:  # type: ignore[override]
        """Video pixels per latent pixel: 16 for the 48-channel latents of Wan2.2 TI2V, else 8."""
        return 16 if self.transformer.config.out_channels == 48 else 8

    def add_to_embedding(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Add tokens (batch, tokens, width) to the embedded video (batch, width, frames, rows, columns)."""
        return embedded + tokens.transpose(1, 2).unflatten(2, embedded.shape[2:])

    def after_attention(self, block: Any) -> tuple[nn.Module, nn.Module]:
        """The norm before cross-attention, and cross-attention."""
        return block.norm2, block.attn2


@register
class CogVideoX(Backbone):
    """CogVideoX 2B, 5B and 1.5: text tokens share self-attention with the video, and stay out of the camera branch."""

    transformer_class = "CogVideoXTransformer3DModel"
    block_list, patch_layer = "transformer_blocks", "patch_embed"

    def call_shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, TokenGrid]:
        """Batch size and token grid of a call with latents (batch, frames, channels, height, width)."""
        batch, frames, _, height, width = first_argument(args, kwargs).shape
        temporal, rows, columns = self.patch_size
        return batch, TokenGrid(-(-frames // temporal), height // rows, width // columns)

    def add_to_embedding(self, embedded: Tensor, tokens: Tensor) -> Tensor:
        """Add tokens (batch, tokens, width) to the video tokens, which come after the text."""
        return embedded + nn.functional.pad(tokens, (0, 0, embedded.shape[1] - tokens.shape[1], 0))

    def after_attention(self, block: Any) -> tuple[nn.Module, nn.Module]:
        """The norm before the feed-forward layer, and the end of the block."""
        return block.norm2, block


@register
class LTX(Backbone):
    """LTX-Video: latents arrive as a sequence of tokens, with their grid beside them."""

    transformer_class = "LTXVideoTransformer3DModel"
    temporal_stride = 8
    spatial_stride = 32
    block_list, patch_layer = "transformer_blocks", "proj_in"

    def call_shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, TokenGrid]:
        """Batch size and token grid of a call with latents (batch, tokens, channels) and their grid."""
        names = ("num_frames", "height", "width")
        sizes = [args[4 + i] if len(args) > 4 + i else kwargs[name] for i, name in enumerate(names)]
        batch = len(first_argument(args, kwargs))
        return batch, TokenGrid(*(size // patch for size, patch in zip(sizes, self.patch_size)))

    def after_attention(self, block: Any) -> tuple[nn.Module, nn.Module]:
        """Cross-attention, which has no norm before it."""
        return block.attn2, block.attn2


@register
class SanaWM(Backbone):
    """SANA-WM, whose own camera branch `SanaWMCamera` drives; other adapters may sit beside it."""

    transformer_class = "SanaWMTransformer3DModel"
    temporal_stride = 8
    spatial_stride = 32
    patch_layer = "x_embedder"

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.transformer.config.hidden_size

    @property
    def heads(self) -> int:
        """Self-attention heads."""
        return self.width // self.transformer.config.linear_head_dim

    def attention(self, block: Any) -> nn.Module:
        """Self-attention of a block."""
        return block.attn

    def after_attention(self, block: Any) -> tuple[nn.Module, nn.Module]:
        """Cross-attention, which has no norm before it."""
        return block.cross_attn, block.cross_attn


def first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states of a call, however they were passed."""
    return args[0] if args else kwargs["hidden_states"]


def with_first_result(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A module's output, or the first of several, changed by a function."""
    return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)


def with_first_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], value: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call with the hidden states replaced, however they were passed."""
    return ((value, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": value})
