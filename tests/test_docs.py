"""Links in the documentation lead somewhere; its commands take the options shown, and run where they need no input."""

import contextlib
import functools
import importlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ucpe.cli import COMMANDS
from ucpe.lenses.models import LENS_NAMES
from ucpe.trajectories import NAMED_MOVES

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("recipes/**/*.md")]
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path) -> list[list[str]]:
    """Every `ucpe ...` line of a page's shell blocks as words."""
    blocks = [body for language, body in BLOCK.findall(page.read_text()) if language in ("", "bash", "sh", "console")]
    lines = [line for body in blocks for line in body.replace("\\\n", " ").splitlines()]
    found = [part for line in lines for part in re.split(r"\s{2,}(?=ucpe )", line.strip().removeprefix("$ "))]
    return [shlex.split(line, comments=True) for line in found if line.startswith("ucpe ")]


@functools.cache
def options_of(*words: str) -> set[str]:
    """The options that the help of a command names."""
    text = io.StringIO()
    module = importlib.import_module(f"ucpe.cli.{words[0]}")
    with (
        contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
        contextlib.suppress(SystemExit, ValueError),
    ):
        module.main([*words[1:], "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*(?:\.[\w-]+)*", text.getvalue()))


def subcommands(name: str, words: list[str]) -> list[str]:
    """The words before the first option; a recipe of ours where a page says RECIPE or names a file."""
    leading = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    recipe = name == "train" and bool(leading) and (leading[0].isupper() or leading[0].endswith(".py"))
    return ["ucpe"] if recipe else leading


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target) and not target.startswith("#"):
            assert (page.parent / target.split("#")[0]).exists(), f"{page_name(page)} links to {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=page_name)
def test_commands_take_the_options_they_are_shown_with(page):
    for command in commands_of(page):
        name, words = command[1], command[2:]
        assert name in COMMANDS, f"{page_name(page)}: no command ucpe {name}"
        known = set().union(*(options_of(name, *subcommands(name, words)[:count]) for count in range(3)))
        for word in words:
            if re.match(r"--?[a-zA-Z]", word):
                assert word.split("=")[0] in known, f"{page_name(page)}: ucpe {name} has no {word}"


def runs_here(command: list[str]) -> bool:
    """Whether a command of a page needs nothing but the package: no file, no model, no hour."""
    name, words = command[1], command[2:]
    if name in ("lens", "trajectory", "encoding"):
        return len(words) > 1 and words[1] in {*LENS_NAMES, *NAMED_MOVES, *ENCODED}
    return name in ("bench", "train") and "--list" in words


ENCODED = ("ucpe", "sightline", "lat-up", "plucker", "raw", "frames", "prope", "gta", "cape")
RUNNABLE = {" ".join(command): command for page in PAGES for command in commands_of(page) if runs_here(command)}


@pytest.mark.slow
@pytest.mark.parametrize("line", RUNNABLE)
def test_commands_that_need_no_input_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    importlib.import_module(f"ucpe.cli.{RUNNABLE[line][1]}").main(RUNNABLE[line][2:])
    assert capsys.readouterr().out


def test_pages_show_commands_that_can_be_run():
    assert {"lens", "trajectory", "bench", "train"} <= {command[1] for command in RUNNABLE.values()}


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
    blocks = [body for language, body in BLOCK.findall((ROOT / "docs/tutorial.md").read_text()) if language == "bash"]
    assert len(blocks) >= 4
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = "set -euo pipefail\n" + "\n".join(blocks)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("lens.png", "videos/tower.mp4", "videos/tower.png", "report/report.html"):
        assert (tmp_path / name).is_file(), f"{name} was not written\n{done.stdout}{done.stderr}"
