"""Flow on the sphere and near-plane depth, against rotations and depths that are known."""

import functools

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from ucpe.lenses import Equirectangular
from ucpe.synthesis.curation.flow import (
    DISFlow,
    NetworkFlow,
    normalise,
    sample_panorama,
    sphere_directions,
    turn_panorama,
)
from ucpe.synthesis.curation.poses import SphericalMapper
from ucpe.synthesis.curation.scale import DepthOptions, depth_of, near_depth, nearest_known, rescale, triangulate
from ucpe.synthesis.worlds import World, near_plane_depth, render_clip
from ucpe.trajectories import Trajectory, umeyama

LENS, HEIGHT, WIDTH = Equirectangular(), 256, 512
OPTIONS = DepthOptions(samples=3)
MAX_ERROR = 0.05

SHOTS = {
    "forward, outdoors": (World.sample(3, "outdoor"), Trajectory.dolly(LENS, 1.0, frames=13)),
    "sideways, indoors": (World.sample(4, "indoor"), Trajectory.truck(LENS, 0.6, frames=13)),
    "turning, outdoors": (World.sample(12, "outdoor"), Trajectory.arc(LENS, 60, radius=1.0, frames=13)),
    "upwards, outdoors": (World.sample(9401, "outdoor"), Trajectory.pedestal(LENS, 0.3, frames=13)),
    "slowly upwards, indoors": (World.sample(8, "indoor"), Trajectory.pedestal(LENS, 0.3, frames=13)),
}


@pytest.fixture(scope="module", params=SHOTS)
def shot(request):
    return film(request.param)


@functools.cache
def film(name):
    world, camera = SHOTS[name]
    clip = render_clip(world, LENS, camera.c2w, HEIGHT, WIDTH, threads=1)
    return clip.color, camera.c2w.double().numpy(), clip.depth


@pytest.fixture(scope="module")
def sideways():
    return film("sideways, indoors")


def test_near_depth_of_known_worlds(shot):
    frames, c2w, depth = shot
    assert near_depth(frames, c2w, options=OPTIONS) == pytest.approx(near_plane_depth(depth), rel=MAX_ERROR)


def test_depth_map_is_right_where_it_is_reliable(sideways):
    frames, c2w, truth = sideways
    depth = depth_of(frames[0], frames[4], np.linalg.inv(c2w[0]) @ c2w[4], DISFlow(), OPTIONS)
    reliable = np.isfinite(depth)
    assert reliable.mean() > 0.6
    assert np.median(np.abs(depth / truth[0] - 1)[reliable]) < 0.04


def test_depth_around_the_epipoles_is_filled_from_around_them():
    frames, c2w, truth = film("slowly upwards, indoors")
    depth = depth_of(frames[0], frames[-1], np.linalg.inv(c2w[0]) @ c2w[-1], DISFlow(), OPTIONS)
    along = np.abs(sphere_directions(HEIGHT, WIDTH)[..., 1]) > np.cos(np.radians(OPTIONS.epipole))
    assert np.isfinite(depth[along]).all()
    assert np.median(np.abs(depth / truth[0] - 1)[along]) < 0.1


def test_a_sky_whose_flow_is_noise_stays_too_far_to_tell():
    """Else it would take the depth of the horizon, and the 25th percentile would move."""
    directions = sphere_directions(90, 180)
    sky = directions[..., 1] < 0.02
    noise = np.random.default_rng(0).random(sky.shape) < 0.3

    def seen_from(height, climb):
        depth = np.where(sky, 1e9, height / np.maximum(directions[..., 1], 1e-9))
        return normalise(directions * depth[..., None] + [0, climb, 0])

    there, back = seen_from(1.0, 0.2), seen_from(1.2, -0.2)
    there[sky & noise] = normalise(there[sky & noise] + [0.2, 0, 0.1])
    motion = np.eye(4)
    motion[1, 3] = -0.2
    flows = iter((there, back))
    depth = depth_of(*np.zeros((2, 90, 180, 3), np.uint8), motion, lambda first, second: next(flows), OPTIONS)
    assert np.isnan(depth[:43]).all()
    assert depth[55:80] == pytest.approx(1 / directions[55:80, :, 1], rel=0.02)


def test_what_is_unknown_takes_the_nearest_value_over_the_seam():
    values, known = np.arange(60.0).reshape(6, 10), np.zeros((6, 10), bool)
    known[2, 9] = known[4, 4] = True
    filled = nearest_known(values, known)
    assert (filled[2, 0], filled[2, 1], filled[0, 0]) == (29, 29, 29)
    assert (filled[4, 3], filled[5, 5], filled[2, 9], filled[4, 4]) == (44, 44, 29, 44)


def test_scale_of_estimated_poses(sideways):
    pytest.importorskip("pycolmap")
    frames, truth, depth = sideways
    (track,) = SphericalMapper(features=800).track(frames)
    near = near_depth(frames, track.c2w, options=OPTIONS)
    scaled = rescale(track.c2w, near)
    wanted = truth[:, :3, 3] / near_plane_depth(depth)
    to_truth = umeyama(torch.from_numpy(scaled[:, :3, 3]), torch.from_numpy(wanted))
    assert float(to_truth.scale) == pytest.approx(1, rel=MAX_ERROR)


def test_near_depth_is_in_the_units_of_the_poses(sideways):
    frames, c2w, _ = sideways
    one = DepthOptions(samples=1)
    near = near_depth(frames, c2w, options=one)
    assert near_depth(frames, rescale(c2w, 0.01), options=one) == pytest.approx(100 * near, rel=1e-6)
    assert near_depth(frames, rescale(c2w, near), options=one) == pytest.approx(1, rel=1e-6)


def test_no_parallax_is_told(sideways):
    frames, c2w, _ = sideways
    with pytest.raises(ValueError, match="parallax"):
        near_depth(frames[:3], c2w[[0, 0, 0]])
    with pytest.raises(ValueError, match="parallax"):
        near_depth(np.repeat(frames[:1], 3, 0), c2w[:3], options=OPTIONS)
    with pytest.raises(ValueError, match="parallax"):
        near_depth(np.full((3, 64, 128, 3), 90, np.uint8), c2w[:3])
    with pytest.raises(ValueError, match="parallax"):
        near_depth(frames[:1], c2w[:1])


def test_bad_input_is_refused(sideways):
    frames, c2w, _ = sideways
    with pytest.raises(ValueError, match="each of 13 frames"):
        near_depth(frames, c2w[:5])
    with pytest.raises(ValueError, match="uint8"):
        near_depth(frames.astype(float), c2w)
    with pytest.raises(ValueError, match="positive"):
        rescale(c2w, 0.0)


def test_triangulation_is_exact():
    generator = np.random.default_rng(0)
    points, translation = generator.normal(size=(500, 3)) * 3, np.array([0.3, -0.2, 0.5])
    depth, parallax, beside = triangulate(normalise(points), normalise(points - translation), translation)
    cosine = (normalise(points) * normalise(points - translation)).sum(-1)
    assert np.allclose(depth, np.linalg.norm(points, axis=-1), rtol=1e-9)
    assert np.allclose(parallax, np.arccos(cosine), atol=1e-7) and (beside < 1e-12).all()
    aside = normalise(np.cross(translation, points))
    moved = normalise(normalise(points - translation) + 0.1 * aside)
    assert np.allclose(triangulate(normalise(points), moved, translation)[2], 0.1 / np.hypot(1, 0.1))
    behind = triangulate(normalise(points - translation), normalise(points), translation)[1]
    assert (behind < 0).all()


def test_flow_follows_a_turn_over_seam_and_poles(sideways):
    first = sideways[0][0]
    rotation = Rotation.from_euler("xyz", [4, -6, 3], degrees=True).as_matrix()
    found = DISFlow()(first, turn_panorama(first, rotation))
    directions = sphere_directions(HEIGHT, WIDTH)
    off = np.linalg.norm(found - directions @ rotation.T, axis=-1) / (2 * np.pi / WIDTH)
    steep = np.abs(directions[..., 1]) > np.sin(np.radians(75))
    seam = directions[..., 2] < -0.98
    assert np.median(off) < 0.3 and np.median(off[steep]) < 0.5 and np.median(off[seam]) < 0.5


def test_panoramas_turn_exactly():
    picture = np.random.default_rng(0).integers(0, 256, (32, 64, 3), dtype=np.uint8)
    quarter = Rotation.from_euler("y", 90, degrees=True).as_matrix()
    assert np.array_equal(turn_panorama(picture, quarter), np.roll(picture, 16, axis=1))
    over = sphere_directions(32, 64) * np.float32([-1, 1, -1])
    assert np.array_equal(sample_panorama(picture, over), np.roll(picture, 32, axis=1))


def test_directions_are_those_of_the_lens():
    assert np.allclose(sphere_directions(16, 32), LENS.rays(16, 32).directions, atol=1e-6)


def network(path, inputs=2, channels=2):
    """An ONNX file: 3 pixels to the right and 1 down, if the second picture is not brighter than 255."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    names = ["first", "second"][:inputs]
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [channels, 3, 1, 1], [0.0] * 3 * channels)
    bias = helper.make_tensor("bias", TensorProto.FLOAT, [channels], [3.0, 1.0, 0.0][:channels])
    nodes = [helper.make_node("Conv", [names[-1], "weights", "bias"], ["flow"])]
    pictures = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, "height", "width"]) for name in names]
    output = helper.make_tensor_value_info("flow", TensorProto.FLOAT, [1, channels, "height", "width"])
    graph = helper.make_graph(nodes, "flow", pictures, [output], [weights, bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def test_flow_network_from_a_file(tmp_path):
    pytest.importorskip("onnxruntime")
    flow = NetworkFlow(network(tmp_path / "flow.onnx"))
    picture = np.random.default_rng(0).integers(0, 256, (30, 60, 3), dtype=np.uint8)
    found = flow(picture, picture)
    belt = slice(9, 21)
    assert np.allclose(found[belt], np.roll(sphere_directions(30, 60), (-1, -3), (0, 1))[belt], atol=1e-5)
    assert np.allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-5)


def test_files_that_are_no_flow_network(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(FileNotFoundError, match="no flow network"):
        NetworkFlow(tmp_path / "absent.onnx")
    (tmp_path / "text.onnx").write_text("not a network")
    with pytest.raises(ValueError, match="ONNX Runtime cannot load"):
        NetworkFlow(tmp_path / "text.onnx")
    with pytest.raises(ValueError, match="2 inputs, this one has"):
        NetworkFlow(network(tmp_path / "one.onnx", inputs=1))
    with pytest.raises(ValueError, match="expected a flow"):
        NetworkFlow(network(tmp_path / "three.onnx", channels=3)).plane(*np.zeros((2, 8, 8, 3), np.uint8))
