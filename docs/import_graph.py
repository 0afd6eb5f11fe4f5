"""Print which rooms of the package import which: in each row, how many of a room's modules import the room of a column.

    python docs/import_graph.py [COMMIT]
    python docs/import_graph.py --write          # into docs/README.md

A room knows only the rooms above it, so every number is left of the diagonal. Modules beside the rooms come first.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "lenses", "trajectories", "encodings", "adapters", "generation", "synthesis", "training", "evaluation", "bench",
    "studio", "cli",
)  # fmt: skip
"""In the order in which data walks through them."""


def imported_modules(source: str, package: list[str]) -> set[str]:
    """Names that a module's source imports anywhere, also inside functions."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            modules |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    return modules


def sources(commit: str | None = None) -> dict[str, str]:
    """Every module of the package by its path in it, as it is or as it was at a commit."""
    if commit is None:
        folder = ROOT / "src" / "ucpe"
        return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.py"))}
    archive = subprocess.run(["git", "archive", commit, "src/ucpe"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [member for member in files if member.name.endswith(".py")]
        return {
            member.name.removeprefix("src/ucpe/"): file.read().decode()
            for member in members
            if (file := files.extractfile(member)) is not None
        }


def room_of(path: str) -> str:
    """The room, or the module beside the rooms, that a module's path lies in."""
    return path.split("/")[0].removesuffix(".py")


def import_counts(modules: dict[str, str]) -> dict[str, Counter[str]]:
    """How many modules of each room import each other room."""
    rooms = {room_of(path) for path in modules}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path, source in modules.items():
        names = imported_modules(source, ["ucpe", *path.split("/")[:-1]])
        found = {name.split(".")[1] for name in names if name.startswith("ucpe.")} & rooms
        counts[room_of(path)].update(found - {room_of(path)})
    return counts


def table(modules: dict[str, str]) -> str:
    """The counts as lines of text."""
    counts = import_counts(modules)
    beside = sorted({room_of(path) for path in modules} - {*ROOMS, "__init__", "__main__"})
    names = [*beside, *(room for room in ROOMS if any(room_of(path) == room for path in modules))]
    lines = [" " * 13 + "".join(f"{name[:6]:>7}" for name in names)]
    for index, name in enumerate(names):
        cells = [f"{counts[name][other] or '.':>7}" for other in names]
        cells[index] = f"{'-':>7}"
        lines.append(f"{name:<13}" + "".join(cells))
    size = sum(source.count("\n") for source in modules.values())
    lines.append(f"{len(modules)} modules, {size} lines")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--write", action="store_true", help="put it into docs/README.md")
    options = parser.parse_args()
    found = table(sources(options.commit))
    if options.write:
        page = ROOT / "docs" / "README.md"
        before, _, after = page.read_text().partition("## Who imports whom")
        page.write_text(f"{before}## Who imports whom{after.split('```')[0]}```\n{found}\n```{after.split('```')[2]}")
    else:
        print(found)
