"""Scenes: what a preview shows is what `ucpe render` writes."""

import numpy as np
import pytest
import torch

from ucpe.cli import render
from ucpe.lenses import UCM
from ucpe.synthesis.scenes import open_scene, pictures
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames, write_video

LENS = UCM(xfov=170.0, xi=1.6)
CAMERA = Trajectory.arc(LENS, degrees=50, frames=5, fps=8.0, pitch=12, roll=-9)


def render_file(source, folder) -> np.ndarray:
    CAMERA.save(folder / "path.json")
    options = ["--crf", "0", "--height", "90", "--width", "160", "--fps", "8", "--frames", "5"]
    render.main([str(source), "--camera", str(folder / "path.json"), "-o", str(folder / "out.mp4"), *options])
    return read_frames(folder / "out.mp4")


@pytest.fixture
def panorama(tmp_path):
    """A small turning panorama of smooth colours."""
    rows, columns = np.mgrid[:64, :128]
    frames = [
        np.stack([(columns * 2 + 16 * step) % 256, rows * 4, np.full_like(rows, 90)], -1).astype(np.uint8)
        for step in range(6)
    ]
    write_video(tmp_path / "pano.mp4", frames, 8.0)
    return tmp_path / "pano.mp4"


def test_a_preview_of_footage_has_the_very_pixels_of_the_rendered_video(tmp_path, panorama):
    written = render_file(panorama, tmp_path)
    shown = np.stack(list(pictures(open_scene(str(panorama)), CAMERA, 90, 160)))
    assert np.array_equal(written, shown)


def test_a_preview_of_footage_may_jump_back_and_forth(tmp_path, panorama):
    scene = open_scene(str(panorama))
    shown = list(pictures(scene, CAMERA, 90, 160))
    for frame in (3, 0, 4, 4, 1):
        assert np.array_equal(scene.picture(LENS, CAMERA.c2w[frame], frame / 8, 90, 160), shown[frame])
    late = scene.picture(LENS, CAMERA.c2w[0], 99.0, 90, 160)
    assert np.array_equal(late, scene.picture(LENS, CAMERA.c2w[0], 5 / 8, 90, 160))


@pytest.mark.parametrize("name", ["world:3", "world:4:indoor"])
def test_a_preview_of_a_world_has_the_very_pixels_of_the_rendered_video(tmp_path, name):
    written = render_file(name, tmp_path)
    shown = list(pictures(open_scene(name), CAMERA, 90, 160))
    write_video(tmp_path / "shown.mp4", shown, 8.0, crf=0)
    assert np.array_equal(written, read_frames(tmp_path / "shown.mp4"))
    assert not np.array_equal(written[0], written[4])


def test_moving_shows_in_a_world_and_not_in_a_panorama(panorama):
    ahead = torch.eye(4, dtype=torch.float64)
    ahead[2, 3] = 0.4
    for name, moves in (("world:3", True), (str(panorama), False)):
        scene = open_scene(name)
        assert scene.has_depth is moves
        here, there = (scene.picture(LENS, pose, 0.0, 36, 64) for pose in (torch.eye(4).double(), ahead))
        assert np.array_equal(here, there) is not moves


@pytest.mark.parametrize("name", ["world:", "world:x", "world:1:garden", "world:-3"])
def test_a_world_that_is_none_is_named(name):
    with pytest.raises(ValueError, match="a world is named world:SEED"):
        open_scene(name)
