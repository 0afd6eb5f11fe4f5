"""The one place that loads a model with its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucpe.adapters import Adapter, load_adapter
from ucpe.generation import desk
from ucpe.generation.defaults import Defaults
from ucpe.generation.families import Family, family_named, family_of

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
    defaults = Defaults.load(model, pipeline_family(model).defaults)
    try:
        pipe = DiffusionPipeline.from_pretrained(str(model), **options)
    except OSError as error:
        raise OSError(
            f"cannot load the model {model}: {_first_line(error)}\nDownload it where there is a network "
            f"(`hf download {model} --local-dir FOLDER`), and give that folder as the model."
        ) from None
    if not is_progress_bar_enabled():
        pipe.set_progress_bar_config(disable=True)
    return pipe, family_of(pipe).own_adapters(pipe) if adapter is None else [load_adapter(adapter)], defaults


def find_model(model: str | Path | None) -> str | Path:
    """The model meant: a folder or hub id as it is, and the bundled desk model for None."""
    if model is None and not desk.WEIGHTS.is_dir():
        raise OSError("this install has no desk model: train one with `ucpe train desk-model`, or name a model")
    return desk.WEIGHTS if model is None else model


def find_adapter(model: str | Path, adapter: str | Path | None) -> str | Path | None:
    """The adapter meant: the one named, that in the model's folder, or None for a model that needs none."""
    inside = Path(model) / ADAPTER_FOLDER
    if adapter is not None or inside.is_dir():
        return adapter or inside
    if pipeline_family(model).own_camera:
        return None
    raise ValueError(f"{model} has no folder {ADAPTER_FOLDER}: name the adapter's folder or hub id as `adapter`")


def pipeline_family(model: str | Path) -> Family:
    """The family of a model's pipeline, by its model_index.json alone."""
    from diffusers import DiffusionPipeline

    try:
        config: Any = DiffusionPipeline.load_config(str(model))
    except OSError:
        return Family()
    return family_named(config.get("_class_name", ""))


def load_quietly() -> None:
    """Keep diffusers and transformers from printing bars and notices; for programs, not libraries."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.disable_progress_bar()
        library.set_verbosity_error()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
