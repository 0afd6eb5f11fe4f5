"""What each training step sees: everything random follows from the seed and the step's number alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ucpe.adapters import Adapter
from ucpe.training.denoiser import Batch
from ucpe.training.encoded import EncodedClip, EncodedClips
from ucpe.training.recipes import Recipe
from ucpe.trajectories import Trajectory


@dataclass(frozen=True)
class StepPlan:
    """Clips of a step over all processes, their noise, and what of them is hidden or given."""

    clips: list[int]
    noise: Tensor  # (B, C, F, h, w)
    level: Tensor  # (B, 1, F, 1, 1)
    silent: list[bool]


def plan_step(recipe: Recipe, step: int, clips: int, latent_shape: tuple[int, ...], given_is_clean: bool) -> StepPlan:
    """The plan of one step. `given_is_clean`: a given first frame is put in place of the noisy one, at level 0."""
    chosen, generator = _begin(recipe, step, clips)
    noise = torch.randn(recipe.batch, *latent_shape, generator=generator)
    level = recipe.objective.sample(recipe.batch, generator).reshape(-1, 1, 1, 1, 1).repeat(1, 1, latent_shape[1], 1, 1)
    given = torch.rand(recipe.batch, generator=generator) < recipe.first_frame
    if given_is_clean:
        level[given, :, 0] = 0
    silent = torch.rand(recipe.batch, generator=generator) < recipe.drop_text
    return StepPlan(chosen, noise, level, silent.tolist())


def planned_clips(recipe: Recipe, clips: int) -> list[int]:
    """Every clip that some step of the run draws."""
    return sorted({index for step in range(recipe.steps) for index in draw_clips(recipe, step, clips)})


def draw_clips(recipe: Recipe, step: int, clips: int) -> list[int]:
    """Numbers of the clips of one step, each below `clips`."""
    return _begin(recipe, step, clips)[0]


class TrainingSteps(Dataset[list[Batch]]):
    """The batches of every step for one process, as a torch dataset whose items are steps."""

    def __init__(
        self,
        recipe: Recipe,
        clips: EncodedClips,
        adapter: Adapter | None,
        expand_timesteps: bool,
        rank: int = 0,
        processes: int = 1,
    ):
        if recipe.batch % (processes * recipe.micro_batch):
            raise ValueError(
                f"a batch of {recipe.batch} clips does not split evenly over {processes} process(es) with passes of "
                f"{recipe.micro_batch}: change batch or micro_batch"
            )
        if not len(clips):
            raise ValueError("there is no clip to train on")
        self.recipe, self.clips, self.adapter = recipe, clips, adapter
        self.expand_timesteps, self.rank, self.processes = expand_timesteps, rank, processes

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, step: int) -> list[Batch]:
        """This process's batches of a step, one for each forward pass."""
        recipe = self.recipe
        plan = plan_step(recipe, step, len(self.clips), self.clips.latent_shape, self.expand_timesteps)
        batches = []
        for start in range(self.rank * recipe.micro_batch, recipe.batch, self.processes * recipe.micro_batch):
            part = slice(start, start + recipe.micro_batch)
            examples = [self.clips[index] for index in plan.clips[part]]
            batch = make_batch(recipe, self.adapter, examples, plan.noise[part], plan.level[part])
            batches.append(_silenced(batch, self.clips, plan.silent[part]))
        return batches


def make_batch(
    recipe: Recipe, adapter: Adapter | None, examples: list[EncodedClip], noise: Tensor, level: Tensor
) -> Batch:
    """Encoded clips, noise and noise levels as one batch."""
    texts, cameras = [example.text for example in examples], [example.camera for example in examples]
    stacked: dict[str, Any] = {
        name: torch.stack([getattr(example, name) for example in examples])
        for name in ("image", "image_embeds")
        if getattr(examples[0], name) is not None
    }
    return Batch(
        torch.stack([example.latents for example in examples]),
        noise,
        level,
        torch.stack(cast(list[Tensor], texts)) if isinstance(texts[0], Tensor) else cast(list[str], texts),
        None if adapter is None else adapter.encode(cameras, recipe.height, recipe.width),
        None if recipe.loss_outside else visible_latents(cameras, noise.shape[2:]),
        **stacked,
    )


def visible_latents(cameras: Sequence[Trajectory], size: Sequence[int]) -> Tensor | None:
    """Which latents (B, 1, F, h, w) lie where their lens sees anything; None if all do."""
    frames, height, width = size
    masks = []
    for camera in cameras:
        stride = (len(camera) - 1) // max(1, frames - 1)
        valid = camera.latent_frames(max(1, stride)).lens.rays(height, width).valid
        masks.append(valid.expand(frames, height, width))
    visible = torch.stack(masks)[:, None]
    return None if visible.all() else visible


def _silenced(batch: Batch, clips: EncodedClips, silent: list[bool]) -> Batch:
    if isinstance(batch.text, list):
        return replace(batch, text=["" if quiet else text for text, quiet in zip(batch.text, silent)])
    if not any(silent):
        return batch
    nothing = clips.embedding("").to(batch.text)
    return replace(batch, text=torch.where(torch.tensor(silent)[:, None, None], nothing, batch.text))


def _begin(recipe: Recipe, step: int, clips: int) -> tuple[list[int], torch.Generator]:
    """Numbers of the clips of a step, and the generator of what else is random in it."""
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
    return torch.randint(clips, (recipe.batch,), generator=generator).tolist(), generator
