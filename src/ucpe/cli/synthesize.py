"""`ucpe synthesize`: make camera-diverse training clips."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from ucpe.cli.parsing import parse
from ucpe.synthesis.clips import ClipSettings, synthesize
from ucpe.work import WorkOptions, progress_bar


@dataclass
class Synthesize:
    """Film clips with diverse cameras from 360 degree footage or procedural worlds.

    Interrupted in any way, the same command continues. The same seed and sources give the same bytes.
    """

    sources: Annotated[tuple[str, ...], tyro.conf.Positional]
    """worlds[:outdoor|indoor][:moving]; a panoramic video with poses beside it (NAME.npy, .txt, .json); a folder of
    these; matches.parquet as `ucpe match` writes it (matches.parquet:test for its test split); or a .jsonl with one
    source per line."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("dataset")
    """Folder to write: metadata.parquet and videos/."""
    clips: int = 200
    """Number of clips in the dataset."""
    settings: Annotated[ClipSettings, tyro.conf.arg(name="")] = field(default_factory=ClipSettings)
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)
    caption_url: str | None = None
    """OpenAI-compatible endpoint that captions clips without a caption, e.g. http://localhost:8000/v1"""
    caption_model: str = ""
    """Model the endpoint should use."""
    dry_run: bool = False
    """Film, but only show what would be sent to the endpoint."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and film."""
    options = parse(Synthesize, arguments, "ucpe synthesize")
    if options.caption_url and not options.caption_model:
        raise ValueError("--caption-url needs --caption-model")
    with progress_bar() as show:
        summary = synthesize(
            options.sources, options.output, options.clips, options.settings, progress=show, **vars(options.work)
        )
    print(f"{options.output}: {summary.clips} clips, {summary.made} of them made now")
    for title, problems in (("sources set aside", summary.set_aside), ("not filmed", summary.failed)):
        if problems:
            print(f"{title}: {len(problems)}")
            for name, reason in problems.items():
                print(f"  {name}: {reason}")
    if options.caption_url:
        from ucpe.cli.dataset import caption

        caption(options.output, options.caption_url, options.caption_model, WorkOptions(), dry_run=options.dry_run)
    if summary.clips < options.clips:
        sys.exit(1)
