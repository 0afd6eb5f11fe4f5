"""The curve of a run, on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ucpe.files import write_file

CURVE_FILE = "metrics.jsonl"
"""One line of numbers per step."""


class Curve:
    """The numbers of every step of a run, on disk; steps that are done again are written once."""

    def __init__(self, path: Path, start: int):
        self.path = path
        kept = [line for line in _lines(path) if line["step"] < start]
        write_file(path, "".join(json.dumps(line) + "\n" for line in kept))
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


def _lines(path: Path) -> Iterator[dict[str, float]]:
    """Whole lines of a curve; one that a killed run left half-written ends it."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            return
