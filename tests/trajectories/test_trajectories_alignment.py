"""Umeyama alignment against evo, SciPy's optimiser, and known answers."""

import numpy as np
import pytest
import torch
from evo.core.geometry import umeyama_alignment
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.alignment import Similarity, align, alignment_error, umeyama
from ucpe.trajectories.rotations import rotation_angle, rotation_between, rotation_exp, rotation_from_angles

KINDS = {
    "sim3": {"scale": True, "vertical": False},
    "se3": {"scale": False, "vertical": False},
    "vertical sim3": {"scale": True, "vertical": True},
    "vertical se3": {"scale": False, "vertical": True},
}
by_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def points(seed, count=12, batch=()):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, count, 3, generator=generator, dtype=torch.float64)


def random_similarity(seed, kind):
    generator = torch.Generator().manual_seed(seed + 100)
    yaw, *rest = 360 * torch.rand(3, generator=generator, dtype=torch.float64) - 180
    pitch, roll = (torch.zeros_like(yaw),) * 2 if kind["vertical"] else rest
    factor = 0.2 + 3 * torch.rand((), generator=generator, dtype=torch.float64)
    return Similarity(
        factor if kind["scale"] else torch.ones_like(factor),
        rotation_from_angles(pitch, yaw, roll),
        torch.randn(3, generator=generator, dtype=torch.float64),
    )


@by_kind
@given(seed=st.integers(0, 10_000), count=st.integers(3, 40))
@settings(max_examples=20)
def test_a_known_similarity_is_recovered(kind, seed, count):
    source, truth = points(seed, count), random_similarity(seed, kind)
    found = umeyama(source, truth.apply(source), **kind)
    torch.testing.assert_close(found.scale, truth.scale)
    torch.testing.assert_close(found.rotation, truth.rotation, atol=1e-7, rtol=0)
    torch.testing.assert_close(found.translation, truth.translation, atol=1e-7, rtol=0)


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_matches_evo(scale, seed):
    source, target = points(seed), points(seed + 50)
    rotation, translation, factor = umeyama_alignment(source.numpy().T, target.numpy().T, with_scale=scale)
    found = umeyama(source, target, scale=scale)
    np.testing.assert_allclose(found.rotation.numpy(), rotation, atol=1e-9)
    np.testing.assert_allclose(found.translation.numpy(), translation, atol=1e-9)
    assert found.scale.item() == pytest.approx(factor)


@by_kind
@pytest.mark.parametrize("seed", range(3))
def test_no_other_similarity_is_better(kind, seed):
    source, target = points(seed), points(seed + 50)
    mine = alignment_error(umeyama(source, target, **kind), source, target).item()

    def error(values):
        values = torch.as_tensor(values)
        turn = values[:3] * torch.tensor([0.0, 1, 0]) if kind["vertical"] else values[:3]
        factor = values[6].exp() if kind["scale"] else torch.ones((), dtype=torch.float64)
        return alignment_error(Similarity(factor, rotation_exp(turn), values[3:6]), source, target).item()

    random = np.random.default_rng(seed)
    best = min(minimize(error, random.normal(size=7), method="BFGS").fun for _ in range(4))
    assert mine <= best + 1e-6
    assert mine == pytest.approx(best, abs=1e-3)


@by_kind
def test_batches_are_aligned_one_by_one(kind):
    source, target = points(0, batch=(2, 3)), points(1, batch=(2, 3))
    found = umeyama(source, target, **kind)
    assert found.scale.shape == (2, 3) and found.rotation.shape == (2, 3, 3, 3)
    one = umeyama(source[1, 2], target[1, 2], **kind)
    torch.testing.assert_close(found.rotation[1, 2], one.rotation)
    torch.testing.assert_close(found.apply(source)[1, 2], one.apply(source[1, 2]))
    assert alignment_error(found, source, target).shape == (2, 3)


def test_mirrored_points_never_give_a_reflection():
    source = points(3)
    found = umeyama(source, source * torch.tensor([-1.0, 1, 1]))
    assert torch.linalg.det(found.rotation).item() == pytest.approx(1)


@by_kind
@pytest.mark.parametrize("count", [1, 5])
def test_a_camera_that_never_moves_is_only_moved(kind, count):
    target = points(4, count)
    found = umeyama(torch.ones(count, 3, dtype=torch.float64), target, **kind)
    assert found.scale.item() == 1
    torch.testing.assert_close(found.rotation, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(found.apply(torch.ones(1, 3, dtype=torch.float64))[0], target.mean(0))


def test_straight_paths_take_the_smallest_rotation():
    line = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    source = line * torch.tensor([[0.0, 0, 1]], dtype=torch.float64)
    target = line * torch.tensor([[3.0, 0, 0]], dtype=torch.float64)
    found = umeyama(source, target)
    torch.testing.assert_close(found.apply(source), target)
    assert found.scale.item() == pytest.approx(3)
    assert rotation_angle(found.rotation).item() == pytest.approx(90)
    opposite = umeyama(source, -source)
    torch.testing.assert_close(opposite.apply(source), -source, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sway", [0.3, 0.01])
def test_a_nearly_straight_path_keeps_the_rotation_that_its_sway_determines(sway, dtype):
    along = torch.linspace(0, 1000, 200, dtype=torch.float64)
    path = torch.stack([sway * torch.sin(along / 30), sway / 2 * torch.cos(along / 17), along], -1)
    turn = rotation_from_angles(*torch.tensor([20.0, 130.0, -40.0], dtype=torch.float64))
    source, target = path.to(dtype), (path @ turn.mT + 5).to(dtype)
    found = umeyama(source, target, scale=False)
    assert found.rotation.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.01
    assert rotation_angle(turn.mT @ found.rotation.double()).item() < tolerance
    rotation, _, _ = umeyama_alignment(source.double().numpy().T, target.double().numpy().T, with_scale=False)
    assert rotation_angle(torch.as_tensor(rotation).mT @ found.rotation.double()).item() < tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("offset", [0, 100])
def test_straight_paths_in_any_direction_take_the_smallest_rotation_despite_rounding(dtype, offset):
    start, end = (torch.nn.functional.normalize(points(seed, 1, (50,)), dim=-1) for seed in (0, 1))
    line = torch.linspace(-1, 2, 30, dtype=torch.float64)[:, None]
    found = umeyama((line * start + offset).to(dtype), (3 * line * end - offset).to(dtype))
    smallest = rotation_between(start[:, 0], end[:, 0])
    assert rotation_angle(smallest.mT @ found.rotation.double()).max() < 0.05


@pytest.mark.parametrize("count", [3, 6, 7])
def test_a_still_camera_whose_mean_is_rounded_keeps_scale_one(count):
    still = torch.tensor([0.1, 0.3, 0.7], dtype=torch.float64).expand(count, 3)
    assert umeyama(still, points(5, count)).scale.item() == 1


def test_autocast_does_not_round_the_alignment():
    source = points(6).float()
    turn = rotation_from_angles(*torch.tensor([20.0, 130.0, -40.0]))
    target = source @ turn.mT
    with torch.autocast("cpu", torch.bfloat16):
        found = umeyama(source, target)
        mapped = found.apply(source)
    torch.testing.assert_close(found.rotation, turn, atol=1e-6, rtol=0)
    torch.testing.assert_close(mapped, target, atol=1e-5, rtol=0)


def test_opposed_vertical_motion_never_gives_a_negative_scale():
    rising = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None] * torch.tensor([[0.0, -1, 0]], dtype=torch.float64)
    assert umeyama(rising, -rising, vertical=True).scale.item() == 0


def test_trajectories_align_with_their_orientations():
    target = Trajectory.spiral(Pinhole(xfov=70), frames=30, pitch=-10)
    turn = rotation_from_angles(*torch.tensor([20.0, 130.0, -40.0], dtype=torch.float64))
    moved = Similarity(torch.tensor(0.3).double(), turn, torch.tensor([4.0, 5, 6]).double()).apply_to(target)
    found = align(moved, target)
    torch.testing.assert_close(found.c2w, target.c2w, atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match="equal length"):
        align(target[:3], target)


def test_vertical_alignment_keeps_pitch_and_roll():
    target = Trajectory.orbit(Pinhole(xfov=70), degrees=90, frames=30)
    source = Trajectory.handheld(Pinhole(xfov=70), degrees=5, distance=1.0, frames=30, pitch=-20, roll=7)
    found = align(source, target, vertical=True)
    torch.testing.assert_close(found.angles.pitch, source.angles.pitch)
    torch.testing.assert_close(found.angles.roll, source.angles.roll)


def test_shapes_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="one shape"):
        umeyama(points(0, 4), points(0, 5))
