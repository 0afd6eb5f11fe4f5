"""Optical flow of panoramas by OpenCV's DIS and by GMFlow, against the truth of a procedural world.

python benchmarks/bench_flow.py --width 640        # curation's size; GMFlow takes minutes
"""

import argparse
import time

import numpy as np
import torch

from ucpe.lenses import Equirectangular
from ucpe.synthesis.curation.flow import DISFlow, SphereFlow, sphere_directions
from ucpe.synthesis.curation.gmflow import GMFlow
from ucpe.synthesis.worlds import World, render_clip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--seed", type=int, default=10_999_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    height, width = options.width // 2, options.width
    world = World.sample(options.seed, kind="outdoor")
    c2w = np.tile(np.eye(4), (2, 1, 1))
    c2w[1, :3, 3] = np.array([0.08, 0.0, 0.12]) * world.near_depth
    clip = render_clip(world, Equirectangular(), c2w, height, width, 8.0, 2, threads=1)
    directions = sphere_directions(height, width).astype(np.float64)
    depth = np.minimum(clip.depth[0], 1e6)[..., None]
    truth = directions * depth - c2w[1, :3, 3]
    truth /= np.linalg.norm(truth, axis=-1, keepdims=True)
    for method in (DISFlow, GMFlow):
        flow: SphereFlow = method()
        started = time.process_time()
        found = flow(clip.color[0], clip.color[1]).astype(np.float64)
        seconds = time.process_time() - started
        pixels = 2 * np.arcsin(np.clip(np.linalg.norm(found - truth, axis=-1) / 2, 0, 1)) * width / (2 * np.pi)
        print(
            f"{method.__name__} at {height} x {width}: median {np.median(pixels):.3f} px, mean {pixels.mean():.3f}, "
            f"over 1 px {np.mean(pixels > 1):.1%}; {seconds:.1f} core-seconds",
            flush=True,
        )


if __name__ == "__main__":
    main()
