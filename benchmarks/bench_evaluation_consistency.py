"""3D consistency on true worlds, and on the same worlds with faults: what each of its numbers notices.

python benchmarks/bench_evaluation_consistency.py --worlds 6
"""

import argparse

import numpy as np
import torch

from ucpe.desk import clips as desk_clips
from ucpe.evaluation.consistency import scene_consistency
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory

FRAMES, HEIGHT, WIDTH, FPS = 9, 240, 416, 8.0
NUMBERS = ("EpipolarShare", "ParallaxShare", "ReprojErr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, list[dict[str, float]]] = {}
    for index in range(options.worlds):
        seed = desk_clips.VALIDATION_SEED + 999_000 + index
        world, generator = World.sample(seed, kind="outdoor"), np.random.default_rng([seed, 13])
        while True:
            _, lens, poses = desk_clips.random_camera(generator, FRAMES)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            travels = np.linalg.norm(poses[-1, :3, 3]) > 0.3
            if travels and world.clearance(metric[:, :3, 3]).min() > 0.5:
                break
        frames = render_clip(world, lens, metric, HEIGHT, WIDTH, FPS, 1, threads=1).color
        camera = Trajectory(torch.from_numpy(poses), lens, FPS)
        moved = frames.copy()
        moved[FRAMES // 2] = np.roll(moved[FRAMES // 2], WIDTH // 25, axis=1)
        relative = camera.relative_to_first().c2w
        mirrored = Trajectory(torch.linalg.inv(relative), lens, FPS)
        cases = {
            "true": (frames, camera),
            "one frame moved": (moved, camera),
            "frozen": (frames[[0] * FRAMES], camera),
            "mirrored path": (frames, mirrored),
            "frames shuffled": (frames[np.random.default_rng(index).permutation(FRAMES)], camera),
        }
        for name, (video, told) in cases.items():
            rows.setdefault(name, []).append(scene_consistency(video, told))
            print(seed, name, {key: round(value, 2) for key, value in rows[name][-1].items()}, flush=True)
    print("| | " + " | ".join(NUMBERS) + " |\n|---|---|---|---|")
    for name, found in rows.items():
        values = [np.mean([row[number] for row in found if number in row]) for number in NUMBERS]
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


if __name__ == "__main__":
    main()
