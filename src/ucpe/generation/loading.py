"""The one place that loads a model with its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucpe.adapters import Adapter, load_adapter
from ucpe.generation import desk
from ucpe.generation.defaults import Defaults

ADAPTER_FOLDER = "camera_adapter"
"""Folder of the adapter inside a pipeline folder; that of a second transformer ends in _2."""


def load_model(
    model: str | Path | None, adapter: str | Path | None = None, **options: Any
) -> tuple[Any, list[Adapter], Defaults]:
    """The diffusers pipeline of a model, the adapters of its transformers, and its defaults."""
    from diffusers import DiffusionPipeline
    from diffusers.utils.logging import is_progress_bar_enabled

    model = find_model(model)
    adapter = find_adapter(model, adapter)
    defaults = Defaults.load(model)
    try:
        pipe = DiffusionPipeline.from_pretrained(str(model), **options)
    except OSError as error:
        raise OSError(
            f"cannot load the model {model}: {_first_line(error)}\nDownload it where there is a network "
            f"(`hf download {model} --local-dir FOLDER`), and give that folder as the model."
        ) from None
    if not is_progress_bar_enabled():
        pipe.set_progress_bar_config(disable=True)
    return pipe, [load_adapter(adapter)], defaults


def find_model(model: str | Path | None) -> str | Path:
    """The model meant: a folder or hub id as it is, and the bundled desk model for None."""
    if model is None and not desk.WEIGHTS.is_dir():
        raise OSError("this install has no desk model: train one with `ucpe train desk-model`, or name a model")
    return desk.WEIGHTS if model is None else model


def find_adapter(model: str | Path, adapter: str | Path | None) -> str | Path:
    """The adapter meant: the one named, or that in the model's folder."""
    inside = Path(model) / ADAPTER_FOLDER
    if adapter is None and not inside.is_dir():
        raise ValueError(f"{model} has no folder {ADAPTER_FOLDER}: name the adapter's folder or hub id as `adapter`")
    return inside if adapter is None else adapter


def load_quietly() -> None:
    """Keep diffusers and transformers from printing bars and notices; for programs, not libraries."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.disable_progress_bar()
        library.set_verbosity_error()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
