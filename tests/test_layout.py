"""The rooms of the package import in one direction only, and every command has its file."""

import ast
from pathlib import Path

import pytest

from ucpe.cli import COMMANDS

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "ucpe"
ROOMS = (
    "lenses",
    "trajectories",
    "encodings",
    "adapters",
    "generation",
    "synthesis",
    "training",
    "evaluation",
    "bench",
    "studio",
    "cli",
)


def imported_rooms(source: str, package: list[str]) -> set[str]:
    """Rooms that a module's source imports anywhere, also inside functions."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            modules |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    parts = [module.split(".") for module in modules]
    return {part[1] for part in parts if part[0] == "ucpe" and len(part) > 1 and part[1] in ROOMS}


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


def test_every_command_has_its_file_and_every_file_its_command():
    files = {path.stem for path in (PACKAGE / "cli").glob("*.py")} - {"__init__", "cameras", "errors"}
    assert files == set(COMMANDS)
