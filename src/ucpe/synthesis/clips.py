"""Camera-diverse clips (the paper's stage 3): planned from a seed, filmed by any number of workers, safe to kill.

Clips come in groups of four: one path through one source, filmed as the four variants of `augmentation`, each with
its own lens. A clip's bytes depend on the seed, its number and its source alone. In the dataset's folder `.synthesis/`
keeps what a second run of the same command needs to continue.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack

from ucpe.files import file_fingerprint, fingerprint_of, write_file
from ucpe.lenses import FAMILIES, sample_lens
from ucpe.synthesis.augmentation import VARIANTS, Panning, augment_rotations, compose_poses
from ucpe.synthesis.dataset import DatasetClip, clip_row, write_metadata
from ucpe.synthesis.footage import Shot
from ucpe.synthesis.sources import PanoramaSource, Source, open_sources
from ucpe.trajectories import Trajectory
from ucpe.work import Item, Quarantine, Stage, WorkArguments, folder_lock, run

STATE = ".synthesis"


@dataclass(frozen=True)
class ClipSettings:
    """What the clips of a dataset have in common. The same settings and sources always give the same dataset."""

    seed: int = 0
    frames: int = 81
    height: int = 480
    width: int = 832
    fps: float = 16.0
    families: tuple[str, ...] = tuple(FAMILIES)
    """Lens families to draw from, all equally often."""
    test_share: float = 0.0
    """Share of the paths whose clips belong to the split "test"."""
    panning: Panning = "paper"
    """How far panning curves turn. "paper": both ends lie within 90, 40 and 30 degrees of yaw, pitch and roll.
    "released", as in the authors' code: the start lies within these limits, and so does the turn from there."""

    def __post_init__(self) -> None:
        if unknown := [name for name in self.families if name not in FAMILIES]:
            raise ValueError(f"no lens family {unknown[0]!r}; there are {', '.join(FAMILIES)}")
        if not self.families or self.frames < 1 or self.fps <= 0 or not 0 <= self.test_share <= 1:
            raise ValueError("clips need a lens family, at least one frame, a positive fps, and a test share of 0 to 1")
        if self.panning not in ("paper", "released"):
            raise ValueError(f"panning is 'paper' or 'released', got {self.panning!r}")
        if self.height < 2 or self.width < 2 or self.height % 2 or self.width % 2:
            raise ValueError(f"video needs an even height and width, got {self.height} x {self.width}")


@dataclass(frozen=True)
class FilmingSummary:
    """What a run did."""

    clips: int
    """Number of clips in the dataset now."""
    made: int
    """Number of clips made in this run."""
    set_aside: dict[str, str]
    """Sources that could not be used, and why."""
    failed: dict[str, str]
    """Groups of clips that could not be filmed, and why."""


def synthesize(
    sources: Sequence[str | Path],
    folder: str | Path,
    clips: int,
    settings: ClipSettings | None = None,
    **work: Unpack[WorkArguments],
) -> FilmingSummary:
    """Film clips into a dataset folder; after any interruption the same call continues where it was.

    A later call may ask for more clips; everything else must stay the same.
    """
    settings = settings or ClipSettings()
    if clips < 1:
        raise ValueError(f"clips must be at least 1, got {clips}")
    folder = Path(folder)
    state = folder / STATE
    places = open_sources(sources)
    with folder_lock(state, "lock"):
        problems = _agree(state, [str(name) for name in sources], settings, places, work.get("workers"))
        usable = [place for place, problem in zip(places, problems) if not problem]
        if not usable:
            raise ValueError("\n  ".join([f"none of the {len(places)} sources can be used:", *problems]))
        groups = [
            Group(usable[number % len(usable)], number, number // len(usable), min(len(VARIANTS), clips - start))
            for number, start in enumerate(range(0, clips, len(VARIANTS)))
        ]
        stage = Filming(folder, settings)
        made, failed = 0, {}
        for done in run(
            stage,
            [Item(f"{group.number:06d}", group, fingerprint_of(group.size, asdict(settings))) for group in groups],
            quarantine=Quarantine(state),
            **work,
        ):
            if done.reason:
                failed[f"group {done.item.id} ({done.item.task.source.name})"] = done.reason
            made += 0 if done.before or done.reason else done.part
        rows = (row for group in groups for row in stage.rows(group) if row is not None)
        count = write_metadata(folder, rows)
        set_aside = {place.name: problem for place, problem in zip(places, problems) if problem}
        return FilmingSummary(count, made, set_aside, failed)


@dataclass(frozen=True)
class Group:
    """The clips along one path through one source."""

    source: Source
    number: int
    path: int
    """Index of the path among the source's paths."""
    size: int
    """Number of variants that are filmed."""

    def members(self) -> list[tuple[str, Any]]:
        """Names and variants of the clips."""
        return [(f"{self.number:06d}-{variant}", variant) for variant in VARIANTS[: self.size]]


@dataclass
class Filming(Stage):
    """Films a group of clips; its part is a record for each of them."""

    folder: Path
    settings: ClipSettings
    name = "groups of four clips"

    def rows(self, group: Group) -> list[dict[str, Any] | None]:
        """The rows of a group's clips, None for unfinished ones."""
        return [finished_row(self.folder, name) for name, _ in group.members()]

    def find(self, item: Item) -> int | None:
        """The number of clips, if all are finished."""
        return item.task.size if all(self.rows(item.task)) else None

    def process(self, group: Group) -> int:
        """Film the missing clips of a group; return their number."""
        return film_group(group, self.folder, self.settings)


class Checking(Stage):
    """Says why nothing can be filmed in a source, or ""."""

    name = "sources"
    waits = True

    def process(self, source: Source) -> str:
        """Check one source."""
        try:
            source.check()
        except (ValueError, OSError) as error:
            return str(error)
        return ""


def film_group(group: Group, folder: Path, settings: ClipSettings) -> int:
    """Film the missing clips of one group and write their records; return their number."""
    source, seed = group.source, [settings.seed, group.number]
    path = source.plan(group.path, settings.frames, settings.fps, np.random.default_rng(seed))
    test = np.random.default_rng([*seed, 1]).random() < settings.test_share
    shots, clips = [], []
    for place, (name, variant) in enumerate(group.members()):
        if finished_row(folder, name) is not None:
            continue
        draw = torch.Generator().manual_seed(int(np.random.default_rng([*seed, 2, place]).integers(2**62)))
        family, lens = sample_lens(draw, list(settings.families))
        rotations = augment_rotations(path.rotations, variant, draw, settings.panning)
        video = folder / "videos" / f"{name}.mp4"
        shots.append(Shot(video, lens, rotations, settings.height, settings.width, settings.fps))
        clips.append(
            DatasetClip(
                id=name,
                video=video,
                caption="",
                camera=Trajectory(compose_poses(path.erp, rotations, path.near_depth), lens, settings.fps),
                family=family,
                source=source.name,
                split="test" if test else "train",
                variant=variant,
                near_depth=path.near_depth,
                height=settings.height,
                width=settings.width,
                categories=path.categories,
                scores=dict(source.scores),
            )
        )
    captions = source.film(path, shots)
    for clip, caption in zip(clips, captions):
        row = {**clip_row(clip, settings.seed, path.start), "caption": caption}
        write_record(folder, clip.id, row)
    return len(clips)


def write_record(folder: Path, name: str, row: dict[str, Any]) -> None:
    """Write the record of a clip whose video is complete."""
    size = (folder / row["file_name"]).stat().st_size
    write_file(record_path(folder, name), json.dumps({"bytes": size, "row": row}).encode())


def record_path(folder: Path, name: str) -> Path:
    """The file that records a finished clip."""
    return folder / STATE / "clips" / f"{name}.json"


def finished_row(folder: Path, name: str) -> dict[str, Any] | None:
    """The row of a clip whose record and whole video are there, else None."""
    try:
        record = json.loads(record_path(folder, name).read_text(encoding="utf-8"))
        whole = record["bytes"] == (folder / "videos" / f"{name}.mp4").stat().st_size
    except FileNotFoundError:
        return None
    return record["row"] if whole else None


def _agree(
    state: Path, names: list[str], settings: ClipSettings, places: Sequence[Source], workers: int | None
) -> list[str]:
    """Why each source cannot be used ("" if it can), as the first run found; ValueError if anything changed since."""
    path = state / "plan.json"
    known = [
        {"name": place.name, "categories": list(place.categories)}
        | ({"file": file_fingerprint(place.video)} if isinstance(place, PanoramaSource) else {})
        for place in places
    ]
    now = {"sources": names, **json.loads(json.dumps(asdict(settings)))}
    if path.is_file():
        plan = json.loads(path.read_text(encoding="utf-8"))
        if changed := [key for key, value in now.items() if plan["asked"].get(key) != value]:
            key = changed[0]
            raise ValueError(
                f"{state.parent}: holds clips made with {key} {plan['asked'].get(key)!r}, not {now[key]!r}; choose "
                "another folder, or the same settings"
            )
        if plan["sources"] != known:
            raise ValueError(f"{state.parent}: the footage it was begun with has changed; choose another folder")
        return plan["problems"]
    checks = [Item(str(number), place) for number, place in enumerate(places)]
    found = {done.item.id: done.part for done in run(Checking(), checks, workers=workers)}
    problems = [found[check.id] for check in checks]
    plan = {"asked": now, "problems": problems, "sources": known}
    write_file(path, json.dumps(plan, indent=1).encode())
    return problems
