"""Results of the adapter benchmark: numbers by contestant, tables in the layout of the paper's Table 1, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ucpe.bench.adapter_contestants import CONTESTANTS, GROUPS, Contestant, find_contestants
from ucpe.bench.figures import dot_plot, image_grid
from ucpe.bench.generated_videos import METRICS, MODES
from ucpe.bench.runs import Record
from ucpe.bench.statistics import Difference, Spread, paired_difference, spread
from ucpe.bench.tables import markdown_table, shown_difference, shown_spread
from ucpe.evaluation.report.quoted import RADIANS_NOTE, quoted_rows
from ucpe.evaluation.report.tables import COLUMNS, POSE, Column

LOSS = "HighNoiseLoss"
"""Validation loss at high noise, of clips whose first frame is given in that mode."""

LOSSES = {"text": "high-noise", "first-frame": "first-frame"}
"""Validation number of each mode."""

LOSS_COLUMN = Column(LOSS, "Loss, t ≥ 0.8", "Loss", "Validation", 4)

COMPARED = ("XFoVErr", "PitchErr", "RollErr", "RotErr", "TransErr", LOSS)
"""Metrics of the tables of differences."""

DRAWN = {"PitchErr": "pitch", "RollErr": "roll", "XFoVErr": "xFoV", "RotErr": "rotation", "TransErr": "translation"}
"""Metrics of the picture, and what they are called there."""

TABLE = ("FVD", "FID", "CLIP", "K1Err", "K2Err")
"""Columns of the paper's table that only its own rows have."""


def assemble(benchmark: Any, form: str, records: Mapping[str, Record]) -> dict[str, Any]:
    """Results as plain data: errors, and differences to the reference, by mode, metric and contestant, or None.

    `records` are those of finished runs, by name.
    """
    asked = {contestant.name for contestant in find_contestants(benchmark.contestants)}
    errors: dict[str, Any] = {}
    differences: dict[str, Any] = {}
    for mode in MODES:
        errors[mode], differences[mode] = {}, {}
        for metric in (*METRICS, LOSS):
            values = {name: _values(records, name, mode, metric) for name in CONTESTANTS}
            errors[mode][metric] = {name: _spread(values[name]) for name in CONTESTANTS}
            differences[mode][metric] = {
                name: _difference(values[name], values[contestant.reference])
                for name, contestant in CONTESTANTS.items()
                if contestant.reference is not None
            }
    names = [f"{name}/seed-{seed}" for seed in range(benchmark.seeds) for name in CONTESTANTS if name in asked]
    return {
        "format": form,
        "benchmark": asdict(benchmark),
        "contestants": {name: _described(contestant, name in asked) for name, contestant in CONTESTANTS.items()},
        "errors": errors,
        "differences": differences,
        "runs": {name: records[name].facts if name in records else None for name in names},
    }


def markdown(results: dict[str, Any]) -> str:
    """The results as Markdown tables."""
    benchmark, machine = results["benchmark"], results.get("machine", {})
    finished = {name: facts for name, facts in results["runs"].items() if facts is not None}
    absent = [name for name, facts in results["runs"].items() if facts is None]
    hours = sum(facts.get("training_seconds", 0) for facts in finished.values()) / 3600
    rate = benchmark["learning_rate"]
    rates = "each with the learning rate of its recipe" if rate is None else f"learning rate {rate:g}"
    lines = [
        "# Controlled generation by camera adapter",
        "",
        f"{about_base(results)} Each contestant: {benchmark['steps']} steps on it, {rates}, "
        f"{benchmark['seeds']} seed(s), {results.get('clips', 0)} clips; {benchmark['videos']} held-out cameras. "
        f"{len(finished)} of {len(results['runs'])} runs done, {hours:.2f} hours of training by the clock, each on one "
        f"core of {machine.get('processor', 'an unnamed machine')}.",
        "",
    ]
    for mode, title in MODES.items():
        lines += [f"## Videos {title}", "", _table(results, mode)]
    lines += notes(results)
    for mode, title in MODES.items():
        lines += [f"## Differences, {title}", "", _difference_table(results, mode)]
    lines += [
        "Mean of the paired differences (same seed, cameras and noise) to UCPE, or without orientation to UCPE without "
        "it, with a 95 % interval for new seeds and cameras on this base; of the loss, for new seeds. Better or worse "
        "only where the interval leaves out zero; each comparison stands for itself.",
        "",
    ]
    if absent:
        stopped = f" Stopped: {results['unfinished']}." if results.get("unfinished") else ""
        lines += ["## Not run", "", ", ".join(absent) + "." + stopped, ""]
    return "\n".join(lines)


def about_base(results: dict[str, Any]) -> str:
    """A sentence on the base."""
    base = results.get("base", {})
    if base.get("kind") in ("trained", "bundled"):
        loss = base["validation"].get("high-noise", float("nan"))
        how = "bundled" if base["kind"] == "bundled" else f"trained in {base['training_seconds'] / 3600:.2f} hours"
        return f"The base, {how}: {base['steps']} steps without any camera, loss at high noise {loss:.4f}."
    if base.get("kind") == "given":
        together = " It was trained together with an adapter, which favours adapters of that kind."
        return "The base was given." + together * bool(base["trained_with_an_adapter"])
    return "The base is not trained yet."


def notes(results: dict[str, Any]) -> list[str]:
    """What a reader must know about the tables."""
    return [
        "- Mean ± standard deviation between seeds; errors against the commanded camera by the desk estimators, pose "
        "protocol `robust`: means over frames, RotErr in degrees, TransErr in near-plane depths.",
        "- Floor: the estimators' own error on true videos. Constant guess: the same answer for every video, median "
        "pitch, roll and lens, and no motion.",
        "- Rows marked (quoted) are the paper's, measured by its authors on a 1.3 B model with other estimators, other "
        "videos and another protocol: compare orders, not numbers. " + RADIANS_NOTE,
        "- The base stays frozen under UCPE, PRoPE and GTA; ReCamMaster also trains its self-attention, CameraCtrl all "
        "of it.",
        "- FVD, FID, CLIP, k1 and k2 are not measured here.",
        "",
    ]


def draw(results: dict[str, Any], records: Mapping[str, Record], truth: Sequence[np.ndarray], output: Path) -> None:
    """Write errors.png, errors as shares of the constant guess, and views.png, last frames of one camera per family."""
    shown = [name for name, about in results["contestants"].items() if about["asked"]]
    titles = {name: results["contestants"][name]["title"] for name in shown}
    panels = {
        title: {
            titles[name]: {
                text: _scaled(results["errors"][mode][metric][name], results["constant"].get(metric))
                for metric, text in DRAWN.items()
            }
            for name in shown
        }
        for mode, title in MODES.items()
    }
    dot_plot(output / "errors.png", panels, "error as a share of the constant guess")
    found = {name: _first_record(records, name) for name in shown}
    if not truth or not any(found.values()):
        return
    rows: dict[str, list[np.ndarray | None]] = {}
    for mode in results["benchmark"]["modes"]:
        for index in _one_per_family(results["families"][: len(truth)]):
            pictures = [
                None if record is None else record.tensors[f"{mode}/pictures"][index].numpy()
                for record in found.values()
            ]
            rows[f"{results['families'][index]}\n{mode.replace('-', ' ')}"] = [truth[index], *pictures]
    image_grid(output / "views.png", ["truth", *titles.values()], rows)


def _table(results: dict[str, Any], mode: str) -> str:
    measured = {*METRICS, LOSS}
    columns = [column for column in COLUMNS if column.metric in (*METRICS, *TABLE)] + [LOSS_COLUMN]
    head = ["Method", "Params", *(f"{one.title} {'↑' if one.more_is_better else '↓'}" for one in columns), "Videos"]
    rows = []
    for group in GROUPS:
        rows.append([f"*{group}*"] + [""] * (len(head) - 1))
        for contestant in _as_published(group):
            name = contestant.name
            about, errors = results["contestants"][name], results["errors"][mode]
            known = {one for one in measured if errors[one][name] is not None}
            empty = measured - known if known else set()  # run, but of no camera here, as the speed of one that stands
            cells = [
                shown_spread(_spread_from(errors[one.metric][name]), one.digits)
                if one.metric in measured - empty
                else "–"
                for one in columns
            ]
            rows.append(
                [about["title"].partition(",")[0], _parameters(results, name), *cells, _videos(results, mode, name)]
            )
            quoted = contestant.quotation()
            if quoted is not None:
                cells = [_quoted_cell(quoted.metrics.get(one.metric), one) for one in columns]
                rows.append([f"{quoted.method} (quoted)", quoted.parameters or "", *cells, ""])
    for title, values in (("floor", results.get("floors", {})), ("constant guess", results.get("constant", {}))):
        cells = [f"{values[one.metric]:.{one.digits}f}" if one.metric in values else "–" for one in columns]
        rows.append([f"*{title}*", "", *cells, ""])
    return markdown_table(head, rows)


def _as_published(group: str) -> list[Contestant]:
    """Contestants of a group in the order of the paper's rows."""
    rows = [row.method for row in quoted_rows("1") if row.group == group]
    members = [contestant for contestant in CONTESTANTS.values() if contestant.group == group]
    return sorted(members, key=lambda contestant: rows.index(contestant.quoted) if contestant.quoted else -1)


def _difference_table(results: dict[str, Any], mode: str) -> str:
    columns = {one.metric: one for one in (*COLUMNS, LOSS_COLUMN)}
    head = ["", "compared to", *(columns[metric].title for metric in COMPARED)]
    rows = []
    for name, contestant in CONTESTANTS.items():
        if contestant.reference is None or not results["contestants"][name]["asked"]:
            continue
        cells = [
            shown_difference(
                _difference_from(results["differences"][mode][metric][name]), max(columns[metric].digits, 2)
            )
            for metric in COMPARED
        ]
        rows.append([results["contestants"][name]["title"], CONTESTANTS[contestant.reference].name, *cells])
    return markdown_table(head, rows)


def _described(contestant: Contestant, asked: bool) -> dict[str, Any]:
    """A contestant for the results; titles are unique, so the group is part of those that occur twice."""
    alike = [other for other in CONTESTANTS.values() if other.title == contestant.title]
    suffix = ", relative" if len(alike) > 1 and contestant.name.endswith("-relative") else ""
    return {"title": contestant.title + suffix, "group": contestant.group, "asked": asked}


def _values(records: Mapping[str, Record], name: str, mode: str, metric: str) -> dict[int, np.ndarray]:
    """Values (videos,) of a contestant by seed; of the loss a single one."""
    found = {}
    for key, record in records.items():
        contestant, _, seed = key.partition("/seed-")
        if contestant != name:
            continue
        if metric == LOSS:
            if LOSSES[mode] in record.facts["validation"]:
                found[int(seed)] = np.array([record.facts["validation"][LOSSES[mode]]])
        elif f"{mode}/{metric}" in record.tensors:
            found[int(seed)] = record.tensors[f"{mode}/{metric}"].numpy()
    return found


def _spread(values: dict[int, np.ndarray]) -> dict[str, Any] | None:
    """Mean and spread over the videos that could be measured with every seed, and how many these are."""
    if not values:
        return None
    stacked = np.stack(list(values.values()))
    measured = np.isfinite(stacked).all(0)
    return {**asdict(spread(stacked[:, measured])), "videos": int(measured.sum())} if measured.any() else None


def _difference(values: dict[int, np.ndarray], reference: dict[int, np.ndarray]) -> dict[str, Any] | None:
    """Difference on the seeds that both have and the videos that could be measured of both."""
    seeds = sorted(values.keys() & reference.keys())
    if not seeds:
        return None
    first, second = (np.stack([found[seed] for seed in seeds]) for found in (values, reference))
    measured = np.isfinite(first).all(0) & np.isfinite(second).all(0)
    if not measured.any():
        return None
    found = paired_difference(first[:, measured], second[:, measured], more_is_better=False)
    return {**asdict(found), "verdict": found.verdict}


def _spread_from(plain: dict[str, Any] | None) -> Spread | None:
    return None if plain is None else Spread(**{key: plain[key] for key in plain if key != "videos"})


def _difference_from(plain: dict[str, Any] | None) -> Difference | None:
    return None if plain is None else Difference(**{key: plain[key] for key in plain if key != "verdict"})


def _scaled(plain: dict[str, Any] | None, unit: float | None) -> Spread | None:
    if plain is None or not unit:
        return None
    deviation = plain["deviation"]
    return Spread(plain["mean"] / unit, None if deviation is None else deviation / unit, plain["seeds"])


def _first_record(records: Mapping[str, Record], name: str) -> Record | None:
    found = sorted(key for key in records if key.partition("/seed-")[0] == name)
    return records[found[0]] if found else None


def _one_per_family(families: Sequence[str]) -> list[int]:
    return [families.index(family) for family in dict.fromkeys(families)]


def _parameters(results: dict[str, Any], name: str) -> str:
    facts = [facts for key, facts in results["runs"].items() if key.partition("/seed-")[0] == name and facts]
    return f"{facts[0]['parameters'] / 1e6:.2f}M" if facts else "–"


def _videos(results: dict[str, Any], mode: str, name: str) -> str:
    """Videos that were measured, of how many; the fewest of all metrics."""
    found = [results["errors"][mode][metric][name] for metric in METRICS]
    counts = [plain["videos"] for plain in found if plain is not None]
    return f"{min(counts)}/{results['benchmark']['videos']}" if counts else "–"


def _quoted_cell(value: float | None, column: Column) -> str:
    return "–" if value is None else f"{value:.{2 if column.group == POSE else column.digits}f}"
