"""A small transformer that sees two posed views and predicts a third, its training and its test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from ucpe.bench.camera_encodings import CameraEncoding, ModelShape, anchored, make_encoding, patches
from ucpe.bench.contestants import Contestant
from ucpe.bench.view_synthesis_data import Triples
from ucpe.lenses import Lens
from ucpe.trajectories.rotations import rotation_from_angles

GIVEN = 2
"""Views that the model sees; the last one is predicted."""

DESCRIBED_STEPS = 4
"""Steps whose clips are described to the encoding in one call: few, as rays of all pixels take much memory."""


@dataclass(frozen=True)
class Training:
    """How every contestant is trained."""

    steps: int = 800
    batch: int = 16
    clips: int = 12_000
    learning_rate: float = 2e-3
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises; afterwards it falls as a cosine to zero."""
    weight_decay: float = 0.01
    clip_gradient: float = 1.0


class Block(nn.Module):
    """Attention with normalised queries and keys, then two linear layers, each added to what comes in."""

    def __init__(self, shape: ModelShape):
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query_norm, self.key_norm = (nn.RMSNorm(shape.head_dim) for _ in range(2))
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self,
        tokens: Tensor,  # (B, tokens, width)
        attend: Callable[[Tensor, Tensor, Tensor], Tensor],
        kept: slice,
    ) -> Tensor:
        """Tokens after the block, only those in `kept`."""
        projected = self.query_key_value(self.attention_norm(tokens))
        query, key, value = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = attend(self.query_norm(query), self.key_norm(key), value).transpose(1, 2).flatten(2)
        tokens = tokens[:, kept] + self.output(attended[:, kept])
        return tokens + self.contract(gelu(self.expand(self.mlp_norm(tokens))))


class ViewSynthesisModel(nn.Module):
    """Patches of two views and empty tokens of a third -> pixels of the third."""

    def __init__(self, contestant: Contestant, seed: int = 0):
        super().__init__()
        self.shape = shape = ModelShape()
        pixels = 3 * shape.patch**2
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # what all contestants share comes first, so that they start alike
            self.embed = nn.Linear(pixels, shape.width)
            self.position = nn.Parameter(0.02 * torch.randn(shape.rows * shape.columns, shape.width))
            self.wanted = nn.Parameter(0.02 * torch.randn(shape.width))
            self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
            self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, pixels)
            self.encoding = make_encoding(contestant.name, shape)

    def forward(
        self,
        images: Tensor,  # (B, views, H, W, 3) in [-1, 1]; the last view is not looked at
        sees: Tensor,  # (B, tokens) bool, tokens with a ray
        description: dict[str, Tensor],
    ) -> Tensor:
        """Predicted last view (B, H, W, 3)."""
        shape, encoding = self.shape, self.encoding
        given = self.embed(patches(images[:, :GIVEN], shape)) + self.position
        wanted = (self.wanted + self.position).expand(len(images), shape.views - GIVEN, -1, -1)
        tokens = torch.cat([given, wanted], dim=1).flatten(1, 2)
        last = slice(GIVEN * shape.rows * shape.columns, None)
        mask = sees[:, None, None, :]
        for layer, block in enumerate(self.blocks):
            tokens = encoding.add(layer, tokens, description)
            attend = partial(encoding.attend, layer, description=description, mask=mask)
            tokens = block(tokens, attend, last if layer == shape.layers - 1 else slice(None))
        return unpatch(self.head(self.norm(tokens)), shape)


def unpatch(tokens: Tensor, shape: ModelShape) -> Tensor:
    """Tokens (..., rows * columns, 3 patch²) as images (..., H, W, 3)."""
    images = tokens.unflatten(-1, (shape.patch, shape.patch, 3)).unflatten(-4, (shape.rows, shape.columns))
    return images.transpose(-4, -3).flatten(-5, -4).flatten(-3, -2)


def train(
    contestant: Contestant, clips: Triples, settings: Training, seed: int
) -> tuple[ViewSynthesisModel, list[float]]:
    """A model trained from scratch, and its loss at every step.

    One seed means the same start and the same batches for every contestant.
    """
    model, losses = ViewSynthesisModel(contestant, seed), []
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_share(step, settings))
    for images, valid, sees, description in _batches(model, clips, settings, seed):
        predicted = model(images, sees, description)
        weight = valid[:, -1, ..., None].to(predicted)
        loss = ((predicted - images[:, -1]).square() * weight).sum() / (3 * weight.sum())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip_gradient)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return model.eval(), losses


@torch.no_grad()
def predict(
    model: ViewSynthesisModel,
    clips: Triples,
    lens: Lens | None = None,
    world: Tensor | None = None,  # (B, 4, 4)
    batch: int = 64,
) -> Tensor:
    """Predicted last views (B, H, W, 3) in [0, 1].

    `lens` is what the model is told if not the truth; `world` moves the cameras of each clip to another world frame,
    in which nobody anchors them.
    """
    results = []
    for start in range(0, len(clips), batch):
        part = clips[slice(start, start + batch)]
        told = part.lens if lens is None else lens
        poses = part.c2w if world is None else world[start : start + batch, None] @ part.c2w
        sees, description = describe(model.encoding, told, poses, model.shape, anchor=world is None)
        results.append(model(_normalised(part.images), sees, description))
    return ((torch.cat(results) + 1) / 2).clamp(0, 1)


def psnr(
    predicted: Tensor,  # (B, H, W, 3) in [0, 1]
    clips: Triples,
) -> Tensor:
    """PSNR in dB (B,) over the pixels of the last view that see something."""
    weight = clips.valid[:, -1, ..., None].double()
    error = (predicted.double() - clips.images[:, -1].double() / 255).square() * weight
    return -10 * torch.log10(error.sum((1, 2, 3)) / (3 * weight.sum((1, 2, 3))))


def error_map(
    predicted: Tensor,  # (B, H, W, 3) in [0, 1]
    clips: Triples,
) -> Tensor:
    """Mean squared error (H, W) of every pixel over the clips in which it sees something; NaN if in none."""
    weight = clips.valid[:, -1].double()
    error = (predicted.double() - clips.images[:, -1].double() / 255).square().mean(-1)
    return ((error * weight).sum(0) / weight.sum(0)).float()


def describe(
    encoding: CameraEncoding, lens: Lens, c2w: Tensor, shape: ModelShape, anchor: bool = True
) -> tuple[Tensor, dict[str, Tensor]]:
    """Which tokens (B, tokens) have a ray, and what the encoding says of the cameras."""
    sees = lens.rays(shape.rows, shape.columns).valid.expand(*c2w.shape[:2], shape.rows, shape.columns)
    return sees.flatten(1), encoding.describe(lens, anchored(c2w, encoding.anchor) if anchor else c2w)


def random_worlds(count: int, seed: int = 0) -> Tensor:
    """Changes of world frame (count, 4, 4) that keep gravity: any heading, origin about one near-plane depth away."""
    generator = np.random.default_rng([seed, 23])
    heading = torch.from_numpy(generator.uniform(-180, 180, size=count))
    world = torch.eye(4, dtype=torch.float64).repeat(count, 1, 1)
    world[:, :3, :3] = rotation_from_angles(torch.zeros_like(heading), heading, torch.zeros_like(heading))
    world[:, :3, 3] = torch.from_numpy(generator.normal(size=(count, 3)))
    return world


def learning_rate_share(step: int, settings: Training) -> float:
    """Share of the full learning rate at a step."""
    rise = max(1, round(settings.warmup * settings.steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, settings.steps - rise)))


def _batches(
    model: ViewSynthesisModel, clips: Triples, settings: Training, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]]:
    """Images, valid pixels, tokens with a ray and description of every step; each epoch in its own random order."""
    generator = torch.Generator().manual_seed(seed)
    wanted = settings.steps * settings.batch
    epochs = [torch.randperm(len(clips), generator=generator) for _ in range(-(-wanted // len(clips)))]
    for chunk in torch.cat(epochs)[:wanted].split(DESCRIBED_STEPS * settings.batch):
        part = clips[chunk]
        sees, description = describe(model.encoding, part.lens, part.c2w, model.shape)
        for start in range(0, len(chunk), settings.batch):
            now = slice(start, start + settings.batch)
            described = {name: tensor[now] for name, tensor in description.items()}
            yield _normalised(part.images[now]), part.valid[now], sees[now], described


def _normalised(images: Tensor) -> Tensor:
    return images.to(torch.get_default_dtype()) / 127.5 - 1
