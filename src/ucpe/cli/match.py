"""`ucpe match`: transfer realistic rotations to curated clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ucpe.cli.parsing import parse
from ucpe.synthesis.motion.pipeline import MatchSettings
from ucpe.work import WorkOptions, progress_bar

USAGE = """usage: ucpe match motions SOURCE ... -o motions/           candidates from videos, trajectory files and moves
       ucpe match CURATED --motions motions/ -o matches.parquet
       ucpe match show CLIP --matches matches.parquet --curated CURATED --motions motions/ -o clip.png

`ucpe synthesize matches.parquet` films the matches; CURATED must lie in the folder of that file or below it.
`ucpe match motions --help` and so on list every option; `ucpe match CURATED --help` lists those of matching."""


@dataclass
class MotionOptions:
    """Collect candidate motions. The same command again continues where the last one stopped."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders in the CameraBench layout (videos and .jsonl labels), folders of trajectory files, or `moves`."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("motions")
    """Folder for the motions."""
    poses: Literal["vipe", "pycolmap"] = "vipe"
    """Where the poses of videos come from."""
    results: Path | None = None
    """Folder of ViPE's results. [default: the videos' folder]"""
    up: Path | None = None
    """Up vectors of first frames: a .jsonl, or a folder of calibrations. [default: up.jsonl in the videos' folder]"""
    calibrator: str | None = None
    """Calibrator of `ucpe evaluate`, such as geocalib, that estimates up where it is not given."""
    fps: float | None = None
    """Frames per second of the videos, if the videos themselves are missing."""
    xfov: float | None = None
    """Horizontal field of view of the videos in degrees, if known, for pycolmap."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)


@dataclass
class MatchOptions:
    """Match curated clips with motions, choose diverse matches, and transfer rotations. Safe to kill and run again."""

    curated: Annotated[Path, tyro.conf.Positional]
    """Curated clips: a Parquet file, or a folder of them."""
    motions: Path
    """Folder that `ucpe match motions` wrote."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("matches.parquet")
    """Matches to write; intermediate rows are kept beside them, in a folder ending in .parts."""
    figure: Path | None = None
    """Picture of the categories before and after (.png or .svg)."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)
    settings: Annotated[MatchSettings, tyro.conf.arg(name="")] = field(default_factory=MatchSettings)


@dataclass
class ShowOptions:
    """Draw a clip's matches from above."""

    clip: Annotated[str, tyro.conf.Positional]
    """Id of a curated clip."""
    matches: Path
    """File that `ucpe match` wrote."""
    curated: Path
    """The clips it was made from."""
    motions: Path
    """The motions it was made from."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("match.png")
    """Picture to write (.png or .svg)."""


def main(arguments: list[str]) -> None:
    """Run `ucpe match`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] == "motions":
        _motions(parse(MotionOptions, arguments[1:], "ucpe match motions"))
    elif arguments[0] == "show":
        _show(parse(ShowOptions, arguments[1:], "ucpe match show"))
    else:
        _match(parse(MatchOptions, arguments, "ucpe match"))


def _motions(options: MotionOptions) -> None:
    from ucpe.synthesis.motion.candidates import extract_motions

    sources = [_source(name, options) for name in options.sources]
    with progress_bar() as show:
        counts = extract_motions(sources, options.output, progress=show, **vars(options.work))
    print(f"{options.output}  {counts.pop('', 0)} motions")
    for reason, count in counts.most_common():
        print(f"  {count} not used: {reason}")


def _source(name: str, options: MotionOptions) -> Any:
    from ucpe.synthesis.motion.candidates import CameraBench, MoveSource, TrajectoryFolder, read_up_vectors
    from ucpe.synthesis.motion.poses import Pycolmap, VipeResults

    folder = Path(name)
    if name == "moves" and not folder.is_dir():
        return MoveSource()
    if not folder.is_dir():
        raise ValueError(f"no folder {name}: give folders of videos with labels, of trajectory files, or `moves`")
    beside = folder / "up.jsonl"
    path = options.up or (beside if beside.is_file() else None)
    up_vectors = read_up_vectors(path) if path else {}
    if not CameraBench.recognises(folder):
        return TrajectoryFolder(folder, up_vectors)
    if path is None and options.calibrator is None:
        raise ValueError(
            f"{name}: videos need the up vectors of their first frames: --up FILE, or {beside}, or --calibrator NAME"
        )
    backend = Pycolmap(options.xfov) if options.poses == "pycolmap" else VipeResults(options.results or folder)
    estimator = None
    if options.calibrator is not None:
        from ucpe.evaluation.estimators import EstimatorChoice
        from ucpe.evaluation.estimators.first_frame import UpOfFirstFrame

        estimator = UpOfFirstFrame(EstimatorChoice(options.calibrator).calibrator())
    return CameraBench(folder, backend, up_vectors, options.fps, estimator)


def _match(options: MatchOptions) -> None:
    from ucpe.synthesis.motion.figures import draw_balance
    from ucpe.synthesis.motion.pipeline import match_clips

    with progress_bar() as show:
        folders = (options.curated, options.motions, options.output)
        summary = match_clips(*folders, options.settings, progress=show, **vars(options.work))
    print(f"motions    {summary.motions} used{_reasons(summary.dropped_motions)}")
    print(f"clips      {summary.clips}{_reasons(summary.dropped_clips)}")
    for split, count in summary.chosen.items():
        print(f"{split:<10} {count} matches")
    if options.figure is not None:
        counted = {"clips before selection": summary.before, "matches after selection": summary.after}
        draw_balance(counted, options.figure)
        print(options.figure)
    print(options.output)


def _show(options: ShowOptions) -> None:
    from ucpe.synthesis.motion.figures import draw_matches

    draw_matches(options.matches, options.curated, options.motions, options.clip, options.output)
    print(options.output)


def _reasons(counts: Mapping[str, int]) -> str:
    return "".join(f", {count} not: {reason}" for reason, count in sorted(counts.items()))
