"""Optical flow of panoramas by OpenCV's DIS and by GMFlow, and the near-plane depth that curation takes from it.

python benchmarks/bench_flow.py --width 640 --worlds 2     # curation's size; GMFlow takes minutes

Two frames of each procedural world, whose flow and depth are known, with the true poses.
"""

import argparse
import time

import numpy as np
import torch

from ucpe.lenses import Equirectangular
from ucpe.synthesis.curation.flow import DISFlow, SphereFlow, sphere_directions
from ucpe.synthesis.curation.gmflow import GMFlow
from ucpe.synthesis.curation.scale import NEAR_PERCENTILE, DepthOptions, depth_of
from ucpe.synthesis.worlds import World, near_plane_depth, render_clip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--seed", type=int, default=10_999_000, help="of the first world")
    parser.add_argument("--worlds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    height, width = options.width // 2, options.width
    for seed in range(options.seed, options.seed + options.worlds):
        world = World.sample(seed, kind="outdoor")
        c2w = np.tile(np.eye(4), (2, 1, 1))
        c2w[1, :3, 3] = np.array([0.08, 0.0, 0.12]) * world.near_depth
        clip = render_clip(world, Equirectangular(), c2w, height, width, 8.0, 2, threads=1)
        directions = sphere_directions(height, width).astype(np.float64)
        truth = directions * np.minimum(clip.depth[0], 1e6)[..., None] - c2w[1, :3, 3]
        truth /= np.linalg.norm(truth, axis=-1, keepdims=True)
        for method in (DISFlow, GMFlow):
            flow = Remembered(method())
            started = time.process_time()
            depth = depth_of(clip.color[0], clip.color[1], c2w[1], flow, DepthOptions(width=width))
            seconds = time.process_time() - started
            off = np.linalg.norm(flow.found[0] - truth, axis=-1)
            pixels = 2 * np.arcsin(np.clip(off / 2, 0, 1)) * width / (2 * np.pi)
            near = np.nanpercentile(depth, NEAR_PERCENTILE) / near_plane_depth(clip.depth[:1]) - 1
            print(
                f"world {seed}, {method.__name__} at {height} x {width}: flow median {np.median(pixels):.3f} px, mean "
                f"{pixels.mean():.3f}, over 1 px {np.mean(pixels > 1):.1%}; near-plane depth {near:+.1%}; "
                f"{seconds:.1f} core-seconds a depth map",
                flush=True,
            )


class Remembered:
    """A flow that keeps what it found."""

    def __init__(self, flow: SphereFlow):
        self.flow = flow
        self.found: list[np.ndarray] = []

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        self.found.append(self.flow(first, second))
        return self.found[-1]


if __name__ == "__main__":
    main()
