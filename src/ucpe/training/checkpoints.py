"""Training state on disk: written whole or not at all, and continued bit for bit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

STATE_FILE = "state.pt"


def save_state(folder: Path, step: int, state: dict[str, Any], keep: int = 2) -> Path:
    """Write `state` (tensors, numbers, dicts) as the checkpoint of a step; keeps the newest `keep`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"step-{step:07d}", folder / f".step-{step:07d}.{os.getpid()}.tmp"
    temporary.mkdir(exist_ok=True)
    torch.save({"step": step, **state}, temporary / STATE_FILE)
    if final.exists():
        shutil.rmtree(final)
    os.replace(temporary, final)
    for old in _complete(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def load_state(folder: Path) -> dict[str, Any] | None:
    """The newest complete checkpoint of a folder, or None."""
    found = _complete(Path(folder))
    if not found:
        return None
    return torch.load(found[-1] / STATE_FILE, map_location="cpu", weights_only=True)


def _complete(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if (path / STATE_FILE).exists())
