"""`ucpe curate report`: one self-contained page from which a person can trust or tune a curation."""

from __future__ import annotations

import base64
import html
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet

from ucpe.files import write_file
from ucpe.synthesis.curation.pipeline import DECISIONS, HIDDEN
from ucpe.synthesis.curation.steps import Row


class Measure(NamedTuple):
    """A column that a threshold judges, and which side of it is dropped."""

    step: str
    column: str
    threshold: str
    label: str
    lowest: bool = False


MEASURES = (
    Measure("projection", "border", "largest_border", "black border, share of the height or width"),
    Measure("projection", "stereo", "largest_stereo", "correlation of the two halves"),
    Measure("projection", "seam", "largest_seam", "difference across the seam, near 0 in a panorama"),
    Measure("projection", "poles", "largest_poles", "variation of the first and last row, near 0 in a panorama"),
    Measure("overlay", "watermark", "largest_watermark", "watermark score"),
    Measure("quality", "quality", "lowest_quality", "quality score", lowest=True),
    Measure("tracking", "track_error", "largest_error", "error of the map, degrees"),
    Measure("rotation", "shake", "largest_shake", "shake, degrees"),
    Measure("rotation", "rotation_score", "largest_rotation", "rotation score, degrees"),
    Measure("rotation", "sway", "largest_sway", "movement of the vertical, degrees"),
    Measure("rotation", "lean", "largest_lean", "lean of vertical lines, degrees"),
)
"""What is drawn for each step."""

CAUSES = (
    ("under", "", "shortest"),
    ("black borders", "border", "largest_border"),
    ("stereo", "stereo", "largest_stereo"),
    ("not twice", "", "aspect_tolerance"),
    ("not equirectangular", "seam", "largest_seam"),
    ("poles", "poles", "largest_poles"),
    ("text overlay", "text_score", "largest_watermark"),
    ("static overlay", "overlay", "largest_watermark"),
    ("rig", "rig", "keep_rig"),
    ("watermark classifier", "classifier", "largest_watermark"),
    ("low quality", "quality", "lowest_quality"),
    ("tracked for", "", "shortest"),
    ("tracking lost", "", "mapper.minimum_inliers"),
    ("poses are inaccurate", "track_error", "largest_error"),
    ("no parallax", "motion_magnitude", "depth.smallest_parallax"),
    ("not stabilised: shakes", "shake", "largest_shake"),
    ("not stabilised: turns", "rotation_score", "largest_rotation"),
    ("not stabilised: its vertical", "sway", "largest_sway"),
    ("not level", "lean", "largest_lean"),
)
"""How reasons begin, the column that is the reason, and the option of the step that changes it."""

DETAILS = (
    "border", "stereo", "seam", "poles", "watermark", "text", "rig", "quality", "track_error", "shake",
    "rotation_score", "sway", "lean", "near_depth", "motion_magnitude", "flags", "categories", "invalid",
)  # fmt: skip
"""Columns that are told of a clip when the pointer rests on its picture."""

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #23211d; --soft: #6d685f; --line: #ddd8cd; --panel: #fff;
  --kept: #2f7d55; --dropped: #c8553d; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181a; --ink: #e9e6df; --soft: #a29d93; --line: #35363a;
  --panel: #1f2124; --kept: #59b58a; --dropped: #ef8a72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2.2rem 1.4rem 5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; font-weight: 600; } .soft { color: var(--soft); } p { max-width: 78ch; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .5rem 1rem; }
.tile b { display: block; font-size: 1.3rem; } .tile span { color: var(--soft); font-size: .85rem; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child, td.why { text-align: left; } td.bar { width: 38%; }
.bar div { display: flex; height: 14px; border-radius: 3px; overflow: hidden; }
.bar i { display: block; height: 100%; } .kept { background: var(--kept); } .dropped { background: var(--dropped); }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: .6rem; }
figure { margin: 0; } figure img { width: 100%; aspect-ratio: 2; object-fit: contain; display: block;
  border-radius: 4px; background: #0003; border-bottom: 3px solid var(--kept); }
figure.out img { border-bottom-color: var(--dropped); }
figcaption { font-size: .72rem; color: var(--soft); overflow-wrap: anywhere; line-height: 1.3; margin-top: .2rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: .8rem; margin: .6rem 0; }
svg { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; } svg text { fill: var(--soft); }
svg .kept { fill: var(--kept); } svg .dropped { fill: var(--dropped); }
svg line { stroke: var(--ink); stroke-dasharray: 4 3; }
svg .title { fill: var(--ink); } code { font-size: .85em; } ul { margin: .4rem 0; padding-left: 1.2rem; }
"""


def write_report(curated: str | Path, output: str | Path | None = None, *, pictures: int = 12) -> Path:
    """Write the page of a curated folder and return where it is."""
    curated = Path(curated)
    rows, steps = read_decisions(curated)
    path = Path(output) if output is not None else curated / "report.html"
    write_file(path, page(curated.resolve().name, rows, steps, pictures))
    return path


def read_decisions(curated: Path) -> tuple[list[Row], list[tuple[str, dict[str, Any]]]]:
    """All clips of a curated folder with what was found about them, and the steps with their thresholds."""
    files = sorted((curated / HIDDEN / DECISIONS).glob("*.parquet"))
    if not files:
        raise ValueError(f"{curated}: nothing was curated here yet; run ucpe curate VIDEOS -o {curated}")
    rows: list[Row] = []
    steps: list[tuple[str, dict[str, Any]]] = []
    for file in files:
        table = parquet.read_table(file)
        steps = json.loads((table.schema.metadata or {}).get(b"steps", b"[]")) or steps
        rows += table.to_pylist()
    return rows, steps


def page(title: str, rows: list[Row], steps: list[tuple[str, dict[str, Any]]], pictures: int) -> str:
    """The whole page."""
    videos = {row["source"] for row in rows}
    aside = [row for row in rows if row["dropped_by"] == "reading"]
    clips = [row for row in rows if row["dropped_by"] != "reading"]
    kept = [row for row in clips if not row["dropped"]]
    seconds = sum((row["stop"] - row["start"]) / row["fps"] for row in kept)
    tiles = [
        (len(videos), "videos"),
        (len(aside), "set aside"),
        (len(clips), "clips"),
        (len(kept), "kept"),
        (f"{len(kept) / max(len(clips), 1):.0%}", "of the clips"),
        (f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h", "kept"),
    ]
    body = [
        f"<h1>Curation of {html.escape(title)}</h1>",
        "<p class='soft'>What each step kept and dropped. A clip stays at the first step that drops it; one that "
        "tracking split counts as its pieces. Rest the pointer on a picture for all that is known of the clip. "
        "Another threshold takes effect with the same <code>ucpe curate</code> command and measures nothing again.</p>",
        "<div class='tiles'>"
        + "".join(f"<div class='tile'><b>{a}</b><span>{b}</span></div>" for a, b in tiles)
        + "</div>",
        _funnel(clips, [name for name, _ in steps if name != "reading"]),
        _set_aside(aside),
        *(_step(name, thresholds, clips, steps, pictures) for name, thresholds in steps if name != "reading"),
        f"<h2>Kept</h2>{_gallery(kept, pictures * 2)}",
        _settings(steps),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Curation of {html.escape(title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _funnel(clips: list[Row], names: list[str]) -> str:
    """A line for each step: how many clips reached it, how many it kept, and why the others fell."""
    lines, reached = [], len(clips)
    for name in names:
        reasons = Counter(row["dropped"] for row in clips if row["dropped_by"] == name)
        dropped = sum(reasons.values())
        share = 100 / max(len(clips), 1)
        bar = (
            f"<div><i class='kept' style='width:{(reached - dropped) * share:.2f}%'></i>"
            f"<i class='dropped' style='width:{dropped * share:.2f}%'></i></div>"
        )
        why = "; ".join(f"{html.escape(reason)} ({count})" for reason, count in reasons.most_common())
        lines.append(
            f"<tr><td>{name}</td><td>{reached}</td><td>{reached - dropped}</td><td>{dropped}</td>"
            f"<td class='bar'>{bar}</td><td class='why'>{why}</td></tr>"
        )
        reached -= dropped
    head = (
        "<tr><th>step</th><th>clips</th><th>kept</th><th>dropped</th><th></th><th style='text-align:left'>why</th></tr>"
    )
    return f"<div class='panel'><table>{head}{''.join(lines)}</table></div>"


def _set_aside(rows: list[Row]) -> str:
    if not rows:
        return ""
    items = "".join(f"<li><b>{html.escape(row['source'])}</b>: {html.escape(row['dropped'])}</li>" for row in rows)
    return f"<h2>Videos set aside</h2><ul>{items}</ul>"


def _step(
    name: str,
    thresholds: dict[str, Any],
    clips: list[Row],
    steps: list[tuple[str, dict[str, Any]]],
    pictures: int,
) -> str:
    """One step: distributions against its thresholds, then pictures of what it dropped, by reason."""
    order = [step for step, _ in steps]
    later = set(order[order.index(name) :]) | {""}
    seen = [row for row in clips if row["dropped_by"] in later]
    plots = [
        _histogram(measure, seen, thresholds[measure.threshold])
        for measure in MEASURES
        if measure.step == name and measure.threshold in thresholds
    ]
    reasons = Counter(row["dropped"] for row in seen if row["dropped_by"] == name)
    parts = [f"<h2>{name}</h2>"]
    if any(plots):
        parts.append("<div class='plots'>" + "".join(plots) + "</div>")
    for reason, count in reasons.most_common():
        own = [row for row in seen if row["dropped_by"] == name and row["dropped"] == reason]
        parts.append(f"<h3>{html.escape(reason)}: {count}</h3>{_option(name, reason)}{_gallery(own, pictures)}")
    if not reasons:
        parts.append("<p class='soft'>Dropped nothing.</p>")
    return "\n".join(parts)


def _cause(reason: str) -> tuple[str, str]:
    """The column that is a reason and the option that changes it, empty where there is none."""
    return next(((column, option) for start, column, option in CAUSES if reason.startswith(start)), ("", ""))


def _option(step: str, reason: str) -> str:
    option = _cause(reason)[1]
    flag = f"--{step}.{option}".replace("_", "-")
    return f"<p class='soft'><code>{flag}</code> changes this.</p>" if option else ""


def _gallery(rows: list[Row], most: int) -> str:
    """Thumbnails, evenly drawn from all rows if there are too many."""
    chosen = rows if len(rows) <= most else [rows[int(place * len(rows) / most)] for place in range(most)]
    return "<div class='pictures'>" + "".join(_picture(row) for row in chosen) + "</div>"


def _picture(row: Row) -> str:
    data = base64.b64encode(row.get("thumbnail") or b"").decode()
    fps = row["fps"] or 1
    caption = f"{row['source']}  {row['start'] / fps:.1f} to {row['stop'] / fps:.1f} s"
    column = _cause(row["dropped"])[0] if row["dropped"] else ""
    if column and row.get(column) is not None:
        caption += f"; {column.replace('_', ' ')} {_shown(row[column])}"
    facts = [f"{name}: {_shown(row[name])}" for name in DETAILS if row.get(name) not in (None, "", [])]
    return (
        f"<figure class='{'out' if row['dropped'] else 'in'}' title='{html.escape(chr(10).join(facts), quote=True)}'>"
        f"<img alt='' src='data:image/jpeg;base64,{data}'><figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _histogram(measure: Measure, rows: list[Row], threshold: float) -> str:
    """How a measure is distributed over the clips that reached a step, with its threshold; empty without values."""
    values = np.array([row[measure.column] for row in rows if row.get(measure.column) is not None], float)
    if not len(values):
        return ""
    highest = float(max(np.percentile(values, 99) * 1.05, threshold * 1.6, 1e-6))
    counts, edges = np.histogram(values.clip(0, highest), 40, (0, highest))
    width, height, left, base = 320, 132, 6, 100
    scale = (width - 2 * left) / highest
    bars = []
    for count, low, high in zip(counts, edges[:-1], edges[1:]):
        middle = (low + high) / 2
        out = middle < threshold if measure.lowest else middle > threshold
        tall = 72 * np.sqrt(count / counts.max())
        if count:
            bars.append(
                f"<rect class='{'dropped' if out else 'kept'}' x='{left + low * scale:.1f}' y='{base - tall:.1f}' "
                f"width='{(high - low) * scale - 0.8:.1f}' height='{tall:.1f}'><title>{count}</title></rect>"
            )
    at = left + threshold * scale
    flag = f"--{measure.step}.{measure.threshold}".replace("_", "-")
    return (
        f"<div class='panel'><svg viewBox='0 0 {width} {height}'><text class='title' x='{left}' y='12'>"
        f"{html.escape(measure.label)}</text>{''.join(bars)}<line x1='{at:.1f}' x2='{at:.1f}' y1='20' y2='{base}'/>"
        f"<text x='{left}' y='{base + 12}'>0</text><text x='{width - left}' y='{base + 12}' text-anchor='end'>"
        f"{highest:.3g}</text><text x='{min(max(at, 95), width - 95):.1f}' y='{height - 5}' text-anchor='middle'>"
        f"{flag} {threshold:g}</text></svg></div>"
    )


def _settings(steps: list[tuple[str, dict[str, Any]]]) -> str:
    flags = [
        f"<code>--{step}.{name} {html.escape(str(value))}</code>".replace("_", "-")
        for step, thresholds in steps
        for name, value in thresholds.items()
    ]
    return "<h2>Thresholds of this run</h2><p>" + "<br>".join(flags) + "</p>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(value) if isinstance(value, list) else str(value)
