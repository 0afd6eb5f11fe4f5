"""The COLMAP estimator's own error: worlds filmed with random cameras, estimated, compared with the truth.

python benchmarks/bench_evaluation_floors.py --clips 16 -o src/ucpe/evaluation/estimators/colmap_floor.json
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from ucpe.evaluation.estimators.base import Clip, EstimationFailure
from ucpe.evaluation.estimators.colmap import ColmapEstimator
from ucpe.evaluation.inputs import lens_family
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.synthesis.desk_clips import VALIDATION_SEED, random_camera
from ucpe.synthesis.worlds import World, render_clip

FRAMES, HEIGHT, WIDTH, FPS = 16, 240, 416, 8.0
KEPT = ("RotErr", "TransErr", "CamMC", "RPE_rot", "RPE_trans", "ATE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    estimator, rows, failed = ColmapEstimator(), [], []
    for index in range(options.clips):
        seed = VALIDATION_SEED + 777_000 + index
        world, generator = World.sample(seed, kind="outdoor"), np.random.default_rng([seed, 13])
        while True:
            _, lens, poses = random_camera(generator, FRAMES)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            if world.clearance(metric[:, :3, 3]).min() > 0.5:
                break
        video = render_clip(world, lens, metric, HEIGHT, WIDTH, FPS, 2, threads=1).color
        try:
            estimate = estimator.estimate(Clip(str(seed), video, np.arange(FRAMES) / FPS), lens)
        except EstimationFailure as failure:
            failed.append(str(failure))
            print(seed, lens_family(lens), "failed:", failure, flush=True)
            continue
        placed = torch.from_numpy(estimate.frames)
        metrics = PROTOCOLS["robust"].evaluate(torch.from_numpy(poses)[placed], estimate.c2w, estimate.near_depth)
        rows.append(metrics)
        numbers = {name: round(metrics[name], 3) for name in KEPT if name in metrics}
        print(seed, lens_family(lens), len(placed), estimate.details.get("method"), numbers, flush=True)
    floor = {name: [row[name] for row in rows if name in row] for name in KEPT}
    result = {
        "metrics": {name: round(float(np.mean(values)), 4) for name, values in floor.items()},
        "medians": {name: round(float(np.median(values)), 4) for name, values in floor.items()},
        "clips": options.clips,
        "failed": len(failed),
        "footage": f"worlds of random cameras, {FRAMES} frames of {HEIGHT} x {WIDTH}",
    }
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
