"""Turn and travel by geometry: right on true videos, mirrored with the picture, still where nothing moves."""

import numpy as np
import pytest
import torch

from ucpe.evaluation.estimators.known_scene import _Scene, commanded_motion, estimate_motion
from ucpe.lenses import UCM
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories.rotations import pose_matrix, rotation_from_angles


def seen(world, lens, yaw, travel, pitch=(-8.0, -12.0), roll=(3.0, -2.0), heading=40.0):
    """Two frames (2, 64, 112, 3) and their poses in near-plane depths."""
    yaws = heading + torch.tensor([0.0, yaw]).double()
    turned = rotation_from_angles(torch.tensor(pitch).double(), yaws, torch.tensor(roll).double())
    level = rotation_from_angles(torch.zeros(()).double(), yaws[0], torch.zeros(()).double())
    c2w = pose_matrix(turned, torch.stack([torch.zeros(3).double(), level @ torch.tensor(travel).double()]))
    metric = c2w.clone()
    metric[:, :3, 3] *= world.near_depth
    return render_clip(world, lens, metric, 64, 112, samples=2, threads=1).color, c2w


def estimated(frames, world, lens, pitch=(-8.0, -12.0), roll=(3.0, -2.0)):
    return estimate_motion(frames, lens, torch.tensor(pitch), torch.tensor(roll), 1.6 / world.near_depth)


@pytest.mark.parametrize(
    ("yaw", "travel"), [(0.0, (0.0, 0.0, 0.0)), (35.0, (0.3, 0.0, 0.5)), (-22.0, (-0.6, 0.1, -0.3))]
)
@pytest.mark.parametrize("lens", [UCM(xfov=110.0, xi=0.3), UCM(xfov=160.0, xi=1.5)], ids=["wide", "fisheye"])
def test_true_videos_give_their_own_motion(lens, yaw, travel):
    world = World.sample(3, objects=0, style="plain")
    frames, c2w = seen(world, lens, yaw, travel)
    wanted = commanded_motion(c2w)
    assert wanted.yaw == pytest.approx(yaw, abs=1e-4)
    assert wanted.travel.tolist() == pytest.approx(travel, abs=1e-5)
    found = estimated(frames, world, lens)
    assert abs(found.yaw - yaw) < 1.5
    assert (found.travel - wanted.travel)[[0, 2]].norm() < 0.12


def test_a_mirrored_video_moves_the_other_way():
    world, lens = World.sample(5, style="plain"), UCM(xfov=120.0, xi=0.5)
    frames, _ = seen(world, lens, 28.0, (0.4, 0.0, 0.2))
    found = estimated(frames, world, lens)
    mirrored = estimated(np.ascontiguousarray(frames[:, :, ::-1]), world, lens, roll=(-3.0, 2.0))
    assert mirrored.yaw == pytest.approx(-found.yaw, abs=1.0)
    assert float(mirrored.travel[0]) == pytest.approx(-float(found.travel[0]), abs=0.1)


def test_one_frame_twice_stands_still_whatever_was_commanded():
    world, lens = World.sample(7, style="plain"), UCM(xfov=90.0, xi=0.0)
    frames, _ = seen(world, lens, 40.0, (0.5, 0.0, 0.5), pitch=(-8.0, -8.0), roll=(3.0, 3.0))
    found = estimated(frames[[0, 0]], world, lens, pitch=(-8.0, -8.0), roll=(3.0, 3.0))
    assert abs(found.yaw) < 0.2 and found.travel.norm() < 0.02 and found.error < 1e-3


def test_looking_away_from_noise_is_not_cheaper_than_looking_at_it():
    world, lens = World.sample(11, objects=0, style="plain"), UCM(xfov=90.0, xi=0.0)
    frames, _ = seen(world, lens, 0.0, (0.0, 0.0, 0.0))
    frames[1] = np.random.default_rng(0).integers(0, 256, frames[1].shape)
    scene = _Scene(frames, lens, torch.tensor([-8.0, -12.0]), torch.tensor([3.0, -2.0]), 0.5, 2)
    here, away = scene.cost(torch.tensor([[0.0, 0.0, 0.0, 0.0], [66.0, 0.0, 0.0, 0.0]]))
    assert away > 0.97 * here
