"""`ucpe evaluate`: options that do not go together, and what its report must say."""

import pytest
from tests.studies import make_study

from ucpe.cli.evaluate import main
from ucpe.evaluation.run import load_results


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


def test_cameras_without_a_video_are_reported(study):
    (study / "videos" / "d.mp4").unlink()
    main(["videos", "--cameras", "cameras", "--pose", "none"])
    assert load_results("report").notes == ["1 cameras have no video and are not counted: d."]
    assert "1 cameras have no video" in (study / "report" / "table.md").read_text()


def test_unreadable_videos_are_listed_also_without_an_estimator(study):
    (study / "videos" / "d.mp4").write_bytes(b"")
    main(["videos", "--cameras", "cameras", "--pose", "none"])
    (failure,) = load_results("report").failures
    assert (failure.name, failure.part, failure.status) == ("d", "video", "unreadable")
