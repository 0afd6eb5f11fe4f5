"""Panoramic footage filmed again: one pass over a 360 degree video, any number of virtual cameras."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ucpe.lenses import Lens
from ucpe.synthesis.panoramas import Interpolation, Panorama, Projection, View
from ucpe.video import (
    BT709,
    LIMITED,
    Colors,
    Planes,
    VideoError,
    VideoInfo,
    VideoWriter,
    probe_video,
    read_video,
)

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")

STILL_FPS, STILL_FRAMES = 16.0, 81
"""Frame rate and length of an image that stands still."""


class Footage:
    """A panorama over time: a video file, or an image of which every frame is the same."""

    def __init__(self, path: str | Path, projection: Projection = "equirectangular"):
        self.path, self.projection = Path(path), projection
        self.still = self.path.suffix.lower() in IMAGE_SUFFIXES
        if self.still:
            height, width = Panorama.open(path, projection).levels[0].shape[:2]
            self.info = VideoInfo(height, width, STILL_FPS, 1, 0.0, "image", Colors())
        else:
            self.info = probe_video(path)

    def frame_numbers(self, frames: int | None = None, fps: float | None = None, start: float = 0.0) -> list[int]:
        """Which frames to show for `frames` at `fps` from `start` seconds on; by default all, at the footage's rate."""
        rate = self.info.fps if fps is None else fps
        if not rate > 0 or (frames is not None and frames < 1):
            raise ValueError(f"{self.path}: fps must be above 0 and frames at least 1, got {rate:g} and {frames}")
        first = round(start * self.info.fps)
        if start < 0 or (not self.still and first >= self.info.frames):
            raise ValueError(f"{self.path}: start must be within its {self.info.duration:.2f} seconds, got {start:g}")
        left = (self.info.frames - first) / self.info.fps
        count = (STILL_FRAMES if self.still else max(int(left * rate + 1e-6), 1)) if frames is None else frames
        numbers = [0 if self.still else first + int(step * self.info.fps / rate + 1e-6) for step in range(count)]
        if not self.still and numbers[-1] >= self.info.frames:
            raise ValueError(
                f"{self.path}: {count} frames at {rate:g} fps from second {start:g} need frame {numbers[-1]}, and it "
                f"has {self.info.frames}; ask for fewer frames or a higher fps"
            )
        return numbers

    def planes(self, indices: Sequence[int], threads: int = 1) -> Iterator[tuple[Panorama, Panorama, Panorama, bool]]:
        """Luma and colour panoramas, and whether they are full range, of these frame numbers, which never decrease.

        One frame is in memory at a time; raises VideoError where the footage ends too early.
        """
        numbers = list(indices)
        if not numbers or numbers[0] < 0 or any(later < earlier for earlier, later in itertools.pairwise(numbers)):
            raise ValueError(f"{self.path}: frame numbers must be given, not negative and in order, got {numbers[:9]}")
        if self.still:
            planes = self._panoramas(_still_planes(Panorama.open(self.path, self.projection).levels[0]))
            for _ in numbers:
                yield planes
            return
        place = 0
        for frame in read_video(self.path, start=numbers[0], threads=threads):
            if frame.index < numbers[place]:
                continue
            planes = self._panoramas(frame.planes)
            while place < len(numbers) and numbers[place] <= frame.index:
                yield planes
                place += 1
            if place == len(numbers):
                return
        raise VideoError(f"{self.path}: ends before frame {numbers[place]}, which is needed; is the file complete?")

    def _panoramas(self, planes: Planes) -> tuple[Panorama, Panorama, Panorama, bool]:
        luma, blue, red = (Panorama(plane, self.projection) for plane in planes[:3])
        return luma, blue, red, planes.full_range


@dataclass
class Shot:
    """One virtual camera: where its video goes, its lens (batch shape () or (N,)), its rotations, and its size."""

    path: Path
    lens: Lens
    rotations: Any  # (N, 3, 3), camera to panorama
    height: int = 480
    width: int = 832
    fps: float = 16.0


def film(
    footage: Footage,
    shots: Sequence[Shot],
    indices: Sequence[int],  # (N,) frame of the footage for each frame of the shots
    *,
    interpolation: Interpolation = "bilinear",
    antialias: bool = True,
    crf: float = 17,
    preset: str = "medium",
    threads: int = 1,
    progress: Callable[[], None] | None = None,
) -> list[VideoInfo]:
    """Write every shot in one pass over the footage, which is decoded once; `progress` is called after each frame.

    Works on the footage's own 4:2:0 planes. No file appears unless all are complete.
    """
    for shot in shots:
        if np.shape(shot.rotations) != (len(indices), 3, 3):
            raise ValueError(
                f"{shot.path}: needs {len(indices)} rotations (3, 3), got shape {np.shape(shot.rotations)}"
            )
        if shot.lens.batch_shape not in ((), (len(indices),)):
            raise ValueError(f"{shot.path}: a lens of batch {tuple(shot.lens.batch_shape)} for {len(indices)} frames")

    def make_view(shot: Shot, lens: Lens) -> View:
        return View(lens, shot.height, shot.width, interpolation=interpolation, antialias=antialias)

    views = [None if shot.lens.batch_shape else make_view(shot, shot.lens) for shot in shots]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        writers: list[VideoWriter] = []
        try:
            for shot in shots:
                writers.append(
                    VideoWriter(
                        shot.path, shot.height, shot.width, shot.fps,
                        crf=crf, preset=preset, colors=footage.info.colors,
                    )
                )  # fmt: skip
            for number, (*panorama, full_range) in enumerate(footage.planes(indices, threads)):

                def expose(place: int, number: int = number, panorama: Any = panorama, full: bool = full_range) -> None:
                    shot = shots[place]
                    view = views[place] or make_view(shot, shot.lens[number])
                    planes = view.planes(tuple(panorama), shot.rotations[number], full)
                    writers[place].write_planes(*planes[:3])

                list((pool.map if pool else map)(expose, range(len(shots))))
                if progress:
                    progress()
            return [writer.close() for writer in writers]
        except BaseException:
            for writer in writers:
                writer.abandon()
            raise


def _still_planes(picture: np.ndarray) -> Planes:
    """The 4:2:0 planes of an RGB picture (H, W, 3); an odd last row or column is dropped."""
    import av

    height, width = (side // 2 * 2 for side in picture.shape[:2])
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
    frame = frame.reformat(format="yuv420p", dst_colorspace=BT709, dst_color_range=LIMITED, interpolation="BICUBIC")
    luma, blue, red = np.split(frame.to_ndarray().ravel(), [height * width, height * width * 5 // 4])
    small = (height // 2, width // 2)
    return Planes(luma.reshape(height, width), blue.reshape(small), red.reshape(small))
