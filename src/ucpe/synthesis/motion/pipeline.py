"""`ucpe match curated/ --motions motions/ -o matches.parquet`: match, select and transfer, part by part.

Beside the output, `matches.parts/` keeps the best motions of every clip, one file per curated part. After any
interruption the same command does only what is missing or outdated, and the result is the same.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import torch
from torch import Tensor
from typing_extensions import Unpack

from ucpe.files import file_fingerprint, fingerprint_of, safe_name
from ucpe.synthesis.motion.candidates import JITTERY_SHARE, Motion, read_motions
from ucpe.synthesis.motion.matching import BEST, match
from ucpe.synthesis.motion.selection import (
    TEST_LIMITS,
    Candidates,
    ClipFacts,
    Limits,
    Scoring,
    category_counts,
    is_test,
    select,
)
from ucpe.synthesis.motion.transfer import transfer_rotations
from ucpe.synthesis.motion.window import Window
from ucpe.synthesis.rows import (
    CURATED,
    CURATED_FOLDER,
    MATCHES,
    PAIRS,
    flat_poses,
    is_current,
    part_files,
    poses_of_row,
    read_part,
    rows_with,
    table_of,
    write_part,
)
from ucpe.trajectories import Trajectory
from ucpe.work import Item, Progress, Quarantine, Stage, WorkArguments, complete, folder_lock, run

SPLITS = ("train", "test")
FACTS = ("id", "source", "quality", "watermark", "rotation_score", "categories", "motion_magnitude")


@dataclass(frozen=True)
class MatchSettings:
    """Every threshold of stage 2; defaults are the paper's where it gives them."""

    window: Window = field(default_factory=Window)
    best: int = BEST
    """Number of motions kept for each clip before selection."""
    jittery_share: float = JITTERY_SHARE
    """Share of each collection's motions to discard: the ones that turn fastest."""
    scoring: Scoring = field(default_factory=Scoring)
    train: Limits = field(default_factory=Limits)
    test: Limits = TEST_LIMITS
    test_share: float = 0.1
    """Share of source videos reserved for testing, and of motions from collections without splits."""
    collection_splits: bool = True
    """Keep a collection's own splits, if it has them."""
    seed: int = 0
    """Seed of the split; another seed draws another split."""

    def __post_init__(self) -> None:
        if self.best < 1 or not 0 <= self.test_share <= 1:
            raise ValueError(f"best must be at least 1 and test share in [0, 1], got {self.best}, {self.test_share:g}")


@dataclass(frozen=True)
class MatchingSummary:
    """What a run used and chose."""

    motions: int
    dropped_motions: Counter[str]
    clips: int
    dropped_clips: Counter[str]
    chosen: dict[str, int]
    """Number of matches in each split."""
    before: dict[str, int]
    """Number of clips in each category."""
    after: dict[str, int]
    """Number of chosen matches in each category."""


def match_clips(
    curated: str | Path,
    motions: str | Path,
    output: str | Path,
    settings: MatchSettings | None = None,
    **work: Unpack[WorkArguments],
) -> MatchingSummary:
    """Match curated clips with motions and write the chosen matches with their rotations."""
    settings, output = settings or MatchSettings(), Path(output)
    parts = part_files(Path(curated))
    library = MotionLibrary.read(motions, settings)
    pair_files = [_pair_file(output, Path(curated), part) for part in parts]
    used = [settings.window, settings.best, settings.test_share, settings.seed, library.fingerprint()]
    items = [
        Item(file.name, (part, file), fingerprint_of(file_fingerprint(part), used))
        for part, file in zip(parts, pair_files)
    ]
    stage = Matching(Path(motions), settings, library)
    state = output.with_suffix(".parts")
    with folder_lock(state):
        complete(run(stage, items, quarantine=Quarantine(state), **work))
    clips = _Clips.read(parts, settings)
    pairs, dropped = _read_pairs(pair_files, clips, library)
    rows: dict[int, str] = {}
    for split, limits in zip(SPLITS, (settings.train, settings.test)):
        own = np.flatnonzero(clips.is_test[pairs.clip] == (split == "test"))
        chosen = own[select(pairs.take(own), clips.facts, limits)]
        rows |= dict.fromkeys(chosen.tolist(), split)
    dropped["turns too much"] += int(np.isnan(clips.facts.score).sum())
    table = _transfer(parts, pairs, rows, clips, library, settings, work.get("progress"))
    home = os.path.relpath(Path(curated).resolve(), output.resolve().parent)
    write_part(output, table.replace_schema_metadata({CURATED_FOLDER: home.encode()}))
    places = [clips.facts.categories[clip] for clip in pairs.clip[list(rows)]] if rows else []
    return MatchingSummary(
        motions=len(library.motions),
        dropped_motions=library.dropped,
        clips=len(clips.ids),
        dropped_clips=+dropped,
        chosen={split: list(rows.values()).count(split) for split in SPLITS},
        before=category_counts(clips.facts.categories),
        after=category_counts(places),
    )


@dataclass(frozen=True)
class MotionLibrary:
    """Candidate motions at the window's frames, with their splits."""

    motions: Sequence[Motion]
    is_test: np.ndarray  # (M,) bool
    dropped: Counter[str]

    @staticmethod
    def read(folder: str | Path, settings: MatchSettings) -> MotionLibrary:
        """The motions of a folder that are long enough."""
        found, dropped = read_motions(folder, settings.jittery_share)
        motions = []
        for motion in found:
            try:
                motions.append(Motion(motion.id, motion.split, settings.window.of_motion(motion.trajectory)))
            except ValueError:
                dropped["too short"] += 1
        if not motions:
            reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            raise ValueError(f"{folder}: no motion is left ({reasons or 'there was none'})")
        own = [motion.split if settings.collection_splits else "" for motion in motions]
        test = [
            split == "test" if split else is_test(motion.id, settings.test_share, settings.seed)
            for split, motion in zip(own, motions)
        ]
        return MotionLibrary(motions, np.array(test), dropped)

    def positions(self, test: bool) -> tuple[np.ndarray, Tensor]:
        """Indices (S,) of one split's motions, and their positions (S, N, 3)."""
        rows = np.flatnonzero(self.is_test == test)
        paths = [self.motions[row].trajectory.positions for row in rows.tolist()]
        return rows, torch.stack(paths) if paths else torch.empty(0)

    def fingerprint(self) -> str:
        """Fingerprint of these motions and their splits."""
        digest = hashlib.sha256(self.is_test.tobytes())
        for motion in self.motions:
            digest.update(motion.id.encode() + motion.trajectory.positions.numpy().tobytes())
        return digest.hexdigest()


@dataclass
class Matching(Stage):
    """Finds the best motions of every clip of a curated part; each worker reads the motions once."""

    motions: Path
    settings: MatchSettings
    library: MotionLibrary | None
    name = "matching"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "library": None}

    def setup(self) -> None:
        """Read the motions."""
        self.library = self.library or MotionLibrary.read(self.motions, self.settings)

    def find(self, item: Item) -> bool | None:
        """True if the matches are there and current, else None."""
        return is_current(item.task[1], item.fingerprint) or None

    def finish(self, item: Item) -> bool:
        """Match the clips of a part and write what was found."""
        assert self.library is not None
        part, file = item.task
        write_part(file, _match_part(part, self.library, self.settings), item.fingerprint)
        return True


def _match_part(part: Path, library: MotionLibrary, settings: MatchSettings) -> pa.Table:
    """The best motions of every clip of a part."""
    table = read_part(part, CURATED, ["id", "source", "c2w", "fps"])
    names, sources = table["id"].to_pylist(), table["source"].to_pylist()
    positions, dropped = window_positions(part, table, settings.window)
    test = np.array([is_test(source, settings.test_share, settings.seed) for source in sources], bool)
    usable = np.array([not reason for reason in dropped], bool)
    rows: list[dict[str, Any]] = [
        {"clip": name, "split": SPLITS[int(side)], "dropped": reason, "motions": [], "rmse": [], "scale": [], "yaw": []}
        for name, side, reason in zip(names, test, dropped)
    ]
    for side in (False, True):
        chosen = np.flatnonzero(usable & (test == side))
        numbers, motions = library.positions(side)
        if not len(chosen):
            continue
        if not len(numbers):
            for row in chosen:
                rows[row]["dropped"] = f"no motion for the {SPLITS[int(side)]} split"
            continue
        found = match(positions[chosen], motions, settings.best)
        for place, row in enumerate(chosen):
            rows[row]["motions"] = [library.motions[numbers[index]].id for index in found.motion[place].tolist()]
            for name in ("rmse", "scale", "yaw"):
                rows[row][name] = getattr(found, name)[place].numpy()
    return table_of(rows, PAIRS)


def window_positions(part: Path, table: pa.Table, window: Window) -> tuple[Tensor, list[str]]:
    """Positions (P, N, 3) float32 of clips at the window's frames, and why each cannot be used ("" if it can)."""
    poses, starts = flat_poses(table["c2w"])
    rates = table["fps"].to_numpy()
    positions = np.zeros((len(rates), window.frames, 3), np.float32)
    dropped = [""] * len(rates)
    for row, (start, end, fps) in enumerate(zip(starts[:-1], starts[1:], rates)):
        if not (math.isfinite(fps) and fps > 0):
            raise ValueError(f"{part}: fps of clip {table['id'][row].as_py()!r} must be a positive number, got {fps}")
        frames = window.clip_frames(fps)
        if frames[-1] >= end - start:
            dropped[row] = "shorter than the window"
            continue
        own = poses[start + frames][:, [3, 7, 11]]
        if np.isfinite(own).all():
            positions[row] = own - own[0]
        else:
            dropped[row] = "poses are not finite"
    return torch.from_numpy(positions), dropped


@dataclass(frozen=True)
class _Clips:
    """All clips in order of their ids, without their poses."""

    ids: list[str]
    facts: ClipFacts
    is_test: np.ndarray  # (P,) bool

    @staticmethod
    def read(parts: Sequence[Path], settings: MatchSettings) -> _Clips:
        tables = []
        for part in parts:
            table = read_part(part, CURATED, FACTS)
            for name, low, high in (
                ("quality", 0.0, 1.0),
                ("watermark", 0.0, 1.0),
                ("rotation_score", 0.0, 180.0),
                ("motion_magnitude", 0.0, math.inf),
            ):
                values = table[name].to_numpy()
                if wrong := np.flatnonzero(~((values >= low) & (values <= high) & np.isfinite(values))).tolist():
                    clip = table["id"][wrong[0]].as_py()
                    raise ValueError(
                        f"{part}: {name} of clip {clip!r} must be in [{low:g}, {high:g}], got {values[wrong[0]]}"
                    )
            tables.append(table)
        table = pa.concat_tables(tables).sort_by("id")
        ids = table["id"].to_pylist()
        if twice := [name for name, after in itertools.pairwise(ids) if name == after]:
            raise ValueError(f"clip {twice[0]!r} is in the curated clips more than once")
        score = settings.scoring.score(*(table[name].to_numpy() for name in ("quality", "watermark", "rotation_score")))
        facts = ClipFacts(score, table["motion_magnitude"].to_numpy(), table["categories"].to_pylist())
        sources = table["source"].to_pylist()
        known = {source: is_test(source, settings.test_share, settings.seed) for source in set(sources)}
        return _Clips(ids, facts, np.array([known[source] for source in sources], bool))


@dataclass(frozen=True)
class _Pairs(Candidates):
    scale: np.ndarray  # (C,)
    yaw: np.ndarray  # (C,) degrees


def _read_pairs(files: Sequence[Path], clips: _Clips, library: MotionLibrary) -> tuple[_Pairs, Counter[str]]:
    """All candidate matches, and how many clips have none for each reason."""
    known_clips, known_motions = pa.array(clips.ids), pa.array([motion.id for motion in library.motions], pa.string())
    dropped: Counter[str] = Counter()
    columns: list[list[np.ndarray]] = []
    for file in files:
        table = read_part(file, PAIRS)
        dropped.update(reason for reason in table["dropped"].to_pylist() if reason)
        counts = compute.list_value_length(table["motions"]).to_numpy()
        clip = np.repeat(compute.index_in(table["clip"], value_set=known_clips).to_numpy(), counts)
        motion = compute.index_in(compute.list_flatten(table["motions"]), value_set=known_motions).to_numpy()
        numbers = [compute.list_flatten(table[name]).to_numpy() for name in ("rmse", "scale", "yaw")]
        columns.append([clip.astype(np.int64), motion.astype(np.int64), *numbers])
    clip, motion, rmse, scale, yaw = (np.concatenate(column) for column in zip(*columns))
    return _Pairs(clip, motion, rmse, scale, yaw), dropped


def _transfer(
    parts: Sequence[Path],
    pairs: _Pairs,
    chosen: dict[int, str],
    clips: _Clips,
    library: MotionLibrary,
    settings: MatchSettings,
    progress: Progress | None,
) -> pa.Table:
    """The chosen matches with their rotations, ordered by clip and then by RMSE."""
    by_clip: dict[str, list[int]] = {}
    for row in chosen:
        by_clip.setdefault(clips.ids[pairs.clip[row]], []).append(row)
    rows: list[dict[str, Any]] = []
    for done, part in enumerate(parts, start=1):
        table = rows_with(part, CURATED, "id", by_clip, ["id", "c2w", "fps"])
        for index, name in enumerate(table["id"].to_pylist()):
            frames = settings.window.clip_frames(table["fps"][index].as_py())
            poses = poses_of_row(table["c2w"], index)[frames]
            try:
                erp = Trajectory(poses, library.motions[0].trajectory.lens, settings.window.fps)
            except ValueError as error:
                raise ValueError(f"{part}, clip {name!r}: {error}") from None
            for row in by_clip[name]:
                motion, yaw = library.motions[pairs.motion[row]], float(pairs.yaw[row])
                rotations = transfer_rotations(erp.c2w, motion.trajectory, yaw)
                rows.append(
                    {
                        "clip": name,
                        "motion": motion.id,
                        "split": chosen[row],
                        "score": float(clips.facts.score[pairs.clip[row]]),
                        "rmse": float(pairs.rmse[row]),
                        "scale": float(pairs.scale[row]),
                        "yaw": yaw,
                        "fps": erp.fps,
                        "frames": frames.tolist(),
                        "rotations": list(rotations.reshape(-1, 9).float().numpy()),
                    }
                )
        if progress:
            progress("transferring", done, len(parts))
    rows.sort(key=lambda row: (row["clip"], row["rmse"], row["motion"]))
    return table_of(rows, MATCHES)


def _pair_file(output: Path, curated: Path, part: Path) -> Path:
    name = part.relative_to(curated).as_posix() if curated.is_dir() else part.name
    return output.with_suffix(".parts") / f"{safe_name(name.removesuffix('.parquet'))}.parquet"
