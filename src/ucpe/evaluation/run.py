"""Evaluates many videos: in parallel, resumable per video, with every failure counted."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Calibrator, PoseEstimator
from ucpe.evaluation.inputs import Job
from ucpe.evaluation.protocols import PROTOCOLS, find_protocol
from ucpe.evaluation.records import Measuring, measure, record_key, unmeasured
from ucpe.evaluation.results import FORMAT, Counts, Failure, Floor, Results, Summaries
from ucpe.evaluation.statistics import summarise
from ucpe.files import write_json
from ucpe.reading import read_json_object
from ucpe.work import Item, JsonParts, Quarantine, Stage, folder_lock, run
from ucpe.work.progress import ProgressBar

EARLY = 0.9
"""Share of its path's duration below which a video is reported as ending early."""

BOOKKEEPING = ("speed",)
"""Numbers in a record that are no errors; they are averaged but have no worst case."""

NEEDS_UNITS = ("speed", "SpeedErr")
"""Numbers that only some estimators give; they have no worst case unless some video has them."""


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured, and how it is summed up."""

    pose: EstimatorChoice | None = field(default_factory=lambda: EstimatorChoice("colmap"))
    calibrator: EstimatorChoice | None = None
    protocol: str = "robust"
    """Which protocol's numbers are the headline; all are measured and stored."""
    measuring: Measuring = field(default_factory=Measuring)
    seed: int = 0
    """Of the bootstrap; each estimator has its own, stored with it."""
    label: str = "this run"
    """Name of the method in tables."""


def evaluate(
    jobs: Sequence[Job],
    output: str | Path,
    settings: EvaluationSettings | None = None,
    quality: Callable[[], dict[str, Any]] | None = None,
    progress: ProgressBar | None = None,
    notes: Sequence[str] = (),
    *,
    workers: int | None = None,
    engine: str = "local",
    retry_failed: bool = False,
) -> Results:
    """Measure all videos and write `results.json` to `output`; what an earlier run with the same settings did is kept.

    `quality` computes dataset-level metrics to store beside (see `ucpe.evaluation.quality`), after the videos are
    measured. `notes` are what a reader must know about the input. Returns the results.
    """
    settings, output = settings or EvaluationSettings(), Path(output)
    find_protocol(settings.protocol)
    if not jobs:
        raise ValueError("no videos to evaluate")
    repeated = [name for name, count in Counter(job.name for job in jobs).items() if count > 1]
    if repeated:
        raise ValueError(f"videos need different names; several are called {repeated[0]!r}")
    pose, calibrator = _estimators(settings)
    keys = [record_key(job, pose, calibrator, settings.measuring) for job in jobs]
    records: dict[str, dict[str, Any]] = {}
    with folder_lock(output):
        for done in run(
            Measurement(settings, output / "records"),
            [Item(job.name, job, key) for job, key in zip(jobs, keys)],
            workers=workers,
            engine=engine,
            quarantine=Quarantine(output),
            retry_failed=retry_failed,
            progress=None,
        ):
            records[done.item.id] = done.part
            if progress is not None:
                progress(Measurement.name, len(records), len(jobs), pace(records.values()))
            if done.reason:
                asked = (pose, calibrator, settings.measuring)
                records[done.item.id] = unmeasured(done.item.task, "failed", done.reason, *asked)
    metrics = {} if quality is None else quality()
    results = assemble([records[job.name] for job in jobs], settings, pose, calibrator, metrics, notes)
    write_json(output / "results.json", results.to_json())
    return results


def pace(records: Iterable[dict[str, Any] | None]) -> str:
    """Seconds a video that each part has taken so far, in words: "pose 24.1 s, calibration 3.0 s each"."""
    taken: dict[str, list[float]] = {}
    for record in records:
        for part, seconds in ((record or {}).get("seconds") or {}).items():
            if part != "total":
                taken.setdefault(part, []).append(seconds)
    each = ", ".join(f"{part} {np.mean(seconds):.1f} s" for part, seconds in taken.items())
    return f"{each} each" if each else ""


class Measurement(Stage):
    """Measures a video; the estimators are loaded once in every worker."""

    name = "videos"

    def __init__(self, settings: EvaluationSettings, folder: Path):
        self.settings, self.parts = settings, JsonParts(folder)

    def setup(self) -> None:
        """Load the estimators."""
        _estimators(self.settings)

    def process(self, job: Job) -> dict[str, Any]:
        """Measure one video."""
        return _measure_one(job, self.settings)


def assemble(
    records: Sequence[dict[str, Any]],
    settings: EvaluationSettings,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    quality: dict[str, dict[str, Any]] | None = None,
    notes: Sequence[str] = (),
) -> Results:
    """Results of a run from the records of its videos."""
    families = sorted({record["family"] for record in records})
    return Results(
        label=settings.label,
        versions=versions(),
        protocol=settings.protocol,
        protocols={name: asdict(protocol) for name, protocol in PROTOCOLS.items()},
        seed=settings.seed,
        measuring=asdict(settings.measuring),
        estimators={
            "pose": None if pose is None else pose.describe(),
            "calibrator": None if calibrator is None else calibrator.describe(),
        },
        floors=floors(records, settings, pose, calibrator),
        counts=counts(records),
        failures=failures(records),
        notes=[*notes, *remarks(records)],
        summary=summaries(records, settings),
        families={
            family: summaries([record for record in records if record["family"] == family], settings)
            for family in families
        },
        quality=quality or {},
        videos=[without_estimates(record) for record in records],
    )


def summaries(records: Sequence[dict[str, Any]], settings: EvaluationSettings) -> Summaries:
    """Summary of every metric: `pose` of the headline protocol, `commanded` and `reference` calibration."""
    parts = {
        "pose": _metric_values(records, "pose", lambda part: part["metrics"][settings.protocol], settings.protocol),
        "reference_pose": _metric_values(
            records,
            "pose",
            lambda part: part.get("against_reference", {}).get(settings.protocol, {}),
            settings.protocol,
        ),
        "consistency": _metric_values(records, "consistency", lambda part: part["metrics"]),
        "commanded": _metric_values(records, "calibration", lambda part: part["metrics"]),
        "reference": _metric_values(records, "calibration", lambda part: part.get("against_reference", {})),
    }
    return {
        part: {
            name: summary
            for name, (values, worst) in metrics.items()
            if (summary := summarise(values, () if name in BOOKKEEPING else worst, settings.seed)) is not None
        }
        for part, metrics in parts.items()
    }


def floors(
    records: Sequence[dict[str, Any]],
    settings: EvaluationSettings,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
) -> dict[str, Floor]:
    """Each estimator's own error: on the reference videos of this run where there are any, else as shipped with it."""
    references = [record["reference"] for record in records if record.get("reference", {}).get("status") == "read"]
    measured = summaries([{"family": "", **reference} for reference in references], settings) if references else None
    result: dict[str, Floor] = {}
    shipped = {
        "pose": None if pose is None else pose.floor(settings.protocol),
        "calibration": None if calibrator is None else calibrator.floor(),
    }
    for (part, own), name in zip(shipped.items(), ("pose", "commanded")):
        if measured and measured[name]:
            metrics = {metric: found.mean for metric, found in measured[name].items() if found.mean is not None}
            result[part] = Floor(f"{len(references)} reference videos", metrics)
        elif own is not None:
            result[part] = Floor("shipped with the estimator", own)
    return result


def counts(records: Sequence[dict[str, Any]]) -> dict[str, Counts]:
    """How many videos were attempted, measured, filtered and failed, for each estimator."""
    result = {}
    for part in ("pose", "calibration", "consistency"):
        present = [record[part] for record in records if part in record]
        if present:
            states = Counter(entry["status"] for entry in present)
            poses = present if part == "pose" else []
            result[part] = Counts(
                attempted=len(present),
                measured=states["ok"],
                filtered=states["filtered"],
                failed=states["failed"],
                unreadable=states["unreadable"],
                frames_attempted=sum(entry.get("attempted", 0) for entry in poses),
                frames_registered=sum(entry.get("registered", 0) for entry in poses),
            )
    return result


def failures(records: Sequence[dict[str, Any]]) -> list[Failure]:
    """Every video, or reference video, that something could not be measured of, and why."""
    found = []
    for record in records:
        reference = record.get("reference", {})
        parts: dict[str, dict[str, Any]]
        parts = {name: record[name] for name in ("pose", "calibration", "consistency") if name in record}
        parts = parts or {"video": record}
        parts |= {f"reference {name}": reference[name] for name in ("pose", "calibration") if name in reference}
        parts |= {"reference": reference} if reference else {}
        found += [
            Failure(record["name"], name, part["status"], part["reason"])
            for name, part in parts.items()
            if part["status"] not in ("ok", "read")
        ]
    return found


def remarks(records: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader must know about videos that were measured, but not like the others."""
    found = []
    references = sum(record["has_reference"] for record in records)
    if 0 < references < len(records):
        found.append(f"Only {references} of {len(records)} videos have a reference video.")
    early = [
        f"{record['name']} after {record['seconds_of_video']:.2f} of {record['seconds_of_path']:.2f} s"
        for record in records
        if record["status"] == "read" and record["seconds_of_video"] < EARLY * record["seconds_of_path"]
    ]
    if early:
        found.append(
            f"{len(early)} of {len(records)} videos end before their paths do, and are compared only up to there: "
            + shortened(early)
            + "."
        )
    for part, what in (("pose", "pose"), ("calibration", "orientation and lens")):
        measured = [record[part] for record in records if record.get(part, {}).get("status") == "ok"]
        rows = [entry["metrics"].get("robust", entry["metrics"]) for entry in measured]
        counts = Counter(name for row in rows for name in row if not name.endswith(("_sum", "_mean")))
        missing = [f"{name} {count}" for name, count in sorted(counts.items()) if count < len(rows)]
        if missing:
            found.append(
                f"Some {what} metrics do not exist for some of the {len(rows)} videos (no commanded translation, or a "
                f"lens that the estimator's model cannot express); videos behind each: {', '.join(missing)}."
            )
    return found


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Names as a list, cut after the first few."""
    rest = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *rest])


def versions() -> dict[str, str]:
    """Versions of what computes the numbers."""
    import ucpe

    found = {"ucpe": ucpe.__version__, "python": platform.python_version(), "torch": torch.__version__}
    found |= {"numpy": np.__version__}
    for package in ("opencv-python-headless", "pycolmap", "av"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def load_results(path: str | Path) -> Results:
    """The results of a run: its folder or its results.json."""
    path = Path(path)
    path = path / "results.json" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"no results at {path}; `ucpe evaluate` writes them")
    content = read_json_object(path)
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: not written by this version of `ucpe evaluate` (expected format {FORMAT})")
    try:
        return Results.from_json(content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not whole results of `ucpe evaluate` ({error!r})") from None


def load_record(output: str | Path, name: str) -> dict[str, Any]:
    """Everything measured of one video, estimates included."""
    return json.loads(JsonParts(Path(output) / "records").file(Item(name)).read_text(encoding="utf-8"))["part"]


def without_estimates(record: dict[str, Any]) -> dict[str, Any]:
    """A record without estimates (they stay in its own file) and times (they differ between runs)."""
    kept = {name: value for name, value in record.items() if name != "seconds"}
    for part in ("pose", "calibration"):
        if part in kept:
            kept[part] = {name: value for name, value in kept[part].items() if name != "estimate"}
    return kept


def _metric_values(
    records: Sequence[dict[str, Any]], part: str, metrics_of: Callable[[Any], dict[str, float]], protocol: str = ""
) -> dict[str, tuple[list[float], list[float]]]:
    """For every metric the measured values, and the uninformed values of the videos that failed."""
    entries = [record[part] for record in records if part in record]
    measured = [metrics_of(entry) for entry in entries if entry["status"] == "ok"]
    uninformed = [entry["uninformed"] for entry in entries if entry["status"] != "ok"]
    uninformed = [entry[protocol] if protocol else entry for entry in uninformed]
    names = sorted({name for row in measured or uninformed for name in row})
    names = names if measured else [name for name in names if name not in NEEDS_UNITS]
    return {
        name: (
            [row[name] for row in measured if name in row],
            [row[name] for row in uninformed if name in row],
        )
        for name in names
    }


def _measure_one(job: Job, settings: EvaluationSettings) -> dict[str, Any]:
    return measure(job, *_estimators(settings), settings.measuring)


def _estimators(settings: EvaluationSettings) -> tuple[PoseEstimator | None, Calibrator | None]:
    return _cached_estimators(settings.pose, settings.calibrator)


@cache
def _cached_estimators(
    pose: EstimatorChoice | None, calibrator: EstimatorChoice | None
) -> tuple[PoseEstimator | None, Calibrator | None]:
    return (
        None if pose is None else pose.pose_estimator(),
        None if calibrator is None else calibrator.calibrator(),
    )
