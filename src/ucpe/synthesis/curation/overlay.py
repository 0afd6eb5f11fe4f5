"""Watermarks, logos and subtitles: edges that stay where they are while the scene around them moves.

Far scenery stays too, and so does a person who carries the camera, but it does not lie in the middle of things that
move. What stays and is not surrounded by motion counts only if RapidOCR can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ucpe.synthesis.curation.steps import Clip, Row, Step

LOOK_HEIGHT = 320
"""Height in pixels at which clips are looked at; lengths below are in these pixels."""

STEADY = 0.9
"""Share of an edge's strength that must point the same way in all frames."""

MOVING = 3.0
"""Mean change over time in grey levels from which a place moves."""

PASSING = 0.6
"""Share of edges' strength that points the same way in all frames, below which they come and go."""

TEXTURE = 1.0
"""Mean strength of edges in grey levels a pixel below which nothing can be said of a place."""

LARGEST_MARK = 0.06
"""Share of the picture beyond which what stays is scenery."""

DENSITY = 0.22
"""Share of its box that a mark covers at least; an outline of something far covers less."""

LARGEST_SIGN = 0.02
"""Share of the picture up to which edges around a plain area count with that area, as those of a sign do."""

SPREAD = np.ones((5, 9), np.uint8)
"""Neighbourhood in which edges belong to one mark."""

REACH = 7
"""Pixels around a mark in which motion is looked for."""

OCR_HEIGHT = 640
"""Height in pixels of the picture in which text is read."""


class Mark(NamedTuple):
    """Something that stays: its box in pixels, how many pixels its edges cover, and how many of its sides move."""

    left: int
    top: int
    right: int
    bottom: int
    area: int
    moving_sides: int


@dataclass(frozen=True)
class OverlayCheck(Step):
    """Drops clips with a watermark or subtitles."""

    name: ClassVar[str] = "overlay"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "overlay": pa.float64(),
        "text": pa.string(),
        "text_score": pa.float64(),
        "classifier": pa.float64(),
        "watermark": pa.float64(),
    }
    thresholds: ClassVar[tuple[str, ...]] = ("largest_watermark",)
    requires: ClassVar[tuple[str, ...]] = ("rapidocr", "onnxruntime")

    looks: int = 16
    """Frames of a clip that are compared."""
    edge: float = 6.0
    """Grey levels a pixel from which an edge counts."""
    smallest_mark: float = 0.0003
    """Share of the picture that the edges of a mark cover at least."""
    full_mark: float = 0.002
    """Share of the picture that marks must cover for a score of 1."""
    read_text: bool = True
    """Read text with RapidOCR in what stays."""
    lowest_text_score: float = 0.7
    """Confidence from which text is believed."""
    classifier: Path | None = None
    """A watermark classifier as an ONNX file: pictures (1, 3, H, W), 0 to 1 or normalised, to logits."""
    classifier_class: int = 1
    """Which of its outputs means watermarked; the only one if there is one."""
    classifier_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    classifier_deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)
    largest_watermark: float = 0.5
    """Score from which a clip is dropped. The paper gives no number: it ranks clips by this score."""

    def check(self) -> None:
        """Also the classifier."""
        super().check()
        if self.classifier:
            _session(str(self.classifier))

    def run(self, clip: Clip) -> list[Row]:
        """The share of the picture under marks, what can be read, and a score from 0 to 1 from all detectors."""
        frames = clip.frames(self.looks, OCR_HEIGHT)
        marks = find_marks(frames, self.edge, self.smallest_mark)
        pixels = LOOK_HEIGHT * LOOK_HEIGHT * frames.shape[2] / frames.shape[1]
        share = sum(mark.area for mark in marks if mark.moving_sides >= 3) / pixels
        text, text_score = "", 0.0
        if marks and self.read_text:
            text, text_score = read_marks(frames, marks, self.lowest_text_score)
        classified = classify(self, clip) if self.classifier else None
        watermark = max(min(share / self.full_mark, 1.0), text_score, classified or 0.0)
        return [
            {
                "overlay": share,
                "text": text,
                "text_score": text_score,
                "classifier": classified,
                "watermark": watermark,
            }
        ]

    def verdict(self, row: Row) -> str:
        """Watermarked, and by what it was noticed."""
        if row["watermark"] < self.largest_watermark:
            return ""
        if row["text_score"] >= self.largest_watermark:
            return "text overlay"
        return "static overlay" if row["overlay"] >= self.largest_watermark * self.full_mark else "watermark classifier"


def find_marks(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    edge: float = 6.0,
    smallest: float = 0.0003,
) -> list[Mark]:
    """Groups of edges that stay in all frames; none if the scene itself stays."""
    import cv2

    size = (round(frames.shape[2] * LOOK_HEIGHT / frames.shape[1]), LOOK_HEIGHT)
    grey = np.stack(
        [cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), size, interpolation=cv2.INTER_AREA) for frame in frames]
    )
    grey = grey.astype(np.float32)
    along = np.stack([cv2.Sobel(picture, cv2.CV_32F, 1, 0, scale=0.25) for picture in grey])
    down = np.stack([cv2.Sobel(picture, cv2.CV_32F, 0, 1, scale=0.25) for picture in grey])
    strength = np.hypot(along, down).mean(0)
    common = np.hypot(along.mean(0), down.mean(0))
    steady = (common > edge) & (common > STEADY * strength)
    change = grey.std(0)
    if (change > MOVING).mean() < 0.1:
        return []
    grown = cv2.dilate(steady.astype(np.uint8), SPREAD)
    count, labels, facts, _ = cv2.connectedComponentsWithStats(grown)
    marks = []
    for label in range(1, count):
        left, top, wide, high, _ = facts[label].tolist()
        place = np.s_[top : top + high, left : left + wide]
        own = labels[place] == label
        area = int((own & steady[place]).sum())
        if area >= smallest * steady.size:
            box = (left, top, left + wide, top + high)
            inside = left > 0 and top > 0 and left + wide < size[0] and top + high < size[1]
            covered = _inside(own) if inside and wide * high < LARGEST_SIGN * steady.size else area
            scenery = wide * high > LARGEST_MARK * steady.size or max(area, covered) < DENSITY * wide * high
            marks.append(Mark(*box, area, 0 if scenery else _moving_sides(common, strength, box)))
    return marks


def read_marks(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    marks: list[Mark],
    lowest_score: float = 0.7,
) -> tuple[str, float]:
    """Text in what stays, and its confidence; ("", 0) if there is none. Only the marks are shown, over time."""
    import cv2

    picture = np.median(frames, axis=0).astype(np.uint8)
    scale = picture.shape[0] / LOOK_HEIGHT
    shown = np.full_like(picture, np.median(picture.reshape(-1, 3), axis=0).astype(np.uint8))
    for mark in marks:
        box = np.array([mark.top - 4, mark.bottom + 4, mark.left - 6, mark.right + 6]) * scale
        top, bottom, left, right = box.clip(0).round().astype(int)
        shown[top:bottom, left:right] = picture[top:bottom, left:right]
    if scale < 2:
        shown = cv2.resize(shown, None, fx=2 / scale, fy=2 / scale, interpolation=cv2.INTER_CUBIC)
    found = _reader()(np.ascontiguousarray(shown[..., ::-1]), use_cls=False)
    lines = [
        (text, float(score))
        for text, score in zip(found.txts or (), found.scores or ())
        if score >= lowest_score and sum(letter.isalnum() for letter in text) >= 3
    ]
    return " / ".join(text for text, _ in lines), max((score for _, score in lines), default=0.0)


def classify(options: OverlayCheck, clip: Clip) -> float:
    """Mean probability, over a few frames of the clip, that the classifier gives to a watermark."""
    import cv2

    session = _session(str(options.classifier))
    entry = session.get_inputs()[0]
    height, width = (side if isinstance(side, int) else 224 for side in entry.shape[2:4])
    mean, deviation = (np.array(value, np.float32) for value in (options.classifier_mean, options.classifier_deviation))
    scores = []
    for frame in clip.frames(8):
        small = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        batch = ((small - mean) / deviation).transpose(2, 0, 1)[None]
        logits = np.asarray(session.run(None, {entry.name: batch})[0], np.float64).ravel()
        if len(logits) == 1:
            scores.append(1 / (1 + np.exp(-logits[0])))
        elif options.classifier_class < len(logits):
            shares = np.exp(logits - logits.max())
            scores.append(shares[options.classifier_class] / shares.sum())
        else:
            raise ValueError(
                f"{options.classifier}: has {len(logits)} outputs, and classifier_class is {options.classifier_class}"
            )
    return float(np.mean(scores))


def _inside(
    grown: np.ndarray,  # (h, w) bool
) -> int:
    """Pixels within the outer contour of edges that were grown by `SPREAD`."""
    import cv2

    contours, _ = cv2.findContours(grown.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    filled = cv2.drawContours(np.zeros(grown.shape, np.uint8), contours, -1, 1, cv2.FILLED)
    return int(cv2.erode(filled, SPREAD, borderType=cv2.BORDER_CONSTANT, borderValue=0).sum())


def _moving_sides(common: np.ndarray, strength: np.ndarray, box: tuple[int, int, int, int]) -> int:
    """On how many of a box's four sides edges come and go; a side at the border of the picture counts."""
    left, top, right, bottom = box
    height, width = common.shape
    sides = (
        np.s_[max(top - REACH, 0) : top, left:right],
        np.s_[bottom : bottom + REACH, left:right],
        np.s_[top:bottom, max(left - REACH, 0) : left],
        np.s_[top:bottom, right : right + REACH],
    )
    borders = (top == 0, bottom >= height, left == 0, right >= width)
    count = 0
    for side, border in zip(sides, borders):
        texture = float(strength[side].mean()) if not border else 0.0
        count += border or (texture > TEXTURE and float(common[side].mean()) < PASSING * texture)
    return count


@cache
def _reader() -> Any:
    from rapidocr import RapidOCR

    threads = {f"EngineConfig.onnxruntime.{name}_op_num_threads": 1 for name in ("intra", "inter")}
    return RapidOCR(params={"Global.log_level": "error", **threads})


@cache
def _session(path: str) -> Any:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ValueError(f"{path}: not a readable ONNX file ({error})") from None
