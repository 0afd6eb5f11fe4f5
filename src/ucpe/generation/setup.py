"""How a model runs on this machine and how it samples: device, precision, memory, attention, LoRAs, scheduler."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from safetensors import SafetensorError, safe_open

from ucpe.adapters.hub import hub_folder
from ucpe.generation.options import Setup

if TYPE_CHECKING:
    from ucpe.generation.defaults import Defaults
    from ucpe.generation.pipeline import CameraPipeline

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""Precisions by name."""

FULL_PRECISION = ("vae", "image_encoder")
"""Parts that diffusers advises to keep in float32 for Wan."""


def resolved(setup: Setup, defaults: Defaults) -> Setup:
    """The setup on this machine with a model's defaults; ValueError for what is not possible."""
    device = setup.device or best_device()
    check_device(device)
    shift = setup.shift
    if shift is None and setup.scheduler in (None, defaults.scheduler):
        shift = defaults.shift
    given: dict[str, Any] = {
        "dtype": setup.dtype or ("fp32" if device == "cpu" else "bf16"),
        "offload": setup.offload or "none",
        "scheduler": setup.scheduler or defaults.scheduler,
    }
    for name, kind in get_type_hints(Setup).items():
        known = [choice for part in get_args(kind) for choice in get_args(part)]
        if name in given and given[name] not in (None, *known):
            raise ValueError(f"--{name} must be one of {', '.join(known)}, got {given[name]!r}")
    if given["offload"] != "none" and device == "cpu":
        raise ValueError(f"--offload {setup.offload} moves weights between a GPU and the CPU, and the device is cpu")
    if shift is not None and not (np.isfinite(shift) and shift > 0):
        raise ValueError(f"--shift must be a positive number, got {shift:g}")
    for lora in setup.lora:
        check_lora(lora)
    if setup.attention is not None:
        check_attention(setup.attention)
    return replace(setup, device=device, shift=shift, **given)


class EvenEuler(FlowMatchEulerDiscreteScheduler):  # type: ignore[misc]
    """Euler steps over evenly spaced noise levels, then shifted, as the released code samples."""

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None, sigmas: Any = None) -> None:
        """Noise levels from 1 down to the last above 0."""
        if sigmas is None:
            assert num_inference_steps is not None
            sigmas = np.linspace(1.0, 0.0, num_inference_steps + 1)[:-1]
        super().set_timesteps(sigmas=sigmas, device=device)  # type: ignore[misc]


def load_pipeline(model: str | None, adapter: str | None, setup: Setup) -> CameraPipeline:
    """A model with its adapter, set up; the setup must be a resolved one."""
    from ucpe.generation.pipeline import CameraPipeline

    dtype = DTYPES[setup.dtype or "fp32"]
    precisions: Any = {"default": dtype, **dict.fromkeys(FULL_PRECISION, torch.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `torch_dtype` is known to every version of diffusers
        pipe = CameraPipeline.from_pretrained(model, adapter, torch_dtype=precisions)
    apply(pipe, setup)
    return pipe


def apply(pipe: CameraPipeline, setup: Setup) -> None:
    """Set up a loaded pipeline. Its weights keep their precision; its adapters take the precision of the setup."""
    device = torch.device(setup.device or "cpu")
    if setup.scheduler is not None or setup.shift is not None:
        pipe.scheduler = make_scheduler(pipe.scheduler, setup.scheduler, setup.shift)
    if setup.lora:
        load_loras(pipe, setup.lora)
    if setup.tiling:
        pipe.vae.enable_tiling()
    if setup.offload == "model":
        pipe.enable_model_cpu_offload(device=device)
    elif setup.offload == "sequential":
        pipe.enable_sequential_cpu_offload(device=device)
    elif setup.offload == "group":
        pipe.enable_group_offload(onload_device=device, offload_type="leaf_level", use_stream=device.type == "cuda")
    else:
        pipe.pipe.to(device)
    for adapter in pipe.adapters:
        adapter.to(device=device, dtype=DTYPES[setup.dtype or "fp32"])  # type: ignore[call-arg]
    for denoiser in pipe.family.denoisers(pipe.pipe):
        if setup.attention is not None:
            denoiser.set_attention_backend(setup.attention)
        if setup.compile:
            denoiser.compile_repeated_blocks()


def make_scheduler(current: Any, name: str | None, shift: float | None) -> Any:
    """The sampler of a name, or the current one, with a shift, or the current one's."""
    from diffusers import DPMSolverMultistepScheduler, UniPCMultistepScheduler

    config = current.config
    key = "flow_shift" if "flow_shift" in config else "shift"
    shift = float(config.get(key, 1.0)) if shift is None else shift
    if name is None:
        if key not in config:
            raise ValueError(f"the model's {type(current).__name__} has no shift: choose a --scheduler as well")
        return type(current).from_config(config, **{key: shift})
    if name == "euler":
        return EvenEuler(shift=shift)
    kind = UniPCMultistepScheduler if name == "unipc" else DPMSolverMultistepScheduler
    return kind(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)


def load_loras(pipe: CameraPipeline, loras: tuple[str, ...]) -> None:
    """Put LoRAs into the transformers of a pipeline, each at its weight."""
    names, weights = [], []
    for index, lora in enumerate(loras):
        source, weight = split_lora(lora)
        folder, file = find_lora(source)
        try:
            pipe.load_lora_weights(str(folder), weight_name=file, adapter_name=f"lora_{index}")
        except Exception as error:
            raise ValueError(f"--lora {lora}: {str(error).strip().splitlines()[0]}") from None
        names.append(f"lora_{index}")
        weights.append(weight)
    pipe.set_adapters(names, weights)


def split_lora(text: str) -> tuple[str, float]:
    """Where a LoRA is and its weight: FILE_OR_ID[:WEIGHT].

    >>> split_lora("owner/fast-lora:0.8"), split_lora("fast.safetensors")
    (('owner/fast-lora', 0.8), ('fast.safetensors', 1.0))
    """
    source, colon, weight = text.rpartition(":")
    if not colon or "/" in weight or "\\" in weight:
        return text, 1.0
    try:
        return source, float(weight)
    except ValueError:
        raise ValueError(f"--lora {text}: the weight after the colon must be a number, got {weight!r}") from None


def find_lora(source: str) -> tuple[Path | str, str | None]:
    """Folder (or hub id) and file name of a LoRA, downloaded if need be; no name leaves the choice to diffusers."""
    path = Path(source)
    if source and path.exists():
        return (path.parent, path.name) if path.is_file() else (path, None)
    owner, name, file = [*source.split("/", 2), "", ""][:3]
    if not (owner and name) or owner in (".", "..", "~") or (file and not file.endswith(".safetensors")):
        raise ValueError(f"--lora {source}: no such file, and no hub id (OWNER/NAME or OWNER/NAME/FILE.safetensors)")
    folder = hub_folder(f"{owner}/{name}", (file,) if file else ("*.json",))
    if not file:
        return f"{owner}/{name}", None
    if not (folder / file).is_file():
        raise ValueError(f"--lora {source}: {owner}/{name} has no file {file}")
    return folder, file


def check_lora(text: str) -> None:
    """ValueError unless a LoRA is a file that can be read, a folder or on the hub, and peft is there to load it."""
    from importlib.util import find_spec

    source, weight = split_lora(text)
    if not np.isfinite(weight):
        raise ValueError(f"--lora {text}: the weight must be a finite number")
    folder, file = find_lora(source)
    if file is not None:
        try:
            with safe_open(Path(folder) / file, "pt") as weights:
                found = any("lora" in name.lower() for name in weights.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"--lora {source}: not a readable .safetensors file ({error})") from None
        if not found:
            raise ValueError(f"--lora {source}: holds no LoRA (none of its weights has lora in its name)")
    if find_spec("peft") is None:
        raise ValueError("--lora needs the package peft: pip install peft")


def check_attention(name: str) -> None:
    """ValueError unless diffusers' attention dispatcher has that backend here; tried on a model without layers."""
    from diffusers import ModelMixin
    from diffusers.models.attention_dispatch import AttentionBackendName

    known = [backend.value for backend in AttentionBackendName if not backend.value.startswith("_")]
    if name not in {backend.value for backend in AttentionBackendName}:
        raise ValueError(f"--attention must be one of {', '.join(known)}, got {name!r}")
    try:
        ModelMixin().set_attention_backend(name)  # type: ignore[attr-defined]
    except (RuntimeError, ImportError, ValueError, OSError) as error:
        raise ValueError(f"--attention {name}: {str(error).strip().splitlines()[0]}") from None


def best_device() -> str:
    """The device to run on: the GPU if there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(name: str) -> None:
    """ValueError unless torch can put something on that device."""
    try:
        if torch.zeros(1, device=name).is_meta:
            raise RuntimeError("nothing is computed there")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"--device {name} cannot be used here, {best_device()} can ({str(error).strip().splitlines()[0]})"
        ) from None


def peak_memory(device: str) -> int:
    """Maximum number of bytes held so far, of the GPU or of this process."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
