"""`ucpe report`: put evaluation runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.parsing import parse


@dataclass
class Compare:
    """Tables of several runs of `ucpe evaluate`, with the paper's published rows beside them if asked for."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that `ucpe evaluate` wrote, files of `ucpe report publish`, or folders of such files."""
    quote: tuple[Literal["1", "2", "D"], ...] = ()
    """Tables of the paper to show as quoted rows: 1 (PanShot), 2 (RealEstate10K), D (latency)."""
    against: Literal["commanded", "reference", "reference-poses"] = "commanded"
    """What the tables compare with, as for `ucpe evaluate`."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("comparison")
    """Folder for compare.md, compare.tex and compare.html."""


@dataclass
class Publish:
    """Write one file with everything that another group needs to put its numbers beside this run's.

    `ucpe report compare FOLDER` reads a folder of such files.
    """

    run: tyro.conf.Positional[Path]
    """Folder that `ucpe evaluate` wrote."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("leaderboard.json")
    """File to write."""
    label: str | None = None
    """Name of the method. [default: the run's]"""
    link: str | None = None
    """Where a reader finds the method: a paper, a repository."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    options = parse({"compare": Compare, "publish": Publish}, arguments, "ucpe report")
    if isinstance(options, Publish):
        publish(options)
    else:
        compare(options)


def publish(options: Publish) -> None:
    """Write the file and say what is in it."""
    from ucpe.evaluation.report import leaderboard

    path = leaderboard.publish(options.run, options.output, label=options.label, link=options.link)
    run = leaderboard.load_runs(path)[0]
    told = f"{run.cameras['count']} videos of the cameras {run.cameras['hash'][:12]}"
    print(f"{path}: {run.label}, protocol {run.protocol}, {told}")


def compare(options: Compare) -> None:
    """Write the comparison and print it."""
    from ucpe.evaluation.report.write import compare_runs

    if not options.runs:
        raise ValueError("name at least one folder that `ucpe evaluate` wrote")
    paths = compare_runs(options.runs, options.output, options.quote, options.against)
    print(paths[0].read_text(encoding="utf-8"))
    print("wrote " + ", ".join(str(path) for path in paths))
