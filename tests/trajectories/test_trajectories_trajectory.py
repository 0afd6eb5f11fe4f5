"""The Trajectory itself: its frames, its frames of reference, its resampling."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation, Slerp

from ucpe.lenses import UCM, Equirectangular, Pinhole
from ucpe.trajectories import Trajectory, latent_frame_indices
from ucpe.trajectories.interpolation import smooth_curve
from ucpe.trajectories.rotations import pose_matrix, rotation_exp, rotation_from_angles

LENS = UCM(xfov=180, xi=2.0)


def random_trajectory(frames=9, seed=0, lens=LENS, fps=16.0):
    generator = torch.Generator().manual_seed(seed)
    steps = 0.3 * torch.randn(frames, 3, generator=generator, dtype=torch.float64)
    positions = torch.randn(frames, 3, generator=generator, dtype=torch.float64).cumsum(0)
    return Trajectory(pose_matrix(rotation_exp(steps.cumsum(0)), positions), lens, fps)


def test_latent_frames_are_every_fourth_video_frame():
    assert latent_frame_indices(81).tolist() == list(range(0, 81, 4))
    assert latent_frame_indices(1).tolist() == [0]
    camera = random_trajectory(81)
    latent = camera.latent_frames()
    assert len(latent) == 21 and latent.fps == 4
    assert torch.equal(latent.c2w, camera.c2w[::4])
    with pytest.raises(ValueError, match="use 77 or 81 frames"):
        latent_frame_indices(80)
    with pytest.raises(ValueError, match="stride"):
        latent_frame_indices(81, 0)


def test_slicing():
    camera = random_trajectory(9, lens=Pinhole(xfov=torch.linspace(40, 80, 9)))
    assert torch.equal(camera[2:5].c2w, camera.c2w[2:5]) and camera[2:5].fps == 16
    assert camera[2:5].lens.parameters["xfov"].tolist() == [50, 55, 60]
    assert camera[::2].fps == 8 and len(camera[::2]) == 5
    assert torch.equal(camera[::-1].c2w, camera.c2w.flip(0))
    assert torch.equal(camera[-1].c2w, camera.c2w[-1:]) and len(camera[-1]) == 1
    assert torch.equal(camera[[3, 1]].c2w, camera.c2w[[3, 1]])
    assert sum(1 for _ in camera) == 9
    with pytest.raises(IndexError):
        camera[9]
    with pytest.raises(ValueError, match="no frame"):
        camera[5:5]


def test_concatenation_keeps_one_lens_and_joins_different_ones():
    first, second = random_trajectory(3), random_trajectory(4, seed=1)
    assert (first + second).lens is first.lens
    assert torch.equal((first + second).c2w, torch.cat([first.c2w, second.c2w]))
    joined = first.with_lens(UCM(xfov=100, xi=0)) + second
    assert joined.lens.parameters["xfov"].tolist() == [100] * 3 + [180] * 4
    with pytest.raises(ValueError, match="one model"):
        first + second.with_lens(Equirectangular())
    with pytest.raises(ValueError, match="one frame rate"):
        first + random_trajectory(3, fps=8)


def test_composition_is_the_product_of_poses_and_associative():
    a, b, c = (random_trajectory(5, seed=seed) for seed in range(3))
    torch.testing.assert_close((a @ b).c2w, a.c2w @ b.c2w)
    torch.testing.assert_close(((a @ b) @ c).c2w, (a @ (b @ c)).c2w)
    one = a[0]
    torch.testing.assert_close((one @ b).c2w, one.c2w @ b.c2w)
    with pytest.raises(ValueError, match="equal length"):
        a @ random_trajectory(4)


def test_composition_keeps_the_lens_that_changes():
    zoom, shake = Trajectory.zoom(Pinhole(xfov=90), frames=5), Trajectory.handheld(Pinhole(xfov=90), frames=5)
    assert (zoom @ shake).lens.batch_shape == (5,)
    assert (shake @ zoom).lens.batch_shape == (5,)


@pytest.mark.parametrize("pitch", [0, -30])
def test_then_continues_from_the_last_camera(pitch):
    first = Trajectory.pan(LENS, degrees=50, frames=11, pitch=pitch)
    second = Trajectory.dolly(LENS, distance=2, frames=6, pitch=pitch)
    both = first.then(second)
    assert len(both) == 16
    assert torch.equal(both.c2w[:11], first.c2w)
    heading = torch.deg2rad(torch.tensor(50.0, dtype=torch.float64))
    expected = 2 * torch.stack([heading.sin(), torch.zeros_like(heading), heading.cos()])
    torch.testing.assert_close(both.positions[-1], expected)
    torch.testing.assert_close(both.rotations[-1], first.rotations[-1])


def test_then_keeps_a_pan_level_after_a_tilt():
    both = Trajectory.tilt(LENS, degrees=40, frames=5).then(Trajectory.pan(LENS, degrees=90, frames=5))
    torch.testing.assert_close(both.angles.pitch[4:], torch.full((5,), 40.0, dtype=torch.float64))
    torch.testing.assert_close(both.angles.yaw[-1].item(), 90.0)
    torch.testing.assert_close(both.angles.roll, torch.zeros(9, dtype=torch.float64), atol=1e-9, rtol=0)


def test_relative_to_first_and_zero_first_yaw():
    camera = random_trajectory(6)
    relative = camera.relative_to_first()
    torch.testing.assert_close(relative.c2w[0], torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(relative.c2w, torch.linalg.inv(camera.c2w[0]) @ camera.c2w)
    level = camera.zero_first_yaw()
    assert level.angles.yaw[0].item() == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(level.angles.pitch, camera.angles.pitch)
    torch.testing.assert_close(level.angles.roll, camera.angles.roll)
    torch.testing.assert_close(level.relative_to_first().c2w, relative.c2w)
    assert level.positions[0].norm() < 1e-12


def test_zero_first_yaw_of_a_camera_that_looks_straight_down():
    camera = Trajectory.truck(LENS, frames=4, pitch=-90, yaw=35)
    level = camera.zero_first_yaw()
    torch.testing.assert_close(level.positions[-1], torch.tensor([1.0, 0, 0], dtype=torch.float64))
    assert level.angles.yaw[0].item() == pytest.approx(0, abs=1e-9)


@given(st.tuples(*[st.floats(-1, 1, allow_subnormal=False)] * 3).filter(lambda up: np.linalg.norm(up) > 0.1))
@settings(max_examples=30)
def test_gravity_aligned_turns_up_to_up(up):
    camera = random_trajectory(4)
    direction = torch.tensor(up, dtype=torch.float64)
    aligned = camera.gravity_aligned(up)
    turned = aligned.rotations @ camera.rotations.mT @ direction / direction.norm()
    expected = torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64).expand(4, 3)
    torch.testing.assert_close(turned, expected, atol=1e-7, rtol=0)
    torch.testing.assert_close(aligned.relative_to_first().c2w, camera.relative_to_first().c2w)


def test_gravity_from_the_first_camera_recovers_pitch_and_roll():
    level = Trajectory.pan(LENS, frames=5, pitch=-20, roll=15)
    lost = level.relative_to_first()
    up_in_camera = level.rotations[0].mT @ torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    found = lost.gravity_aligned(up_in_camera, in_first_camera=True)
    torch.testing.assert_close(found.angles.pitch, level.angles.pitch)
    torch.testing.assert_close(found.angles.roll, level.angles.roll)
    with pytest.raises(ValueError, match="nonzero direction"):
        level.gravity_aligned([0, 0, 0])


def test_scaled_and_path_length():
    camera = Trajectory.dolly(LENS, distance=3, frames=4)
    assert camera.path_length() == pytest.approx(3)
    assert camera.scaled(0.5).path_length() == pytest.approx(1.5)
    with pytest.raises(ValueError, match="positive"):
        camera.scaled(0)


def test_maximum_rotation_is_the_papers_rotation_score():
    camera = random_trajectory(20)
    relative = camera.rotations[0].mT @ camera.rotations[1:]
    trace = torch.diagonal(relative, dim1=-2, dim2=-1).sum(-1)
    printed = torch.rad2deg(torch.arccos(((trace - 1) / 2).clamp(-1, 1))).max().item()
    assert camera.maximum_rotation() == pytest.approx(printed, abs=1e-6)
    assert Trajectory.pan(LENS, degrees=180).maximum_rotation() == pytest.approx(180)
    assert Trajectory.pan(LENS, degrees=360).maximum_rotation() > 177
    assert Trajectory.static(LENS, frames=1).maximum_rotation() == 0


def test_angular_velocity_is_in_degrees_per_second():
    velocity = Trajectory.pan(LENS, degrees=40, frames=81, fps=16).angular_velocity()
    expected = torch.tensor([0.0, 8.0, 0.0], dtype=torch.float64).expand(80, 3)
    torch.testing.assert_close(velocity, expected, atol=1e-9, rtol=0)
    assert Trajectory.static(LENS, frames=1).angular_velocity().shape == (0, 3)


@given(st.integers(1, 12), st.integers(1, 30))
@settings(max_examples=40)
def test_resampling_is_exact_at_the_original_frames(frames, factor):
    camera = random_trajectory(frames, seed=frames)
    finer = camera.resample(frames=(frames - 1) * factor + 1)
    assert torch.equal(finer[::factor].c2w, camera.c2w)
    if frames > 1:
        assert finer.duration == pytest.approx(camera.duration)


def test_rotation_is_resampled_as_scipy_does():
    camera = random_trajectory(6)
    finer = camera.resample(frames=23)
    theirs = Slerp(np.arange(6), Rotation.from_matrix(camera.rotations.numpy()))(np.linspace(0, 5, 23))
    np.testing.assert_allclose(finer.rotations.numpy(), theirs.as_matrix(), atol=1e-10)


def test_position_curve_is_smooth_and_exact_for_parabolas_at_uneven_times():
    times = torch.tensor([0.0, 0.4, 1.0, 2.5, 2.9], dtype=torch.float64)
    at = torch.linspace(0, 2.9, 57, dtype=torch.float64)

    def parabola(t):
        return torch.stack([t * t - 3 * t, 2 * t + 1, -0.5 * t * t], -1)

    torch.testing.assert_close(smooth_curve(parabola(times), times, at), parabola(at))
    wiggle = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    step = 1e-6
    for knot in times[1:-1]:
        around = smooth_curve(wiggle, times, knot + torch.tensor([-step, 0, step], dtype=torch.float64))
        before, after = torch.diff(around, dim=0) / step
        torch.testing.assert_close(before, after, atol=1e-4, rtol=1e-4)


def test_resampling_by_frame_rate_keeps_the_speed():
    camera = Trajectory.dolly(LENS, distance=2, frames=31, fps=30)
    slower = camera.resample(fps=16)
    assert slower.fps == 16 and len(slower) == 17
    speed = torch.diff(slower.positions[:, 2]) * slower.fps
    torch.testing.assert_close(speed, torch.full((16,), 2.0, dtype=torch.float64))
    played = camera.resample(frames=81, fps=16)
    assert (len(played), played.fps) == (81, 16)
    assert torch.equal(played.c2w[[0, -1]], camera.c2w[[0, -1]])
    assert len(Trajectory.static(LENS, frames=1).resample(frames=5)) == 5
    with pytest.raises(ValueError, match="frames, fps or both"):
        camera.resample()
    with pytest.raises(ValueError, match="at least 1"):
        camera.resample(frames=0)


def test_lens_is_resampled_with_the_poses():
    camera = Trajectory.static(Pinhole(xfov=90), frames=5).with_lens(Pinhole(xfov=torch.linspace(40, 80, 5).double()))
    finer = camera.resample(frames=9)
    torch.testing.assert_close(finer.lens.parameters["xfov"], torch.linspace(40, 80, 9).double())


def test_from_timestamps_samples_uneven_times_evenly():
    seconds = torch.tensor([0.0, 0.1, 0.35, 1.0], dtype=torch.float64)
    positions = torch.stack([seconds, 0 * seconds, seconds**2], -1)
    c2w = pose_matrix(torch.eye(3, dtype=torch.float64), positions)
    even = Trajectory.from_timestamps(c2w, seconds, LENS, fps=10)
    at = torch.arange(11, dtype=torch.float64) / 10
    torch.testing.assert_close(even.positions, torch.stack([at, 0 * at, at**2], -1))
    with pytest.raises(ValueError, match="increase"):
        Trajectory.from_timestamps(c2w, seconds.flip(0), LENS, fps=10)


@pytest.mark.parametrize(
    ("c2w", "message"),
    [
        (torch.eye(4), "shape"),
        (torch.zeros(0, 4, 4), "at least one frame"),
        (torch.eye(4, dtype=torch.long).expand(2, 4, 4), "floating"),
        (2 * torch.eye(4).expand(2, 4, 4), "frame 0 must hold a rotation"),
        (torch.diag(torch.tensor([1.0, 1, -1, 1])).expand(2, 4, 4), "rotation"),
        (torch.full((1, 4, 4), float("nan")), "finite"),
    ],
)
def test_bad_poses_say_what_is_wrong(c2w, message):
    with pytest.raises(ValueError, match=message):
        Trajectory(c2w, LENS)


def test_bad_lens_or_rate_say_what_is_wrong():
    c2w = torch.eye(4).expand(3, 4, 4)
    with pytest.raises(ValueError, match=r"batch shape \(\) or \(3,\), got \(2,\)"):
        Trajectory(c2w, Pinhole(xfov=torch.tensor([50.0, 60.0])))
    for fps in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="fps"):
            Trajectory(c2w, LENS, fps)


def test_to_changes_dtype_and_keeps_the_lens():
    camera = Trajectory.zoom(Pinhole(xfov=90), frames=4).to(torch.float32)
    assert camera.c2w.dtype == torch.float32 and camera.lens.parameters["xfov"].dtype == torch.float32


def test_poses_are_differentiable():
    angles = torch.tensor([10.0, 20.0, 5.0], dtype=torch.float64, requires_grad=True)
    c2w = pose_matrix(rotation_from_angles(*angles)[None], torch.zeros(1, 3, dtype=torch.float64))
    Trajectory(c2w, LENS).angles.pitch.sum().backward()
    torch.testing.assert_close(angles.grad, torch.tensor([1.0, 0, 0], dtype=torch.float64))


def test_panshot_clips_are_level_after_zero_first_yaw(published):
    files = sorted((published / "panshot").glob("*.npy"))
    assert len(files) == 7
    for file in files:
        raw = np.load(file)
        forward = raw[0, :, 2]
        theta = np.arctan2(forward[0], forward[2])
        turn = np.array([[np.cos(theta), 0, -np.sin(theta)], [0, 1, 0], [np.sin(theta), 0, np.cos(theta)]])
        camera = Trajectory.load(file).zero_first_yaw()
        np.testing.assert_allclose(camera.c2w[:, :3].numpy(), turn @ raw.astype(np.float64), atol=1e-6)


def test_numpy_integers_and_masks_pick_frames_and_nothing_is_refused():
    zoom = Trajectory.zoom(Pinhole(xfov=90), frames=5)
    for picked in (zoom[np.int64(2)], zoom[torch.tensor(2)], zoom[np.int32(-3)], zoom[np.arange(5) == 2]):
        assert torch.equal(picked.c2w, zoom.c2w[2:3])
        assert torch.equal(picked.lens.parameters["xfov"], zoom.lens.parameters["xfov"][2:3])
    for nothing in ([], torch.zeros(5, dtype=torch.bool), np.array([], dtype=int)):
        with pytest.raises(ValueError, match="no frame of 5 is left"):
            zoom[nothing]
    for wrong in (np.int64(5), 5, 2.5):
        with pytest.raises(IndexError):
            zoom[wrong]


@pytest.mark.parametrize("fps", [-1, 0, math.nan])
def test_timestamps_need_a_positive_rate(fps):
    camera = random_trajectory(3)
    with pytest.raises(ValueError, match="fps must be a positive number"):
        Trajectory.from_timestamps(camera.c2w, torch.arange(3).double(), LENS, fps=fps)


def test_autocast_does_not_round_geometry():
    camera = random_trajectory().to(torch.float32)
    other = Trajectory.pan(LENS, frames=9).to(torch.float32)

    def results():
        return [
            camera.relative_to_first().c2w,
            camera.zero_first_yaw().c2w,
            camera.gravity_aligned([0.1, -1, 0.2]).c2w,
            (camera @ other).c2w,
            camera.then(other).c2w,
            camera.resample(frames=20).c2w,
            camera.angular_velocity(),
            torch.tensor(camera.maximum_rotation()),
        ]

    expected = results()
    with torch.autocast("cpu", torch.bfloat16):
        found = results()
    assert all(torch.equal(one, other) for one, other in zip(expected, found))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_kept_at_float32(dtype):
    camera = random_trajectory()
    for half in (camera.to(dtype), camera.to("cpu", dtype=dtype)):
        assert half.c2w.dtype == torch.float32 and half.lens.parameters["xfov"].dtype == torch.float32
        torch.testing.assert_close(half.c2w.double(), camera.c2w, atol=1e-5, rtol=1e-6)


def test_whether_up_is_known_is_carried_and_forgotten(tmp_path):
    known = Trajectory.orbit(UCM(xfov=120), frames=9)
    for kept in (
        known[2:],
        known.resample(5),
        known.scaled(2),
        known.zero_first_yaw(),
        known.latent_frames(),
        known + known,
    ):
        assert kept.up_known
    turned = Trajectory.static(UCM(xfov=120), pitch=30).c2w[0]
    unknown = known.transformed(turned)
    assert not unknown.up_known and not known.relative_to_first().up_known
    for kept in (unknown[2:], unknown.to(torch.float32), unknown + known, unknown.scaled(2), unknown.resample(fps=3)):
        assert not kept.up_known
    assert "up unknown" in repr(unknown)
    unknown.save(tmp_path / "a.json")
    read = Trajectory.load(tmp_path / "a.json")
    assert not read.up_known and torch.equal(read.c2w, unknown.c2w)
    unknown.with_lens(Pinhole(xfov=80)).save(tmp_path / "transforms.json")
    read = Trajectory.load(tmp_path / "transforms.json")
    assert not read.up_known and torch.allclose(read.c2w, unknown.c2w, atol=1e-12)
    with pytest.warns(UserWarning, match="-y is up, but which way is up in this path is not known"):
        unknown.save(tmp_path / "panshot.npy")
    assert unknown.gravity_aligned([0, -1, 0]).up_known and unknown.levelled().up_known
    level = unknown.levelled().angles
    assert abs(level.pitch[0]) < 1e-9 and abs(level.roll[0]) < 1e-9
