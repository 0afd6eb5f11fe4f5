"""The one progress bar: `rich` on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with what the items are, how many are done, and how many there are."""

EVERY = 10.0
"""Seconds between plain lines."""


@contextmanager
def progress_bar(pace: bool = False) -> Iterator[Progress]:
    """Show progress with the time left, and the seconds an item takes if asked, on the error stream.

    Items that are counted from the start again are shown from the start again.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(pace)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    speed = [TextColumn("{task.fields[pace]}")] if pace else []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *speed, TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, pace="")
            task = bar.tasks[bar.task_ids.index(tasks[what])]
            if done < task.completed:
                bar.reset(task.id)
            seconds = f"{task.elapsed / done:.2f} s each" if done and task.elapsed else ""
            bar.update(task.id, completed=done, total=total, pace=seconds)

        yield show


class _Lines:
    """Prints a line at the end of each kind of items, and now and then before."""

    def __init__(self, pace: bool = False) -> None:
        self.pace = pace
        self.started: dict[str, tuple[float, int]] = {}
        self.last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        since, before = self.started.setdefault(what, (now, done))
        if done < before:
            since, before = self.started[what] = now, done
        if done < total and now - self.last < EVERY:
            return
        self.last = now
        each = (now - since) / max(1, done - before)
        pace = f", {each:.2f} s each" if self.pace and done > before else ""
        left = f", about {_duration(each * (total - done))} left" if before < done < total else ""
        print(f"{what}: {done} of {total}{pace}{left}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
