"""Stand-ins of our own making for the files that the authors published: the same names, layouts and formats."""

import json
import shutil
from pathlib import Path

import numpy as np

from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory

PUBLISHED = Path(__file__).resolve().parents[1] / "../shared/data"
"""Where the real files lie, if they are here."""

REALESTATE = ("20e7a3651ec30386", "38f7ba7fd9a83069", "5451cefde53f06f1", "ecc2b1b9cb1fa9ad", "f74139ac48f19b3c")
PANSHOT = (
    "aQVLCO-OOqM-11-1-no_rot_aug_0", "1jVPI3bNCBc-5-0-no_rot_aug_0", "HTdKkiu771g-3-0-no_rot_aug_0",
    "Msw3A5IPPD0-96-0-yaw_pitch_aug_0", "N99hmkAJwlQ-3-0-linear_aug_0", "N99hmkAJwlQ-3-0-yaw_aug_0",
    "YUPoNo1j420-5-0-no_rot_aug_0",
)  # fmt: skip
LISTS = {"lens": 12, "pose": 22, "teaser": 27}
MOVES = ("orbit-left", "arc-right", "crane-up", "dolly-in", "truck-left", "spiral", "orbit-right")


def make_samples(folder: Path) -> Path:
    """Write re10k/, panshot/, demo/ and released/ (a checkout of the authors' code) into a folder."""
    poses, panoramas = folder / "re10k", folder / "panshot"
    lens = Pinhole(xfov=90.6)  # 59 degrees from top to bottom, as RealEstate10K's
    for number, name in enumerate(REALESTATE):
        camera = Trajectory.move(MOVES[number], lens, frames=90, fps=30, pitch=4.0 * number, yaw=20.0 * number)
        (camera @ Trajectory.handheld(lens, frames=90, fps=30, seed=number)).save(poses / f"{name}.txt")
    (poses / "traj_normalization.txt").write_text("9.569655060768127441e-01\n")
    depths = {}
    for number, name in enumerate(PANSHOT):
        camera = Trajectory.move(MOVES[number], lens, frames=81, roll=3.0, yaw=50.0 * number)
        clip, depth = tuple(name.rsplit("-", 2)[0].rsplit("-", 1)), 0.3 + 0.2 * number
        depths.setdefault(clip, depth)
        panoramas.mkdir(parents=True, exist_ok=True)
        np.save(panoramas / f"{name}.npy", camera.scaled(depth).c2w[:, :3].float().numpy())
    lines = [
        {"video_id": video, "clip_id": int(number), "near_depth": depth} for (video, number), depth in depths.items()
    ]
    (panoramas / "near_plane_depth-test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _checkout(folder, folder / "released")
    return folder


def _checkout(folder: Path, root: Path) -> None:
    """The files once more, as the authors' code and its lists of demo videos expect them."""
    poses, panoramas = root / "data/RealEstate10k/pose_files/test", root / "data/UCPE/PanShot/pose-test"
    for file, target in (
        *((file, poses) for file in folder.glob("re10k/[0-9a-f]*.txt")),
        (folder / "re10k/traj_normalization.txt", root / "data/RealEstate10k"),
        *((file, panoramas) for file in folder.glob("panshot/*.npy")),
        (folder / "panshot/near_plane_depth-test.jsonl", root / "data/UCPE/PanFlow"),
    ):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    realestate = [f"data/RealEstate10k/pose_files/test/{name}.txt" for name in REALESTATE]
    panshot = [f"data/UCPE/PanShot/pose-test/{name}.npy" for name in PANSHOT]
    for name, count in LISTS.items():
        files = {"lens": realestate[-1:], "pose": panshot, "teaser": realestate + panshot}[name]
        entries = [
            {"pose_path": files[n % len(files)], "x_fov": 90.0 + 3 * n, "xi": n % 3 * 0.5, "caption": f"cat {n}"}
            for n in range(count)
        ]
        for place in (folder / "demo", root / "demo"):
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.json").write_text(json.dumps(entries))
