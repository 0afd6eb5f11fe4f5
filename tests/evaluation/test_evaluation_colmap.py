import numpy as np
import pytest
import torch

from ucpe.evaluation.estimators.base import Clip, EstimationFailure
from ucpe.evaluation.estimators.colmap import (
    ColmapEstimator,
    ColmapSettings,
    PairMatches,
    epipolar_distance,
    fit_rotation,
    prefers_rotation,
)
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.lenses import UCM
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_exp

pytest.importorskip("pycolmap")
FRAMES, HEIGHT, WIDTH = 6, 168, 288
LENS = UCM(xfov=150, xi=1.3)


def filmed(camera: Trajectory, seed: int = 3) -> Clip:
    world = World.sample(seed, kind="outdoor")
    c2w = camera.c2w.numpy().copy()
    c2w[:, :3, 3] *= world.near_depth
    video = render_clip(world, camera.lens, c2w, HEIGHT, WIDTH, camera.fps, 1, threads=1).color
    return Clip("world", video, np.arange(len(camera)) / camera.fps)


def rays(generator, count=200):
    directions = generator.normal(size=(count, 3)) * [1, 0.6, 0.1] + [0, 0, 1.5]
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def test_fit_rotation_ignores_wrong_matches():
    generator = np.random.default_rng(0)
    rotation = rotation_exp(torch.tensor([0.1, -0.2, 0.05], dtype=torch.float64)).numpy()
    before = rays(generator)
    after = before @ rotation.T + generator.normal(size=before.shape) * 1e-4
    after[:60] = rays(generator, 60)
    found, share = fit_rotation(before, after, 1e-3, generator)
    assert np.abs(found - rotation).max() < 1e-4
    assert share == pytest.approx(0.7, abs=0.03)


def test_moving_and_turning_are_told_apart():
    generator = np.random.default_rng(1)
    before = rays(generator)
    depth = generator.uniform(2, 8, (len(before), 1))
    rotation = rotation_exp(torch.tensor([0.0, 0.2, 0.0], dtype=torch.float64)).numpy()
    shift = np.array([0.5, 0.0, 0.1])
    essential = np.cross(np.eye(3), shift).T @ rotation
    for move, turns in ((shift, False), (np.zeros(3), True)):
        after = (before * depth) @ rotation.T + move
        after /= np.linalg.norm(after, axis=1, keepdims=True)
        after += generator.normal(size=after.shape) * 1e-3
        after /= np.linalg.norm(after, axis=1, keepdims=True)
        pair = PairMatches(0, 1, before, after, essential)
        fits = {(0, 1): fit_rotation(before, after, 3e-3, generator)}
        assert prefers_rotation([pair], fits, 1e-3) is turns
        if not turns:
            assert np.median(epipolar_distance(essential, before, after)) < 2e-3


def test_recovers_a_moving_camera_through_a_fisheye_and_always_the_same():
    shot = {"frames": FRAMES, "fps": 4}
    camera = Trajectory.truck(LENS, distance=0.8, pitch=-8, **shot) @ Trajectory.pan(LENS, degrees=15, **shot)
    clip = filmed(camera)
    estimator = ColmapEstimator(ColmapSettings(seeds=(0, 1), max_features=1200))
    first, second = (estimator.estimate(clip, LENS) for _ in range(2))
    assert first.frames.tolist() == list(range(FRAMES))
    assert torch.equal(first.c2w, second.c2w)
    metrics = PROTOCOLS["robust"].evaluate(camera.c2w, first.c2w, first.near_depth)
    assert metrics["RotErr"] < 0.5
    assert metrics["TransErr"] < 0.1 * float(camera.positions[-1].norm())


def test_recovers_a_pan_without_inventing_a_translation():
    camera = Trajectory.pan(LENS, degrees=25, frames=FRAMES, fps=4)
    estimate = ColmapEstimator(ColmapSettings(seeds=(0,), max_features=1200)).estimate(filmed(camera), LENS)
    metrics = PROTOCOLS["robust"].evaluate(camera.c2w, estimate.c2w, estimate.near_depth)
    assert metrics["RotErr"] < 0.3
    assert metrics["TransErr"] < 0.03


@pytest.mark.parametrize(
    ("frames", "reason"),
    [(np.full((3, 96, 160, 3), 90, np.uint8), "texture"), (np.zeros((1, 96, 160, 3), np.uint8), "at least two")],
)
def test_videos_without_content_fail_with_a_reason(frames, reason):
    with pytest.raises(EstimationFailure, match=reason):
        ColmapEstimator().estimate(Clip("empty", frames, np.arange(len(frames)) / 4), LENS)


def test_unrelated_frames_fail_with_a_reason():
    frames = np.stack([filmed(Trajectory.static(LENS, frames=1), seed).frames[0] for seed in (3, 8)])
    noise = np.random.default_rng(0).integers(0, 255, frames.shape, np.uint8)
    with pytest.raises(EstimationFailure, match=r"matched|triangulated|texture"):
        ColmapEstimator().estimate(Clip("cut", noise, np.arange(2) / 4), LENS)
