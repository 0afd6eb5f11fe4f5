"""The one place that loads a model with its adapters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ucpe import desk
from ucpe.adapters import Adapter, load_adapter
from ucpe.adapters.hub import hub_folder
from ucpe.adapters.loading import find_adapter
from ucpe.generation.defaults import Defaults
from ucpe.generation.families import Family, family_named, family_of

ADAPTER_FOLDER = "camera_adapter"
"""Folder of the adapter inside a pipeline folder. The folder for a second transformer ends in _2."""

HUB_OPTIONS = ("token", "revision", "local_files_only", "cache_dir")
"""Options of diffusers' `from_pretrained` that say how to reach the hub; adapters and defaults follow them too."""

AdapterSource: TypeAlias = "str | Path | Sequence[str | Path] | None"
"""Folder, hub id or released .bin; several, in a list or parted by commas, for a model with several transformers."""


def load_model(
    model: str | Path | None, adapter: AdapterSource = None, **options: Any
) -> tuple[Any, list[Adapter], Defaults]:
    """The diffusers pipeline of a model, the adapters of its transformers, and its defaults."""
    from diffusers import DiffusionPipeline
    from diffusers.utils.logging import is_progress_bar_enabled

    hub = {name: options[name] for name in HUB_OPTIONS if name in options}
    folder = find_model(model, **hub)
    sources = find_adapters(folder, adapter, **{name: hub[name] for name in hub if name != "revision"})
    defaults = Defaults.load(folder, pipeline_family(folder).defaults)
    try:
        pipe = DiffusionPipeline.from_pretrained(str(folder if model is None else model), **options)
    except OSError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise OSError(f"cannot load the model {model or folder}: {reason}") from None
    except Exception as error:
        raise ValueError(f"{folder}: not a whole pipeline ({type(error).__name__}: {error})") from error
    if not is_progress_bar_enabled():
        pipe.set_progress_bar_config(disable=True)
    family = family_of(pipe)
    if not sources:
        return pipe, family.own_adapters(pipe), defaults
    if adapter is not None and len(sources) == 1:
        sources = sources * len(family.denoisers(pipe))
    return pipe, [load_adapter(source) for source in sources], defaults


def find_model(model: str | Path | None, **hub: Any) -> Path:
    """Folder of a model: the one given, or the bundled desk model's for None.

    Of a model on the hub it holds all but the weights: configurations, defaults and adapters.
    """
    if model is None:
        if not desk.WEIGHTS.is_dir():
            raise OSError("this install has no desk model: train one with `ucpe train desk-model`, or name a model")
        return desk.WEIGHTS
    if Path(model).exists():
        return Path(model)
    return hub_folder(str(model), ("*.json", f"{ADAPTER_FOLDER}*/*"), **hub)


def find_adapters(folder: str | Path, adapter: AdapterSource, **hub: Any) -> list[Path]:
    """Files or folders of the adapters meant: those named (downloaded if need be), or those in the model's folder.

    A model that follows a camera by itself may have none.
    """
    if adapter is not None:
        if isinstance(adapter, str) and not Path(adapter).exists():
            adapter = adapter.split(",")
        named = [adapter] if isinstance(adapter, (str, Path)) else [*adapter]
        return [find_adapter(one, **hub) for one in named]
    inside = [path for path in (Path(folder) / f"{ADAPTER_FOLDER}{end}" for end in ("", "_2")) if path.is_dir()]
    if not inside and not pipeline_family(folder).own_camera:
        raise ValueError(f"{folder} has no folder {ADAPTER_FOLDER}: name the adapter's folder or hub id as `adapter`")
    return inside


def pipeline_family(model: str | Path) -> Family:
    """The family of a model's pipeline, by its model_index.json alone."""
    from diffusers import DiffusionPipeline

    try:
        config: Any = DiffusionPipeline.load_config(str(model))
    except OSError:
        return Family()
    if not isinstance(config, dict) or not isinstance(config.get("_class_name", ""), str):
        raise ValueError(f"{model}: model_index.json must be a JSON object with the _class_name of a pipeline")
    return family_named(config.get("_class_name", ""))


def load_quietly() -> None:
    """Keep diffusers and transformers from printing bars and notices; for programs, not libraries."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.disable_progress_bar()
        library.set_verbosity_error()
