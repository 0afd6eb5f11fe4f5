import numpy as np
import pytest
import torch

from ucpe.evaluation.estimators.base import Clip, EstimationFailure, PoseEstimate
from ucpe.evaluation.estimators.colmap import (
    ColmapEstimator,
    ColmapSettings,
    PairMatches,
    consensus_rotation,
    epipolar_distance,
    explains_the_rest,
    prefers_rotation,
)
from ucpe.evaluation.estimators.known_rotation import average_rotations, build_tracks, solve_centres
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.lenses import UCM
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_exp

pytest.importorskip("pycolmap")
FRAMES, HEIGHT, WIDTH = 6, 168, 288
LENS = UCM(xfov=150, xi=1.3)


def filmed(camera: Trajectory, seed: int = 3) -> Clip:
    world = World.sample(seed, kind="outdoor")
    c2w = camera.c2w.numpy().copy()
    c2w[:, :3, 3] *= world.near_depth
    video = render_clip(world, camera.lens, c2w, HEIGHT, WIDTH, camera.fps, 1, threads=1).color
    return Clip("world", video, np.arange(len(camera)) / camera.fps)


def rays(generator, count=200):
    directions = generator.normal(size=(count, 3)) * [1, 0.6, 0.1] + [0, 0, 1.5]
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def test_a_consensus_ignores_wrong_matches():
    generator = np.random.default_rng(0)
    rotation = rotation_exp(torch.tensor([0.1, -0.2, 0.05], dtype=torch.float64)).numpy()
    before = rays(generator)
    after = before @ rotation.T + generator.normal(size=before.shape) * 1e-4
    after[:60] = rays(generator, 60)
    found, share = consensus_rotation(before, after, 1e-3, generator)
    assert np.abs(found - rotation).max() < 1e-4
    assert share == pytest.approx(0.7, abs=0.03)


def test_moving_and_turning_are_told_apart():
    generator = np.random.default_rng(1)
    before = rays(generator)
    depth = generator.uniform(2, 8, (len(before), 1))
    rotation = rotation_exp(torch.tensor([0.0, 0.2, 0.0], dtype=torch.float64)).numpy()
    shift = np.array([0.5, 0.0, 0.1])
    essential = np.cross(np.eye(3), shift).T @ rotation
    for move, turns in ((shift, False), (np.zeros(3), True)):
        after = (before * depth) @ rotation.T + move
        after /= np.linalg.norm(after, axis=1, keepdims=True)
        after += generator.normal(size=after.shape) * 1e-3
        after /= np.linalg.norm(after, axis=1, keepdims=True)
        pair = PairMatches(0, 1, before, after, essential, np.zeros((len(before), 2), int))
        fits = {(0, 1): consensus_rotation(before, after, 3e-3, generator)}
        assert prefers_rotation([pair], fits, 1e-3) is turns
        moved = np.linalg.inv(np.block([[rotation, shift[:, None]], [np.zeros((1, 3)), np.ones((1, 1))]]))
        map_of_it = PoseEstimate(torch.from_numpy(np.stack([np.eye(4), moved])), np.arange(2))
        assert explains_the_rest(map_of_it, [pair], fits, 1e-3) is not turns
        if not turns:
            assert np.median(epipolar_distance(essential, before, after)) < 2e-3


def test_recovers_a_moving_camera_through_a_fisheye_and_always_the_same():
    camera = Trajectory.arc(LENS, degrees=35, radius=2.0, frames=FRAMES, fps=4, pitch=-8)
    clip = filmed(camera)
    estimator = ColmapEstimator(ColmapSettings(seeds=(0, 1), max_features=1200))
    first, second = (estimator.estimate(clip, LENS) for _ in range(2))
    assert first.frames.tolist() == list(range(FRAMES))
    assert torch.equal(first.c2w, second.c2w)
    metrics = PROTOCOLS["robust"].evaluate(camera.c2w, first.c2w, first.near_depth)
    assert metrics["RotErr"] < 0.5
    assert metrics["TransErr"] < 0.1 * float(camera.positions[-1].norm())


def test_the_lens_of_a_video_is_measured_whatever_was_told():
    camera = Trajectory.arc(LENS, degrees=35, radius=2.0, frames=FRAMES, fps=4, pitch=-8)
    clip = filmed(camera)
    estimator = ColmapEstimator(ColmapSettings(seeds=(0,), max_features=1200, free_lens=True))
    told = UCM(xfov=130, xi=1.0)
    edge = told.project(torch.tensor([np.sin(np.radians(50)), 0.0, np.cos(np.radians(50))]), HEIGHT, WIDTH)[0]
    ray = LENS.unproject(edge, HEIGHT, WIDTH).directions
    seen = 2 * float(torch.rad2deg(torch.atan2(ray[0], ray[2])))  # where the told lens shows 100 degrees
    for lens, xfov in ((LENS, 100.0), (told, seen)):
        assert estimator.estimate(clip, lens).details["measured_xfov"] == pytest.approx(xfov, abs=4)


def test_structure_follows_from_known_rotations_and_tracks():
    generator = np.random.default_rng(2)
    frames = 8
    points = generator.uniform([-4, -2, 3], [4, 2, 9], (150, 3))
    points[:50] *= 40  # a background
    centre = np.stack([np.linspace(0, 1.5, frames), 0.1 * np.sin(np.arange(frames)), np.zeros(frames)], -1)
    turns = torch.zeros(frames, 3, dtype=torch.float64)
    turns[:, 1] = torch.linspace(0, 0.3, frames)
    rotation = rotation_exp(turns).numpy()
    directions = {}
    for frame in range(frames):
        local = (points - centre[frame]) @ rotation[frame]
        local += generator.normal(size=local.shape) * 1e-4 * np.linalg.norm(local, axis=1, keepdims=True)
        directions[frame] = local / np.linalg.norm(local, axis=1, keepdims=True)
    same = np.repeat(np.arange(len(points))[:, None], 2, axis=1)
    tracks = build_tracks([(frame, frame + 1, same) for frame in range(frames - 1)], directions)
    assert tracks.count == len(points)
    assert len(tracks.ray) == frames * len(points)
    found = solve_centres(tracks, rotation, (0, frames - 1), 1e-3)
    scale = np.linalg.norm(centre[-1]) / np.linalg.norm(found[-1])
    assert np.abs(found * scale - centre).max() < 0.01

    fits = {(i, j): (rotation[j].T @ rotation[i], 1.0) for i in range(frames) for j in range(i + 1, frames)}
    averaged = average_rotations(fits, frames)
    assert averaged is not None
    assert np.abs(averaged - rotation).max() < 1e-9
    assert average_rotations({(0, 1): fits[0, 1]}, frames) is None


def test_a_track_never_has_two_features_of_one_frame():
    rays_of = {frame: np.tile([0.0, 0.0, 1.0], (3, 1)) for frame in range(3)}
    matches = [(0, 1, np.array([[0, 0], [1, 1]])), (1, 2, np.array([[0, 0], [1, 0]]))]
    assert build_tracks(matches, rays_of).count == 0  # both tracks meet in feature 0 of frame 2


def test_recovers_a_pan_without_inventing_a_translation():
    camera = Trajectory.pan(LENS, degrees=25, frames=FRAMES, fps=4)
    estimate = ColmapEstimator(ColmapSettings(seeds=(0,), max_features=1200)).estimate(filmed(camera), LENS)
    metrics = PROTOCOLS["robust"].evaluate(camera.c2w, estimate.c2w, estimate.near_depth)
    assert metrics["RotErr"] < 0.3
    assert metrics["TransErr"] < 0.03


@pytest.mark.parametrize(
    ("frames", "reason"),
    [(np.full((3, 96, 160, 3), 90, np.uint8), "texture"), (np.zeros((1, 96, 160, 3), np.uint8), "at least two")],
)
def test_videos_without_content_fail_with_a_reason(frames, reason):
    with pytest.raises(EstimationFailure, match=reason):
        ColmapEstimator().estimate(Clip("empty", frames, np.arange(len(frames)) / 4), LENS)


def test_unrelated_frames_fail_with_a_reason():
    frames = np.stack([filmed(Trajectory.static(LENS, frames=1), seed).frames[0] for seed in (3, 8)])
    noise = np.random.default_rng(0).integers(0, 255, frames.shape, np.uint8)
    with pytest.raises(EstimationFailure, match=r"matched|triangulated|texture"):
        ColmapEstimator().estimate(Clip("cut", noise, np.arange(2) / 4), LENS)
