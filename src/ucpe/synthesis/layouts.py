"""Recognises from its content how a 360 degree picture is laid out: stereo halves, cube faces, borders that meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ucpe.synthesis.panoramas import Projection

Stereo = Literal["mono", "top-bottom", "side-by-side"]

LOOK_HEIGHT = 320
"""Height in pixels at which pictures are compared."""

ALIKE = 0.7
"""Correlation above which two halves show one scene to two eyes."""

CUBE = 0.35
"""Correlation above which the hidden edges of a cubemap meet; other pictures stay below 0.25."""

VALUES_MEET = 3.0
"""The first and the last column meet if they differ at most this many times as much as neighbouring columns."""

STRUCTURE_MEETS = 0.85
"""The same for their fine structure, whose difference counts less the more the two borders correlate."""

OFFSET = 4
"""Pixels, in a picture `LOOK_HEIGHT` high, by which stitching may shift one border against the other."""

POLE_DISTANCE = 0.06
"""Distance between the first row and the row that it is compared with, as a share of the height."""

PLAIN = 6.0
"""Minimum standard deviation in grey levels that a compared row is taken to have: a plain one says nothing."""

PLAIN_DETAIL = 0.5
"""The same for the median strength of a row's detail."""

POLES = 0.6
"""Maximum variation of the first and last row of a panorama, relative to rows further in."""

SQUEEZED = 16 / 9
"""Width / height to which uploads squeeze panoramas."""

ASPECT_TOLERANCE = 0.02
"""Maximum relative difference between width / height and 2, or 16:9."""


WAYS = "--projection and --stereo (ucpe synthesize: these fields in NAME.source.json)"
"""Where a user sets the layout."""


class Layout(NamedTuple):
    """How a panorama lies in a picture, and a note about what was guessed ("" if nothing was)."""

    projection: Projection
    stereo: Stereo
    note: str = ""


def recognize_layout(
    pictures: Sequence[np.ndarray],  # each (H, W, 3) uint8
    projection: Projection | None = None,
    stereo: Stereo | None = None,
) -> Layout:
    """The layout of footage, recognised from some of its frames; what is given is kept. ValueError if none fits."""
    height, width = pictures[0].shape[:2]
    notes = []
    if stereo is None:
        stereo = _recognize_stereo(pictures)
        if stereo != "mono":
            notes.append(f"stereo, {stereo} (its halves are alike): only the left eye is used")
    eyes = [at_look_height(left_eye(picture, stereo)) for picture in pictures]
    if projection is None:
        eye_height, eye_width = left_eye(pictures[0], stereo).shape[:2]
        if eye_width % 3 == eye_height % 2 == 0 and np.median([cube_edges_alike(eye) for eye in eyes]) > CUBE:
            projection = "eac"
            notes.append("an equi-angular cubemap (its hidden edges meet)")
        else:
            projection = "equirectangular"
            if not _is_twice_as_wide(eyes[0]):
                if fault := _fault(eyes):
                    name = f"{'' if stereo == 'mono' else 'an eye of '}{eye_width} x {eye_height} pixels"
                    raise ValueError(f"{name} {fault}; if it is a whole panorama, set {WAYS}")
                notes.append("an equirectangular panorama that was squeezed (borders meet, poles are points)")
    note = f"{width} x {height}, taken for {' and for '.join(notes)}; to change that, set {WAYS}"
    return Layout(projection, stereo, note if notes else "")


def _recognize_stereo(pictures: Sequence[np.ndarray]) -> Stereo:
    small = [at_look_height(picture) for picture in pictures]
    alike = {name: float(np.median([halves_alike(picture, name) for picture in small])) for name in STEREO}
    best = max(alike, key=alike.__getitem__)
    if alike[best] <= ALIKE:
        return "mono"
    flattened = best == "top-bottom" and _is_twice_as_wide(small[0])
    return "mono" if flattened and _fault([left_eye(picture, best) for picture in small]) else best


def _is_twice_as_wide(picture: np.ndarray) -> bool:
    height, width = picture.shape[:2]
    return abs(width / height / 2 - 1) <= ASPECT_TOLERANCE


def _fault(eyes: list[np.ndarray]) -> str:
    """Why pictures are not whole panoramas; "" if they are."""
    if np.median([seam(eye) for eye in eyes]) > 1:
        return "whose left and right borders do not meet: flat, or half a sphere (VR180)"
    if np.median([pole_ratios(eye) for eye in eyes], axis=0).min() > POLES:
        return "whose first and last rows are not single points: flat, or without poles"
    return ""


def whole_width(height: int, width: int) -> int:
    """Width in pixels of a panorama before squeezing: twice its height if it is 16:9, else its own width."""
    return 2 * height if abs(width / height / SQUEEZED - 1) <= ASPECT_TOLERANCE else width


def left_eye(picture: np.ndarray, stereo: Stereo) -> np.ndarray:
    """The part (h, w, ...) of a picture (H, W, ...) that the left eye sees: the upper or the left half."""
    height, width = picture.shape[:2]
    if stereo == "top-bottom":
        return picture[: height // 2]
    return picture[:, : width // 2] if stereo == "side-by-side" else picture


STEREO: tuple[Stereo, ...] = ("top-bottom", "side-by-side")


def halves_alike(
    picture: np.ndarray,  # (H, W, 3)
    stereo: Stereo,
) -> float:
    """Correlation of detail in the two halves, -1 to 1, at the sideways shift that makes it highest."""
    import cv2

    grey = picture.mean(-1)
    grey = grey - cv2.GaussianBlur(grey, (0, 0), grey.shape[0] / 20)
    height, width = grey.shape
    if stereo == "top-bottom":
        first, second = grey[: height // 2], grey[height // 2 : height // 2 * 2]
    else:
        first, second = grey[:, : width // 2], grey[:, width // 2 : width // 2 * 2]
    shift = max(first.shape[1] // 25, 1)
    inner = np.ascontiguousarray(first[:, shift:-shift])
    if inner.std() < 1e-3 or second.std() < 1e-3:
        return 0.0
    return float(cv2.matchTemplate(np.ascontiguousarray(second), inner, cv2.TM_CCOEFF_NORMED).max())


def cube_edges_alike(
    picture: np.ndarray,  # (H, W, 3)
) -> float:
    """Correlation of detail, -1 to 1, across the edges that a cubemap of 3 x 2 faces hides: the median of all eight."""
    high, wide = picture.shape[0] // 2, picture.shape[1] // 3
    upper, lower = picture[1 : high - 1, 1:-1], picture[high + 1 : 2 * high - 1, 1:-1]
    left, middle, right = np.s_[:wide], np.s_[wide : 2 * wide], np.s_[-wide:]
    torn = (
        (upper[:, 0], lower[-1, middle][::-1]),
        (upper[:, -1], lower[0, middle][::-1]),
        (upper[-1, middle], lower[:, 0][::-1]),
        (upper[0, middle], lower[:, -1][::-1]),
        (upper[-1, left], lower[-1, left][::-1]),
        (upper[0, left], lower[-1, right]),
        (upper[-1, right], lower[0, left]),
        (upper[0, right], lower[0, right][::-1]),
    )
    return float(np.median([_correlation(_detail(first), _detail(second)) for first, second in torn]))


def seam(
    picture: np.ndarray,  # (H, W, 3) at `LOOK_HEIGHT`
) -> float:
    """How badly the left and the right border meet: near 0 in a panorama, above 1 in a picture that ends there.

    They meet in values, or at least in structure: a column without its slow changes. Values alone would be too strict,
    as differently exposed lenses leave a step in brightness and stitching shifts one side by a few pixels.
    """
    import cv2

    values = np.median(np.abs(picture[:, 0] - picture[:, -1]).mean(-1)) / _between_columns(picture)
    detail = picture - cv2.GaussianBlur(picture, (1, 2 * (len(picture) // 10) + 1), len(picture) / 20)
    first, last = detail[OFFSET:-OFFSET, 0], detail[:, -1]
    shifted = [last[step : step + len(first)] for step in range(2 * OFFSET + 1)]
    across = min(np.median(np.abs(first - other).mean(-1)) for other in shifted) / _between_columns(detail)
    polar = len(picture) // 10
    borders = [_detail(picture[polar : len(picture) - polar, column]) for column in (1, -2)]
    structure = np.sqrt(across) * (1 - max(_correlation(*borders), 0.0))
    return float(min(values / VALUES_MEET, structure / STRUCTURE_MEETS))


def pole_ratios(
    frame: np.ndarray,  # (H, W, 3)
) -> tuple[float, float]:
    """How much the first and the last row vary, relative to rows further in: 0 at a pole, 1 where it is missing.

    In values, or at least in structure, whichever is less: lenses of different brightness leave steps and slow changes
    along the row of a pole, but no detail.
    """
    inward = max(round(POLE_DISTANCE * len(frame)), 1)
    return _variation(frame[0], frame[inward]), _variation(frame[-1], frame[-1 - inward])


def _variation(
    line: np.ndarray,  # (W, 3)
    other: np.ndarray,  # (W, 3)
) -> float:
    values = line.mean(-1).std() / max(other.mean(-1).std(), PLAIN)
    strength, reference = (float(np.median(np.abs(_detail(row)).mean(-1))) for row in (line, other))
    return float(min(values, strength / max(reference, PLAIN_DETAIL)))


def _between_columns(picture: np.ndarray) -> float:
    """How much neighbouring columns of a picture differ, by medians over rows, so that single edges change nothing."""
    return max(float(np.percentile(np.median(np.abs(np.diff(picture, axis=1)).mean(-1), axis=0), 75)), 0.5)


def at_look_height(picture: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) as float32, at most `LOOK_HEIGHT` pixels high."""
    return reduced(picture, LOOK_HEIGHT).astype(np.float32)


def reduced(picture: np.ndarray, height: int | None) -> np.ndarray:
    """A picture (H, W, ...) reduced to at most `height` pixels high, with its aspect ratio."""
    import cv2

    if height is None or picture.shape[0] <= height:
        return picture
    width = max(round(picture.shape[1] * height / picture.shape[0]), 1)
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def _detail(
    line: np.ndarray,  # (N, 3)
) -> np.ndarray:
    """A line of pixels as 96 samples (96, 3) without slow changes."""
    import cv2

    samples = cv2.resize(
        np.ascontiguousarray(line, np.float32).reshape(1, -1, 3), (96, 1), interpolation=cv2.INTER_AREA
    )
    return (samples - cv2.GaussianBlur(samples, (29, 1), 6, borderType=cv2.BORDER_REFLECT))[0]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Highest correlation, -1 to 1, of two lines (N, 3) shifted against each other by up to two samples."""
    best = -1.0
    for shift in range(-2, 3):
        one = first[max(shift, 0) : len(first) + min(shift, 0)]
        other = second[max(-shift, 0) : len(second) + min(-shift, 0)]
        strength = np.sqrt((one**2).sum() * (other**2).sum())
        best = max(best, float((one * other).sum() / max(strength, 1e-3)))
    return best
