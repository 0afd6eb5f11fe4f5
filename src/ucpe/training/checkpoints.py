"""Training state on disk: written whole or not at all, the same for any number of processes."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from ucpe.files import atomic_file

WEIGHTS, AVERAGED, OPTIMIZER = "weights/", "averaged/", "optimizer/"
"""First part of the names in a checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after some steps: tensors by name."""

    step: int
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Tensor], keep: int = 2) -> Path:
    """Write the state after `step` steps; of the older ones the newest `keep - 1` stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:07d}.safetensors"
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    size = sum(value.nbytes for value in contiguous.values())
    try:
        with atomic_file(path) as temporary:
            save_file(contiguous, temporary, {"step": str(step)})
    except (OSError, SafetensorError) as error:
        older = checkpoint_paths(folder)
        kept = f"{older[-1].name} is kept" if older else "there is no older one"
        free = shutil.disk_usage(folder).free
        raise OSError(
            f"cannot write the checkpoint of step {step} to {folder} ({error}): it needs {size / 1e9:.2f} GB, "
            f"{free / 1e9:.2f} GB are free; {kept}. Make room and run the same command again."
        ) from None
    for old in checkpoint_paths(folder)[:-keep]:
        old.unlink()
    return path


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest readable checkpoint of a folder, or None."""
    for path in reversed(checkpoint_paths(folder)):
        try:
            with safe_open(path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return Checkpoint(int(file.metadata()["step"]), tensors)
        except (SafetensorError, OSError) as error:
            warnings.warn(f"{path} is damaged ({error}); going back to the checkpoint before it", stacklevel=2)
    return None


def checkpoint_paths(folder: Path) -> list[Path]:
    """Finished checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{7,}", path.stem))


def gather_state(
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    averaged: Mapping[str, Tensor] | None = None,
    keep: bool = True,
) -> dict[str, Tensor]:
    """Trained weights, their averages and the optimizer's state by name, whole even where processes hold shards.

    Every process must call this; those with `keep` off get nothing and use no memory for it.
    """
    tensors = {WEIGHTS + name: value for name, value in parameters.items()}
    tensors |= {AVERAGED + name: value for name, value in (averaged or {}).items()}
    for name, parameter in parameters.items():
        tensors |= {f"{OPTIMIZER}{name}/{kind}": value for kind, value in optimizer.state[parameter].items()}
    return gather(tensors, keep)


def gather(tensors: Mapping[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
    """Tensors by name, whole and on the CPU; every process must call this, those with `keep` off get nothing."""
    whole: dict[str, Tensor] = {}
    for name, value in tensors.items():
        full = value.full_tensor() if isinstance(value, DTensor) else value
        if keep:
            whole[name] = full.detach().cpu()
    return whole


@torch.no_grad()
def restore_state(
    checkpoint: Checkpoint,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    averaged: Mapping[str, Tensor] | None = None,
) -> None:
    """Put a checkpoint back into parameters, averages and optimizer, whichever way these are sharded."""
    targets = {WEIGHTS + name: parameter for name, parameter in parameters.items()}
    targets |= {AVERAGED + name: value for name, value in (averaged or {}).items()}
    held = {name for name in checkpoint.tensors if not name.startswith(OPTIMIZER)}
    if held != targets.keys():
        different = sorted(held ^ targets.keys())
        raise ValueError(
            f"the checkpoint of step {checkpoint.step} is of another model or recipe: {len(different)} tensors differ, "
            f"such as {different[0]}; train into another folder"
        )
    for name, target in targets.items():
        target.copy_(_like(checkpoint.tensors[name], target))
    for name, value in checkpoint.tensors.items():
        if name.startswith(OPTIMIZER):
            of, kind = name.removeprefix(OPTIMIZER).rsplit("/", 1)
            parameter = parameters[of]
            optimizer.state[parameter][kind] = _like(value, parameter) if value.ndim else value.clone()


def _like(value: Tensor, target: Tensor) -> Tensor:
    if isinstance(target, DTensor):
        return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    return value.to(target.device, copy=True)
