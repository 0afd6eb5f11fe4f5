"""Camera moves: what each does to the camera, from any starting pitch and roll."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ucpe.lenses import UCM, BrownConrady, Equidistant, Equirectangular, KannalaBrandt, Pinhole
from ucpe.trajectories import NAMED_MOVES, Keyframe, Trajectory
from ucpe.trajectories.keyframes import EASINGS
from ucpe.trajectories.moves import zoom_lens
from ucpe.trajectories.rotations import rotation_from_angles

LENS = UCM(xfov=140, xi=1.2)
HEIGHT, WIDTH = 480, 832
starts = st.fixed_dictionaries({"pitch": st.floats(-60, 60), "yaw": st.floats(-180, 180), "roll": st.floats(-60, 60)})
LENSES = {
    "pinhole": Pinhole(xfov=90),
    "pinhole[calibrated]": Pinhole(fx=600.0, fy=590.0, cx=400.0, cy=250.0, width=WIDTH, height=HEIGHT),
    "ucm": UCM(xfov=150, xi=1.4),
    "equidistant": Equidistant(xfov=160),
    "kannala_brandt": KannalaBrandt(xfov=140, k1=-0.02, k2=0.003),
    "brown_conrady[tangential]": BrownConrady(xfov=80, k1=-0.1, k2=0.02, p1=0.002, p2=-0.001),
    "brown_conrady[pinhole_xfov]": BrownConrady(pinhole_xfov=80, k1=-0.1),
}
by_lens = pytest.mark.parametrize("lens", LENSES.values(), ids=LENSES.keys())


def assert_constant(values, expected):
    torch.testing.assert_close(values, torch.full_like(values, expected), atol=1e-8, rtol=0)


def ahead(trajectory, distance):
    """Point on the optical axis of every frame (N, 3)."""
    return trajectory.positions + distance * trajectory.rotations[:, :, 2]


@pytest.mark.parametrize("name", NAMED_MOVES)
def test_every_move_starts_at_the_origin_with_the_given_angles(name):
    start = {"pitch": -37.0, "yaw": 160.0, "roll": 21.0}
    camera = Trajectory.move(name, Pinhole(xfov=70), frames=9, fps=12.0, **start)
    assert len(camera) == 9 and camera.fps == 12
    assert camera.positions[0].abs().max() == 0
    expected = rotation_from_angles(*torch.tensor([-37.0, 160.0, 21.0], dtype=torch.float64))
    torch.testing.assert_close(camera.rotations[0], expected, atol=1e-12, rtol=0)
    assert len(Trajectory.move(name, Pinhole(xfov=70), frames=1, **start)) == 1


@given(start=starts)
@settings(max_examples=10)
def test_pan_tilt_and_roll_change_one_angle_only(start):
    for move, changed, amount in (("pan", "yaw", 25), ("tilt", "pitch", -20), ("roll", "roll", 30)):
        camera = getattr(Trajectory, move)(LENS, degrees=amount, frames=7, **start)
        assert camera.path_length() == 0
        for name, values in camera.angles._asdict().items():
            turned = values - start[name]
            wanted = torch.linspace(0, amount if name == changed else 0, 7, dtype=torch.float64)
            assert (torch.cos(torch.deg2rad(turned - wanted)) > 1 - 1e-12).all()


@given(start=starts)
@settings(max_examples=10)
def test_truck_dolly_and_pedestal_move_on_the_axes_of_the_heading(start):
    heading = math.radians(start["yaw"])
    right, forward = (math.cos(heading), 0, -math.sin(heading)), (math.sin(heading), 0, math.cos(heading))
    for move, direction in (("truck", right), ("dolly", forward), ("pedestal", (0, -1, 0))):
        camera = getattr(Trajectory, move)(LENS, distance=1.5, frames=5, **start)
        torch.testing.assert_close(camera.positions[-1], 1.5 * torch.tensor(direction, dtype=torch.float64))
        assert camera.maximum_rotation() < 1e-6
    view = Trajectory.dolly(LENS, distance=1.5, along_view=True, frames=5, **start)
    torch.testing.assert_close(view.positions[-1], 1.5 * view.rotations[0, :, 2])


@given(start=starts)
@settings(max_examples=10)
def test_orbit_keeps_the_subject_in_the_middle(start):
    camera = Trajectory.orbit(LENS, degrees=70, radius=2.0, frames=9, **start)
    subject = ahead(camera, 2.0 / math.cos(math.radians(start["pitch"])))
    torch.testing.assert_close(subject, subject[:1].expand(9, 3), atol=1e-9, rtol=0)
    assert_constant(camera.angles.pitch, start["pitch"])
    assert_constant(camera.angles.roll, start["roll"])
    assert camera.path_length() == pytest.approx(2 * math.radians(70), rel=1e-2)
    if abs(start["yaw"]) < 1e-9:
        assert camera.positions[-1, 0] > 0


def test_arc_looks_along_its_path():
    camera = Trajectory.arc(LENS, degrees=-90, radius=3.0, frames=181)
    torch.testing.assert_close(camera.positions[-1], torch.tensor([-3.0, 0, 3.0], dtype=torch.float64))
    travelled = torch.diff(camera.positions, dim=0)
    travelled = travelled / travelled.norm(dim=-1, keepdim=True)
    assert ((travelled * camera.rotations[:-1, :, 2]).sum(-1) > 0.9999).all()


@pytest.mark.parametrize("pitch", [0.0, -35.0, 20.0])
def test_spiral_and_crane_keep_the_subject_in_the_middle(pitch):
    subject_height = 2.0 * math.tan(math.radians(pitch))
    subject = torch.tensor([0.0, -subject_height, 2.0], dtype=torch.float64)
    spiral = Trajectory.spiral(
        LENS, degrees=500, radius=2.0, end_radius=0.7, height=1.0, frames=25, pitch=pitch, roll=8
    )
    crane = Trajectory.crane(LENS, height=-1.5, distance=0.5, subject_distance=2.0, frames=25, pitch=pitch, roll=8)
    for camera in (spiral, crane):
        seen = (camera.rotations.mT @ (subject - camera.positions)[..., None])[..., 0]
        assert (seen[:, :2].abs().amax() < 1e-9) and (seen[:, 2] > 0).all()
        assert_constant(camera.angles.roll, 8)
    torch.testing.assert_close(spiral.positions[-1, 1].item(), -1.0)
    assert Trajectory.crane(LENS, subject_distance=None, pitch=pitch).maximum_rotation() == 0


def test_handheld_is_band_limited_seeded_and_of_the_given_size():
    fps, frames = 50.0, 20001
    camera = Trajectory.handheld(LENS, degrees=1.0, distance=0.02, min_hertz=0.5, max_hertz=3.0, frames=frames, fps=fps)
    signals = [*camera.angles, *camera.positions.unbind(-1)]
    frequency = torch.fft.rfftfreq(frames, 1 / fps)
    window = torch.hann_window(frames, dtype=torch.float64)
    for signal, size in zip(signals, [1, 1, 1, 0.02, 0.02, 0.02]):
        centred = signal - signal.mean()
        power = torch.fft.rfft(centred * window).abs() ** 2
        inside = (frequency > 0.45) & (frequency < 3.05)
        assert power[~inside].sum() < 1e-3 * power.sum()
        assert centred.square().mean().sqrt().item() == pytest.approx(size, rel=0.1)
    again = Trajectory.handheld(LENS, seed=3, frames=20)
    assert torch.equal(again.c2w, Trajectory.handheld(LENS, seed=3, frames=20).c2w)
    assert not torch.equal(again.c2w, Trajectory.handheld(LENS, seed=4, frames=20).c2w)
    torch.testing.assert_close(Trajectory.handheld(LENS, seed=3, frames=39, fps=32)[::2].c2w, again.c2w)
    with pytest.raises(ValueError, match="half the frame rate"):
        Trajectory.handheld(LENS, fps=4)
    with pytest.raises(ValueError, match="min_hertz < max_hertz"):
        Trajectory.handheld(LENS, min_hertz=3.0)


@by_lens
def test_zoom_multiplies_the_focal_length(lens):
    camera = Trajectory.zoom(lens, factor=3.0, frames=5, pitch=10)
    assert camera.path_length() == 0 and camera.maximum_rotation() == 0
    focal = camera.lens.calibrated(HEIGHT, WIDTH).parameters
    first = lens.calibrated(HEIGHT, WIDTH).parameters
    factors = 3 ** torch.linspace(0, 1, 5, dtype=torch.float64)
    for name in ("fx", "fy"):
        torch.testing.assert_close(focal[name].double(), first[name].double() * factors, rtol=1e-9, atol=0)
    back = zoom_lens(camera.lens[-1], torch.tensor([1 / 3], dtype=torch.float64))
    torch.testing.assert_close(back.xfov(HEIGHT, WIDTH)[0], lens.xfov(HEIGHT, WIDTH), rtol=1e-4, atol=1e-4)


@by_lens
@pytest.mark.parametrize("distance", [-2.0, 0.5])
def test_dolly_zoom_keeps_the_subject_the_same_size_in_the_image(lens, distance):
    subject_distance, width = 1.5, 0.4
    if distance > 0 and not isinstance(lens, Pinhole):
        lens = zoom_lens(lens, torch.tensor([3.0], dtype=torch.float64))[0]
    camera = Trajectory.dolly_zoom(
        lens, distance, subject_distance=subject_distance, subject_width=width, frames=7, pitch=-15, yaw=40, roll=5
    )
    first = camera.c2w[0]
    edge = torch.tensor([width / 2, 0.0, subject_distance], dtype=torch.float64)
    world = first[:3, :3] @ edge + first[:3, 3]
    local = (camera.rotations.mT @ (world - camera.positions)[..., None])[..., 0]
    pixels, seen = camera.lens.project(local, HEIGHT, WIDTH)
    assert seen.all()
    assert (pixels - pixels[:1])[:, 0].abs().max() < 1e-6
    background = camera.lens.project(local + torch.tensor([0.0, 0.0, 5.0]), HEIGHT, WIDTH)[0]
    assert (background[-1] - background[0]).norm() > 2
    assert camera.path_length() == pytest.approx(abs(distance))


def test_zoom_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="no focal length"):
        Trajectory.zoom(Equirectangular())
    with pytest.raises(ValueError, match="smaller xfov"):
        Trajectory.zoom(UCM(xfov=200, xi=2.0), factor=0.3)
    with pytest.raises(ValueError, match="one lens"):
        Trajectory.zoom(Pinhole(xfov=torch.tensor([50.0, 60.0])))
    with pytest.raises(ValueError, match="subject_distance"):
        Trajectory.dolly_zoom(LENS, distance=2, subject_distance=1)


@pytest.mark.parametrize("easing", EASINGS)
def test_easing_runs_from_start_to_end(easing):
    camera = Trajectory.pan(LENS, degrees=50, frames=41, easing=easing)
    yaw = camera.angles.yaw
    assert yaw[0] == 0 and yaw[-1].item() == pytest.approx(50)
    assert (torch.diff(yaw) > -1e-9).all()
    slow_start, slow_end = torch.diff(yaw)[0] < 0.5, torch.diff(yaw)[-1] < 0.5
    assert (bool(slow_start), bool(slow_end)) == (easing in ("ease", "ease_in"), easing in ("ease", "ease_out"))


@pytest.mark.parametrize("easing", ["smooth", *EASINGS])
def test_keyframes_are_passed_exactly(easing):
    keys = [
        Keyframe(0.0),
        Keyframe(1.0, position=(1, -0.5, 2), pitch=-20, yaw=200, roll=5, zoom=2.0),
        Keyframe(2.5, position=(0, 0, 4), yaw=400),
    ]
    camera = Trajectory.keyframes(Pinhole(xfov=80), keys, fps=8, easing=easing)
    assert len(camera) == 21
    for key in keys:
        frame = camera[round(key.seconds * 8)]
        torch.testing.assert_close(frame.positions[0], torch.tensor(key.position, dtype=torch.float64))
        angles = torch.tensor([key.pitch, key.yaw, key.roll], dtype=torch.float64)
        torch.testing.assert_close(frame.rotations[0], rotation_from_angles(*angles))
        focal = frame.lens.intrinsics(2, 2)[0, 0, 0] / Pinhole(xfov=80).intrinsics(2, 2)[0, 0]
        assert focal.item() == pytest.approx(key.zoom, rel=1e-5)
    assert torch.rad2deg(torch.deg2rad(torch.diff(camera.angles.yaw)).sin().asin()).sum().item() == pytest.approx(400)


def test_keyframes_with_one_key_or_in_disorder():
    assert len(Trajectory.keyframes(LENS, [Keyframe(0.0, pitch=5)])) == 1
    assert not Trajectory.keyframes(LENS, [Keyframe(0.0), Keyframe(1.0, yaw=5)]).lens.batch_shape
    with pytest.raises(ValueError, match="in order of time"):
        Trajectory.keyframes(LENS, [Keyframe(1.0), Keyframe(0.5)])
    with pytest.raises(ValueError, match="at least one"):
        Trajectory.keyframes(LENS, [])
    with pytest.raises(ValueError, match="zoom"):
        Trajectory.keyframes(LENS, [Keyframe(0.0, zoom=0), Keyframe(1.0)])


def test_moves_combine():
    drive, look = Trajectory.dolly(LENS, distance=2, frames=5), Trajectory.pan(LENS, degrees=90, frames=5, pitch=-10)
    straight, bend = drive @ look, look @ drive
    torch.testing.assert_close(straight.positions, drive.positions)
    torch.testing.assert_close(straight.rotations, look.rotations)
    assert bend.positions[-1, 0] > 1.9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Trajectory.pan(LENS, frames=0), "frames"),
        (lambda: Trajectory.pan(LENS, easing="bouncy"), "easing must be one of"),
        (lambda: Trajectory.orbit(LENS, radius=0), "radius"),
        (lambda: Trajectory.spiral(LENS, pitch=90), "within 89"),
        (lambda: Trajectory.crane(LENS, distance=3), "subject_distance"),
        (lambda: Trajectory.move("moonwalk", LENS), "no move 'moonwalk'"),
        (lambda: Trajectory.move("pan", LENS, distance=3), "distance"),
    ],
)
def test_bad_amounts_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", sorted({method for method, _ in NAMED_MOVES.values()}))
def test_unknown_options_name_the_move_and_what_it_takes(name):
    with pytest.raises(ValueError, match=rf"move '{name}' takes .*frames, fps, pitch, yaw, roll, easing, not speed"):
        getattr(Trajectory, name)(LENS, speed=3)


@pytest.mark.parametrize("name", sorted({method for method, _ in NAMED_MOVES.values()}))
@pytest.mark.parametrize("value", [math.nan, math.inf, "3"])
def test_amounts_that_are_no_finite_number_are_named(name, value):
    move = getattr(Trajectory, name)
    amounts = set(inspect.signature(move).parameters) - {"lens", "shot", "along_view", "seed"}
    for option in amounts | {"pitch", "yaw", "roll", "fps"}:
        with pytest.raises(ValueError, match=rf"\b{option}\b"):
            move(LENS, **{option: value})


@pytest.mark.parametrize("fps", [0, -1, math.nan])
def test_keyframes_need_a_positive_rate(fps):
    with pytest.raises(ValueError, match="fps must be a positive number"):
        Trajectory.keyframes(LENS, [Keyframe(0), Keyframe(1)], fps=fps)


@pytest.mark.parametrize("option", ["seconds", "pitch", "yaw", "roll"])
def test_keyframes_that_hold_no_number_are_named(option):
    with pytest.raises(ValueError, match=f"{option} of keyframe 1 must be a finite number, got nan"):
        Trajectory.keyframes(LENS, [Keyframe(0), Keyframe(**{"seconds": 1, option: math.nan})])
    with pytest.raises(ValueError, match="position of keyframe 0"):
        Trajectory.keyframes(LENS, [Keyframe(0, position=(0, math.nan, 0))])
