"""Video files as streams of frames: read, write and inspect in constant memory."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ucpe.files import commit, temporary_name

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".gif")
"""How the names of video files end."""

BT709 = 1
"""FFmpeg's number for the colour matrix, primaries and transfer of ITU-R BT.709, which written files declare."""

WORST_CRF = 51
"""Quality number of the smallest H.264 files."""

REPEATABLE = "threads=1:mbtree=0"
"""x264 settings under which the same frames give the same bytes: its macroblock tree is not repeatable on AVX-512."""

LIMITED, FULL = 1, 2
"""FFmpeg's numbers for 16..235 and 0..255 luma."""

STAMPS = 300
"""Time stamps from which the rate of a file without an index is taken."""


class VideoError(ValueError):
    """A file that is missing, damaged, or not the video it should be."""


class Planes(NamedTuple):
    """One 4:2:0 picture: luma and two colour planes of half its size, as views that live as long as their frame."""

    luma: np.ndarray  # (H, W) uint8
    blue: np.ndarray  # (ceil(H / 2), ceil(W / 2)) uint8
    red: np.ndarray  # (ceil(H / 2), ceil(W / 2)) uint8
    full_range: bool = False


class Colors(NamedTuple):
    """How a video's numbers mean colours (FFmpeg's enumerations), carried from input to output unchanged."""

    matrix: int = BT709
    primaries: int = BT709
    transfer: int = BT709
    value_range: int = LIMITED


@dataclass(frozen=True)
class VideoInfo:
    """What a video file says about itself."""

    height: int
    width: int
    fps: float  # from time stamps, whatever the header says
    frames: int  # as declared, or estimated from the duration where the container does not say
    duration: float  # seconds
    codec: str
    colors: Colors


@dataclass(frozen=True, eq=False)
class Frame:
    """One decoded frame: `.rgb` (H, W, 3) uint8, `.planes`, `.time` in seconds, `.index` from the start of the file."""

    _frame: Any
    index: int
    time: float

    @property
    def rgb(self) -> np.ndarray:
        """The picture (H, W, 3) uint8."""
        return self._frame.to_ndarray(format="rgb24")

    @property
    def planes(self) -> Planes:
        """The picture's own 4:2:0 planes, converted only if the file has another pixel format."""
        frame = self._frame
        if frame.format.name not in ("yuv420p", "yuvj420p"):
            frame = frame.reformat(format="yuv420p")
        luma, blue, red = (_view(plane) for plane in frame.planes)
        return Planes(luma, blue, red, int(self._frame.color_range) == FULL)


def probe_video(path: str | Path) -> VideoInfo:
    """Size, frame rate, length and colours of a video, without decoding it."""
    with _open(path) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        fps = float(_rate(path, stream) or 0)
        if context is None or not context.width or not fps > 0:
            raise VideoError(f"{path}: no readable picture size or frame rate; is the file complete?")
        ticks = stream.duration * stream.time_base if stream.duration else Fraction(container.duration or 0, 1_000_000)
        tags = (context.colorspace, context.color_primaries, context.color_trc)
        matrix, primaries, transfer = (BT709 if int(tag) in (0, 2) else int(tag) for tag in tags)
        colors = Colors(matrix, primaries, transfer, FULL if int(context.color_range) == FULL else LIMITED)
        frames = stream.frames or round(float(ticks) * fps)
        return VideoInfo(context.height, context.width, fps, frames, float(ticks), context.name, colors)


def read_video(
    path: str | Path,
    *,
    start: int = 0,
    frames: int | None = None,
    threads: int = 1,
) -> Iterator[Frame]:
    """Frames of a video in order, from frame `start`, at most `frames` of them; memory does not grow with length."""
    import av

    if start < 0:
        raise ValueError(f"start must be a frame number of at least 0, got {start}")
    with _open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = threads
        stream.thread_type = "SLICE" if threads == 1 else "AUTO"
        rate = _rate(path, stream)
        origin = (stream.start_time or 0) * stream.time_base
        given, index = 0, None
        try:
            if start and rate:
                target = origin + Fraction(start) / rate
                container.seek(max(int((target - 1 / rate) / stream.time_base), 0), stream=stream)
            for frame in container.decode(stream):
                if frames is not None and given >= frames:
                    return
                time = float(frame.pts * stream.time_base - origin) if frame.pts is not None else None
                if index is None and time is not None and rate:
                    index = round(time * float(rate))
                index = 0 if index is None else index
                if index >= start:
                    given += 1
                    yield Frame(frame, index, index / float(rate or 1) if time is None else time)
                index += 1
        except (av.FFmpegError, OSError) as error:
            raise VideoError(f"{path}: damaged after frame {start + given}: {error}") from None
        if (index or 0) < stream.frames - 1:  # headers that count one too many are common
            warnings.warn(f"{path}: its header counts {stream.frames} frames, and {index or 0} can be decoded")


def read_frames(path: str | Path, start: int = 0, frames: int | None = None) -> np.ndarray:
    """A whole short clip (N, H, W, 3) uint8."""
    pictures = [frame.rgb for frame in read_video(path, start=start, frames=frames)]
    if not pictures:
        raise VideoError(f"{path}: no frames from number {start} on")
    return np.stack(pictures)


def write_video(
    path: str | Path,
    frames: Iterable[np.ndarray],  # (N, H, W, 3) uint8 RGB, or any iterable of (H, W, 3)
    fps: float,
    *,
    crf: float = 17,
    preset: str = "medium",
) -> VideoInfo:
    """Write an H.264 file of constant frame rate, decode it again to check it, and only then give it its name."""
    frames = iter(frames)
    first = next(frames, None)
    if first is None:
        raise ValueError(f"{path}: no frames to write")
    height, width = np.shape(first)[:2]
    with VideoWriter(path, height, width, fps, crf=crf, preset=preset) as writer:
        for frame in itertools.chain([first], frames):
            writer.write(frame)
    return probe_video(path)


class VideoWriter:
    """An H.264 file written frame by frame; it appears under its name only once closed, complete and checked.

    The bytes depend on the frames and settings alone: one encoding thread, no time stamps of the day.
    """

    def __init__(
        self,
        path: str | Path,
        height: int,
        width: int,
        fps: float,
        *,
        crf: float = 17,
        preset: str = "medium",
        colors: Colors | None = None,
    ):
        import av

        self.path = Path(path)
        self.height, self.width, self.frames = height, width, 0
        if height < 2 or width < 2 or height % 2 or width % 2:
            raise ValueError(f"{path}: H.264 video needs an even height and width, got {height} x {width}")
        if not (fps > 0 and math.isfinite(fps)):
            raise ValueError(f"{path}: fps must be positive, got {fps}")
        if not 0 <= crf <= WORST_CRF:
            raise ValueError(f"{path}: crf must be between 0 and {WORST_CRF}, got {crf}")
        self.rate = Fraction(fps).limit_denominator(1001 * 240)
        self.colors = colors or Colors()
        self.partial = temporary_name(self.path)
        self._container = av.open(
            str(self.partial), "w", format="mp4", options={"movflags": "+faststart", "fflags": "+bitexact"}
        )
        stream = self._container.add_stream("libx264", rate=self.rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"crf": str(crf), "preset": preset, "x264-params": REPEATABLE, "flags": "+bitexact"}
        context = stream.codec_context
        context.thread_count = 1
        context.time_base = 1 / self.rate
        context.colorspace, context.color_primaries = self.colors.matrix, self.colors.primaries
        context.color_trc, context.color_range = self.colors.transfer, self.colors.value_range
        self._stream = stream

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, picture: np.ndarray) -> None:
        """Append a picture (H, W, 3) uint8 RGB."""
        import av

        picture = np.asarray(picture)
        if picture.shape != (self.height, self.width, 3) or picture.dtype != np.uint8:
            raise ValueError(
                f"{self.path}: frame {self.frames} must be uint8 of shape ({self.height}, {self.width}, 3), "
                f"got {picture.dtype} of {picture.shape}"
            )
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        frame = frame.reformat(
            format="yuv420p",
            dst_colorspace=self.colors.matrix,
            dst_color_range=self.colors.value_range,
            interpolation="BICUBIC",
        )
        self._encode(frame)

    def write_planes(self, luma: np.ndarray, blue: np.ndarray, red: np.ndarray) -> None:
        """Append a 4:2:0 picture in this file's colours: luma (H, W) and two planes (H / 2, W / 2), uint8."""
        planes = Planes(luma, blue, red, self.colors.value_range == FULL)
        if luma.shape != (self.height, self.width):
            raise ValueError(
                f"{self.path}: frame {self.frames} needs planes of ({self.height}, {self.width}), got {luma.shape}"
            )
        try:
            self._encode(_frame_of_planes(planes, self.colors.matrix))
        except ValueError as error:
            raise ValueError(f"{self.path}: frame {self.frames}: {error}") from None

    def close(self) -> VideoInfo:
        """Finish, check the file by decoding it, and move it to its name."""
        try:
            for packet in self._stream.encode(None):
                self._container.mux(packet)
            self._container.close()
            info = check_video(self.partial, self.frames, self.height, self.width, float(self.rate))
            commit(self.partial, self.path)
        except BaseException:
            self.abandon()
            raise
        return info

    def abandon(self) -> None:
        """Drop what was written so far."""
        self._container.close()
        self.partial.unlink(missing_ok=True)

    def _encode(self, frame: Any) -> None:
        frame.pts, frame.time_base = self.frames, 1 / self.rate
        frame.pict_type = 0
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        self.frames += 1


def planes_to_rgb(planes: Planes, colors: Colors) -> np.ndarray:
    """The picture (H, W, 3) uint8 that a player shows of 4:2:0 planes in these colours."""
    return _frame_of_planes(planes, colors.matrix).to_ndarray(format="rgb24")


def check_video(path: str | Path, frames: int, height: int, width: int, fps: float) -> VideoInfo:
    """Decode a whole file and raise VideoError unless it holds exactly these frames at this constant rate."""
    info = probe_video(path)
    if (info.height, info.width) != (height, width):
        raise VideoError(f"{path}: {info.height} x {info.width} pixels where {height} x {width} were meant")
    times = [frame.time for frame in read_video(path)]
    if len(times) != frames:
        raise VideoError(f"{path}: {len(times)} frames where {frames} were meant")
    if any(abs(time - index / fps) > 0.25 / fps for index, time in enumerate(times)):
        raise VideoError(f"{path}: frames are not spaced at {fps:g} per second")
    return info


def _open(path: str | Path) -> Any:
    import av

    if not Path(path).is_file():
        raise VideoError(f"{path}: no such file")
    try:
        container = av.open(str(path))
    except (av.FFmpegError, OSError, UnicodeDecodeError) as error:
        raise VideoError(f"{path}: not a readable video ({error}); is the file complete?") from None
    if not container.streams.video:
        container.close()
        raise VideoError(f"{path}: has no video stream")
    return container


def _indexed(stream: Any) -> list[int]:
    """Time stamps, in the stream's ticks, of the frames in a container's index; none unless it lists every frame."""
    entries = list(getattr(stream, "index_entries", ()))
    return [entry.timestamp for entry in entries if not entry.is_discard] if len(entries) == stream.frames else []


def _rate(path: str | Path, stream: Any) -> Fraction | None:
    """Frames a second by time stamps: the declared rate that agrees with them best, or their mean if none does."""
    declared = [rate for rate in (stream.average_rate, stream.guessed_rate) if rate]
    stamps = _indexed(stream) or _first_stamps(path)
    if len(stamps) < 2 or stamps[-1] <= stamps[0]:
        return declared[0] if declared else None
    span, gaps = (stamps[-1] - stamps[0]) * stream.time_base, len(stamps) - 1
    best = min(declared, key=lambda rate: abs(rate * span - gaps), default=None)
    return best if best is not None and abs(best * span - gaps) < 0.5 else gaps / span


def _first_stamps(path: str | Path) -> list[int]:
    """Time stamps, in the stream's ticks and in order, of the first frames of a video."""
    import av

    stamps = []
    with _open(path) as container, suppress(av.FFmpegError, OSError):
        for packet in itertools.islice(container.demux(container.streams.video[0]), STAMPS):
            if packet.pts is not None:
                stamps.append(packet.pts)
    return sorted(stamps)


def _view(plane: Any) -> np.ndarray:
    """The pixels (height, width) of a PyAV plane, without a copy."""
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]


def _frame_of_planes(planes: Planes, matrix: int) -> Any:
    """A PyAV frame with a copy of the planes."""
    import av

    height, width = planes.luma.shape
    frame = av.VideoFrame(width, height, "yuv420p")
    for plane, values in zip(frame.planes, planes[:3]):
        if values.shape != (plane.height, plane.width) or values.dtype != np.uint8:
            raise ValueError(
                f"4:2:0 planes must be uint8 of ({height}, {width}) and half of that, got {values.dtype} of "
                f"{values.shape}"
            )
        _view(plane)[...] = values
    frame.color_range, frame.colorspace = FULL if planes.full_range else LIMITED, matrix
    return frame
