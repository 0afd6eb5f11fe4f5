"""`ucpe curate`: from raw 360 degree videos to clean clips with poses."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from ucpe.cli.parsing import parse
from ucpe.synthesis.curation.pipeline import CurationSettings
from ucpe.work import WorkOptions, progress_bar

USAGE = """usage: ucpe curate VIDEOS ... -o curated/       clips, poses and scores from raw 360 degree videos
       ucpe curate report curated/             a page that shows what each step kept and dropped, and why

`ucpe curate VIDEOS --help` lists the options of every step."""


@dataclass
class CurateOptions:
    """Split 360 degree videos into clips, find their poses, and keep the good ones.

    Interrupted in any way, the same command continues. Changing a threshold measures nothing again.
    """

    videos: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of videos, or single videos."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("curated")
    """Folder for the clips and their rows."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)
    shard: int = 0
    """Which share of the videos to do, from 0, if several machines share the output folder but no cluster."""
    shards: int = 1
    """Number of shares."""
    keep_rig: bool = False
    """Keep clips in which a rider or a tripod is in view: the same as --overlay.keep-rig."""
    settings: Annotated[CurationSettings, tyro.conf.arg(name="")] = field(default_factory=CurationSettings)


@dataclass
class ReportOptions:
    """Write one self-contained page: how many clips each step kept, why others were dropped, with pictures of both."""

    curated: Annotated[Path, tyro.conf.Positional]
    """Folder that `ucpe curate` wrote."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Page to write. [default: report.html in the curated folder]"""
    pictures: int = 12
    """Maximum number of thumbnails for each reason."""


def main(arguments: list[str]) -> None:
    """Run `ucpe curate`."""
    if not arguments or arguments in (["-h"], ["--help"]):
        print(USAGE)
    elif arguments[0] == "report":
        _report(parse(ReportOptions, arguments[1:], "ucpe curate report"))
    else:
        _curate(parse(CurateOptions, arguments, "ucpe curate"))


def _curate(options: CurateOptions) -> None:
    settings = options.settings
    if options.keep_rig:
        settings = replace(settings, overlay=replace(settings.overlay, keep_rig=True))
    from ucpe.synthesis.curation.pipeline import curate_videos

    with progress_bar() as show:
        summary = curate_videos(
            options.videos,
            options.output,
            settings.steps(),
            shard=options.shard,
            shards=options.shards,
            progress=show,
            **vars(options.work),
        )
    print(f"{options.output}: {summary.kept} of {summary.clips} clips kept, from {summary.videos} videos")
    for title, problems in (("set aside", summary.set_aside), ("failed (--retry-failed tries again)", summary.failed)):
        if problems:
            print(f"{title}: {len(problems)}")
            for name, problem in sorted(problems.items()):
                print(f"  {name}: {problem}")
    print(f"ucpe curate report {options.output} shows why")
    if summary.failed:
        sys.exit(1)


def _report(options: ReportOptions) -> None:
    from ucpe.synthesis.curation.report import write_report

    print(write_report(options.curated, options.output, pictures=options.pictures))
