"""`ucpe evaluate`: options that do not go together, and what its report must say."""

import warnings

import pytest
import torch
from tests.studies import make_study

from ucpe.cli.evaluate import Evaluate, find_jobs, main
from ucpe.cli.parsing import parse
from ucpe.cli.report import main as report
from ucpe.evaluation.run import load_results
from ucpe.trajectories import Trajectory


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_study(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cameras", "cameras", "--against", "reference"], "needs reference videos"),
        (["--cameras", "cameras", "--normalization", "x.txt"], "--normalization goes with --realestate10k, not with"),
        (["--realestate10k", "cameras", "--lens", "x.json"], "--lens goes with --cameras, not with --realestate10k"),
        (["--cameras", "cameras", "--pose", "none", "--pose-results", "poses"], "not chosen"),
        (["--cameras", "cameras", "--pose", "desk", "--pose-results", "poses"], "reads no stored results"),
    ],
)
def test_options_that_would_be_ignored_are_refused(study, options, message):
    with pytest.raises(ValueError, match=message):
        main(["videos", *options])


def test_a_body_is_evaluated_as_the_camera_that_a_calibration_mounts_on_it(study, published):
    body = published / "trajectories/euroc_state_groundtruth.csv"
    for path in (study / "cameras").iterdir():
        path.unlink()
    sensor = published / "calibrations/kimera_euroc_sensor.yaml"
    for video in (study / "videos").iterdir():
        (study / "cameras" / f"{video.stem}.csv").write_bytes(body.read_bytes())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "holds poses of a body")
        jobs, _ = find_jobs(parse(Evaluate, ["videos", "--cameras", "cameras", "--lens", str(sensor)], "ucpe evaluate"))
    expected = Trajectory.load(body, extrinsics=sensor)
    assert torch.equal(jobs[0].camera.c2w, expected.c2w)


def test_cameras_without_a_video_are_reported(study):
    (study / "videos" / "d.mp4").unlink()
    main(["videos", "--cameras", "cameras", "--pose", "none"])
    assert load_results("report").notes == ["1 cameras have no video and are not counted: d."]
    assert "1 cameras have no video" in (study / "report" / "table.md").read_text()


def test_options_of_the_authors_script_are_named_in_the_report(study, capsys):
    stored = ["--pose", "stored", "--pose-results", "poses"]
    options = ["--protocol", "released-re10k", "--leave-out-jittery", "0.25", "--reference", "videos"]
    main(["videos", "--cameras", "cameras", *stored, *options, "--against", "reference-poses"])
    results, printed = load_results("report"), capsys.readouterr().out
    assert results.protocol == "released-re10k" and len(results.videos) == 3
    assert "The 1 cameras that turn most suddenly are left out: " in results.notes[0]
    assert results.notes[0] in printed and "floor of" not in printed
    assert results.summary["reference_pose"]["RotErr"].mean == pytest.approx(0, abs=1e-4)
    report(["compare", "report", "--against", "reference-poses"])
    assert "Pose, orientation and lens errors are against the estimate on the reference" in capsys.readouterr().out


def test_unreadable_videos_are_listed_also_without_an_estimator(study):
    (study / "videos" / "d.mp4").write_bytes(b"")
    main(["videos", "--cameras", "cameras", "--pose", "none"])
    (failure,) = load_results("report").failures
    assert (failure.name, failure.part, failure.status) == ("d", "video", "unreadable")
