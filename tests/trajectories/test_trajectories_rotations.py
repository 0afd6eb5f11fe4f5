"""Rotations against SciPy, at their edges, and by property."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp

from ucpe.trajectories import rotations
from ucpe.trajectories.rotations import (
    angles_from_rotation,
    invert_pose,
    nearest_rotation,
    pose_matrix,
    quaternion_from_rotation,
    rotation_angle,
    rotation_between,
    rotation_exp,
    rotation_from_angles,
    rotation_from_quaternion,
    rotation_log,
    slerp,
)

angle = st.floats(-180, 180, allow_subnormal=False)
tilt = st.floats(-89.9, 89.9, allow_subnormal=False)


def degrees(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


def random_rotations(count, seed=0):
    return torch.from_numpy(Rotation.random(count, random_state=seed).as_matrix())


@pytest.mark.parametrize(
    ("pitch", "yaw", "roll", "axis", "expected"),
    [
        (30, 0, 0, 2, [0, -0.5, math.sqrt(0.75)]),  # positive pitch: the optical axis rises (y is down)
        (0, 30, 0, 2, [0.5, 0, math.sqrt(0.75)]),  # positive yaw: it turns to the right
        (0, 0, 30, 0, [math.sqrt(0.75), 0.5, 0]),  # positive roll: the camera's right side drops, clockwise from behind
    ],
)
def test_sign_convention(pitch, yaw, roll, axis, expected):
    matrix = rotation_from_angles(*degrees(pitch, yaw, roll))
    torch.testing.assert_close(matrix[:, axis], torch.tensor(expected, dtype=torch.float64))


def test_positive_roll_turns_the_horizon_counter_clockwise():
    matrix = rotation_from_angles(*degrees(0, 0, 20))
    right_end = matrix.mT @ torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64)  # level with the camera, to its right
    assert right_end[1] < 0  # appears above the middle of the image


@given(tilt, angle, angle)
def test_angles_match_scipy(pitch, yaw, roll):
    matrix = rotation_from_angles(*degrees(pitch, yaw, roll))
    expected = Rotation.from_euler("YXZ", [yaw, pitch, roll], degrees=True).as_matrix()
    np.testing.assert_allclose(matrix.numpy(), expected, atol=1e-12)


@given(st.one_of(tilt, st.sampled_from([90.0, -90.0])), angle, angle)
def test_angles_round_trip(pitch, yaw, roll):
    matrix = rotation_from_angles(*degrees(pitch, yaw, roll))
    angles = angles_from_rotation(matrix)
    assert -90 <= angles.pitch <= 90
    torch.testing.assert_close(rotation_from_angles(*angles), matrix, atol=1e-7, rtol=0)
    if abs(pitch) < 89:
        assert angles.pitch.item() == pytest.approx(pitch, abs=1e-6)
        assert math.cos(math.radians(angles.yaw.item() - yaw)) == pytest.approx(1)
        assert math.cos(math.radians(angles.roll.item() - roll)) == pytest.approx(1)


@pytest.mark.parametrize("pitch", [90.0, -90.0])
def test_straight_up_and_down_leave_the_roll_at_zero(pitch):
    angles = angles_from_rotation(rotation_from_angles(*degrees(pitch, 30, 0)))
    assert angles.pitch.item() == pytest.approx(pitch)
    assert angles.yaw.item() == pytest.approx(30)
    assert angles.roll.item() == 0


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-9, 1e-7, 1e-4, 0.1, 1.0, 3.0, math.pi - 1e-6, math.pi - 1e-9, math.pi])
def test_log_and_exp_match_scipy_at_every_size(size):
    axes = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    vectors = size * axes / axes.norm(dim=-1, keepdim=True)
    matrices = rotation_exp(vectors)
    np.testing.assert_allclose(matrices.numpy(), Rotation.from_rotvec(vectors.numpy()).as_matrix(), atol=1e-14)
    logs = rotation_log(matrices)
    assert ((logs - vectors).norm(dim=-1).minimum((logs + vectors).norm(dim=-1)) < 1e-9).all()
    if size < 3.1:
        np.testing.assert_allclose(logs.numpy(), vectors.numpy(), atol=1e-12, rtol=1e-9)
    np.testing.assert_allclose(torch.deg2rad(rotation_angle(matrices)).numpy(), size, atol=1e-9)


def test_log_is_accurate_in_float32_where_arccos_is_not():
    size = 1e-4
    matrix = rotation_exp(torch.tensor([size, 0.0, 0.0]))
    assert rotation_log(matrix).norm().item() == pytest.approx(size, rel=1e-5)
    printed = torch.arccos((matrix.trace() - 1) / 2).item()
    assert abs(printed - size) > 0.1 * size


def test_log_has_finite_gradients_at_zero_and_half_a_turn():
    for size in (0.0, math.pi):
        vector = torch.tensor([0.0, size, 0.0], dtype=torch.float64, requires_grad=True)
        rotation_log(rotation_exp(vector)).sum().backward()
        assert torch.isfinite(vector.grad).all()
    point = torch.tensor([0.2, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda vector: rotation_log(rotation_exp(vector)), point)


def test_quaternions_match_scipy():
    matrices = torch.cat([random_rotations(200), rotation_exp(math.pi * torch.eye(3, dtype=torch.float64))])
    quaternions = quaternion_from_rotation(matrices)
    expected = Rotation.from_matrix(matrices.numpy()).as_quat(scalar_first=True)
    agreement = (quaternions.numpy() * expected).sum(-1)
    np.testing.assert_allclose(np.abs(agreement), 1, atol=1e-12)
    assert (quaternions[:, 0] >= 0).all()
    torch.testing.assert_close(rotation_from_quaternion(3 * quaternions), matrices, atol=1e-12, rtol=0)


@given(st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=30)
def test_slerp_matches_scipy(fraction, seed):
    start, end = random_rotations(2, seed)
    mine = slerp(start, end, torch.tensor(fraction, dtype=torch.float64))
    theirs = Slerp([0, 1], Rotation.from_matrix(torch.stack([start, end]).numpy()))(fraction).as_matrix()
    np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-10)


def test_slerp_over_half_a_turn_stays_a_rotation():
    start = torch.eye(3, dtype=torch.float64)
    end = rotation_exp(torch.tensor([0.0, math.pi, 0.0], dtype=torch.float64))
    middle = slerp(start, end, torch.tensor(0.5, dtype=torch.float64))
    assert rotation_angle(middle).item() == pytest.approx(90)


@pytest.mark.parametrize("end", [[0, -1, 0], [0, 1, 0], [0.3, -0.2, 0.9], [1e-9, 1, 0]])
def test_rotation_between_is_the_smallest_that_turns_one_into_the_other(end):
    start = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    target = torch.tensor(end, dtype=torch.float64)
    turn = rotation_between(start, target)
    torch.testing.assert_close(turn @ start, target / target.norm(), atol=1e-8, rtol=0)
    torch.testing.assert_close(turn @ turn.mT, torch.eye(3, dtype=torch.float64))
    apart = torch.rad2deg(torch.atan2(torch.linalg.cross(start, target).norm(), start @ target))
    assert rotation_angle(turn).item() == pytest.approx(apart.item(), abs=1e-6)


def test_invert_pose():
    pose = pose_matrix(random_rotations(5), torch.randn(5, 3, dtype=torch.float64))
    torch.testing.assert_close(invert_pose(pose), torch.linalg.inv(pose))


def test_everything_takes_leading_dimensions():
    matrices = random_rotations(6).reshape(2, 3, 3, 3)
    assert rotations.rotation_log(matrices).shape == (2, 3, 3)
    assert angles_from_rotation(matrices).pitch.shape == (2, 3)


def test_the_nearest_rotation_is_scipys():
    matrices = np.random.default_rng(0).normal(size=(50, 3, 3))  # half of them mirror
    expected = np.stack([Rotation.align_vectors(matrix.T, np.eye(3))[0].as_matrix() for matrix in matrices])
    found = nearest_rotation(matrices)
    assert np.abs(found - expected).max() < 1e-9 and np.allclose(np.linalg.det(found), 1)
    assert np.abs(nearest_rotation(torch.from_numpy(matrices)).numpy() - found).max() < 1e-12
