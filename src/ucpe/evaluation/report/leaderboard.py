"""A run as one file, beside which another group can put its own numbers: `ucpe report publish`.

It names everything that must agree for numbers to be compared: the protocol, the cameras (by their hash), the
estimators with their versions, settings and own errors, and what happened to failures. It holds every video's numbers,
so that others can test paired differences, but no pictures and no paths of files. A file whose means or cameras do not
follow from its videos is refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ucpe.evaluation.report.tables import PARTS, counts_failures, floor_row, row_of_results
from ucpe.evaluation.results import Results, Summaries
from ucpe.evaluation.run import EvaluationSettings, load_results, summaries
from ucpe.files import write_json
from ucpe.reading import read_json_object

FORMAT = "ucpe-leaderboard-1"
"""Name and version of the layout of a published file."""

KEPT = [name for name in Results.__dataclass_fields__ if name != "videos"]
"""Fields of a run that are published as they are."""

OF_A_VIDEO = (
    "name",
    "family",
    "lens",
    "camera",
    "gravity",
    "frames",
    "height",
    "width",
    "pose",
    "calibration",
    "consistency",
)
"""Fields of every video that are published."""


def publish(run: str | Path, output: str | Path, *, label: str | None = None, link: str | None = None) -> Path:
    """Write the file of a run that `ucpe evaluate` wrote, under another label if asked; returns its path."""
    results = load_results(run)
    plain = results.to_json()
    content = {
        "format": FORMAT,
        **{name: plain[name] for name in KEPT},
        "label": label or results.label,
        "link": link,
        "protocols": {results.protocol: results.protocols[results.protocol]},
        "cameras": results.cameras,
        "videos": [{name: video[name] for name in OF_A_VIDEO if name in video} for video in plain["videos"]],
    }
    write_json(output, content)
    return Path(output)


def load_runs(path: str | Path) -> list[Results]:
    """The runs at a path: one that `ucpe evaluate` wrote, a published file, or a folder of published files."""
    path = Path(path)
    if path.is_dir() and not (path / "results.json").is_file():
        files = sorted(path.glob("*.json"))
        if files:
            return [run for file in files for run in load_runs(file)]
    if path.is_file() and (content := read_json_object(path)).get("format") == FORMAT:
        if missing := [name for name in (*KEPT, "cameras", "videos") if name not in content]:
            raise ValueError(f"{path}: a published run has {', '.join(missing)}, which this file lacks")
        return [_checked(content, path)]
    return [load_results(path)]


def _checked(content: dict[str, Any], path: Path) -> Results:
    """The run in a file that somebody else wrote; ValueError unless it can be put into a table."""
    kinds = {"label": str, "protocol": str, "notes": list, "failures": list, "videos": list}
    try:
        if wrong := [name for name, kind in kinds.items() if not isinstance(content[name], kind)]:
            raise TypeError(f"{wrong[0]} is a {type(content[wrong[0]]).__name__}")
        if not all(isinstance(note, str) for note in content["notes"]):
            raise TypeError("notes are not all text")
        results = Results.from_json(content)
        for against in PARTS:
            row_of_results(results, against, worst_case=counts_failures(results))
            rows = (row_of_results(results, against), floor_row(results, against))
            for name, cell in ((name, cell) for row in rows if row for name, cell in row.cells.items()):
                if not all(math.isfinite(value) for value in (cell.value, cell.low or 0, cell.high or 0)):
                    raise ValueError(f"{name} is not finite")
        protocol = results.protocols[results.protocol]
        _ = [protocol[name] for name in ("description", "reduction", "angle")]
        if results.cameras != content["cameras"]:
            raise ValueError("its cameras are not those of its videos")
        settings = EvaluationSettings(protocol=results.protocol, seed=results.seed)
        stated, own = _means(results.summary), _means(summaries(results.videos, settings))
        wrong = [name for name in stated | own if not np.allclose(stated.get(name, np.inf), own.get(name, np.nan))]
        if wrong:
            raise ValueError(f"{wrong[0]} is not what its videos give")
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{path}: not a run as `ucpe report publish` writes it ({error!r})") from None
    return results


def _means(found: Summaries) -> dict[str, tuple[float, float]]:
    """Mean (0 if there is none), and mean with failures as the worst case, of every metric."""
    return {
        f"{name} ({part})": (one.mean or 0.0, one.worst_case)
        for part, metrics in found.items()
        for name, one in metrics.items()
    }
