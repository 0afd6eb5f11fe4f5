import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ucpe.evaluation.camera_metrics import (
    calibration_errors,
    commanded_calibration,
    fit_radial,
    orientation_errors,
    views_of_calibration,
    views_of_camera,
    wrapped,
)
from ucpe.evaluation.estimators.base import Calibration, angles_of_up, calibration_from_plain, calibration_to_plain
from ucpe.lenses import UCM, BrownConrady, Equidistant, Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_from_angles


def calibration(frames=4, pitch=0.0, roll=0.0, yfov=60.0, k1=-0.1, k2=0.01, first=0) -> Calibration:
    full = lambda value: np.broadcast_to(np.asarray(value, float), frames).copy()  # noqa: E731
    lens = {"yfov": full(yfov), "k1": full(k1), "k2": full(k2)}
    return Calibration("radial", np.arange(first, first + frames), full(pitch), full(roll), lens)


def test_errors_by_hand():
    errors = calibration_errors(
        calibration(pitch=[1, 2, 3, 4], roll=-179, yfov=[60, 61, 62, 90], k1=0.1), calibration(pitch=1, roll=179)
    )
    assert errors["PitchErr"] == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert errors["RollErr"] == pytest.approx(2)
    assert errors["FoVErr"] == pytest.approx(1.5)  # the median of a lens that should not change
    assert errors["K1Err"] == pytest.approx(0.2)
    assert errors["K2Err"] == pytest.approx(0)


def test_a_zoom_is_compared_frame_by_frame():
    errors = calibration_errors(calibration(yfov=[60, 60, 60, 60]), calibration(yfov=[60, 50, 40, 30]))
    assert errors["FoVErr"] == pytest.approx(15)


def test_only_common_frames_and_known_numbers_count():
    errors = calibration_errors(calibration(pitch=[9, 9, 1, 1]), calibration(first=2, k1=np.nan))
    assert errors["PitchErr"] == pytest.approx(1)
    assert "K1Err" not in errors
    with pytest.raises(ValueError, match="no frame in common"):
        calibration_errors(calibration(), calibration(first=10))
    with pytest.raises(ValueError, match="cannot compare a radial"):
        calibration_errors(calibration(), Calibration("ucm", np.arange(4), np.zeros(4), np.zeros(4), {}))


def test_commanded_orientation_is_the_trajectorys():
    camera = Trajectory.pan(UCM(xfov=120, xi=0.7), degrees=40, frames=5, pitch=-12, roll=7)
    wanted = commanded_calibration(camera, "ucm", 480, 832)
    assert wanted.pitch == pytest.approx([-12] * 5)
    assert wanted.roll == pytest.approx([7] * 5)
    assert wanted.lens["xfov"] == pytest.approx([120] * 5, abs=1e-3)
    assert wanted.lens["xi"] == pytest.approx([0.7] * 5)
    assert wanted.lens["yfov"][0] == pytest.approx(camera.lens.yfov(480, 832).item(), abs=1e-4)


def test_without_gravity_pitch_and_roll_are_not_compared():
    camera = Trajectory.pan(Pinhole(xfov=90), frames=4)
    wanted = commanded_calibration(camera, "radial", 480, 832, gravity=False)
    errors = calibration_errors(calibration(), wanted)
    assert "PitchErr" not in errors
    assert "FoVErr" in errors


def test_radial_fit_recovers_a_radial_lens_exactly():
    fit = fit_radial(BrownConrady(fx=500.0, k1=-0.2, k2=0.03, width=832, height=480), 480, 832)
    assert (fit.focal, fit.k1, fit.k2) == pytest.approx((500, -0.2, 0.03), abs=1e-6)
    assert fit.rms < 1e-9


def test_radial_fit_of_a_mild_ucm_is_the_least_squares_one_by_scipy():
    from scipy.optimize import least_squares

    lens = UCM(xfov=115, xi=0.6)
    fit = fit_radial(lens, 480, 832)
    rows, columns = 48, 83
    v, u = np.mgrid[:rows, :columns]
    pixels = torch.tensor(np.stack([(u + 0.5) * 832 / columns, (v + 0.5) * 480 / rows], -1))
    rays = lens.unproject(pixels, 480, 832).directions
    radius = (rays[..., :2].norm(dim=-1) / rays[..., 2]).numpy().ravel()
    distance = torch.hypot(pixels[..., 0] - 416, pixels[..., 1] - 240).numpy().ravel()
    solution = least_squares(
        lambda x: x[0] * radius * (1 + x[1] * radius**2 + x[2] * radius**4) - distance,
        [400, 0, 0],
        xtol=1e-14,
        ftol=1e-14,
    ).x
    assert (fit.focal, fit.k1, fit.k2) == pytest.approx(tuple(solution), rel=1e-4)
    assert fit.rms < 0.5


def test_a_fisheye_is_not_forced_into_the_radial_model():
    camera = Trajectory.static(UCM(xfov=190, xi=2.0), frames=2)
    wanted = commanded_calibration(camera, "radial", 480, 832)
    assert np.isnan(wanted.lens["k1"]).all()
    assert set(calibration_errors(calibration(2), wanted)) == {"PitchErr", "RollErr"}


def test_other_lenses_are_fitted_to_ucm():
    wanted = commanded_calibration(Trajectory.static(Equidistant(xfov=120), frames=2), "ucm", 60, 104)
    assert wanted.lens["xfov"] == pytest.approx([120, 120], abs=0.01)
    assert 0.3 < wanted.lens["xi"][0] < 2


@pytest.mark.parametrize(("pitch", "roll"), [(0, 0), (30, -20), (-60, 45), (10, 170)])
def test_angles_of_the_up_direction_agree_with_the_rotation(pitch, roll):
    rotation = rotation_from_angles(torch.tensor(float(pitch)), torch.tensor(77.0), torch.tensor(float(roll)))
    assert angles_of_up(-rotation[1].double().numpy()) == pytest.approx((pitch, roll), abs=1e-4)


def test_wrapping():
    assert wrapped(np.array([181.0, -181, 360, 179])) == pytest.approx([-179, 179, 0, 179])


def test_calibrations_survive_json():
    first = calibration(k1=[0.1, np.nan, 0.2, 0.3])
    first.pitch[2] = np.nan  # a frame that a tool could not say anything about
    second = calibration_from_plain(json.loads(json.dumps(calibration_to_plain(first), allow_nan=False)))
    assert second.lens["k1"] == pytest.approx(first.lens["k1"], nan_ok=True)
    assert second.pitch == pytest.approx(first.pitch, nan_ok=True)
    assert calibration_errors(second, calibration(pitch=1))["PitchErr"] == pytest.approx(1)


def test_gravity_latitude_and_up_errors_are_those_of_the_fault():
    camera = Trajectory.static(UCM(xfov=90, xi=0.0), frames=3, pitch=10.0, roll=5.0)

    def errors(found, wanted=None):
        told = views_of_camera(camera) if wanted is None else views_of_calibration(wanted, 48, 80)
        return orientation_errors(views_of_calibration(found, 48, 80), told, 48, 80)

    true = commanded_calibration(camera, "ucm", 48, 80)
    assert max(errors(true).values()) < 0.05
    pitched = errors(replace(true, pitch=true.pitch + 6))
    assert pitched["GravityErr"] == pytest.approx(6, abs=1e-3) and 3 < pitched["LatitudeErr"] < 6.1
    assert errors(true, replace(true, pitch=true.pitch + 6)) == pytest.approx(pitched, abs=0.01)
    rolled = errors(replace(true, roll=true.roll + 8))
    assert rolled["UpErr"] == pytest.approx(8, abs=1.0)
    radial = commanded_calibration(camera, "radial", 48, 80)
    assert max(errors(radial).values()) < 0.1
    assert errors(radial.rows(np.array([0, 2])), true.rows(np.array([2]))) == pytest.approx(errors(radial), abs=0.1)
    assert errors(replace(true, pitch=np.full(3, np.nan))) == {}
