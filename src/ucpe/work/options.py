"""Where and how long work runs, as every command asks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ucpe.work.progress import ProgressBar


@dataclass(frozen=True)
class EngineOptions:
    """Where long work runs."""

    workers: int | None = None
    """Processes on this machine [default: 1; benchmarks: one per core], or actors on a cluster [default: all]."""
    engine: str = "local"
    """local; ray, which joins the cluster of RAY_ADDRESS or starts one on this machine; or ray://HOST:PORT."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, got {self.workers}")
        if self.engine not in ("local", "ray") and not self.engine.startswith("ray://"):
            raise ValueError(f"no engine {self.engine!r}; there are local, ray and ray://HOST:PORT")


@dataclass(frozen=True)
class WorkOptions(EngineOptions):
    """Where long work runs, and whether it repeats what failed."""

    retry_failed: bool = False
    """Try again what failed before."""


class WorkArguments(TypedDict, total=False):
    """What functions of long work take by name and hand on to `run`: `WorkOptions`, and who is told of progress."""

    workers: int | None
    engine: str
    retry_failed: bool
    progress: ProgressBar | None
