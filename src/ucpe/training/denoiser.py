"""The module that training wraps: transformer, adapter and text encoder, from a noisy batch to a velocity."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from ucpe.adapters import Adapter, CameraCondition


@dataclass(frozen=True)
class Batch:
    """Clips of one forward pass, with their noise."""

    latents: Tensor  # (B, C, F, h, w)
    noise: Tensor  # (B, C, F, h, w)
    level: Tensor  # (B, 1, F, 1, 1) in 0..1, zero where the frame is given
    text: Tensor | list[str]  # (B, L, D), or captions for a text encoder that runs along
    condition: CameraCondition | None = None
    visible: Tensor | None = None  # (B, 1, F, h, w) bool, where the lens sees anything; None for everywhere
    image: Tensor | None = None  # (B, C', F, h, w), first frames to concatenate (Wan2.1 I2V)
    image_embeds: Tensor | None = None  # (B, L', D'), first frames as CLIP sees them

    @property
    def noisy(self) -> Tensor:
        """Latents (B, C, F, h, w) with the noise mixed in."""
        return (1 - self.level) * self.latents + self.level * self.noise

    @property
    def velocity(self) -> Tensor:
        """What the model should predict, (B, C, F, h, w)."""
        return self.noise - self.latents

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in held.items() if isinstance(value, Tensor | CameraCondition)
        }
        return replace(self, **moved)


class Denoiser(nn.Module):
    """A Wan transformer with an adapter attached to it and, if captions are not encoded ahead, its text encoder.

    Calls take one `Batch`: wrappers that cast or scatter the arguments of a call (DDP, FSDP) leave it alone, so that
    noise levels keep their precision.
    """

    def __init__(
        self,
        transformer: nn.Module,
        adapter: Adapter | None = None,
        prompts: PromptEncoder | None = None,
        expand_timesteps: bool = False,
        train_timesteps: int = 1000,
    ):
        super().__init__()
        self.adapter = adapter
        self.transformer: Any = transformer
        self.text_encoder = None if prompts is None else prompts.text_encoder
        self.prompts = prompts
        self.expand_timesteps = expand_timesteps
        """One timestep per token, as Wan2.2 TI2V takes them; a given first frame has timestep 0."""
        self.train_timesteps = train_timesteps
        if adapter is not None:
            adapter.attach(transformer)

    @property
    def concatenates_image(self) -> bool:
        """Whether the first frame comes as channels beside the latents (Wan2.1 I2V)."""
        return self.transformer.config.in_channels != self.transformer.config.out_channels

    def set_trainable(self, train_base: bool) -> None:
        """Turn on gradients (in float32) for exactly the parameters that a recipe trains."""
        self.requires_grad_(train_base)
        if not train_base:
            assert self.adapter is not None
            self.adapter.set_trainable(self.transformer)
        for parameter in self.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters that require gradients, by name."""
        return {name: parameter for name, parameter in self.named_parameters() if parameter.requires_grad}

    def forward(self, batch: Batch) -> Tensor:
        """Predicted velocity (B, C, F, h, w)."""
        noisy = batch.noisy if batch.image is None else torch.cat([batch.noisy, batch.image], dim=1)
        text = batch.text
        if isinstance(text, list):
            assert self.prompts is not None
            text = self.prompts(text)
        steered = nullcontext() if self.adapter is None else self.adapter.camera(batch.condition)  # type: ignore[arg-type]
        with steered:
            return self._predict(noisy, text, batch)

    def _predict(self, noisy: Tensor, text: Tensor, batch: Batch) -> Tensor:
        """Velocity (B, C, F, h, w) of noisy latents under text (B, L, D), zero behind its end."""
        return self.transformer(
            hidden_states=noisy,
            timestep=self._timestep(batch),
            encoder_hidden_states=text,
            encoder_hidden_states_image=batch.image_embeds,
            return_dict=False,
        )[0]

    def _timestep(self, batch: Batch) -> Tensor:
        """Timesteps (B,), or (B, tokens) for a model that takes one per token."""
        if not self.expand_timesteps:
            return batch.level.amax(dim=(1, 2, 3, 4)) * self.train_timesteps
        temporal, *patch = self.transformer.config.patch_size
        rows, columns = (size // step for size, step in zip(batch.latents.shape[3:], patch))
        per_frame = batch.level[:, 0, ::temporal, 0, 0] * self.train_timesteps
        return per_frame.repeat_interleave(rows * columns, dim=1)


class PromptEncoder:
    """Captions to embeddings (B, tokens, D), exactly as Wan's pipelines do."""

    def __init__(self, tokenizer: Any, text_encoder: nn.Module, tokens: int):
        from diffusers import WanPipeline

        self.tokenizer, self.text_encoder, self.tokens = tokenizer, text_encoder, tokens
        self.pipe: Any = WanPipeline(tokenizer=tokenizer, text_encoder=text_encoder, vae=None, scheduler=None)

    def __call__(self, captions: list[str]) -> Tensor:
        """Embeddings of some captions, zero behind their ends."""
        return self.pipe.encode_prompt(captions, do_classifier_free_guidance=False, max_sequence_length=self.tokens)[0]
