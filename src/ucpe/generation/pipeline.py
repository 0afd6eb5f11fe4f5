"""Camera-controlled generation on diffusers' pipelines."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.utils import BaseOutput

from ucpe.adapters import Adapter
from ucpe.generation.defaults import Defaults
from ucpe.generation.families import family_of
from ucpe.generation.loading import ADAPTER_FOLDER, AdapterSource, load_model
from ucpe.generation.vocabulary import UnknownWords, Vocabulary
from ucpe.lenses import fit_image
from ucpe.trajectories import Trajectory


@dataclass(frozen=True)
class CameraVideo:
    """A generated video and the camera that it was asked to follow."""

    frames: np.ndarray  # (N, H, W, 3) uint8
    camera: Trajectory
    prompt: str


@dataclass
class CameraPipelineOutput(BaseOutput):  # type: ignore[misc]
    """Generated videos: `frames[0]` is the first, as diffusers gives it for the `output_type`; see also `videos`."""

    frames: Any  # "np": (videos, N, H, W, 3) from 0 to 1; "pt": (videos, N, 3, H, W); "pil": lists; "latent"
    cameras: list[Trajectory]
    prompts: list[str]

    @property
    def videos(self) -> list[CameraVideo]:
        """Every video as uint8 frames (N, H, W, 3) with its camera and prompt."""
        return [
            CameraVideo(_bytes(frames), camera, prompt)
            for frames, camera, prompt in zip(self.frames, self.cameras, self.prompts)
        ]


class CameraPipeline:
    """A video pipeline of diffusers whose transformers follow a camera.

    `pipe` is the diffusers pipeline itself, and whatever is not here is taken from it: `to`, `vae.enable_tiling()`,
    `enable_model_cpu_offload()`, `load_lora_weights(...)`, `scheduler = ...` work as they do there. This is a holder
    and no subclass of `DiffusionPipeline`: one class then drives every family of pipelines, and a pipeline that a
    user made stays as it is, so that calling it generates without a camera.
    """

    def __init__(self, pipe: Any, adapter: Adapter | Sequence[Adapter], defaults: Defaults | None = None):
        self.pipe = pipe
        self.adapters = [adapter] if isinstance(adapter, Adapter) else list(adapter)
        self.defaults = defaults or Defaults()
        self.family = family_of(pipe)
        denoisers = self.family.denoisers(pipe)
        if len(denoisers) != len(self.adapters):
            raise ValueError(
                f"{type(pipe).__name__} has {len(denoisers)} transformers that denoise, and {len(self.adapters)} "
                "adapters are given: each needs one (name two, or one that is to serve both)"
            )
        for one, denoiser in zip(self.adapters, denoisers):
            one.attach(denoiser, required=False)

    @classmethod
    def from_pretrained(
        cls, model: str | Path | None = None, adapter: AdapterSource = None, **options: Any
    ) -> CameraPipeline:
        """A model with its adapter, from folders or hub ids; without arguments the bundled desk model.

        A model with two transformers takes two adapters, in a list, or one for both. Options go to diffusers'
        `DiffusionPipeline.from_pretrained` (`torch_dtype`, `device_map`, `token`, ...).
        """
        parts = load_model(model, adapter, **options)
        try:
            return cls(*parts)
        except ValueError as error:
            raise ValueError(f"{adapter or model or 'the desk model'}: {error}") from None

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model, adapters and defaults into one folder that `from_pretrained` reads."""
        self.pipe.save_pretrained(folder)
        for index, adapter in enumerate(self.adapters):
            adapter.save_pretrained(Path(folder) / (f"{ADAPTER_FOLDER}_{index + 1}" if index else ADAPTER_FOLDER))
        self.defaults.save(folder)

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, **options: Any
    ) -> str:
        """Upload what `save_pretrained` writes and return its address; options are of huggingface_hub's upload."""
        from huggingface_hub import create_repo, upload_folder

        repo_id = create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(upload_folder(repo_id=repo_id, folder_path=folder, token=token, **options))

    @property
    def adapter(self) -> Adapter:
        """The adapter of the first (usually the only) transformer."""
        return self.adapters[0]

    def to(self, *args: Any, **kwargs: Any) -> CameraPipeline:
        """Move model and adapters to a device or dtype."""
        for part in (self.pipe, *self.adapters):
            part.to(*args, **kwargs)
        return self

    def detach(self) -> Any:
        """Take the adapters out again and return the diffusers pipeline as it was."""
        for adapter in self.adapters:
            adapter.detach()
        return self.pipe

    def __getattr__(self, name: str) -> Any:
        if name == "pipe":
            raise AttributeError(name)
        return getattr(self.pipe, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """A component (`scheduler`, `vae`, ...) is set where it is used: in the diffusers pipeline."""
        if "pipe" in self.__dict__ and name in self.pipe.components:
            setattr(self.pipe, name, value)
        else:
            super().__setattr__(name, value)

    def __call__(
        self,
        prompt: str | Sequence[str] | None = None,
        camera: Trajectory | Sequence[Trajectory] | None = None,
        *,
        image: Any = None,
        negative_prompt: str | Sequence[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        num_frames: int | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        generator: torch.Generator | list[torch.Generator] | None = None,
        seed: int | Sequence[int] | None = None,
        output_type: str = "np",
        return_dict: bool = True,
        callback_on_step_end: Any = None,
        on_step: Callable[[int, int], None] | None = None,
        follow_camera: bool = True,
        **others: Any,
    ) -> Any:
        """Videos of the prompts seen by the cameras, a `CameraPipelineOutput`; one of either serves all of the other.

        `image` is the first frame (PIL or uint8 (H, W, 3)), for models that take one. `seed` (0 unless a `generator` is
        given) fixes the noise of each video, whatever the batch. `on_step(done, total)` is called after every denoising
        step; an exception raised there, or in `callback_on_step_end`, cancels. Without `follow_camera` the model is
        left to itself, to see what the camera changes. All else is as in diffusers, whose pipeline gets the `others`
        as they are.
        """
        prompts, cameras = _paired(prompt, camera, others)
        height, width = height or self.defaults.height, width or self.defaults.width
        steps = num_inference_steps or self.defaults.steps
        self._warn_of_words(prompts)
        for note in dict.fromkeys(fit_image(camera.lens, height, width, "squeeze")[1] for camera in cameras):
            if note:
                warnings.warn(f"{note}; ucpe.lenses.fit_image crops or extends it instead", stacklevel=2)

        def after_step(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            changed = callback_on_step_end(pipe, index, timestep, tensors) if callback_on_step_end else {}
            if on_step is not None:
                on_step(index + 1, steps)
            return changed

        arguments: dict[str, Any] = {
            "prompt": prompts,
            "negative_prompt": _one_each(negative_prompt or self.defaults.negative, len(prompts), "negative prompts"),
            "height": height,
            "width": width,
            "num_frames": self._frames(cameras, num_frames),
            "num_inference_steps": steps,
            "guidance_scale": self.defaults.guidance if guidance_scale is None else guidance_scale,
            "generator": _generators(generator, seed, len(prompts)),
            "output_type": output_type,
            "callback_on_step_end": after_step,
        }
        if hasattr(callback_on_step_end, "tensor_inputs"):
            arguments["callback_on_step_end_tensor_inputs"] = callback_on_step_end.tensor_inputs
        if self.defaults.text_tokens is not None:
            arguments["max_sequence_length"] = self.defaults.text_tokens
        replaced = {name: None for name in ("prompt", "negative_prompt") if f"{name}_embeds" in others}
        arguments |= {**replaced, **others}
        with torch.no_grad():
            adapters, held = (self.adapters, cameras) if follow_camera else ([], [still(camera) for camera in cameras])
            videos = self.family.run(self.pipe, adapters, held, _picture(image), arguments)
        return CameraPipelineOutput(videos, cameras, prompts) if return_dict else (videos,)

    def _warn_of_words(self, prompts: list[str]) -> None:
        vocabulary = Vocabulary.of_tokenizer(getattr(self.pipe, "tokenizer", None))
        if vocabulary is not None:
            tokens = self.defaults.text_tokens
            for note in dict.fromkeys(note for prompt in prompts for note in vocabulary.notes(prompt, tokens)):
                warnings.warn(note, UnknownWords, stacklevel=3)

    def _frames(self, cameras: list[Trajectory], num_frames: int | None) -> int:
        """Length of the videos, after checking that the cameras and the model can have it."""
        lengths = {len(camera) for camera in cameras}
        if len(lengths) > 1:
            raise ValueError(f"the cameras of a batch need equally many frames, got {sorted(lengths)}: resample them")
        frames = lengths.pop()
        if num_frames is not None and num_frames != frames:
            raise ValueError(
                f"the camera has {frames} frames and num_frames is {num_frames}: leave num_frames out, or use "
                f"camera.resample(frames={num_frames})"
            )
        stride = self.adapter.config["temporal_stride"]
        check_frames(frames, stride, "use camera.resample(frames={upper})")
        return frames


def check_frames(frames: int, stride: int, remedy: str) -> None:
    """ValueError unless an autoencoder with this temporal stride can make this number of frames."""
    if frames % stride != 1:
        lower = (frames - 1) // stride * stride + 1
        raise ValueError(
            f"the camera has {frames} frames; the model makes {stride} n + 1 (such as {lower} or {lower + stride}): "
            + remedy.format(lower=lower, upper=lower + stride)
        )


def still(camera: Trajectory) -> Trajectory:
    """The first pose of a path, held for as long."""
    return Trajectory(camera.c2w[:1].expand_as(camera.c2w), camera.lens, camera.fps, up_known=camera.up_known)


def _paired(
    prompt: str | Sequence[str] | None, camera: Trajectory | Sequence[Trajectory] | None, others: dict[str, Any]
) -> tuple[list[str], list[Trajectory]]:
    if prompt is None and others.get("prompt_embeds") is not None:
        prompt = [""] * len(others["prompt_embeds"])
    if camera is None:
        raise ValueError("no camera given: pass camera=, or call the diffusers pipeline (.pipe) to do without one")
    if others.get("num_videos_per_prompt", 1) != 1:
        raise ValueError("instead of num_videos_per_prompt give several cameras, as camera=[camera] * 2, seed=[0, 1]")
    prompts = [prompt] if isinstance(prompt, str) else list(prompt or [])
    cameras = [camera] if isinstance(camera, Trajectory) else list(camera)
    if not prompts or not cameras:
        raise ValueError("no prompt or no camera given")
    if len(prompts) != len(cameras) and 1 not in (len(prompts), len(cameras)):
        raise ValueError(f"{len(prompts)} prompts do not fit {len(cameras)} cameras: give as many, or one of either")
    count = max(len(prompts), len(cameras))
    return prompts * (count // len(prompts)), cameras * (count // len(cameras))


def _one_each(given: Any, count: int, what: str) -> list[Any]:
    """A value for each video: as many as given, or a single one for all."""
    each = [given] * count if isinstance(given, str | int) else list(given)
    if len(each) != count:
        raise ValueError(f"{len(each)} {what} do not fit {count} videos: give one, or one for each")
    return each


def _generators(generator: Any, seed: int | Sequence[int] | None, count: int) -> Any:
    if generator is not None:
        if seed is not None:
            raise ValueError("give a seed or a generator, not both")
        return generator
    seeds = _one_each(0 if seed is None else seed, count, "seeds")
    generators = [torch.Generator("cpu").manual_seed(number) for number in seeds]
    return generators if count > 1 else generators[0]


def _picture(image: Any) -> Any:
    from PIL import Image

    return Image.fromarray(image) if isinstance(image, np.ndarray) else image


def _bytes(frames: Any) -> np.ndarray:
    """A video of diffusers as uint8 (N, H, W, 3)."""
    if isinstance(frames, list):
        return np.stack([np.asarray(frame) for frame in frames])
    if isinstance(frames, torch.Tensor):
        if frames.ndim != 4 or frames.shape[1] != 3:
            raise ValueError('latents are no pictures: generate with output_type "np", "pt" or "pil"')
        frames = frames.float().movedim(1, -1).cpu().numpy()
    return np.round(frames * 255).astype(np.uint8)
