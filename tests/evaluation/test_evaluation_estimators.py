import hashlib
import json
import stat
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from ucpe.evaluation.estimators import CALIBRATORS, POSE_ESTIMATORS, EstimatorChoice
from ucpe.evaluation.estimators.base import Clip, EstimationFailure, measured_floor
from ucpe.evaluation.estimators.colmap import FLOOR as COLMAP_FLOOR
from ucpe.evaluation.estimators.stored import StoredCalibrations, StoredPoses
from ucpe.evaluation.estimators.vipe import VipeEstimator
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_from_angles

LENS = Pinhole(xfov=90)


def clip(frames: int = 5, height: int = 48, width: int = 84, name: str = "a") -> Clip:
    pictures = np.random.default_rng(0).integers(0, 255, (frames, height, width, 3), np.uint8)
    return Clip(name, pictures, np.arange(frames) / 8)


def test_stored_poses_as_vipe_writes_them(tmp_path):
    path = Trajectory.dolly(LENS, frames=5).c2w.numpy()
    np.savez(tmp_path / "a.npz", data=path[[3, 0, 2]], inds=np.array([3, 0, 2]))
    estimate = StoredPoses(tmp_path).estimate(clip(), LENS)
    assert estimate.frames.tolist() == [0, 2, 3]
    assert np.allclose(estimate.c2w.numpy(), path[[0, 2, 3]])


@pytest.mark.parametrize("suffix", [".json", ".npy"])
def test_stored_poses_in_any_trajectory_format(tmp_path, suffix):
    camera = Trajectory.orbit(LENS, frames=5)
    camera.save(tmp_path / f"a{suffix}")
    estimate = StoredPoses(tmp_path).estimate(clip(), LENS)
    assert torch.allclose(estimate.c2w, camera.c2w, atol=1e-6)


def test_stored_poses_that_are_missing_or_broken(tmp_path):
    with pytest.raises(EstimationFailure, match=r"no stored result a\("):
        StoredPoses(tmp_path).estimate(clip(), LENS)
    np.savez(tmp_path / "a.npz", data=np.zeros((2, 5)))
    with pytest.raises(ValueError, match="expected a floating array of shape"):
        StoredPoses(tmp_path).estimate(clip(), LENS)
    np.savez(tmp_path / "a.npz", data=np.full((2, 4, 4), np.nan))
    with pytest.raises(ValueError, match="expected 0 0 0 1 in the last row"):
        StoredPoses(tmp_path).estimate(clip(), LENS)
    np.savez(tmp_path / "a.npz", data=np.tile(np.eye(4), (2, 1, 1)), inds=np.array([0.5, 1]))
    with pytest.raises(ValueError, match="whole frame numbers"):
        StoredPoses(tmp_path).estimate(clip(), LENS)
    (tmp_path / "a.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a whole zip archive"):
        StoredPoses(tmp_path).estimate(clip(), LENS)
    with pytest.raises(ValueError, match="no folder"):
        StoredPoses(tmp_path / "nowhere")


def test_pickles_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", data=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="plain NumPy array"):
        StoredPoses(tmp_path).estimate(clip(), LENS)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_stored_calibrations_for_the_video_or_for_every_frame(tmp_path, suffix):
    values = {"pitch": [1, 2, 3, 4, 5], "roll": 2.0, "yfov": 60.0, "k1": -0.1, "k2": 0.0}
    if suffix == ".json":
        (tmp_path / "a.json").write_text(json.dumps(values))
    else:
        np.savez(tmp_path / "a.npz", **{name: np.array(value) for name, value in values.items()})
    calibration = StoredCalibrations(tmp_path).estimate(clip())
    assert calibration.pitch.tolist() == [1, 2, 3, 4, 5]
    assert calibration.lens["k1"].tolist() == [-0.1] * 5
    (tmp_path / f"a{suffix}").unlink()
    (tmp_path / "a.json").write_text(json.dumps({"pitch": 1, "roll": [1, 2], "yfov": 3}))
    with pytest.raises(ValueError, match="k1, k2 missing"):
        StoredCalibrations(tmp_path).estimate(clip())


def test_the_lens_model_of_stored_calibrations_is_that_of_the_files(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"pitch": 1, "roll": 0, "yfov": 60, "xfov": 90, "xi": 0.5}))
    calibrator = EstimatorChoice("stored", tmp_path).calibrator()
    assert calibrator.model == "ucm"
    assert calibrator.estimate(clip()).lens["xi"].tolist() == [0.5] * 5
    (tmp_path / "a.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="expected a JSON object, found a list"):
        calibrator.estimate(clip())
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json, line 1, column 2: not JSON"):
        calibrator.estimate(clip())
    (tmp_path / "a.json").unlink()
    with pytest.raises(ValueError, match="no stored calibrations"):
        EstimatorChoice("stored", tmp_path).calibrator()


def test_results_or_weights_that_an_estimator_does_not_take_are_refused(tmp_path):
    with pytest.raises(ValueError, match="pose estimator desk reads no stored results; vipe, stored do"):
        EstimatorChoice("desk", results=tmp_path).pose_estimator()
    with pytest.raises(ValueError, match="calibrator stored takes no weights; geocalib, desk do"):
        EstimatorChoice("stored", results=tmp_path, weights="a.tar").calibrator()


def test_vipe_results_are_read_from_its_own_layout(tmp_path):
    path = Trajectory.dolly(LENS, frames=5).c2w.numpy()
    (tmp_path / "pose").mkdir()
    np.savez(tmp_path / "pose" / "a.npz", data=path, inds=np.arange(5))
    estimator = EstimatorChoice("vipe", results=tmp_path).pose_estimator()
    assert np.allclose(estimator.estimate(clip(), LENS).c2w.numpy(), path)
    with pytest.raises(EstimationFailure, match=r"pose/b\.npz is missing"):
        estimator.estimate(clip(name="b"), LENS)


def fake_vipe(folder: Path, body: str) -> Path:
    """A `vipe` command that behaves as the real one's documented interface: vipe infer VIDEO --output DIR."""
    script = folder / "vipe"
    script.write_text(f"#!{sys.executable}\nimport sys, pathlib, numpy as np\n{body}")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return script


def test_vipe_command_is_run_on_the_rectified_video(tmp_path):
    body = (
        "command, video, flag, output, flag2, pipeline = sys.argv[1:]\n"
        "assert (command, flag, flag2, pipeline) == ('infer', '--output', '--pipeline', 'default')\n"
        "import av\n"
        "count = sum(1 for _ in av.open(video).decode(video=0))\n"
        "folder = pathlib.Path(output) / 'pose'; folder.mkdir(parents=True)\n"
        "np.savez(folder / (pathlib.Path(video).stem + '.npz'), data=np.tile(np.eye(4), (count, 1, 1)), "
        "inds=np.arange(count))\n"
    )
    estimator = VipeEstimator(command=str(fake_vipe(tmp_path, body)))
    estimate = estimator.estimate(clip(), LENS)
    assert estimate.frames.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(EstimationFailure, match="at least two frames"):
        estimator.estimate(clip(1), LENS)


def test_vipe_failures_carry_its_last_message(tmp_path):
    script = fake_vipe(tmp_path, "print('loading'); print('CUDA out of memory', file=sys.stderr); sys.exit(3)\n")
    with pytest.raises(EstimationFailure, match="code 3: CUDA out of memory"):
        VipeEstimator(command=str(script)).estimate(clip(), LENS)


def test_missing_tools_say_how_to_get_them():
    with pytest.raises(ValueError, match="no `vipe-that-is-not-there` command on the path: install ViPE"):
        VipeEstimator(command="vipe-that-is-not-there")
    if "geocalib" not in sys.modules:
        with pytest.raises(ValueError, match="GeoCalib needs its package"):
            EstimatorChoice("geocalib").calibrator()
    with pytest.raises(ValueError, match="no pose estimator 'slam'; there are\n  colmap"):
        EstimatorChoice("slam").pose_estimator()
    with pytest.raises(ValueError, match="needs the folder"):
        EstimatorChoice("stored").calibrator()


class FakeGeoCalib:
    """GeoCalib's public interface: calibrate(image (3, H, W) or images of one lens) -> camera, gravity."""

    def __init__(self, weights: str = "pinhole"):
        self.weights = weights

    def to(self, device):
        return self

    def calibrate(self, image, camera_model="pinhole", shared_intrinsics=False):
        assert camera_model == "radial"
        assert image.dtype == torch.float32
        assert image.min() >= 0 and image.max() <= 1
        count = len(image) if shared_intrinsics else 1
        assert image.shape == ((count, 3, 48, 84) if shared_intrinsics else (3, 48, 84))
        rotation = rotation_from_angles(torch.tensor(20.0), torch.tensor(50.0), torch.tensor(-7.0))
        up = -rotation[1].expand(count, 3)  # GeoCalib's vec3d of (roll, pitch): (-sin r cos p, -cos r cos p, sin p)
        camera = types.SimpleNamespace(vfov=torch.tensor([np.pi / 3]), dist=torch.tensor([[-0.1, 0.02]]))
        return {"camera": camera, "gravity": types.SimpleNamespace(vec3d=up)}


def test_geocalib_through_its_interface(monkeypatch):
    monkeypatch.setitem(sys.modules, "geocalib", types.SimpleNamespace(GeoCalib=FakeGeoCalib))
    calibrator = EstimatorChoice("geocalib").calibrator()
    calibration = calibrator.estimate(clip(3))
    assert calibrator.describe()["weights"] == "distorted"
    assert calibration.pitch == pytest.approx([20] * 3, abs=1e-4)
    assert calibration.roll == pytest.approx([-7] * 3, abs=1e-4)
    assert calibration.lens["yfov"] == pytest.approx([60] * 3, abs=1e-4)
    assert calibration.lens["k2"] == pytest.approx([0.02] * 3)
    shared = EstimatorChoice("geocalib", every=2, shared=True).calibrator()
    some = shared.estimate(clip(5))
    assert some.frames.tolist() == [0, 2, 4] and shared.describe() != calibrator.describe()
    assert np.concatenate([some.pitch, some.lens["yfov"]]) == pytest.approx([20] * 3 + [60] * 3, abs=1e-4)
    with pytest.raises(ValueError, match="only geocalib"):
        EstimatorChoice("desk", every=4).calibrator()
    with pytest.raises(ValueError, match=r"no GeoCalib weights at nowhere\.tar"):
        EstimatorChoice("geocalib", weights="nowhere.tar").calibrator()


def test_floors_belong_to_a_protocol_and_to_the_weights_they_were_measured_with(tmp_path):
    weights, path = tmp_path / "weights", tmp_path / "floor.json"
    weights.write_bytes(b"one")
    assert measured_floor(path, "paper") is None
    digest = hashlib.sha256(b"one").hexdigest()
    path.write_text(json.dumps({"metrics": {"paper": {"RotErr": 0.1}}, "files": [digest]}))
    assert measured_floor(path, "paper", [weights]) == {"RotErr": 0.1}
    assert measured_floor(path, "released", [weights]) is None
    weights.write_bytes(b"other")
    assert measured_floor(path, "paper", [weights]) is None


def test_colmap_ships_its_floor_under_every_protocol():
    assert all(set(measured_floor(COLMAP_FLOOR, name)) >= {"RotErr", "TransErr", "CamMC"} for name in PROTOCOLS)


def test_every_registered_estimator_can_be_found():
    from importlib import import_module

    for registry in (POSE_ESTIMATORS, CALIBRATORS):
        for place, text in registry.values():
            module, _, symbol = place.partition(":")
            estimator = getattr(import_module(f"ucpe.evaluation.estimators.{module}"), symbol)
            assert callable(estimator.estimate)
            assert text
