"""Drawings of the pages: the commanded horizon over frames, and paths, angles, dots and histograms as SVG."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

import numpy as np
import torch
from markupsafe import Markup

from ucpe.encodings import lat_up_map
from ucpe.encodings.latitudes import LATITUDES, latitude_lines
from ucpe.trajectories import Trajectory

HORIZON, UP, SKY, GROUND = (255, 196, 0), (255, 255, 255), (70, 130, 255), (255, 110, 60)
COMMANDED, ESTIMATED = "var(--commanded)", "var(--estimated)"


def overlay(
    frame: np.ndarray,  # (H, W, 3) uint8
    camera: Trajectory,
    width: int = 416,
) -> np.ndarray:
    """A frame with the horizon (thick), latitudes (thin) and up directions that its one-frame camera commands."""
    import cv2

    height = max(round(frame.shape[0] * width / frame.shape[1]), 2)
    resampling = cv2.INTER_AREA if frame.shape[1] > width else cv2.INTER_CUBIC
    picture = cv2.resize(frame, (width, height), interpolation=resampling)
    lens = camera.lens_at(0)
    field = lat_up_map(lens, camera.c2w[:1].float(), height, width)[0].numpy()
    seen = lens.rays(height, width).valid.numpy()
    for level, pieces in latitude_lines(lens, camera.c2w[0], height, width, sorted(LATITUDES, key=abs)[::-1]).items():
        color = SKY if level > 0 else GROUND if level < 0 else HORIZON
        points = [np.round(8 * (piece - 0.5)).astype(np.int32) for piece in pieces]
        cv2.polylines(picture, points, False, color, 1 if level else 2, cv2.LINE_AA, shift=3)
    rows, columns = (np.linspace(0.1, 0.9, n) * size for n, size in ((5, height), (8, width)))
    for y in rows.astype(int):
        for x in columns.astype(int):
            up = field[y, x, :2]
            if seen[y, x] and np.hypot(*up) > 0.5:
                start, end = (x, y), (round(float(x + 11 * up[0])), round(float(y + 11 * up[1])))
                cv2.arrowedLine(picture, start, end, (0, 0, 0), 3, cv2.LINE_AA, tipLength=0.35)
                cv2.arrowedLine(picture, start, end, UP, 1, cv2.LINE_AA, tipLength=0.35)
    return picture


def data_uri(jpeg: bytes) -> str:
    """A JPEG file as an address inside a page."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def jpeg_of(
    picture: np.ndarray,  # (H, W, 3) uint8
    quality: int = 82,
) -> bytes:
    """A picture as a JPEG file."""
    import cv2

    good, encoded = cv2.imencode(".jpg", np.ascontiguousarray(picture[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not good:
        raise ValueError("the picture could not be encoded")
    return encoded.tobytes()


def path_svg(
    commanded: torch.Tensor,  # (N, 4, 4)
    estimated: torch.Tensor | None,  # (N, 4, 4), in the same units
    size: int = 230,
) -> Markup:
    """Two paths from above (x right, forward up) relative to their first cameras, with headings, as SVG."""
    paths = [commanded] if estimated is None else [commanded, estimated]
    points = [path[:, [0, 2], 3].double().numpy() for path in paths]
    headings = [path[:, [0, 2], 2].double().numpy() for path in paths]
    extent = max(float(np.abs(np.concatenate(points)).max()), 0.15) * 1.35
    scale = size / 2 / extent
    parts = [f'<svg class="path" viewBox="0 0 {size} {size}" role="img" aria-label="paths from above">']
    unit = next(step for step in _steps(extent) if extent / step <= 4)
    step = unit * scale
    for index in range(-int(size / 2 / step), int(size / 2 / step) + 1):
        at = size / 2 + index * step
        parts.append(f'<path class="grid" d="M{at:.1f} 0V{size}M0 {at:.1f}H{size}"/>')
    parts.append(f'<text class="tick" x="{size - 4}" y="{size - 5}" text-anchor="end">grid {unit:g}</text>')
    for place, heading, color, dash in zip(points, headings, (COMMANDED, ESTIMATED), ("", ' stroke-dasharray="5 3"')):
        x, y = size / 2 + place[:, 0] * scale, size / 2 - place[:, 1] * scale
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2.2"{dash}/>')
        for index in (0, len(x) // 2, len(x) - 1):
            direction = heading[index] / max(np.linalg.norm(heading[index]), 1e-9)
            tip = (x[index] + 15 * direction[0], y[index] - 15 * direction[1])
            parts.append(f'<path d="M{x[index]:.1f} {y[index]:.1f}L{tip[0]:.1f} {tip[1]:.1f}" stroke="{color}"/>')
            parts.append(f'<circle cx="{x[index]:.1f}" cy="{y[index]:.1f}" r="2.6" fill="{color}"/>')
    return Markup("".join([*parts, "</svg>"]))


def angle_svg(
    series: Sequence[tuple[str, np.ndarray, str]],  # (name, (N,) degrees, color)
    title: str,
    width: int = 230,
    height: int = 110,
) -> Markup:
    """Angles over the frames of a video as SVG."""
    values = np.concatenate([row for _, row, _ in series])
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if len(values) else (-1.0, 1.0)
    middle, half = (low + high) / 2, max((high - low) / 2, 2.0) * 1.15
    top, bottom, left = 22, height - 8, 34
    parts = [f'<svg class="angle" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">']
    parts.append(f'<text class="caption" x="{left}" y="13">{html.escape(title)}</text>')
    for level in (middle - half, middle, middle + half):
        y = bottom - (level - middle + half) / (2 * half) * (bottom - top)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{width}"/>')
        parts.append(f'<text class="tick" x="{left - 4}" y="{y + 3:.1f}" text-anchor="end">{level:.0f}°</text>')
    for (_, row, color), dash in zip(series, ("", ' stroke-dasharray="5 3"')):
        x = left + np.linspace(0, 1, len(row)) * (width - left - 4)
        y = bottom - (row - middle + half) / (2 * half) * (bottom - top)
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y) if np.isfinite(b))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
    return Markup("".join([*parts, "</svg>"]))


def strip_svg(
    groups: Sequence[tuple[str, Sequence[tuple[str, float]]]],  # (family, [(video, value)])
    title: str,
    floor: float | None = None,
    width: int = 340,
) -> Markup:
    """Every video's error as a dot, one row per lens family, with the median, as SVG; the floor is a dashed line."""
    left, row, top, right = 126, 30, 30, 14
    bottom = top + row * len(groups)
    largest = max([value for _, entries in groups for _, value in entries] + [floor or 0.0, 1e-9]) * 1.06
    at = lambda value: left + value / largest * (width - left - right)  # noqa: E731
    parts = [f'<svg class="strip" viewBox="0 0 {width} {bottom + 24}" role="img" aria-label="{html.escape(title)}">']
    parts.append(f'<text class="caption" x="0" y="14">{html.escape(title)}</text>')
    for tick in _ticks(largest):
        parts.append(f'<path class="grid" d="M{at(tick):.1f} {top}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{at(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    if floor is not None:
        parts.append(f'<path class="floor" d="M{at(floor):.1f} {top - 4}V{bottom}"/>')
    for index, (family, entries) in enumerate(groups):
        y = top + row * (index + 0.5)
        label = f"{family} ({len(entries)})"
        parts.append(f'<text class="row" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{html.escape(label)}</text>')
        for number, (name, value) in enumerate(entries):
            shift = ((number * 0.618) % 1 - 0.5) * row * 0.55
            parts.append(
                f'<circle class="dot" cx="{at(value):.1f}" cy="{y + shift:.1f}" r="3">'
                f"<title>{html.escape(name)}: {value:.3g}</title></circle>"
            )
        if entries:
            median = float(np.median([value for _, value in entries]))
            parts.append(f'<path class="median" d="M{at(median):.1f} {y - 11:.1f}V{y + 11:.1f}"/>')
    return Markup("".join([*parts, "</svg>"]))


def histogram_svg(
    values: np.ndarray,  # (N,), from 0
    title: str,
    threshold: float,
    label: str,
    lowest: bool = False,
    width: int = 320,
) -> Markup:
    """Values as bars, coloured by the side of a threshold that is kept (above it if `lowest`), as SVG."""
    highest = float(max(np.percentile(values, 99) * 1.05, threshold * 1.6, 1e-6))
    counts, edges = np.histogram(values.clip(0, highest), 40, (0, highest))
    height, left, base = 132, 6, 100
    scale = (width - 2 * left) / highest
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">']
    parts.append(f'<text class="caption" x="{left}" y="12">{html.escape(title)}</text>')
    for count, low, high in zip(counts, edges[:-1], edges[1:]):
        kept = ((low + high) / 2 >= threshold) == lowest
        tall = 72 * np.sqrt(count / counts.max())
        if count:
            parts.append(
                f'<rect class="{"kept" if kept else "dropped"}" x="{left + low * scale:.1f}" y="{base - tall:.1f}" '
                f'width="{(high - low) * scale - 0.8:.1f}" height="{tall:.1f}"><title>{count}</title></rect>'
            )
    at = left + threshold * scale
    parts.append(f'<path class="floor" d="M{at:.1f} 20V{base}"/>')
    parts.append(f'<text class="tick" x="{left}" y="{base + 12}">0</text>')
    parts.append(f'<text class="tick" x="{width - left}" y="{base + 12}" text-anchor="end">{highest:.3g}</text>')
    place = f'x="{min(max(at, 95), width - 95):.1f}" y="{height - 5}"'
    parts.append(f'<text class="tick" {place} text-anchor="middle">{html.escape(label)}</text>')
    return Markup("".join([*parts, "</svg>"]))


def _ticks(largest: float) -> list[float]:
    step = next(step for step in _steps(largest) if largest / step <= 5.5)
    return [round(float(step * index), 10) for index in range(int(largest / step) + 1)]


def _steps(largest: float) -> list[float]:
    """Round distances between lines, from fine to coarse."""
    return [float(10 ** np.floor(np.log10(largest)) * factor) for factor in (0.1, 0.2, 0.5, 1, 2, 5)]
