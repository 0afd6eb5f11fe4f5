"""How each kind of diffusers' video pipelines is called; a new kind is one subclass of `Family`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from ucpe.adapters import Adapter, SanaWMCamera
from ucpe.generation.defaults import Defaults
from ucpe.lenses import Lens, Pinhole, PlanarLens
from ucpe.trajectories import Trajectory

_FAMILIES: dict[str, Family] = {}
"""Families by the class name of the pipelines they drive."""


class Family:
    """Pipelines that make a batch of videos from prompts alone, steered by adapters on their transformers."""

    pipelines: tuple[str, ...] = ()
    """Names of the diffusers classes."""

    defaults = Defaults()
    """What its models are generated with where their folder does not say."""

    own_camera = False
    """Whether its models follow a camera by themselves, so that no adapter need be trained for them."""

    def own_adapters(self, pipe: Any) -> list[Adapter]:
        """The adapters of a pipeline that follows a camera by itself."""
        return []

    def denoisers(self, pipe: Any) -> list[Any]:
        """The transformers that take turns in denoising, each steered by an adapter of its own."""
        named = (getattr(pipe, name, None) for name in ("transformer", "transformer_2"))
        return [transformer for transformer in named if transformer is not None]

    def run(
        self,
        pipe: Any,
        adapters: Sequence[Adapter],
        cameras: Sequence[Trajectory],
        image: Any,
        arguments: dict[str, Any],
    ) -> Any:
        """Frames of one video for each camera, from diffusers' arguments for all of them.

        `image` is the first frame (PIL) or None.
        """
        with following(adapters, cameras, arguments):
            return self.generate(pipe, image, arguments)

    def generate(self, pipe: Any, image: Any, arguments: dict[str, Any]) -> Any:
        """Frames of a batch of videos, while the adapters hold its cameras."""
        if image is not None:
            raise ValueError(f"{type(pipe).__name__} makes video from text alone: leave the image out")
        return pipe(**arguments).frames


def register(family: type[Family]) -> type[Family]:
    """Let a family drive the pipelines it names."""
    _FAMILIES.update(dict.fromkeys(family.pipelines, family()))
    return family


def family_of(pipe: Any) -> Family:
    """The family of a pipeline, found by its class or a base class of it."""
    named = (_FAMILIES[ancestor.__name__] for ancestor in type(pipe).__mro__ if ancestor.__name__ in _FAMILIES)
    return next(named, Family())


def family_named(pipeline: str) -> Family:
    """The family of pipelines of a class, by the name of the class."""
    return _FAMILIES.get(pipeline, Family())


@contextmanager
def following(
    adapters: Sequence[Adapter], cameras: Sequence[Trajectory], arguments: dict[str, Any], copies: int = 1
) -> Iterator[None]:
    """Let adapters hold these cameras, `copies` times over, for videos of the arguments' height and width."""
    with ExitStack() as held:
        for adapter in adapters:
            condition = adapter.encode(cameras, arguments["height"], arguments["width"])
            held.enter_context(adapter.camera(condition.repeat(copies)))
        yield


@register
class Wan(Family):
    """Wan2.1 and Wan2.2, from text or from a first frame, whichever of the two pipelines is loaded."""

    pipelines = ("WanPipeline", "WanImageToVideoPipeline")

    def generate(self, pipe: Any, image: Any, arguments: dict[str, Any]) -> Any:
        """Frames of a batch of videos, while the adapters hold its cameras."""
        given = {} if image is None else {"image": image}
        return self._pipe_for(pipe, image)(**arguments, **given).frames

    def _pipe_for(self, pipe: Any, image: Any) -> Any:
        """The loaded pipeline, or its sibling on the same weights where a model takes text with and without image."""
        from diffusers import WanImageToVideoPipeline, WanPipeline

        takes_image = isinstance(pipe, WanImageToVideoPipeline)
        if takes_image == (image is not None):
            return pipe
        if not getattr(pipe.config, "expand_timesteps", False):
            if image is None:
                raise ValueError(f"{type(pipe).__name__} needs a first frame: give an image")
            raise ValueError(f"{type(pipe).__name__} makes video from text alone: leave the image out")
        names = ("tokenizer", "text_encoder", "vae", "scheduler", "transformer")
        kind: Any = WanPipeline if image is None else WanImageToVideoPipeline
        sibling = kind(**{name: getattr(pipe, name) for name in names}, expand_timesteps=True)
        sibling.set_progress_bar_config(**getattr(pipe, "_progress_bar_config", {}))
        return sibling


@register
class SanaWM(Family):
    """SANA-WM, a world model with a camera branch of its own; its pipeline makes one video at a time."""

    pipelines = ("SanaWMPipeline",)
    defaults = Defaults(frames=161, fps=16.0, height=704, width=1280, steps=60, guidance=5.0)
    own_camera = True

    def own_adapters(self, pipe: Any) -> list[Adapter]:
        """Our lenses for its own camera branch."""
        strides = {
            "temporal_stride": pipe.vae_temporal_compression_ratio,
            "spatial_stride": pipe.vae_spatial_compression_ratio,
        }
        return [SanaWMCamera.for_transformer(pipe.transformer, **strides)]

    def run(
        self,
        pipe: Any,
        adapters: Sequence[Adapter],
        cameras: Sequence[Trajectory],
        image: Any,
        arguments: dict[str, Any],
    ) -> Any:
        """Frames of one video for each camera; the pipeline asks for a pinhole camera, which the adapter replaces."""
        if image is None:
            raise ValueError(f"{type(pipe).__name__} needs a first frame: give an image")
        if given := [name for name in ("c2w", "action", "intrinsics") if name in arguments]:
            raise ValueError(f"the camera is given as camera=, leave {' and '.join(given)} out")
        height, width = arguments["height"], arguments["width"]
        stand_in = Pinhole(xfov=90.0).intrinsics(height, width).numpy()
        both = 2 if arguments["guidance_scale"] > 1 else 1  # with and without the text, in one pass
        videos = []
        for index, camera in enumerate(cameras):
            single = {name: _entry(name, value, index, len(cameras)) for name, value in arguments.items()}
            camera = camera.with_lens(lens_of_cropped(camera.lens, image.size, height, width))
            with following(adapters, [camera], arguments, both):
                poses = camera.c2w.float().cpu().numpy()
                videos.append(pipe(image=image, c2w=poses, intrinsics=stand_in, **single).frames)
        if isinstance(videos[0], torch.Tensor):
            return torch.cat(videos) if videos[0].ndim == 5 else torch.stack(videos)
        return np.stack(videos) if isinstance(videos[0], np.ndarray) else videos


def _entry(name: str, value: Any, index: int, count: int) -> Any:
    """The argument of one of several videos: an entry of a list, a row of embeddings, or what all have in common."""
    if isinstance(value, list) and name in ("prompt", "negative_prompt", "generator"):
        return value[index]
    embedded = isinstance(value, torch.Tensor) and len(value) == count
    return value[index : index + 1] if embedded else value


def lens_of_cropped(lens: Lens, image_size: tuple[int, int], height: int, width: int) -> Lens:
    """The lens of a photograph that is resized and cropped around its centre to a video of height x width.

    `image_size` is (width, height) in pixels. A lens that is not calibrated for the picture's shape already describes
    the video, and stays as it is.
    """
    across, down = image_size
    if not isinstance(lens, PlanarLens) or "width" not in lens.settings:
        return lens
    same_shape = abs(lens.settings["width"] * down - lens.settings["height"] * across) <= max(across, down)
    if not same_shape:
        return lens
    scale = max(width / across, height / down)
    resized = max(height, round(down * scale)), max(width, round(across * scale))
    left, top = (resized[1] - width) // 2, (resized[0] - height) // 2
    return lens.cropped(left, top, height, width, height=resized[0], width=resized[1])
