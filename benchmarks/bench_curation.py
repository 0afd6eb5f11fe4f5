"""Poses and scale of rendered 360 degree clips: errors against the truth, and processor time per frame.

Goals: absolute trajectory error after a similarity below 0.5 % of the path length, near-plane depth within 5 %. The
scale is measured twice, with the true poses and with the estimated ones. Worlds with moving objects are marked *.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from ucpe.lenses import Equirectangular
from ucpe.synthesis.curation.poses import SphericalMapper, Track
from ucpe.synthesis.curation.scale import DepthOptions, near_depth
from ucpe.synthesis.worlds import World, near_plane_depth, render_clip
from ucpe.trajectories import Trajectory, alignment_error, umeyama

LENS = Equirectangular()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=10)
    parser.add_argument("--frames", type=int, default=31)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--first", type=int, default=100, help="seed of the first world")
    parser.add_argument("--kind", choices=("outdoor", "indoor"), help="of the worlds; three in four are outdoors")
    parser.add_argument("--noise", type=float, default=2.0, help="standard deviation of noise in grey levels")
    parser.add_argument("--samples", type=int, default=8, help="frames measured for the scale")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mapper, options = SphericalMapper(), DepthOptions(samples=arguments.samples)
    moves = list(paths(arguments.frames))
    print(f"{arguments.clips} clips of {arguments.frames} frames, {arguments.width} x {arguments.width // 2}")
    print("world  kind      path      tracks  position %  rotation deg  scale % (true poses)   s/frame poses  scale")
    rows = []
    for number in range(arguments.clips):
        seed, (name, camera) = arguments.first + number, moves[number % len(moves)]
        moving = number % 3 == 2
        world = World.sample(seed, arguments.kind, moving)
        c2w = camera.scaled(world.near_depth).c2w
        clip = render_clip(world, LENS, c2w, arguments.width // 2, arguments.width, threads=1)
        noise = np.random.default_rng(seed).normal(0, arguments.noise, clip.color.shape)
        frames = (clip.color + noise).round().clip(0, 255).astype(np.uint8)
        truth, near = c2w.double().numpy(), near_plane_depth(clip.depth)
        tracks, seconds = timed(lambda frames=frames: mapper.track(frames))
        kind = f"{seed:5d}{'*' if moving else ' '} {world.kind:8s}  {name:8s}  {len(tracks):6d}"
        if [len(track.c2w) for track in tracks] != [len(frames)]:
            print(kind, " lost:", ", ".join(f"{track.start}-{track.stop}" for track in tracks) or "everything")
            rows.append([np.inf] * 4)
            continue
        position, rotation, factor = compare(tracks[0], truth)
        measured, scale_seconds = timed(lambda frames=frames, truth=truth: near_depth(frames, truth, options=options))
        estimated = near_depth(frames, tracks[0].c2w, options=options) * factor
        rows.append([position, rotation, abs(estimated / near - 1), abs(measured / near - 1)])
        print(
            f"{kind}  {100 * position:10.3f}  {rotation:12.3f}  {100 * (estimated / near - 1):+7.2f} "
            f"({100 * (measured / near - 1):+6.2f})          {seconds / len(frames):13.3f}  "
            f"{scale_seconds / len(frames):5.3f}",
            flush=True,
        )
    errors = np.array(rows)
    print(f"position error below 0.5 %: {(errors[:, 0] < 0.005).sum()} of {len(errors)}, worst {worst(errors[:, 0])}")
    print(f"scale within 5 %:           {(errors[:, 2] < 0.05).sum()} of {len(errors)}, worst {worst(errors[:, 2])}")


def paths(frames: int):
    """Named paths in near-plane depths."""
    yield "forward", Trajectory.dolly(LENS, 0.6, frames=frames)
    yield "sideways", Trajectory.truck(LENS, -0.5, frames=frames)
    yield "bend", Trajectory.arc(LENS, 60, radius=0.5, frames=frames)
    yield "upwards", Trajectory.pedestal(LENS, 0.3, frames=frames)
    yield "orbit", Trajectory.orbit(LENS, 40, radius=0.7, frames=frames)


def compare(track: Track, truth: np.ndarray) -> tuple[float, float, float]:
    """Position error in path lengths, largest relative rotation error in degrees, and the scale to the truth."""
    found, wanted = torch.from_numpy(track.c2w[:, :3, 3]), torch.from_numpy(truth[:, :3, 3])
    similarity = umeyama(found, wanted)
    length = wanted.diff(dim=0).norm(dim=1).sum()
    turned, meant = track.c2w[:, :3, :3], truth[:, :3, :3]
    off = (turned[0].T @ turned) - (meant[0].T @ meant)
    angle = 2 * np.arcsin(np.clip(np.linalg.norm(off, axis=(1, 2)) / np.sqrt(8), 0, 1))
    error = float(alignment_error(similarity, found, wanted) / length)
    return error, float(np.degrees(angle.max())), float(similarity.scale)


def timed(run):
    start = time.process_time()
    return run(), time.process_time() - start


def worst(values: np.ndarray) -> str:
    return "lost" if np.isinf(values).any() else f"{100 * values.max():.3f} %"


if __name__ == "__main__":
    main()
