"""The pose estimators' own errors under every protocol: worlds filmed with random cameras, estimated, compared.

python benchmarks/bench_evaluation_floors.py colmap --clips 20 -o src/ucpe/evaluation/estimators/colmap_floor.json
python benchmarks/bench_evaluation_floors.py desk --clips 100 -o src/ucpe/desk/weights/estimator_floors.json
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from ucpe import desk
from ucpe.desk import clips as desk_clips
from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Clip, EstimationFailure
from ucpe.evaluation.inputs import lens_family
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.evaluation.records import pose_metrics
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory

FPS = 8.0
SIZES = {"colmap": (16, 240, 416), "desk": (desk.FRAMES, desk.HEIGHT, desk.WIDTH)}
KEPT = ("RotErr", "TransErr", "CamMC", "SpeedErr", "RPE_rot", "RPE_trans", "ATE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("estimator", choices=SIZES)
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frames, height, width = SIZES[options.estimator]
    estimator, rows, failed = EstimatorChoice(options.estimator).pose_estimator(), [], []
    times = np.arange(frames) / FPS
    for index in range(options.clips):
        seed = desk_clips.VALIDATION_SEED + 777_000 + index
        world, generator = World.sample(seed, kind="outdoor"), np.random.default_rng([seed, 13])
        while True:
            _, lens, poses = desk_clips.random_camera(generator, frames)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            if world.clearance(metric[:, :3, 3]).min() > 0.5:
                break
        video = render_clip(world, lens, metric, height, width, FPS, 2, threads=1).color
        try:
            estimate = estimator.estimate(Clip(str(seed), video, times), lens)
        except EstimationFailure as failure:
            failed.append(str(failure))
            print(seed, lens_family(lens), "failed:", failure, flush=True)
            continue
        camera = Trajectory(torch.from_numpy(poses), lens, FPS)
        metrics = {name: pose_metrics(camera, estimate, times, protocol) for name, protocol in PROTOCOLS.items()}
        rows.append(metrics)
        numbers = {name: round(metrics["robust"][name], 3) for name in KEPT if name in metrics["robust"]}
        print(seed, lens_family(lens), len(estimate.frames), estimate.details.get("method"), numbers, flush=True)
    result = {
        "metrics": {protocol: summary(rows, protocol, np.mean) for protocol in PROTOCOLS},
        "medians": {protocol: summary(rows, protocol, np.median) for protocol in PROTOCOLS},
        "clips": options.clips,
        "failed": len(failed),
        "footage": f"worlds of random cameras, {frames} frames of {height} x {width}",
        "files": [hashlib.sha256(path.read_bytes()).hexdigest() for path in estimator.files("")],
    }
    print(json.dumps(result, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def summary(rows: list[dict[str, dict[str, float]]], protocol: str, reduce) -> dict[str, float]:
    values = {name: [row[protocol][name] for row in rows if name in row[protocol]] for name in KEPT}
    return {name: round(float(reduce(numbers)), 4) for name, numbers in values.items() if numbers}


if __name__ == "__main__":
    main()
