"""How each kind of diffusers' video pipelines is called; a new kind is one subclass of `Family`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ucpe.trajectories import Trajectory

_FAMILIES: dict[str, Family] = {}
"""Families by the class name of the pipelines they drive."""


class Family:
    """Pipelines that make a batch of videos from prompts alone, steered by adapters on their transformers."""

    pipelines: tuple[str, ...] = ()
    """Names of the diffusers classes."""

    def denoisers(self, pipe: Any) -> list[Any]:
        """The transformers that take turns in denoising, each steered by an adapter of its own."""
        named = (getattr(pipe, name, None) for name in ("transformer", "transformer_2"))
        return [transformer for transformer in named if transformer is not None]

    def run(self, pipe: Any, cameras: Sequence[Trajectory], image: Any, arguments: dict[str, Any]) -> Any:
        """Frames of one video for each camera, called with diffusers' arguments while the adapters hold the cameras.

        `image` is the first frame (PIL) or None.
        """
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


@register
class Wan(Family):
    """Wan2.1 and Wan2.2, from text or from a first frame, whichever of the two pipelines is loaded."""

    pipelines = ("WanPipeline", "WanImageToVideoPipeline")

    def run(self, pipe: Any, cameras: Sequence[Trajectory], image: Any, arguments: dict[str, Any]) -> Any:
        """Frames of one video for each camera."""
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
