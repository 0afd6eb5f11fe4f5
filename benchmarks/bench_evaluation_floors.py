"""The pose estimators' own errors under every protocol: worlds filmed with random cameras, estimated, compared.

python benchmarks/bench_evaluation_floors.py colmap --clips 20 -o src/ucpe/evaluation/estimators/colmap_floor.json
python benchmarks/bench_evaluation_floors.py desk --clips 100 -o src/ucpe/desk/weights/estimator_floors.json
python benchmarks/bench_evaluation_floors.py colmap --clips 5 --full-size                   # videos of 81 x 480 x 832
python benchmarks/bench_evaluation_floors.py colmap --clips 5 --full-size --every-frame     # minutes a video
"""

import argparse
import hashlib
import json
import time
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
FULL_SIZE, FULL_FPS = (81, 480, 832), 16.0
SIZES = {"colmap": (16, 240, 416), "desk": (desk.FRAMES, desk.HEIGHT, desk.WIDTH)}
KEPT = ("RotErr", "TransErr", "CamMC", "SpeedErr", "RPE_rot", "RPE_trans", "ATE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("estimator", choices=SIZES)
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--full-size", action="store_true", help="videos as Wan makes them")
    parser.add_argument("--every-frame", action="store_true", help="COLMAP places all frames, not four a second")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    frames, height, width = FULL_SIZE if options.full_size else SIZES[options.estimator]
    fps = FULL_FPS if options.full_size else FPS
    estimator = EstimatorChoice(options.estimator, every_frame=options.every_frame).pose_estimator()
    rows, failed, times = [], [], np.arange(frames) / fps
    for index in range(options.clips):
        seed = desk_clips.VALIDATION_SEED + 777_000 + index
        world, generator = World.sample(seed, kind="outdoor"), np.random.default_rng([seed, 13])
        while True:
            _, lens, poses = desk_clips.random_camera(generator, frames)
            metric = poses.copy()
            metric[:, :3, 3] *= world.near_depth
            if world.clearance(metric[:, :3, 3]).min() > 0.5:
                break
        video = render_clip(world, lens, metric, height, width, fps, 2, threads=1).color
        started = time.process_time()
        try:
            estimate = estimator.estimate(Clip(str(seed), video, times), lens)
        except EstimationFailure as failure:
            failed.append(str(failure))
            print(seed, lens_family(lens), "failed:", failure, flush=True)
            continue
        seconds = time.process_time() - started
        camera = Trajectory(torch.from_numpy(poses), lens, fps)
        metrics = {name: pose_metrics(camera, estimate, times, protocol) for name, protocol in PROTOCOLS.items()}
        rows.append(metrics)
        numbers = {name: round(metrics["robust"][name], 4) for name in KEPT if name in metrics["robust"]}
        how = f"{len(estimate.frames)} frames by {estimate.details.get('method')}, {seconds:.0f} core-seconds"
        print(seed, lens_family(lens), how, numbers, flush=True)
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
