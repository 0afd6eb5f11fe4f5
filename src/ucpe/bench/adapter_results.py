"""Results of the adapter benchmark: numbers by contestant, tables in the layout of the paper's Table 1, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ucpe.bench.adapter_contestants import CONTESTANTS, GROUPS, Contestant, find_contestants
from ucpe.bench.figures import dot_plot, image_grid
from ucpe.bench.generated_videos import METRICS, MODES
from ucpe.bench.runs import Machine
from ucpe.bench.statistics import Difference, Spread, difference_of, spread_of
from ucpe.bench.tables import markdown_table, not_run, shown_difference, shown_spread
from ucpe.evaluation.report.quoted import RADIANS_NOTE, quoted_rows
from ucpe.evaluation.report.tables import COLUMNS, POSE, Column
from ucpe.work import Record

if TYPE_CHECKING:
    from ucpe.bench.adapters import Benchmark

FORMAT = "ucpe-bench-adapters-1"
"""Name and version of records and results; a change of anything that changes a number changes it."""

LOSS = "HighNoiseLoss"
"""Validation loss at high noise; in the mode with a given first frame, of clips with theirs given."""

LOSSES = {"text": "high-noise", "first-frame": "first-frame"}
"""Validation number of each mode."""

LOSS_COLUMN = Column(LOSS, "Loss, t ≥ 0.8", "Loss", "Validation", 4)

COMPARED = ("XFoVErr", "PitchErr", "RollErr", "RotErr", "TransErr", LOSS)
"""Metrics of the tables of differences."""

DRAWN = {"PitchErr": "pitch", "RollErr": "roll", "XFoVErr": "xFoV", "RotErr": "rotation", "TransErr": "translation"}
"""Metrics of the picture, and what they are called there."""

TABLE = ("FVD", "FID", "CLIP", "K1Err", "K2Err")
"""Columns of the paper's table that only its own rows have."""


@dataclass(frozen=True)
class Base:
    """The model that all contestants are attached to, with the last numbers of its training."""

    kind: Literal["bundled", "given"]
    trained_with_an_adapter: bool = False
    steps: int = 0
    learning_rate: float | None = None
    loss: float | None = None
    validation: dict[str, float] = field(default_factory=dict)
    training_seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """Errors, and differences to the reference, by mode, metric and contestant; None where nothing was measured."""

    benchmark: Benchmark
    errors: dict[str, dict[str, dict[str, Spread | None]]]
    differences: dict[str, dict[str, dict[str, Difference | None]]]
    runs: dict[str, dict[str, Any] | None]
    base: Base = Base("given")
    constant: dict[str, float] = field(default_factory=dict)
    """Mean errors of the best constant answer."""
    families: list[str] = field(default_factory=list)
    """Lens family of each held-out camera."""
    floors: dict[str, float] = field(default_factory=dict)
    """The estimators' own errors on true videos."""
    clips: int = 0
    """Clips trained on."""
    machine: Machine | None = None
    unfinished: str = ""
    """Where the work stopped for want of time."""

    @property
    def contestants(self) -> list[Contestant]:
        """Who was asked for."""
        return find_contestants(self.benchmark.contestants)

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the contestants described."""
        asked = {contestant.name for contestant in self.contestants}
        described = {
            name: {"title": one.unique_title, "group": one.group, "asked": name in asked}
            for name, one in CONTESTANTS.items()
        }
        return {"format": FORMAT, **asdict(self), "contestants": described}


def assemble(benchmark: Benchmark, records: Mapping[str, Record], **about: Any) -> Results:
    """The results of finished runs, whose records are given by name, and what is known about them."""
    errors: dict[str, dict[str, dict[str, Spread | None]]] = {mode: {} for mode in MODES}
    differences: dict[str, dict[str, dict[str, Difference | None]]] = {mode: {} for mode in MODES}
    for mode in MODES:
        for metric in (*METRICS, LOSS):
            values = {name: _values(records, name, mode, metric) for name in CONTESTANTS}
            errors[mode][metric] = {name: spread_of(values[name]) for name in CONTESTANTS}
            differences[mode][metric] = {
                name: difference_of(values[name], values[contestant.reference], more_is_better=False)
                for name, contestant in CONTESTANTS.items()
                if contestant.reference is not None
            }
    asked = find_contestants(benchmark.contestants)
    names = [f"{contestant.name}/seed-{seed}" for seed in range(benchmark.seeds) for contestant in asked]
    runs = {name: records[name].facts if name in records else None for name in names}
    return Results(benchmark, errors, differences, runs, **about)


def markdown(results: Results) -> str:
    """The results as Markdown tables."""
    benchmark = results.benchmark
    finished = [facts for facts in results.runs.values() if facts is not None]
    hours = sum(facts.get("training_seconds", 0) for facts in finished) / 3600
    rate = benchmark.learning_rate
    rates = "each with the learning rate of its recipe" if rate is None else f"learning rate {rate:g}"
    lines = [
        "# Controlled generation by camera adapter",
        "",
        f"{about_base(results.base)} Each contestant: {benchmark.steps} steps on it, {rates}, {benchmark.seeds} "
        f"seed(s), {results.clips} clips; {benchmark.videos} held-out cameras. {len(finished)} of {len(results.runs)} "
        f"runs done, {hours:.2f} hours of training by the clock, each on one core of "
        f"{results.machine.processor if results.machine else 'an unnamed machine'}.",
        "",
    ]
    for mode, title in MODES.items():
        lines += [f"## Videos {title}", "", _table(results, mode)]
    lines += NOTES
    for mode, title in MODES.items():
        lines += [f"## Differences, {title}", "", _difference_table(results, mode)]
    lines += [
        "Mean of the paired differences (same seed, cameras and noise) to UCPE, or without orientation to UCPE without "
        "it, with a 95 % interval for new seeds and cameras on this base; of the loss, for new seeds. Better or worse "
        "only where the interval leaves out zero; each comparison stands for itself.",
        "",
    ]
    return "\n".join(lines + not_run(results.runs, f" Stopped: {results.unfinished}." if results.unfinished else ""))


def about_base(base: Base) -> str:
    """A sentence on the base."""
    if base.kind == "given":
        together = " It was trained together with an adapter, which favours adapters of that kind."
        return "The base was given." + together * base.trained_with_an_adapter
    loss = base.validation.get("high-noise", float("nan"))
    return f"The base, bundled: {base.steps} steps without any camera, loss at high noise {loss:.4f}."


NOTES = [
    "- Mean ± standard deviation between seeds; errors against the commanded camera by the desk estimators, pose "
    "protocol `robust`: means over frames, RotErr in degrees, TransErr in near-plane depths.",
    "- Floor: the estimators' own error on true videos. Constant guess: the same answer for every video, median "
    "pitch, roll and lens, and no motion.",
    "- Rows marked (quoted) are the paper's, measured by its authors on a 1.3 B model with other estimators, other "
    "videos and another protocol: compare orders, not numbers. " + RADIANS_NOTE,
    "- The base stays frozen under UCPE, PRoPE and GTA; ReCamMaster also trains its self-attention, CameraCtrl all of "
    "it.",
    "- FVD, FID, CLIP, k1 and k2 are not measured here.",
    "",
]
"""What a reader must know about the tables."""


def draw(results: Results, records: Mapping[str, Record], truth: Sequence[np.ndarray], output: Path) -> None:
    """Write errors.png, errors as shares of the constant guess, and views.png, last frames of one camera per family."""
    titles = {contestant.name: contestant.unique_title for contestant in results.contestants}
    panels = {
        title: {
            own: {
                text: _scaled(results.errors[mode][metric][name], results.constant.get(metric))
                for metric, text in DRAWN.items()
            }
            for name, own in titles.items()
        }
        for mode, title in MODES.items()
    }
    dot_plot(output / "errors.png", panels, "error as a share of the constant guess")
    found = {name: next(iter(_by_seed(records, name).values()), None) for name in titles}
    if not truth or not any(found.values()):
        return
    rows: dict[str, list[np.ndarray | None]] = {}
    for mode in results.benchmark.modes:
        for index in _one_per_family(results.families[: len(truth)]):
            pictures = [
                None if record is None else record.tensors[f"{mode}/pictures"][index].numpy()
                for record in found.values()
            ]
            rows[f"{results.families[index]}\n{mode.replace('-', ' ')}"] = [truth[index], *pictures]
    image_grid(output / "views.png", ["truth", *titles.values()], rows)


def _table(results: Results, mode: str) -> str:
    measured, errors = {*METRICS, LOSS}, results.errors[mode]
    columns = [column for column in COLUMNS if column.metric in (*METRICS, *TABLE)] + [LOSS_COLUMN]
    head = ["Method", "Params", *(one.heading for one in columns), "Videos"]
    rows = []
    for group in GROUPS:
        rows.append([f"*{group}*"] + [""] * (len(head) - 1))
        for contestant in _as_published(group):
            name = contestant.name
            known = {one for one in measured if errors[one][name] is not None}
            empty = measured - known if known else set()  # run, but of no camera here, as the speed of one that stands
            cells = [
                shown_spread(errors[one.metric][name], one.digits) if one.metric in measured - empty else "–"
                for one in columns
            ]
            rows.append([contestant.title, _parameters(results, name), *cells, _videos(results, mode, name)])
            quoted = contestant.quotation()
            if quoted is not None:
                cells = [_quoted_cell(quoted.metrics.get(one.metric), one) for one in columns]
                rows.append([f"{quoted.method} (quoted)", quoted.parameters or "", *cells, ""])
    for title, values in (("floor", results.floors), ("constant guess", results.constant)):
        cells = [f"{values[one.metric]:.{one.digits}f}" if one.metric in values else "–" for one in columns]
        rows.append([f"*{title}*", "", *cells, ""])
    return markdown_table(head, rows)


def _as_published(group: str) -> list[Contestant]:
    """Contestants of a group in the order of the paper's rows."""
    rows = [row.method for row in quoted_rows("1") if row.group == group]
    members = [contestant for contestant in CONTESTANTS.values() if contestant.group == group]
    return sorted(members, key=lambda contestant: rows.index(contestant.quoted) if contestant.quoted else -1)


def _difference_table(results: Results, mode: str) -> str:
    columns = {one.metric: one for one in (*COLUMNS, LOSS_COLUMN)}
    head = ["", "compared to", *(columns[metric].title for metric in COMPARED)]
    rows = []
    for contestant in results.contestants:
        if contestant.reference is None:
            continue
        found = {metric: results.differences[mode][metric][contestant.name] for metric in COMPARED}
        cells = [shown_difference(value, max(columns[metric].digits, 2)) for metric, value in found.items()]
        rows.append([contestant.unique_title, contestant.reference, *cells])
    return markdown_table(head, rows)


def _values(records: Mapping[str, Record], name: str, mode: str, metric: str) -> dict[int, np.ndarray]:
    """Values (videos,) of a contestant by seed; of the loss a single one."""
    found = {}
    for seed, record in _by_seed(records, name).items():
        if metric == LOSS:
            if LOSSES[mode] in record.facts["validation"]:
                found[seed] = np.array([record.facts["validation"][LOSSES[mode]]])
        elif f"{mode}/{metric}" in record.tensors:
            values = record.tensors[f"{mode}/{metric}"].numpy()
            if np.isfinite(values).any():
                found[seed] = values
    return found


def _by_seed(runs: Mapping[str, Any], name: str) -> dict[int, Any]:
    """What belongs to the runs of a contestant."""
    named = ((key.partition("/seed-"), found) for key, found in runs.items())
    return {int(seed): found for (contestant, _, seed), found in named if contestant == name}


def _scaled(value: Spread | None, unit: float | None) -> Spread | None:
    if value is None or not unit:
        return None
    deviation = None if value.deviation is None else value.deviation / unit
    return replace(value, mean=value.mean / unit, deviation=deviation)


def _one_per_family(families: Sequence[str]) -> list[int]:
    return [families.index(family) for family in dict.fromkeys(families)]


def _parameters(results: Results, name: str) -> str:
    facts = [facts for facts in _by_seed(results.runs, name).values() if facts]
    return f"{facts[0]['parameters'] / 1e6:.2f}M" if facts else "–"


def _videos(results: Results, mode: str, name: str) -> str:
    """Videos that were measured, of how many; the fewest of all metrics."""
    counts = [found.clips for metric in METRICS if (found := results.errors[mode][metric][name]) is not None]
    return f"{min(counts)}/{results.benchmark.videos}" if counts else "–"


def _quoted_cell(value: float | None, column: Column) -> str:
    return "–" if value is None else f"{value:.{2 if column.group == POSE else column.digits}f}"
