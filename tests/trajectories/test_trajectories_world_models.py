"""Action strings and pinhole arrays of SANA-WM, against its own code in diffusers and a slow reference."""

import math

import numpy as np
import pytest
import torch
from tests.pictures import pixels, shows

from ucpe.cli.trajectory import main
from ucpe.lenses import UCM, Pinhole
from ucpe.trajectories import Trajectory, action_trajectory, from_pinhole_arrays, is_actions, to_pinhole_arrays
from ucpe.trajectories.show import ANGLE_COLOURS, TIME_COLOURS

LENS = UCM(xfov=150, xi=1.2)


@pytest.mark.parametrize(
    "actions", ["w-8", "w-80,jw-40,w-40", "i-75,ws-3,kda-30", "none-4,LWI-7， s-2", "ad-3,ijkl-20"]
)
def test_the_keys_of_diffusers(actions):
    """Including the limit of the pitch, keys that cancel, capitals, spaces and a wide comma."""
    cam_utils = pytest.importorskip("diffusers.pipelines.sana_wm.cam_utils")
    camera = action_trajectory(actions, LENS)
    expected = cam_utils.action_string_to_c2w(actions)
    np.testing.assert_allclose(camera.c2w.numpy(), expected, atol=2e-5)


def wan_fun_rows(direction, length, speed):
    """Lines of camera parameters as Wan-Fun makes them from a direction: time, intrinsics, and a matrix it adds to."""
    rows = [[0, 0.532139961, 0.946026558, 0.5, 0.5, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]]
    for _ in range(length - 1):
        row = list(rows[-1])
        row[9] += speed * (("Left" in direction) - ("Right" in direction))
        row[13] += speed * (("Up" in direction) - ("Down" in direction))
        row[18] += speed * (("Out" in direction) - ("In" in direction))
        rows.append(row)
    return rows


@pytest.mark.parametrize("direction", ["Left", "Right", "Up", "Down", "LeftUp", "RightDown", "In", "Out"])
def test_the_directions_of_wan_fun_and_its_txt(tmp_path, direction):
    rows = wan_fun_rows(direction, 9, 0.02)
    (tmp_path / "camera.txt").write_text("\n".join(["title", *(" ".join(map(repr, row)) for row in rows)]))
    camera = Trajectory.move(f"wan-fun:{direction} 0.02", LENS, frames=9)
    read = Trajectory.load(tmp_path / "camera.txt")
    np.testing.assert_allclose(read.c2w.numpy(), camera.c2w.numpy(), atol=1e-9)
    ahead = np.array([0, 0, 1000.0, 1])
    for row, pose in zip(rows, camera.c2w.numpy()):
        sheared = np.array(row[7:]).reshape(3, 4) @ ahead
        turned = (np.linalg.inv(pose) @ ahead)[:3]
        if len(direction) < 6:  # one axis: the point ahead is seen in the same place
            np.testing.assert_allclose(sheared[:2] / sheared[2], turned[:2] / turned[2], atol=1e-9)
    assert camera.maximum_rotation() == pytest.approx(0 if direction in ("In", "Out") else read.maximum_rotation())


def test_directions_that_are_none():
    for text in ("wan-fun:", "wan-fun:Sideways", "wan-fun:Left 0", "wan-fun:Left -1", "wan-fun:UpLeft"):
        with pytest.raises(ValueError, match="directions of Wan-Fun are Left, Right"):
            Trajectory.move(text, LENS)


def test_the_keys_of_sanas_own_scripts():
    """Written out frame by frame: a and d turn, fresh keys act at once, released ones coast, pitch stops at 60."""
    camera = action_trajectory("sana:w-2,wd-1,none-2,l-1,i-110", LENS)
    heading, place, speed = 0.0, np.zeros(2), 0.025
    turn = 0.6
    coast = math.exp(-1 / 16)
    expected = [(0.0, 0.0, 0.0)]
    for step in range(6):
        if step == 2:
            heading += turn
        elif step in (3, 4):
            speed, turn = speed * coast, turn * coast
            heading += turn
        sideways = 0.025 if step == 5 else 0.0
        forward = 0.0 if step == 5 else speed
        angle = math.radians(heading)
        place = place + forward * np.array([math.sin(angle), math.cos(angle)])
        place = place + sideways * np.array([math.cos(angle), -math.sin(angle)])
        expected.append((*place, heading))
    found = torch.stack([camera.positions[:7, 0], camera.positions[:7, 2], camera.angles.yaw[:7]], -1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
    assert camera.angles.pitch.max().item() == pytest.approx(60.0)
    assert camera.angles.pitch[8] == pytest.approx(1.2) and len(camera) == 117


def test_both_maps_walk_on_the_ground_and_differ_where_they_should():
    turned, strafed = (action_trajectory(text, LENS, pitch=-20) for text in ("sana:dw-16", "diffusers:dw-16"))
    assert turned.angles.yaw[-1] == pytest.approx(9.6) and strafed.angles.yaw.abs().max() < 1e-9
    for camera in (turned, strafed):
        assert camera.positions[:, 1].abs().max() < 1e-12
        torch.testing.assert_close(camera.angles.pitch, torch.full((17,), -20.0).double())
    assert torch.equal(Trajectory.move("dw-16", LENS, pitch=-20, frames=9).c2w, strafed.c2w[:9])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("w-80,q-4", "'q-4' .* has no key 'q'"),
        ("w-0", "lasts no frame"),
        ("w", "<keys>-<frames>"),
        ("w-5,", "<keys>-<frames>"),
        ("game:w-5", "no key map 'game'"),
        ("w-999999999999", "more than 100000 frames"),
    ],
)
def test_bad_actions(actions, message):
    with pytest.raises(ValueError, match=message):
        action_trajectory(actions, LENS)


def test_a_move_is_not_an_action_and_actions_have_their_length():
    assert is_actions("w-80,jw-40") and is_actions("sana: w-8") and not is_actions("pan-left")
    assert not is_actions("orbit-40")
    with pytest.raises(ValueError, match=r"make 9 frames, and 81 are asked for: .* add none-72"):
        Trajectory.move("w-8", LENS, frames=81)
    with pytest.raises(ValueError, match="leave degrees out"):
        Trajectory.move("w-8", LENS, degrees=30)


def test_trajectory_show_of_actions(tmp_path, capsys):
    main(["show", "sana:w-16,dw-16", "-o", str(tmp_path / "path.png")])
    picture = pixels(tmp_path / "path.png")
    assert all(shows(picture, colour) for colour in (*ANGLE_COLOURS.values(), TIME_COLOURS[0], TIME_COLOURS[-1]))


@pytest.mark.parametrize("per_frame", [False, True])
def test_poses_and_intrinsics_there_and_back(per_frame):
    focal = torch.linspace(100, 180, 9) if per_frame else 120.0
    lens = Pinhole(fx=focal, fy=110.0, cx=90.0, cy=70.0, width=192, height=128)
    camera = Trajectory.orbit(lens, degrees=30, frames=9, fps=16)
    c2w, intrinsics = to_pinhole_arrays(camera, 128, 192)
    assert c2w.shape == (9, 4, 4) and intrinsics.shape == (9, 4) and intrinsics.dtype == np.float32
    again = from_pinhole_arrays(c2w, intrinsics, 128, 192, fps=16)
    torch.testing.assert_close(again.c2w, camera.c2w, atol=1e-6, rtol=0)
    pixels = torch.rand(9, 5, 2) * 100
    expected = camera.lens_per_frame().unproject(pixels, 128, 192).directions
    torch.testing.assert_close(again.lens.unproject(pixels, 128, 192).directions, expected, atol=1e-6, rtol=0)
    matrices = camera.lens_per_frame().intrinsics(128, 192).numpy()
    torch.testing.assert_close(from_pinhole_arrays(c2w, matrices, 128, 192).lens.fx, again.lens.fx)


def test_arrays_that_make_no_camera():
    camera = Trajectory.static(LENS, frames=3)
    with pytest.raises(ValueError, match="a ucm lens has no pinhole intrinsics"):
        to_pinhole_arrays(camera, 64, 64)
    with pytest.raises(ValueError, match=r"intrinsics of 3 poses must be .* got the shape \(2, 4\)"):
        from_pinhole_arrays(camera.c2w.numpy(), np.ones((2, 4)), 64, 64)
