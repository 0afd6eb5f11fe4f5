"""What a curation step is: it looks at one clip of a source video, says what it found, and whether the clip stays."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ucpe.synthesis.layouts import reduced, whole_width
from ucpe.video import VideoError, VideoWriter, probe_video, read_video

Row = dict[str, Any]
"""What is known about a clip, by column."""


class Rule(NamedTuple):
    """Why a step drops clips, and what the report says of it."""

    reason: str
    """The reason, or how it begins; "" for what is only plotted."""
    column: str
    """Column that it rests on, "" if there is none."""
    option: str
    """Option of the step that decides it."""
    label: str = ""
    """Name of the column where the report plots it against the option; without, it does not."""
    lowest: bool = False
    """Whether clips below the option are dropped, not those above it."""


class Step(Protocol):
    """One step of curation; its fields are its options.

    What it measures is kept in one file per source video. Fields named in `thresholds` matter only to `verdict`, so
    nothing is measured again when a threshold changes.
    """

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, pa.DataType]]
    """Columns that it adds to a clip's row."""
    thresholds: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    """Modules of the extra `curation` that it imports."""
    rules: ClassVar[tuple[Rule, ...]] = ()

    def wanted(self) -> bool:
        """Whether its options ask for it."""
        return True

    def check(self) -> None:
        """Raise ValueError or OSError if a package, program or file that it needs is not there."""
        for module in self.requires:
            require(module, f"the step '{self.name}'")

    def run(self, clip: SourceClip) -> list[Row]:
        """The clip's pieces, one or more, each with this step's columns, and `start` and `stop` where it splits."""

    def verdict(self, row: Row) -> str:
        """Why a clip with this row is dropped, "" if it is kept; by default the first rule whose column is too high."""
        broken = (rule for rule in self.rules if (row[rule.column] or 0.0) > getattr(self, rule.option))
        return next((rule.reason for rule in broken), "")


@dataclass(frozen=True)
class SourceClip:
    """A stretch of a source video: frames start, ..., stop - 1."""

    source: Path
    proxy: Path
    """A small copy of the whole source, made when first needed."""
    proxy_height: int
    row: Row

    @property
    def start(self) -> int:
        """First frame."""
        return self.row["start"]

    @property
    def stop(self) -> int:
        """The frame after the last."""
        return self.row["stop"]

    @property
    def fps(self) -> float:
        """Frames per second."""
        return self.row["fps"]

    def stream(self, height: int | None = None) -> Iterator[np.ndarray]:
        """All frames (H, W, 3) uint8 of the small copy, one at a time, at most `height` pixels high."""
        if not self.proxy.is_file():
            write_proxy(self.source, self.proxy, self.proxy_height)
        for frame in read_video(self.proxy, start=self.start, frames=self.stop - self.start):
            yield reduced(frame.rgb, height)

    def frames(self, count: int | None = None, height: int | None = None) -> np.ndarray:
        """Frames (N, H, W, 3) uint8 of the small copy: all, or `count` of them evenly spaced."""
        wanted = set(self._spread(count).tolist())
        return np.stack([frame for index, frame in enumerate(self.stream(height)) if index in wanted])

    def stills(self, count: int) -> Iterator[np.ndarray]:
        """Frames (H, W, 3) uint8 of the source at its full size, evenly spaced, one at a time."""
        for index in self._spread(count).tolist():
            yield next(iter(read_video(self.source, start=self.start + index, frames=1))).rgb

    def _spread(self, count: int | None) -> np.ndarray:
        length = self.stop - self.start
        if count is None or count >= length:
            return np.arange(length)
        return ((np.arange(count) + 0.5) * length / count).astype(int)


def write_proxy(source: Path, proxy: Path, height: int) -> tuple[int, float]:
    """Write a copy of a video at most `height` pixels high; return its number of frames and its fps.

    A 16:9 video is stretched to 2:1, as if it were a squeezed panorama; if it is flat, a later step drops it. Raises
    VideoError unless all frames are there, at a constant rate.
    """
    import cv2

    info = probe_video(source)
    scale = min(height / info.height, 1.0)
    whole = (info.height, whole_width(info.height, info.width))
    small_height, small_width = (max(round(side * scale / 2) * 2, 2) for side in whole)
    sizes = [(small_width, small_height)] + [(small_width // 2, small_height // 2)] * 2
    how: dict[str, Any] = {"crf": 12, "preset": "veryfast", "colors": info.colors}
    with VideoWriter(proxy, small_height, small_width, info.fps, **how) as writer:
        for number, frame in enumerate(read_video(source)):
            if abs(frame.time * info.fps - number) > 0.75:
                raise VideoError(
                    f"{source}: the frame rate is not constant (frame {number} is shown at {frame.time:.3f} s, not at "
                    f"{number / info.fps:.3f} s); convert it with ffmpeg -fps_mode cfr"
                )
            planes = frame.planes[:3]
            writer.write_planes(
                *(
                    np.ascontiguousarray(plane)
                    if plane.shape[::-1] == size
                    else cv2.resize(np.ascontiguousarray(plane), size, interpolation=cv2.INTER_AREA)
                    for plane, size in zip(planes, sizes)
                )
            )
        if writer.frames < info.frames - max(2, 0.01 * info.frames):
            raise VideoError(f"{source}: ends after frame {writer.frames} of {info.frames}; is the file complete?")
    return writer.frames, info.fps


def options_of(step: Any) -> list[Any]:
    """What a step's measurements depend on: its class and its fields, without thresholds."""
    fields = dataclasses.asdict(step) if dataclasses.is_dataclass(step) and not isinstance(step, type) else {}
    return [type(step).__qualname__, {key: value for key, value in fields.items() if key not in step.thresholds}]


def runs(
    numbers: Iterable[int],  # increasing
) -> list[tuple[int, int]]:
    """Runs of consecutive numbers: the first of each, and the one after its last."""
    groups = itertools.groupby(enumerate(numbers), key=lambda place: place[1] - place[0])
    found = [[number for _, number in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in found]


def require(module: str, reader: str) -> Any:
    """Import a module of the extra `curation`, or raise ValueError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{reader} needs {module} ({error}): pip install 'ucpe[curation]'") from None
