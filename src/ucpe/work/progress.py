"""The one progress bar: `rich` on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

Progress = Callable[[str, int, int], None]
"""Called with what the items are, how many are done, and how many there are."""

EVERY = 10.0
"""Seconds between plain lines."""


class ProgressBar(Protocol):
    """A `Progress` that also takes a note about the items, such as a loss."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` items are done."""


@contextmanager
def progress_bar(pace: bool = False, shown: bool = True) -> Iterator[ProgressBar]:
    """Show progress with the time left, and the seconds an item takes if asked, on the error stream.

    Items that are counted from the start again are shown from the start again.
    """
    if not shown:
        yield lambda what, done, total, note="": None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(pace)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    notes = (TextColumn("{task.fields[pace]}"), TextColumn("{task.fields[note]}"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *notes, TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    first: dict[str, int] = {}
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as bar:

        def show(what: str, done: int, total: int, note: str = "") -> None:
            if what not in tasks:
                first[what], tasks[what] = done, bar.add_task(what, total=total, pace="", note="")
            task = bar.tasks[bar.task_ids.index(tasks[what])]
            if done < task.completed:
                first[what] = done
                bar.reset(task.id)
            counted = done - first[what]
            seconds = f"{task.elapsed / counted:.2f} s each" if pace and counted and task.elapsed else ""
            bar.update(task.id, completed=done, total=total, pace=seconds, note=note)

        yield show


class _Lines:
    """Prints a line at the end of each kind of items, and now and then before."""

    def __init__(self, pace: bool = False) -> None:
        self.pace = pace
        self.started: dict[str, tuple[float, int]] = {}
        self.last = time.monotonic()

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Print a line if it is time to."""
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
        note = f", {note}" if note else ""
        print(f"{what}: {done} of {total}{note}{pace}{left}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
