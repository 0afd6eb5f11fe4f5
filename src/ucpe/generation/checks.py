"""What can be said of a video before a weight is loaded: what is impossible, and what the model was not trained on."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ucpe.adapters.attachment import check_fit
from ucpe.adapters.backbones import backbone_of
from ucpe.generation.defaults import Defaults
from ucpe.generation.loading import find_adapters, find_model, pipeline_family
from ucpe.generation.pipeline import check_frames
from ucpe.generation.vocabulary import Vocabulary
from ucpe.reading import open_image, read_json_object
from ucpe.trajectories import Trajectory

if TYPE_CHECKING:
    from ucpe.generation.requests import Request

SLACK = 1.001
"""A limit counts as exceeded beyond this multiple of it: paths carry rounding errors."""


@dataclass(frozen=True)
class ModelFacts:
    """What a model's folder says without its weights; for a model that is not on this disk, the facts of Wan."""

    defaults: Defaults = field(default_factory=Defaults)
    temporal_stride: int | None = 4
    """Video frames per latent frame, after the first; None if only the weights tell."""
    token: tuple[int, int] | None = (16, 16)
    """Rows and columns of pixels in a token; None if only the weights tell."""
    first_frame: str = "may"
    """Whether a first frame "may", "must" or "cannot" be given."""
    vocabulary: Vocabulary | None = None


def read_facts(model: str | Path | None, adapter: str | Path | None) -> ModelFacts:
    """The facts of a model and its adapter, from the small files beside their weights."""
    folder = Path(find_model(model))
    family = pipeline_family(folder)
    found = next(iter(find_adapters(folder, adapter)), None)
    config, index = {} if found is None else _json(found / "config.json"), _json(folder / "model_index.json")
    if config:
        _check_adapter(config, folder, index)
    _, rows, columns = config.get("patch_size", (1, 2, 2))
    stride = config.get("spatial_stride", 8)
    token = (stride * rows, stride * columns)
    return ModelFacts(
        defaults=Defaults.load(folder, family.defaults),
        temporal_stride=None if found is None else config.get("temporal_stride", 4),
        token=None if found is None else token,
        first_frame=_first_frame(index),
        vocabulary=Vocabulary.of_file(folder / "tokenizer" / "tokenizer.json"),
    )


def check_request(request: Request, facts: ModelFacts) -> list[str]:
    """Notes on a video that goes beyond what the model was trained on; ValueError for one that cannot be made."""
    request = request.with_defaults(facts.defaults)
    request.check_sampling()
    assert request.height is not None and request.width is not None
    for name, size, token in zip(("height", "width"), (request.height, request.width), facts.token or (2, 2)):
        if size < token or size % token:
            near = max(token, round(size / token) * token)
            raise ValueError(f"--{name} must be a multiple of {token} pixels, a token's size, got {size}: use {near}")
    if facts.temporal_stride is not None:
        check_frames(len(request.camera), facts.temporal_stride, "pass --frames {lower} or {upper}")
    _check_image(request.image, facts.first_frame)
    words = [] if facts.vocabulary is None else facts.vocabulary.notes(request.prompt, facts.defaults.text_tokens)
    return [*words, *beyond_limits(request.camera, facts.defaults, request.height, request.width)]


def beyond_limits(camera: Trajectory, defaults: Defaults, height: int, width: int) -> list[str]:
    """Where a camera goes beyond what a model was trained on, each naming the limit."""
    limits, first = defaults.limits, camera[0]
    moved = (camera.positions - first.positions).norm(dim=-1)
    xfov = np.atleast_1d(camera.lens.xfov(height, width).double().cpu().numpy())
    notes = []
    for what, value, limit, unit in (
        ("the first camera's pitch is", abs(float(first.angles.pitch)), limits.pitch, "degrees"),
        ("the first camera's roll is", abs(float(first.angles.roll)), limits.roll, "degrees"),
        ("the camera turns by", camera.maximum_rotation(), limits.turn, "degrees"),
        ("the camera moves by", float(moved.max()), limits.travel, "near-plane depths"),
        ("the field of view is", xfov.max(), limits.max_xfov, "degrees"),
    ):
        if limit is not None and value > limit * SLACK:
            notes.append(f"{what} {value:.3g} {unit}, and the model was trained up to {limit:g}")
    if limits.min_xfov is not None and xfov.min() * SLACK < limits.min_xfov:
        notes.append(
            f"the field of view is {xfov.min():.3g} degrees, and the model was trained from {limits.min_xfov:g} on"
        )
    return notes


def check_output(path: Path, folder: bool = False) -> None:
    """ValueError unless a video (or a folder of videos) can be written to a path."""
    if folder:
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file: name a folder (-o) for the videos of a list")
    elif path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'video.mp4'}")
    elif path.suffix.lower() != ".mp4":
        raise ValueError(f"{path}: videos are written as .mp4, such as {path.with_suffix('.mp4')}")
    for parent in path.absolute().parents if not folder else (path.absolute(), *path.absolute().parents):
        if parent.exists():
            if not parent.is_dir():
                raise ValueError(f"{path} cannot be written: {parent} is a file")
            try:
                with tempfile.TemporaryFile(dir=parent):
                    return
            except OSError as error:
                raise ValueError(f"{path} cannot be written: {error.strerror} ({parent})") from None


def _check_image(image: Path | None, first_frame: str) -> None:
    if image is None:
        if first_frame == "must":
            raise ValueError("the model needs a first frame: --image FILE")
        return
    if first_frame == "cannot":
        raise ValueError("the model makes video from text alone: leave --image out")
    open_image(image)


def _check_adapter(config: dict[str, Any], folder: Path, index: dict[str, Any]) -> None:
    """ValueError unless an adapter's configuration fits the model's transformer, which is made without its weights."""
    import diffusers
    import torch

    settings, (_, kind) = _json(folder / "transformer" / "config.json"), index.get("transformer") or (None, None)
    if settings and kind:
        try:
            with torch.device("meta"):
                transformer = getattr(diffusers, str(kind)).from_config(settings)
        except Exception as error:
            raise ValueError(f"{folder}: transformer/config.json makes no {kind} ({error})") from None
        check_fit(config, backbone_of(transformer))


def _first_frame(index: dict[str, Any]) -> str:
    if not index or index.get("expand_timesteps"):
        return "may"
    kind = index.get("_class_name", "")
    return "must" if "ImageToVideo" in kind or kind.startswith("SanaWM") else "cannot"


def _json(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}
