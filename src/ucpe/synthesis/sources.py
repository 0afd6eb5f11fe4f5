"""Where clips are filmed: panoramic footage with poses, and procedural worlds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Equirectangular
from ucpe.reading import inside, read_json, read_json_lines
from ucpe.trajectories import Trajectory
from ucpe.video import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from ucpe.synthesis.footage import Footage, Shot

POSE_SUFFIXES = (".npy", ".npz", ".json", ".txt")


@dataclass(frozen=True)
class Path3D:
    """Where a clip is filmed: the panorama's poses, the camera's rotations in it, and the scene's near-plane depth."""

    erp: Tensor  # (N, 4, 4) float64, gravity-aligned
    rotations: Tensor  # (N, 3, 3), camera to panorama, before augmentation
    near_depth: float  # in the units of the poses
    start: int = 0
    """First frame of the footage, or seed of the world."""
    categories: tuple[str, ...] = ()


class Source(Protocol):
    """A place in which clips can be filmed."""

    @property
    def name(self) -> str:
        """Its name in the dataset."""

    @property
    def categories(self) -> tuple[str, ...]:
        """What is seen there, if known."""

    @property
    def scores(self) -> dict[str, float]:
        """Its scores from curation, by name."""

    def check(self) -> None:
        """Raise ValueError if nothing can be filmed here."""

    def plan(self, number: int, frames: int, fps: float, generator: np.random.Generator) -> Path3D:
        """One of this source's paths, by its number; depends on the arguments alone."""

    def film(self, path: Path3D, shots: Sequence[Shot]) -> list[str]:
        """Write the shots' videos and return a true caption for each, empty where none is known."""


@dataclass(frozen=True)
class PanoramaSource:
    """Panoramic footage whose camera path is known: one line of a sources file, or a video with poses beside it."""

    video: Path
    poses: Path | None = None
    """Camera-to-world poses of the footage, one per frame, in any trajectory format; None if it stands still."""
    up: str | None = None
    """Up in the world of the poses: +z, "x,y,z", or first (the first panorama is level); the format's if not given."""
    projection: str | None = None
    """equirectangular or eac; recognised from the content if not given."""
    stereo: str | None = None
    """mono, top-bottom or side-by-side; the left eye is used. Recognised from the content if not given."""
    near_depth: float | None = None
    """Near-plane depth in the units of the poses; needed if the footage moves."""
    rotations: tuple[Path, ...] = ()
    """Trajectory files with the rotations, camera to panorama, to film with, as `ucpe match` transfers them."""
    start: int | None = None
    """Frame of the footage at which clips start; drawn at random if not given."""
    caption: str = ""
    categories: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The footage's file name."""
        return self.video.name

    def check(self) -> None:
        """Raise ValueError if the footage or a file beside it cannot be used; decodes a few frames and the end."""
        footage = self.footage()
        if 2 * footage.frames < footage.info.frames:
            raise ValueError(
                f"{self.video}: only {footage.frames} of {footage.info.frames} frames can be decoded; is it complete?"
            )
        for note in footage.notes:
            warnings.warn(f"{self.video}: {note}", stacklevel=2)
        if self.poses is not None:
            poses = Trajectory.load(self.poses, up=self.up)
            if not poses.up_known:
                warnings.warn(
                    f"{self.poses} does not say which way is up: its first panorama is taken to be level "
                    '(to change that, put "up": "+z" or another direction into NAME.source.json)'
                )
            if len(poses) not in (footage.frames, footage.info.frames):
                raise ValueError(
                    f"{self.poses}: {len(poses)} poses for the {footage.frames} frames of {self.video.name}"
                )
            if self.near_depth is None and poses.path_length() > 1e-6:
                raise ValueError(
                    f"{self.video}: footage that moves needs near_depth, the near-plane depth by which poses are scaled"
                )
        for file in self.rotations:
            Trajectory.load(file)

    def plan(self, number: int, frames: int, fps: float, generator: np.random.Generator) -> Path3D:
        """A stretch of the footage, at random unless `start` is given."""
        footage = self.footage()
        step = footage.info.fps / fps
        span = int((frames - 1) * step + 1e-6) + 1
        if span > footage.frames:
            raise ValueError(
                f"{self.video}: {frames} frames at {fps:g} fps need {span} of its frames, but it has {footage.frames}"
            )
        start = self.start if self.start is not None else int(generator.integers(footage.frames - span + 1))
        numbers = torch.tensor([start + int(n * step + 1e-6) for n in range(frames)])
        erp = torch.eye(4, dtype=torch.float64).expand(frames, 4, 4)
        if self.poses is not None:
            poses = Trajectory.load(self.poses, up=self.up)
            erp = (poses if poses.up_known else poses.levelled()).c2w[numbers].double()
        rotations = torch.eye(3, dtype=torch.float64).expand(frames, 3, 3)
        if self.rotations:
            given = Trajectory.load(self.rotations[number % len(self.rotations)], fps=fps)
            rotations = (given if len(given) == frames else given.resample(frames=frames)).rotations.double()
        return Path3D(erp, rotations, self.near_depth or 1.0, start, self.categories)

    def film(self, path: Path3D, shots: Sequence[Shot]) -> list[str]:
        """Write all shots in one pass over the footage."""
        from ucpe.synthesis.footage import film

        if shots:
            footage = self.footage()
            step = footage.info.fps / shots[0].fps
            film(footage, shots, [path.start + int(n * step + 1e-6) for n in range(len(path.erp))])
        return [self.caption] * len(shots)

    def footage(self) -> Footage:
        """The opened video; opened once in a process, unless the file changes."""
        changed = self.video.stat().st_mtime_ns if self.video.is_file() else 0
        return _open_footage(self.video, self.projection, self.stereo, changed)


@lru_cache(maxsize=64)
def _open_footage(video: Path, projection: Any, stereo: Any, _: int) -> Footage:
    from ucpe.synthesis.footage import Footage

    return Footage(video, projection, stereo)


WALK = (0.15, 1.2)
"""Shortest and longest way, in near-plane depths, of a camera through a world."""

CLEARANCE = 0.35
"""Minimum distance in metres between a camera and the surfaces of a world."""


@dataclass(frozen=True)
class WorldSource:
    """Procedural worlds, a new one for every path; clips are cast through the lens itself, not from a panorama."""

    kind: str | None = None
    moving: bool = False
    samples: int = 1
    """Number of rays per pixel along each side."""
    categories: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name as typed on the command line."""
        return ":".join(["worlds", *([self.kind] if self.kind else []), *(["moving"] if self.moving else [])])

    def check(self) -> None:
        """Worlds need nothing."""

    def plan(self, number: int, frames: int, fps: float, generator: np.random.Generator) -> Path3D:
        """A walk through a new world in any direction, with a hand-held camera that looks roughly ahead."""
        from ucpe.synthesis.worlds import near_plane_depth

        seed = int(generator.integers(2**31))
        world = self._world(seed)
        lens = Equirectangular()
        look = generator.uniform(-180, 180)
        shake = Trajectory.handheld(lens, frames=frames, fps=fps, seed=seed, max_hertz=min(2.5, 0.45 * fps))
        rotations = Trajectory.static(lens, yaw=look, pitch=generator.uniform(-8, 8)).c2w[0, :3, :3] @ shake.rotations
        for attempt in range(40):
            heading = look + generator.normal(0, 50)
            length = generator.uniform(*WALK) * world.near_depth * 0.85**attempt
            bend, rise = generator.normal(0, 0.25), generator.normal(0, 0.1)
            positions = _walk(heading, length, bend, rise, frames) + shake.positions.numpy()
            if self._clear(world, positions, fps):
                break
        else:
            positions = np.zeros((frames, 3))
        erp = torch.eye(4, dtype=torch.float64).repeat(frames, 1, 1)
        erp[:, :3, 3] = torch.from_numpy(positions)
        directions = lens.rays(48, 96, dtype=torch.float64).directions.numpy()
        spots = positions[:: max(frames // 4, 1)]
        depth = np.stack([world.depth((spot, directions, None), threads=1) for spot in spots])
        return Path3D(erp, rotations, near_plane_depth(depth), seed, (f"{world.kind} {world.ground}",))

    def film(self, path: Path3D, shots: Sequence[Shot]) -> list[str]:
        """Cast every shot through its lens; the caption names what it shows."""
        from ucpe.synthesis.worlds import render_clip
        from ucpe.video import write_video

        world = self._world(path.start)
        captions = []
        for shot in shots:
            c2w = path.erp.clone()
            c2w[:, :3, :3] = path.erp[:, :3, :3] @ shot.rotations
            size = (shot.height, shot.width)
            image = render_clip(world, shot.lens, c2w, *size, shot.fps, self.samples, threads=1)
            write_video(shot.path, image.color, shot.fps)
            captions.append(world.caption_of(image))
        return captions

    def _world(self, seed: int) -> Any:
        from ucpe.synthesis.worlds import World

        return World.sample(seed, kind=self.kind, moving=self.moving)  # type: ignore[arg-type]

    def _clear(self, world: Any, positions: np.ndarray, fps: float) -> bool:
        if not self.moving:
            return bool((world.clearance(positions) > CLEARANCE).all())
        return all(world.clearance(spot, time=n / fps) > CLEARANCE for n, spot in enumerate(positions))


def open_sources(names: Sequence[str | Path]) -> list[Source]:
    """Sources by name: `worlds[:outdoor|indoor][:moving]`, a video with poses beside it, a folder, or a .jsonl of them.

    `matches.parquet` is what `ucpe match` wrote for training, `matches.parquet:test` for testing. Each line of a .jsonl
    is an object with the fields of `PanoramaSource`; its paths are relative to the file.
    """
    sources: list[Source] = []
    for name in names:
        sources += list(_open_source(str(name)))
    if not sources:
        raise ValueError(
            f"no footage in {', '.join(map(str, names))}; give videos, folders, matches, .jsonl files or worlds"
        )
    return sources


def _open_source(name: str) -> Iterator[Source]:
    path = Path(name)
    if name == "worlds" or name.startswith("worlds:"):
        words = name.split(":")[1:]
        kinds = [word for word in words if word in ("outdoor", "indoor")]
        if len(kinds) > 1 or any(word not in ("outdoor", "indoor", "moving") for word in words):
            raise ValueError(f"{name}: worlds are worlds, worlds:outdoor or worlds:indoor, each also with :moving")
        yield WorldSource(kinds[0] if kinds else None, "moving" in words)
    elif path.is_dir():
        for video in sorted(path.iterdir()):
            if video.suffix.lower() in VIDEO_SUFFIXES:
                yield PanoramaSource(video, **_beside(video))
    elif name.removesuffix(":test").endswith(".parquet"):
        from ucpe.synthesis.motion.transfer import matched_sources

        split = "test" if name.endswith(":test") else "train"
        yield from _open_source(str(matched_sources(Path(name.removesuffix(":test")), split)))
    elif path.suffix == ".jsonl" and path.is_file():
        for where, content in read_json_lines(path):
            settings = _settings(path, content, where)
            if "video" not in settings:
                raise ValueError(f"{where}: no video")
            yield PanoramaSource(**settings)
    elif path.suffix.lower() in VIDEO_SUFFIXES:
        yield PanoramaSource(path, **_beside(path))
    else:
        raise ValueError(
            f"{name}: not a video, a folder, matches, a .jsonl of sources, or worlds (worlds:outdoor, ...)"
        )


def _beside(video: Path) -> dict[str, Any]:
    """What files beside a video say: NAME.npy (or .npz, .json, .txt) are poses, NAME.source.json anything else."""
    settings: dict[str, Any] = {}
    extra = video.with_suffix(".source.json")
    if extra.is_file():
        settings = _settings(extra, read_json(extra), extra)
    for suffix in POSE_SUFFIXES:
        if "poses" not in settings and video.with_suffix(suffix).is_file():
            settings["poses"] = video.with_suffix(suffix)
    settings.pop("video", None)
    return settings


KINDS = {
    "up": str,
    "projection": str,
    "stereo": str,
    "start": int,
    "caption": str,
    "categories": list,
    "rotations": list,
    "scores": dict,
}
"""Types of a source's fields."""


def _settings(path: Path, content: Any, where: str | Path) -> dict[str, Any]:
    """The fields of a PanoramaSource from JSON; paths are relative to the JSON file."""
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected an object, found {type(content).__name__}")
    known = set(PanoramaSource.__dataclass_fields__)
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{where}: unknown fields {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    settings = {name: value for name, value in content.items() if value is not None}
    for name, kind in KINDS.items():
        if not isinstance(settings.get(name, kind()), kind):
            raise ValueError(f"{where}: {name}: expected a {kind.__name__}, found {settings[name]!r}")
    for name in ("video", "poses"):
        if name in settings:
            settings[name] = inside(path.parent, settings[name], where)
    settings["rotations"] = tuple(inside(path.parent, file, where) for file in settings.get("rotations", ()))
    settings["categories"] = tuple(map(str, settings.get("categories", ())))
    depth = settings.get("near_depth", 1)
    if isinstance(depth, bool) or not (isinstance(depth, int | float) and 0 < depth < math.inf):
        raise ValueError(f"{where}: near_depth must be a positive number, got {depth!r}")
    return settings


def _walk(heading: float, length: float, bend: float, rise: float, frames: int) -> np.ndarray:
    """Positions (N, 3), evenly spaced on a gently curved way from the origin; heading in degrees to the right of +z."""
    time = np.linspace(0, 1, frames)
    angle = math.radians(heading) + bend * time
    step = np.stack([np.sin(angle), np.full(frames, -rise), np.cos(angle)], -1) * (length / max(frames - 1, 1))
    return np.concatenate([np.zeros((1, 3)), np.cumsum(step[:-1], 0)]) if frames > 1 else np.zeros((1, 3))
