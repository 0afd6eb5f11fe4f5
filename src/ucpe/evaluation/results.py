"""What a run found, as evaluation hands it to tables, pages and files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ucpe.evaluation.statistics import Summary
from ucpe.files import fingerprint_of

FORMAT = "ucpe-evaluation-2"
"""Name and version of the layout of results.json."""

Summaries = dict[str, dict[str, Summary]]
"""Metrics over videos, by part (`pose`, `reference_pose`, `commanded`, `reference`, `consistency`) and name."""


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
    """A video, or reference video, that something could not be measured of."""

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
    quality: dict[str, dict[str, Any]]
    videos: list[dict[str, Any]]
    """The record of every video, without the estimates themselves."""

    @property
    def cameras(self) -> dict[str, Any]:
        """How many cameras there are, and the hash of their names and paths: equal hashes were told the same."""
        told = sorted([video["name"], str(video.get("camera"))] for video in self.videos)
        return {"count": len(told), "hash": fingerprint_of(told)}

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into these results."""
        plain = asdict(self)
        return {"format": FORMAT, **plain, "counts": {"videos": len(self.videos), **plain["counts"]}}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Results:
        """The results of plain values; KeyError or TypeError where they are none."""
        plain = {name: content[name] for name in cls.__dataclass_fields__}
        counts = {part: Counts(**values) for part, values in plain["counts"].items() if part != "videos"}
        typed = {
            "floors": {part: Floor(**values) for part, values in plain["floors"].items()},
            "counts": counts,
            "failures": [Failure(**values) for values in plain["failures"]],
            "summary": _summaries(plain["summary"]),
            "families": {family: _summaries(values) for family, values in plain["families"].items()},
        }
        return cls(**{**plain, **typed})


def _summaries(plain: dict[str, dict[str, Any]]) -> Summaries:
    return {part: {name: Summary(**values) for name, values in metrics.items()} for part, metrics in plain.items()}
