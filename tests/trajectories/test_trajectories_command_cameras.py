"""A camera as commands take it: path files keep their speed, and zero is not a default."""

import warnings

import pytest
import torch

from ucpe import cli
from ucpe.cli import trajectory as command
from ucpe.cli.cameras import CameraOptions
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory


def path_file(folder, frames=41, fps=8.0, name="path.json", **options):
    path = folder / name
    Trajectory.dolly(Pinhole(xfov=90), distance=frames - 1, frames=frames, fps=fps).save(path, **options)
    return path


@pytest.mark.parametrize(("fps", "step"), [(8.0, 1.0), (16.0, 0.5), (4.0, 2.0)])
def test_a_path_file_keeps_its_speed_and_is_cut(tmp_path, fps, step):
    camera = CameraOptions(camera=path_file(tmp_path)).make_trajectory(21, fps)
    assert len(camera) == 21 and camera.fps == fps
    torch.testing.assert_close(camera.positions[:, 2], step * torch.arange(21, dtype=torch.float64))


def test_a_path_file_too_short_says_how_many_frames_it_gives(tmp_path):
    options = CameraOptions(camera=path_file(tmp_path))
    assert len(options.make_trajectory(81, 16.0)) == 81
    with pytest.raises(ValueError, match=r"path\.json gives 81 frames at 16 fps, but 82 .*--frames 81"):
        options.make_trajectory(82, 16.0)


@pytest.mark.filterwarnings("ignore:.*does not say which way is up")
@pytest.mark.parametrize("fps", [24.0, 30.0])
def test_rounded_timestamps_do_not_cost_a_frame(tmp_path, fps):
    file = path_file(tmp_path, frames=81, fps=fps, name="path.txt", format="realestate10k")
    assert Trajectory.load(file).fps != fps
    camera = CameraOptions(camera=file).make_trajectory(81, fps)
    assert camera.fps == fps
    torch.testing.assert_close(camera.positions[:, 2], torch.arange(81, dtype=torch.float64))


@pytest.mark.parametrize("option", ["frames", "fps"])
@pytest.mark.parametrize("source", ["orbit", "file"])
def test_zero_is_refused_and_not_taken_for_the_default(tmp_path, option, source):
    source = str(path_file(tmp_path)) if source == "file" else source
    with pytest.raises(ValueError, match=f"{option} must be"):
        command.main(["show", source, f"--{option}", "0", "-o", str(tmp_path / "x.png")])


def tilted(folder, format):
    """A path in a world whose up is (0, 1, -1), whose first camera is tilted against it."""
    camera = Trajectory.dolly(Pinhole(xfov=90), distance=3, frames=4, fps=16, pitch=-20, roll=10)
    world = Trajectory.static(Pinhole(xfov=90), pitch=135).c2w[0]
    file = folder / "path.txt"
    camera.transformed(world).save(file, format=format)
    return file, camera


def test_a_path_without_up_is_levelled_aloud_and_turned_as_told(tmp_path):
    file, camera = tilted(tmp_path, "kitti")
    with pytest.warns(
        UserWarning, match=r"path\.txt does not say which way is up: its first camera is taken to be level"
    ):
        level = CameraOptions(camera=file).make_trajectory(4, 16.0)
    assert level.up_known
    assert [round(float(angle[0]), 9) for angle in (level.angles.pitch, level.angles.roll)] == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = CameraOptions(camera=file, up="0,1,-1").make_trajectory(4, 16.0)
        flat = CameraOptions(camera=file, level=True).make_trajectory(4, 16.0)
    torch.testing.assert_close(told.angles.pitch, camera.angles.pitch)
    torch.testing.assert_close(told.angles.roll, camera.angles.roll)
    torch.testing.assert_close(told.positions[:, 1] - told.positions[0, 1], camera.positions[:, 1], atol=1e-9, rtol=0)
    torch.testing.assert_close(flat.c2w, level.c2w)


def test_options_of_a_path_that_contradict_each_other_or_have_no_path(tmp_path):
    file, _ = tilted(tmp_path, "kitti")
    with pytest.raises(ValueError, match=r"--level makes the first camera level, --up \+z something else"):
        CameraOptions(camera=file, up="+z", level=True).make_trajectory(4, 16.0)
    with pytest.raises(ValueError, match="up must be first, an axis such as"):
        CameraOptions(camera=file, up="sideways").make_trajectory(4, 16.0)
    with pytest.raises(ValueError, match="are for a path file"):
        CameraOptions(move="orbit", up="+z").make_trajectory(4, 16.0)


def test_scale(tmp_path):
    file = path_file(tmp_path)
    assert CameraOptions(camera=file, scale=0.5).make_trajectory(21, 8.0).path_length() == pytest.approx(10)
    with pytest.warns(UserWarning, match="the path is 20 long: translations times 0.05"):
        assert CameraOptions(camera=file, scale="auto").make_trajectory(21, 8.0).path_length() == pytest.approx(1)


def test_up_may_start_with_a_minus(tmp_path, monkeypatch, capsys):
    file, _ = tilted(tmp_path, "tum")
    target = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["ucpe", "trajectory", "convert", str(file), str(target), "--up", "-y"])
    cli.main()
    assert Trajectory.load(target).up_known
    torch.testing.assert_close(Trajectory.load(target).c2w, Trajectory.load(file).c2w)


def test_a_calibration_is_cut_to_the_video_aloud(tmp_path):
    calibration = tmp_path / "c.yaml"
    Pinhole(fx=300, fy=310, cx=330, cy=200, width=640, height=480).save(calibration, "kalibr")
    with pytest.warns(
        UserWarning, match=r"c\.yaml: .*640 x 480 for images of 832 x 480: 111 of its 480 rows.* are cut"
    ):
        lens = CameraOptions(lens=str(calibration)).make_trajectory(1, 16.0, 480, 832).lens
    torch.testing.assert_close(lens.intrinsics(369, 640)[0, 0], lens.intrinsics(369, 640)[1, 1] * 300 / 310)
    squeezed = CameraOptions(lens=f"{calibration}:cam0", fit="squeeze")
    with pytest.warns(UserWarning, match=r"squeezed"):
        assert squeezed.make_trajectory(1, 16.0, 480, 832).lens.settings == {"width": 640, "height": 480}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CameraOptions(lens=str(calibration)).make_trajectory(1, 16.0, 240, 320)
