"""The curve of a run: on disk, in a tracker, and as a bar with loss, speed and time left."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ucpe.files import atomic_file

if TYPE_CHECKING:
    from rich.progress import Progress

CURVE_FILE = "metrics.jsonl"
"""One line of numbers per step."""

PLAIN_EVERY = 30.0
"""Seconds between lines where the output is no terminal."""


class Curve:
    """The numbers of every step of a run, on disk; steps that are done again are written once."""

    def __init__(self, path: Path, start: int):
        self.path = path
        kept = [line for line in _lines(path) if line["step"] < start]
        with atomic_file(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.file = path.open("a", encoding="utf-8")

    def add(self, step: int, numbers: dict[str, float]) -> None:
        """Append the numbers of a step."""
        self.file.write(json.dumps({"step": step, **numbers}) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def read_curve(path: Path) -> list[dict[str, float]]:
    """The numbers of every finished step of a run."""
    return list(_lines(Path(path)))


class TrainingBar:
    """A progress bar with loss, seconds a step and time left; plain lines now and then where there is no terminal."""

    def __init__(self, title: str, start: int, steps: int, shown: bool = True):
        self.title, self.start, self.steps, self.shown = title, start, steps, shown
        self.began = self.last_line = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> TrainingBar:
        if self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]:.4f}"),
                TextColumn("{task.fields[seconds]:.2f} s/step"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.bar.start()
            self.task = self.bar.add_task(
                self.title, total=self.steps, completed=self.start, loss=float("nan"), seconds=0.0
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self.bar is not None:
            self.bar.stop()

    def update(self, done: int, loss: float) -> None:
        """Show that `done` steps are done."""
        if not self.shown:
            return
        now = time.monotonic()
        seconds = (now - self.began) / max(1, done - self.start)
        if self.bar is not None:
            self.bar.update(self.task, completed=done, loss=loss, seconds=seconds)
        elif now - self.last_line > PLAIN_EVERY or done == self.steps:
            self.last_line = now
            left = time.strftime("%H:%M:%S", time.gmtime((self.steps - done) * seconds))
            self.say(f"{self.title} {done}/{self.steps} loss {loss:.4f} {seconds:.2f} s/step {left} left")

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.bar is not None:
            self.bar.console.print(text)
        elif self.shown:
            print(text, file=sys.stderr, flush=True)


@contextmanager
def encoding_bar(shown: bool) -> Iterator[Any]:
    """A function (what, done, total) that shows how far encoding is."""
    if not (shown and sys.stderr.isatty()):
        last = [time.monotonic()]

        def line(what: str, done: int, total: int) -> None:
            if shown and (time.monotonic() - last[0] > PLAIN_EVERY or done == total):
                last[0] = time.monotonic()
                print(f"encoding {what} {done}/{total}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"encoding {what}", total=total)
            bar.update(tasks[what], completed=done)

        yield show


def _lines(path: Path) -> Iterator[dict[str, float]]:
    """Whole lines of a curve; one that a killed run left half-written ends it."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            return
