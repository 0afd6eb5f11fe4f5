"""What may be asked of a generated video beside prompt and camera. It loads nothing heavy, for the command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a video is sampled; None leaves a choice to the model."""

    negative: str | None = None
    """What not to see."""
    guidance: float | None = None
    """How strongly to follow the prompt; 1 for step-distilled LoRAs. [default: the model's]"""
    steps: int | None = None
    """Denoising steps. [default: the model's]"""
    seed: int | None = None
    """Seed of the noise. [default: 0]"""
    height: int | None = None
    """Rows of pixels. [default: the model's]"""
    width: int | None = None
    """Columns of pixels. [default: the model's]"""

    def check_sampling(self) -> None:
        """ValueError for numbers that no model can sample with."""
        for name, low, high in (("steps", 1, 10_000), ("seed", 0, 2**63 - 1), ("guidance", 0, 1000)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"--{name} must be between {low} and {high}, got {value}")


@dataclass(frozen=True)
class Setup:
    """How a model runs; None leaves a choice to the machine, or to the model."""

    device: str | None = None
    """cuda, cuda:1, mps, cpu, ... [default: cuda if there is one, then mps, then cpu]"""
    dtype: Literal["bf16", "fp16", "fp32"] | None = None
    """Precision of transformer and text encoder; the autoencoder stays in fp32. [default: bf16, on a CPU fp32]"""
    offload: Literal["none", "model", "group", "sequential"] | None = None
    """Keep whole models, groups of layers or single layers in main memory until used: slower. [default: none]"""
    tiling: bool = False
    """Decode the video in tiles, in less memory."""
    attention: str | None = None
    """Attention backend of diffusers (native, flash, sage, ...). [default: native]"""
    compile: bool = False
    """Compile the transformer's blocks; the first step is slow, the others faster."""
    lora: tuple[str, ...] = ()
    """LoRA file, folder or hub id, with :WEIGHT after it if not 1; may be given several times."""
    scheduler: Literal["euler", "unipc", "dpm++"] | None = None
    """Sampler. [default: the model's]"""
    shift: float | None = None
    """Shift of the noise levels. [default: the model's]"""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Setup:
        """The setup of plain values."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))} in the setup")
        return cls(**{**values, "lora": tuple(values.get("lora", ()))})
