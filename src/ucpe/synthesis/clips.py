"""Camera-diverse clips (the paper's stage 3): planned from a seed, filmed by any number of workers, safe to kill.

Clips come in groups of four: one path through one source, filmed as the four variants of `augmentation`, each with
its own lens. A clip's bytes depend on the seed, its number and its source alone. In the dataset's folder `.synthesis/`
keeps what a second run of the same command needs to continue.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.files import write_bytes
from ucpe.lenses import FAMILIES, sample_lens
from ucpe.synthesis.augmentation import VARIANTS, augment_rotations, compose_poses
from ucpe.synthesis.dataset import Clip, clip_row, write_metadata
from ucpe.synthesis.sources import Source, Take, open_sources
from ucpe.trajectories import Trajectory

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
    """Lens families to draw from, each as often."""
    test_share: float = 0.0
    """Share of the paths whose clips belong to the split "test"."""

    def __post_init__(self) -> None:
        if unknown := [name for name in self.families if name not in FAMILIES]:
            raise ValueError(f"no lens family {unknown[0]!r}; there are {', '.join(FAMILIES)}")
        if not self.families or self.frames < 1 or self.fps <= 0 or not 0 <= self.test_share <= 1:
            raise ValueError("clips need a lens family, at least one frame, a positive fps, and a test share of 0 to 1")
        if self.height < 2 or self.width < 2 or self.height % 2 or self.width % 2:
            raise ValueError(f"video needs an even height and width, got {self.height} x {self.width}")


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    clips: int
    """Clips in the dataset now."""
    made: int
    """Of them, made in this run."""
    set_aside: dict[str, str]
    """Sources that could not be used, and why."""
    failed: dict[str, str]
    """Clip groups that could not be filmed, and why."""


def synthesize(
    sources: Sequence[str | Path],
    folder: str | Path,
    clips: int,
    settings: ClipSettings | None = None,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Film clips into a dataset folder; run again after any interruption, it continues where it was.

    `progress(done, total)` is called as groups finish. More clips may be asked for later; everything else must stay.
    """
    settings = settings or ClipSettings()
    if clips < 1 or workers < 1:
        raise ValueError(f"clips and workers must be at least 1, got {clips} and {workers}")
    folder = Path(folder)
    state = folder / STATE
    state.mkdir(parents=True, exist_ok=True)
    with _only_run(state):
        places = open_sources(sources)
        problems = _agree(state, [str(name) for name in sources], settings, places, workers)
        usable = [place for place, problem in zip(places, problems) if not problem]
        if not usable:
            raise ValueError("\n  ".join([f"none of the {len(places)} sources can be used:", *problems]))
        for part in (folder, folder / "videos", state, state / "clips"):
            for leftover in part.glob(".*.partial"):
                leftover.unlink()
        groups = range(-(-clips // len(VARIANTS)))
        sizes = {group: min(len(VARIANTS), clips - group * len(VARIANTS)) for group in groups}
        waiting = [
            group for group in groups if not all(_finished(folder, *key) for key in _members(group, sizes[group]))
        ]
        before = sum(_finished(folder, *key) for group in groups for key in _members(group, sizes[group]))
        jobs = [(usable[group % len(usable)], group, group // len(usable), sizes[group]) for group in waiting]
        failed: dict[str, str] = {}
        for done, (group, reason) in enumerate(_run(jobs, folder, settings, workers), start=1):
            if reason:
                failed[f"group {group:06d} ({usable[group % len(usable)].name})"] = reason
            if progress:
                progress(len(groups) - len(waiting) + done, len(groups))
        rows = [
            json.loads(record_path(folder, name).read_text(encoding="utf-8"))["row"]
            for group in groups
            for name, variant in _members(group, sizes[group])
            if _finished(folder, name, variant)
        ]
        write_metadata(folder, rows)
        set_aside = {place.name: problem for place, problem in zip(places, problems) if problem}
        return Summary(len(rows), len(rows) - before, set_aside, failed)


def film_group(source: Source, folder: Path, settings: ClipSettings, group: int, number: int, size: int) -> None:
    """Film the missing clips of one group and write down what they are."""
    path = source.plan(number, settings.frames, settings.fps, np.random.default_rng([settings.seed, group]))
    test = np.random.default_rng([settings.seed, group, 1]).random() < settings.test_share
    takes, clips = [], []
    for place, (name, variant) in enumerate(_members(group, size)):
        if _finished(folder, name, variant):
            continue
        draw = torch.Generator().manual_seed(
            int(np.random.default_rng([settings.seed, group, 2, place]).integers(2**62))
        )
        family, lens = sample_lens(draw, list(settings.families))
        rotations = augment_rotations(path.rotations, variant, draw)
        video = folder / "videos" / f"{name}.mp4"
        takes.append(Take(video, lens, rotations))
        clips.append(
            Clip(
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
    captions = source.film(path, takes, settings.height, settings.width, settings.fps)
    for clip, caption in zip(clips, captions):
        row = {**clip_row(clip, settings.seed, path.start), "caption": caption}
        write_record(folder, clip.id, row)


def write_record(folder: Path, name: str, row: dict[str, Any]) -> None:
    """Write down a clip whose video is complete."""
    size = (folder / row["file_name"]).stat().st_size
    write_bytes(record_path(folder, name), json.dumps({"bytes": size, "row": row}).encode())


def _run(
    jobs: Sequence[tuple[Source, int, int, int]], folder: Path, settings: ClipSettings, workers: int
) -> Iterator[tuple[int, str]]:
    """(group, reason it failed or "") as groups finish."""
    arguments = [(source, folder, settings, group, number, size) for source, group, number, size in jobs]
    if workers == 1 or len(jobs) <= 1:
        yield from map(_attempt, arguments)
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"), initializer=_one_thread) as pool:
        pending = {pool.submit(_attempt, job) for job in arguments}
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            try:
                results = [future.result() for future in finished]
            except BrokenProcessPool:
                raise OSError("a worker was killed (out of memory?); run the same command again to continue") from None
            yield from results


def _attempt(job: tuple[Source, Path, ClipSettings, int, int, int]) -> tuple[int, str]:
    source, folder, settings, group, number, size = job
    try:
        film_group(source, folder, settings, group, number, size)
    except (ValueError, OSError) as error:
        return group, str(error)
    return group, ""


def _one_thread() -> None:
    import cv2

    torch.set_num_threads(1)
    cv2.setNumThreads(1)


def _members(group: int, size: int) -> list[tuple[str, Any]]:
    """Clip names and variants of a group."""
    return [(f"{group:06d}-{variant}", variant) for variant in VARIANTS[:size]]


def record_path(folder: Path, name: str) -> Path:
    """Where a finished clip is written down."""
    return folder / STATE / "clips" / f"{name}.json"


def _finished(folder: Path, name: str, variant: str) -> bool:
    """Whether a clip's record and its whole video are there."""
    record, video = record_path(folder, name), folder / "videos" / f"{name}.mp4"
    try:
        return json.loads(record.read_text(encoding="utf-8"))["bytes"] == video.stat().st_size
    except FileNotFoundError:
        return False


def _agree(state: Path, names: list[str], settings: ClipSettings, places: Sequence[Source], workers: int) -> list[str]:
    """Why each source cannot be used ("" if it can), as the first run found; ValueError if this is another dataset."""
    path = state / "plan.json"
    known = [{"name": place.name, "categories": list(place.categories)} for place in places]
    now = {"sources": names, **json.loads(json.dumps(asdict(settings)))}
    if path.is_file():
        plan = json.loads(path.read_text(encoding="utf-8"))
        if changed := [key for key, value in now.items() if plan["asked"].get(key) != value]:
            key = changed[0]
            raise ValueError(
                f"{state.parent}: holds clips made with {key} {plan['asked'].get(key)!r}, now {now[key]!r}; choose "
                "another folder, or the same settings"
            )
        if plan["sources"] != known:
            raise ValueError(f"{state.parent}: the footage it was begun with has changed; choose another folder")
        return plan["problems"]
    with ThreadPoolExecutor(workers) as pool:
        problems = list(pool.map(_problem, places))
    plan = {"asked": now, "problems": problems, "sources": known}
    write_bytes(path, json.dumps(plan, indent=1).encode())
    return problems


def _problem(source: Source) -> str:
    """Why nothing can be filmed in a source, or "" if it can."""
    try:
        source.check()
    except (ValueError, OSError) as error:
        return str(error)
    return ""


@contextmanager
def _only_run(state: Path) -> Iterator[None]:
    """Keep a second run out of the same folder; the lock is gone with the process, however it ends."""
    import fcntl

    with open(state / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{state.parent}: another run is writing here (process lock {lock.name})") from None
        yield
