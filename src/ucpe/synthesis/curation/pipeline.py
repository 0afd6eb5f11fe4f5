"""`ucpe curate videos/ -o curated/`: all steps over all videos, each video by itself.

    curated/NAME.parquet                    kept clips of one source video, for `ucpe match`
    curated/clips/                          their files
    curated/.curation/STEP/NAME.parquet     what a step found in the clips of one source video
    curated/.curation/decisions/            every clip with everything that was found and why it was dropped
    curated/.curation/proxies/              small copies of the sources, which may be deleted at any time

A run may be killed at any moment. The same command then does only what is missing and ends with the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import pyarrow as pa
from typing_extensions import Unpack

from ucpe.files import file_fingerprint, fingerprint_of, safe_name
from ucpe.reading import inside
from ucpe.synthesis.curation.exporting import FOLDER, clip_file, curated_row, cut_clip
from ucpe.synthesis.curation.normalization import ScaleNormalization
from ucpe.synthesis.curation.overlay import OverlayCheck
from ucpe.synthesis.curation.projection import ProjectionCheck
from ucpe.synthesis.curation.quality import QualityCheck
from ucpe.synthesis.curation.reading import Reading
from ucpe.synthesis.curation.rotation import RotationCheck
from ucpe.synthesis.curation.segmentation import Segmentation
from ucpe.synthesis.curation.steps import Row, SourceClip, Step, options_of
from ucpe.synthesis.curation.tracking import Tracking
from ucpe.synthesis.curation.vision_language import VisionLanguageFilter
from ucpe.synthesis.rows import CURATED, is_current, read_part, table_of, write_part
from ucpe.video import VIDEO_SUFFIXES
from ucpe.work import Calls, Item, Quarantine, WorkArguments, folder_lock, run

HIDDEN = ".curation"
DECISIONS = "decisions"

VERSION = 4
"""Raised when a step measures differently than before, so that old measurements are made again."""

PLACE = {"id": pa.string(), "parent": pa.string(), "start": pa.int32(), "stop": pa.int32()}
"""Columns of every step's rows: the clip, the clip it was split from, and its frames."""


@dataclass(frozen=True)
class CurationSettings:
    """All steps with their options, in the order in which they run: a step is a file, and a line here."""

    reading: Reading = field(default_factory=Reading)
    segmentation: Segmentation = field(default_factory=Segmentation)
    projection: ProjectionCheck = field(default_factory=ProjectionCheck)
    overlay: OverlayCheck = field(default_factory=OverlayCheck)
    quality: QualityCheck = field(default_factory=QualityCheck)
    tracking: Tracking = field(default_factory=Tracking)
    rotation: RotationCheck = field(default_factory=RotationCheck)
    scale: ScaleNormalization = field(default_factory=ScaleNormalization)
    vision_language: VisionLanguageFilter = field(default_factory=VisionLanguageFilter)

    def steps(self) -> list[Step]:
        """The steps to run; the vision-language filter only if it has an endpoint."""
        steps: list[Step] = [getattr(self, entry.name) for entry in fields(self)]
        return [step for step in steps if step.wanted()]


@dataclass
class CurationSummary:
    """Numbers of videos, clips and kept clips of a run, and what went wrong."""

    videos: int = 0
    clips: int = 0
    kept: int = 0
    set_aside: dict[str, str] = field(default_factory=dict)
    """Damaged files, and what is wrong with them."""
    failed: dict[str, str] = field(default_factory=dict)
    """Videos in which a step failed, and why."""


def curate_videos(
    videos: str | Path | Sequence[str | Path],
    output: str | Path,
    steps: Sequence[Step] | None = None,
    *,
    shard: int = 0,
    shards: int = 1,
    **work: Unpack[WorkArguments],
) -> CurationSummary:
    """Curate a folder of videos, or single files.

    Machines that share the output folder but no cluster take a shard each: videos are dealt out by their names.
    """
    steps = list(steps if steps is not None else CurationSettings().steps())
    if not 0 <= shard < shards:
        raise ValueError(f"shard must be in [0, {shards}), got {shard}")
    sources = [item for item in find_videos(videos) if int(fingerprint_of(item[0]), 16) % shards == shard]
    for step in steps:
        step.check()
    output = Path(output)
    options = [[step.name, options_of(step)] for step in steps]
    items = [
        Item(name, (name, source), fingerprint_of(VERSION, file_fingerprint(source), options))
        for name, source in sources
    ]
    stage = Calls(partial(curate_video, output=output, steps=steps), "videos")
    state = output / HIDDEN / (f"shard-{shard}-of-{shards}" if shards > 1 else "")
    summary = CurationSummary(videos=len(sources))
    with folder_lock(state, "lock"):
        for done in run(stage, items, quarantine=Quarantine(state), **work):
            if done.reason:
                summary.failed[done.item.id] = done.reason
                continue
            clips, kept, problem = done.part
            summary.clips += clips
            summary.kept += kept
            if problem:
                summary.set_aside[done.item.id] = problem
    return summary


def find_videos(videos: str | Path | Sequence[str | Path]) -> list[tuple[str, Path]]:
    """Names and paths of the given files, and of all videos in the given folders and their subfolders."""
    paths = [Path(videos)] if isinstance(videos, str | Path) else [Path(video) for video in videos]
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in VIDEO_SUFFIXES and file.is_file())
            found |= {file.relative_to(path).as_posix(): file for file in files if not file.name.startswith(".")}
        elif path.is_file():
            found[path.name] = path
        else:
            raise FileNotFoundError(f"no video or folder {path}")
    if not found:
        raise ValueError(f"no video in {', '.join(map(str, paths))}; videos end in {', '.join(VIDEO_SUFFIXES)}")
    return sorted(found.items())


def curate_video(video: tuple[str, Path], output: Path, steps: Sequence[Step]) -> tuple[int, int, str]:
    """Take one video through all steps; return its numbers of clips and kept clips, and what is wrong with the file.

    Each step keeps what it found, so nothing is measured twice.
    """
    name, source = video
    part = safe_name(name) + ".parquet"
    hidden = output / HIDDEN
    proxy = hidden / "proxies" / (safe_name(name) + ".mp4")
    proxy_height = next((step.proxy_height for step in steps if isinstance(step, Reading)), Reading.proxy_height)
    rows: list[Row] = [{"id": name, "source": name, "start": 0, "stop": 0, "dropped_by": "", "dropped": ""}]
    fingerprint = fingerprint_of(VERSION, name, file_fingerprint(source))
    for step in steps:
        alive = [row for row in rows if not row["dropped"]]
        places = [[row["start"], row["stop"]] for row in alive]
        fingerprint = fingerprint_of(fingerprint, step.name, options_of(step), places)
        file, schema = hidden / step.name / part, pa.schema({**PLACE, **step.columns})
        if not is_current(file, fingerprint):
            pieces = [
                piece for row in alive for piece in _pieces(row, step.run(SourceClip(source, proxy, proxy_height, row)))
            ]
            write_part(file, table_of(pieces, schema), fingerprint)
        parents = {row["id"]: row for row in alive}
        found = [{**parents[piece["parent"]], **piece} for piece in read_part(file, schema).to_pylist()]
        for row in found:
            row["dropped"] = step.verdict(row)
            row["dropped_by"] = step.name if row["dropped"] else ""
        rows = [row for row in rows if row["dropped"]] + found
    _write_decisions(hidden / DECISIONS / part, rows, steps, fingerprint)
    kept = sorted((row for row in rows if not row["dropped"]), key=lambda row: row["start"])
    _export(output, part, source, kept, fingerprint)
    problem = rows[0].get("problem", "") if len(rows) == 1 else ""
    return 0 if problem else len(rows), len(kept), problem or ""


def _pieces(row: Row, found: list[Row]) -> Iterator[Row]:
    if not found:
        raise ValueError(f"{row['id']}: a step returned no piece of this clip")
    for piece in found:
        start, stop = piece.get("start", row["start"]), piece.get("stop", row["stop"])
        yield {
            **piece,
            "id": f"{row['source']}-{start:06d}-{stop:06d}",
            "parent": row["id"],
            "start": start,
            "stop": stop,
        }


def _write_decisions(file: Path, rows: list[Row], steps: Sequence[Step], fingerprint: str) -> None:
    """Write everything that was found about clips but their poses."""
    columns = {**PLACE, "source": pa.string(), "dropped_by": pa.string(), "dropped": pa.string()}
    for step in steps:
        columns |= {name: kind for name, kind in step.columns.items() if name != "c2w"}
    schema = pa.schema(columns)
    ordered = sorted(rows, key=lambda row: (row["start"], row["stop"]))
    table = table_of([{name: row.get(name) for name in schema.names} for row in ordered], schema)
    settings = [[step.name, {key: getattr(step, key) for key in step.thresholds}] for step in steps]
    stamp = fingerprint_of(fingerprint, settings, [[row["id"], row["dropped"]] for row in ordered])
    if not is_current(file, stamp):
        write_part(file, table.replace_schema_metadata({"steps": json.dumps(settings)}), stamp)


def _export(output: Path, part: str, source: Path, kept: list[Row], fingerprint: str) -> None:
    """Write files and rows of kept clips; delete files of clips that are no longer kept."""
    stamp = fingerprint_of(fingerprint, [row["id"] for row in kept])
    if is_current(output / part, stamp) and all((output / FOLDER / clip_file(source, row)).is_file() for row in kept):
        return
    for row in kept:
        path = output / FOLDER / clip_file(source, row)
        if not path.is_file():
            cut_clip(source, row, path)
    before = read_part(output / part, CURATED, ["video"])["video"].to_pylist() if (output / part).is_file() else []
    rows = [curated_row(source, row) for row in kept]
    write_part(output / part, table_of(rows, CURATED), stamp)
    for video in set(before) - {row["video"] for row in rows}:
        inside(output, video, output / part).unlink(missing_ok=True)
