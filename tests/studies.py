"""Videos with cameras and stored estimates, small enough to evaluate in a test."""

import json
from pathlib import Path

import numpy as np

from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory
from ucpe.video import write_video

LENS = UCM(xfov=120, xi=0.7)
FRAMES, FPS = 9, 8.0


def picture_frames(frames: int = FRAMES, height: int = 32, width: int = 56) -> np.ndarray:
    v, u = np.mgrid[:height, :width]
    base = np.stack([u * 4, v * 7, (u + v) * 2], -1)
    return np.stack([np.roll(base, index, 1) for index in range(frames)]).astype(np.uint8)


def make_study(folder: Path) -> Path:
    """Four videos with cameras, stored poses and calibrations: exact, turned by 5 degrees, too few frames, missing."""
    for name in ("videos", "cameras", "poses", "calibrations"):
        (folder / name).mkdir()
    for index, name in enumerate("abcd"):
        camera = Trajectory.arc(LENS, degrees=20, frames=FRAMES, fps=FPS, pitch=-5 * index)
        camera.save(folder / "cameras" / f"{name}.json")
        write_video(folder / "videos" / f"{name}.mp4", picture_frames(), FPS)
        estimated = camera.c2w.clone()
        if name == "b":
            turned = Trajectory.pan(LENS, degrees=10, frames=FRAMES)
            estimated[:, :3, :3] = estimated[:, :3, :3] @ turned.rotations
        frames = np.arange(FRAMES)[:3] if name == "c" else np.arange(FRAMES)
        if name != "d":
            np.savez(folder / "poses" / f"{name}.npz", data=estimated[frames].numpy(), inds=frames)
        angles = {"pitch": -5.0 * index + 2, "roll": 0.0, "yfov": 70.0, "k1": 0.0, "k2": 0.0}
        (folder / "calibrations" / f"{name}.json").write_text(json.dumps(angles))
    return folder
