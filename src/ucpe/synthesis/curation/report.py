"""`ucpe curate report`: one self-contained page from which a person can trust or tune a curation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet
from markupsafe import Markup

from ucpe.files import write_file
from ucpe.pages import render_page
from ucpe.pages.drawings import data_uri, histogram_svg
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
    Measure("projection", "border", "max_border", "black border, share of the height or width"),
    Measure("projection", "stereo", "max_stereo", "correlation of the two halves"),
    Measure("projection", "seam", "max_seam", "difference across the seam, near 0 in a panorama"),
    Measure("projection", "poles", "max_poles", "variation of the first and last row, near 0 in a panorama"),
    Measure("overlay", "watermark", "max_watermark", "watermark score"),
    Measure("quality", "quality", "min_quality", "quality score", lowest=True),
    Measure("tracking", "track_error", "max_error", "error of the map, degrees"),
    Measure("rotation", "shake", "max_shake", "shake, degrees"),
    Measure("rotation", "rotation_score", "max_rotation", "rotation score, degrees"),
    Measure("rotation", "sway", "max_sway", "movement of the vertical, degrees"),
    Measure("rotation", "lean", "max_lean", "lean of vertical lines, degrees"),
)
"""What is drawn for each step."""

CAUSES = (
    ("under", "", "min_seconds"),
    ("black borders", "border", "max_border"),
    ("stereo", "stereo", "max_stereo"),
    ("not twice", "", "aspect_tolerance"),
    ("not equirectangular", "seam", "max_seam"),
    ("poles", "poles", "max_poles"),
    ("text overlay", "text_score", "max_watermark"),
    ("static overlay", "overlay", "max_watermark"),
    ("rig", "rig", "keep_rig"),
    ("watermark classifier", "classifier", "max_watermark"),
    ("low quality", "quality", "min_quality"),
    ("tracked for", "", "min_seconds"),
    ("tracking lost", "", "mapper.min_inliers"),
    ("poses are inaccurate", "track_error", "max_error"),
    ("no parallax", "motion_magnitude", "depth.min_parallax"),
    ("not stabilised: shakes", "shake", "max_shake"),
    ("not stabilised: turns", "rotation_score", "max_rotation"),
    ("not stabilised: its vertical", "sway", "max_sway"),
    ("not level", "lean", "max_lean"),
)
"""How reasons begin, the column that is the reason, and the option of the step that changes it."""

DETAILS = (
    "border", "stereo", "seam", "poles", "watermark", "text", "rig", "quality", "track_error", "shake",
    "rotation_score", "sway", "lean", "near_depth", "motion_magnitude", "flags", "categories", "invalid",
)  # fmt: skip
"""Columns that are told of a clip when the pointer rests on its picture."""


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
    aside = [row for row in rows if row["dropped_by"] == "reading"]
    clips = [row for row in rows if row["dropped_by"] != "reading"]
    kept = [row for row in clips if not row["dropped"]]
    seconds = sum((row["stop"] - row["start"]) / row["fps"] for row in kept)
    return render_page(
        "synthesis/curation/report.html",
        f"Curation of {title}",
        width="1180px",
        numbers=[
            (len({row["source"] for row in rows}), "videos"),
            (len(aside), "set aside"),
            (len(clips), "clips"),
            (len(kept), "kept"),
            (f"{len(kept) / max(len(clips), 1):.0%}", "of the clips"),
            (f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h", "kept"),
        ],
        share=100 / max(len(clips), 1),
        steps=_steps(clips, [step for step in steps if step[0] != "reading"], pictures),
        aside=aside,
        kept=_gallery(kept, pictures * 2),
        flags=[_flag(step, name, str(value)) for step, found in steps for name, value in found.items()],
    )


def _steps(clips: list[Row], steps: list[tuple[str, dict[str, Any]]], pictures: int) -> list[dict[str, Any]]:
    """Each step: how many clips reached it, distributions against its thresholds, and what it dropped by reason."""
    found, seen = [], clips
    for name, thresholds in steps:
        dropped = [row for row in seen if row["dropped_by"] == name]
        reasons = []
        for reason, count in Counter(row["dropped"] for row in dropped).most_common():
            option = _cause(reason)[1]
            own = _gallery([row for row in dropped if row["dropped"] == reason], pictures)
            flag = _flag(name, option) if option else ""
            reasons.append({"text": reason, "count": count, "flag": flag, "pictures": own})
        step = {"name": name, "reached": len(seen), "dropped": len(dropped), "reasons": reasons}
        found.append({**step, "plots": _plots(name, thresholds, seen)})
        seen = [row for row in seen if row["dropped_by"] != name]
    return found


def _plots(step: str, thresholds: dict[str, Any], clips: list[Row]) -> list[Markup]:
    plots = []
    for measure in MEASURES:
        values = np.array([row[measure.column] for row in clips if row.get(measure.column) is not None], float)
        if measure.step == step and measure.threshold in thresholds and len(values):
            threshold = thresholds[measure.threshold]
            flag = _flag(step, measure.threshold, f"{threshold:g}")
            plots.append(histogram_svg(values, measure.label, threshold, flag, measure.lowest))
    return plots


def _flag(step: str, option: str, value: str = "") -> str:
    """An option as it is typed."""
    return f"--{step}.{option}".replace("_", "-") + (f" {value}" if value else "")


def _cause(reason: str) -> tuple[str, str]:
    """The column that is a reason and the option that changes it, empty where there is none."""
    return next(((column, option) for start, column, option in CAUSES if reason.startswith(start)), ("", ""))


def _gallery(rows: list[Row], most: int) -> list[dict[str, str]]:
    """Thumbnails, evenly drawn from all rows if there are too many."""
    chosen = rows if len(rows) <= most else [rows[int(place * len(rows) / most)] for place in range(most)]
    return [_picture(row) for row in chosen]


def _picture(row: Row) -> dict[str, str]:
    fps = row["fps"] or 1
    caption = f"{row['source']}  {row['start'] / fps:.1f} to {row['stop'] / fps:.1f} s"
    column = _cause(row["dropped"])[0] if row["dropped"] else ""
    if column and row.get(column) is not None:
        caption += f"; {column.replace('_', ' ')} {_shown(row[column])}"
    facts = "\n".join(f"{name}: {_shown(row[name])}" for name in DETAILS if row.get(name) not in (None, "", []))
    kind = "out" if row["dropped"] else "in"
    return {"kind": kind, "facts": facts, "data": data_uri(row.get("thumbnail") or b""), "caption": caption}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(value) if isinstance(value, list) else str(value)
