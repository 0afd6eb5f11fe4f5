"""Candidate rotations (supplement A.3): `ucpe match motions SOURCE ... -o motions/`.

A source lists entries (videos, files, named moves) and gives the gravity-aligned trajectory of each. Every entry
becomes one Parquet part; one that is not a candidate keeps its part, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from typing_extensions import Unpack

from ucpe.files import file_fingerprint, fingerprint_of, safe_name
from ucpe.reading import read_json, read_json_lines
from ucpe.synthesis.motion.poses import PoseBackend
from ucpe.synthesis.rows import (
    MOTIONS,
    is_current,
    part_files,
    pose_column,
    poses_of_row,
    read_part,
    table_of,
    write_part,
)
from ucpe.trajectories import DEFAULT_LENS, NAMED_MOVES, Trajectory
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles
from ucpe.video import VIDEO_SUFFIXES
from ucpe.work import Item, Quarantine, Stage, WorkArguments, folder_lock, run

TRAJECTORY_SUFFIXES = (".txt", ".json", ".npy", ".npz")

UNWANTED_WORDS = ("zoom",)
"""A motion with one of these words in its labels changes its intrinsics, so it is not a candidate."""

JITTERY_SHARE = 0.2
"""Share of a collection's motions that is discarded as jittery: those with the largest rotational velocity."""


@dataclass(frozen=True)
class Entry:
    """One motion that a source can give."""

    name: str
    labels: tuple[str, ...] = ()
    split: Literal["", "train", "test"] = ""
    file: Path | None = None


class MotionSource(Protocol):
    """A collection of motions."""

    name: str
    exact: bool
    """Whether its poses are computed rather than estimated, so that none is jittery."""

    def entries(self) -> list[Entry]:
        """All motions that it can give, under unique names."""

    def trajectory(self, entry: Entry) -> Trajectory:
        """Gravity-aligned motion of an entry; ValueError says why there is none."""

    def describe(self, entry: Entry) -> list[Any]:
        """What determines the trajectory of an entry, plain enough for JSON."""


class UpEstimator(Protocol):
    """A single-image calibration that finds the up direction."""

    def up(self, video: Path) -> Sequence[float]:
        """Up direction (3,) of a video's first frame in its camera's frame; ValueError says why there is none."""

    def describe(self) -> list[Any]:
        """What determines the result, plain enough for JSON."""


class CameraBench:
    """Perspective videos with text labels: .jsonl files in a folder, one object per video, and the videos below it.

    Each object has `path` (or `video`, `file_name`), `labels` (texts) and `caption`; `train.jsonl` and `test.jsonl`
    are the splits. Poses come from a backend. The up direction of the first frame comes from `read_up_vectors`, or, for
    videos that it lacks, from a calibrator.
    """

    exact = False

    def __init__(
        self,
        folder: str | Path,
        poses: PoseBackend,
        up_vectors: dict[str, Sequence[float]],
        fps: float | None = None,
        calibrator: UpEstimator | None = None,
    ):
        self.folder, self.backend, self.up_vectors, self.fps = Path(folder), poses, up_vectors, fps
        self.calibrator = calibrator
        self.name = self.folder.resolve().name

    @staticmethod
    def recognises(folder: Path) -> bool:
        """Whether a folder has this layout."""
        return folder.is_dir() and any(folder.glob("*.jsonl"))

    def entries(self) -> list[Entry]:
        """All labelled videos."""
        videos = {path.stem: path for path in sorted(self.folder.rglob("*")) if path.suffix.lower() in VIDEO_SUFFIXES}
        found: dict[str, Entry] = {}
        for file in sorted(self.folder.glob("*.jsonl")):
            for where, content in read_json_lines(file):
                if entry := _labelled(file, where, content):
                    found.setdefault(entry.name, replace(entry, file=videos.get(entry.name)))
        return list(found.values())

    def trajectory(self, entry: Entry) -> Trajectory:
        """The backend's poses, aligned with the given or estimated up direction."""
        up = self.up_vectors.get(entry.name)
        if up is None and self.calibrator is not None and entry.file is not None:
            up = self.calibrator.up(entry.file)
        if up is None:
            raise ValueError("no up vector")
        motion = self.backend.poses(entry.name, entry.file, self.fps)
        return motion.gravity_aligned(up, in_first_camera=True)

    def describe(self, entry: Entry) -> list[Any]:
        """What gives its poses, its frame rate, and its up vector or what estimates that."""
        poses = self.backend.describe(entry.name, entry.file)
        up: Any = self.up_vectors.get(entry.name)
        if up is None and self.calibrator is not None and entry.file is not None:
            up = [*self.calibrator.describe(), file_fingerprint(entry.file)]
        return [self.backend.name, poses, self.fps, up]


class TrajectoryFolder:
    """Trajectory files that people have: RealEstate10K, TUM, KITTI, COLMAP texts, .npy, .npz, our .json."""

    exact = False

    def __init__(self, folder: str | Path, up_vectors: dict[str, Sequence[float]] | None = None):
        self.folder, self.up_vectors = Path(folder), up_vectors or {}
        self.name = self.folder.resolve().name

    def entries(self) -> list[Entry]:
        """All trajectory files, named by their path within the folder, without suffix."""
        files = [path for path in sorted(self.folder.rglob("*")) if path.suffix.lower() in TRAJECTORY_SUFFIXES]
        return [Entry(path.relative_to(self.folder).with_suffix("").as_posix(), file=path) for path in files]

    def trajectory(self, entry: Entry) -> Trajectory:
        """The file's poses, aligned by the given up direction, else by the format's, else with a level first camera."""
        assert entry.file is not None
        motion = Trajectory.load(entry.file)
        if entry.name in self.up_vectors:
            return motion.gravity_aligned(self.up_vectors[entry.name], in_first_camera=True)
        return motion if motion.up_known else motion.relative_to_first()

    def describe(self, entry: Entry) -> list[Any]:
        """Its file and up vector."""
        assert entry.file is not None
        return [file_fingerprint(entry.file), self.up_vectors.get(entry.name)]


class MoveSource:
    """Our named moves, with the shake of a hand-held camera."""

    name = "moves"
    exact = True

    def __init__(self, names: Sequence[str] = tuple(NAMED_MOVES), frames: int = 81, fps: float = 16.0, seed: int = 0):
        self.names, self.frames, self.fps, self.seed = tuple(names), frames, fps, seed

    def entries(self) -> list[Entry]:
        """Every move, labelled with its name; moves that zoom say so there."""
        return [Entry(name, (name.replace("_", "-"),)) for name in self.names]

    def trajectory(self, entry: Entry) -> Trajectory:
        """The move carried by hand."""
        move = Trajectory.move(entry.name, DEFAULT_LENS, frames=self.frames, fps=self.fps)
        if entry.name == "handheld":
            return move
        seed = self.seed + 1 + self.names.index(entry.name)
        return move @ Trajectory.handheld(DEFAULT_LENS, frames=self.frames, fps=self.fps, seed=seed)

    def describe(self, entry: Entry) -> list[Any]:
        """Number of frames, frame rate, seed and names of the moves."""
        return [self.frames, self.fps, self.seed, self.names]


def extract_motions(
    sources: Sequence[MotionSource],
    folder: str | Path,
    **work: Unpack[WorkArguments],
) -> Counter[str]:
    """Write one part per motion into a folder; return how many were dropped for each reason (key "": kept).

    A second run continues where the first stopped: it does only what is missing or was made with other settings, and
    what failed if `retry_failed`.
    """
    if len({source.name for source in sources}) < len(sources):
        raise ValueError(f"sources need different names, got {', '.join(source.name for source in sources)}")
    items = [
        Item(
            f"{source.name}/{entry.name}",
            (source, entry),
            fingerprint_of(source.describe(entry), entry.labels, entry.split),
        )
        for source in sources
        for entry in source.entries()
    ]
    if not items:
        raise ValueError("the sources list no motion at all")
    stage = Extraction(Path(folder))
    with folder_lock(stage.folder):
        found = run(stage, items, quarantine=Quarantine(stage.folder), **work)
        return Counter(f"failed: {done.reason}" if done.reason else done.part for done in found)


@dataclass
class Extraction(Stage):
    """Finds the path of a motion and writes it as a part; the result is why it is dropped ("" if it is kept)."""

    folder: Path
    name = "motions"

    def file(self, item: Item) -> Path:
        """The Parquet file of a motion."""
        source, entry = item.task
        return self.folder / source.name / f"{safe_name(entry.name)}.parquet"

    def find(self, item: Item) -> str | None:
        """Why a motion is dropped ("" if it is kept), from its part; None if the part is missing or outdated."""
        if not is_current(self.file(item), item.fingerprint):
            return None
        return read_part(self.file(item), MOTIONS, ["dropped"])["dropped"][0].as_py()

    def finish(self, item: Item) -> str:
        """Find the path and write its part; an outdated part is deleted first."""
        self.file(item).unlink(missing_ok=True)
        row = motion_row(*item.task)
        write_part(self.file(item), table_of([row], MOTIONS), item.fingerprint)
        return row["dropped"]


def motion_row(source: MotionSource, entry: Entry) -> dict[str, Any]:
    """The row of one motion, whether it is a candidate or not."""
    row: dict[str, Any] = {
        "id": f"{source.name}/{entry.name}",
        "collection": source.name,
        "split": entry.split,
        "labels": list(entry.labels),
        "exact": source.exact,
        "c2w": [],
        "fps": 0.0,
        "velocity": 0.0,
        "dropped": "",
    }
    words = " ".join(entry.labels).lower()
    if unwanted := [word for word in UNWANTED_WORDS if word in words]:
        return row | {"dropped": f"mentions {unwanted[0]}"}
    motion = source.trajectory(entry)
    if len(motion) < 2:
        raise ValueError("has a single frame")
    c2w = pose_matrix(motion.rotations, motion.positions - motion.positions[:1])
    return row | {"c2w": pose_column(c2w), "fps": motion.fps, "velocity": rotational_velocity(motion)}


def rotational_velocity(motion: Trajectory) -> float:
    """Largest rotational velocity between frames, in degrees per second."""
    return motion.angular_velocity().norm(dim=-1).max().item()


@dataclass(frozen=True)
class Motion:
    """A candidate motion."""

    id: str
    split: str
    trajectory: Trajectory


def read_motions(folder: str | Path, jittery_share: float = JITTERY_SHARE) -> tuple[list[Motion], Counter[str]]:
    """Candidates in a folder of parts, in order of their ids, and how many motions are dropped for each reason.

    In every collection, the `jittery_share` of motions with the largest rotational velocity is dropped; exact motions
    are exempt.
    """
    if not 0 <= jittery_share < 1:
        raise ValueError(f"the share of jittery motions to discard must be in [0, 1), got {jittery_share:g}")
    kept: dict[str, list[tuple[float, bool, Motion]]] = {}
    dropped: Counter[str] = Counter(failed=len(Quarantine(folder).rows))
    for path in part_files(Path(folder)):
        table = read_part(path, MOTIONS)
        for index, row in enumerate(table.drop_columns(["c2w"]).to_pylist()):
            if row["dropped"]:
                dropped[row["dropped"]] += 1
                continue
            try:
                trajectory = Trajectory(poses_of_row(table["c2w"], index), DEFAULT_LENS, row["fps"])
            except ValueError as error:
                raise ValueError(f"{path}, motion {row['id']!r}: {error}") from None
            motion = Motion(row["id"], row["split"], trajectory)
            kept.setdefault(row["collection"], []).append((row["velocity"], row["exact"], motion))
    motions: list[Motion] = []
    for entries in kept.values():
        estimated = sorted((-velocity, motion.id) for velocity, exact, motion in entries if not exact)
        jittery = {name for _, name in estimated[: int(jittery_share * len(estimated) + 1e-9)]}
        dropped["jittery"] += len(jittery)
        motions += [motion for _, _, motion in entries if motion.id not in jittery]
    motions.sort(key=lambda motion: motion.id)
    if twice := [name for name, count in Counter(motion.id for motion in motions).items() if count > 1]:
        raise ValueError(f"{folder}: motion {twice[0]!r} is there more than once")
    return motions, +dropped


def read_up_vectors(path: str | Path) -> dict[str, Sequence[float]]:
    """Up directions in the first camera's frame by video name, as single-image calibration (GeoCalib) gives them.

    From a .jsonl whose lines hold `video` and `up` (x right, y down, z forward) or `pitch` and `roll` in degrees; or
    from a folder with one NAME.json per video. Where a value is given for every frame, the first frame's is used.
    """
    path = Path(path)
    if path.is_dir():
        contents = [(f"{file}", file.stem, read_json(file)) for file in sorted(path.glob("*.json"))]
    else:
        contents = [(where, "", content) for where, content in read_json_lines(path)]
    found: dict[str, Sequence[float]] = {}
    for where, name, content in contents:
        try:
            video = name or _video_name(content)
            found[video] = _up(content)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            raise ValueError(
                f"{where}: expected an object with `video` and `up` (3 numbers) or `pitch` and `roll` (degrees)"
            ) from None
    return found


def _up(content: dict[str, Any]) -> Sequence[float]:
    if "up" in content:
        up = content["up"][0] if isinstance(content["up"][0], list) else content["up"]
        if len(up) != 3 or not any(up):
            raise ValueError
        return [float(value) for value in up]
    pitch, roll = (
        float(content[key][0] if isinstance(content[key], list) else content[key]) for key in ("pitch", "roll")
    )
    angles = torch.tensor([pitch, 0.0, roll], dtype=torch.float64)
    return (rotation_from_angles(*angles).mT @ torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)).tolist()


def _labelled(file: Path, where: str, content: Any) -> Entry | None:
    try:
        name = _video_name(content)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: expected an object with the `path` of a video ({error})") from None
    if "up" in content or "pitch" in content:
        return None
    labels = [content.get(key) or [] for key in ("labels", "caption")]
    if not all(isinstance(label, str | list) for label in labels):
        raise ValueError(f"{where}: expected labels and caption to be texts or lists of them, found {labels}")
    texts = [label for value in labels for label in ([value] if isinstance(value, str) else value)]
    split = next((split for split in ("train", "test") if file.stem.lower().startswith(split)), "")
    return Entry(name, tuple(map(str, texts)), split)  # type: ignore[arg-type]


def _video_name(content: dict[str, Any]) -> str:
    key = next((key for key in ("path", "video", "file_name") if content.get(key)), "path")
    path = str(content[key])
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in VIDEO_SUFFIXES else name
