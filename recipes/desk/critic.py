"""A small network that tells true pictures from restored ones, so that a decoder draws edges instead of averages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

FINE_GAIN = 4.0
"""Factor of fine detail, which is weak beside the picture and is what a blurred one lacks."""


class Critic(nn.Module):
    """Judges patches of two consecutive frames, beside what is fine in the second of them."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128)):
        super().__init__()
        layers: list[nn.Module] = []
        channels = 9
        for width in widths:
            layers.append(spectral_norm(nn.Conv2d(channels, width, 4, stride=2, padding=1)))
            channels = width
        self.layers = nn.ModuleList(layers)
        self.verdict = spectral_norm(nn.Conv2d(channels, 1, 3, padding=1))

    def forward(
        self,
        clips: Tensor,  # (B, 3, N, H, W) in [-1, 1], N > 1
    ) -> tuple[Tensor, list[Tensor]]:
        """Verdicts (B * (N - 1), 1, h, w), larger for true, and the features that led to them."""
        before, now = (part.transpose(1, 2).flatten(0, 1) for part in (clips[:, :, :-1], clips[:, :, 1:]))
        smooth = functional.avg_pool2d(now, 5, stride=1, padding=2, count_include_pad=False)
        hidden = torch.cat([before, now, FINE_GAIN * (now - smooth)], dim=1)
        features = []
        for layer in self.layers:
            hidden = functional.leaky_relu(layer(hidden), 0.2)
            features.append(hidden)
        return self.verdict(hidden), features

    def loss(self, made: Tensor, true: Tensor) -> Tensor:
        """Hinge loss of telling true clips from made ones."""
        return functional.relu(1 - self(true)[0]).mean() + functional.relu(1 + self(made.detach())[0]).mean()

    def objection(self, made: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        """How easily made clips are told, and how far their features are from those of the true ones."""
        verdict, features = self(made)
        with torch.no_grad():
            _, wanted = self(true)
        distances = [functional.l1_loss(feature, target) for feature, target in zip(features, wanted)]
        return -verdict.mean(), torch.stack(distances).mean()


def balance(loss: Tensor, objection: Tensor, last: Any) -> Tensor:
    """Factor that gives an objection as large a gradient at the decoder's last weights as the loss has."""
    ours, theirs = (torch.autograd.grad(value, last, retain_graph=True)[0].norm() for value in (loss, objection))
    return (ours / (theirs + 1e-6)).clamp(max=1e3).detach()
