"""Comparison tables in the paper's layout, as Markdown and LaTeX, best, second and third marked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ucpe.evaluation.report.quoted import QuotedRow
from ucpe.evaluation.results import Results


@dataclass(frozen=True)
class Column:
    """One metric of the tables."""

    metric: str
    title: str
    latex: str
    group: str
    digits: int
    more_is_better: bool = False

    @property
    def heading(self) -> str:
        """Title, and which way is better."""
        return f"{self.title} {'↑' if self.more_is_better else '↓'}"


LENS, ORIENTATION, POSE, SCENE, QUALITY, WHEELS, QALIGN, TIME = (
    "Camera Lens Control",
    "Absolute Orientation",
    "Relative Camera Pose Control",
    "3D Consistency",
    "Video Generation Quality",
    "Quality Without a Hub",
    "Q-Align Scores",
    "Inference Latency",
)

COLUMNS: tuple[Column, ...] = (
    Column("FoVErr", "FoV (°)", "FoV (°)", LENS, 2),
    Column("XFoVErr", "xFoV (°)", "xFoV (°)", LENS, 2),
    Column("XiErr", "ξ", r"$\xi$", LENS, 3),
    Column("K1Err", "k1", "${k}_{1}$", LENS, 3),
    Column("K2Err", "k2", "${k}_{2}$", LENS, 3),
    Column("PitchErr", "Pitch (°)", "Pitch (°)", ORIENTATION, 2),
    Column("RollErr", "Roll (°)", "Roll (°)", ORIENTATION, 2),
    Column("GravityErr", "Gravity (°)", "Gravity (°)", ORIENTATION, 2),
    Column("LatitudeErr", "Latitude (°)", "Latitude (°)", ORIENTATION, 2),
    Column("UpErr", "Up (°)", "Up (°)", ORIENTATION, 2),
    Column("RotErr", "RotErr", "RotErr", POSE, 3),
    Column("TransErr", "TransErr", "TransErr", POSE, 3),
    Column("CamMC", "CamMC", "CamMC", POSE, 3),
    Column("SpeedErr", "SpeedErr", "SpeedErr", POSE, 3),
    Column("EpipolarShare", "On epipolar lines (%)", r"Epipolar (\%)", SCENE, 1, more_is_better=True),
    Column("ParallaxShare", "Parallax (%)", r"Parallax (\%)", SCENE, 1, more_is_better=True),
    Column("ReprojErr", "Reprojection (px)", "Reprojection (px)", SCENE, 2),
    Column("FVD", "FVD", "FVD", QUALITY, 2),
    Column("FID", "FID", "FID", QUALITY, 2),
    Column("CLIP", "CLIP", "CLIP", QUALITY, 2, more_is_better=True),
    Column("ST-LPIPS", "ST-LPIPS", "ST-LPIPS", WHEELS, 4),
    Column("VMAF", "VMAF", "VMAF", WHEELS, 2, more_is_better=True),
    Column("FlowWarp", "Flow-warp (levels)", "Flow-warp", WHEELS, 3),
    Column("QAlignImage", "Image Quality", "Image Quality", QALIGN, 4, more_is_better=True),
    Column("QAlignAesthetic", "Image Aesthetic", "Image Aesthetic", QALIGN, 4, more_is_better=True),
    Column("QAlignVideo", "Video Quality", "Video Quality", QALIGN, 4, more_is_better=True),
    Column("seconds", "Time (s)", "Time (s)", TIME, 1),
)
"""Every column a table can have, in the paper's order; a table shows the columns for which some row has a value."""


@dataclass(frozen=True)
class Cell:
    """A number of a table; `low` and `high` are its confidence interval where it was measured here."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TableRow:
    """One method; rows of one group and kind are ranked among each other."""

    label: str
    cells: dict[str, Cell]
    group: str = ""
    quoted: str | None = None
    """Name of the published table it is quoted from, if it is."""
    note: str = ""
    comparable: str = ""
    """Rows are ranked only among rows with the same value: quoted numbers, or one protocol."""


@dataclass(frozen=True)
class Table:
    """Rows with their columns and what a reader must know."""

    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        """The columns that some row has a value for."""
        return [column for column in COLUMNS if any(column.metric in row.cells for row in self.rows)]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over the columns, and how many columns each spans."""
        return [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda column: column.group)]


PARTS = {
    "commanded": ("pose", "commanded"),
    "reference": ("pose", "reference"),
    "reference-poses": ("reference_pose", "reference"),
}
"""Parts of a summary (poses, then orientation and lens) by what they are compared with."""


def row_of_results(results: Results, against: str = "commanded", worst_case: bool = False) -> TableRow:
    """A run as a row: pose by its headline protocol, orientation and lens against the command or the reference.

    With `worst_case`, failures count as the worst case.
    """
    cells = {}
    for part in (*PARTS[against], "consistency"):
        for name, values in results.summary.get(part, {}).items():
            if worst_case:
                cells[name] = Cell(values.worst_case)
            elif values.mean is not None:
                cells[name] = Cell(values.mean, values.low, values.high)
    for name, score in results.quality.items():
        if score.value is not None:
            cells[name] = Cell(score.value, score.low, score.high)
    known = {column.metric for column in COLUMNS}
    label = results.label + (" (failures as worst case)" if worst_case else "")
    cells = {name: cell for name, cell in cells.items() if name in known}
    kind = measured_how(results) + (" worst case" if worst_case else "")
    return TableRow(label, cells, note=_attempts(results), comparable=kind)


def measured_how(results: Results) -> str:
    """What must agree for numbers of two runs to be compared: protocol, estimators with their settings, duration."""
    return json.dumps([results.protocol, results.estimators, results.measuring], sort_keys=True)


def counts_failures(results: Results) -> bool:
    """Whether some video could not be measured, so that a row with failures as the worst case says more."""
    return any(failure.part in ("pose", "calibration") for failure in results.failures)


def floor_row(results: Results, against: str = "commanded") -> TableRow | None:
    """The estimators' own error as a row, if known; not of what is compared with references, which have it too."""
    known = {column.metric for column in COLUMNS}
    told = {"pose": "pose", "calibration": "commanded"}
    parts = [floor for part, floor in results.floors.items() if told[part] in PARTS[against]]
    cells = {name: Cell(value) for part in parts for name, value in part.metrics.items() if name in known}
    if not cells:
        return None
    sources = sorted({part.source for part in parts})
    label = f"floor of {estimators_of(results)} ({', '.join(sources)})"
    return TableRow(label, cells, comparable="floor")


def estimators_of(results: Results) -> str:
    """Names of the estimators of a run."""
    names = {estimator["name"] for estimator in results.estimators.values() if estimator}
    return " and ".join(sorted(names)) or "no estimator"


def rows_of_quotes(quotes: Sequence[QuotedRow]) -> list[TableRow]:
    """Published rows as rows of a table, marked as quoted."""
    return [
        TableRow(
            f"{row.method} (quoted)",
            {name: Cell(value) for name, value in row.metrics.items() if name != "frames"},
            row.group,
            row.table,
            f"{row.parameters} parameters" if row.parameters else "",
            comparable=f"quoted {row.table} {row.group}",
        )
        for row in quotes
    ]


def ranks(table: Table) -> dict[tuple[int, str], int]:
    """Rank 1, 2 or 3 of cells by (row, metric), among comparable rows; equal values share a rank."""
    result = {}
    for column in table.columns:
        for kind in {row.comparable for row in table.rows}:
            members = [
                (index, row.cells[column.metric].value)
                for index, row in enumerate(table.rows)
                if row.comparable == kind and kind != "floor" and column.metric in row.cells
            ]
            if len(members) < 2:
                continue
            order = sorted({round(value, column.digits) for _, value in members}, reverse=column.more_is_better)
            for index, value in members:
                place = order.index(round(value, column.digits)) + 1
                if place <= 3:
                    result[index, column.metric] = place
    return result


def markdown(table: Table) -> str:
    """Markdown table: best bold, second underlined, third in italics."""
    columns, places = table.columns, ranks(table)
    head = ["Method", *(column.heading for column in columns), "Videos"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    group = ""
    for index, row in enumerate(table.rows):
        if row.group != group:
            group = row.group
            lines.append(f"| *{_plain(group)}* |" + " |" * (len(head) - 1))
        cells = [_markdown_cell(row, column, places.get((index, column.metric))) for column in columns]
        lines.append("| " + " | ".join([_plain(row.label), *cells, row.note]) + " |")
    return "\n".join([*lines, "", *(f"- {_plain(note)}" for note in table.notes)]) + "\n"


def latex(table: Table) -> str:
    """LaTeX table with booktabs in the paper's layout; define \\first, \\second, \\third as you like."""
    columns, groups, places = table.columns, table.groups, ranks(table)
    lines = [
        r"% \usepackage{booktabs}",
        r"% \newcommand{\first}[1]{\textbf{#1}} \newcommand{\second}[1]{\underline{#1}}",
        r"% \newcommand{\third}[1]{\textit{#1}}",
        r"\begin{tabular}{l" + "c" * len(columns) + "}",
        r"\toprule",
        " & ".join(["", *(rf"\multicolumn{{{count}}}{{c}}{{{name}}}" for name, count in groups)]) + r" \\",
    ]
    start, rules = 2, []
    for _, count in groups:
        rules.append(rf"\cmidrule(lr){{{start}-{start + count - 1}}}")
        start += count
    lines.append(" ".join(rules))
    arrows = [rf"{column.latex}$\{'up' if column.more_is_better else 'down'}arrow$" for column in columns]
    lines += [" & ".join(["Method", *arrows]) + r" \\", r"\midrule"]
    group = ""
    for index, row in enumerate(table.rows):
        if row.group != group:
            group = row.group
            lines.append(rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\emph{{{_escaped(group)}}}}} \\")
        cells = [_latex_cell(row, column, places.get((index, column.metric))) for column in columns]
        lines.append(" & ".join([_escaped(row.label), *cells]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", *(f"% {' '.join(note.split())}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def shown(value: float, digits: int) -> str:
    """A number with this many decimals."""
    return f"{value:.{digits}f}"


def digits_of(row: TableRow, column: Column) -> int:
    """Digits of a cell: those of its column, or as published."""
    return 2 if row.quoted and column.group == POSE else column.digits


def shown_cell(row: TableRow, column: Column, dash: str = "–") -> tuple[str, list[str]]:
    """A cell's number, or a dash if it is empty, and the two ends of its interval if it has one."""
    cell = row.cells.get(column.metric)
    if cell is None:
        return dash, []
    ends = [] if cell.low is None or cell.high is None else [cell.low, cell.high]
    return shown(cell.value, digits_of(row, column)), [shown(end, column.digits) for end in ends]


def _markdown_cell(row: TableRow, column: Column, place: int | None) -> str:
    text, ends = shown_cell(row, column)
    text = {1: f"**{text}**", 2: f"<u>{text}</u>", 3: f"*{text}*"}.get(place or 0, text)
    return f"{text} [{', '.join(ends)}]" if ends else text


def _latex_cell(row: TableRow, column: Column, place: int | None) -> str:
    text, _ = shown_cell(row, column, "--")
    return {1: rf"\first{{{text}}}", 2: rf"\second{{{text}}}", 3: rf"\third{{{text}}}"}.get(place or 0, text)


def _attempts(results: Results) -> str:
    """Numbers of measured and attempted videos, of the estimator that measured the fewest."""
    parts = [results.counts[part] for part in ("pose", "calibration") if part in results.counts]
    if not parts:
        return str(len(results.videos))
    least = min(parts, key=lambda part: part.measured)
    return f"{least.measured}/{least.attempted}"


def _plain(text: str) -> str:
    """Text that stays in its cell of a Markdown table and is not read as HTML."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


LATEX = {character: "\\" + character for character in "&%_#${}"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "ξ": r"$\xi$"}
"""How characters that have a meaning in LaTeX are written."""


def _escaped(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))
