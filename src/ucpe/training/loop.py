"""The training loop: one recipe, a model, encoded clips; killed at any step it continues bit for bit."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import ProjectConfiguration
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader

from ucpe.files import write_file
from ucpe.training.checkpoints import gather_state, load_checkpoint, restore_state, save_checkpoint
from ucpe.training.denoiser import Batch, Denoiser
from ucpe.training.encoded import EncodedClips
from ucpe.training.objective import denoising_loss
from ucpe.training.progress import CURVE_FILE, Curve
from ucpe.training.recipes import Recipe
from ucpe.training.steps import TrainingSteps, plan_step
from ucpe.training.validation import validate
from ucpe.work import OutOfTime, progress_bar

CHECKPOINTS = "checkpoints"
RECIPE_FILE = "recipe.json"

Sampler = Callable[[int, Denoiser], None]
"""Called after a validation with the step and the model, its averaged weights in place: writes sample videos."""


ADJUSTABLE = (
    *("steps", "first_frame", "micro_batch", "workers", "checkpoint_every", "validate_every", "validation_clips"),
    *("samples", "sample_steps", "sample_guidance"),
)
"""Fields of a recipe that may differ when a run is continued."""


def make_accelerator(recipe: Recipe, output: Path, tracker: str | None = None) -> Accelerator:
    """accelerate for a recipe: one process, or as `accelerate launch` (DDP, FSDP) or `torchrun` set it up."""
    return Accelerator(
        mixed_precision=recipe.precision,
        cpu=not torch.accelerator.is_available(),
        log_with=tracker,
        project_config=ProjectConfiguration(str(output), logging_dir=str(output / "logs")),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=24))],
        step_scheduler_with_optimizer=False,
    )


def train(
    recipe: Recipe,
    model: Denoiser,
    clips: EncodedClips,
    output: Path,
    *,
    validation: EncodedClips | None = None,
    accelerator: Accelerator | None = None,
    sample: Sampler | None = None,
    quiet: bool = False,
    goes_on: Callable[[], bool] = lambda: True,
) -> Denoiser:
    """Train by the recipe, continuing from the newest checkpoint in `output`; returns the model as it should be used.

    Writes recipe.json, metrics.jsonl and checkpoints. A loss that is not a number and a full disk end the run with
    its state kept. A given accelerator is the caller's to end. `goes_on` is asked after every step (and must answer
    alike in all processes); when it says no, the state is kept and `ucpe.work.OutOfTime` raised.
    """
    own = accelerator is None
    accelerator = accelerator or make_accelerator(recipe, output)
    main = accelerator.is_main_process
    if main:
        start_folder(recipe, output)
    steps = TrainingSteps(
        recipe, clips, model.adapter, model.expand_timesteps, accelerator.process_index, accelerator.num_processes
    )
    optimizer = torch.optim.AdamW(
        model.trained_parameters().values(),
        lr=recipe.learning_rate,
        betas=recipe.betas,
        weight_decay=recipe.weight_decay,
    )
    model.train()
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    parameters = model.trained_parameters()
    averaged = {name: value.detach().clone() for name, value in parameters.items()} if recipe.ema else None
    state_of = getattr(optimizer, "optimizer", optimizer)
    start = 0
    if checkpoint := load_checkpoint(output / CHECKPOINTS):
        restore_state(checkpoint, parameters, state_of, averaged)
        start = checkpoint.step
    del checkpoint

    def keep(step: int) -> None:
        state = gather_state(parameters, state_of, averaged, keep=main)
        if main:
            save_checkpoint(output / CHECKPOINTS, step, state)
        accelerator.wait_for_everyone()

    curve = Curve(output / CURVE_FILE, start) if main else None
    start_trackers(accelerator, recipe, start)
    loader = DataLoader(steps, batch_size=None, sampler=range(start, recipe.steps), num_workers=recipe.workers)
    shown = main and not quiet
    with progress_bar(pace=True, shown=shown) as show:
        show(recipe.name, start, recipe.steps)
        began = time.monotonic()
        for step, batches in zip(range(start, recipe.steps), loader):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * schedule(recipe, step)
            loss = accumulate(recipe, wrapped, batches, accelerator)
            norm = float(accelerator.clip_grad_norm_(parameters.values(), recipe.gradient_clip))
            if not (math.isfinite(loss) and math.isfinite(norm)):
                keep(step)
                raise ValueError(_not_finite(recipe, clips, model, step, loss, norm, output))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done = step + 1
            if averaged is not None:
                decay = min(recipe.ema, done / (done + 9))
                weights = [parameters[name].detach() for name in averaged]
                torch._foreach_lerp_(list(averaged.values()), weights, 1 - decay)
            numbers = {"loss": loss, "gradient": norm, "learning_rate": optimizer.param_groups[0]["lr"]}
            if validation is not None and (done % recipe.validate_every == 0 or done == recipe.steps):
                with swapped(model, parameters, averaged):
                    given_is_clean = model.expand_timesteps
                    numbers |= validate(recipe, wrapped, model.adapter, validation, accelerator, given_is_clean)
                    if sample is not None and main:
                        sample(done, model)
                if shown:
                    words = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
                    print(f"step {done}: {words}", file=sys.stderr, flush=True)
            seconds = time.monotonic() - began
            began = time.monotonic()
            if curve is not None:
                curve.add(step, {**numbers, "seconds": round(seconds, 3)})
            accelerator.log({**numbers, "seconds": seconds}, step=step)
            show(recipe.name, done, recipe.steps, f"loss {loss:.4f}")
            stops = done < recipe.steps and not goes_on()
            if done % recipe.checkpoint_every == 0 or done == recipe.steps or stops:
                keep(done)
            if stops:
                raise OutOfTime(f"{recipe.name} after {done} of {recipe.steps} steps")
    if curve is not None:
        curve.close()
    if averaged is not None:
        _copy(averaged, parameters)
    if own:
        accelerator.end_training()
    return model


def accumulate(recipe: Recipe, model: nn.Module, batches: list[Batch], accelerator: Accelerator) -> float:
    """Add up the gradient of one step over passes and processes; returns its loss over the whole batch."""
    total = torch.zeros((), device=accelerator.device)
    for index, batch in enumerate(batches):
        batch = batch.to(accelerator.device)
        last = index == len(batches) - 1
        with nullcontext() if last else accelerator.no_sync(model), fast_attention(accelerator.device):
            losses = denoising_loss(model(batch), batch.velocity, batch.level, recipe.objective, batch.visible)
            loss = losses.sum() / recipe.batch
            accelerator.backward(loss * accelerator.num_processes)  # processes average their gradients
        total += loss.detach()
    return float(accelerator.reduce(total, reduction="sum"))


def fast_attention(device: torch.device) -> AbstractContextManager[None]:
    """Attention whose gradient is fast: on CPUs torch's fused kernel takes twice as long going backwards in bf16."""
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()


def schedule(recipe: Recipe, step: int) -> float:
    """Share of the learning rate at a step: a linear rise, then a cosine to its final share."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
    return warm * (recipe.final_learning_rate + (1 - recipe.final_learning_rate) * cosine)


def start_folder(recipe: Recipe, output: Path) -> None:
    """Write the recipe of a new run, or check that a run to be continued has the same."""
    path = output / RECIPE_FILE
    fresh = json.loads(json.dumps(asdict(recipe)))
    if path.exists():
        before = json.loads(path.read_text())
        names = [field.name for field in fields(recipe) if field.name not in ADJUSTABLE]
        different = [name for name in names if before.get(name) != fresh[name]]
        if different:
            changes = ", ".join(f"{name} {before.get(name)} (now {fresh[name]})" for name in different)
            raise ValueError(f"{output} holds a run with another recipe: {changes}; choose another folder")
    write_file(path, json.dumps(fresh, indent=2) + "\n")


def start_trackers(accelerator: Accelerator, recipe: Recipe, start: int) -> None:
    """Begin logging, with TensorBoard forgetting the steps that will be done again."""
    flat: dict[str, Any] = {}
    for name, value in asdict(recipe).items():
        nested = value if isinstance(value, dict) else {name: value}
        flat |= {key: item if isinstance(item, int | float | str | bool) else str(item) for key, item in nested.items()}
    accelerator.init_trackers("ucpe", flat, {"tensorboard": {"purge_step": start}})


@contextmanager
def swapped(
    model: nn.Module, parameters: Mapping[str, Tensor], averaged: Mapping[str, Tensor] | None
) -> Iterator[None]:
    """Have the averaged weights in place of the current ones for a while, for passes without gradients."""
    current = {} if averaged is None else {name: value.detach().clone() for name, value in parameters.items()}
    _copy(averaged or {}, parameters)
    try:
        yield
    finally:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # a pass without a backward pass leaves whole weights, which would go stale
        _copy(current, parameters)


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, value in source.items():
        target[name].copy_(value)


def _not_finite(
    recipe: Recipe, clips: EncodedClips, model: Denoiser, step: int, loss: float, norm: float, output: Path
) -> str:
    plan = plan_step(recipe, step, len(clips), clips.latent_shape, model.expand_timesteps)
    names = sorted({str(clips.source.clip(clips.numbers[index]).pictures) for index in plan.clips})
    return (
        f"at step {step} the loss is {loss} and the gradient's norm {norm}. The state before that step is kept in "
        f"{output / CHECKPOINTS}. The clips of the step were {'; '.join(names)}. If one of them is damaged, leave it "
        "out; otherwise train into another folder with a lower learning_rate or gradient_clip."
    )
