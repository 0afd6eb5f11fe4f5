"""Tables and figures of the generation benchmark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ucpe.bench.figures import curve_plot, image_grid
from ucpe.bench.pair_model import RELATIVE
from ucpe.bench.runs import Machine, Task
from ucpe.bench.statistics import Difference, Spread, difference_of, spread_of
from ucpe.bench.tables import NOT_RUN, markdown_table, not_run, shown_difference, shown_spread
from ucpe.evaluation.camera_metrics import wrapped
from ucpe.evaluation.report.quoted import quoted_rows
from ucpe.work import Record

if TYPE_CHECKING:
    from ucpe.bench.generation import Benchmark

REFERENCE, FROZEN_REFERENCE = "ucpe", "ucpe-lat-up"
"""Contestants that the others are compared to, from scratch and on a frozen base."""

METRICS = {"yaw": "Yaw (°)", "travel": "Travel", "pitch": "Pitch (°)", "roll": "Roll (°)"}
"""Errors by name: yaw and travel by geometry, pitch and roll of the last frame by the desk calibrator."""

MOVES = 0.3
"""Travel in near-plane depths above which its direction is judged."""

TURNS = 10.0
"""Degrees above which the sign of a turn is judged."""

MODES = {"first-frame": "First frame given", "text": "From text alone"}

_OFF, _ON = "w/o absolute orientation control", "w/ absolute orientation control"
_CUT = f"{_ON}, ablation"
PAPER_ROWS = {
    "ucpe-lat-up": (_ON, "UCPE"),
    "recammaster": (_ON, "ReCamMaster"),
    "cameractrl": (_ON, "Wan CameraCtrl"),
    "prope-lat-up": (_CUT, "PRoPE"),
    "gta-lat-up": (_CUT, "GTA"),
    "ucpe": (_OFF, "UCPE"),
    "recammaster-relative": (_OFF, "ReCamMaster"),
    "cameractrl-relative": (_OFF, "Wan CameraCtrl"),
    "ucpe-pre": (_CUT, "Pre-Attn"),
    "ucpe-post": (_CUT, "Post-Attn"),
    "ucpe-quarter": (_CUT, "1/4-dim (128x3)"),
    "ucpe-eighth": (_CUT, "1/8-dim (192x1)"),
}
"""Rows of the paper's Table 1, by the contestants on a frozen base that are the same method."""

ByMetric = dict[str, float]
"""A number for each of `METRICS`."""


@dataclass(frozen=True)
class Results:
    """Errors by contestant and metric, paired differences to UCPE, and what they are to be seen against."""

    benchmark: Benchmark
    contestants: dict[str, str]
    """Titles by name."""
    checks: list[int]
    """Steps after which videos were measured."""
    runs: dict[str, dict[str, Any] | None]
    machine: Machine
    still: ByMetric = field(default_factory=dict)
    """Errors of a camera that does not move; all that follows is empty until true videos were measured."""
    floors: dict[str, ByMetric] = field(default_factory=dict)
    """Errors on true videos, as they are and through the latents."""
    latents_psnr: float | None = None
    curves: dict[str, dict[str, list[Spread | None]]] = field(default_factory=dict)
    """Errors with a first frame, by metric, contestant and check."""
    final: dict[str, dict[str, dict[str, Spread | None]]] = field(default_factory=dict)
    """Errors at the end by mode, contestant and metric."""
    obedience: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    differences: dict[str, dict[str, dict[str, Difference | None]]] = field(default_factory=dict)


def reference_of(name: str, frozen: bool) -> str:
    """Contestant that another one is compared to: on a frozen base UCPE with Lat-Up, unless neither knows up."""
    return FROZEN_REFERENCE if frozen and name not in RELATIVE else REFERENCE


def assemble(
    benchmark: Benchmark,
    titles: dict[str, str],
    tasks: Mapping[str, Task],
    records: Mapping[str, Record],
    machine: Machine,
) -> Results:
    """The results of the runs that have a record."""
    checks = benchmark.measured_steps
    runs = {name: records[name].facts if name in records else None for name in tasks}
    results = Results(benchmark, titles, checks, runs, machine)
    if "truth" not in records:
        return results
    truth = records["truth"]
    commanded = {metric: truth.tensors[f"commanded/{metric}"].numpy() for metric in METRICS}
    still = {metric: np.zeros_like(commanded[metric]) for metric in METRICS}
    trained: defaultdict[str, dict[int, Record]] = defaultdict(dict)
    for run, task in tasks.items():
        if run in records:
            trained[task.contestant][task.seed] = records[run]
    last = checks[-1]

    def errors(name: str, mode: str, check: int, metric: str) -> dict[int, np.ndarray]:
        found = {seed: _found(record, f"{mode}/{check}") for seed, record in trained[name].items()}
        return {seed: _error(metric, one, commanded) for seed, one in found.items()}

    def obedience(name: str, mode: str) -> dict[str, float]:
        rows = [_obedience(_found(record, f"{mode}/{last}"), commanded) for record in trained[name].values()]
        return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}

    return replace(
        results,
        still={metric: float(_error(metric, still, commanded).mean()) for metric in ("yaw", "travel")},
        floors={
            kind: {metric: float(_error(metric, _found(truth, kind), commanded).mean()) for metric in METRICS}
            for kind in ("true", "latents")
        },
        latents_psnr=truth.facts["latents_psnr"],
        curves={
            metric: {
                name: [spread_of(errors(name, "first-frame", check, metric)) for check in checks] for name in titles
            }
            for metric in METRICS
        },
        final={
            mode: {name: {metric: spread_of(errors(name, mode, last, metric)) for metric in METRICS} for name in titles}
            for mode in MODES
        },
        obedience={mode: {name: obedience(name, mode) for name in titles if trained[name]} for mode in MODES},
        differences={
            mode: {
                name: {
                    metric: difference_of(
                        errors(name, mode, last, metric), errors(reference, mode, last, metric), more_is_better=False
                    )
                    for metric in METRICS
                }
                for name in titles
                if (reference := reference_of(name, bool(benchmark.base))) != name
            }
            for mode in MODES
        },
    )


def markdown(results: Results) -> str:
    """The results as Markdown."""
    benchmark, titles = results.benchmark, results.contestants
    finished = [facts for facts in results.runs.values() if facts is not None]
    hours = sum(facts["processor_seconds"] for facts in finished) / 3600
    frozen = bool(benchmark.base)
    lines = [
        "# Adapters on a frozen base" if frozen else "# Learning to follow a camera from scratch",
        "",
        f"{benchmark.steps} steps of batch 16 on {benchmark.clips} pairs, {benchmark.cameras} held-out cameras; "
        f"{len(finished)} of {len(results.runs)} runs done, {hours:.2f} hours of processor time.",
        "",
    ]
    if not results.floors:
        return "\n".join([*lines, "Nothing was measured yet.", ""])
    lines += [
        "Mean errors, ± standard deviation between seeds. Yaw and travel (in near-plane depths) between the first and "
        "the last frame by geometry; pitch and roll of the last frame by the desk calibrator.",
        "",
    ]
    known = {"Trained": _trained(results), "RotErr / TransErr in the paper": _quoted()} if frozen else {}
    for mode, title in MODES.items():
        rows = []
        for name, text in titles.items():
            final, obeys = results.final[mode][name], results.obedience[mode].get(name)
            row = [text, *(shown_spread(final[metric]) for metric in METRICS)]
            shown = ("turn_correlation", "turn_sign", "travel_direction")
            row += [NOT_RUN if obeys is None else f"{obeys[key]:.2f}" for key in shown]
            rows.append(row + [column.get(name, "") for column in known.values()])
        for kind, text in (("latents", "*true videos through the latents*"), ("true", "*true videos*")):
            rows.append([text, *(f"{results.floors[kind][metric]:.2f}" for metric in METRICS)])
        still = [f"{results.still[metric]:.2f}" if metric in results.still else "" for metric in METRICS]
        rows.append(["*a camera that stands still*", *still])
        head = ["", *METRICS.values(), "Turn correlation", "Turn sign right", "Travel direction right", *known]
        rows = [row + [""] * (len(head) - len(row)) for row in rows]
        lines += [f"## {title}", "", markdown_table(head, rows)]
    curves = results.curves["yaw"]
    rows = [[titles[name], *(shown_spread(value, 1) for value in curves[name])] for name in titles]
    lines += ["## Yaw error by step, first frame given", ""]
    lines += [markdown_table(["", *(f"{check} steps" for check in results.checks)], rows)]
    reference = FROZEN_REFERENCE if frozen else REFERENCE
    lines += [
        f"## Difference to {titles.get(reference, reference)}",
        "",
        "Mean of the paired differences (same seed, same camera) with a 95 % interval for new seeds and cameras; "
        "better or worse only where the interval leaves out zero.",
        "",
    ]
    for mode, title in MODES.items():
        rows = [
            [titles[name], *(shown_difference(part[metric]) for metric in METRICS)]
            for name, part in results.differences[mode].items()
        ]
        lines += [f"{title}:", "", markdown_table(["", *METRICS.values()], rows)]
    return "\n".join(lines + not_run(results.runs))


def _trained(results: Results) -> dict[str, str]:
    """Number of trained parameters of every contestant that was run."""
    facts = {run.rpartition("-seed-")[0]: facts for run, facts in results.runs.items() if facts is not None}
    return {name: f"{facts[name.replace(':', '.')]['parameters'] / 1e6:.2f}M" for name in results.contestants
            if name.replace(":", ".") in facts}  # fmt: skip


def _quoted() -> dict[str, str]:
    """The paper's own errors of pose for each of its rows, which other estimators measured on other videos."""
    rows = {(row.group, row.method): row.metrics for row in quoted_rows("1")}
    found = {name: rows[key] for name, key in PAPER_ROWS.items()}
    return {name: f"{metrics['RotErr']:g} / {metrics['TransErr']:g}" for name, metrics in found.items()}


def draw(results: Results, records: Mapping[str, Record], output: Path) -> None:
    """Write curves.png and, of the first seed, views.png."""
    if not results.curves:
        return
    draw_curves(output / "curves.png", results)
    shown = {name: records.get(f"{name.replace(':', '.')}-seed-0") for name in results.contestants}
    pictures = {name: record.tensors["first-frame/pictures"].numpy() for name, record in shown.items() if record}
    true = records["truth"].tensors["pictures"].numpy()
    columns = ["first frame", "true last frame", *(results.contestants[name] for name in pictures)]
    rows = {
        str(index + 1): [true[index, 0], true[index, 1], *(found[index, 1] for found in pictures.values())]
        for index in range(len(true))
    }
    image_grid(output / "views.png", columns, rows)


def draw_curves(path: Path, results: Results) -> None:
    """Write a PNG of yaw and travel error by step, with the still camera and the floor."""
    units = {"yaw": "yaw error (degrees)", "travel": "travel error (near-plane depths)"}
    panels, levels = {}, {}
    for metric, label in units.items():
        panels[label] = {
            title: [
                (step, value.mean, value.deviation or 0)
                for step, value in zip(results.checks, results.curves[metric][name])
                if value is not None
            ]
            for name, title in results.contestants.items()
        }
        levels[label] = {"still camera": results.still[metric], "floor": results.floors["latents"][metric]}
    curve_plot(path, panels, levels)


def _found(record: Record, prefix: str) -> dict[str, np.ndarray]:
    return {metric: record.tensors[f"{prefix}/{metric}"].numpy() for metric in METRICS}


def _error(metric: str, found: Mapping[str, np.ndarray], commanded: Mapping[str, np.ndarray]) -> np.ndarray:
    """Error (cameras,) of one metric."""
    difference = found[metric] - commanded[metric]
    if metric == "travel":
        return np.linalg.norm(difference, axis=-1)
    return np.abs(wrapped(difference))


def _obedience(found: Mapping[str, np.ndarray], commanded: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Correlation of turns, share of turns to the right side, share of travels within 90 degrees of the command."""
    yaw, wanted = found["yaw"], commanded["yaw"]
    turning = np.abs(wanted) > TURNS
    moving = np.linalg.norm(commanded["travel"], axis=-1) > MOVES
    along = (found["travel"] * commanded["travel"]).sum(-1)[moving]
    constant = len(yaw) < 2 or np.ptp(yaw) == 0
    return {
        "turn_correlation": 0.0 if constant else float(np.corrcoef(yaw, wanted)[0, 1]),
        "turn_sign": float((np.sign(yaw[turning]) == np.sign(wanted[turning])).mean()) if turning.any() else np.nan,
        "travel_direction": float((along > 0).mean()) if moving.any() else np.nan,
    }
