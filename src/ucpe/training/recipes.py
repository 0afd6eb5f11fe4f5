"""Training set-ups: every row of the paper's Table 1, at full and at desk size, and the desk model's own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from ucpe import desk as desk_size
from ucpe.training.objective import FlowMatching

WAN = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
WAN_I2V = "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers"
SANA_WM = "Efficient-Large-Model/SANA-WM_bidirectional-diffusers"
DESK = "desk"
"""Name of the model that ships with the package."""
"""Name of a model of the same size that ships with it and never saw a camera."""

PAPER_COMPRESSION = 8


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run. A run writes its resolved recipe next to its outputs."""

    name: str
    model: str = WAN
    """Pipeline folder or hub id of the base model, or "desk", the bundled one."""
    expert: Literal["transformer", "transformer_2"] | None = None
    """Which transformer of a model with two: `transformer` denoises high noise, `transformer_2` low noise."""
    autoencoder: str | None = None
    """Folder of an autoencoder to use instead of the model's own."""
    adapter: Literal["camera", "recammaster", "cameractrl", "sana-wm", "none"] = "camera"
    """What lets the camera steer the model: the spatial attention adapter, a baseline, or SANA-WM's own branch."""
    orientation: bool = True
    """Absolute pitch and roll: the Lat-Up map, or gravity-aligned poses for the baselines."""
    encoding: Literal["ucpe", "gta", "prope", "cape", "urope", "sightline", "raype", "rore"] = "ucpe"
    """Encoding in the attention of the camera adapter."""
    compression: int = PAPER_COMPRESSION
    """Width of the camera adapter's branch, as a divisor of the model's width."""
    placement: Literal["parallel", "pre", "post"] = "parallel"
    """Where the camera adapter's branch sits relative to self-attention."""
    heads: int | None = None
    """Heads of the branch, where they do not follow from the compression."""
    head_dim: int | None = None
    """Channels of each of these heads."""
    train_base: bool = False
    """Train transformer and text encoder too, from fresh weights (the desk model)."""
    steps: int = 10_000
    batch: int = 8
    """Clips per step, over all processes and accumulated passes."""
    micro_batch: int = 1
    """Clips per process and forward pass."""
    learning_rate: float = 1e-4
    warmup: int = 0
    """Steps over which the learning rate rises from 0."""
    final_learning_rate: float = 1.0
    """Share of the learning rate that a cosine decay ends at; 1 keeps it constant, as the paper does."""
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    precision: Literal["no", "bf16"] = "bf16"
    """Autocast dtype of the forward pass; trained weights and their optimizer state stay in float32."""
    gradient_checkpointing: bool = True
    ema: float = 0.0
    """Decay of averaged weights, which are what is validated and saved; 0 takes the weights themselves."""
    objective: FlowMatching = field(default_factory=FlowMatching)
    first_frame: float = 0.0
    """Share of clips whose first frame is given (image to video)."""
    loss_outside: bool = False
    """Also take the loss where the lens sees nothing: the black around a fisheye's image circle."""
    drop_text: float = 0.1
    """Share of clips trained without their caption, for guidance."""
    text_tokens: int = 512
    """Longest caption, in tokens."""
    cache_text: bool = True
    """Encode captions once and keep the embeddings; a text encoder this small may also run along."""
    frames: int = 81
    height: int = 480
    width: int = 832
    fps: float = 16.0
    """Frame rate that a model trained from scratch is saved with."""
    seed: int = 0
    workers: int = 2
    """Processes per training process that load clips and encode cameras in advance."""
    checkpoint_every: int = 500
    validate_every: int = 500
    validation_clips: int = 64
    samples: int = 0
    """Sample videos to make at each validation, from its first clips."""
    sample_steps: int = 50
    """Denoising steps of a sample."""
    sample_guidance: float = 5.0
    """Guidance scale of a sample."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "micro_batch", "checkpoint_every", "validate_every", "frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("first_frame", "drop_text", "ema"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        if self.adapter == "none" and not self.train_base:
            raise ValueError("nothing to train: choose an adapter, or train_base")
        if self.train_base and self.cache_text:
            raise ValueError("train_base trains the text encoder, so its embeddings change: set cache_text to false")

    def summary(self) -> str:
        """One line on what is trained, and how."""
        what = {"camera": f"{self.encoding} 1/{self.compression} {self.placement}", "none": "no adapter"}
        parts = [what.get(self.adapter, self.adapter)]
        parts += ["orientation"] * (self.orientation and self.adapter != "none") + ["base too"] * self.train_base
        parts += ["first frame"] * (self.first_frame > 0)
        return f"{', '.join(parts)}; {self.steps} steps of {self.batch}, {self.learning_rate:g}, on {self.model}"

    def adapter_options(self) -> dict[str, Any]:
        """Constructor options of the adapter."""
        if self.adapter == "sana-wm":
            return {"trained": True}
        if self.adapter != "camera":
            return {"orientation": self.orientation}
        names = ("orientation", "encoding", "compression", "placement", "heads", "head_dim")
        return {name: getattr(self, name) for name in names}


def has_bf16() -> bool:
    """Whether this machine computes in bf16. A processor that only imitates it trains many times slower with it."""
    processor = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.cuda.is_available() or processor


def desk(recipe: Recipe) -> Recipe:
    """The same recipe at the size of the bundled desk model: other fields, the same code.

    The paper's branch of 1/8 becomes one head of 96 channels; other compressions are taken as they are.
    """
    branch: dict[str, Any] = {}
    if recipe.adapter == "camera" and recipe.compression == PAPER_COMPRESSION:
        branch = {"compression": 2, "heads": 1, "head_dim": 96}
    return replace(
        recipe,
        name=f"desk-{recipe.name}",
        model=DESK,
        steps=1000,
        batch=16,
        micro_batch=16,
        learning_rate=recipe.learning_rate * 10,
        warmup=50,
        final_learning_rate=0.05,
        precision="bf16" if has_bf16() else "no",
        gradient_checkpointing=False,
        objective=FlowMatching(shift=3.0),
        loss_outside=True,
        text_tokens=desk_size.TEXT_TOKENS,
        cache_text=False,
        frames=desk_size.FRAMES,
        height=desk_size.HEIGHT,
        width=desk_size.WIDTH,
        fps=desk_size.FPS,
        workers=0,
        checkpoint_every=200,
        validate_every=200,
        samples=2,
        sample_steps=16,
        sample_guidance=3.0,
        **branch,
    )


def desk_model() -> Recipe:
    """The desk model from scratch: transformer, text encoder and adapter together."""
    return replace(
        desk(Recipe("model")),
        train_base=True,
        steps=12_000,
        learning_rate=1e-3,
        warmup=200,
        weight_decay=0.02,
        betas=(0.9, 0.98),
        ema=0.999,
        first_frame=0.4,
        objective=FlowMatching(shift=3.0, weighting="none"),
    )


def _table() -> list[Recipe]:
    """The rows of Table 1, encodings that came later, and the paper's image-to-video model."""
    rows = [
        Recipe("ucpe"),
        Recipe("ucpe-relative", orientation=False),
        Recipe("ucpe-half", compression=2),
        Recipe("ucpe-quarter", compression=4),
        Recipe("ucpe-twelfth", compression=12),
        Recipe("ucpe-pre", placement="pre"),
        Recipe("ucpe-post", placement="post"),
        Recipe("prope", encoding="prope"),
        Recipe("gta", encoding="gta"),
        Recipe("sightline", encoding="sightline"),
        Recipe("urope", encoding="urope"),
        Recipe("raype", encoding="raype"),
        Recipe("rore", encoding="rore"),
    ]
    for orientation, suffix in ((False, "-relative"), (True, "")):
        rows.append(Recipe(f"recammaster{suffix}", adapter="recammaster", orientation=orientation))
        rows.append(Recipe(f"cameractrl{suffix}", adapter="cameractrl", orientation=orientation, learning_rate=1e-5))
    rows.append(Recipe("ucpe-i2v", model=WAN_I2V, orientation=False, first_frame=1.0))
    return rows


RECIPES: dict[str, Recipe] = {recipe.name: recipe for row in _table() for recipe in (row, desk(row))}
"""Every recipe by name, as `ucpe train NAME` finds it."""

RECIPES["desk-model"] = desk_model()
