import json

import numpy as np
import pytest
import torch

from ucpe.evaluation.camera_metrics import calibration_errors, commanded_calibration
from ucpe.evaluation.estimators import desk
from ucpe.evaluation.estimators.base import Clip, EstimationFailure
from ucpe.evaluation.estimators.desk_model import HEIGHT, WIDTH, best_rotation, ray_motion, robust_rotation
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.lenses import UCM, Lens
from ucpe.synthesis import desk_clips
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_angle, rotation_exp

FRAMES, FPS = desk_clips.FRAMES, desk_clips.FPS
SEEDS = [desk_clips.VALIDATION_SEED + 500_000 + index for index in range(4)]
LENS = UCM(xfov=125, xi=0.7)


def film(camera: Trajectory, seed: int) -> Clip:
    world = World.sample(seed, kind="outdoor")
    c2w = camera.c2w.numpy().copy()
    c2w[:, :3, 3] *= world.near_depth
    video = render_clip(world, camera.lens, c2w, HEIGHT, WIDTH, camera.fps, 2, threads=1).color
    return Clip(str(seed), video, np.arange(len(camera)) / camera.fps)


def measured(filmed: Trajectory, commanded: Trajectory) -> dict[str, float]:
    """Mean errors over the worlds of videos filmed with one camera and judged by another."""
    calibrator, motion = desk.DeskCalibrationEstimator(), desk.DeskMotionEstimator()
    rows = []
    for seed in SEEDS:
        clip = film(filmed, seed)
        wanted = commanded_calibration(commanded, "ucm", HEIGHT, WIDTH)
        estimate = motion.estimate(clip, commanded.lens)
        rows.append(
            calibration_errors(calibrator.estimate(clip), wanted)
            | PROTOCOLS["robust"].evaluate(commanded.c2w, estimate.c2w, estimate.near_depth, estimate.metric)
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def shot(
    lens: Lens = LENS, pan: float = 0.0, truck: float = 0.0, roll: float = 0.0, pitch: float = -10.0
) -> Trajectory:
    options = {"frames": FRAMES, "fps": FPS, "easing": "linear"}
    moving = Trajectory.truck(lens, distance=truck or 1e-9, **options)
    turning = Trajectory.pan(lens, degrees=pan or 1e-9, pitch=pitch, roll=roll, **options)
    return moving @ turning


CAUGHT = {"XFoVErr": 25.0, "PitchErr": 8.0, "RollErr": 8.0, "RotErr": 6.0, "TransErr": 0.2, "SpeedErr": 1.0}
"""What a fault must exceed, several times the estimators' own error."""

FAULTS = {
    "nothing wrong": (shot(pan=30, truck=0.8), shot(pan=30, truck=0.8), set()),
    "wrong lens": (shot(UCM(xfov=175, xi=1.9), truck=0.8), shot(UCM(xfov=110, xi=0.3), truck=0.8), {"XFoVErr"}),
    "wrong roll": (shot(truck=0.8, roll=20), shot(truck=0.8), {"RollErr"}),
    "wrong pitch": (shot(truck=0.8, pitch=-26), shot(truck=0.8), {"PitchErr"}),
    "mirrored turn": (shot(pan=-30), shot(pan=30), {"RotErr"}),
    "mirrored path": (shot(truck=-0.8), shot(truck=0.8), {"TransErr"}),
    "frozen camera": (shot(), shot(truck=0.8), {"TransErr", "SpeedErr"}),
    "slowed path": (shot(truck=0.3), shot(truck=1.2), {"SpeedErr"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caught_by_its_metric_and_by_no_other(fault):
    filmed, commanded, meant = FAULTS[fault]
    errors = measured(filmed, commanded)
    caught = {name for name, limit in CAUGHT.items() if errors.get(name, 0.0) > limit}
    assert caught == meant, {name: round(errors[name], 3) for name in CAUGHT if name in errors}


def test_perfect_videos_score_near_the_floor():
    floors = desk.DeskCalibrationEstimator().floor() | desk.DeskMotionEstimator().floor()
    generator = np.random.default_rng(5)
    rows = []
    for seed in range(desk_clips.VALIDATION_SEED + 600_000, desk_clips.VALIDATION_SEED + 600_010):
        while True:
            _, lens, poses = desk_clips.random_camera(generator)
            world = World.sample(seed, kind="outdoor")
            if world.clearance(poses[:, :3, 3] * world.near_depth).min() > 0.5:
                break
        camera = Trajectory(torch.from_numpy(poses), lens, FPS)
        clip = film(camera, seed)
        wanted = commanded_calibration(camera, "ucm", HEIGHT, WIDTH)
        estimate = desk.DeskMotionEstimator().estimate(clip, lens)
        rows.append(
            calibration_errors(desk.DeskCalibrationEstimator().estimate(clip), wanted)
            | PROTOCOLS["robust"].evaluate(camera.c2w, estimate.c2w, 1.0, True)
        )
    for name in ("PitchErr", "RollErr", "XFoVErr", "RotErr", "TransErr"):
        mean = np.mean([row[name] for row in rows if name in row])
        assert mean < 2.0 * floors[name], (name, mean, floors[name])


def test_weights_are_small_and_carry_their_floors():
    assert desk.WEIGHTS.stat().st_size < 1_500_000
    _, _, metadata = desk.load_weights(desk.WEIGHTS)
    assert metadata["floors"]["calibration"]["PitchErr"] < 1.3
    assert metadata["floors"]["calibration"]["RollErr"] < 1.0
    assert metadata["floors"]["calibration"]["XFoVErr"] < 6.5
    assert metadata["floors"]["pose"]["RotErr"] < 0.8
    assert "desk model only" in desk.DeskMotionEstimator().describe()["note"]


def test_footage_it_is_not_for_is_refused():
    square = Clip("a", np.zeros((3, 64, 64, 3), np.uint8), np.arange(3) / 8)
    with pytest.raises(EstimationFailure, match="7:4 videos of the desk model, this one is 64 x 64"):
        desk.DeskCalibrationEstimator().estimate(square)
    single = Clip("a", np.zeros((1, HEIGHT, WIDTH, 3), np.uint8), np.zeros(1))
    with pytest.raises(EstimationFailure, match="at least two frames"):
        desk.DeskMotionEstimator().estimate(single, LENS)
    assert len(desk.DeskCalibrationEstimator().estimate(single).pitch) == 1


def test_larger_videos_of_the_same_shape_are_taken():
    camera = shot(truck=0.5)
    small = film(camera, SEEDS[0])
    large = Clip("l", small.frames.repeat(2, 1).repeat(2, 2), small.times)
    one, two = (desk.DeskCalibrationEstimator().estimate(clip) for clip in (small, large))
    assert two.pitch == pytest.approx(one.pitch, abs=1e-3)


def test_a_mirrored_video_has_the_opposite_roll():
    clip = film(shot(truck=0.5, roll=12), SEEDS[1])
    mirrored = Clip("m", clip.frames[:, :, ::-1], clip.times)
    one, two = (desk.DeskCalibrationEstimator().estimate(c) for c in (clip, mirrored))
    assert two.roll == pytest.approx(-one.roll, abs=1e-3)
    assert two.pitch == pytest.approx(one.pitch, abs=1e-3)


def test_a_zooming_lens_is_followed():
    lens = UCM(xfov=torch.linspace(120, 90, FRAMES, dtype=torch.float64), xi=torch.zeros(FRAMES, dtype=torch.float64))
    camera = Trajectory(shot(pan=20).c2w, lens, FPS)
    estimate = desk.DeskMotionEstimator().estimate(film(camera, SEEDS[2]), lens)
    assert PROTOCOLS["robust"].evaluate(camera.c2w, estimate.c2w, 1.0)["RotErr"] < 4


def test_robust_rotation_recovers_a_turn_despite_parallax():
    generator = torch.Generator().manual_seed(0)
    start = torch.nn.functional.normalize(torch.randn(2, 300, 3, generator=generator, dtype=torch.float64), dim=-1)
    turn = rotation_exp(torch.tensor([[0.1, -0.2, 0.05], [0.0, 0.3, 0.0]], dtype=torch.float64))
    end = start @ turn
    end[:, :100] = torch.nn.functional.normalize(end[:, :100] + 0.1, dim=-1)
    seen = torch.ones(2, 300, dtype=torch.bool)
    seen[:, 290:] = False
    end[:, 290:] = -end[:, 290:]
    rotation, weight = robust_rotation(start, end, seen)
    assert rotation_angle(rotation.mT @ turn).max() < 0.05
    assert weight[:, :100].mean() < 0.3 < 0.9 < weight[:, 100:290].mean()
    exact = best_rotation(start[:, 100:290], end[:, 100:290], torch.ones(2, 190, dtype=torch.float64))
    assert rotation_angle(exact.mT @ turn).max() < 1e-6


def test_flow_alone_already_gives_the_rotation_of_a_pan():
    camera = shot(pan=40)
    clip = film(camera, SEEDS[3])
    lenses = LENS.expand(FRAMES - 1)
    motion = ray_motion(clip.frames[:-1], clip.frames[1:], lenses, lenses)
    wanted = camera.rotations[:-1].mT @ camera.rotations[1:]
    assert rotation_angle(motion.rotation.mT @ wanted).mean() < 0.4


def test_training_runs_stops_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(desk_clips, "CLIPS_PER_SHARD", 3)
    settings = desk.DeskTraining(shards=1, calibrator_steps=2, motion_steps=2, batch=4)
    lines: list[str] = []
    path = desk.train(tmp_path / "clips", tmp_path / "out", settings, log=lines.append)
    calibrator, motion, metadata = desk.load_weights(path)
    assert metadata["training"]["calibrator_steps"] == 2
    assert json.loads(lines[-1]) == metadata["floors"]
    before = path.read_bytes()
    lines.clear()
    path.unlink()
    desk.load_weights.cache_clear()
    assert desk.train(tmp_path / "clips", tmp_path / "out", settings, log=lines.append).read_bytes() == before
    assert not any("step" in line for line in lines)
    assert sum(p.numel() for p in calibrator.parameters()) + sum(p.numel() for p in motion.parameters()) < 700_000
    with pytest.raises(ValueError, match="no desk estimator weights"):
        desk.load_weights(tmp_path / "nowhere.safetensors")
