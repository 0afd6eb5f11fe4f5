"""Which camera each video was made with: folders, the PanShot dataset, RealEstate10K, the released demo files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ucpe.evaluation.estimators.base import Clip
from ucpe.lenses import Lens, Pinhole, lens_family
from ucpe.synthesis.dataset import open_dataset
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats.captioned import is_demo, read_released_list
from ucpe.video import VIDEO_SUFFIXES, VideoError, probe_video, read_video

REALESTATE_LENS = Pinhole(xfov=100.0)
"""Lens of the paper's RealEstate10K setting."""

REALESTATE_FRAMES = 81
"""Number of frames in the paper's RealEstate10K setting."""


@dataclass(frozen=True)
class Job:
    """One video and its commanded camera."""

    name: str
    video: Path
    camera: Trajectory
    gravity: bool = True
    """Whether the camera's world has a known vertical, so that pitch and roll mean something."""
    caption: str | None = None
    reference: Path | None = None
    """A real video with this camera, if there is one."""

    @property
    def family(self) -> str:
        """Lens family, by which results are broken down."""
        return lens_family(self.camera.lens)


def jobs_of_folder(
    videos: str | Path,
    cameras: str | Path,
    *,
    reference: str | Path | None = None,
    lens: Lens | None = None,
    gravity: bool | None = None,
    up: str | Sequence[float] | None = None,
    extrinsics: str | None = None,
) -> list[Job]:
    """Videos of a folder with the camera files of the same name in another folder, or with one camera file for all.

    A released demo .json lists one camera per video, found by the number that the video's name begins with. `gravity`
    says whether the cameras' worlds have a known vertical; by default the file format, or `up` (see `Trajectory.load`,
    also for `extrinsics`), says so.
    """
    paths = find_videos(videos)
    cameras = Path(cameras)
    if cameras.is_file() and is_demo(cameras):
        if lens is not None or gravity is not None or up is not None:
            raise ValueError(f"{cameras} is a released demo file, which has its own lenses and vertical: give none")
        jobs = _demo_jobs(paths, cameras)
    else:
        jobs = []
        for path in paths:
            source = cameras if cameras.is_file() else _camera_file(cameras, path.stem)
            camera = Trajectory.load(source, lens=lens, up=up, extrinsics=extrinsics)
            jobs.append(Job(path.stem, path, camera, camera.up_known if gravity is None else gravity))
    return jobs if reference is None else with_references(jobs, reference)


def with_references(jobs: Sequence[Job], folder: str | Path) -> list[Job]:
    """Jobs with the videos of the same names in a folder as references; a job whose name is missing there has none."""
    references = {path.stem: path for path in find_videos(folder)}
    if not any(job.name in references for job in jobs):
        raise ValueError(f"no video in {folder} has the name of one to evaluate, such as {jobs[0].video.name}")
    return [replace(job, reference=references.get(job.name)) for job in jobs]


def cameras_without_video(folder: str | Path, jobs: Sequence[Job], suffix: str = "") -> list[str]:
    """Names of the cameras in a folder that no video was paired with."""
    names = {path.stem if path.is_file() else path.name for path in Path(folder).glob(f"*{suffix}")}
    return sorted(name for name in names - {job.name for job in jobs} if not name.startswith("."))


def jobs_of_dataset(videos: str | Path, root: str | Path, split: str = "test") -> list[Job]:
    """Generated videos named like the clips of a dataset; the dataset's own videos are the references.

    The dataset is what `ucpe synthesize` writes, or PanShot.
    """
    dataset, numbers = open_dataset(root, split), names_of_dataset(root, split)
    jobs = []
    for path in find_videos(videos):
        if path.stem not in numbers:
            raise ValueError(f"{path.name} is not a video of the split {split!r} in {root}")
        clip = dataset.clip(numbers[path.stem])
        reference = clip.video if clip.video.is_file() else None
        jobs.append(Job(path.stem, path, clip.camera, True, clip.caption or None, reference))
    return jobs


def names_of_dataset(root: str | Path, split: str = "test") -> dict[str, int]:
    """Indices of a dataset's clips by the names of their videos."""
    dataset = open_dataset(root, split)
    if len(dataset) == 0:
        found = [name for name in ("train", "test") if len(open_dataset(root, name))]
        raise ValueError(f"{root} has no clips in the split {split!r}, only in {found} (--split)")
    return {name: index for index, name in enumerate(dataset.names())}


def without_jittery(jobs: Sequence[Job], share: float) -> tuple[list[Job], list[str]]:
    """Jobs without those whose cameras turn most between two frames, `share` of all; and the names left out.

    As in the authors' script, the number of jobs kept is rounded down.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of jittery cameras to leave out must be between 0 and 1, got {share:g}")
    steps = {
        job.name: float(job.camera.angular_velocity().norm(dim=-1).max()) / job.camera.fps if len(job.camera) > 1 else 0
        for job in jobs
    }
    left_out = sorted(steps, key=lambda name: steps[name])[int(len(jobs) * (1 - share) + 1e-9) :]
    return [job for job in jobs if job.name not in left_out], left_out


def jobs_of_realestate(
    videos: str | Path, poses: str | Path, normalization: float = 1.0, frames: int = REALESTATE_FRAMES
) -> list[Job]:
    """The paper's RealEstate10K setting: 100 degree pinhole, first 81 frames, translations times `normalization`."""
    jobs = []
    for path in find_videos(videos):
        source = _camera_file(Path(poses), path.stem)
        recorded = Trajectory.load(source, lens=REALESTATE_LENS)
        if len(recorded) < frames:
            raise ValueError(f"{source} has {len(recorded)} poses; the setting of the paper takes the first {frames}")
        camera = recorded[:frames].relative_to_first().scaled(normalization)
        jobs.append(Job(path.stem, path, Trajectory(camera.c2w, REALESTATE_LENS), gravity=False))
    return jobs


def read_clip(path: str | Path, name: str | None = None) -> Clip:
    """All frames of a video with their own times, which need not be evenly spaced."""
    frames, times = [], []
    for frame in read_video(path):
        frames.append(frame.rgb)
        times.append(frame.time)
    if not frames:
        raise VideoError(f"{path}: no frame can be decoded; is the file complete?")
    seconds = np.asarray(times) - times[0]
    if (np.diff(seconds) <= 0).any():
        raise VideoError(f"{path}: frame times do not increase")
    return Clip(name or Path(path).stem, np.stack(frames), seconds)


def find_videos(folder: str | Path) -> list[Path]:
    """Video files of a folder in order of names, or the one file given."""
    folder = Path(folder)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"no folder of videos at {folder}")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in VIDEO_SUFFIXES)
    if not paths:
        raise ValueError(f"no videos ({', '.join(VIDEO_SUFFIXES)}) in {folder}")
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        raise ValueError(f"several videos in {folder} are named {next(s for s in stems if stems.count(s) > 1)}")
    return paths


def _demo_jobs(paths: list[Path], demo: Path) -> list[Job]:
    cameras = read_released_list(demo)
    jobs = []
    for path, index in zip(paths, _indices(paths, len(cameras), demo)):
        camera = _at_length(cameras[index].released(), path)
        jobs.append(Job(path.stem, path, camera, camera.up_known, cameras[index].caption))
    return jobs


def _indices(paths: list[Path], count: int, demo: Path) -> list[int]:
    """The entry of a list, from 0, that each video belongs to: the number that its name begins with."""
    if len(paths) == count == 1:
        return [0]
    found = [re.match(r"(\d+)(?=[-_. ]|$)", path.stem) for path in paths]
    indices = [int(match[1]) if match else -1 for match in found]
    certain = len(set(indices)) == len(indices) and all(0 <= index < count for index in indices)
    if not certain:
        named = ", ".join(path.name for path in paths[:30]) + (" ..." if len(paths) > 30 else "")
        raise ValueError(
            f"cannot tell which camera each video has: {demo} lists {count} cameras, numbered 0 to {count - 1}, "
            f"and names of videos must begin with these numbers, once each (0-cat.mp4, 000.mp4); the videos are {named}"
        )
    return indices


def _at_length(camera: Trajectory, video: Path) -> Trajectory:
    """The camera of a video of any length: the whole path, spread over its frames as `ucpe generate --list` does."""
    info = probe_video(video)
    return camera if info.frames == len(camera) else camera.resample(info.frames, info.fps)


def _camera_file(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise ValueError(f"no camera file or folder at {folder}")
    found = sorted(path for path in folder.iterdir() if name == (path.stem if path.is_file() else path.name))
    if not found:
        raise ValueError(f"no camera for the video {name} in {folder}: expected a file {name}.json, .txt, .npy, ...")
    if len(found) > 1:
        raise ValueError(f"several cameras for the video {name}: {', '.join(path.name for path in found)}")
    return found[0]
