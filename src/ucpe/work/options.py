"""Where and how long work runs, as every command asks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """Where long work runs."""

    workers: int | None = None
    """Processes on this machine [default: 1; benchmarks: one per core], or actors on a cluster [default: all]."""
    engine: str = "local"
    """local; ray, which joins the cluster of RAY_ADDRESS or starts one on this machine; or ray://HOST:PORT."""


@dataclass(frozen=True)
class WorkOptions(EngineOptions):
    """Where long work runs, and whether it repeats what failed."""

    retry_failed: bool = False
    """Try again what failed before."""
