import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from ucpe.evaluation.estimators.base import PoseEstimate
from ucpe.evaluation.pose_metrics import (
    absolute_trajectory_error,
    displacement,
    frame_errors,
    least_squares_scale,
    relative_pose_error,
    scaled,
)
from ucpe.evaluation.protocols import COMMON_TIMESTAMPS, PROTOCOLS, estimate_at, find_protocol, speed_error
from ucpe.evaluation.records import pose_metrics
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import pose_matrix, rotation_exp

LENS = Pinhole(xfov=90)


def path(seed: int, frames: int = 20, travel: float = 1.0, turn: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(frames, 3, generator=generator, dtype=torch.float64)
    return pose_matrix(
        rotation_exp(turn * steps.cumsum(0) / frames),
        travel * torch.randn(frames, 3, generator=generator, dtype=torch.float64).cumsum(0) / frames,
    )


def yaw(degrees: float) -> torch.Tensor:
    return rotation_exp(torch.tensor([0.0, math.radians(degrees), 0.0], dtype=torch.float64))


def poses(yaws: list[float], positions: list[list[float]]) -> torch.Tensor:
    return pose_matrix(torch.stack([yaw(angle) for angle in yaws]), torch.tensor(positions, dtype=torch.float64))


COMMANDED = poses([0, 10, 20], [[0, 0, 0], [0, 0, 1], [0, 0, 2]])
ESTIMATED = poses([0, 13, 24], [[0, 0, 0], [0.6, 0, 0.2], [0, 0, 1]])


def test_frame_errors_by_hand():
    errors = frame_errors(COMMANDED, ESTIMATED)
    assert errors.rotation.numpy() == pytest.approx([0, 3, 4])
    assert errors.translation.numpy() == pytest.approx([0, 1, 1])
    chord = [2 * math.sqrt(2) * math.sin(math.radians(angle) / 2) for angle in (3, 4)]
    assert errors.matrix.numpy() == pytest.approx([0, math.hypot(1, chord[0]), math.hypot(1, chord[1])])


def test_every_protocol_by_hand():
    commanded, estimated = COMMANDED[:, :, :], ESTIMATED
    released = PROTOCOLS["released"].evaluate(commanded, estimated)
    assert released["RotErr"] == pytest.approx(math.radians(7))
    # Each path divided by its own largest translation: 2 and 1.
    assert released["TransErr"] == pytest.approx(math.hypot(0.6, 0.3) + 0)
    cameractrl = PROTOCOLS["cameractrl"].evaluate(commanded, estimated)
    assert cameractrl["TransErr"] == pytest.approx(2)
    assert cameractrl["RotErr"] == pytest.approx(math.radians(7))
    scale = (1 * 0.2 + 2 * 1) / (0.6**2 + 0.2**2 + 1)
    assert least_squares_scale(commanded, estimated) == pytest.approx(scale)
    aligned = math.hypot(0.6 * scale, 1 - 0.2 * scale) + abs(2 - scale)
    paper = PROTOCOLS["paper"].evaluate(commanded, estimated)
    assert paper["RotErr"] == pytest.approx(math.radians(7))
    assert paper["TransErr"] == pytest.approx(aligned)
    robust = PROTOCOLS["robust"].evaluate(commanded, estimated, near_depth=0.5, metric=True)
    assert robust["RotErr"] == pytest.approx(7 / 3)
    assert robust["RotErr_sum"] == pytest.approx(7)
    assert robust["TransErr"] == pytest.approx(aligned / 3)
    ratio = math.sqrt((0.4 + 1) / 3) / 0.5 / math.sqrt(5 / 3)
    assert robust["speed"] == pytest.approx(ratio)
    assert robust["SpeedErr"] == pytest.approx(abs(math.log2(ratio)))


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_evo(seed):
    from evo.core import metrics, sync  # noqa: F401
    from evo.core.trajectory import PosePath3D

    commanded = path(seed)
    noise = rotation_exp(
        0.05 * torch.randn(len(commanded), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    )
    estimated = pose_matrix(commanded[:, :3, :3] @ noise, 0.3 * commanded[:, :3, 3] + 0.02 * path(seed + 10)[:, :3, 3])
    reference, candidate = (PosePath3D(poses_se3=list(c2w.numpy())) for c2w in (commanded, estimated))

    rotation, translation = relative_pose_error(commanded, estimated)
    for relation, ours in (
        (metrics.PoseRelation.rotation_angle_deg, rotation),
        (metrics.PoseRelation.translation_part, translation),
    ):
        rpe = metrics.RPE(relation, delta=1, delta_unit=metrics.Unit.frames, all_pairs=False)
        rpe.process_data((reference, candidate))
        assert ours == pytest.approx(rpe.get_statistic(metrics.StatisticsType.rmse), rel=1e-9)

    candidate.align(reference, correct_scale=True)
    ate = metrics.APE(metrics.PoseRelation.translation_part)
    ate.process_data((reference, candidate))
    ours = absolute_trajectory_error(commanded, estimated)
    assert ours == pytest.approx(ate.get_statistic(metrics.StatisticsType.rmse), rel=1e-9)

    first = PosePath3D(poses_se3=[np.linalg.inv(commanded[0].numpy()) @ pose for pose in commanded.numpy()])
    second = PosePath3D(poses_se3=[np.linalg.inv(estimated[0].numpy()) @ pose for pose in estimated.numpy()])
    ape = metrics.APE(metrics.PoseRelation.rotation_angle_deg)
    ape.process_data((first, second))
    assert frame_errors(commanded, estimated).rotation.numpy() == pytest.approx(ape.error, abs=1e-6)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), factor=st.floats(0.01, 100))
def test_world_frame_and_scale_of_the_estimate_do_not_matter(seed, factor):
    commanded, estimated, world = path(seed), path(seed + 1), path(seed + 2)[3]
    moved = scaled(world @ estimated, factor)
    moved_command = world @ commanded
    for name in ("robust", "paper", "released"):
        plain = PROTOCOLS[name].evaluate(commanded, estimated)
        changed = PROTOCOLS[name].evaluate(moved_command, moved)
        assert changed == pytest.approx(plain, rel=1e-6, abs=1e-9), name
    assert PROTOCOLS["cameractrl"].evaluate(commanded, moved)["RotErr"] == pytest.approx(
        PROTOCOLS["cameractrl"].evaluate(commanded, estimated)["RotErr"], rel=1e-6
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_least_squares_scale_is_the_best_scale(seed):
    commanded, estimated = path(seed), path(seed + 1)
    best = least_squares_scale(commanded, estimated)

    def cost(factor):
        return float(frame_errors(commanded, scaled(estimated, factor)).translation.square().sum())

    assert all(cost(best) <= cost(max(best + step, 0)) + 1e-12 for step in (-0.5, -0.01, 0.01, 0.5))


def test_identical_paths_have_no_error_under_any_protocol():
    commanded = path(3)
    for protocol in PROTOCOLS.values():
        metrics = protocol.evaluate(commanded, commanded, near_depth=1.0, metric=True)
        errors = {name: value for name, value in metrics.items() if name != "speed"}
        assert errors == pytest.approx(dict.fromkeys(errors, 0.0), abs=1e-6), protocol.name


def test_protocols_differ_as_documented_on_a_rotation_only_path():
    """The released script blows the estimator's noise up to unit length; the default says nothing instead."""
    pan = poses([0, 10, 20, 30], [[0, 0, 0]] * 4)
    noisy = pan.clone()
    noisy[1:, :3, 3] = 1e-3 * torch.tensor([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0]], dtype=torch.float64)
    assert PROTOCOLS["released"].evaluate(pan, noisy)["TransErr"] == pytest.approx(3)
    robust = PROTOCOLS["robust"].evaluate(pan, noisy)
    assert "TransErr" not in robust
    assert robust["RotErr"] == pytest.approx(0, abs=1e-6)
    known = PROTOCOLS["robust"].evaluate(pan, noisy, near_depth=0.5)
    assert known["TransErr"] == pytest.approx(0.75 * 2e-3)


def test_sum_and_mean_and_units_differ_by_known_factors():
    commanded, estimated = path(5, 16), path(6, 16)
    paper, robust = (PROTOCOLS[name].evaluate(commanded, estimated) for name in ("paper", "robust"))
    for name, unit in (("RotErr", math.radians(1)), ("TransErr", 1), ("CamMC", 1)):
        assert paper[name] == pytest.approx(16 * robust[name] * unit)
        assert paper[f"{name}_mean"] == pytest.approx(robust[name] * unit)
        assert robust[f"{name}_sum"] == pytest.approx(16 * robust[name])
    for other in ("released", "cameractrl"):
        assert PROTOCOLS[other].evaluate(commanded, estimated)["RotErr"] == pytest.approx(paper["RotErr"])


def test_a_path_that_goes_the_other_way_cannot_be_scaled_to_agree():
    forward = poses([0, 0, 0], [[0, 0, 0], [0, 0, 1], [0, 0, 2]])
    backward = scaled(forward, -1.0)
    assert least_squares_scale(forward, backward) == 0
    assert PROTOCOLS["paper"].evaluate(forward, backward)["TransErr"] == pytest.approx(3)


def test_speed_error_counts_factors_of_two_and_is_capped():
    assert speed_error(1.0) == 0
    assert speed_error(0.5) == speed_error(2.0) == pytest.approx(1)
    assert speed_error(0.0) == speed_error(1e9) == pytest.approx(4)


def test_methods_of_different_length_and_rate_are_compared_at_the_same_times():
    """The paper's three: 16 frames at 4 fps, 48 at 8, 81 at 16, all of one camera motion."""
    motion = lambda frames, fps: Trajectory(  # noqa: E731
        poses([6.0 * index / fps for index in range(frames)], [[0, 0, index / fps] for index in range(frames)]),
        LENS,
        fps,
    )
    protocol = PROTOCOLS["paper"]
    shortest = min(motion(frames, fps).duration for frames, fps in ((16, 4), (48, 8), (81, 16)))
    assert shortest == 3.75
    command = motion(81, 16)
    for frames, fps in ((16, 4), (48, 8), (81, 16)):
        other = motion(frames, fps)
        seconds = protocol.timestamps(torch.arange(frames) / fps, shortest)
        assert len(seconds) == COMMON_TIMESTAMPS
        assert seconds[-1] == 3.75
        estimated = estimate_at(other.c2w, torch.arange(frames) / fps, seconds)
        metrics = protocol.evaluate(command.at(seconds * command.fps).c2w, estimated)
        assert metrics["RotErr"] == pytest.approx(0, abs=1e-5)
        assert metrics["TransErr"] == pytest.approx(0, abs=1e-5)


def test_all_frames_are_used_where_a_protocol_says_so():
    released, uneven = PROTOCOLS["released"], torch.tensor([0.0, 0.1, 0.4, 1.0])
    assert len(released.timestamps(torch.arange(81) / 16, 5.0)) == 81
    assert released.timestamps(uneven, 5.0).tolist() == pytest.approx(uneven.tolist())
    assert released.timestamps(uneven, 0.4).tolist() == pytest.approx([0.0, 0.1, 0.4])
    even = PROTOCOLS["robust"].timestamps(uneven, 5.0)
    assert even.tolist() == pytest.approx(np.linspace(0, 1, COMMON_TIMESTAMPS).tolist())


def test_a_wrong_roll_turns_a_sideways_path_and_only_that():
    """Paths are relative to the first camera: 20 degrees of roll are 2 sin(10) of a sideways path, none of a forward
    one."""
    rolled = rotation_exp(torch.tensor([0.0, 0.0, math.radians(20)], dtype=torch.float64))
    for direction, share in (([1.0, 0, 0], 2 * math.sin(math.radians(10))), ([0, 0, 1.0], 0.0)):
        commanded = poses([0, 0, 0], [[step * value for value in direction] for step in (0, 1, 2)])
        filmed = pose_matrix(commanded[:, :3, :3] @ rolled, commanded[:, :3, 3])
        metrics = PROTOCOLS["cameractrl"].evaluate(commanded, filmed)
        assert metrics["TransErr"] == pytest.approx(3 * share, abs=1e-9)
        assert metrics["RotErr"] == pytest.approx(0, abs=1e-6)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="the same shape"):
        frame_errors(path(0, 5), path(0, 6))
    with pytest.raises(ValueError, match="needs more than 1 frames, got 1"):
        relative_pose_error(path(0, 1), path(0, 1))
    with pytest.raises(ValueError, match="no protocol 'papier'; there are robust, paper"):
        find_protocol("papier")


def test_one_frame_has_zero_error_and_no_odometry():
    metrics = PROTOCOLS["robust"].evaluate(path(1, 1), path(2, 1))
    assert metrics["RotErr"] == pytest.approx(0, abs=1e-9)
    assert "RPE_rot" not in metrics


def test_displacement_is_the_root_mean_square_distance():
    assert displacement(COMMANDED) == pytest.approx(math.sqrt(5 / 3))


def slowly(commanded: torch.Tensor, estimated: torch.Tensor, every: int, frames: int) -> dict[str, float]:
    """What the authors' script adds up, frame by frame, from its description in docs/evaluation.md."""
    relative = []
    for c2w in (commanded, estimated):
        chosen = [c2w[index].double().numpy() for index in range(0, len(c2w), every)][:frames]
        path = [np.linalg.solve(chosen[0], pose) for pose in chosen]
        longest = max(math.dist(pose[:3, 3], (0, 0, 0)) for pose in path)
        for pose in path:
            pose[:3, 3] /= longest + 1e-9
        relative.append(path)
    total = dict.fromkeys(("RotErr", "TransErr", "CamMC"), 0.0)
    for wanted, got in zip(*relative):
        total["RotErr"] += Rotation.from_matrix(wanted[:3, :3].T @ got[:3, :3]).magnitude()
        total["TransErr"] += math.dist(wanted[:3, 3], got[:3, 3])
        total["CamMC"] += math.dist(wanted[:3].ravel(), got[:3].ravel())
    return total


@pytest.mark.parametrize(("name", "every", "frames"), [("released", 1, 81), ("released-re10k", 4, 16)])
@pytest.mark.parametrize("travel", [1.0, 300.0, 0.0])
def test_the_authors_protocols_to_the_digit(name, every, frames, travel):
    """Through the function that evaluates a video, so that choosing the frames is part of it."""
    for seed in range(3):
        command, estimated = Trajectory(path(seed, 81, travel), LENS, 16.0), path(seed + 50, 81, 7.0)
        estimate = PoseEstimate(estimated, np.arange(81))
        found = pose_metrics(command, estimate, np.arange(81) / 16.0, PROTOCOLS[name])
        expected = slowly(command.c2w, estimated, every, frames)
        assert {metric: found[metric] for metric in expected} == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_noise_of_a_path_that_does_not_travel_stays_noise():
    """Rounding of the order of 1e-12 is not blown up to unit length: their script adds 1e-9 to the divisor."""
    pan = poses([0, 10, 20, 30], [[0, 0, 0]] * 4)
    noisy = pan.clone()
    noisy[2, 0, 3] = 1e-12
    metrics = PROTOCOLS["released"].evaluate(noisy, pan)
    assert metrics["TransErr"] == pytest.approx(1e-3, rel=0.01)
