"""Keyframes with lenses and easings of their own, and the keyframes found in a path."""

import numpy as np
import pytest
import torch

from ucpe.lenses import UCM, Pinhole
from ucpe.trajectories import NAMED_MOVES, Keyframe, Trajectory, find_keyframes

LENS = UCM(xfov=150.0, xi=1.2)


def furthest_apart(one: Trajectory, other: Trajectory) -> float:
    lenses = [torch.stack(list(path.lens_per_frame().parameters.values())) for path in (one, other)]
    return max((one.c2w - other.c2w).abs().max().item(), (lenses[0] - lenses[1]).abs().max().item())


@pytest.mark.parametrize("move", NAMED_MOVES)
def test_keyframes_found_in_a_move_make_it_again(move):
    path = Trajectory.move(move, UCM(xfov=100.0, xi=0.5), frames=33, fps=8.0, pitch=-10, roll=4)
    exact = find_keyframes(path)
    assert furthest_apart(Trajectory.keyframes(path.lens, exact, fps=8.0), path) < 1e-10
    near = find_keyframes(path, tolerance=1e-3, easing="smooth")
    assert furthest_apart(Trajectory.keyframes(path.lens, near, fps=8.0), path) < 0.1
    assert len(near) <= len(exact)


@pytest.mark.parametrize(("move", "most"), [("static", 2), ("pan-left", 2), ("dolly-in", 2), ("orbit-left", 9)])
def test_simple_moves_need_few_keyframes(move, most):
    path = Trajectory.move(move, LENS, frames=81)
    assert 2 <= len(find_keyframes(path, tolerance=1e-3, easing="smooth")) <= most


def test_keyframes_found_in_a_rough_path_are_all_of_its_frames():
    path = Trajectory.handheld(LENS, frames=20, degrees=5)
    assert len(find_keyframes(path)) == 20


def test_a_turn_over_the_date_line_does_not_spin_back():
    path = Trajectory.pan(LENS, degrees=90, yaw=150, frames=10)
    found = find_keyframes(path)
    assert [round(key.yaw) for key in found] == [150, 240]


def test_every_segment_has_its_own_easing():
    keys = [Keyframe(0, easing="linear"), Keyframe(4, yaw=40, easing="ease_in"), Keyframe(8, yaw=80)]
    yaw = Trajectory.keyframes(LENS, keys, fps=1.0).angles.yaw
    wanted = [0, 10, 20, 30, 40, *(40 + 40 * (step / 4) ** 2 for step in range(1, 5))]
    assert np.allclose(yaw, wanted)


def test_lenses_of_keyframes_change_on_the_way_and_stay_in_their_range():
    keys = [Keyframe(time, lens=UCM(xfov=xfov, xi=xi)) for time, xfov, xi in ((0, 90, 0), (2, 90, 0), (4, 170, 2))]
    path = Trajectory.keyframes(LENS, keys, fps=1.0)
    assert path.lens.parameters["xi"].tolist() == [0, 0, 0, 1, 2]
    assert path.lens.parameters["xfov"].tolist() == [90, 90, 90, 130, 170]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"lens": Pinhole(xfov=90.0)}, "of one model"),
        ({}, "either all keyframes have a lens"),
        ({"lens": LENS, "zoom": 2.0}, "none a zoom"),
    ],
)
def test_lenses_that_do_not_go_together_are_refused(second, message):
    with pytest.raises(ValueError, match=message):
        Trajectory.keyframes(LENS, [Keyframe(0, lens=LENS), Keyframe(1, **second)])
