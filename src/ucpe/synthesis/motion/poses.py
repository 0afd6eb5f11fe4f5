"""Where the poses of perspective videos come from: ViPE's result files, or structure from motion with pycolmap."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from ucpe.files import file_fingerprint, temporary_folder
from ucpe.synthesis.structure import (
    extract_features,
    largest_map,
    load_pycolmap,
    mapping_options,
    match_features,
    poses_by_number,
    write_picture,
)
from ucpe.trajectories import DEFAULT_LENS, Trajectory
from ucpe.trajectories.interpolation import interpolate_poses
from ucpe.video import probe_video, read_video

MIN_REGISTERED = 0.9
"""Minimum share of a video's keyframes that must be placed."""


class PoseBackend(Protocol):
    """Camera motion of a video, in a world of any frame and scale."""

    name: str

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """Poses of all frames of a video named `video`; ValueError says why there are none.

        `file` is the video if it is at hand; `fps` replaces its frame rate.
        """

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """What determines the poses of a video, plain enough for JSON."""


class VipeResults:
    """Results of `vipe infer`: `pose/NAME.npz` in a folder, or NAME.npz in it."""

    name = "vipe"

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ValueError(f"no folder {folder} with ViPE results")

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """The stored poses of a video."""
        path = self._result(video)
        if path is None:
            raise ValueError(f"no ViPE result pose/{video}.npz")
        return Trajectory.load(path, fps=_frame_rate(video, file, fps), format="vipe")

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """The result file."""
        path = self._result(video)
        return [file_fingerprint(path)] if path else []

    def _result(self, video: str) -> Path | None:
        places = (self.folder / "pose" / f"{video}.npz", self.folder / f"{video}.npz")
        return next((path for path in places if path.is_file()), None)


class Pycolmap:
    """Incremental structure from motion of every few frames; poses between them are interpolated.

    A given field of view (`xfov` of a pinhole, in degrees) is kept fixed. Without it, focal length and distortion are
    estimated too, which needs longer videos with more depth.
    """

    name = "pycolmap"

    def __init__(self, xfov: float | None = None, keyframe_fps: float = 4.0):
        load_pycolmap("estimating poses")
        if xfov is not None and not 0 < xfov < 180:
            raise ValueError(f"xfov of a pinhole must be in (0, 180) degrees, got {xfov:g}")
        self.xfov, self.keyframe_fps = xfov, keyframe_fps

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """Poses of the frames between the first and the last that could be placed."""
        if file is None:
            raise ValueError("its video is missing, so its poses cannot be estimated")
        rate = _frame_rate(video, file, fps)
        with temporary_folder() as folder:
            images = folder / "images"
            images.mkdir()
            numbers = _write_keyframes(file, images, max(round(rate / self.keyframe_fps), 1))
            found = self._map(folder, images, file)
        if len(found) < max(MIN_REGISTERED * len(numbers), 2):
            raise ValueError(f"only {len(found)} of {len(numbers)} keyframes could be placed")
        frames = torch.tensor(list(found), dtype=torch.float64)
        c2w = torch.from_numpy(np.stack(list(found.values())))
        every = torch.arange(int(frames[0]), int(frames[-1]) + 1, dtype=torch.float64)
        return Trajectory(interpolate_poses(c2w, frames, every), DEFAULT_LENS, rate)

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """Settings and the video."""
        return [self.xfov, self.keyframe_fps, MIN_REGISTERED, 0, file_fingerprint(file) if file else None]

    def _map(self, folder: Path, images: Path, video: Path) -> dict[int, np.ndarray]:
        """Camera-to-world poses (4, 4) by frame number."""
        database, parameters = folder / "matches.db", ""
        if self.xfov is not None:
            info = probe_video(video)
            focal = info.width / 2 / math.tan(math.radians(self.xfov) / 2)
            parameters = f"{focal:.9g},{info.width / 2:.9g},{info.height / 2:.9g},0"
        extract_features(database, images, "SIMPLE_RADIAL", parameters)
        match_features(database, overlap=10)
        options = mapping_options(hold_lens=self.xfov is not None)
        options.mapper.init_min_tri_angle = 4.0
        options.triangulation.min_angle = options.mapper.filter_min_tri_angle = 0.5
        best = largest_map(database, images, folder / "map", options)
        return {} if best is None else poses_by_number(best)


def _write_keyframes(video: Path, folder: Path, step: int) -> list[int]:
    """Write every `step`-th frame and the last as pictures named by frame number; return these numbers."""
    numbers = []
    for frame, following in itertools.pairwise(itertools.chain(read_video(video), [None])):
        if frame is not None and (frame.index % step == 0 or following is None):
            write_picture(folder, frame.index, frame.rgb)
            numbers.append(frame.index)
    return numbers


def _frame_rate(video: str, file: Path | None, fps: float | None) -> float:
    if fps is not None:
        return fps
    if file is None:
        raise ValueError(f"frame rate of {video} unknown: put its video beside the labels or give fps")
    return probe_video(file).fps
