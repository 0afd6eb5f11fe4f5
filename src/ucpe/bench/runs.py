"""Many independent runs of a benchmark: in parallel, resumable run by run, within a time budget."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from typing_extensions import Unpack

from ucpe.work import Calls, Done, Item, Quarantine, Record, RecordParts, Stage, WorkArguments, complete, run


@dataclass(frozen=True)
class Machine:
    """What a benchmark ran on."""

    workers: int
    processor: str = field(default_factory=lambda: processor_name())
    cores: int | None = field(default_factory=os.cpu_count)
    python: str = field(default_factory=platform.python_version)
    torch: str = torch.__version__


@dataclass(frozen=True)
class Task:
    """One training of a generation benchmark with its videos, or the measurement of true ones."""

    contestant: str
    seed: int


@dataclass
class Budget:
    """Minutes that a benchmark may take, no end if None; a run is expected to take as long as the longest so far."""

    minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    longest: float = 0.0
    """Seconds of the longest run so far."""
    started: float = field(init=False)

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes >= 0:
            raise ValueError(f"minutes must be at least 0, got {self.minutes}")
        self.started = self.clock()

    def note(self, seconds: float) -> None:
        """Take into account how long a run took."""
        self.longest = max(self.longest, seconds)

    def allows_another(self) -> bool:
        """Whether another run still fits."""
        return self.minutes is None or self.clock() - self.started + self.longest < 60 * self.minutes


@dataclass
class TimedRuns(Stage):
    """Does a run and notes the seconds it took, by the clock and of the processor."""

    work: Callable[[Any], Record]
    parts: RecordParts
    name = "runs"

    def process(self, task: Any) -> Record:
        """Do one run."""
        started, busy = time.monotonic(), time.process_time()
        record = self.work(task)
        record.facts["seconds"] = round(time.monotonic() - started, 1)
        record.facts["processor_seconds"] = round(time.process_time() - busy, 1)
        return record


def run_all(
    runs: Sequence[Item],
    work: Callable[[Any], Record],
    folder: RecordParts,
    budget: Budget,
    **options: Unpack[WorkArguments],
) -> dict[str, Record]:
    """Records by name of all runs that are there or could be made within the budget, in the order given.

    `work` (importable by name) does a task on one thread. A run is only started if the longest one of this call would
    still fit. One that fails is set aside, and named once the others are done.
    """

    def results() -> Iterator[Done]:
        stage, quarantine = TimedRuns(work, folder), Quarantine(folder.folder)
        for done in run(stage, runs, quarantine=quarantine, goes_on=budget.allows_another, **options):
            if done.part is not None and not done.before:
                budget.note(done.part.facts["seconds"])
            yield done

    records = complete(results())
    return {item.id: records[item.id] for item in runs if item.id in records}


def render_all(shards: dict[str, partial[Path]], budget: Budget, **options: Unpack[WorkArguments]) -> int:
    """Render shards of clips, by name, as far as the budget allows; how many were rendered."""
    items = [Item(name, render) for name, render in shards.items()]
    return len(list(run(Calls(_call, "shards of clips"), items, goes_on=budget.allows_another, **options)))


def _call(render: partial[Path]) -> Path:
    return render()


def on_all_cores(options: WorkArguments) -> WorkArguments:
    """The same, with one worker for each core unless another number is asked for."""
    return {**options, "workers": options.get("workers") or os.cpu_count() or 1}


def check_sizes(benchmark: Any, *names: str) -> None:
    """ValueError unless these numbers of a benchmark are at least 1, where they are given."""
    for name in names:
        if (value := getattr(benchmark, name)) is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def processor_name() -> str:
    """Name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
