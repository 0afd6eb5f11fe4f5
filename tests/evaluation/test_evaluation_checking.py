import cv2
import numpy as np
import pytest
import torch

from ucpe.evaluation.checking import check_video, effect_of
from ucpe.evaluation.estimators.base import Calibration, EstimationFailure, PoseEstimate
from ucpe.evaluation.estimators.colmap import PairMatches, keyframes, xfov_of_turns
from ucpe.evaluation.report import checks
from ucpe.evaluation.report.checks import draw_check, lines_of, terminal_plot
from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_exp
from ucpe.video import write_video

FRAMES, HEIGHT, WIDTH = 9, 48, 80
LENS = UCM(xfov=90, xi=0.0)


class Poses:
    name = "known"

    def __init__(self, c2w, agreement=1.0, floor=None, **details):
        self.c2w, self.agreement, self.own, self.details = c2w, agreement, floor, details

    def estimate(self, clip, lens):
        if self.c2w is None:
            raise EstimationFailure("nothing to see")
        return PoseEstimate(
            self.c2w, np.arange(len(self.c2w)), 1.0, details={"agreement": self.agreement, **self.details}
        )

    def floor(self, protocol):
        return self.own


class Angles:
    name, model = "level", "ucm"

    def __init__(self, camera, pitch=0.0, yfov=None):
        self.camera, self.pitch, self.yfov = camera, pitch, yfov

    def estimate(self, clip):
        angles = self.camera.angles
        yfov = float(LENS.yfov(HEIGHT, WIDTH)) if self.yfov is None else self.yfov
        lens = {"yfov": np.full(FRAMES, yfov), "xfov": np.full(FRAMES, 90.0), "xi": np.zeros(FRAMES)}
        pitch = angles.pitch.double().numpy() + self.pitch
        return Calibration("ucm", np.arange(FRAMES), pitch, angles.roll.double().numpy(), lens)

    def floor(self):
        return {"PitchErr": 0.5, "RollErr": 0.5, "FoVErr": 1.0}


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "shot.mp4"
    write_video(path, np.random.default_rng(0).integers(0, 255, (FRAMES, HEIGHT, WIDTH, 3), np.uint8), 8.0)
    return path


def moving() -> Trajectory:
    return Trajectory.move("truck-right 0.8 with pan-left 30", LENS, frames=FRAMES, fps=8)


def verdicts(check):
    return {quantity.name: quantity.verdict for quantity in check.quantities}


def test_a_camera_that_is_followed_up_to_scale_is_obeyed(video):
    camera = moving()
    estimate = camera.c2w.clone()
    estimate[:, :3, 3] *= 3.7  # a single camera does not know how far it went
    check = check_video(video, camera, Poses(estimate), Angles(camera))
    names = {"turn", "travel", "pitch", "roll", "field of view"}
    assert check.verdict == "obeyed" and verdicts(check) == dict.fromkeys(names, "obeyed")
    assert not check.missing
    assert all(quantity.followed in (None, pytest.approx(1, abs=1e-6)) for quantity in check.quantities)


def test_a_frozen_and_a_mirrored_camera_are_told_apart(video):
    camera = moving()
    frozen = check_video(video, camera, Poses(camera.c2w[:1].repeat(FRAMES, 1, 1)))
    assert verdicts(frozen) == {"turn": "not obeyed", "travel": "not obeyed"}
    assert {quantity.followed for quantity in frozen.quantities} == {0.0}
    assert "ignored" in frozen.quantities[0].hint()
    mirrored = Trajectory.move("truck-left 0.8 with pan-right 30", LENS, frames=FRAMES, fps=8)
    other = check_video(video, camera, Poses(mirrored.c2w))
    assert verdicts(other) == {"turn": "not obeyed", "travel": "not obeyed"}
    assert all(quantity.followed < -0.8 and "other way" in quantity.hint() for quantity in other.quantities)


def test_a_turn_beyond_half_a_circle_is_counted_on(video):
    camera = Trajectory.pan(LENS, degrees=320, frames=FRAMES, fps=8)
    turn, travel = check_video(video, camera, Poses(camera.c2w)).quantities
    assert turn.measured[-1] == pytest.approx(320, abs=1e-3) and turn.verdict == travel.verdict == "obeyed"


def test_a_wrong_pitch_and_a_wrong_lens_are_named_and_nothing_else(video):
    camera = moving()
    assert verdicts(check_video(video, camera, None, Angles(camera, pitch=12.0)))["pitch"] == "not obeyed"
    check = check_video(video, camera, Poses(camera.c2w), Angles(camera, yfov=75.0))
    assert [name for name, verdict in verdicts(check).items() if verdict != "obeyed"] == ["field of view"]


def wall_seen_by(camera: Trajectory) -> np.ndarray:
    """Frames of a textured wall two units ahead."""
    texture = cv2.resize(np.random.default_rng(1).integers(0, 255, (60, 120, 3), np.uint8), (1440, 720))
    matrix = LENS.intrinsics(96, 160).double().numpy()
    wall = np.array([[9 / 1440, 0, -4.5], [0, 9 / 1440, -2.25], [0, 0, 2], [0, 0, 1]])
    views = [matrix @ np.linalg.inv(pose)[:3] @ wall for pose in camera.c2w.double().numpy()]
    return np.stack([cv2.warpPerspective(texture, view, (160, 96)) for view in views])


def test_another_path_is_not_claimed_where_the_commanded_one_fits_the_matches_too(tmp_path):
    camera = moving()
    poses = Poses(camera.c2w.flip(0), measured_xfov=71.0, xfov=90.0)
    for name, frames, verdict in (
        ("true", wall_seen_by(camera), "unsure"),
        ("frozen", wall_seen_by(camera)[:1].repeat(FRAMES, 0), "not obeyed"),
    ):
        write_video(tmp_path / f"{name}.mp4", frames, 8.0)
        check = check_video(tmp_path / f"{name}.mp4", camera, poses)
        assert set(verdicts(check).values()) == {verdict} and len(check.quantities) == 3
        assert any("fits the matches too" in note for note in check.notes) == (name == "true")


def test_what_the_estimator_cannot_know_is_not_claimed(video):
    camera = moving()
    frozen = camera.c2w[:1].repeat(FRAMES, 1, 1)
    assert check_video(video, camera, Poses(frozen, agreement=0.3)).verdict == "unsure"
    assert check_video(video, camera, Poses(frozen, floor={"RotErr": 40.0, "TransErr": 2.0})).verdict == "unsure"
    nothing = check_video(video, camera, Poses(None))
    assert nothing.verdict == "unsure" and nothing.missing["turn"] == "nothing to see"
    up_unknown = check_video(video, camera, None, Angles(camera), gravity=False)
    assert "which way is up" in up_unknown.missing["pitch"]


def test_the_field_of_view_follows_from_motion_where_matches_agree(video):
    camera = moving()
    for details, verdict in (
        ({"measured_xfov": 91.0}, "obeyed"),
        ({"measured_xfov": 71.0}, "not obeyed"),
        ({"measured_xfov": 71.0, "agreement": 0.93}, "unsure"),
    ):
        check = check_video(video, camera, Poses(camera.c2w, xfov=90.0, **details))
        assert verdicts(check)["field of view"] == verdict
        assert f"{verdict}, {details['measured_xfov']:.1f} of 90.0° told" in "\n".join(lines_of(check))
    for unknown in ({"agreement": 0.85, "measured_xfov": 90.0}, {"measured_xfov": None}):
        check = check_video(video, camera, Poses(camera.c2w, xfov=90.0, **unknown))
        assert "to tell the lens" in check.missing["field of view"]


def test_a_camera_without_effect_is_found_whatever_the_poses_say(video):
    camera = moving()
    same = check_video(video, camera, Poses(camera.c2w), without=video)
    assert same.no_effect and same.verdict == "not obeyed"
    assert any("changes nothing" in line for line in lines_of(same))
    frames = np.zeros((3, 4, 6, 3), np.uint8)
    assert effect_of(frames, frames + 9) == pytest.approx(9)
    with pytest.raises(ValueError, match="same model and seed"):
        effect_of(frames, frames[:, :2])


@pytest.mark.slow
def test_screen_and_picture_show_both_curves(video, tmp_path, monkeypatch):
    camera = moving()
    check = check_video(video, camera, Poses(camera.c2w[:1].repeat(FRAMES, 1, 1)), Angles(camera))
    text = "\n".join(lines_of(check))
    assert "✗ turn: not obeyed, 0.00 of 30.0° told" in text
    plot = terminal_plot(np.arange(3.0), np.array([0.0, 1, 2]), np.array([0.0, 0, 0]), width=9, height=3)
    assert [line[10:] for line in plot] == ["      ···", "   ···   ", "◉◉◉●●●●●●"]
    drawn = []
    monkeypatch.setattr(checks, "save_figure", lambda figure, path, dpi: drawn.append(figure))
    draw_check(check, tmp_path / "check.png")
    frames, plots = drawn[0].subfigs
    assert [axes.get_title() for axes in frames.axes] == [f"frame {number}" for number in check.shown]
    assert [axes.get_title() for axes in plots.axes] == [f"{part.name}: {part.verdict}" for part in check.quantities]
    for axes, quantity in zip(plots.axes, check.quantities):
        told, measured = axes.lines
        np.testing.assert_array_equal(told.get_ydata(), quantity.commanded)
        np.testing.assert_array_equal(measured.get_ydata(), quantity.measured)


@pytest.mark.parametrize("bend", [0.0, -0.1, 0.2])
def test_the_lens_follows_from_turns(bend):
    generator = np.random.default_rng(0)
    true = generator.uniform([-0.6, -0.4, 1], [0.6, 0.4, 1], (300, 3))

    def told(rays):
        """Rays of the told lens where the true one has these, of tangent t (1 + bend t²) / 1.25."""
        tangents = rays[:, :2] / rays[:, 2:]
        guess = 1.25 * tangents
        for _ in range(50):
            guess = 1.25 * tangents / (1 + bend * (guess**2).sum(1, keepdims=True))
        rays = np.pad(guess, ((0, 0), (0, 1)), constant_values=1.0)
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    pairs, c2w = [], torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)
    for index, degrees in enumerate((8, 15), start=1):
        c2w[index, :3, :3] = rotation_exp(torch.tensor([0.0, np.radians(degrees), 0.0], dtype=torch.float64))
        before, after = told(true), told(true @ c2w[index, :3, :3].numpy())
        after[:60] = generator.permutation(after[:60])  # wrong matches
        pairs.append(PairMatches(0, index, before, after, np.eye(3), np.zeros((300, 2), int)))
    edge = 0.9
    expected = 2 * np.degrees(np.arctan(edge * (1 + bend * edge**2) / 1.25))
    found = xfov_of_turns(pairs, PoseEstimate(c2w, np.arange(3)), 1 / 400, edge)
    assert found == pytest.approx(expected, abs=0.6)
    still = PoseEstimate(torch.eye(4, dtype=torch.float64).repeat(3, 1, 1), np.arange(3))
    assert xfov_of_turns(pairs, still, 1 / 400, edge) is None


def test_keyframes_are_spread_evenly_with_both_ends():
    assert keyframes(np.arange(81) / 16, 0.25, 21).tolist() == list(range(0, 81, 4))
    slow = keyframes(np.arange(81) / 8, 0.25, 21)  # ten seconds
    assert len(slow) == 41 and slow[[0, -1]].tolist() == [0, 80]
    assert keyframes(np.arange(5) / 30, 0.25, 21).tolist() == [0, 1, 2, 3, 4]
    assert len(keyframes(np.arange(81) / 16, None, 21)) == 81
