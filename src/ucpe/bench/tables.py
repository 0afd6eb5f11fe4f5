"""Benchmark tables in Markdown: means with their spread, differences with their intervals, and what was not run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ucpe.bench.statistics import Difference, Spread

NOT_RUN = "not run"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; numbers go to the right of their columns, the first column to the left."""
    lines = ["| " + " | ".join(head) + " |", "|:--" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def shown_spread(value: Spread | None, digits: int = 2) -> str:
    """Mean ± standard deviation between seeds, or that it was not run."""
    if value is None:
        return NOT_RUN
    if not math.isfinite(value.mean):
        return "diverged"
    text = f"{value.mean:.{digits}f}"
    return text if value.deviation is None else f"{text} ± {value.deviation:.{digits}f}"


def shown_difference(value: Difference | None, digits: int = 2) -> str:
    """Mean [interval] and verdict, or that it was not run."""
    if value is None:
        return NOT_RUN
    if not math.isfinite(value.mean):
        return "diverged"
    text = f"{value.mean:+.{digits}f}"
    if value.low is None or value.high is None:
        return f"{text} ({value.verdict})"
    return f"{text} [{value.low:+.{digits}f}, {value.high:+.{digits}f}] {value.verdict}"


def not_run(runs: Mapping[str, object], note: str = "") -> list[str]:
    """Lines of a section that names the runs without a record; none if there are no such runs."""
    absent = [name for name, facts in runs.items() if facts is None]
    return [f"## {NOT_RUN.capitalize()}", "", f"{', '.join(absent)}.{note}", ""] if absent else []
