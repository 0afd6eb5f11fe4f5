"""`ucpe track` on a rendered world whose camera is known, and its refusals."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Calibration, PoseEstimate
from ucpe.evaluation.tracking import TrackedCamera, _calibrated_up, read_part, track_video, view_depth
from ucpe.lenses import UCM, Equirectangular, Pinhole
from ucpe.synthesis.footage import Footage
from ucpe.synthesis.layouts import Layout
from ucpe.synthesis.worlds import World, near_plane_depth, render_clip
from ucpe.trajectories import Trajectory, alignment_error, umeyama
from ucpe.video import VideoError, write_video

AROUND = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
"""Pixels by which a picture that is right is moved to make it wrong."""


def film(path, lens, camera: Trajectory, seed: int, height: int, width: int) -> None:
    world = World.sample(seed)
    frames = render_clip(world, lens, camera.scaled(world.near_depth).c2w, height, width, camera.fps, threads=1).color
    write_video(path, frames, camera.fps, crf=10)


def errors(tracked: TrackedCamera, camera: Trajectory) -> tuple[float, float]:
    """Position error in path lengths after alignment, and the largest rotation error in degrees."""
    found, wanted = tracked.camera.positions, camera.positions
    error = alignment_error(umeyama(found, wanted), found, wanted) / camera.path_length()
    turned, meant = tracked.camera.rotations, camera.rotations
    off = (turned[0].T @ turned - meant[0].T @ meant).norm(dim=(1, 2)) / 8**0.5
    return float(error), float(torch.rad2deg(2 * torch.asin(off.clamp(max=1))).max())


@pytest.mark.slow
def test_the_camera_of_a_world_is_found_and_can_be_followed(tmp_path, capsys):
    pytest.importorskip("pycolmap")
    from ucpe.cli.track import main

    lens = UCM(xfov=140, xi=1.0)
    camera = Trajectory.orbit(lens, 30, frames=11, fps=8)
    film(tmp_path / "orbit.mp4", lens, camera, 32, 192, 320)
    lens.save(tmp_path / "lens.json")
    main([str(tmp_path / "orbit.mp4"), "--lens", str(tmp_path / "lens.json"), "-o", str(tmp_path / "path.json")])
    told = capsys.readouterr().out
    path = Trajectory.load(tmp_path / "path.json")
    position, rotation = errors(TrackedCamera(path, 0.0, 11, 11), camera)
    assert position < 0.01 and rotation < 2
    assert told.startswith("sure: 11 of 11") and "up is not known" in told
    assert not path.up_known and path.fps == 8 and path.lens.kind == "ucm"
    assert path.path_length() == pytest.approx(camera.path_length(), rel=0.35)


@pytest.mark.parametrize("lens", [Pinhole(xfov=75), UCM(xfov=140, xi=1.0)], ids=["pinhole", "fisheye"])
def test_the_near_plane_of_a_view_is_that_many_times_the_panoramas(lens):
    rays = lens.rays(36, 64)
    ratios = []
    for seed in range(200, 208):
        world = World.sample(seed)
        depth = world.depth((np.zeros(3), rays.directions.double().numpy(), rays.valid.numpy()))
        ratios.append(near_plane_depth(np.where(rays.valid.numpy(), depth, np.inf)) / world.near_depth)
    assert np.abs(np.array(ratios) / view_depth(lens, 288, 512) - 1).max() < 0.35


@pytest.mark.slow
def test_the_camera_of_a_panorama_is_found_with_its_scale(tmp_path):
    pytest.importorskip("pycolmap")
    camera = Trajectory.truck(Equirectangular(), 0.5, frames=11, fps=8)
    film(tmp_path / "walk.mp4", Equirectangular(), camera, 4, 192, 384)
    tracked = track_video(tmp_path / "walk.mp4", None, Equirectangular())
    position, rotation = errors(tracked, camera)
    assert position < 0.01 and rotation < 0.5 and tracked.sure and tracked.camera.up_known
    assert tracked.camera.path_length() == pytest.approx(0.5, rel=0.1)


def test_stereo_and_cubemaps_are_tracked_as_the_panorama_they_show(tmp_path):
    camera = Trajectory.truck(Equirectangular(), 0.1, frames=2, fps=8)
    film(tmp_path / "walk.mp4", Equirectangular(), camera, 4, 192, 384)
    whole, _ = read_part(tmp_path / "walk.mp4", 0.0, None, 1, 192)
    for layout, frames in {
        Layout("equirectangular", "top-bottom"): np.concatenate([whole.frames, np.roll(whole.frames, 3, 2)], 1),
        Layout("equirectangular", "side-by-side"): np.concatenate([whole.frames, np.roll(whole.frames, 3, 2)], 2),
        Layout("eac", "mono"): np.stack([filtered(frame, "v360", "e:eac:w=768:h=512") for frame in whole.frames]),
    }.items():
        write_video(tmp_path / "other.mp4", frames, 8)
        assert Footage(tmp_path / "other.mp4").layout[:2] == layout[:2]
        found, _ = read_part(tmp_path / "other.mp4", 0.0, None, 1, 192, layout)
        assert found.frames.shape == whole.frames.shape
        off = [np.abs(found.frames.astype(float) - np.roll(whole.frames, (x, y), (2, 1))).mean() for x, y in AROUND]
        assert min(off) == off[0] < 7
    with pytest.raises(ValueError, match="add --lens equirectangular"):
        track_video(tmp_path / "other.mp4", None, Pinhole(xfov=80), stereo="mono")


def filtered(picture: np.ndarray, name: str, settings: str) -> np.ndarray:
    """A picture (H, W, 3) after one of FFmpeg's filters."""
    graph = av.filter.Graph()
    height, width = picture.shape[:2]
    graph.link_nodes(
        graph.add_buffer(width=width, height=height, format="rgb24", time_base=Fraction(1, 8)),
        graph.add(name, settings),
        graph.add("format", "rgb24"),
        graph.add("buffersink"),
    ).configure()
    graph.push(av.VideoFrame.from_ndarray(picture, format="rgb24"))
    return graph.pull().to_ndarray()


def test_a_calibrator_says_which_way_is_up():
    lens = Pinhole(xfov=80)
    camera = Trajectory.pan(lens, 40, frames=5, pitch=12, roll=-7)
    angles = camera.angles

    class Known:
        def estimate(self, clip):
            return Calibration("radial", np.arange(5), angles.pitch.numpy(), angles.roll.numpy(), {})

    moved = camera.relative_to_first()
    up = _calibrated_up(None, PoseEstimate(moved.c2w, np.arange(5)), Known())
    aligned = moved.gravity_aligned(up, in_first_camera=True).angles
    torch.testing.assert_close(aligned.pitch, angles.pitch, atol=1e-5, rtol=0)
    torch.testing.assert_close(aligned.roll, angles.roll, atol=1e-5, rtol=0)


def test_what_cannot_be_tracked_says_why(tmp_path):
    pytest.importorskip("pycolmap")
    write_video(tmp_path / "grey.mp4", np.full((4, 64, 96, 3), 90, np.uint8), 8)
    colmap = EstimatorChoice("colmap").pose_estimator()
    with pytest.raises(ValueError, match=r"grey\.mp4: its camera cannot be found: too little texture"):
        track_video(tmp_path / "grey.mp4", colmap, Pinhole(xfov=80))
    with pytest.raises(VideoError, match="second 9"):
        read_part(tmp_path / "grey.mp4", 9.0, None, 1, 480)
    with pytest.raises(ValueError, match="at least two frames"):
        track_video(tmp_path / "grey.mp4", colmap, Pinhole(xfov=80), every=9)
