"""Measure a desk model on held-out cameras by geometry alone: turn, travel and sharpness, beside true videos.

    python -m recipes.desk.measure [PIPELINE_FOLDER] --cameras 24

Nothing here is learned, and nothing knows which model made a video (`ucpe.evaluation.estimators.known_scene`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ucpe import CameraPipeline, Trajectory
from ucpe.desk import FPS
from ucpe.desk.clips import VALIDATION_SEED, load_shard, render_shard
from ucpe.evaluation.estimators.known_scene import commanded_motion, estimate_motion
from ucpe.synthesis.worlds.surroundings import EYE_HEIGHT
from ucpe.trajectories.rotations import angles_from_rotation


def gradient_energy(frame: np.ndarray) -> float:
    """Mean squared difference between neighbouring pixels of a frame (H, W, 3) uint8."""
    picture = frame.astype(np.float64) / 255
    return float((np.diff(picture, axis=0) ** 2).mean() + (np.diff(picture, axis=1) ** 2).mean())


MOVES, AGREES = 0.2, 0.5**0.5
"""Travel in near-plane depths from which a clip counts as moving, and the least cosine of a right direction."""


def main() -> None:
    """Print mean errors over held-out cameras, with the first frame given or from text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="pipeline folder with its adapter (default: the bundled desk model)")
    parser.add_argument("--cameras", type=int, default=24)
    parser.add_argument("--first-seed", type=int, default=VALIDATION_SEED, help="seed of the first world")
    parser.add_argument("--style", choices=("textured", "plain"), default="plain")
    parser.add_argument("--from-text", action="store_true", help="do not give the first frame")
    parser.add_argument("--clips", type=Path, help="folder that keeps the rendered clips")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = options.clips or Path(folder)
        clips = load_shard(render_shard(0, options.first_seed, where, style=options.style, clips=options.cameras))
    assert clips.near_depth is not None
    pipe = CameraPipeline.from_pretrained(options.model)
    errors: dict[str, list[list[float]]] = {"generated": [], "true videos": [], "standing still": []}
    directions: dict[str, list[bool]] = {"generated": [], "true videos": []}
    sharpness = []
    for index in range(options.cameras):
        camera = Trajectory(clips.c2w[index].double(), clips.lens(index), FPS)
        true = clips.video[index].numpy()
        first = None if options.from_text else true[0]
        made = np.asarray(pipe(clips.captions[index], camera, image=first, seed=index).videos[0].frames)
        ends = camera.c2w[[0, -1]]
        angles, wanted = angles_from_rotation(ends[:, :3, :3]), commanded_motion(ends)
        ground = EYE_HEIGHT / float(clips.near_depth[index])
        errors["standing still"].append([abs(wanted.yaw), float(wanted.travel[[0, 2]].norm())])
        for name, video in (("generated", made), ("true videos", true)):
            yaw, travel, _ = estimate_motion(video[[0, -1]], camera.lens, angles.pitch, angles.roll, ground)
            there, seen = wanted.travel[[0, 2]], travel[[0, 2]]
            errors[name].append([abs(yaw - wanted.yaw), float((seen - there).norm())])
            if there.norm() > MOVES:
                directions[name].append(float(seen @ there) > AGREES * float(seen.norm() * there.norm()))
        sharpness.append(gradient_energy(made[-1]) / gradient_energy(true[-1]))
    for name, rows in errors.items():
        mean, median = np.mean(rows, axis=0), np.median(rows, axis=0)
        line = f"{name:<15} yaw {mean[0]:5.1f} (median {median[0]:.1f}) degrees, travel {mean[1]:.2f} ({median[1]:.2f})"
        print(line + (f", to the right side {np.mean(directions[name]):.0%}" if name in directions else ""))
    print(f"gradient energy of the last frame: {np.mean(sharpness):.2f} of the truth's")


if __name__ == "__main__":
    main()
