"""Matching panoramic clips with motions at the paper's scale: 300,000 x 300 paths of 81 frames, best 30 of each.

Goal: under 60 s and under 4 GB; one thread is enough. Wall clock time depends on what else the machine does, processor
time does not; both are printed. A loop over single pairs, measured on a sample in the same run, gives the ratio.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import torch

from ucpe.synthesis.motion.matching import match
from ucpe.trajectories import alignment_error, umeyama


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=300_000)
    parser.add_argument("--motions", type=int, default=300)
    parser.add_argument("--frames", type=int, default=81)
    parser.add_argument("--best", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sample", type=int, default=2000, help="pairs for the loops")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clips, motions = paths(arguments.clips, arguments.frames, 0), paths(arguments.motions, arguments.frames, 1)
    match(clips[:5000], motions, arguments.best)

    pairs = len(clips) * len(motions)
    wall, work = timed(lambda: match(clips, motions, arguments.best))
    print(f"{len(clips):,} clips x {len(motions)} motions x {arguments.frames} frames, {arguments.threads} thread(s)")
    print(f"  all pairs at once    {wall:8.1f} s wall clock   {work:8.1f} s of processor time")
    print(f"  peak memory of the process, inputs and outputs included: {peak():.2f} GB")
    sample = [(n % len(clips), (7 * n) % len(motions)) for n in range(arguments.sample)]
    torch.set_num_threads(1)
    for name, loop in (("umeyama(vertical=True)", umeyama_pair), ("bare NumPy", numpy_pair)):
        start = time.process_time()
        for clip, motion in sample:
            loop(clips[clip].double(), motions[motion].double())
        one = time.process_time() - start
        total = one / len(sample) * pairs
        print(
            f"  loop, {name:<24} {1e6 * one / len(sample):7.0f} us a pair -> {total / 3600:6.1f} h of processor time, "
            f"{total / work:8.0f} x as long (from {len(sample)} pairs)"
        )


def umeyama_pair(clip: torch.Tensor, motion: torch.Tensor) -> float:
    return float(alignment_error(umeyama(motion, clip, vertical=True), motion, clip))


def numpy_pair(clip: torch.Tensor, motion: torch.Tensor) -> float:
    """As little work for one pair as NumPy allows."""
    p, m = clip.numpy(), motion.numpy()
    p, m = p - p.mean(0), m - m.mean(0)
    covariance = p.T @ m
    overlap = np.hypot(covariance[0, 0] + covariance[2, 2], covariance[0, 2] - covariance[2, 0]) + covariance[1, 1]
    rest = (p * p).sum() - max(overlap, 0) ** 2 / (m * m).sum()
    return float(np.sqrt(max(rest, 0) / len(p)))


def paths(count: int, frames: int, seed: int) -> torch.Tensor:
    """Smooth random paths (count, frames, 3) float32."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.empty(count, frames, 3)
    for start in range(0, count, 10_000):
        part = found[start : start + 10_000]
        velocity = torch.randn(part.shape, generator=generator).cumsum_(1)
        torch.cumsum(velocity, 1, out=part)
    return found


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall clock and of processor time."""
    wall, work = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - work


def peak() -> float:
    """Largest memory of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
