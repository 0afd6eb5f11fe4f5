"""From what is trained to what is used: sample videos along the way, folders for generation at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import Tensor

from ucpe.adapters import Adapter
from ucpe.adapters.attachment import TUNED_FILE
from ucpe.files import atomic_file
from ucpe.training.base_models import DTYPES, BaseModel
from ucpe.training.checkpoints import gather
from ucpe.training.denoiser import Denoiser
from ucpe.training.encoded import EncodedClips
from ucpe.training.recipes import Recipe

ADAPTER, MODEL, SAMPLES = "adapter", "model", "samples"
"""Folders of a run: the trained adapter, the whole pipeline of a model trained from scratch, sample videos."""


def video_sampler(
    recipe: Recipe, model: BaseModel, denoiser: Denoiser, clips: EncodedClips, output: Path
) -> Callable[[int, Denoiser], None]:
    """A hook that generates the first validation clips' captions with their cameras, into `output`/samples."""
    pipe = camera_pipeline(recipe, model, denoiser)
    chosen = [clips.source.clip(number) for number in clips.numbers[: recipe.samples]]

    def sample(step: int, trained: Denoiser) -> None:
        from ucpe.video import write_video

        device = trained.transformer.device
        pipe.to(device)
        for index, clip in enumerate(chosen):
            camera = clip.camera[: recipe.frames]
            image = None
            if trained.concatenates_image:
                image = clip.pictures.video(recipe.frames, recipe.height, recipe.width)[0].numpy()
            with torch.autocast(device.type, DTYPES[recipe.precision], enabled=recipe.precision != "no"):
                video = pipe(clip.caption, camera, image=image, height=recipe.height, width=recipe.width, seed=index)
            write_video(output / SAMPLES / f"step-{step:07d}-{index}.mp4", video.videos[0].frames, camera.fps)

    return sample


def camera_pipeline(recipe: Recipe, model: BaseModel, denoiser: Denoiser) -> Any:
    """The generation pipeline around the very modules that are trained."""
    from ucpe.generation.pipeline import CameraPipeline

    if denoiser.adapter is None:
        raise ValueError("a model without an adapter has no camera to sample with: set --samples 0")
    if model.world_model:
        raise ValueError("SANA-WM makes no samples while it trains: set --samples 0, and generate with the adapter")
    pipe = wan_pipeline(recipe, model, denoiser)
    denoiser.adapter.detach()
    return CameraPipeline(pipe, denoiser.adapter, generation_defaults(recipe))


def wan_pipeline(recipe: Recipe, model: BaseModel, denoiser: Denoiser) -> Any:
    """diffusers' pipeline around the very modules that are trained."""
    from diffusers import UniPCMultistepScheduler, WanPipeline

    prompts = denoiser.prompts or model.prompts()
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=recipe.objective.shift
    )
    parts: dict[str, Any] = {
        "tokenizer": prompts.tokenizer,
        "text_encoder": prompts.text_encoder,
        "vae": model.autoencoder(),
        "scheduler": scheduler,
        "transformer": denoiser.transformer,
    }
    if denoiser.concatenates_image:
        from diffusers import WanImageToVideoPipeline

        pipe: Any = WanImageToVideoPipeline(**parts, **model.image_parts())
    else:
        pipe = WanPipeline(**parts, expand_timesteps=denoiser.expand_timesteps)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def generation_defaults(recipe: Recipe) -> Any:
    """What a model trained by a recipe is generated with."""
    from ucpe.generation.defaults import Defaults, Limits

    return Defaults(
        frames=recipe.frames,
        fps=recipe.fps,
        height=recipe.height,
        width=recipe.width,
        steps=recipe.sample_steps,
        guidance=recipe.sample_guidance,
        text_tokens=recipe.text_tokens,
        limits=_desk_limits() if recipe.name.startswith("desk") else Limits(),
    )


def _desk_limits() -> Any:
    """Cameras of the clips that the desk model is trained on."""
    from ucpe.desk.clips import CameraRanges
    from ucpe.generation.defaults import Limits
    from ucpe.lenses import FAMILIES

    seen = CameraRanges()
    narrowest, widest = zip(*(family.xfov for family in FAMILIES.values()))
    return Limits(seen.pitch, seen.roll, seen.pan, seen.travel, min(narrowest), max(widest))


def export(recipe: Recipe, model: BaseModel, trained: Denoiser, output: Path, accelerator: Accelerator) -> Path:
    """Write what was trained: the adapter, or the whole pipeline of a model trained from scratch."""
    weights = gather(trained.trained_parameters(), keep=accelerator.is_main_process)
    folder = output / (MODEL if recipe.train_base else ADAPTER)
    if accelerator.is_main_process:
        if recipe.train_base and trained.adapter is not None:
            camera_pipeline(recipe, model, trained).save_pretrained(folder)
        elif recipe.train_base:
            wan_pipeline(recipe, model, trained).save_pretrained(folder)
            generation_defaults(recipe).save(folder)
        else:
            assert trained.adapter is not None
            save_adapter(trained.adapter, weights, folder)
    accelerator.wait_for_everyone()
    return folder


def save_adapter(adapter: Adapter, weights: dict[str, Tensor], folder: Path) -> None:
    """Write an adapter, and the transformer weights it tunes, from weights named as in a `Denoiser`."""
    named = {part: _inside(weights, part) for part in ("adapter", "transformer")}
    fresh: Any = type(adapter).from_config(adapter.config)
    fresh.load_state_dict(named["adapter"])
    fresh.save_pretrained(folder)
    if named["transformer"]:
        with atomic_file(folder / TUNED_FILE) as file:
            save_file(named["transformer"], file)


def _inside(weights: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    start = f"{part}."
    return {name.removeprefix(start): value.contiguous() for name, value in weights.items() if name.startswith(start)}
