"""What was found about a video and in a run, as evaluation hands it to tables, pages and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Generic, Literal, TypeVar

from typing_extensions import Self

from ucpe.evaluation.estimators.base import (
    Calibration,
    PoseEstimate,
    calibration_from_plain,
    calibration_to_plain,
    pose_from_plain,
    pose_to_plain,
)
from ucpe.evaluation.statistics import Summary
from ucpe.files import fingerprint_of

FORMAT = "ucpe-evaluation-2"
"""Name and version of the layout of results.json."""

Summaries = dict[str, dict[str, Summary]]
"""Metrics over videos, by part (`pose`, `reference_pose`, `commanded`, `reference`, `consistency`) and name."""


Metrics = dict[str, float]
"""Numbers by the names of metrics."""

Numbers = TypeVar("Numbers", Metrics, dict[str, Metrics])
Estimate = TypeVar("Estimate", PoseEstimate, Calibration, None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Whether something could be measured."""

    status: Literal["ok", "read", "filtered", "failed", "unreadable"]
    """`ok` for a measurement, `read` for a video; the others say what went wrong."""
    reason: str = ""
    """What went wrong, in words."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is not known is left out."""
        known = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: _plain(value) for name, value in known if value is not None and value != ""}


@dataclass(frozen=True, kw_only=True)
class Part(Outcome, Generic[Numbers, Estimate]):
    """One measurement of a video. Poses have metrics for each protocol."""

    attempted: int | None = None
    """Number of frames that were looked at."""
    registered: int | None = None
    """Number of frames that were placed."""
    model: str | None = None
    """Lens model that was fitted."""
    metrics: Numbers | None = None
    """Errors against the commanded camera, if the status is `ok`."""
    uninformed: Numbers | None = None
    """Errors of a camera about which nothing is known, if the status is not `ok`."""
    against_reference: Numbers | None = None
    """Errors against the same estimator's result on the reference video."""
    fit_rms: float | None = None
    """Root mean square error over the image, in degrees, with which the lens model can express the commanded lens."""
    estimate: Estimate | None = None


PosePart = Part[dict[str, Metrics], PoseEstimate]
CalibrationPart = Part[Metrics, Calibration]
ConsistencyPart = Part[Metrics, None]

PARTS: dict[str, Callable[[Any], Any]] = {
    "pose": pose_from_plain,
    "calibration": calibration_from_plain,
    "consistency": lambda estimate: None,
}
"""Names of the measurements, and what reads the estimate of each from a file."""


@dataclass(frozen=True, kw_only=True)
class Measured(Outcome):
    """All measurements of one video, or of a reference video."""

    pose: PosePart | None = None
    calibration: CalibrationPart | None = None
    consistency: ConsistencyPart | None = None

    @property
    def parts(self) -> dict[str, PosePart | CalibrationPart | ConsistencyPart]:
        """The measurements that were tried, by name."""
        return {name: part for name in PARTS if (part := getattr(self, name)) is not None}

    def metrics(self, protocol: str, against: str = "commanded") -> Metrics:
        """All numbers by name, of poses under one protocol; `against` is what they are compared with, as in tables."""
        found: Metrics = {}
        if own := self.calibration:
            found |= (own.metrics if against == "commanded" else own.against_reference) or {}
        if self.consistency:
            found |= self.consistency.metrics or {}
        if self.pose:
            poses = self.pose.against_reference if against == "reference-poses" else self.pose.metrics
            found |= (poses or {}).get(protocol, {})
        return found

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """What `to_json` wrote; TypeError, KeyError or AttributeError where that is something else."""
        parts: dict[str, Any] = {name: dict(plain[name]) for name in PARTS if name in plain}
        for name, part in parts.items():
            estimate = part.pop("estimate", None)
            parts[name] = Part(**part, estimate=None if estimate is None else PARTS[name](estimate))
        return cls(**plain | parts)

    def without_estimates(self) -> Self:
        """The same without the estimates themselves, which are long."""
        return replace(
            self,
            pose=self.pose and replace(self.pose, estimate=None),
            calibration=self.calibration and replace(self.calibration, estimate=None),
        )


@dataclass(frozen=True, kw_only=True)
class VideoRecord(Measured):
    """Everything measured of one video."""

    name: str
    family: str
    """Family of its lens."""
    gravity: bool
    """Whether the commanded camera knows where up is."""
    lens: dict[str, Any]
    camera: str
    """Hash of the commanded camera."""
    status: Literal["ok", "read", "filtered", "failed", "unreadable"] = "read"
    video: str = ""
    """Name of its file."""
    seconds_of_path: float = 0.0
    has_reference: bool = False
    frames: int | None = None
    height: int | None = None
    width: int | None = None
    seconds_of_video: float | None = None
    reference: Measured | None = None
    """Measurements of its reference video."""
    seconds: dict[str, float] | None = None
    """Seconds that each measurement took, and `total`."""

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """What `to_json` wrote; TypeError, KeyError or AttributeError where that is something else."""
        if "reference" in plain:
            plain = plain | {"reference": Measured.from_json(plain["reference"])}
        return super().from_json(plain)


@dataclass(frozen=True)
class Counts:
    """How many videos one estimator was asked about, and what became of them."""

    attempted: int
    measured: int
    filtered: int
    failed: int
    unreadable: int
    frames_attempted: int = 0
    frames_registered: int = 0


@dataclass(frozen=True)
class Failure:
    """Something that could not be measured of a video or its reference video."""

    name: str
    part: str
    status: str
    reason: str


@dataclass(frozen=True)
class Floor:
    """An estimator's own error by metric, and where that was measured."""

    source: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class QualityScore:
    """A metric of picture quality over all videos, or why there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % bootstrap interval, where the value is a mean over videos."""
    note: str = ""
    """What a reader must know about the value."""
    weights: str = ""
    reason: str = ""
    """Why there is no value."""


@dataclass(frozen=True)
class Results:
    """The results of a run."""

    label: str
    versions: dict[str, str]
    protocol: str
    """Name of the headline protocol."""
    protocols: dict[str, dict[str, Any]]
    seed: int
    measuring: dict[str, Any]
    estimators: dict[str, dict[str, Any] | None]
    """Descriptions of the `pose` estimator and the `calibrator`."""
    floors: dict[str, Floor]
    counts: dict[str, Counts]
    failures: list[Failure]
    notes: list[str]
    summary: Summaries
    families: dict[str, Summaries]
    """Summaries of each lens family."""
    quality: dict[str, QualityScore]
    videos: list[VideoRecord]
    """The record of every video, without the estimates themselves."""

    @property
    def cameras(self) -> dict[str, Any]:
        """Number of cameras, and a hash of their names and paths, which is equal in runs of the same commands."""
        told = sorted([video.name, video.camera] for video in self.videos)
        return {"count": len(told), "hash": fingerprint_of(told)}

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into these results."""
        plain = asdict(replace(self, videos=[]))
        counts = {"videos": len(self.videos), **plain["counts"]}
        return {"format": FORMAT, **plain, "counts": counts, "videos": [video.to_json() for video in self.videos]}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Results:
        """The results that `to_json` wrote; KeyError, TypeError or AttributeError where that is something else."""
        plain = {name: content[name] for name in cls.__dataclass_fields__}
        counts = {part: Counts(**values) for part, values in plain["counts"].items() if part != "videos"}
        typed = {
            "floors": {part: Floor(**values) for part, values in plain["floors"].items()},
            "counts": counts,
            "failures": [Failure(**values) for values in plain["failures"]],
            "summary": _summaries(plain["summary"]),
            "families": {family: _summaries(values) for family, values in plain["families"].items()},
            "quality": {name: QualityScore(**values) for name, values in plain["quality"].items()},
            "videos": [VideoRecord.from_json(video) for video in plain["videos"]],
        }
        return cls(**{**plain, **typed})


def _summaries(plain: dict[str, dict[str, Any]]) -> Summaries:
    return {part: {name: Summary(**values) for name, values in metrics.items()} for part, metrics in plain.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Outcome):
        return value.to_json()
    if isinstance(value, PoseEstimate):
        return pose_to_plain(value)
    return calibration_to_plain(value) if isinstance(value, Calibration) else value
