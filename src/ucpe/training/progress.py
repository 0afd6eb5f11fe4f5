"""The curve of a run, on disk."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ucpe.files import write_file

CURVE_FILE = "metrics.jsonl"
"""One line of numbers per step."""


class Curve:
    """The numbers of every step of a run, on disk; steps that are done again are written once."""

    def __init__(self, path: Path, start: int):
        self.path = path
        kept = [line for line in read_curve(path) if line["step"] < start]
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
    """The numbers of every finished step of a run; a line that a killed run left half-written ends them."""
    lines: list[dict[str, float]] = []
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for text in path.read_text(encoding="utf-8").splitlines():
            lines.append(json.loads(text))
    return lines
