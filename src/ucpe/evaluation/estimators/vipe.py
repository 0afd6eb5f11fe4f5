"""Poses from ViPE, as the paper measures: `ucpe evaluate --pose vipe`.

Runs the `vipe` command (https://github.com/nv-tlabs/vipe, package nvidia-vipe; it needs a CUDA device) on rectified
videos, or reads the results of such a run from a folder. ViPE estimates intrinsics itself (with GeoCalib, then bundle
adjustment), from one 8 bit mp4 per video.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ucpe.evaluation.estimators.base import Clip, EstimationFailure, PoseEstimate, PoseEstimator
from ucpe.evaluation.estimators.stored import read_vipe_poses
from ucpe.evaluation.rectification import MAX_XFOV, rectify_video
from ucpe.files import temporary_folder
from ucpe.lenses import Lens
from ucpe.video import write_video
from ucpe.work import run_program

PIPELINE = "default"
"""Configuration of ViPE."""


class VipeEstimator(PoseEstimator):
    """ViPE's camera-to-world poses (`pose/<video>.npz`) of a rectified video."""

    name = "vipe"

    def __init__(self, results: str | Path | None = None, command: str = "vipe"):
        self.results = None if results is None else Path(results)
        self.command = shutil.which(command)
        if self.results is not None and not self.results.is_dir():
            raise ValueError(f"no folder {results} with ViPE results")
        if self.results is None and self.command is None:
            raise ValueError(
                f"no `{command}` command on the path: install ViPE (pip install nvidia-vipe, needs CUDA), run "
                "`vipe infer VIDEO -o results/` elsewhere and pass that folder as results, or use --pose colmap"
            )

    def describe(self) -> dict[str, Any]:
        """Settings."""
        source = "results of an earlier run" if self.results else "vipe infer"
        return {"name": self.name, "source": source, "pipeline": PIPELINE, "max_xfov": MAX_XFOV}

    def files(self, name: str) -> list[Path]:
        """The stored result, where results are read."""
        return [] if self.results is None else [_pose_file(self.results, name)]

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """ViPE's poses of a clip."""
        if self.results is not None:
            return _read(self.results, clip.name)
        assert self.command is not None
        if len(clip.frames) < 2:
            raise EstimationFailure("motion needs at least two frames")
        frames, _, _ = rectify_video(clip.frames, lens)
        even = frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]
        with temporary_folder() as folder:
            video, output = folder / f"{clip.name}.mp4", folder / "results"
            write_video(video, even, fps=(len(even) - 1) / clip.duration)
            run = run_program([self.command, "infer", str(video), "--output", str(output), "--pipeline", PIPELINE])
            if run.returncode:
                last = (run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1]
                raise EstimationFailure(f"vipe infer failed with code {run.returncode}: {last[:300]}")
            return _read(output, clip.name)


def _read(results: Path, name: str) -> PoseEstimate:
    path = _pose_file(results, name)
    if not path.is_file():
        raise EstimationFailure(f"ViPE wrote no poses for {name} (pose/{name}.npz is missing)")
    return read_vipe_poses(path)


def _pose_file(results: Path, name: str) -> Path:
    return results / "pose" / f"{name}.npz"
