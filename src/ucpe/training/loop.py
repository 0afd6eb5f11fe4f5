"""The training loop: one recipe, a model, encoded clips; killed at any step it continues bit for bit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ucpe.adapters.attachment import Adapter
from ucpe.training.checkpoints import load_state, save_state
from ucpe.training.data import Source, pick
from ucpe.training.objective import denoising_loss
from ucpe.training.recipes import Recipe

HIGH_NOISE = 0.8
"""Noise level from which on the camera, not the picture, decides what is predicted."""

Report = Callable[[int, dict[str, float]], None]
EncodeText = Callable[[list[str]], Tensor]


@dataclass
class Trainable:
    """The parts of a model that a training run needs."""

    transformer: nn.Module
    encode_text: EncodeText  # captions -> (B, L, D)
    adapter: Adapter | None = None
    text_encoder: nn.Module | None = None
    """Only when it is trained too."""
    per_token_timesteps: bool = False
    """The transformer takes one timestep per token (Wan2.2 TI2V), so a first frame can be given."""


def train(
    recipe: Recipe, model: Trainable, clips: Source, output: Path, report: Report, validation: Source | None = None
) -> None:
    """Train by the recipe, continuing from the newest checkpoint in `output`."""
    accelerator = Accelerator(
        mixed_precision=recipe.precision,
        gradient_accumulation_steps=_accumulation(recipe),
        cpu=not torch.cuda.is_available(),
    )
    modules = _trained_modules(recipe, model)
    bundle = nn.ModuleDict(modules)
    parameters = [parameter for parameter in _parameters(recipe, model) if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay
    )
    averaged = [parameter.detach().clone() for parameter in parameters] if recipe.ema else None
    output.mkdir(parents=True, exist_ok=True)
    (output / "recipe.json").write_text(json.dumps(asdict(recipe), indent=2))
    start = 0
    if state := load_state(output / "checkpoints"):
        bundle.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        averaged, start = state["averaged"], state["step"]
    optimizer = accelerator.prepare(optimizer)
    if recipe.gradient_checkpointing:
        model.transformer.enable_gradient_checkpointing()  # type: ignore[operator]

    began = time.monotonic()
    for step in range(start, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(recipe, step)
        loss = _step(recipe, model, clips, step, accelerator)
        if not math.isfinite(loss):
            raise ValueError(f"loss is {loss} at step {step}; the last checkpoint in {output} is intact")
        norm = accelerator.clip_grad_norm_(parameters, recipe.gradient_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if averaged is not None:
            decay = min(recipe.ema, (step + 1) / (step + 10))
            torch._foreach_lerp_(averaged, [parameter.detach() for parameter in parameters], 1 - decay)
        numbers = {"loss": loss, "gradient": float(norm), "seconds": (time.monotonic() - began) / (step + 1 - start)}
        finished = step + 1 == recipe.steps
        if validation is not None and ((step + 1) % recipe.validate_every == 0 or finished):
            numbers.update(_with_average(parameters, averaged, lambda: validate(recipe, model, validation)))
        report(step, numbers)
        if (step + 1) % recipe.checkpoint_every == 0 or finished:
            state = {"model": bundle.state_dict(), "optimizer": optimizer.state_dict(), "averaged": averaged}
            if accelerator.is_main_process:
                save_state(output / "checkpoints", step + 1, state)
    if averaged is not None:
        for parameter, value in zip(parameters, averaged):
            parameter.data.copy_(value)


def predict(
    model: Trainable,
    latents: Tensor,  # (B, C, F, h, w)
    text: Tensor,  # (B, L, D)
    condition: Any,
    level: Tensor,  # (B, 1, F, 1, 1)
    timesteps: int,
) -> Tensor:
    """The model's velocity (B, C, F, h, w) for noisy latents at the given noise levels."""
    if model.per_token_timesteps:
        _, rows, columns = (
            size // patch for size, patch in zip(latents.shape[2:], model.transformer.config.patch_size)
        )
        per_frame = level[:, 0, :, 0, 0] * timesteps
        timestep = per_frame.repeat_interleave(rows * columns, dim=1)
    else:
        timestep = level.amax(dim=(1, 2, 3, 4)) * timesteps
    if model.adapter is None:
        return model.transformer(latents, timestep, text, return_dict=False)[0]
    with model.adapter.camera(condition):
        return model.transformer(latents, timestep, text, return_dict=False)[0]


@torch.no_grad()
def validate(recipe: Recipe, model: Trainable, clips: Source) -> dict[str, float]:
    """Loss on fixed clips and noise, per lens family, overall and at high noise."""
    count = min(recipe.validation_clips, len(clips))
    losses: dict[str, list[float]] = {}
    for start in range(0, count, recipe.micro_batch):
        indices = list(range(start, min(start + recipe.micro_batch, count)))
        latents, captions, cameras = pick(clips, indices)
        text = model.encode_text(captions)
        condition = _condition(recipe, model, cameras)
        for level_value in (0.3, 0.6, 0.85, 0.95):
            generator = torch.Generator().manual_seed(recipe.seed + 77 + start)
            noise = torch.randn(latents.shape, generator=generator)
            level = torch.full((len(indices), 1, latents.shape[2], 1, 1), level_value)
            noisy = recipe.objective.noisy(latents, noise, level)
            prediction = predict(model, noisy, text, condition, level, recipe.objective.train_timesteps)
            errors = (prediction.float() - (noise - latents)).square().mean(dim=(1, 2, 3, 4)).tolist()
            for index, error in zip(indices, errors):
                losses.setdefault("all", []).append(error)
                losses.setdefault(clips[index].family, []).append(error)
                if level_value >= HIGH_NOISE:
                    losses.setdefault("high-noise", []).append(error)
    return {f"validation/{name}": sum(values) / len(values) for name, values in losses.items()}


def _step(recipe: Recipe, model: Trainable, clips: Source, step: int, accelerator: Accelerator) -> float:
    """Accumulate the gradient of one step over micro batches; everything random follows from the step's number."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
    chosen = torch.randint(len(clips), (recipe.batch,), generator=generator).tolist()
    latents, captions, cameras = pick(clips, chosen)
    noise = torch.randn(latents.shape, generator=generator)
    level = (
        recipe.objective.sample(recipe.batch, generator).reshape(-1, 1, 1, 1, 1).repeat(1, 1, latents.shape[2], 1, 1)
    )
    given = torch.rand(recipe.batch, generator=generator) < recipe.first_frame
    level[given, :, 0] = 0
    silent = torch.rand(recipe.batch, generator=generator) < recipe.drop_text
    captions = ["" if quiet else caption for caption, quiet in zip(captions, silent)]
    mine = range(
        accelerator.process_index * recipe.micro_batch, recipe.batch, accelerator.num_processes * recipe.micro_batch
    )
    total = 0.0
    for start in mine:
        part = slice(start, start + recipe.micro_batch)
        noisy = recipe.objective.noisy(latents[part], noise[part], level[part]).to(accelerator.device)
        text = model.encode_text(captions[part])
        with accelerator.autocast():
            prediction = predict(
                model, noisy, text, _condition(recipe, model, cameras[part]), level[part].to(accelerator.device),
                recipe.objective.train_timesteps,
            )  # fmt: skip
        losses = denoising_loss(
            prediction, latents[part].to(prediction.device), noise[part].to(prediction.device),
            level[part].to(prediction.device), recipe.objective,
        )  # fmt: skip
        loss = losses.sum() / recipe.batch
        loss.backward()
        total += loss.item()
    if accelerator.num_processes > 1:
        for parameter in _parameters(recipe, model):
            if parameter.grad is not None:
                parameter.grad.copy_(accelerator.reduce(parameter.grad, reduction="sum"))
        total = float(accelerator.reduce(torch.tensor(total, device=accelerator.device), reduction="sum"))
    return total


def _condition(recipe: Recipe, model: Trainable, cameras: list[Any]) -> Any:
    return None if model.adapter is None else model.adapter.encode(cameras, recipe.height, recipe.width)


def _trained_modules(recipe: Recipe, model: Trainable) -> dict[str, nn.Module]:
    modules: dict[str, nn.Module] = {}
    if model.adapter is not None:
        modules["adapter"] = model.adapter
    tunes = recipe.train_base or (model.adapter is not None and model.adapter.tuned_parameters(model.transformer))
    if tunes:
        modules["transformer"] = model.transformer
    if recipe.train_base and model.text_encoder is not None:
        modules["text_encoder"] = model.text_encoder
    return modules


def _parameters(recipe: Recipe, model: Trainable) -> list[nn.Parameter]:
    if recipe.train_base:
        return [parameter for module in _trained_modules(recipe, model).values() for parameter in module.parameters()]
    if model.adapter is None:
        raise ValueError(f"recipe {recipe.name} trains neither the base nor an adapter")
    return model.adapter.trainable_parameters(model.transformer)


def _accumulation(recipe: Recipe) -> int:
    return max(1, recipe.batch // recipe.micro_batch)


def _schedule(recipe: Recipe, step: int) -> float:
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return warm * (recipe.final_learning_rate + (1 - recipe.final_learning_rate) * cosine)


def _with_average(
    parameters: list[nn.Parameter], averaged: list[Tensor] | None, measure: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """A measurement with the averaged weights in place of the current ones."""
    if averaged is None:
        return measure()
    current = [parameter.detach().clone() for parameter in parameters]
    for parameter, value in zip(parameters, averaged):
        parameter.data.copy_(value)
    result = measure()
    for parameter, value in zip(parameters, current):
        parameter.data.copy_(value)
    return result
