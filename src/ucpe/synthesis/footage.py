"""Panoramic footage filmed again: one pass over a 360 degree video, any number of virtual cameras."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ucpe.lenses import Lens
from ucpe.reading import open_image
from ucpe.synthesis.layouts import Layout, Stereo, left_eye, recognize_layout
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
"""Frames per second, and number of frames, of an image that is repeated as a video."""


LOOKS = (0.1, 0.5, 0.9)
"""Shares of a video's length at which frames are looked at to recognise its layout."""


class Footage:
    """A panorama over time: a video file, or an image repeated as every frame.

    What is not given of its layout is recognised from its content; `layout.note` says what was guessed.
    """

    def __init__(self, path: str | Path, projection: Projection | None = None, stereo: Stereo | None = None):
        self.path = Path(path)
        self.still = self.path.suffix.lower() in IMAGE_SUFFIXES
        if self.still:
            height, width = np.asarray(open_image(path)).shape[:2]
            self.info = VideoInfo(height, width, STILL_FPS, 1, 0.0, "image", Colors())
        else:
            self.info = probe_video(path)
        if projection is not None and stereo is not None:
            self.layout = Layout(projection, stereo)
            return
        try:
            self.layout = recognize_layout(self._looks(), projection, stereo)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @cached_property
    def frames(self) -> int:
        """Number of frames that can be decoded; a header may promise more."""
        if self.still:
            return 1
        back, found = 2, 0
        while not found:
            first = max(self.info.frames - back, 0)
            try:
                for frame in read_video(self.path, start=first):
                    found = round(frame.time * self.info.fps) + 1
            except VideoError:
                if not found and not first:
                    raise
            if not found and not first:
                raise VideoError(f"{self.path}: no frame of it can be decoded; is the file complete?")
            back *= 4
        return found

    @property
    def notes(self) -> list[str]:
        """What a user should know: what was guessed, and frames that are missing."""
        notes = [self.layout.note] if self.layout.note else []
        if self.frames < self.info.frames and not self.still:
            notes.append(f"its header promises {self.info.frames} frames, but only {self.frames} can be decoded")
        return notes

    def frame_numbers(self, frames: int | None = None, fps: float | None = None, start: float = 0.0) -> list[int]:
        """Which frames to show for `frames` at `fps` from `start` seconds on; by default all, at the footage's rate."""
        rate = self.info.fps if fps is None else fps
        if not rate > 0 or (frames is not None and frames < 1):
            raise ValueError(f"{self.path}: fps must be above 0 and frames at least 1, got {rate:g} and {frames}")
        first = round(start * self.info.fps)
        if start < 0 or (not self.still and first >= self.frames):
            seconds = self.frames / self.info.fps
            raise ValueError(f"{self.path}: start must be within its {seconds:.2f} seconds, got {start:g}")
        left = (self.frames - first) / self.info.fps
        count = (STILL_FRAMES if self.still else max(int(left * rate + 1e-6), 1)) if frames is None else frames
        numbers = [0 if self.still else first + int(step * self.info.fps / rate + 1e-6) for step in range(count)]
        if not self.still and numbers[-1] >= self.frames:
            raise ValueError(
                f"{self.path}: {count} frames at {rate:g} fps from second {start:g} need frame {numbers[-1]}, but it "
                f"has only {self.frames}; ask for fewer frames or a higher fps"
            )
        return numbers

    def planes(self, indices: Sequence[int], threads: int = 1) -> Iterator[tuple[Panorama, Panorama, Panorama, bool]]:
        """The luma panorama and the two colour panoramas of each of these frames, and whether they are full range.

        Frame numbers must not decrease. One frame is in memory at a time. Raises VideoError if the footage ends early.
        """
        numbers = list(indices)
        if not numbers or numbers[0] < 0 or any(later < earlier for earlier, later in itertools.pairwise(numbers)):
            raise ValueError(f"{self.path}: frame numbers must be given, not negative and in order, got {numbers[:9]}")
        if self.still:
            planes = self._panoramas(_still_planes(np.asarray(open_image(self.path))))
            for _ in numbers:
                yield planes
            return
        place = 0
        for frame in read_video(self.path, start=numbers[0], threads=threads):
            number = round(frame.time * self.info.fps)
            if number < numbers[place]:
                continue
            planes = self._panoramas(frame.planes)
            while place < len(numbers) and numbers[place] <= number:
                yield planes
                place += 1
            if place == len(numbers):
                return
        raise VideoError(f"{self.path}: ends before frame {numbers[place]}, which is needed; is the file complete?")

    def _panoramas(self, planes: Planes) -> tuple[Panorama, Panorama, Panorama, bool]:
        projection, stereo = self.layout.projection, self.layout.stereo
        luma, blue, red = (Panorama(left_eye(plane, stereo), projection) for plane in planes[:3])
        return luma, blue, red, planes.full_range

    def _looks(self) -> list[np.ndarray]:
        """A few frames (H, W, 3) uint8."""
        if self.still:
            return [np.asarray(open_image(self.path))]
        looks: list[np.ndarray] = []
        for part in LOOKS:
            with suppress(VideoError):
                frames = read_video(self.path, start=int(part * self.info.frames), frames=1)
                looks += [frame.rgb for frame in itertools.islice(frames, 1)]
        if not looks:
            raise VideoError("none of its frames can be decoded; is the file complete?")
        return looks


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
    to_the_end: bool = False,
    progress: Callable[[], None] | None = None,
) -> list[VideoInfo]:
    """Write every shot in one pass over the footage, which is decoded once; `progress` is called after each frame.

    Works on the footage's own 4:2:0 planes. No file appears unless all are complete. With `to_the_end`, shots of
    footage that is damaged somewhere end there and count as complete.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    for shot in shots:
        if np.shape(shot.rotations) != (len(indices), 3, 3):
            raise ValueError(
                f"{shot.path}: needs {len(indices)} rotations (3, 3), got shape {np.shape(shot.rotations)}"
            )
        if shot.lens.batch_shape not in ((), (len(indices),)):
            shape = tuple(shot.lens.batch_shape)
            raise ValueError(f"{shot.path}: its lens must have batch shape () or ({len(indices)},), got {shape}")

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
            frames = footage.planes(indices, threads)
            for number, (*panorama, full_range) in enumerate(_to_the_end(frames) if to_the_end else frames):

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


def _to_the_end(frames: Iterator[Any]) -> Iterator[Any]:
    """Frames until one cannot be decoded; VideoError if that is the first."""
    yield next(frames)
    with suppress(VideoError):
        yield from frames


def _still_planes(picture: np.ndarray) -> Planes:
    """The 4:2:0 planes of an RGB picture (H, W, 3); an odd last row or column is dropped."""
    import av

    height, width = (side // 2 * 2 for side in picture.shape[:2])
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
    frame = frame.reformat(format="yuv420p", dst_colorspace=BT709, dst_color_range=LIMITED, interpolation="BICUBIC")
    luma, blue, red = np.split(frame.to_ndarray().ravel(), [height * width, height * width * 5 // 4])
    small = (height // 2, width // 2)
    return Planes(luma.reshape(height, width), blue.reshape(small), red.reshape(small))
