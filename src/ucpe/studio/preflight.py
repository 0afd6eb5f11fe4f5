"""What the chosen model will and will not honour of a shot, before anything is generated."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from ucpe.generation.checks import check_request, read_facts
from ucpe.generation.loading import find_model
from ucpe.generation.requests import Request

Level = Literal["impossible", "beyond training", "fine"]


class Finding(NamedTuple):
    """One line of a preflight."""

    level: Level
    text: str


model_facts = lru_cache(maxsize=4)(read_facts)
"""The facts of a model and its adapter, read once."""


def preflight(request: Request) -> list[Finding]:
    """Everything that is known before a weight is loaded, the worst first."""
    try:
        facts = model_facts(request.model, request.adapter)
        notes = check_request(request, facts)
    except (ValueError, OSError) as error:
        return [Finding("impossible", str(error).replace("--", ""))]
    made = request.with_defaults(facts.defaults)
    size = f"{len(request.camera)} frames of {made.height} x {made.width} in {made.steps} steps"
    return [
        *(Finding("beyond training", note) for note in notes),
        *_memory(request.model),
        Finding("fine", size + ("" if notes else ", within what the model was trained on")),
    ]


def _memory(model: str | None) -> list[Finding]:
    """Whether the weights on this disk fit the machine."""
    folder = Path(find_model(model))
    weights = sum(file.stat().st_size for file in folder.rglob("*.safetensors")) if folder.is_dir() else 0
    if not weights:
        return []
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    if there and weights > 0.9 * there:
        text = f"the weights take {weights / 1e9:.1f} GB, and this machine has {there / 1e9:.1f} GB of memory"
        return [Finding("impossible", text)]
    return [Finding("fine", f"{weights / 1e9:.2f} GB of weights")]
