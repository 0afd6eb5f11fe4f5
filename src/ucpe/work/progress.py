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
def progress_bar() -> Iterator[Progress]:
    """Show progress with the time left, on the error stream."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=console) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield show


class _Lines:
    """Prints a line at the end of each kind of items, and now and then before."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[float, int]] = {}
        self.last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        since, before = self.started.setdefault(what, (now, done))
        if done < total and now - self.last < EVERY:
            return
        self.last = now
        left = f", about {_duration((now - since) / (done - before) * (total - done))} left" if done > before else ""
        print(f"{what}: {done} of {total}{left if done < total else ''}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
