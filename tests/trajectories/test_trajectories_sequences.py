"""Moves in words: one after another, and at once."""

import pytest
import torch

from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory

LENS = UCM(xfov=120, xi=0.5)


def test_moves_in_turn_start_where_the_last_one_ended():
    camera = Trajectory.move("dolly-in 0.5, then pan-left 30, then dolly-in 1, then static", LENS, frames=41, pitch=-10)
    assert len(camera) == 41
    torch.testing.assert_close(camera.positions[10], torch.tensor([0, 0, 0.5]).double())
    torch.testing.assert_close(camera.positions[20], camera.positions[10])
    assert camera.angles.yaw[20].item() == pytest.approx(-30) and camera.angles.pitch[20].item() == pytest.approx(-10)
    heading = torch.tensor([-0.5, 0, 3**0.5 / 2]).double()
    torch.testing.assert_close(camera.positions[30] - camera.positions[20], heading)
    torch.testing.assert_close(camera.c2w[30:], camera.c2w[30].expand(11, 4, 4))


def test_the_same_without_commas_and_with_one_move():
    both = [Trajectory.move(text, LENS, frames=9) for text in ("pan 20 then tilt 5", "pan 20, tilt-up 5")]
    torch.testing.assert_close(both[0].c2w, both[1].c2w)
    torch.testing.assert_close(Trajectory.move("pan-left 12", LENS).c2w, Trajectory.pan(LENS, -12).c2w)


def test_moves_at_once_add_their_ways_and_turns():
    camera = Trajectory.move("dolly-in 0.5 with pan-left 30 with zoom-in 2", LENS, frames=5, yaw=90, pitch=-10, roll=4)
    torch.testing.assert_close(camera.positions[-1], torch.tensor([0.5, 0, 0]).double())
    angles = [float(value[-1]) for value in camera.angles]
    assert angles == pytest.approx([-10, 60, 4])
    zoomed = Trajectory.zoom(LENS, 2, frames=5)
    torch.testing.assert_close(camera.lens.parameters["xfov"], zoomed.lens.parameters["xfov"])


def test_a_zoom_stays_for_the_moves_after_it():
    camera = Trajectory.move("zoom-in 1.5, then pan 20, then zoom-out 1.5", LENS, frames=13)
    xfov = camera.lens.parameters["xfov"]
    assert xfov[4].item() == pytest.approx(xfov[8].item()) and xfov[4] < 119
    assert xfov[12].item() == pytest.approx(120)


def test_an_amount_goes_the_way_the_name_says():
    for name, option, expected in (
        ("pan-left", "degrees", -30),
        ("dolly-out", "distance", -2),
        ("truck", "distance", 3),
    ):
        camera = Trajectory.move(name, LENS, frames=3, **{option: abs(expected)})
        moved = camera.angles.yaw if option == "degrees" else camera.positions.sum(-1)
        assert moved[-1].item() == pytest.approx(expected)
    out = Trajectory.move("zoom-out", UCM(xfov=60, xi=0.5), frames=3, factor=1.2)
    assert out.lens.parameters["xfov"][-1] > 60


@pytest.mark.parametrize(
    "text, frames, message",
    [
        ("pan 20, then fly 3", 9, "no move 'fly' .in 'fly 3'.; there are static"),
        ("pan 20 30", 9, "at most one number.*'pan 20 30'"),
        ("pan twenty", 9, "at most one number"),
        ("static 3, pan", 9, "a static has no amount"),
        ("pan 20,, tilt 3", 9, "a move is missing"),
        ("pan then", 9, "a move is missing"),
        ("pan 2 then tilt 2 then pan 3", 3, "3 moves in turn need 4 frames or more, got 3"),
        ("zoom-in 2 with zoom-out 2", 9, "only one of several moves at once can zoom"),
        ("pan nan then static", 9, "degrees must be a finite number"),
    ],
)
def test_wrong_words_are_named(text, frames, message):
    with pytest.raises(ValueError, match=message):
        Trajectory.move(text, LENS, frames=frames)
    with pytest.raises(ValueError, match="say their amounts themselves: leave degrees out"):
        Trajectory.move("pan 20, then static", LENS, degrees=3)
