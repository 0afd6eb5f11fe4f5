"""Loading an adapter of whatever kind a folder, hub id or released checkpoint holds."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from ucpe.adapters.attachment import Adapter
from ucpe.adapters.camera_adapter import CameraAdapter
from ucpe.adapters.cameractrl import CameraCtrl
from ucpe.adapters.hub import hub_folder
from ucpe.adapters.recammaster import ReCamMaster
from ucpe.adapters.sana_wm import SanaWMCamera
from ucpe.adapters.scope import SCoPE, is_released

ADAPTER_FILES = ("*.json", "*.safetensors")
"""Files of an adapter's repository on the hub that are needed."""

_CLASSES: tuple[type[Adapter], ...] = (CameraAdapter, ReCamMaster, CameraCtrl, SanaWMCamera, SCoPE)

KINDS = {kind.__name__: kind for kind in _CLASSES}
"""Adapter classes by the name their configs carry."""


def load_adapter(source: str | Path, **hub: Any) -> Adapter:
    """The adapter in a folder or hub repository, in a released `.bin` checkpoint, or in an expert of SCoPE's weights.

    `hub` are options of huggingface_hub: `token`, `revision`, `cache_dir`, `local_files_only`.
    """
    if str(source).endswith(".bin"):
        return CameraAdapter.from_released(source)
    folder = find_adapter(source, **hub)
    if is_released(folder):
        return SCoPE.from_released(folder)
    try:
        config: Any = Adapter.load_config(str(folder))
    except OSError as error:
        raise OSError(f"cannot load an adapter from {source}: {str(error).splitlines()[0]}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{source}: config.json must be a JSON object, found a {type(config).__name__}")
    name = config.get("_class_name")
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"{source} holds a {name}; a camera adapter is one of {', '.join(KINDS)}")
    known = inspect.signature(KINDS[name]).parameters
    unknown = [key for key in config if not key.startswith("_") and key not in known]
    if unknown:
        raise ValueError(f"{source}: config.json has keys that no {name} of this version knows: {', '.join(unknown)}")
    return KINDS[name].from_pretrained(str(folder))


def find_adapter(source: str | Path, **hub: Any) -> Path:
    """Folder or released `.bin` file of an adapter, downloaded first where it is a hub id."""
    path = Path(source)
    if str(source).endswith(".bin"):
        if not path.is_file():
            raise OSError(f"no adapter file {source}")
        return path
    return path if path.exists() and str(source) else hub_folder(str(source), ADAPTER_FILES, **hub)
