"""Evaluates many videos: in parallel, resumable per video, with every failure counted."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack

from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Calibrator, PoseEstimator
from ucpe.evaluation.inputs import Job
from ucpe.evaluation.protocols import PROTOCOLS, find_protocol
from ucpe.evaluation.records import Measuring, measure, record_key, unmeasured
from ucpe.evaluation.results import (
    FORMAT,
    PARTS,
    Counts,
    Failure,
    Floor,
    Measured,
    Outcome,
    Part,
    QualityScore,
    Results,
    Summaries,
    VideoRecord,
)
from ucpe.evaluation.statistics import summarise
from ucpe.files import write_json
from ucpe.reading import read_json_object
from ucpe.work import Item, JsonParts, Quarantine, Stage, WorkArguments, folder_lock, run

EARLY = 0.9
"""Share of its path's duration below which a video is reported as ending early."""

BOOKKEEPING = ("speed",)
"""Numbers in a record that are not errors; they are averaged but have no worst case."""

NEEDS_UNITS = ("speed", "SpeedErr")
"""Numbers that only some estimators give; they have no worst case unless some video has them."""


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured, and how it is summed up."""

    pose: EstimatorChoice | None = field(default_factory=lambda: EstimatorChoice("colmap"))
    calibrator: EstimatorChoice | None = None
    protocol: str = "robust"
    """Name of the protocol whose numbers are the headline; all protocols are computed and stored."""
    trusted_references: float = 1.0
    """Share of the reference videos to compare poses with: those that follow the command best (CamMC)."""
    measuring: Measuring = field(default_factory=Measuring)
    seed: int = 0
    """Seed of the bootstrap; each estimator has its own, stored with it."""
    label: str = "this run"
    """Name of the method in tables."""

    def __post_init__(self) -> None:
        if not 0 < self.trusted_references <= 1:
            raise ValueError(
                f"the share of reference videos to trust must be above 0 and at most 1, got {self.trusted_references:g}"
            )


def evaluate(
    jobs: Sequence[Job],
    output: str | Path,
    settings: EvaluationSettings | None = None,
    quality: Callable[[], dict[str, QualityScore]] | None = None,
    notes: Sequence[str] = (),
    **work: Unpack[WorkArguments],
) -> Results:
    """Measure all videos, write `results.json` to `output` and return the results.

    What an earlier run with the same settings measured is kept. `quality` computes metrics of all videos together (see
    `ucpe.evaluation.quality`) once they are measured. `notes` are what a reader must know about the input.
    """
    settings, output = settings or EvaluationSettings(), Path(output)
    find_protocol(settings.protocol)
    if not jobs:
        raise ValueError("no videos to evaluate")
    repeated = [name for name, count in Counter(job.name for job in jobs).items() if count > 1]
    if repeated:
        raise ValueError(f"videos need different names; several are called {repeated[0]!r}")
    pose, calibrator = _estimators(settings.pose, settings.calibrator)
    progress = work.pop("progress", None)
    keys = [record_key(job, pose, calibrator, settings.measuring) for job in jobs]
    records: dict[str, VideoRecord] = {}
    with folder_lock(output):
        for done in run(
            Measurement(settings, output / "records"),
            [Item(job.name, job, key) for job, key in zip(jobs, keys)],
            quarantine=Quarantine(output),
            **work,
        ):
            if done.reason:
                asked = (pose, calibrator, settings.measuring)
                records[done.item.id] = unmeasured(done.item.task, "failed", done.reason, *asked)
            else:
                records[done.item.id] = VideoRecord.from_json(done.part)
            if progress is not None:
                progress(Measurement.name, len(records), len(jobs), pace(records.values()))
    metrics = {} if quality is None else quality()
    results = assemble([records[job.name] for job in jobs], settings, pose, calibrator, metrics, notes)
    write_json(output / "results.json", results.to_json())
    return results


def pace(records: Iterable[VideoRecord]) -> str:
    """Mean seconds per video that each part has taken so far, in words: "pose 24.1 s, calibration 3.0 s each"."""
    taken: dict[str, list[float]] = {}
    for record in records:
        for part, seconds in (record.seconds or {}).items():
            if part != "total":
                taken.setdefault(part, []).append(seconds)
    each = ", ".join(f"{part} {np.mean(seconds):.1f} s" for part, seconds in taken.items())
    return f"{each} each" if each else ""


def without_doubted(records: Sequence[VideoRecord], trusted: float) -> tuple[list[VideoRecord], list[str]]:
    """Records without comparisons to reference poses that follow the command badly themselves, and a note about it.

    As in the authors' script, CamMC of protocol `released` decides, and the number of trusted videos is rounded down.
    """
    if trusted == 1:
        return list(records), []
    poses = {record.name: record.reference.pose for record in records if record.reference is not None}
    errors = {name: part.metrics["released"]["CamMC"] for name, part in poses.items() if part and part.metrics}
    doubted = sorted(errors, key=lambda name: errors[name])[int(len(errors) * trusted) :]
    kept = [
        replace(record, pose=replace(record.pose, against_reference=None))
        if record.name in doubted and record.pose
        else record
        for record in records
    ]
    note = f"Poses are compared with {len(errors) - len(doubted)} of {len(errors)} reference videos, those that follow "
    return kept, [f"{note}the command best (CamMC; --trusted-references {trusted:g})."]


class Measurement(Stage):
    """Measures a video; the estimators are loaded once in every worker."""

    name = "videos"

    def __init__(self, settings: EvaluationSettings, folder: Path):
        self.settings, self.parts = settings, JsonParts(folder)

    def setup(self) -> None:
        """Load the estimators."""
        _estimators(self.settings.pose, self.settings.calibrator)

    def process(self, job: Job) -> dict[str, Any]:
        """Measure one video."""
        estimators = _estimators(self.settings.pose, self.settings.calibrator)
        return measure(job, *estimators, self.settings.measuring).to_json()


def assemble(
    records: Sequence[VideoRecord],
    settings: EvaluationSettings,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
    quality: dict[str, QualityScore] | None = None,
    notes: Sequence[str] = (),
) -> Results:
    """Results of a run from the records of its videos."""
    records, trust = without_doubted(records, settings.trusted_references)
    families = sorted({record.family for record in records})
    return Results(
        label=settings.label,
        versions=versions(),
        protocol=settings.protocol,
        protocols={name: asdict(protocol) for name, protocol in PROTOCOLS.items()},
        seed=settings.seed,
        measuring=asdict(settings.measuring) | ({"trusted_references": settings.trusted_references} if trust else {}),
        estimators={
            "pose": None if pose is None else pose.describe(),
            "calibrator": None if calibrator is None else calibrator.describe(),
        },
        floors=floors(records, settings, pose, calibrator),
        counts=counts(records),
        failures=failures(records),
        notes=[*notes, *trust, *remarks(records)],
        summary=summaries(records, settings),
        families={
            family: summaries([record for record in records if record.family == family], settings)
            for family in families
        },
        quality=quality or {},
        videos=[replace(record, seconds=None).without_estimates() for record in records],
    )


def summaries(records: Sequence[Measured], settings: EvaluationSettings) -> Summaries:
    """Summary of every metric by part (see `Summaries`); poses are those of the headline protocol."""

    poses = [record.pose for record in records if record.pose]
    calibrations = [record.calibration for record in records if record.calibration]
    scenes = [record.consistency for record in records if record.consistency]
    parts = {
        "pose": _metric_values(poses, settings.protocol),
        "reference_pose": _metric_values(poses, settings.protocol, against_reference=True),
        "consistency": _metric_values(scenes),
        "commanded": _metric_values(calibrations),
        "reference": _metric_values(calibrations, against_reference=True),
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
    records: Sequence[VideoRecord],
    settings: EvaluationSettings,
    pose: PoseEstimator | None,
    calibrator: Calibrator | None,
) -> dict[str, Floor]:
    """Each estimator's own error: on the reference videos of this run if it has any, else as shipped with it."""
    references = [record.reference for record in records if record.reference and record.reference.status == "read"]
    measured = summaries(references, settings) if references else None
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


def counts(records: Sequence[VideoRecord]) -> dict[str, Counts]:
    """How many videos were attempted, measured, filtered and failed, for each estimator."""
    result = {}
    for name in PARTS:
        present = [record.parts[name] for record in records if name in record.parts]
        if present:
            states = Counter(part.status for part in present)
            poses = present if name == "pose" else []
            result[name] = Counts(
                attempted=len(present),
                measured=states["ok"],
                filtered=states["filtered"],
                failed=states["failed"],
                unreadable=states["unreadable"],
                frames_attempted=sum(part.attempted or 0 for part in poses),
                frames_registered=sum(part.registered or 0 for part in poses),
            )
    return result


def failures(records: Sequence[VideoRecord]) -> list[Failure]:
    """Everything that could not be measured of a video or its reference video, and why."""
    found = []
    for record in records:
        outcomes: dict[str, Outcome] = {**record.parts} or {"video": record}
        if record.reference is not None:
            outcomes |= {f"reference {name}": part for name, part in record.reference.parts.items()}
            outcomes["reference"] = record.reference
        found += [
            Failure(record.name, name, outcome.status, outcome.reason)
            for name, outcome in outcomes.items()
            if outcome.status not in ("ok", "read")
        ]
    return found


def remarks(records: Sequence[VideoRecord]) -> list[str]:
    """What a reader must know about videos that were measured, but not like the others."""
    found = []
    references = sum(record.has_reference for record in records)
    if 0 < references < len(records):
        found.append(f"Only {references} of {len(records)} videos have a reference video.")
    early = [
        f"{record.name} after {record.seconds_of_video:.2f} of {record.seconds_of_path:.2f} s"
        for record in records
        if record.seconds_of_video is not None and record.seconds_of_video < EARLY * record.seconds_of_path
    ]
    if early:
        found.append(
            f"{len(early)} of {len(records)} videos end before their paths do, and are compared only up to there: "
            + shortened(early)
            + "."
        )
    poses = [record.pose.metrics["robust"] for record in records if record.pose and record.pose.metrics]
    lenses = [record.calibration.metrics for record in records if record.calibration and record.calibration.metrics]
    for rows, what in ((poses, "pose"), (lenses, "orientation and lens")):
        counts = Counter(name for row in rows for name in row if not name.endswith(("_sum", "_mean")))
        missing = [f"{name} {count}" for name, count in sorted(counts.items()) if count < len(rows)]
        if missing:
            found.append(
                f"Some {what} metrics do not exist for some of the {len(rows)} videos (no commanded translation, or a "
                f"lens that the estimator's model cannot express); videos behind each: {', '.join(missing)}."
            )
    return found


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Names as a list, cut after the first `most`."""
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
        raise ValueError(f"{path}: not complete results of `ucpe evaluate` ({error!r})") from None


def load_record(output: str | Path, name: str) -> VideoRecord:
    """Everything measured of one video, estimates included."""
    path = JsonParts(Path(output) / "records").file(Item(name))
    return VideoRecord.from_json(read_json_object(path)["part"])


def _metric_values(
    parts: Sequence[Part[Any, Any]], protocol: str | None = None, against_reference: bool = False
) -> dict[str, tuple[list[float], list[float]]]:
    """The measured values of every metric (of a protocol), and the uninformed values of the videos that failed."""
    numbers = [part.against_reference if against_reference else part.metrics for part in parts]
    measured, uninformed = (
        [row if protocol is None else row[protocol] for row in rows if row]
        for rows in (numbers, [part.uninformed for part in parts])
    )
    names = sorted({name for row in measured or uninformed for name in row})
    names = names if measured else [name for name in names if name not in NEEDS_UNITS]
    return {
        name: ([row[name] for row in measured if name in row], [row[name] for row in uninformed if name in row])
        for name in names
    }


@cache
def _estimators(
    pose: EstimatorChoice | None, calibrator: EstimatorChoice | None
) -> tuple[PoseEstimator | None, Calibrator | None]:
    return (
        None if pose is None else pose.pose_estimator(),
        None if calibrator is None else calibrator.calibrator(),
    )
