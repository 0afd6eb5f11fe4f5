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
    """Folders that `ucpe evaluate` wrote."""
    quote: tuple[Literal["1", "2", "D"], ...] = ()
    """Tables of the paper to show as quoted rows: 1 (PanShot), 2 (RealEstate10K), D (latency)."""
    against: Literal["commanded", "reference"] = "commanded"
    """What orientation and lens are compared with."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("comparison")
    """Folder for compare.md, compare.tex and compare.html."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    compare(parse({"compare": Compare}, arguments, "ucpe report"))


def compare(options: Compare) -> None:
    """Write the comparison and print it."""
    from ucpe.evaluation.report.write import compare_runs

    if not options.runs:
        raise ValueError("name at least one folder that `ucpe evaluate` wrote")
    paths = compare_runs(options.runs, options.output, options.quote, options.against)
    print(paths[0].read_text(encoding="utf-8"))
    print("wrote " + ", ".join(str(path) for path in paths))
