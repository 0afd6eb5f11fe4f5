"""Many independent runs of a benchmark: in parallel, resumable run by run, within a time budget."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ucpe.files import atomic_file

Progress = Callable[[int, int, str], None]
"""Called with how many are done, how many there are, and what was done last."""


@dataclass(frozen=True)
class Record:
    """What one run left behind."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run: `name` is its file, `key` stands for everything that decides its outcome, `task` says what to do."""

    name: str
    key: str
    task: Any


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


class RunFolder:
    """A folder with one file per finished run, each there whole or not at all."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def file(self, run: Run) -> Path:
        """Where the record of a run is kept."""
        return self.path / f"{run.name}.safetensors"

    def load(self, run: Run) -> Record | None:
        """The record of a run, or None if it has not been made with this key."""
        if not self.file(run).exists():
            return None
        with safe_open(self.file(run), "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("key") != run.key:
                return None
            return Record({name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["facts"]))  # noqa: SIM118

    def save(self, run: Run, record: Record) -> None:
        """Write the record of a run."""
        with atomic_file(self.file(run)) as path:
            save_file(record.tensors, path, {"key": run.key, "facts": json.dumps(record.facts)})


def run_all(
    runs: Sequence[Run],
    work: Callable[[Any], Record],
    folder: RunFolder,
    workers: int,
    budget: Budget,
    progress: Progress | None = None,
) -> dict[str, Record]:
    """Records by name of all runs that are there or could be made within the budget, in the order given.

    `work` (importable by name) does a task in a process of its own with one thread. A run is only started if the
    longest one of this call would still fit. Facts get the seconds it took, by the clock and of the processor.
    """
    records = {run.name: record for run in runs if (record := folder.load(run)) is not None}
    if progress is not None and records:
        progress(len(records), len(runs), "done before")
    waiting = [run for run in runs if run.name not in records]
    for run, record in each(_RecordedWork(work, folder), waiting, workers, budget.allows_another):
        records[run.name] = record
        budget.note(record.facts["seconds"])
        if progress is not None:
            progress(len(records), len(runs), run.name)
    return records


def each(
    work: Callable[[Any], Any], tasks: Sequence[Any], workers: int, goes_on: Callable[[], bool] = lambda: True
) -> Iterator[tuple[Any, Any]]:
    """Each task with its result as it is finished; one worker works in this process, several in their own."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if workers == 1 or len(tasks) < 2:
        with one_thread():
            for task in tasks:
                if not goes_on():
                    return
                yield task, work(task)
        return
    context = multiprocessing.get_context("spawn")
    remaining = list(tasks)
    running: dict[Future[Any], Any] = {}
    with ProcessPoolExecutor(min(workers, len(tasks)), context, _start_worker, (os.getpid(),)) as pool:
        try:
            while remaining or running:
                while remaining and len(running) < workers and goes_on():
                    task = remaining.pop(0)
                    running[pool.submit(work, task)] = task
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, as in every worker, so that results do not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class _RecordedWork:
    """Does a run and keeps its record at once, so that it is not lost with the parent process."""

    work: Callable[[Any], Record]
    folder: RunFolder

    def __call__(self, run: Run) -> Record:
        started, busy = time.monotonic(), time.process_time()
        record = self.work(run.task)
        record.facts["seconds"] = round(time.monotonic() - started, 1)
        record.facts["processor_seconds"] = round(time.process_time() - busy, 1)
        self.folder.save(run, record)
        return record


def _start_worker(parent: int) -> None:
    torch.set_num_threads(1)

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
