"""Camera-controlled generation on diffusers' pipelines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.adapters import Adapter, load_adapter
from ucpe.generation import desk
from ucpe.trajectories import Trajectory

ADAPTER_FOLDER = "camera_adapter"
"""Folder of the adapter inside a pipeline folder."""

DEFAULTS_FILE = "generation.json"
"""File in a pipeline folder with its size, steps and guidance, where they differ from Wan's."""


@dataclass(frozen=True)
class CameraVideo:
    """A generated video and the camera that it was asked to follow."""

    frames: np.ndarray  # (N, H, W, 3) uint8
    camera: Trajectory
    prompt: str


@dataclass(frozen=True)
class Defaults:
    """What a model is at its best with, where the caller does not say."""

    frames: int = 81
    fps: float = 16.0
    height: int = 480
    width: int = 832
    steps: int = 50
    guidance: float = 5.0
    text_tokens: int = 512

    def save(self, folder: str | Path) -> None:
        """Write them into a pipeline folder."""
        (Path(folder) / DEFAULTS_FILE).write_text(json.dumps(asdict(self), indent=2))


class CameraPipeline:
    """A text (and image) to video pipeline of diffusers with a camera adapter attached to its transformer.

    `pipe` is the diffusers pipeline itself: move it, offload it, compile it or load a LoRA into it as usual.
    """

    def __init__(self, pipe: Any, adapter: Adapter, defaults: Defaults | None = None):
        self.pipe = pipe
        self.adapter = adapter
        self.defaults = defaults or Defaults()
        adapter.attach(pipe.transformer)

    @classmethod
    def from_pretrained(
        cls, model: str | Path | None = None, adapter: str | Path | None = None, **options: Any
    ) -> CameraPipeline:
        """A model with its adapter, from folders or hub ids; without arguments the bundled desk model.

        Options go to diffusers' `DiffusionPipeline.from_pretrained` (`torch_dtype`, `device_map`, ...).
        """
        from diffusers import DiffusionPipeline

        if model is None:
            model = desk.WEIGHTS
            if not model.is_dir():
                raise OSError("this install has no desk model: train one with `ucpe train desk-model`, or name a model")
        if adapter is None:
            adapter = Path(model) / ADAPTER_FOLDER
            if not adapter.is_dir():
                raise ValueError(
                    f"{model} has no folder {ADAPTER_FOLDER}: name the adapter's folder or hub id as `adapter`"
                )
        try:
            pipe = DiffusionPipeline.from_pretrained(str(model), **options)
        except OSError as error:
            raise OSError(
                f"cannot load the model {model}: {_first_line(error)}\nDownload it where there is a network "
                f"(`hf download {model} --local-dir FOLDER`), and give that folder as the model."
            ) from None
        pipe.set_progress_bar_config(disable=True)
        return cls(pipe, load_adapter(adapter), _read_defaults(Path(model)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model and adapter into one folder that `from_pretrained` reads."""
        self.pipe.save_pretrained(folder)
        self.adapter.save_pretrained(Path(folder) / ADAPTER_FOLDER)
        self.defaults.save(folder)

    @property
    def transformer(self) -> Any:
        """The transformer that the adapter steers."""
        return self.pipe.transformer

    def to(self, *args: Any) -> CameraPipeline:
        """Move model and adapter to a device or dtype."""
        self.pipe.to(*args)
        self.adapter.to(*args)
        return self

    def __call__(
        self,
        prompt: str | Sequence[str],
        camera: Trajectory | Sequence[Trajectory],
        *,
        image: Any = None,
        negative_prompt: str | None = None,
        height: int | None = None,
        width: int | None = None,
        steps: int | None = None,
        guidance: float | None = None,
        seed: int | Sequence[int] = 0,
        on_step: Callable[[int, int], None] | None = None,
    ) -> Any:
        """Video(s) of the prompt(s) seen by the camera(s): a `CameraVideo`, or a list for several prompts or cameras.

        `image` is the first frame (PIL or uint8 (H, W, 3)), for models that take one. `seed` fixes the noise of each
        video, whatever the batch. `on_step(done, total)` is called after every denoising step.
        """
        single = isinstance(prompt, str) and isinstance(camera, Trajectory)
        prompts, cameras = _paired(prompt, camera)
        height, width = height or self.defaults.height, width or self.defaults.width
        frames = self._check(cameras, height, width)
        steps = steps or self.defaults.steps
        seeds = [seed] * len(prompts) if isinstance(seed, int) else list(seed)
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds do not fit {len(prompts)} videos: give one seed, or one for each")
        generators = [torch.Generator("cpu").manual_seed(number) for number in seeds]

        def after_step(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if on_step is not None:
                on_step(index + 1, steps)
            return {}

        arguments: dict[str, Any] = {
            "prompt": prompts,
            "negative_prompt": [negative_prompt or ""] * len(prompts),
            "height": height,
            "width": width,
            "num_frames": frames,
            "num_inference_steps": steps,
            "guidance_scale": self.defaults.guidance if guidance is None else guidance,
            "generator": generators if len(generators) > 1 else generators[0],
            "max_sequence_length": self.defaults.text_tokens,
            "callback_on_step_end": after_step,
            "output_type": "np",
        }
        condition = self.adapter.encode(cameras, height, width)
        with torch.no_grad(), self.adapter.camera(condition):
            output = self._pipe_for(image)(**arguments, **({} if image is None else {"image": _picture(image)}))
        videos = [
            CameraVideo(np.round(video * 255).astype(np.uint8), camera, text)
            for video, camera, text in zip(output.frames, cameras, prompts)
        ]
        return videos[0] if single else videos

    def _check(self, cameras: list[Trajectory], height: int, width: int) -> int:
        lengths = {len(camera) for camera in cameras}
        if len(lengths) > 1:
            raise ValueError(f"the cameras of a batch need equally many frames, got {sorted(lengths)}: resample them")
        frames = lengths.pop()
        stride = self.pipe.vae_scale_factor_temporal
        if frames % stride != 1:
            lower, upper = (frames - 1) // stride * stride + 1, (frames - 1) // stride * stride + 1 + stride
            raise ValueError(
                f"the camera has {frames} frames; the model makes {stride} n + 1 (such as {lower} or {upper}): "
                f"use camera.resample(frames={upper})"
            )
        return frames

    def _pipe_for(self, image: Any) -> Any:
        """The diffusers pipeline for this call: the loaded one, or its image (or text) sibling on the same weights."""
        from diffusers import WanImageToVideoPipeline, WanPipeline

        takes_image = isinstance(self.pipe, WanImageToVideoPipeline)
        if image is None and takes_image and not self.pipe.config.expand_timesteps:
            raise ValueError(f"{type(self.pipe).__name__} needs a first frame: give an image")
        wanted = WanImageToVideoPipeline if image is not None else WanPipeline
        if isinstance(self.pipe, wanted) or (image is None and not takes_image):
            return self.pipe
        if not getattr(self.pipe.config, "expand_timesteps", False):
            raise ValueError(f"{type(self.pipe).__name__} makes video from text alone: leave the image out")
        names = ("tokenizer", "text_encoder", "vae", "scheduler", "transformer")
        sibling: Any = wanted(**{name: getattr(self.pipe, name) for name in names}, expand_timesteps=True)
        sibling.set_progress_bar_config(disable=True)
        return sibling


def _paired(
    prompt: str | Sequence[str], camera: Trajectory | Sequence[Trajectory]
) -> tuple[list[str], list[Trajectory]]:
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    cameras = [camera] if isinstance(camera, Trajectory) else list(camera)
    if len(prompts) != len(cameras) and 1 not in (len(prompts), len(cameras)):
        raise ValueError(f"{len(prompts)} prompts do not fit {len(cameras)} cameras: give as many, or one of either")
    if not prompts or not cameras:
        raise ValueError("no prompt or no camera given")
    count = max(len(prompts), len(cameras))
    return prompts * (count // len(prompts)), cameras * (count // len(cameras))


def _picture(image: Any) -> Any:
    from PIL import Image

    return Image.fromarray(image) if isinstance(image, np.ndarray) else image


def _read_defaults(folder: Path) -> Defaults:
    path = folder / DEFAULTS_FILE
    return Defaults(**json.loads(path.read_text())) if path.is_file() else Defaults()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
