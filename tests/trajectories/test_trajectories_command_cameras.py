"""A camera as commands take it: path files keep their speed, and zero is not a default."""

import pytest
import torch

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
