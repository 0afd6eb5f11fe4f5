"""Matching all pairs at once against one pair at a time, SciPy's optimiser, and what must not change the result."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from ucpe.lenses import UCM
from ucpe.synthesis.motion.matching import match
from ucpe.trajectories import Trajectory, alignment_error, umeyama
from ucpe.trajectories.rotations import rotation_from_angles

LENS = UCM(xfov=90, xi=0.0)


def paths(count: int, frames: int, seed: int) -> torch.Tensor:
    """Smooth random paths (count, frames, 3) with little height, as people walk."""
    generator = torch.Generator().manual_seed(seed)
    velocity = torch.randn(count, frames, 3, generator=generator, dtype=torch.float64).cumsum(1) + torch.randn(
        count, 1, 3, generator=generator, dtype=torch.float64
    )
    return velocity.cumsum(1) / frames * torch.tensor([1.0, 0.2, 1.0], dtype=torch.float64)


def turned(points: torch.Tensor, yaw: float, scale: float, shift: torch.Tensor) -> torch.Tensor:
    angles = torch.tensor([0.0, yaw, 0.0], dtype=points.dtype)
    return scale * points @ rotation_from_angles(*angles).mT + shift


def test_every_pair_agrees_with_umeyama_about_the_vertical():
    clips, motions = paths(13, 21, 0), paths(17, 21, 1)
    found = match(clips, motions, best=17, chunk=4)
    for clip in range(len(clips)):
        target = clips[clip].expand(17, 21, 3)
        source = motions[found.motion[clip]]
        similarity = umeyama(source, target, vertical=True)
        torch.testing.assert_close(
            found.rmse[clip].double(), alignment_error(similarity, source, target), rtol=1e-5, atol=1e-7
        )
        torch.testing.assert_close(found.scale[clip].double(), similarity.scale, rtol=1e-5, atol=1e-7)
        turn = torch.atan2(similarity.rotation[:, 0, 2], similarity.rotation[:, 0, 0])
        off = torch.deg2rad(found.yaw[clip].double()) - turn
        assert torch.atan2(off.sin(), off.cos()).abs().max() < 1e-5


def test_an_optimiser_finds_nothing_better():
    clips, motions = paths(4, 21, 2), paths(5, 21, 3)
    found = match(clips, motions, best=5)
    for clip in range(4):
        for place, motion in enumerate(found.motion[clip].tolist()):

            def residual(values, motion=motion, clip=clip):
                angle, scale = float(values[0]), float(values[1])
                moved = turned(motions[motion], angle, scale, torch.tensor(values[2:]))
                return (moved - clips[clip]).flatten().numpy()

            starts = [least_squares(residual, [yaw, 0.5, 0, 0, 0], x_scale=[90, 1, 1, 1, 1]) for yaw in (-120, 0, 120)]
            positive = [fit for fit in starts if fit.x[1] >= 0]
            best = min(positive, key=lambda fit: fit.cost)
            assert found.rmse[clip, place].item() == pytest.approx(math.sqrt(2 * best.cost / 21), rel=1e-4)


def test_a_motion_is_found_again_however_it_is_turned_scaled_and_moved():
    motions = paths(40, 81, 4)
    clips = torch.stack(
        [
            turned(motions[index], 8.5 * index - 170, 0.01 * 1.3**index, torch.tensor([5.0, -1, 2]))
            for index in range(40)
        ]
    )
    found = match(clips.float(), motions, best=3)
    assert found.motion[:, 0].tolist() == list(range(40))
    span = (clips - clips.mean(1, keepdim=True)).flatten(1).norm(dim=1).float()
    assert (found.rmse[:, 0] < 1e-5 * span.clamp(min=1)).all()
    assert (found.rmse.diff(dim=1) >= 0).all()
    for index in range(40):
        assert found.yaw[index, 0].item() == pytest.approx(8.5 * index - 170, abs=0.01)
        assert found.scale[index, 0].item() == pytest.approx(0.01 * 1.3**index, rel=1e-4)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    frames=st.integers(2, 12),
    clips=st.integers(1, 7),
    motions=st.integers(1, 9),
    best=st.integers(1, 12),
    yaw=st.floats(-180, 180),
    scale=st.floats(0.05, 20),
)
def test_errors_do_not_depend_on_how_motions_are_placed(seed, frames, clips, motions, best, yaw, scale):
    targets, sources = paths(clips, frames, seed), paths(motions, frames, seed + 1)
    before = match(targets, sources, best=best, chunk=3)
    after = match(targets, turned(sources, yaw, scale, torch.tensor([3.0, 1, -2])), best=best)
    assert before.rmse.shape == (clips, min(best, motions))
    torch.testing.assert_close(before.rmse, after.rmse, rtol=1e-4, atol=1e-6)
    assert (before.rmse.diff(dim=1) >= -1e-7).all()
    everything = match(targets, sources, best=motions)
    torch.testing.assert_close(before.rmse, everything.rmse[:, :best], rtol=1e-5, atol=1e-7)


def test_standing_still_backwards_and_upside_down():
    line = Trajectory.dolly(LENS, distance=1, frames=9).positions
    still = torch.zeros(9, 3, dtype=torch.float64)
    rise = Trajectory.pedestal(LENS, distance=1, frames=9).positions
    found = match(torch.stack([line, still, rise]), torch.stack([still, rise, -rise, line]), best=4)
    spread = ((line - line.mean(0)).square().sum() / 9).sqrt().float()
    assert found.motion[0, 0] == 3 and found.rmse[0, 0] < 1e-6
    torch.testing.assert_close(found.rmse[0, 1:], spread.expand(3))
    assert found.motion[1].tolist() == [0, 1, 2, 3] and not found.rmse[1].any()
    assert found.motion[2, 0] == 1 and found.motion[2, 3] == 2  # gravity stays: a rise never fits a fall
    assert found.scale[2, 3] == 0 and found.scale[0][found.motion[0] == 0] == 1
    assert all(torch.isfinite(values).all() for values in (found.rmse, found.scale, found.yaw))


def test_far_from_the_origin_in_float32_nothing_is_lost():
    motions = paths(6, 81, 5)
    clips = motions + torch.tensor([1000.0, 20, -3000])
    exact, rounded = match(clips, motions, best=6), match(clips.float(), motions, best=6)
    assert rounded.motion[:, 0].tolist() == exact.motion[:, 0].tolist() == list(range(6))
    assert exact.rmse[:, 0].max() < 1e-6 and rounded.rmse[:, 0].max() < 1e-3


@pytest.mark.parametrize(
    ("clips", "motions", "says"),
    [
        (torch.zeros(2, 5, 3), torch.zeros(2, 6, 3), "same number of frames"),
        (torch.zeros(2, 1, 3), torch.zeros(2, 1, 3), "at least 2"),
        (torch.zeros(2, 5, 3), torch.zeros(0, 5, 3), "no motion"),
        (torch.full((2, 5, 3), math.nan), torch.zeros(1, 5, 3), "finite"),
    ],
)
def test_what_cannot_be_matched_is_refused(clips, motions, says):
    with pytest.raises(ValueError, match=says):
        match(clips, motions)
