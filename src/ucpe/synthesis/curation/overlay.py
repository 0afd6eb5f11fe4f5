"""Watermarks, logos and subtitles: edges that stay where they are while the scene around them moves.

Far scenery stays too, and so does a person who carries the camera, but they do not lie in the middle of things that
move. Marks do, and they are of two kinds: a group of edges with motion on at least three sides, or a plain place within
a rim of edges that changes much less than what surrounds it. Scenery near the direction of travel lies among motion
too. It is told apart because it drifts: a shift or growth of the whole explains how its edges change. Straight lines
are left out, because they may slide along themselves unseen. What stays elsewhere counts only if RapidOCR can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ucpe.synthesis.curation.steps import Row, Rule, SourceClip, Step

LOOK_HEIGHT = 320
"""Height in pixels to which frames are reduced; the lengths below are in these pixels."""

STEADY = 0.9
"""Share of an edge's strength that must point the same way in all frames."""

STEADY_MARK = 0.95
"""The same for all edges of a mark together. Edges of slow scenery stay below it."""

MOVING = 3.0
"""Standard deviation over time, in grey levels, above which a place moves."""

PASSING = 0.7
"""Edges come and go if less than this share of their strength points the same way in all frames."""

TEXTURE = 1.0
"""Minimum mean strength of edges, in grey levels per pixel, for a place to show whether it moves."""

MAX_MARK = 0.06
"""Maximum share of the picture that a mark's box covers; anything larger that stays is scenery."""

DENSITY = 0.22
"""Minimum share of its box that a mark covers; the outline of something far away covers less."""

MAX_SIGN = 0.02
"""Maximum share of the picture that the box of a sign covers: a plain area that counts together with its border."""

SPREAD = np.ones((5, 9), np.uint8)
"""Neighbourhood in pixels (rows, columns) within which edges belong to one mark."""

REACH = 9
"""Pixels around a mark in which motion is looked for."""

RIM = 5
"""Width in pixels of the rim of edges around a plain place."""

SECTORS = 12
"""Number of sectors around a plain place; a third of them must move."""

LONGEST = 3.0
"""Maximum ratio of a plain place's sides; far ground makes more elongated places along the horizon."""

MIN_DRIFT = 0.4
"""Edges that move more than this many pixels from the first to the last quarter of a clip are scenery."""

DRIFT_SHARE = 0.6
"""Minimum share of the change at edges that motion must explain; it explains less of what shines through a mark."""

MIN_ACROSS = 0.1
"""Minimum share of edges' strength across their main direction; with less they are a line."""

RIG_FOOT = 0.75
"""What carries the camera is seen below this share of the height: 45 degrees under the horizon."""

NADIR = 0.85
"""All that stays below this share of the height is the rig or a patch over it: within 27 degrees of the nadir."""

RIG_GAP = 20
"""Maximum gap in pixels between parts of what carries the camera."""

OCR_HEIGHT = 640
"""Height in pixels of the picture in which text is read."""


class Mark(NamedTuple):
    """Something that stays: its box and area in pixels, and whether it lies among things that move."""

    left: int
    top: int
    right: int
    bottom: int
    area: int
    among_motion: bool


@dataclass(frozen=True)
class OverlayCheck(Step):
    """Drops clips with a watermark or subtitles."""

    name: ClassVar[str] = "overlay"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "overlay": pa.float64(),
        "rig": pa.float64(),
        "text": pa.string(),
        "text_score": pa.float64(),
        "classifier": pa.float64(),
        "watermark": pa.float64(),
    }
    thresholds: ClassVar[tuple[str, ...]] = ("max_watermark", "keep_rig")
    requires: ClassVar[tuple[str, ...]] = ("rapidocr", "onnxruntime")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("text overlay", "text_score", "max_watermark"),
        Rule("static overlay", "overlay", "max_watermark"),
        Rule("rig", "rig", "keep_rig"),
        Rule("watermark classifier", "classifier", "max_watermark"),
        Rule("", "watermark", "max_watermark", "watermark score"),
    )

    looks: int = 16
    """Number of frames of a clip that are compared."""
    edge: float = 6.0
    """Minimum strength of an edge, in grey levels per pixel."""
    min_mark: float = 0.0003
    """Minimum share of the picture that the edges of a mark cover."""
    full_mark: float = 0.002
    """Share of the picture that marks must cover for a score of 1."""
    read_text: bool = True
    """Use RapidOCR to read text in what stays in place."""
    min_text_score: float = 0.7
    """Minimum confidence, 0 to 1, for text to be believed."""
    classifier: Path | None = None
    """A watermark classifier as an ONNX file. It takes normalised RGB pictures (1, 3, H, W) and returns logits."""
    classifier_class: int = 1
    """Index of the classifier's output that means watermarked. Ignored if it has only one output."""
    classifier_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Mean of red, green and blue, each 0 to 1, that normalising subtracts."""
    classifier_deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Standard deviation of red, green and blue that normalising then divides by."""
    keep_rig: bool = False
    """Keep clips in which what carries the camera (a rider, a tripod) is in view among things that move."""
    max_watermark: float = 0.5
    """Clips with this score or more are dropped. The paper gives no number: it ranks clips by this score."""

    def check(self) -> None:
        """Also raise ValueError if the classifier cannot be loaded."""
        super().check()
        if self.classifier:
            _session(str(self.classifier))

    def run(self, clip: SourceClip) -> list[Row]:
        """Shares of the picture under marks, the text that was read, and the highest score of all detectors, 0 to 1."""
        frames = clip.frames(self.looks, OCR_HEIGHT)
        marks = find_marks(frames, self.edge, self.min_mark)
        pixels = LOOK_HEIGHT * LOOK_HEIGHT * frames.shape[2] / frames.shape[1]
        rig = rig_marks(marks, frames.shape[2] * LOOK_HEIGHT / frames.shape[1])
        share, rig_share = (
            sum(mark.area for mark in marks if mark.among_motion and (mark in rig) == carried) / pixels
            for carried in (False, True)
        )
        text, text_score = "", 0.0
        if marks and self.read_text:
            text, text_score = read_marks(frames, marks, self.min_text_score)
        classified = classify(self, clip) if self.classifier else None
        watermark = max(min(share / self.full_mark, 1.0), text_score, classified or 0.0)
        return [
            {
                "overlay": share,
                "rig": rig_share,
                "text": text,
                "text_score": text_score,
                "classifier": classified,
                "watermark": watermark,
            }
        ]

    def verdict(self, row: Row) -> str:
        """Dropped with a watermark (the reason names what found it), or with what carries the camera in view."""
        if row["watermark"] < self.max_watermark:
            seen = row["rig"] >= self.max_watermark * self.full_mark
            return "rig in view: a rider or tripod moves with the camera" if seen and not self.keep_rig else ""
        if row["text_score"] >= self.max_watermark:
            return "text overlay"
        return "static overlay" if row["overlay"] >= self.max_watermark * self.full_mark else "watermark classifier"


def find_marks(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    edge: float = 6.0,
    smallest: float = 0.0003,
) -> list[Mark]:
    """Groups of edges, and plain places within edges, that stay in all frames; none if the scene itself stays."""
    import cv2

    size = (round(frames.shape[2] * LOOK_HEIGHT / frames.shape[1]), LOOK_HEIGHT)
    small = np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames]).astype(np.float32)
    change = _over_colors(small.std(0))
    if (change > MOVING).mean() < 0.1:
        return []
    along = np.stack([cv2.Sobel(picture, cv2.CV_32F, 1, 0, scale=0.25) for picture in small])
    down = np.stack([cv2.Sobel(picture, cv2.CV_32F, 0, 1, scale=0.25) for picture in small])
    strength = _over_colors(np.hypot(along, down).mean(0))
    common = _over_colors(np.hypot(along.mean(0), down.mean(0)))
    steady = (common > edge) & (common > STEADY * strength)
    groups = _groups_of_edges(steady, common, strength)
    places = _enclosed_places(steady, common, strength, change)
    alone = [place for place in places if not any(group.among_motion and _overlap(place, group) for group in groups)]
    quarter = max(len(small) // 4, 1)
    later, slope = small[-quarter:].mean(0) - small[:quarter].mean(0), np.stack([along.mean(0), down.mean(0)], -1)
    marks = [mark for mark in groups + alone if mark.area >= smallest * steady.size]
    return [
        mark
        for mark in marks
        if not (mark.among_motion and (_is_line(mark, steady, slope) or _drifts(mark, steady, slope, later)))
    ]


def rig_marks(marks: list[Mark], width: float) -> list[Mark]:
    """Marks of what carries the camera: at the nadir, low and narrow, or connected downwards to such a mark."""
    low = [mark for mark in marks if mark.bottom > RIG_FOOT * LOOK_HEIGHT and not mark.among_motion]
    rig = [mark for mark in marks if mark.top > NADIR * LOOK_HEIGHT]
    rig += [mark for mark in low if mark.right - mark.left < width / 4 and mark not in rig]
    for mark in sorted(set(marks) - set(rig), key=lambda mark: -mark.bottom):
        if any(_hangs_on(mark, other, width) for other in rig):
            rig.append(mark)
    return rig


def _hangs_on(mark: Mark, below: Mark, width: float) -> bool:
    """Whether a mark lies just above another and in the same columns, also across the seam."""
    apart = max(below.top - mark.bottom, mark.top - below.bottom)
    across = [max(below.left + turn - mark.right, mark.left - below.right - turn) for turn in (-width, 0, width)]
    return mark.top < below.top and apart <= RIG_GAP and min(across) <= RIG_GAP / 2


def read_marks(
    frames: np.ndarray,  # (N, H, W, 3) uint8
    marks: list[Mark],
    min_score: float = 0.7,
) -> tuple[str, float]:
    """Text in the marks, and its confidence from 0 to 1; ("", 0) if there is none.

    The reader is shown the median over time of the marks alone, in overlapping squares, as it shrinks wider pictures.
    """
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
    side = shown.shape[0]
    lines: dict[str, float] = {}
    for left in range(0, max(shown.shape[1] - side // 2, 1), side // 2):
        part = shown[:, left : left + side, ::-1]
        if (part != part[0, 0]).any():
            found = _reader()(np.ascontiguousarray(part), use_cls=False)
            lines |= dict(zip(found.txts or (), map(float, found.scores or ())))
    lines = {
        text: score
        for text, score in lines.items()
        if score >= min_score and sum(letter.isalnum() for letter in text) >= 3
    }
    return " / ".join(lines), max(lines.values(), default=0.0)


def classify(options: OverlayCheck, clip: SourceClip) -> float:
    """The classifier's probability of a watermark, averaged over a few frames of the clip."""
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
                f"{options.classifier}: has {len(logits)} outputs, but classifier_class is {options.classifier_class}"
            )
    return float(np.mean(scores))


def _over_colors(
    values: np.ndarray,  # (H, W, 3)
) -> np.ndarray:
    return np.sqrt((values**2).mean(-1))


def _groups_of_edges(steady: np.ndarray, common: np.ndarray, strength: np.ndarray) -> list[Mark]:
    """Groups of steady edges that are close to each other; `among_motion` if something moves on three sides of them."""
    import cv2

    height, width = steady.shape
    count, labels, facts, _ = cv2.connectedComponentsWithStats(cv2.dilate(steady.astype(np.uint8), SPREAD))
    marks = []
    for label in range(1, count):
        left, top, wide, high, _ = facts[label].tolist()
        place = np.s_[top : top + high, left : left + wide]
        own = labels[place] == label
        edges = own & steady[place]
        area = int(edges.sum())
        box = (left, top, left + wide, top + high)
        inside = left > 0 and top > 0 and left + wide < width and top + high < height
        covered = _inside(own) if inside and wide * high < MAX_SIGN * steady.size else area
        scenery = wide * high > MAX_MARK * steady.size or max(area, covered) < DENSITY * wide * high
        stays = common[place][edges].sum() > STEADY_MARK * strength[place][edges].sum()
        marks.append(Mark(*box, area, bool(stays and not scenery and _moving_sides(common, strength, box) >= 3)))
    return marks


def _enclosed_places(steady: np.ndarray, common: np.ndarray, strength: np.ndarray, change: np.ndarray) -> list[Mark]:
    """Plain places within a rim of steady edges that change less than half as much as what moves around them."""
    import cv2

    count, labels, facts, _ = cv2.connectedComponentsWithStats((~steady).astype(np.uint8), connectivity=4)
    reach, (height, width) = RIM + REACH + 2, steady.shape
    marks = []
    for label in range(1, count):
        left, top, wide, high, area = facts[label].tolist()
        right, bottom = left + wide, top + high
        if wide * high > MAX_SIGN * steady.size or max(wide, high) > LONGEST * min(wide, high) or area < 2 * RIM**2:
            continue
        if left == 0 or top == 0 or right == width or bottom == height:
            continue
        around = np.s_[max(top - reach, 0) : bottom + reach, max(left - reach, 0) : right + reach]
        own = _filled(labels[around] == label)
        away = cv2.distanceTransform(1 - own, cv2.DIST_L2, 3)
        rim, ring = (away > 0) & (away <= RIM / 2), (away > RIM) & (away <= RIM + REACH)
        stays = common[around][rim].sum() > STEADY_MARK * strength[around][rim].sum()
        changes_less = np.median(change[around][own > 0]) < 0.5 * np.median(change[around][ring])
        among_motion = _moving_sectors(common[around], strength[around], own, ring) >= SECTORS / 3
        if stays and changes_less and among_motion:
            marks.append(Mark(left - RIM, top - RIM, right + RIM, bottom + RIM, int((away <= RIM / 2).sum()), True))
    return marks


def _drifts(
    mark: Mark,
    steady: np.ndarray,  # (H, W) bool
    slope: np.ndarray,  # (H, W, 3, 2) mean change per pixel to the right and down
    later: np.ndarray,  # (H, W, 3) change from the first to the last quarter of a clip
) -> bool:
    """Whether an affine motion of a mark's edges explains how they change over time."""
    box = np.s_[max(mark.top, 0) : mark.bottom, max(mark.left, 0) : mark.right]
    edges = steady[box]
    spots = np.argwhere(edges) - np.mean(np.argwhere(edges), axis=0)
    affine = np.column_stack([np.ones(len(spots)), spots])  # (N, 3)
    system = (slope[box][edges][..., None] * affine[:, None, None]).reshape(-1, 6)
    change = later[box][edges].reshape(-1)
    explained = system @ np.linalg.lstsq(system, change, rcond=None)[0]
    pixels = np.linalg.norm(explained) / np.linalg.norm(slope[box][edges])
    return bool(pixels > MIN_DRIFT and (explained**2).sum() > DRIFT_SHARE * (change**2).sum())


def _is_line(
    mark: Mark,
    steady: np.ndarray,  # (H, W) bool
    slope: np.ndarray,  # (H, W, 3, 2) mean change per pixel to the right and down
) -> bool:
    """Whether nearly all edges of a mark run the same way, as on a beam or a cable."""
    box = np.s_[max(mark.top, 0) : mark.bottom, max(mark.left, 0) : mark.right]
    directions = slope[box][steady[box]].reshape(-1, 2)
    across, along = np.linalg.eigvalsh(directions.T @ directions)
    return bool(across < MIN_ACROSS * (across + along))


def _overlap(first: Mark, second: Mark) -> bool:
    return (
        first.left < second.right
        and second.left < first.right
        and first.top < second.bottom
        and second.top < first.bottom
    )


def _filled(
    shape: np.ndarray,  # (h, w) bool
) -> np.ndarray:
    """Mask (h, w) uint8 of all that lies within the outer contour."""
    import cv2

    contours, _ = cv2.findContours(shape.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros(shape.shape, np.uint8), contours, -1, 1, cv2.FILLED)


def _inside(
    grown: np.ndarray,  # (h, w) bool
) -> int:
    """Number of pixels within the outer contour of edges, given edges that were grown by `SPREAD`."""
    import cv2

    return int(cv2.erode(_filled(grown), SPREAD, borderType=cv2.BORDER_CONSTANT, borderValue=0).sum())


def _moving_sectors(common: np.ndarray, strength: np.ndarray, own: np.ndarray, ring: np.ndarray) -> int:
    """Number of sectors of the ring around a place in which edges come and go."""
    middle = np.argwhere(own).mean(0)
    down, along = (np.argwhere(ring) - middle).T
    sector = ((np.arctan2(down, along) / (2 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
    texture = np.bincount(sector, strength[ring], SECTORS)
    stays = np.bincount(sector, common[ring], SECTORS)
    pixels = np.bincount(sector, minlength=SECTORS)
    return int(((texture > TEXTURE * pixels) & (stays < PASSING * texture)).sum())


def _moving_sides(common: np.ndarray, strength: np.ndarray, box: tuple[int, int, int, int]) -> int:
    """Number of a box's four sides on which edges come and go; sides at the border of the picture count too."""
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
