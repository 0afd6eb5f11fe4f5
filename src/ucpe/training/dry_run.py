"""What a run would need, and whether its first batch works."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ucpe.training.base_models import BaseModel
from ucpe.training.clips import open_source
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.loop import accumulate, make_accelerator
from ucpe.training.memory import Memory, estimate_memory
from ucpe.training.recipes import Recipe
from ucpe.training.steps import TrainingSteps, draw_clips, planned_clips


@dataclass(frozen=True)
class DryRun:
    """What a run would need, and the numbers of its first batch where weights and clips are there."""

    recipe: Recipe
    memory: Memory
    checkpoint_bytes: int
    processes: int
    clips: int | None = None
    clips_to_encode: int | None = None
    loss: float | None = None
    gradient: float | None = None
    seconds: float | None = None
    problem: str | None = None
    """Why the first batch could not be checked."""

    @property
    def steps_per_epoch(self) -> float | None:
        """Steps after which every clip was drawn once on average."""
        return None if self.clips is None else self.clips / self.recipe.batch

    def lines(self) -> list[tuple[str, str]]:
        """Names and values to print."""
        memory, recipe = self.memory, self.recipe
        total = memory.trained_parameters + memory.frozen_parameters
        passes = recipe.batch // (recipe.micro_batch * self.processes)
        rows = [
            ("recipe", recipe.name),
            ("model", recipe.model),
            ("trainable parameters", f"{memory.trained_parameters:,} of {total:,}"),
            ("memory per process", f"{_gigabytes(memory.total)}, of which"),
            ("  weights", _gigabytes(memory.weights)),
            ("  gradients", _gigabytes(memory.gradients)),
            ("  optimizer", _gigabytes(memory.optimizer)),
            ("  activations", _gigabytes(memory.activations)),
            ("a checkpoint on disk", _gigabytes(self.checkpoint_bytes)),
            ("batch", f"{recipe.batch} = {self.processes} process(es) x {passes} pass(es) x {recipe.micro_batch}"),
        ]
        if self.clips is not None:
            rows.append(("clips", f"{self.clips:,}, {self.clips_to_encode:,} of those drawn not encoded yet"))
            rows.append(("steps per epoch", f"{self.steps_per_epoch:,.1f} of {recipe.steps:,} steps"))
        if self.problem is not None:
            rows.append(("first batch", f"not checked: {self.problem}"))
        else:
            rows.append(("first batch", f"loss {self.loss:.4f}, gradient {self.gradient:.4f}, {self.seconds:.1f} s"))
        return rows


def dry_run(recipe: Recipe, data: Path | None, output: Path, cache: Path | None = None) -> DryRun:
    """Size a run and check its first batch, forward and backward, as far as weights and clips are there."""
    memory = estimate_memory(recipe)
    tensors = 4 if recipe.ema else 3
    accelerator = make_accelerator(recipe, output)
    facts: dict[str, Any] = {
        "recipe": recipe,
        "memory": memory,
        "checkpoint_bytes": tensors * 4 * memory.trained_parameters,
        "processes": accelerator.num_processes,
    }
    if data is None:
        return DryRun(**facts, problem="no --data given")
    source = open_source(data)
    facts["clips"], facts["clips_to_encode"] = len(source), len(planned_clips(recipe, len(source)))
    try:
        model = BaseModel(recipe)
        clips = EncodedClips(source, model, cache or data / "encoded")
        planned = planned_clips(recipe, len(clips))
        facts["clips_to_encode"] = len(clips.missing_videos(planned))
        steps = TrainingSteps(recipe, clips, None, False, accelerator.process_index, accelerator.num_processes)
        drawn = draw_clips(recipe, 0, len(clips))
        if broken := encode_missing(clips, model, drawn, accelerator.device):
            return DryRun(**facts, problem="; ".join(broken.values()))
        denoiser = model.denoiser()
    except OSError as error:
        return DryRun(**facts, problem=str(error))
    steps.adapter, steps.expand_timesteps = denoiser.adapter, denoiser.expand_timesteps
    optimizer = torch.optim.AdamW(denoiser.trained_parameters().values(), lr=recipe.learning_rate)
    wrapped, optimizer = accelerator.prepare(denoiser, optimizer)
    began = time.monotonic()
    loss = accumulate(recipe, wrapped, steps[0], accelerator)
    norm = float(accelerator.clip_grad_norm_(denoiser.trained_parameters().values(), recipe.gradient_clip))
    return DryRun(**facts, loss=loss, gradient=norm, seconds=time.monotonic() - began)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
