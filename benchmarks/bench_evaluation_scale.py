"""Many full-size videos through COLMAP: core-seconds and memory against their number; may be stopped and continued.

python benchmarks/bench_evaluation_scale.py bench-eval --videos 200

Two at a time, videos of 81 x 480 x 832 are filmed, each with a camera of its own, in front of textured boards, and
measured one after the other, as `ucpe evaluate` does. For one half on each of two cores, run it twice with a folder and
a --first of their own.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import cv2
import numpy as np
import torch

from ucpe.evaluation.inputs import Job
from ucpe.evaluation.run import evaluate
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles
from ucpe.video import write_video
from ucpe.work import Calls, Item, progress_bar, run

FRAMES, HEIGHT, WIDTH, FPS = 81, 480, 832, 16.0
LENS = Pinhole(xfov=90)
BATCH = 2
BOARDS = (
    (8.0, 0.0, 0.0, 50.0),
    (5.0, -3.0, -0.5, 2.5),
    (4.0, 2.6, 0.4, 2.0),
    (3.0, -0.6, 0.7, 1.2),
    (2.2, 1.1, -0.6, 0.8),
)
"""Depth, middle and width of the textured boards, from the farthest to the nearest; all are half as high as wide."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--videos", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first video")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    folder = options.output / "videos"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {index: folder / f"{index:04d}.mp4" for index in range(options.first, options.first + options.videos)}
    with progress_bar() as show:
        log = Pace(options.output / "pace.jsonl", show)
        for end in range(BATCH, options.videos + BATCH, BATCH):
            batch = list(paths.items())[:end]
            items = [Item(path.stem, (index, path)) for index, path in batch if not path.is_file()]
            for _ in run(Calls(film, "videos to film"), items, progress=show):
                pass
            jobs = [Job(path.stem, path, camera_of(index)) for index, path in batch]
            log.last = time.process_time()
            results = evaluate(jobs, options.output / "report", progress=log)
    log.summarise()
    for name in ("RotErr", "TransErr"):
        print(f"{name}: mean {results.summary['pose'][name].mean:.4f}")
    print(json.dumps(vars(results.counts["pose"])))


class Pace:
    """Notes core-seconds and memory after every video, over all runs."""

    def __init__(self, path: Path, show):
        self.path, self.show = path, show
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        self.last = time.process_time()

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        now = time.process_time()
        if done > len(self.rows):
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self.rows.append({"videos": done, "seconds": round(now - self.last, 2), "megabytes": round(memory)})
            with self.path.open("a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")
        self.last = now
        spent = np.mean([row["seconds"] for row in self.rows] or [0])
        self.show(what, done, total, f"{spent:.1f} core-seconds a video, {note}")

    def summarise(self) -> None:
        """Print what a video takes, in the first and the second half, and how memory grows."""
        seconds, memory = (np.array([row[name] for row in self.rows]) for name in ("seconds", "megabytes"))
        half = max(len(seconds) // 2, 1)
        print(
            f"{len(seconds)} videos: {seconds.mean():.1f} core-seconds each (median {np.median(seconds):.1f}, largest "
            f"{seconds.max():.1f}); first half {seconds[:half].mean():.1f}, second {seconds[-half:].mean():.1f}"
        )
        print(f"memory: {memory[0]} MB after the first video, {memory[half - 1]} after half, {memory[-1]} at the end")


def camera_of(index: int) -> Trajectory:
    """A camera of its own for every video; each fifth only turns."""
    generator = np.random.default_rng(index)
    share = torch.linspace(0, 1, FRAMES, dtype=torch.float64)
    pitch, yaw, roll = (share * generator.uniform(-limit, limit) for limit in (8, 22, 8))
    travel = generator.normal(size=3) * [1, 0.3, 0.7]
    travel *= (index % 5 > 0) * generator.uniform(0.2, 0.7) / np.linalg.norm(travel)
    return Trajectory(
        pose_matrix(rotation_from_angles(pitch, yaw, roll), share[:, None] * torch.from_numpy(travel)), LENS, FPS
    )


def film(task: tuple[int, Path]) -> None:
    """Write the video of one camera."""
    index, path = task
    boards = textures(index)
    matrix = LENS.intrinsics(HEIGHT, WIDTH).double().numpy()
    frames = np.zeros((FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    for frame, pose in zip(frames, camera_of(index).c2w.double().numpy()):
        world_to_camera = np.linalg.inv(pose)[:3]
        for (depth, x, y, width), board in zip(BOARDS, boards):
            scale = width / board.shape[1]
            plane = np.array([[scale, 0, x - width / 2], [0, scale, y - width / 4], [0, 0, depth], [0, 0, 1]])
            homography = matrix @ world_to_camera @ plane
            cv2.warpPerspective(board, homography, (WIDTH, HEIGHT), dst=frame, borderMode=cv2.BORDER_TRANSPARENT)
    write_video(path, frames, FPS, crf=22, preset="ultrafast")


def textures(seed: int) -> list[np.ndarray]:
    """A texture (H, W, 3) with detail at every scale for each board."""
    generator = np.random.default_rng([seed, 1])
    pictures = []
    for columns in (2600, *[512] * (len(BOARDS) - 1)):
        picture = np.zeros((columns // 2, columns, 3), np.float32)
        for cells in (columns // 3, columns // 10, columns // 40):
            noise = generator.uniform(-60, 60, (cells // 2, cells, 3)).astype(np.float32)
            picture += cv2.resize(noise, (columns, columns // 2), interpolation=cv2.INTER_CUBIC)
        pictures.append((picture + generator.uniform(90, 160, 3)).clip(0, 255).astype(np.uint8))
    return pictures


if __name__ == "__main__":
    main()
