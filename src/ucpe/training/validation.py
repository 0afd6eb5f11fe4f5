"""Loss on fixed clips and fixed noise: per lens family, overall, and at high noise, where the camera matters."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ucpe.adapters import Adapter
from ucpe.training.encoded import EncodedClips
from ucpe.training.objective import denoising_error
from ucpe.training.recipes import Recipe
from ucpe.training.steps import make_batch

LEVELS = (0.3, 0.6, 0.85, 0.95)
"""Noise levels at which every validation clip is measured."""

HIGH_NOISE = 0.8
"""Noise level above which the camera, not the picture, determines the prediction."""


@torch.no_grad()
def validate(
    recipe: Recipe,
    model: nn.Module,
    adapter: Adapter | None,
    clips: EncodedClips,
    accelerator: Accelerator,
    given_is_clean: bool = False,
) -> dict[str, float]:
    """Mean squared error of the velocity by name: "all", "high-noise", every lens family, and "first-frame".

    The noise belongs to the clip, so neither the number of processes nor the size of a pass changes a number.
    "first-frame" is at high noise with the first frame given, for models that take it at level 0.
    """
    count = min(recipe.validation_clips, len(clips))
    measures = [(level, False) for level in LEVELS]
    if recipe.first_frame and given_is_clean:
        measures += [(level, True) for level in LEVELS if level >= HIGH_NOISE]
    errors = torch.zeros(count, len(measures), dtype=torch.float64, device=accelerator.device)
    width = recipe.micro_batch * accelerator.num_processes
    for start in range(0, count, width):
        mine = range(start + accelerator.process_index * recipe.micro_batch, count)[: recipe.micro_batch]
        indices = list(mine) or [0]  # every process takes part in every pass
        found = _errors(recipe, model, adapter, clips, indices, measures, accelerator.device)
        if len(mine):
            errors[indices] = found
    if accelerator.num_processes > 1:
        errors = accelerator.reduce(errors, reduction="sum")
    return _summary(errors.cpu(), measures, [clips.source.clip(clips.numbers[index]).family for index in range(count)])


def _errors(
    recipe: Recipe,
    model: nn.Module,
    adapter: Adapter | None,
    clips: EncodedClips,
    indices: list[int],
    measures: list[tuple[float, bool]],
    device: torch.device,
) -> Tensor:
    """Errors (clips, measures) of a few clips."""
    examples = [clips[index] for index in indices]
    shape = examples[0].latents.shape
    noise = torch.stack([torch.randn(shape, generator=_generator(recipe, index)) for index in indices])
    columns = []
    for value, given in measures:
        level = torch.full((len(indices), 1, shape[1], 1, 1), value)
        if given:
            level[:, :, 0] = 0
        batch = make_batch(recipe, adapter, examples, noise, level).to(device)
        columns.append(denoising_error(model(batch), batch.velocity, batch.level, batch.visible).double())
    return torch.stack(columns, dim=-1)


def _summary(errors: Tensor, measures: list[tuple[float, bool]], families: list[str]) -> dict[str, float]:
    free = [index for index, (_, given) in enumerate(measures) if not given]
    high = [index for index in free if measures[index][0] >= HIGH_NOISE]
    given = [index for index, (_, given) in enumerate(measures) if given]
    numbers = {"all": errors[:, free].mean().item(), "high-noise": errors[:, high].mean().item()}
    for family in sorted(set(families)):
        rows = [index for index, name in enumerate(families) if name == family]
        numbers[family] = errors[rows][:, free].mean().item()
    if given:
        numbers["first-frame"] = errors[:, given].mean().item()
    return {f"validation/{name}": value for name, value in numbers.items()}


def _generator(recipe: Recipe, index: int) -> torch.Generator:
    return torch.Generator().manual_seed((recipe.seed + 1) * 1_000_033 + index)
