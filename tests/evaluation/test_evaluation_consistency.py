import numpy as np
import pytest
import torch

from ucpe.evaluation.consistency import arc_distance, mutual_matches, pixel_angle, scene_consistency
from ucpe.evaluation.estimators.base import EstimationFailure
from ucpe.lenses import UCM, Pinhole
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_exp

FRAMES, HEIGHT, WIDTH = 9, 144, 248
LENS = UCM(xfov=150, xi=1.3)


def test_a_match_is_allowed_exactly_where_some_depth_puts_it():
    generator = np.random.default_rng(0)
    before = generator.normal(size=(400, 3))  # all around: any lens
    before /= np.linalg.norm(before, axis=1, keepdims=True)
    motion = np.eye(4)
    motion[:3, :3] = rotation_exp(torch.tensor([0.2, -0.4, 0.1], dtype=torch.float64)).numpy()
    motion[:3, 3] = [0.3, -0.1, 0.2]
    depth = generator.uniform(0.1, 30, (400, 1))
    after = (before * depth) @ motion[:3, :3].T + motion[:3, 3]
    after /= np.linalg.norm(after, axis=1, keepdims=True)
    away, turned = arc_distance(before, after, motion)
    assert away.max() < 1e-6 and turned.max() > 0.1
    behind = (before * -depth) @ motion[:3, :3].T + motion[:3, 3]
    behind /= np.linalg.norm(behind, axis=1, keepdims=True)
    assert np.median(arc_distance(before, behind, motion)[0]) > 0.5
    # Brute force: the smallest angle to the points of many depths.
    other = np.roll(after, 1, axis=0)
    depths = np.geomspace(0.1, 1e5, 4000)[:, None]
    for index in range(20):
        points = (before[index] * depths) @ motion[:3, :3].T + motion[:3, 3]
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        nearest = np.arccos(np.clip(points @ other[index], -1, 1)).min()
        assert arc_distance(before[[index]], other[[index]], motion)[0][0] == pytest.approx(nearest, abs=2e-3)
    motion[:3, 3] = 0
    assert np.abs(np.subtract(*arc_distance(before, after, motion))).max() < 1e-6


def test_matches_are_mutual_and_clear():
    first = np.eye(4, dtype=np.float32)
    second = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0.7, 0.714], [0, 0, 0.714, 0.7]], np.float32)
    assert mutual_matches(first, second).tolist() == [[0, 1], [1, 0]]
    assert mutual_matches(first[:1], second).shape == (0, 2)


def test_a_pixel_of_a_pinhole_has_its_known_angle():
    assert pixel_angle(Pinhole(xfov=90), 100, 200) == pytest.approx(1 / 100, rel=1e-4)


def test_pictures_without_texture_are_not_judged():
    with pytest.raises(EstimationFailure, match="too few"):
        scene_consistency(np.full((4, 60, 100, 3), 90, np.uint8), Trajectory.static(LENS, frames=4))


@pytest.mark.slow
def test_worlds_agree_with_their_cameras_and_with_no_others():
    world = World.sample(3, kind="outdoor")
    camera = Trajectory.move("truck-right 0.6 with pan-right 20", LENS, frames=FRAMES, fps=8, pitch=-8)
    c2w = camera.c2w.numpy().copy()
    c2w[:, :3, 3] *= world.near_depth
    frames = render_clip(world, LENS, c2w, HEIGHT, WIDTH, 8.0, 1, threads=1).color
    true = scene_consistency(frames, camera)
    assert true["EpipolarShare"] > 85 and true["ReprojErr"] < 1.0 and true["ParallaxShare"] > 5
    moved = frames.copy()
    moved[4] = np.roll(moved[4], 9, axis=1)  # one frame does not fit the others
    mirrored = Trajectory.move("truck-left 0.6 with pan-left 20", LENS, frames=FRAMES, fps=8, pitch=-8)
    faults = {
        "one frame moved": scene_consistency(moved, camera),
        "frozen": scene_consistency(frames[[0] * FRAMES], camera),
        "mirrored": scene_consistency(frames, mirrored),
    }
    for name, found in faults.items():
        limit = 0.9 if name == "one frame moved" else 0.4
        assert found["EpipolarShare"] < limit * true["EpipolarShare"], name
    frozen_truck = scene_consistency(frames[[0] * FRAMES], Trajectory.truck(LENS, distance=0.6, frames=FRAMES, fps=8))
    assert frozen_truck["ParallaxShare"] < 1  # all matches are allowed, infinitely far away
