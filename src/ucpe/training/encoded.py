"""Clips as a training step eats them: encoded once by the frozen models, kept on disk, found again by content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucpe.synthesis.dataset import ClipDataset, Pictures
from ucpe.training.base_models import BaseModel
from ucpe.trajectories import Trajectory
from ucpe.work import Item, Quarantine, Record, RecordParts, Resources, Stage, run


@dataclass(frozen=True)
class EncodedClip:
    """One clip, ready to be noised."""

    latents: Tensor  # (C, F, h, w) float32, normalised as Wan's pipelines do
    text: Tensor | str  # (L, D), or the caption for a text encoder that runs along
    camera: Trajectory
    image: Tensor | None = None  # (C', F, h, w)
    image_embeds: Tensor | None = None  # (L', D')


class EncodedClips:
    """The clips of a source through a base model's autoencoder and text encoder, one small file each.

    Files are named by the content of clip and caption and by the weights of the models, so a dataset may move, grow
    or be shared between runs, and only what changed is encoded again.
    """

    def __init__(self, source: ClipDataset, model: BaseModel, cache: Path):
        recipe = model.recipe
        self.source, self.recipe = source, recipe
        parts = ("vae", "image_encoder") if model.image_encoder else ("vae",)
        size = f"{recipe.frames}x{recipe.height}x{recipe.width}"
        kind = "-image" if model.concatenates_image else ""
        self.videos = RecordParts(cache / f"videos-{size}-{model.fingerprint(*parts)}{kind}")
        self.texts = None
        if recipe.cache_text:
            weights = model.fingerprint("text_encoder", "tokenizer")
            self.texts = RecordParts(cache / f"texts-{recipe.text_tokens}-{weights}")
        self.numbers: Sequence[int] = range(len(source))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> EncodedClip:
        """One clip; it must have been encoded."""
        number = self.numbers[index]
        clip = self.source.clip(number)
        tensors = _read(self.videos, self.video(number))
        text = clip.caption if self.texts is None else self.embedding(clip.caption)
        return EncodedClip(
            tensors["latents"].float(),
            text,
            clip.camera[: self.recipe.frames],
            *(tensors[name].float() if name in tensors else None for name in ("image", "image_embeds")),
        )

    @cached_property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape (C, F, h, w) of every clip's latents."""
        for number in self.numbers:
            if (record := self.videos.load(self.video(number))) is not None:
                return tuple(record.tensors["latents"].shape)
        raise ValueError("no clip has been encoded")

    def embedding(self, caption: str) -> Tensor:
        """Embedding (L, D) of a caption, zero behind its end."""
        assert self.texts is not None
        embedding = _read(self.texts, self.text(caption))["text"].float()
        return torch.nn.functional.pad(embedding, (0, 0, 0, self.recipe.text_tokens - len(embedding)))

    def video(self, number: int) -> Item:
        """The work of encoding a clip of the source."""
        pictures = self.source.clip(number).pictures
        return Item(pictures.key(), pictures)

    def text(self, caption: str) -> Item:
        """The work of encoding a caption."""
        return Item(hashlib.sha256(caption.encode()).hexdigest()[:32], caption)

    def missing_videos(self, numbers: Iterable[int]) -> list[int]:
        """Those clips of the source that are not encoded yet, each content once."""
        items = {number: self.video(number) for number in numbers}
        return sorted({item.id: number for number, item in items.items() if not self.videos.holds(item)}.values())

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


class Encoding(Stage):
    """Turns clips or captions into tensors on disk; only whether it did is handed on."""

    parts: RecordParts

    def __init__(self, model: BaseModel, device: torch.device, parts: RecordParts):
        self.model, self.device, self.parts = model, device, parts
        self.resources = Resources(gpus=float(device.type != "cpu"))

    def find(self, item: Item) -> bool | None:
        """Whether an item is encoded."""
        return self.parts.holds(item) or None

    def finish(self, item: Item) -> bool:
        """Encode an item and keep the tensors."""
        self.parts.save(item, Record(self.process(item.task)))
        return True


class ClipEncoding(Encoding):
    """Puts clips through the autoencoder, and CLIP where the model has it."""

    name = "clips"

    def setup(self) -> None:
        """Load the models."""
        self.encoder = VideoEncoder(self.model, self.device)

    def process(self, task: Pictures) -> dict[str, Tensor]:
        """Encode a clip."""
        recipe = self.model.recipe
        return self.encoder(task.video(recipe.frames, recipe.height, recipe.width))


class CaptionEncoding(Encoding):
    """Puts captions through the text encoder."""

    name = "captions"

    def setup(self) -> None:
        """Load the text encoder."""
        self.prompts = self.model.prompts()
        self.prompts.text_encoder.to(self.device)

    @torch.no_grad()
    def process(self, task: str) -> dict[str, Tensor]:
        """Encode a caption, without the zeros behind its end."""
        embedding = self.prompts([task])[0]
        length = int(embedding.abs().amax(-1).nonzero().amax()) + 1
        return {"text": embedding[:length].bfloat16().cpu()}


def encode_missing(
    clips: EncodedClips,
    model: BaseModel,
    numbers: Sequence[int],
    device: torch.device,
    rank: int = 0,
    processes: int = 1,
    **options: Any,
) -> dict[int, str]:
    """Encode this process's share of the clips and captions that are not on disk yet; killed, it goes on from there.

    Returns which clips of the share cannot be encoded, and why. `options` are those of `ucpe.work.run`.
    """
    captions, broken, frames = {""}, {}, model.recipe.frames
    for number in numbers:
        clip = clips.source.clip(number)
        captions.add(clip.caption)
        if len(clip.camera) < frames:
            broken[number] = f"{clip.pictures}: {len(clip.camera)} poses, training needs {frames}"
    if clips.texts is not None:
        texts = [clips.text(caption) for caption in sorted(captions)][rank::processes]
        for _ in run(CaptionEncoding(model, device, clips.texts), texts, **options):
            pass
    items = {number: clips.video(number) for number in numbers if number not in broken}
    share = sorted({item.id: item for item in items.values()}.values(), key=lambda item: item.id)[rank::processes]
    quarantine = Quarantine(clips.videos.folder / (f"shard-{rank}-of-{processes}" if processes > 1 else ""))
    stage = ClipEncoding(model, device, clips.videos)
    failed = {done.item.id: done.reason for done in run(stage, share, quarantine=quarantine, **options) if done.reason}
    return broken | {number: failed[item.id] for number, item in items.items() if item.id in failed}


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


def _read(parts: RecordParts, item: Item) -> dict[str, Tensor]:
    record = parts.load(item)
    if record is None:
        raise OSError(f"{parts.file(item)} cannot be read: run the same command to encode it again")
    return record.tensors
