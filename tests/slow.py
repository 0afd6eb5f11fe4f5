"""Writes tests/slow.txt from measured times: what `make quick` leaves out.

    python -m pytest --numprocesses 2 --times times.jsonl && python tests/slow.py times.jsonl

Processor time is measured, children included, so that a busy machine changes little.
"""

import json
import sys
from pathlib import Path

SECONDS = 0.2
"""Processor seconds from which a test is slow."""


def main(*files: str) -> None:
    """Keep what is listed and was not measured, and list what was measured as slow; a whole test if most of it is."""
    measured: dict[str, float] = {}
    for file in files:
        measured |= {name: seconds for name, seconds, *_ in map(json.loads, Path(file).read_text().splitlines())}
    listed = Path(__file__).with_name("slow.txt")
    tests: dict[str, list[str]] = {}
    for name in measured:
        tests.setdefault(name.partition("[")[0], []).append(name)
    files_seen = {name.partition("::")[0] for name in measured}
    slow = {line for line in listed.read_text().splitlines() if line.partition("::")[0] not in files_seen}
    for test, cases in tests.items():
        own = [name for name in cases if measured[name] >= SECONDS]
        slow |= {test} if 2 * len(own) > len(cases) else set(own)
    listed.write_text("".join(f"{line}\n" for line in sorted(slow)))
    print(f"{len(slow)} lines, {sum(measured.values()):.0f} s measured")


if __name__ == "__main__":
    main(*sys.argv[1:])
