"""Writes the files of a report: Markdown, LaTeX and the HTML page, of one run or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ucpe.evaluation.inputs import Job
from ucpe.evaluation.report.leaderboard import load_runs
from ucpe.evaluation.report.page import comparison_page, page
from ucpe.evaluation.report.quoted import PROPE_NOTE, RADIANS_NOTE, quoted_rows
from ucpe.evaluation.report.tables import (
    Table,
    TableRow,
    counts_failures,
    estimators_of,
    floor_row,
    latex,
    markdown,
    measured_how,
    row_of_results,
    rows_of_quotes,
)
from ucpe.evaluation.results import Results
from ucpe.evaluation.run import load_results
from ucpe.files import write_file


def write_report(output: str | Path, jobs: Sequence[Job] = (), against: str = "commanded") -> list[Path]:
    """Write `table.md`, `table.tex` and `report.html` beside the results.json of a run; returns their paths.

    `jobs` are the run's videos and cameras; without them the page has no pictures.
    """
    output = Path(output)
    results = load_results(output)
    table = run_table(results, against)
    by_name: Mapping[str, Job] = {job.name: job for job in jobs}
    return _write(output, table, page(results, table, output, by_name, against))


def run_table(results: Results, against: str = "commanded") -> Table:
    """The table of a run: its means, its means with failures as the worst case, and the estimators' own error."""
    rows = [row_of_results(results, against)]
    if counts_failures(results):
        rows.append(row_of_results(results, against, worst_case=True))
    floor = floor_row(results, against)
    return Table((*rows, *([floor] if floor else [])), tuple(_notes([results], against)))


def compare_runs(
    runs: Sequence[str | Path], output: str | Path, quote: Sequence[str] = (), against: str = "commanded"
) -> list[Path]:
    """Write `compare.md`, `.tex` and `.html` with runs side by side, and published rows marked as quoted."""
    everything = [found for run in runs for found in load_runs(run)]
    table = comparison(everything, quote, against)
    text = comparison_page("Camera control, side by side", table)
    return _write(Path(output), table, text, "compare", "compare.html")


def comparison(everything: Sequence[Results], quote: Sequence[str] = (), against: str = "commanded") -> Table:
    """Runs side by side, then published tables; numbers of different protocols are not ranked against each other."""
    rows: list[TableRow] = []
    floors: list[TableRow] = []
    several = len({measured_how(results) for results in everything}) > 1
    for results in everything:
        own = [row_of_results(results, against)]
        if counts_failures(results):
            own.append(row_of_results(results, against, worst_case=True))
        how = f" [{results.protocol}, {estimators_of(results)}]" if several else ""
        told = results.cameras["hash"] if _told_differently(everything) else ""
        rows += [replace(row, label=row.label + how, comparable=row.comparable + told) for row in own]
        floor = floor_row(results, against)
        if floor is not None:
            floor = replace(floor, label=floor.label + (f" [{results.protocol}]" if several else ""))
            floors += [floor] if floor not in floors else []
    rows += floors
    notes = _notes(everything, against)
    for table in quote:
        rows += rows_of_quotes(quoted_rows(table))
    if quote:
        notes.append(
            "Rows marked (quoted) are the paper's published numbers, measured by its authors with other estimators, "
            "videos and settings; they are ranked among themselves only. " + RADIANS_NOTE
        )
    if "1" in quote:
        notes.append(PROPE_NOTE)
    return Table(tuple(rows), tuple(notes))


def _notes(everything: Sequence[Results], against: str) -> list[str]:
    notes = []
    for name in sorted({results.protocol for results in everything}):
        protocol = next(results.protocols[name] for results in everything if results.protocol == name)
        unit = f"{protocol['reduction']} over frames, RotErr in {protocol['angle']}"
        notes.append(f"Pose protocol {name}: {protocol['description']} ({unit}).")
    if len({measured_how(results) for results in everything}) > 1:
        notes.append("Runs with different protocols, estimators or durations are not ranked against each other.")
    videos = [{video.name for video in results.videos} for results in everything]
    if any(names != videos[0] for names in videos):
        common = len(set.intersection(*videos))
        notes.append(
            f"The runs hold different videos ({', '.join(str(len(names)) for names in videos)}, {common} in common): "
            "their means are over different cameras."
        )
    if _told_differently(everything):
        notes.append("The runs have videos of the same names but of different cameras: they cannot be compared.")
    target = "the commanded camera" if against == "commanded" else "the estimate on the reference video"
    what = "Pose, orientation and lens errors" if against == "reference-poses" else "Orientation and lens errors"
    notes.append(f"{what} are against {target}; brackets are 95 % bootstrap intervals over videos.")
    if any(counts_failures(results) for results in everything):
        notes.append(
            "Means are over the videos that could be measured (last column); “failures as worst case” counts each "
            "failed video as a level 90° camera that never moves, or as the worst measured video if that is larger."
        )
    for results in everything:
        prefix = f"{results.label}: " if len(everything) > 1 else ""
        notes += [prefix + note for note in results.notes]
        for part, name in (("pose", "pose"), ("calibration", "calibrator")):
            estimator = results.estimators[name]
            if estimator and part not in results.floors:
                notes.append(
                    f"{prefix}The own error of {estimator['name']} ({part}) under this protocol is "
                    "not known here; reference videos (--reference) measure it."
                )
        for name, score in results.quality.items():
            if score.reason:
                notes.append(f"{results.label}: {score.reason}")
            elif score.note:
                notes.append(f"{results.label}, {name}: {score.note}.")
    return notes


def _told_differently(everything: Sequence[Results]) -> bool:
    """Whether runs have videos of the same names, but not the same cameras."""
    names = {frozenset(video.name for video in results.videos) for results in everything}
    return len(names) == 1 and len({results.cameras["hash"] for results in everything}) > 1


def _write(output: Path, table: Table, text: str, stem: str = "table", page_name: str = "report.html") -> list[Path]:
    contents = {f"{stem}.md": markdown(table), f"{stem}.tex": latex(table), page_name: text}
    for name, content in contents.items():
        write_file(output / name, content)
    return [output / name for name in contents]
