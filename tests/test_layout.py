"""The rooms of the package import in one direction only, and every command has its file."""

import re
from pathlib import Path

import pytest
from docs.import_graph import ROOMS, imported_modules, sources, table

from ucpe.cli import COMMANDS

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src" / "ucpe"


def imported_rooms(source: str, package: list[str]) -> set[str]:
    """Rooms that a module's source imports, itself or through modules beside the rooms (desk, work, video, ...)."""
    rooms: set[str] = set()
    seen: set[str] = set()
    waiting = imported_modules(source, package)
    while waiting:
        module = waiting.pop()
        seen.add(module)
        name, *rest = module.split(".")
        if name != "ucpe" or not rest:
            continue
        if rest[0] in ROOMS:
            rooms.add(rest[0])
            continue
        stem = PACKAGE.joinpath(*rest)
        for path, home in ((stem.with_suffix(".py"), rest[:-1]), (stem / "__init__.py", rest)):
            if path.is_file():
                waiting |= imported_modules(path.read_text(), ["ucpe", *home]) - seen
    return rooms


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_the_rooms_above_it(room):
    below = set(ROOMS[ROOMS.index(room) + 1 :])
    for path in (PACKAGE / room).rglob("*.py"):
        package = ["ucpe", *path.relative_to(PACKAGE).parts[:-1]]
        wrong = imported_rooms(path.read_text(), package) & below
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {sorted(wrong)}, which lie below {room}"


def test_the_check_sees_every_kind_of_import():
    source = "import ucpe.cli.lens\ndef f():\n    from ucpe.training import loop\n    from ..studio import page\n"
    assert imported_rooms(source, ["ucpe", "lenses"]) == {"cli", "training", "studio"}
    assert imported_rooms("from ucpe import bench", ["ucpe"]) == {"bench"}
    assert imported_rooms("from ucpe.desk import clips", ["ucpe"]) >= {"lenses", "trajectories", "synthesis"}
    assert not imported_rooms("from ucpe.desk.model import make_transformer", ["ucpe"])


def test_every_command_has_its_file_and_every_file_its_command():
    files = {path.stem for path in (PACKAGE / "cli").glob("*.py")} - {"__init__", "cameras", "errors", "parsing"}
    assert files == set(COMMANDS)
    tests = {path.stem.removeprefix("test_cli_") for path in (PACKAGE.parents[1] / "tests/cli").glob("*.py")}
    assert set(COMMANDS) <= tests


def test_the_documented_import_graph_is_the_real_one():
    def marks(text: str) -> list[str]:
        return [re.sub(r" *\d+", lambda found: "x".rjust(len(found[0])), line) for line in text.splitlines()[:-1]]

    real = table(sources())
    documented = (PACKAGE.parents[1] / "docs" / "README.md").read_text()
    block = documented[documented.index(real.splitlines()[0]) :].split("```")[0].strip("\n")
    assert marks(block) == marks(real), "run `python docs/import_graph.py --write`"


def test_slow_tests_exist():
    for line in (TESTS / "slow.txt").read_text().splitlines():
        file, _, name = line.partition("::")
        text = (TESTS.parent / file).read_text()
        assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in text or not name, f"there is no {line}"
