"""The generation benchmark's model: a small Wan transformer, from scratch or frozen, and what tells it cameras."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ucpe.adapters import Adapter, CameraAdapter, CameraCondition, CameraCtrl, ReCamMaster
from ucpe.bench.contestants import Contestant, find, maker_of
from ucpe.bench.pair_clips import CHANNELS, PairClips, PrincipalLatents
from ucpe.desk import HEIGHT, WIDTH
from ucpe.files import atomic_file
from ucpe.training.denoiser import Batch, Denoiser
from ucpe.training.loop import swapped
from ucpe.training.objective import FlowMatching, denoising_loss
from ucpe.training.recipes import Recipe
from ucpe.training.steps import plan_step

TRANSFORMER: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 4,
    "attention_head_dim": 32,
    "in_channels": CHANNELS,
    "out_channels": CHANNELS,
    "text_dim": 64,
    "freq_dim": 64,
    "ffn_dim": 512,
    "num_layers": 4,
    "rope_max_seq_len": 64,
}
"""Arguments of the `WanTransformer3DModel`: 4 blocks of 128 channels."""

BRANCH = {"heads": 2, "head_dim": 32}
"""Attention branch of the adapters that have one: half of the width."""

OBJECTIVE = FlowMatching(shift=3.0, weighting="none")
BATCH = 16
RECIPE = Recipe("pairs", batch=BATCH, objective=OBJECTIVE, first_frame=0.7)
"""What a training step draws."""

LEARNING_RATE = 2e-3
ADAPTER_LEARNING_RATE = 4e-3
"""Learning rate of an adapter that leaves all weights of its base as they are."""

WARMUP = 50
DECAY = 0.3
"""Share of the steps at the end over which the learning rate falls to zero."""

EMA = 0.99
"""Decay of the average of the weights that videos are made with."""

LATENTS = ("means", "bases", "scales")
"""Fields of the latents, as a base's file keeps them."""

LARGE = 100_000
"""Numbers per clip above which encoded cameras are not kept."""

BASE = Path(__file__).with_name("pair_base.safetensors")
"""The frozen base, with its words and latents, made by `recipes/desk/pair_base.py` without a camera."""

MakeAdapter = Callable[[nn.Module], Adapter | None]


def _branch(**options: Any) -> MakeAdapter:
    return lambda transformer: CameraAdapter.for_transformer(transformer, **{**BRANCH, **options})


def _ucpe(**options: Any) -> MakeAdapter:
    return _branch(encoding="ucpe", orientation=True, **options)


CONTESTANTS: dict[str, tuple[str, MakeAdapter]] = {
    "ucpe": ("UCPE", _branch(encoding="ucpe", orientation=False)),
    "ucpe-lat-up": ("UCPE + Lat-Up", _branch(encoding="ucpe", orientation=True)),
    "sightline": ("Sightline", _branch(encoding="sightline", orientation=False)),
    "urope": ("URoPE", _branch(encoding="urope", orientation=False)),
    "prope": ("PRoPE", _branch(encoding="prope", orientation=False)),
    "cameractrl": ("CameraCtrl (Plücker)", lambda base: CameraCtrl.for_transformer(base, orientation=True)),
    "gta": ("GTA", _branch(encoding="gta", orientation=False)),
    "recammaster": ("ReCamMaster", lambda base: ReCamMaster.for_transformer(base, orientation=True)),
    "cape": ("CaPE", _branch(encoding="cape", orientation=False)),
    "none": ("None", lambda base: None),
}
"""Title and adapter of every contestant from scratch by name, in the order in which they are run."""

ADAPTERS: dict[str, tuple[str, MakeAdapter]] = {
    "ucpe-lat-up": CONTESTANTS["ucpe-lat-up"],
    "none": ("Base alone", CONTESTANTS["none"][1]),
    "recammaster": CONTESTANTS["recammaster"],
    "cameractrl": CONTESTANTS["cameractrl"],
    "prope-lat-up": ("PRoPE + Lat-Up", _branch(encoding="prope", orientation=True)),
    "sightline-lat-up": ("Sightline + Lat-Up", _branch(encoding="sightline", orientation=True)),
    "gta-lat-up": ("GTA + Lat-Up", _branch(encoding="gta", orientation=True)),
    "ucpe": ("UCPE, relative", CONTESTANTS["ucpe"][1]),
    "recammaster-relative": (
        "ReCamMaster, relative",
        lambda base: ReCamMaster.for_transformer(base, orientation=False),
    ),
    "cameractrl-relative": ("CameraCtrl, relative", lambda base: CameraCtrl.for_transformer(base, orientation=False)),
    "ucpe-pre": ("UCPE before self-attention", _ucpe(placement="pre")),
    "ucpe-post": ("UCPE after self-attention", _ucpe(placement="post")),
    "ucpe-whole": ("UCPE, width 1/1", _ucpe(heads=4)),
    "ucpe-quarter": ("UCPE, width 1/4", _ucpe(heads=1)),
    "ucpe-eighth": ("UCPE, width 1/8", _ucpe(heads=1, head_dim=16)),
}
"""The same for adapters on the frozen base: the rows of the paper's Table 1, and Sightline."""

RELATIVE = ("recammaster-relative", "cameractrl-relative")
"""Adapters that are not told which way is up, and so are compared to UCPE without Lat-Up."""


def known(frozen: bool) -> dict[str, tuple[str, MakeAdapter]]:
    """Contestants by name, from scratch or on the frozen base."""
    return ADAPTERS if frozen else CONTESTANTS


def find_contestant(name: str, frozen: bool = False) -> Contestant:
    """A contestant by name, or a user's `Adapter` by its import path `module:Class`."""
    return find(name, known(frozen), Adapter)


class PairModel:
    """Transformer, adapter and word embeddings of one training, with its optimiser and averaged weights.

    Whatever the contestant, the transformer and the words start from the same weights, and step n sees the same clips,
    noise and given frames. With a `base`, the file of another model's weights, only what the adapter asks for is
    trained.
    """

    def __init__(self, contestant: str, seed: int, words: int, steps: int, base: Path | None = None):
        from diffusers import WanTransformer3DModel

        torch.manual_seed(seed)
        transformer: Any = WanTransformer3DModel(**TRANSFORMER)
        embedding = nn.Embedding(words, TRANSFORMER["text_dim"], padding_idx=0)
        entries = known(base is not None)
        make = maker_of(contestant, entries, Adapter)
        make = make if contestant in entries else make.for_transformer
        if base is not None:
            load_base(base, transformer, embedding)
        self.adapter = make(transformer)
        self.denoiser = Denoiser(transformer, self.adapter, expand_timesteps=True)
        self.module = nn.ModuleDict({"denoiser": self.denoiser, "words": embedding}).requires_grad_(base is None)
        if base is not None and self.adapter is not None:
            self.denoiser.set_trainable(False)
        trained = (parameter for parameter in self.module.parameters() if parameter.requires_grad)
        self.parameters = {str(index): parameter for index, parameter in enumerate(trained)}
        self.average = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        intact = base is not None and not any(parameter.requires_grad for parameter in transformer.parameters())
        self.learning_rate = ADAPTER_LEARNING_RATE if intact else LEARNING_RATE
        optimized = self.parameters.values() or [nn.Parameter(torch.zeros(()))]  # the base alone has nothing to train
        self.optimizer = torch.optim.AdamW(optimized, lr=self.learning_rate, betas=(0.9, 0.98), weight_decay=0.02)
        self.recipe = replace(RECIPE, seed=seed, steps=steps)
        self.step = 0

    def encode(self, clips: PairClips) -> Callable[[list[int]], CameraCondition | None]:
        """Cameras of some clips by their numbers; encoded ahead unless that would fill the memory."""
        adapter = self.adapter
        if adapter is None:
            return lambda chosen: None
        one = adapter.encode(clips.cameras[:1], HEIGHT, WIDTH)
        if one.features is not None and one.features.numel() > LARGE:
            return lambda chosen: adapter.encode([clips.cameras[index] for index in chosen], HEIGHT, WIDTH)
        everything = adapter.encode(clips.cameras, HEIGHT, WIDTH)
        return lambda chosen: everything[chosen]

    def train_step(
        self,
        latents: Tensor,  # (clips, C, 2, h, w)
        words: Tensor,  # (clips, L) int64
        cameras: Callable[[list[int]], CameraCondition | None],
    ) -> float:
        """Take the next step; returns its loss."""
        steps = self.recipe.steps
        plan = plan_step(self.recipe, self.step, len(latents), latents.shape[1:], given_is_clean=True)
        chosen = plan.clips
        batch = Batch(latents[chosen], plan.noise, plan.level, self.module["words"](words[chosen]), cameras(chosen))
        loss = denoising_loss(self.denoiser(batch), batch.velocity, batch.level, OBJECTIVE).mean()
        self.step += 1
        if not self.parameters:
            return float(loss)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        for group in self.optimizer.param_groups:
            left = (steps - self.step + 1) / (DECAY * steps)
            group["lr"] = self.learning_rate * min(1.0, self.step / WARMUP, left)
        self.optimizer.step()
        decay = min(EMA, self.step / (self.step + 10))
        weights = [parameter.data for parameter in self.parameters.values()]
        torch._foreach_lerp_(list(self.average.values()), weights, 1 - decay)
        return float(loss.detach())

    @torch.no_grad()
    def sample(
        self,
        first: Tensor | None,  # (B, C, h, w), or None to make the first frame too
        noise: Tensor,  # (B, C, 2, h, w)
        words: Tensor,  # (B, L)
        condition: CameraCondition | None,
        steps: int = 16,
    ) -> Tensor:
        """Latents (B, C, 2, h, w) made with the averaged weights, by Euler steps without guidance."""
        levels = OBJECTIVE.shifted(torch.linspace(1, 0, steps + 1))
        latents = noise.clone()
        level = torch.empty(len(noise), 1, 2, 1, 1)
        with swapped(self.module, self.parameters, self.average):
            text = self.module["words"](words)
            for now, after in itertools.pairwise(levels):
                level[:] = now
                if first is not None:
                    latents[:, :, 0], level[:, :, 0] = first, 0
                # At level 0 "noisy" is the first argument itself: the latents stand in for clip and noise alike.
                velocity = self.denoiser(Batch(latents, latents, level, text, condition))
                latents = latents + (after - now) * velocity
        if first is not None:
            latents[:, :, 0] = first
        return latents

    def save(self, path: Path, extra: dict[str, Tensor]) -> None:
        """Write everything that the next steps depend on, and what else is to be kept."""
        tensors = {f"extra.{name}": value for name, value in extra.items()} | {"step": torch.tensor(self.step)}
        for name, parameter in self.parameters.items():
            tensors |= {f"weight.{name}": parameter.data, f"average.{name}": self.average[name]}
            tensors |= {f"{kind}.{name}": value for kind, value in self.optimizer.state[parameter].items()}
        with atomic_file(path) as temporary:
            save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)

    @torch.no_grad()
    def load(self, path: Path) -> dict[str, Tensor]:
        """Continue from what `save` wrote; returns what else was kept."""
        tensors = load_file(path)
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            self.average[name].copy_(tensors[f"average.{name}"])
            self.optimizer.state[parameter] = {  # type: ignore[assignment]
                kind: tensors[f"{kind}.{name}"] for kind in ("step", "exp_avg", "exp_avg_sq")
            }
        self.step = int(tensors["step"])
        return {name[6:]: value for name, value in tensors.items() if name.startswith("extra.")}


def load_base(path: Path, transformer: nn.Module, words: nn.Module) -> None:
    """Load the weights of a base."""
    tensors = load_file(path)
    for module, prefix in ((transformer, "module.denoiser.transformer."), (words, "module.words.")):
        state = {name.removeprefix(prefix): value.float() for name, value in tensors.items() if name.startswith(prefix)}
        module.load_state_dict(state)


def base_latents(path: Path) -> PrincipalLatents:
    """The latents that a base makes."""
    tensors = load_file(path)
    return PrincipalLatents(*(tuple(tensors[f"{name}.{index}"] for index in (0, 1)) for name in LATENTS))  # type: ignore[arg-type]


def save_base(path: Path, model: PairModel, latents: PrincipalLatents) -> None:
    """Write averaged weights of a model without an adapter, in half precision, and the latents that it makes."""
    names = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]
    tensors = {f"module.{name}": value.half() for name, value in zip(names, model.average.values())}
    for name in LATENTS:
        tensors |= {f"{name}.{index}": value for index, value in enumerate(getattr(latents, name))}
    with atomic_file(path) as temporary:
        save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
