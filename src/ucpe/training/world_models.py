"""SANA-WM in training: how its transformer is called, and its captions encoded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ucpe.training.denoiser import Batch, Denoiser, PromptEncoder


class WorldModelDenoiser(Denoiser):
    """SANA-WM with its own camera branch: a timestep per latent frame, and text with a mask of where it ends."""

    concatenates_image = False

    def _predict(self, noisy: Tensor, text: Tensor, batch: Batch) -> Tensor:
        """Velocity (B, C, F, h, w) of noisy latents under text (B, L, D), zero behind its end."""
        return self.transformer(
            hidden_states=noisy,
            timestep=batch.level[:, :, :, 0, 0] * self.train_timesteps,
            encoder_hidden_states=text[:, None],
            mask=(text != 0).any(-1),
            return_dict=False,
        )[0]


class WorldModelPromptEncoder(PromptEncoder):
    """Captions to embeddings (B, tokens, D), exactly as SANA-WM's pipeline does; the empty one as its negative."""

    def __init__(self, tokenizer: Any, text_encoder: nn.Module, tokens: int):
        from diffusers import SanaWMPipeline

        self.tokenizer, self.text_encoder, self.tokens = tokenizer, text_encoder, tokens
        parts: dict[str, Any] = dict.fromkeys(("vae", "transformer", "scheduler"))
        self.pipe: Any = SanaWMPipeline(tokenizer=tokenizer, text_encoder=text_encoder, **parts)  # type: ignore[arg-type]

    def __call__(self, captions: list[str]) -> Tensor:
        """Embeddings of some captions, zero behind their ends."""
        from diffusers.pipelines.sana_wm.pipeline_sana_wm import DEFAULT_CHI_PROMPT

        encoded = []
        for caption in captions:
            text, mask, silence, silent_mask = self.pipe.encode_prompt(
                caption,
                device=self.text_encoder.device,
                max_sequence_length=self.tokens,
                chi_prompt=DEFAULT_CHI_PROMPT,
            )
            chosen = (text, mask) if caption else (silence, silent_mask)
            encoded.append(chosen[0][:, 0] * chosen[1][..., None])
        return torch.cat(encoded)
