"""Clips as a training step eats them: encoded once by the frozen models, kept on disk, found again by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ucpe.files import atomic_file, write_json
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import TrainingClips
from ucpe.trajectories import Trajectory


@dataclass(frozen=True)
class EncodedClip:
    """One clip, ready to be noised."""

    latents: Tensor  # (C, F, h, w) float32, normalised as Wan's pipelines do
    text: Tensor | str  # (L, D), or the caption for a text encoder that runs along
    camera: Trajectory
    family: str
    image: Tensor | None = None  # (C', F, h, w)
    image_embeds: Tensor | None = None  # (L', D')


class EncodedClips:
    """The clips of a source through a base model's autoencoder and text encoder, one small file each.

    Files are named by the content of clip and caption and by the weights of the models, so a dataset may move, grow
    or be shared between runs, and only what changed is encoded again.
    """

    def __init__(self, source: TrainingClips, model: BaseModel, cache: Path):
        recipe = model.recipe
        self.source, self.recipe = source, recipe
        parts = ("vae", "image_encoder") if model.image_encoder else ("vae",)
        size = f"{recipe.frames}x{recipe.height}x{recipe.width}"
        self.videos = cache / f"videos-{size}-{model.fingerprint(*parts)}{'-image' * model.concatenates_image}"
        self.texts = None
        if recipe.cache_text:
            self.texts = cache / f"texts-{recipe.text_tokens}-{model.fingerprint('text_encoder', 'tokenizer')}"
        self.numbers: Sequence[int] = range(len(source))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> EncodedClip:
        """One clip; it must have been encoded."""
        number = self.numbers[index]
        clip = self.source[number]
        tensors = _read(self.video_path(number))
        text = clip.caption if self.texts is None else self.embedding(clip.caption)
        return EncodedClip(
            tensors["latents"].float(),
            text,
            clip.camera[: self.recipe.frames],
            clip.family,
            *(tensors[name].float() if name in tensors else None for name in ("image", "image_embeds")),
        )

    @cached_property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape (C, F, h, w) of every clip's latents."""
        for number in self.numbers:
            if self.video_path(number).exists():
                with safe_open(self.video_path(number), "pt") as file:
                    return tuple(file.get_slice("latents").get_shape())
        raise ValueError("no clip has been encoded")

    def embedding(self, caption: str) -> Tensor:
        """Embedding (L, D) of a caption, zero behind its end."""
        embedding = _read(self.text_path(caption))["text"].float()
        return torch.nn.functional.pad(embedding, (0, 0, 0, self.recipe.text_tokens - len(embedding)))

    def video_path(self, number: int) -> Path:
        """File of a clip of the source."""
        return self.videos / f"{self.source.key(number)}.safetensors"

    def text_path(self, caption: str) -> Path:
        """File of a caption."""
        assert self.texts is not None
        return self.texts / f"{hashlib.sha256(caption.encode()).hexdigest()[:32]}.safetensors"

    def broken_path(self, number: int) -> Path:
        """File that says why a clip could not be encoded."""
        return self.video_path(number).with_suffix(".broken.json")

    def missing_videos(self, numbers: Iterable[int]) -> list[int]:
        """Those clips of the source that are not encoded yet, each content once."""
        missing = {self.video_path(number): number for number in numbers if not readable(self.video_path(number))}
        return sorted(missing.values())

    def missing_texts(self, numbers: Iterable[int]) -> list[str]:
        """Captions (and the empty one) that are not encoded yet."""
        if self.texts is None:
            return []
        captions = {"", *(self.source[number].caption for number in numbers)}
        return sorted(caption for caption in captions if not readable(self.text_path(caption)))

    def broken(self, numbers: Iterable[int]) -> dict[int, str]:
        """Clips that could not be encoded, and why."""
        paths = {number: self.broken_path(number) for number in numbers}
        return {number: json.loads(path.read_text())["reason"] for number, path in paths.items() if path.exists()}

    def leave_out(self, numbers: Iterable[int]) -> None:
        """Forget clips of the source, which are then never drawn."""
        gone = set(numbers)
        self.numbers = [number for number in self.numbers if number not in gone]


class VideoEncoder:
    """Autoencoder, and CLIP where the model has it: pictures of a clip to tensors on disk."""

    def __init__(self, model: BaseModel, device: torch.device):
        self.vae = model.autoencoder().to(device)
        self.image_parts = model.image_parts()
        self.concatenates_image = model.concatenates_image
        if self.image_parts["image_encoder"] is not None:
            self.image_parts["image_encoder"].to(device)
        self.device = device

    @torch.no_grad()
    def __call__(
        self,
        video: Tensor,  # (N, H, W, 3) uint8
    ) -> dict[str, Tensor]:
        """Latents and, for image-to-video models, what they see of the first frame; float16."""
        pictures = to_model_range(video[None]).to(self.device)
        tensors = {"latents": encode_video(self.vae, pictures)[0]}
        if self.concatenates_image:
            pipe = self._pipe()
            frames, height, width = video.shape[:3]
            tensors["image"] = pipe.prepare_latents(
                pictures[:, :, 0],
                1,
                self.vae.config.z_dim,
                height,
                width,
                frames,
                torch.float32,
                self.device,
                latents=tensors["latents"][None],
            )[1][0]
            if self.image_parts["image_encoder"] is not None:
                from PIL import Image

                tensors["image_embeds"] = pipe.encode_image(Image.fromarray(video[0].numpy()), self.device)[0]
        return {name: value.half().cpu().contiguous() for name, value in tensors.items()}

    def _pipe(self) -> Any:
        """Wan's own pipeline, around the parts that look at the first frame."""
        from diffusers import WanImageToVideoPipeline

        nothing: dict[str, Any] = dict.fromkeys(("tokenizer", "text_encoder", "scheduler"))
        return WanImageToVideoPipeline(vae=self.vae, **self.image_parts, **nothing)


def encode_missing(
    clips: EncodedClips,
    model: BaseModel,
    numbers: Sequence[int],
    device: torch.device,
    rank: int = 0,
    processes: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> None:
    """Encode this process's share of the clips and captions that are not on disk yet; killed, it goes on from there.

    A clip that cannot be read gets a note beside the others (see `EncodedClips.broken`), and the rest goes on.
    """
    captions = clips.missing_texts(numbers)[rank::processes]
    if captions:
        prompts = model.prompts()
        prompts.text_encoder.to(device)
        for index, caption in enumerate(captions):
            with torch.no_grad():
                embedding = prompts([caption])[0]
            length = int(embedding.abs().amax(-1).nonzero().amax()) + 1
            _write(clips.text_path(caption), {"text": embedding[:length].bfloat16().cpu()})
            on_progress("captions", index + 1, len(captions))
        del prompts
    missing = clips.missing_videos(numbers)[rank::processes]
    encoder = VideoEncoder(model, device) if missing else None
    for index, number in enumerate(missing):
        recipe = clips.recipe
        note = clips.broken_path(number)
        note.unlink(missing_ok=True)
        try:
            if len(clips.source[number].camera) < recipe.frames:
                length = len(clips.source[number].camera)
                raise ValueError(f"{clips.source[number].name}: {length} poses, training needs {recipe.frames}")
            video = clips.source.video(number, recipe.frames, recipe.height, recipe.width)
        except (ValueError, OSError, SafetensorError) as error:
            write_json(note, {"clip": clips.source[number].name, "reason": str(error)})
        else:
            assert encoder is not None
            _write(clips.video_path(number), encoder(video))
        on_progress("clips", index + 1, len(missing))


@torch.no_grad()
def encode_video(vae: Any, video: Tensor) -> Tensor:
    """Normalised latents (B, C, F, h, w) of videos (B, 3, N, H, W) in [-1, 1]."""
    latents = vae.encode(video.to(vae.dtype)).latent_dist.mode().float()
    mean, spread = (
        torch.as_tensor(vae.config[name] if name in vae.config else getattr(vae, name))
        .to(latents)
        .reshape(1, -1, 1, 1, 1)
        for name in ("latents_mean", "latents_std")
    )
    return (latents - mean) * vae.config.get("scaling_factor", 1.0) / spread


def to_model_range(video: Tensor) -> Tensor:
    """Videos (B, N, H, W, 3) uint8 as (B, 3, N, H, W) float in [-1, 1]."""
    return video.permute(0, 4, 1, 2, 3).float() / 127.5 - 1


def readable(path: Path) -> bool:
    """Whether a file of the cache is there and whole; one that is not whole is removed."""
    if not path.exists():
        return False
    try:
        with safe_open(path, "pt"):
            return True
    except (SafetensorError, OSError):
        path.unlink(missing_ok=True)
        return False


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} cannot be read ({error}): run the same command to encode it again") from None


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        with atomic_file(path) as temporary:
            save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
    except (OSError, SafetensorError) as error:
        raise OSError(
            f"cannot write {path} ({error}): make room (or choose another --cache) and run the same command again; "
            "what was encoded so far is kept"
        ) from None
