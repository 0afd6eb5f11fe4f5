import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ucpe.evaluation.report.quoted import QUOTED, quoted_rows
from ucpe.evaluation.report.tables import Cell, Table, TableRow, latex, markdown, ranks, rows_of_quotes
from ucpe.evaluation.report.write import comparison
from ucpe.evaluation.results import Counts, Failure, Floor, QualityScore, Results, VideoRecord
from ucpe.evaluation.statistics import Summary, bootstrap_interval, summarise


def test_a_summary_by_hand():
    summary = summarise([1.0, 2.0, 3.0], worst=[10.0, 0.5])
    assert (summary.mean, summary.median, summary.count, summary.failures) == (2, 2, 3, 2)
    assert summary.worst_case == pytest.approx((1 + 2 + 3 + 10 + 3) / 5)  # a failure never helps
    assert summarise([]) is None
    assert (summarise([4.0]).low, summarise([4.0]).high) == (None, None)  # one video says nothing about spread
    lost = summarise([], worst=[3.0, 5.0])
    assert (lost.mean, lost.median, lost.count, lost.failures, lost.worst_case) == (None, None, 0, 2, 4.0)


def test_bootstrap_interval_is_repeatable_and_has_the_right_width():
    import numpy as np

    values = np.random.default_rng(0).normal(5, 2, 400)
    low, high = bootstrap_interval(values, seed=3)
    assert (low, high) == bootstrap_interval(values, seed=3)
    assert (low, high) != bootstrap_interval(values, seed=4)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_bootstrap_covers_the_truth_as_often_as_it_says():
    import numpy as np

    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(generator.normal(1, 1, 40), resamples=400)
        covered += low < 1 < high
    assert 0.89 < covered / 200 < 0.99


PAPER = Path(__file__).resolve().parents[2] / "../shared/paper/ucpe.tex"
MARKS = {"firstcell": 1, "firstgraycell": 1, "secondcell": 2, "secondgraycell": 2, "thirdcell": 3, "thirdgraycell": 3}


def published(label: str) -> list[list[str]]:
    """Cells of the rows of a table of the paper."""
    text = PAPER.read_text(encoding="utf-8")
    body = text[text.index(rf"\label{{{label}}}") :]
    body = body[body.index(r"\midrule") : body.index(r"\bottomrule")]
    rows = [row.replace("\n", " ") for row in re.sub(r"\\(midrule|makecell\[c\]\{[^}]*\})", "", body).split(r"\\")]
    return [[cell.strip() for cell in row.split("&")] for row in rows if row.count("&") > 2]


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
@pytest.mark.parametrize(("table", "label"), [("1", "tbl:panshot"), ("2", "tbl:re10k"), ("D", "tbl:latency")])
def test_quotes_are_the_papers_digit_by_digit_with_its_own_marks(table, label):
    rows, quotes = published(label), quoted_rows(table)
    assert len(rows) == len(quotes)
    places = ranks(Table(tuple(rows_of_quotes(quotes))))
    for index, (cells, quote) in enumerate(zip(rows, quotes)):
        cells = cells[1:] if table == "1" else cells
        method = re.sub(r"[$ ()]", "", cells[0].replace(r"\times", "x"))
        assert method == re.sub(r"[ ()]", "", quote.method)
        for cell, (name, value) in zip(cells[1:], quote.metrics.items()):
            number = re.search(r"[\d.]+$", cell).group()
            assert float(number) == value, (quote.method, name)
            mark = re.match(r"\\(\w+) ", cell)
            if table != "D":
                assert places.get((index, name)) == (MARKS[mark.group(1)] if mark else None), (quote.method, name)
        if table == "1":
            assert cells[-1].split()[-1] == quote.parameters
        if table == "D":
            assert cells[-1].replace(r"\(", "").replace(r"\)", "").replace(r"\times", "x") == quote.group


@pytest.mark.parametrize(
    "row", [row for row in QUOTED if "CamMC" in row.metrics], ids=lambda row: row.group + row.method
)
def test_published_rotation_errors_cannot_be_degrees(row):
    """CamMC <= TransErr + sqrt(2) RotErr in radians holds for any two paths."""
    import math

    rotation, translation, both = (row.metrics[name] for name in ("RotErr", "TransErr", "CamMC"))
    assert both > translation + math.sqrt(2) * math.radians(rotation) + 0.01
    assert both <= translation + math.sqrt(2) * rotation


def test_marks_agree_with_the_papers_own():
    """Table 1 marks best, second and third itself: rotation error of the ablations, and CLIP score."""
    rows = rows_of_quotes([row for row in quoted_rows("1") if "ablation" in row.group])
    places = ranks(Table(tuple(rows)))

    def marked(metric: str) -> dict[str, int]:
        return {rows[index].label.split(" (")[0]: place for (index, name), place in places.items() if name == metric}

    assert marked("RotErr") == {"1/4-dim": 1, "1/2-dim": 2, "Pre-Attn": 3}
    assert marked("CLIP") == {"1/8-dim": 1, "1/4-dim": 2, "Pre-Attn": 3}
    assert marked("PitchErr") == {"1/12-dim": 1, "1/4-dim": 2, "Post-Attn": 3}


def rows() -> tuple[TableRow, ...]:
    return (
        TableRow("ours", {"RotErr": Cell(1.0, 0.5, 1.5), "CLIP": Cell(20.0)}, comparable="robust", note="9/10"),
        TableRow("theirs", {"RotErr": Cell(2.0), "CLIP": Cell(30.0)}, comparable="robust"),
        TableRow("other_protocol", {"RotErr": Cell(0.1)}, comparable="released"),
        TableRow("A & B (quoted)", {"RotErr": Cell(0.01)}, "group", "Table 1", comparable="quoted"),
    )


def test_markdown_marks_only_what_is_comparable():
    text = markdown(Table(rows(), ("a note",)))
    assert "| ours | **1.000** [0.500, 1.500] | <u>20.00</u> | 9/10 |" in text
    assert "| theirs | <u>2.000</u> | **30.00** |" in text
    assert "| other_protocol | 0.100 | – |" in text
    assert "- a note" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_latex_is_well_formed():
    text = latex(Table(rows()))
    assert r"\first{1.000}" in text
    assert r"A \& B (quoted)" in text
    assert r"other\_protocol" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len({line.count("&") - line.count(r"\&") for line in body}) == 1
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_quoted_tables_are_complete_and_named():
    assert [len(quoted_rows(table)) for table in ("1", "2", "D")] == [14, 5, 5]
    assert quoted_rows("table d")[-1].metrics == {"seconds": 184, "frames": 81}
    with pytest.raises(ValueError, match="1, 2 and D"):
        quoted_rows("3")


def results(label: str, protocol: str, value: float, failures: bool = False, estimator: str = "colmap") -> Results:
    return Results(
        label=label,
        versions={},
        protocol=protocol,
        protocols={protocol: {"name": protocol, "description": "as said", "reduction": "mean", "angle": "degrees"}},
        seed=0,
        measuring={"duration": None},
        estimators={"pose": {"name": estimator}, "calibrator": None},
        floors={},
        counts={"pose": Counts(attempted=4, measured=3, filtered=0, failed=1, unreadable=0)},
        failures=[Failure("x", "pose", "failed", "no texture")] if failures else [],
        notes=["something about the input"],
        summary={"pose": {"RotErr": Summary(value, value, value, value, 3, 1, 2 * value)}},
        families={},
        quality={"FID": QualityScore(reason="FID could not be computed: no file")},
        videos=[VideoRecord(name=name, family="wide", gravity=True, lens={}, camera="1f") for name in "xyzw"],
    )


def test_results_are_the_same_after_a_file():
    found = results("a", "robust", 1.0, failures=True)
    found = replace(found, floors={"pose": Floor("shipped", {"RotErr": 0.1})}, families={"wide": found.summary})
    content = json.loads(json.dumps(found.to_json()))
    assert Results.from_json(content) == found
    assert content["counts"]["videos"] == 4 and content["summary"]["pose"]["RotErr"]["worst_case"] == 2.0


def test_comparison_shows_failures_reasons_and_quotes():
    table = comparison([results("a", "robust", 1.0, failures=True), results("b", "robust", 2.0)], quote=["2"])
    labels = [row.label for row in table.rows]
    assert labels[:3] == ["a", "a (failures as worst case)", "b"]
    assert sum("(quoted)" in label for label in labels) == 5
    notes = " ".join(table.notes)
    assert "FID could not be computed" in notes
    assert "radians" in notes
    assert "worst case" in notes
    assert "a: something about the input" in notes
    assert "own error of colmap (pose) under this protocol is not known" in notes
    places = ranks(table)
    assert (places[0, "RotErr"], places[2, "RotErr"]) == (1, 2)


def test_runs_of_other_estimators_or_other_videos_say_so():
    table = comparison([results("a", "robust", 1.0), results("b", "robust", 2.0, estimator="vipe")])
    assert not ranks(table)
    assert [row.label for row in table.rows] == ["a [robust, colmap]", "b [robust, vipe]"]
    assert any("estimators" in note for note in table.notes)
    other = results("b", "robust", 2.0)
    other = replace(other, videos=other.videos[:3])
    table = comparison([results("a", "robust", 1.0), other])
    assert ranks(table)
    assert any("different videos (4, 3, 3 in common)" in note for note in table.notes)


def test_runs_told_other_cameras_are_not_ranked():
    other = results("b", "robust", 2.0)
    other = replace(other, videos=[replace(video, camera="2e") for video in other.videos])
    table = comparison([results("a", "robust", 1.0), other])
    assert not ranks(table)
    assert any("different cameras: they cannot be compared" in note for note in table.notes)


def test_the_estimators_own_error_stands_beside_runs_side_by_side():
    floors = {
        "pose": Floor("shipped", {"RotErr": 0.1, "ATE": 0.2}),
        "calibration": Floor("shipped", {"PitchErr": 0.5}),
    }
    runs = [replace(results(name, "robust", value), floors=floors) for name, value in (("a", 1.0), ("b", 2.0))]
    (floor,) = [row for row in comparison(runs).rows if row.comparable == "floor"]
    assert {name: cell.value for name, cell in floor.cells.items()} == {"RotErr": 0.1, "PitchErr": 0.5}
    (floor,) = [row for row in comparison(runs, against="reference").rows if row.comparable == "floor"]
    assert set(floor.cells) == {"RotErr"}


def test_different_protocols_are_not_ranked_against_each_other():
    table = comparison([results("a", "robust", 1.0), results("b", "released", 2.0)])
    assert not ranks(table)
    assert any("not ranked" in note for note in table.notes)


def test_quotes_can_be_serialised():
    assert json.loads(json.dumps([row.metrics for row in QUOTED]))
    assert all(re.fullmatch(r"Table (1|2|D)", row.table) for row in QUOTED)
