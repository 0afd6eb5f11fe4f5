"""`ucpe curate report`: one self-contained page from which a person can trust or tune a curation."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from markupsafe import Markup

from ucpe.files import write_file
from ucpe.pages import render_page
from ucpe.pages.drawings import data_uri, histogram_svg
from ucpe.synthesis.curation.pipeline import DECISIONS, HIDDEN, CurationSettings
from ucpe.synthesis.curation.steps import Row, Rule

STEPS: dict[str, Any] = {step.name: step for step in vars(CurationSettings()).values()}
"""Every step by its name."""

TOLD = (pa.float64(), pa.string(), pa.list_(pa.string()))
"""Types of the columns that are shown when the pointer rests on a clip's picture."""


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
            option = _rule(name, reason).option
            own = _gallery([row for row in dropped if row["dropped"] == reason], pictures)
            flag = _flag(name, option) if option else ""
            reasons.append({"text": reason, "count": count, "flag": flag, "pictures": own})
        step = {"name": name, "reached": len(seen), "dropped": len(dropped), "reasons": reasons}
        found.append({**step, "plots": _plots(name, thresholds, seen)})
        seen = [row for row in seen if row["dropped_by"] != name]
    return found


def _plots(step: str, thresholds: dict[str, Any], clips: list[Row]) -> list[Markup]:
    plots = []
    for rule in STEPS[step].rules if step in STEPS else ():
        values = np.array([row[rule.column] for row in clips if row.get(rule.column) is not None], float)
        if rule.label and rule.option in thresholds and len(values):
            threshold = thresholds[rule.option]
            flag = _flag(step, rule.option, f"{threshold:g}")
            plots.append(histogram_svg(values, rule.label, threshold, flag, rule.lowest))
    return plots


def _flag(step: str, option: str, value: str = "") -> str:
    """An option as it is typed on the command line."""
    return f"--{step}.{option}".replace("_", "-") + (f" {value}" if value else "")


def _rule(step: str, reason: str) -> Rule:
    """The rule by which a step drops clips for a reason; an empty one if it names none."""
    rules = STEPS[step].rules if step in STEPS else ()
    return next((rule for rule in rules if reason.startswith(rule.reason)), Rule("", "", ""))


def _gallery(rows: list[Row], most: int) -> list[dict[str, str]]:
    """Thumbnails, evenly drawn from all rows if there are too many."""
    chosen = rows if len(rows) <= most else [rows[int(place * len(rows) / most)] for place in range(most)]
    return [_picture(row) for row in chosen]


def _picture(row: Row) -> dict[str, str]:
    fps = row["fps"] or 1
    caption = f"{row['source']}  {row['start'] / fps:.1f} to {row['stop'] / fps:.1f} s"
    column = _rule(row["dropped_by"], row["dropped"]).column
    if column and row.get(column) is not None:
        caption += f"; {column.replace('_', ' ')} {_shown(row[column])}"
    names = [name for step in STEPS.values() for name, kind in step.columns.items() if kind in TOLD]
    facts = "\n".join(f"{name}: {_shown(row[name])}" for name in names if row.get(name) not in (None, "", []))
    kind = "out" if row["dropped"] else "in"
    return {"kind": kind, "facts": facts, "data": data_uri(row.get("thumbnail") or b""), "caption": caption}


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(value) if isinstance(value, list) else str(value)
