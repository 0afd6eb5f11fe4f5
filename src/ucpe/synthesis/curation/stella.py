"""Camera motion by stella_vslam, the paper's SLAM: its `run_image_slam` maps the footage, then localises every frame.

SLAM follows one scene. Where it is lost, the footage is split, and what it could not place is mapped anew.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from ucpe.files import temporary_folder
from ucpe.synthesis.curation.poses import Track, check_frames
from ucpe.synthesis.curation.steps import runs
from ucpe.trajectories.formats.base import read_rows
from ucpe.trajectories.rotations import pose_matrix, rotation_from_quaternion
from ucpe.work import run_program

FPS = 30.0
"""Frame rate that SLAM is told; it makes its time stamps from it."""

TRAJECTORY = "frame_trajectory.txt"


@dataclass(frozen=True)
class StellaVSLAM:
    """Runs stella_vslam's `run_image_slam`; its tracks have no error (NaN), as it reports none."""

    vocabulary: Path
    """Its ORB vocabulary, `orb_vocab.fbow`."""
    binary: str = "run_image_slam"
    """Name or path of the program."""
    config: Path | None = None
    """Settings file in stella_vslam's format. Its camera is replaced by the footage's."""
    localise: bool = True
    """Run a second time, without mapping, for more accurate poses; the paper does."""
    min_frames: int = 10
    """Shorter tracks are dropped, and shorter pieces of footage not tried."""
    seconds: float = 3600.0
    """Time limit of one run, in seconds."""

    def __post_init__(self) -> None:
        if shutil.which(self.binary) is None:
            raise ValueError(
                f"stella_vslam's program {self.binary!r} is not there or cannot be run: build stella_vslam_examples "
                "and give the path of its run_image_slam"
            )
        for name, path in (("vocabulary", self.vocabulary), ("config", self.config)):
            if path is not None and not Path(path).is_file():
                raise ValueError(f"no {name} {path} for stella_vslam")

    def track(self, frames: np.ndarray, seed: int = 0) -> list[Track]:
        """Tracks of equirectangular frames (N, H, W, 3) uint8; SLAM has no seed and repeats only roughly."""
        frames = check_frames(frames)
        tracks: list[Track] = []
        pieces = [(0, len(frames))]
        while pieces:
            start, stop = pieces.pop()
            if stop - start < self.min_frames:
                continue
            poses = self._run(frames[start:stop])
            found = [
                Track(start + first, start + end, np.stack([poses[frame] for frame in range(first, end)]), math.nan)
                for first, end in runs(sorted(poses))
            ]
            tracks += [track for track in found if len(track.c2w) >= self.min_frames]
            lost = sorted(set(range(stop - start)) - set(poses))
            pieces += [(start + first, start + end) for first, end in runs(lost) if poses]
        return sorted(tracks, key=lambda track: track.start)

    def _run(self, frames: np.ndarray) -> dict[int, np.ndarray]:
        """Poses (4, 4) of the frames that SLAM could place."""
        import cv2

        with temporary_folder() as workspace:
            images, saved = workspace / "images", workspace / "map.msg"
            images.mkdir()
            for number, frame in enumerate(frames):
                cv2.imwrite(str(images / f"{number:08d}.png"), np.ascontiguousarray(frame[..., ::-1]))
            config = workspace / "config.yaml"
            config.write_text(yaml.safe_dump(self._settings(*frames.shape[1:3])), encoding="utf-8")
            common = [
                self.binary, "--vocab", str(self.vocabulary), "--config", str(config), "--img-dir", str(images),
                "--no-sleep", "--auto-term", "--viewer", "none", "--start-timestamp", "0",
            ]  # fmt: skip
            first = self._poses(common, workspace / "mapping", ["--wait-loop-ba", "--map-db-out", str(saved)])
            if not first or not self.localise:
                return first
            return self._poses(common, workspace / "localising", ["--map-db-in", str(saved), "--disable-mapping"])

    def _poses(self, command: list[str], output: Path, more: list[str]) -> dict[int, np.ndarray]:
        output.mkdir()
        command = [*command, "--eval-log-dir", str(output), *more]
        try:
            run = run_program(command, seconds=self.seconds)
        except subprocess.TimeoutExpired:
            raise ValueError(f"stella_vslam did not finish within {self.seconds:g} s") from None
        if run.returncode:
            last = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
            raise ValueError(f"stella_vslam failed with code {run.returncode}: {''.join(last) or 'no message'}")
        return read_trajectory(output / TRAJECTORY) if (output / TRAJECTORY).is_file() else {}

    def _settings(self, height: int, width: int) -> dict[str, Any]:
        """The settings file's content with the camera of the footage."""
        settings = yaml.safe_load(Path(self.config).read_text(encoding="utf-8")) if self.config else {}
        if not isinstance(settings, dict):
            raise ValueError(f"{self.config} holds no settings of stella_vslam")
        camera = {"name": "panorama", "setup": "monocular", "model": "equirectangular", "color_order": "BGR"}
        return {**settings, "Camera": {**camera, "fps": FPS, "cols": int(width), "rows": int(height)}}


def read_trajectory(path: Path) -> dict[int, np.ndarray]:
    """Poses (4, 4) by frame number of a TUM trajectory whose times are frame numbers over FPS; gaps stay gaps."""
    rows = read_rows(path, 8, "8 numbers (seconds, tx, ty, tz, qx, qy, qz, qw)")
    values = torch.tensor([row.numbers for row in rows], dtype=torch.float64)
    c2w = pose_matrix(rotation_from_quaternion(values[:, [7, 4, 5, 6]]), values[:, 1:4]).numpy()
    return {round(row.numbers[0] * FPS): pose for row, pose in zip(rows, c2w)}
