"""Training set-ups: every row of the paper's Table 1, and the desk model's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ucpe.training.objective import FlowMatching

WAN = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
WAN_I2V = "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run. A run writes its resolved recipe next to its outputs."""

    name: str
    model: str = WAN
    """Pipeline folder or hub id of the base model."""
    adapter: str = "camera"
    """Which adapter: "camera" (ours), "recammaster" or "cameractrl"."""
    options: dict[str, Any] = field(default_factory=dict)
    """Constructor options of the adapter."""
    train_base: bool = False
    """Also train the transformer and the text encoder (the desk model from scratch)."""
    use_camera: bool = True
    """Train with an adapter at all (the desk model's base can be trained without)."""
    steps: int = 10_000
    batch: int = 8
    """Clips per step over all processes and accumulation steps."""
    micro_batch: int = 1
    """Clips per process and forward pass."""
    learning_rate: float = 1e-4
    warmup: int = 0
    final_learning_rate: float = 1.0
    """Share of the learning rate that a cosine decay ends at; 1 keeps it constant, as the paper does."""
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    gradient_clip: float = 1.0
    precision: str = "bf16"
    gradient_checkpointing: bool = True
    ema: float = 0.0
    """Decay of averaged weights, which are what is saved; 0 saves the weights themselves."""
    objective: FlowMatching = field(default_factory=FlowMatching)
    first_frame: float = 0.0
    """Share of clips whose first latent frame is given (image to video)."""
    drop_text: float = 0.1
    """Share of clips trained without their caption, for guidance."""
    seed: int = 0
    frames: int = 81
    height: int = 480
    width: int = 832
    checkpoint_every: int = 500
    validate_every: int = 500
    validation_clips: int = 64


RECIPES: dict[str, Callable[[], Recipe]] = {}
"""Every recipe by name, as `ucpe train NAME` finds it."""


def desk(recipe: Recipe) -> Recipe:
    """The same recipe at the size of the bundled desk model: other fields, the same code."""
    return replace(
        recipe,
        name=f"desk-{recipe.name}",
        model="desk",
        steps=1000,
        batch=16,
        micro_batch=16,
        learning_rate=recipe.learning_rate * 10,
        warmup=50,
        final_learning_rate=0.05,
        precision="no",
        gradient_checkpointing=False,
        options={"compression": 2, "heads": 1, "head_dim": 96, **recipe.options}
        if recipe.adapter == "camera"
        else recipe.options,
        objective=FlowMatching(shift=3.0),
        frames=17,
        height=64,
        width=112,
        checkpoint_every=200,
        validate_every=200,
    )


def desk_model() -> Recipe:
    """The desk model from scratch: transformer, text encoder and adapter together."""
    base = desk(Recipe("model", options={"encoding": "ucpe", "orientation": True}))
    return replace(
        base,
        name="desk-model",
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
    camera: dict[str, dict[str, Any]] = {
        "ucpe": {"orientation": True},
        "ucpe-relative": {"orientation": False},
        "ucpe-half": {"compression": 2},
        "ucpe-quarter": {"compression": 4},
        "ucpe-twelfth": {"compression": 12},
        "ucpe-pre": {"placement": "pre"},
        "ucpe-post": {"placement": "post"},
        "prope": {"encoding": "prope"},
        "gta": {"encoding": "gta"},
    }
    rows = [Recipe(name, options=options) for name, options in camera.items()]
    for gravity, suffix in ((False, "-relative"), (True, "")):
        options = {"gravity_aligned": gravity}
        rows.append(Recipe(f"recammaster{suffix}", adapter="recammaster", options=options))
        rows.append(Recipe(f"cameractrl{suffix}", adapter="cameractrl", options=options, learning_rate=1e-5))
    rows.append(Recipe("ucpe-i2v", model=WAN_I2V, options={"orientation": False}))
    return rows


for _recipe in _table():
    RECIPES[_recipe.name] = lambda recipe=_recipe: recipe
    RECIPES[f"desk-{_recipe.name}"] = lambda recipe=_recipe: desk(recipe)
RECIPES["desk-model"] = desk_model
