import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from tests.studies import FPS, FRAMES, LENS, make_study, picture_frames

from ucpe.cli import evaluate as evaluate_command
from ucpe.evaluation import run
from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.estimators.base import Clip
from ucpe.evaluation.inputs import (
    Job,
    find_videos,
    jobs_of_dataset,
    jobs_of_folder,
    jobs_of_realestate,
    names_of_dataset,
    read_clip,
    without_jittery,
)
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.evaluation.records import Measuring, camera_of_clip
from ucpe.evaluation.report.leaderboard import load_runs, publish
from ucpe.evaluation.report.tables import measured_how, row_of_results
from ucpe.evaluation.report.write import compare_runs, write_report
from ucpe.evaluation.run import EvaluationSettings, evaluate, load_record, load_results
from ucpe.synthesis.dataset import DatasetClip, clip_row, write_metadata
from ucpe.trajectories import Trajectory
from ucpe.video import VideoError, write_video


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


def settings(study: Path, **changes) -> EvaluationSettings:
    return EvaluationSettings(
        pose=EstimatorChoice("stored", study / "poses"),
        calibrator=EstimatorChoice("stored", study / "calibrations"),
        **changes,
    )


def test_a_study_by_hand(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    results = evaluate(jobs, study / "out", settings(study))
    pose = results.counts["pose"]
    assert (pose.attempted, pose.measured, pose.filtered, pose.failed) == (4, 2, 1, 1)
    assert (pose.frames_attempted, pose.frames_registered) == (4 * FRAMES, 2 * FRAMES + 3)
    reasons = {entry.name: entry.reason for entry in results.failures}
    assert reasons["c"] == "only 3 of 9 frames could be placed"
    assert "no stored result d" in reasons["d"]
    rotation = results.summary["pose"]["RotErr"]
    assert rotation.mean == pytest.approx((0 + 5) / 2, abs=0.01)  # b turns away evenly, from 0 to 10 degrees
    assert rotation.failures == 2
    assert rotation.worst_case > rotation.mean
    assert results.summary["commanded"]["PitchErr"].mean == pytest.approx(2, abs=0.01)
    assert results.families["wide"]["pose"]["RotErr"].count == 2
    by_name = {video.name: video for video in results.videos}
    assert set(by_name["b"].pose.metrics) == set(PROTOCOLS)
    assert by_name["b"].pose.estimate is None


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """Names of the videos that were measured, in order."""
    names: list[str] = []
    original = run.measure
    monkeypatch.setattr(run, "measure", lambda job, *options: names.append(job.name) or original(job, *options))
    return names


def test_same_input_same_numbers_and_nothing_is_measured_twice(study, measured):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    first = evaluate(jobs, study / "out", settings(study))
    measured.clear()
    assert evaluate(jobs, study / "out", settings(study)) == first
    assert measured == []
    assert evaluate(jobs, study / "elsewhere", settings(study)) == first
    assert measured == ["a", "b", "c", "d"]


def test_a_stopped_run_continues(study, measured):
    jobs = jobs_of_folder(study / "videos", study / "cameras")

    class Stop(Exception):
        pass

    def stop(what: str, done: int, total: int, note: str) -> None:
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        evaluate(jobs, study / "out", settings(study), progress=stop)
    assert not (study / "out" / "results.json").exists()
    evaluate(jobs, study / "out", settings(study))
    assert measured == ["a", "b", "c", "d"]


def test_a_changed_video_camera_or_setting_is_measured_again(study, measured):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    evaluate(jobs, study / "out", settings(study))
    write_video(study / "videos" / "a.mp4", picture_frames()[::-1], FPS)
    Trajectory.pan(LENS, frames=FRAMES, fps=FPS).save(study / "cameras" / "b.json")
    (study / "out" / "records" / "d.json").write_text("{ cut off")
    measured.clear()
    again = jobs_of_folder(study / "videos", study / "cameras")
    evaluate(again, study / "out", settings(study))
    assert measured == ["a", "b", "d"]
    measured.clear()
    evaluate(again, study / "out", settings(study, measuring=Measuring(duration=0.5)))
    assert measured == ["a", "b", "c", "d"]


def test_changed_results_of_another_tool_are_measured_again(study, measured):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    before = evaluate(jobs, study / "out", settings(study))
    np.savez(study / "poses" / "b.npz", data=jobs[1].camera.c2w.numpy())
    np.savez(study / "poses" / "d.npz", data=jobs[3].camera.c2w.numpy())
    measured.clear()
    after = evaluate(jobs, study / "out", settings(study))
    assert measured == ["b", "d"]
    assert after.summary["pose"]["RotErr"].mean < before.summary["pose"]["RotErr"].mean


def test_what_goes_wrong_in_one_video_is_its_own_failure(study):
    (study / "poses" / "a.npz").write_bytes(b"no zip")
    np.savez(study / "poses" / "b.npz", data=np.ones((FRAMES, 3, 4)))
    (study / "calibrations" / "c.json").write_text("{")
    angles = {"pitch": [None] * FRAMES, "roll": 0.0, "yfov": 70.0, "k1": 0.0, "k2": 0.0}
    (study / "calibrations" / "d.json").write_text(json.dumps(angles))
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    results = evaluate(jobs, study / "out", settings(study))
    reasons = {(entry.name, entry.part): entry.reason for entry in results.failures}
    assert "not a whole zip archive" in reasons["a", "pose"]
    assert "is not a rotation" in reasons["b", "pose"]
    assert "not JSON" in reasons["c", "calibration"]
    assert results.counts["calibration"].measured == 3
    assert "PitchErr" not in results.videos[3].calibration.metrics  # all frames unknown
    assert any("videos behind each: " in note and "PitchErr 2" in note for note in results.notes)
    write_report(study / "out", jobs)


def test_where_every_video_fails_the_worst_case_is_still_given(study):
    for path in (study / "poses").iterdir():
        path.unlink()
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    results = evaluate(jobs, study / "out", settings(study, protocol="paper"))
    rotation = results.summary["pose"]["RotErr"]
    assert (rotation.mean, rotation.count, rotation.failures) == (None, 0, 4)
    turned = np.radians(20 * np.linspace(0, 1, 16)).sum()  # what a camera that never moves misses of the 20 degrees
    assert rotation.worst_case == pytest.approx(turned, rel=0.05)
    assert "SpeedErr" not in results.summary["pose"]
    table = write_report(study / "out", jobs)[0].read_text()
    worst = next(line for line in table.splitlines() if "failures as worst case)" in line)
    assert f"{rotation.worst_case:.3f}" in worst


def test_a_command_of_one_frame_says_nothing_about_motion(study):
    Trajectory.static(LENS, frames=1).save(study / "still.json")
    jobs = jobs_of_folder(study / "videos", study / "still.json")
    results = evaluate(jobs, study / "out", settings(study))
    assert results.counts["pose"].measured == 0
    assert "one frame" in results.failures[0].reason


def test_videos_that_end_early_are_named(study):
    write_video(study / "videos" / "a.mp4", picture_frames(4), FPS)
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    results = evaluate(jobs, study / "out", settings(study))
    assert any(
        "1 of 4 videos end before their paths do" in note and "a after 0.38 of 1.00 s" in note for note in results.notes
    )
    with pytest.raises(ValueError, match="above 0 seconds"):
        Measuring(duration=0.0)


def test_calibrations_after_the_end_of_the_path_do_not_count(study):
    write_video(study / "videos" / "a.mp4", picture_frames(2 * FRAMES), FPS)
    pitch = [2.0] * FRAMES + [50.0] * FRAMES
    (study / "calibrations" / "a.json").write_text(
        json.dumps({"pitch": pitch, "roll": 0.0, "yfov": 70.0, "k1": 0.0, "k2": 0.0})
    )
    jobs = jobs_of_folder(study / "videos" / "a.mp4", study / "cameras")
    results = evaluate(jobs, study / "out", settings(study))
    assert results.videos[0].calibration.metrics["PitchErr"] == pytest.approx(2, abs=0.01)


def test_a_video_that_brings_the_program_down_counts_as_failed(study, monkeypatch):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    original = run.measure

    def fragile(job, *options):
        if job.name == "a":
            raise KeyError("nobody expected this")
        return original(job, *options)

    monkeypatch.setattr(run, "measure", fragile)
    results = evaluate(jobs, study / "out", settings(study))
    failure = next(entry for entry in results.failures if entry.name == "a" and entry.part == "pose")
    assert failure.status == "failed" and "nobody expected this" in failure.reason
    assert results.summary["pose"]["RotErr"].failures >= 1
    monkeypatch.undo()
    assert evaluate(jobs, study / "out", settings(study)).failures == results.failures
    again = evaluate(jobs, study / "out", settings(study), retry_failed=True)
    assert again == evaluate(jobs, study / "elsewhere", settings(study))


def test_parallel_over_videos_gives_the_same(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    one = evaluate(jobs, study / "one", settings(study))
    assert evaluate(jobs, study / "two", settings(study), workers=2) == one


def test_reference_videos_give_the_floor_and_the_papers_comparison(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras", reference=study / "videos")
    results = evaluate(jobs, study / "out", settings(study))
    assert results.summary["reference"]["PitchErr"].mean == pytest.approx(0, abs=1e-9)
    assert results.floors["calibration"].metrics["PitchErr"] == pytest.approx(2, abs=0.01)
    assert results.floors["calibration"].source == "4 reference videos"


def test_missing_and_unreadable_references_are_listed(study):
    (study / "real").mkdir()
    write_video(study / "real" / "a.mp4", picture_frames(), FPS)
    (study / "real" / "b.mp4").write_bytes(b"")
    jobs = jobs_of_folder(study / "videos", study / "cameras", reference=study / "real")
    results = evaluate(jobs, study / "out", settings(study))
    assert "Only 2 of 4 videos have a reference video." in results.notes
    write_video(study / "real" / "c.mp4", picture_frames(), FPS)
    (study / "videos" / "c.mp4").write_bytes(b"")  # its reference is there all the same
    again = jobs_of_folder(study / "videos", study / "cameras", reference=study / "real")
    assert "Only 3 of 4 videos have a reference video." in evaluate(again, study / "out", settings(study)).notes
    assert ("b", "reference", "unreadable") in {(f.name, f.part, f.status) for f in results.failures}
    assert results.summary["reference"]["PitchErr"].count == 1
    text = write_report(study / "out", jobs, "reference")[2].read_text()
    assert "Only 3 of 4 videos have a reference video." in text
    (study / "others").mkdir()
    write_video(study / "others" / "z.mp4", picture_frames(), FPS)
    with pytest.raises(ValueError, match=r"others has the name of one to evaluate, such as a\.mp4"):
        jobs_of_folder(study / "videos", study / "cameras", reference=study / "others")


def test_the_page_shows_the_comparison_the_table_shows(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras", reference=study / "videos")
    evaluate(jobs, study / "out", settings(study))
    command, reference = (write_report(study / "out", jobs, name)[2].read_text() for name in ("commanded", "reference"))
    assert "<title>a: 2</title>" in command  # the pitch errs by two degrees
    assert "<title>a: 2</title>" not in reference


def test_the_page_is_complete_and_needs_nothing_from_elsewhere(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    evaluate(jobs, study / "out", settings(study, label="ours & <theirs>"))
    paths = write_report(study / "out", jobs)
    assert [path.name for path in paths] == ["table.md", "table.tex", "report.html"]
    text = paths[2].read_text()
    assert "ours &amp; &lt;theirs&gt;" in text
    assert "only 3 of 9 frames could be placed" in text
    assert text.count("data:image/jpeg;base64,") == 6
    for outside in ("http://", "https://", "<script", "url("):
        assert outside not in text
    import xml.etree.ElementTree as ElementTree

    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


def encode(path: Path, times: list[Fraction], size=(32, 56)) -> None:
    """A video with its own time of every frame."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = size[1], size[0], "yuv444p"
        stream.codec_context.time_base = Fraction(1, 120)
        for frame, time in zip(picture_frames(len(times), *size), times):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = int(time * 120), Fraction(1, 120)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def test_difficult_videos_each_have_a_clear_outcome(study):
    videos = study / "videos"
    for path in videos.iterdir():
        path.unlink()
    (videos / "empty.mp4").write_bytes(b"")
    (videos / "text.mp4").write_text("not a video")
    write_video(videos / "whole.mp4", picture_frames(), FPS)
    (videos / "cut.mp4").write_bytes((videos / "whole.mp4").read_bytes()[:900])
    write_video(videos / "single.mp4", picture_frames(1), FPS)
    encode(videos / "odd.mp4", [Fraction(index, 8) for index in range(FRAMES)], size=(33, 57))
    times = [Fraction(value, 24) for value in (0, 1, 3, 6, 10, 15, 21, 24)]
    encode(videos / "uneven.mp4", times)
    camera = Trajectory.arc(LENS, degrees=20, frames=FRAMES, fps=FPS)
    camera.save(study / "camera.json")
    for path in videos.iterdir():
        count = {"single": 1, "uneven": len(times)}.get(path.stem, FRAMES)
        at = torch.tensor([float(t) for t in times]) * FPS if path.stem == "uneven" else torch.arange(count)
        np.savez(study / "poses" / f"{path.stem}.npz", data=camera.at(at).c2w.numpy())
        (study / "calibrations" / f"{path.stem}.json").write_text(
            json.dumps({"pitch": 0, "roll": 0, "yfov": 70, "k1": 0, "k2": 0})
        )
    jobs = jobs_of_folder(videos, study / "camera.json")
    results = evaluate(jobs, study / "out", settings(study))
    outcome = {video.name: video for video in results.videos}
    for name in ("empty", "text", "cut"):
        assert outcome[name].status == "unreadable", name
        assert len(outcome[name].reason) > 10
        assert outcome[name].pose.uninformed["robust"]["RotErr"] > 1
    assert outcome["single"].pose.status == "filtered"
    assert outcome["single"].calibration.status == "ok"
    for name in ("whole", "odd", "uneven"):
        assert outcome[name].pose.metrics["robust"]["RotErr"] == pytest.approx(0, abs=0.02), name
    assert (outcome["odd"].height, outcome["odd"].width) == (33, 57)
    assert results.counts["pose"].unreadable == 3
    write_report(study / "out", jobs)


def test_uneven_times_are_read_from_the_file(tmp_path):
    times = [Fraction(value, 24) for value in (0, 1, 3, 6)]
    encode(tmp_path / "a.mp4", times)
    assert read_clip(tmp_path / "a.mp4").times == pytest.approx([float(time) for time in times], abs=1e-3)


def test_frames_are_matched_by_number_or_else_by_time():
    camera = Trajectory.pan(LENS, degrees=80, frames=81, fps=16)
    same = Clip("a", np.zeros((81, 2, 2, 3), np.uint8), np.arange(81) / 30)  # a file that claims another rate
    assert torch.equal(camera_of_clip(camera, same).c2w, camera.c2w)
    other = Clip("b", np.zeros((16, 2, 2, 3), np.uint8), np.arange(16) / 4)
    sampled = camera_of_clip(camera, other)
    assert torch.allclose(sampled.c2w, camera.c2w[::4][:16], atol=1e-9)
    assert sampled.fps == pytest.approx(4)


def test_pairing_errors_are_named(study, tmp_path):
    (study / "cameras" / "d.json").unlink()
    with pytest.raises(ValueError, match="no camera for the video d in"):
        jobs_of_folder(study / "videos", study / "cameras")
    with pytest.raises(ValueError, match="no folder of videos"):
        find_videos(tmp_path / "nowhere")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no videos"):
        find_videos(tmp_path / "none")
    with pytest.raises(VideoError, match="no such file"):
        read_clip(tmp_path / "nothing.mp4")
    with pytest.raises(ValueError, match="no videos to evaluate"):
        evaluate([], tmp_path)
    job = jobs_of_folder(study / "videos" / "a.mp4", study / "cameras")[0]
    with pytest.raises(ValueError, match="several are called 'a'"):
        evaluate([job, job], tmp_path)


def test_the_papers_realestate_setting(tmp_path, published):
    stem = "38f7ba7fd9a83069"
    write_video(tmp_path / f"{stem}.mp4", picture_frames(81), 16)
    (job,) = jobs_of_realestate(tmp_path, published / "re10k", normalization=2.0)
    plain = Trajectory.load(published / "re10k" / f"{stem}.txt")
    assert len(job.camera) == 81
    assert not job.gravity
    assert float(job.camera.lens.xfov(480, 832)) == pytest.approx(100)
    relative = torch.linalg.inv(plain.c2w[0]) @ plain.c2w[:81]
    assert torch.allclose(job.camera.c2w[:, :3, 3], 2 * relative[:, :3, 3], atol=1e-6)
    for more in ([], ["--normalization", str(published / "re10k" / "traj_normalization.txt")]):
        options = ["--realestate10k", str(published / "re10k"), "--pose", "none", "-o", str(tmp_path / "out"), *more]
        evaluate_command.main([str(tmp_path), *options])
        results = load_results(tmp_path / "out")
        assert (results.counts, len(results.videos)) == ({}, 1)
        assert "translations times 0.956966" in results.notes[0]
        assert "4 cameras have no video" in results.notes[1]
    with pytest.raises(ValueError, match="takes the first 200"):
        jobs_of_realestate(tmp_path, published / "re10k", frames=200)


def test_the_released_demo_files(tmp_path, published):
    count = len(json.loads((published / "demo" / "lens.json").read_text()))
    for index in range(count):
        os.link(write(tmp_path / "one.mp4"), tmp_path / f"{index}-a-cat.mp4")
    (tmp_path / "one.mp4").unlink()
    jobs = jobs_of_folder(tmp_path, published / "released" / "demo" / "lens.json")
    entries = json.loads((published / "demo" / "lens.json").read_text())
    assert len(jobs) == count == 12
    for job in jobs:
        entry = entries[int(job.name.split("-")[0])]
        assert (job.caption, float(job.camera.lens.parameters["xfov"])) == (entry["caption"], entry["x_fov"])
    assert len(jobs_of_folder(tmp_path / "7-a-cat.mp4", published / "demo" / "lens.json")) == 1


@pytest.mark.parametrize("names", [["a", "b"], ["1", "12"], ["0-a", "00-b"], ["1jVPI3bNCBc-5", "0"]])
def test_a_pairing_that_is_not_certain_is_refused(tmp_path, published, names):
    for name in names:
        write(tmp_path / f"{name}.mp4")
    with pytest.raises(ValueError, match=r"camera each video has: .*lens.json lists 12 cameras, .* are .*\.mp4, "):
        jobs_of_folder(tmp_path, published / "demo" / "lens.json")


def write(path: Path) -> Path:
    if not path.exists():
        write_video(path, picture_frames(), 16)
    return path


def test_a_panshot_dataset(tmp_path):
    split = tmp_path / "data" / "PanShot"
    for name in ("meta-test", "pose-test", "videos-test"):
        (split / name).mkdir(parents=True)
    (tmp_path / "data" / "PanFlow").mkdir()
    match = "abc-3-0-yaw_aug_0"
    stem = f"{match}-fov120-xi0.70"
    camera = Trajectory.dolly(LENS, distance=2.0, frames=81)
    np.save(split / "pose-test" / f"{match}.npy", camera.c2w[:, :3].float().numpy())
    entry = {"video": stem, "pose": match, "x_fov": 120, "xi": 0.7}
    (split / "meta-test" / "m.json").write_text(json.dumps([{"clip": "too short"}, {"videos": [entry]}]))
    (split / "captioned-test.jsonl").write_text(json.dumps({"video": stem, "caption": "a cat"}) + "\n")
    (tmp_path / "data" / "PanFlow" / "near_plane_depth-test.jsonl").write_text(
        json.dumps({"video_id": "abc", "clip_id": 3, "near_depth": 4.0}) + "\n"
    )
    write_video(split / "videos-test" / f"{stem}.mp4", picture_frames(), 16)
    (tmp_path / "made").mkdir()
    write_video(tmp_path / "made" / f"{stem}.mp4", picture_frames(), 16)
    (job,) = jobs_of_dataset(tmp_path / "made", tmp_path / "data")
    assert job.caption == "a cat"
    assert job.reference == split / "videos-test" / f"{stem}.mp4"
    assert float(job.camera.positions[-1].norm()) == pytest.approx(0.5, abs=1e-4)
    assert isinstance(job, Job)


def test_a_published_run_stands_beside_others_and_names_its_cameras(study, tmp_path):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    evaluate(jobs, study / "out", settings(study, label="first"))
    board = tmp_path / "board"
    board.mkdir()
    publish(study / "out", board / "first.json")
    publish(study / "out", board / "second.json", label="another group", link="https://example.org")
    found = {run.label: run for run in load_runs(board)}
    assert set(found) == {"first", "another group"} and found["first"].cameras["count"] == 4
    assert found["first"].cameras == load_runs(study / "out")[0].cameras
    assert found["first"].estimators["pose"]["name"] == "stored" and str(study) not in str(found["first"])
    text = compare_runs([board], tmp_path / "compared")[0].read_text(encoding="utf-8")
    assert "another group" in text and "different cameras" not in text
    farther = [replace(job, camera=job.camera.scaled(2)) for job in jobs]
    evaluate(farther, study / "farther", settings(study, label="farther"))
    publish(study / "farther", board / "second.json")
    assert "different cameras" in compare_runs([board], tmp_path / "compared")[0].read_text(encoding="utf-8")
    changed = json.loads((board / "second.json").read_text())
    better = json.loads(json.dumps(changed["summary"]))
    better["pose"]["RotErr"]["mean"] /= 2
    for name, value, reason in (("summary", better, "RotErr"), ("cameras", found["first"].cameras, "its cameras")):
        (board / "second.json").write_text(json.dumps(changed | {name: value}))
        with pytest.raises(ValueError, match=rf"second\.json: not a run as .*{reason}"):
            load_runs(board)
    for name, value in (("summary", {"pose": {"RotErr": 3}}), ("label", 5), ("videos", [1]), ("notes", [None])):
        (board / "second.json").write_text(json.dumps(changed | {name: value}))
        with pytest.raises(ValueError, match=r"second\.json: not a run as"):
            load_runs(board)
    del changed["summary"]
    (board / "second.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="summary"):
        load_runs(board)


def test_the_cameras_that_turn_most_suddenly_are_left_out_by_name(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras")
    jerk = jobs[2].camera.c2w.clone()
    jerk[4, :3, :3] = jerk[4, :3, :3] @ Trajectory.pan(LENS, degrees=9, frames=2).rotations[1].to(jerk)
    jobs[2] = replace(jobs[2], camera=Trajectory(jerk, LENS, FPS))
    kept, left_out = without_jittery(jobs, 0.25)
    assert left_out == ["c"] and [job.name for job in kept] == ["a", "b", "d"]
    many = [replace(jobs[0], name=str(number)) for number in range(272)]
    assert len(without_jittery(many, 0.2)[0]) == int(272 * 0.8) == 217  # as the authors round
    with pytest.raises(ValueError, match="between 0 and 1"):
        without_jittery(jobs, 1.0)


def test_poses_are_also_compared_with_those_of_the_reference_video(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras", reference=study / "videos")
    results = evaluate(jobs, study / "out", settings(study))
    pose = {video.name: video.pose for video in results.videos}
    assert pose["b"].metrics["robust"]["RotErr"] > 1  # the estimator finds the same error in the reference ...
    assert pose["b"].against_reference["robust"]["RotErr"] == pytest.approx(0, abs=1e-4)  # ... so it cancels
    assert row_of_results(results, "reference-poses").cells["RotErr"].value == pytest.approx(0, abs=1e-4)
    half = evaluate(jobs, study / "out", settings(study, trusted_references=0.5))
    assert half.summary["reference_pose"]["RotErr"].count == 1  # of a and b; the reference of b is 5 degrees off
    assert "compared with 1 of 2 reference videos" in half.notes[0] and measured_how(half) != measured_how(results)
    assert "GravityErr" in half.summary["reference"]


def test_a_record_is_the_same_after_its_file(study):
    jobs = jobs_of_folder(study / "videos", study / "cameras", reference=study / "videos")
    results = evaluate(jobs, study / "out", settings(study))
    found = load_record(study / "out", "b")
    wanted = settings(study).pose.pose_estimator().estimate(read_clip(jobs[1].video, "b"), jobs[1].camera.lens)
    assert torch.equal(found.pose.estimate.c2w, wanted.c2w) and found.seconds["total"] > 0
    assert replace(found, seconds=None).without_estimates() == results.videos[1]
    assert found.reference.pose.metrics["robust"] == found.pose.metrics["robust"]
    assert load_results(study / "out") == results


def test_what_synthesize_writes_is_a_dataset_with_references(tmp_path):
    folder = tmp_path / "data"
    (folder / "videos").mkdir(parents=True)
    (tmp_path / "made").mkdir()
    rows = []
    for name, split in (("one", "test"), ("two", "test"), ("three", "train")):
        camera = Trajectory.arc(LENS, degrees=20, frames=FRAMES, fps=FPS)
        video = folder / "videos" / f"{name}.mp4"
        write_video(video, picture_frames(), FPS)
        clip = DatasetClip(name, video, f"caption {name}", camera, "wide", split=split, height=32, width=56)
        rows.append(clip_row(clip))
    write_metadata(folder, rows)
    write_video(tmp_path / "made" / "one.mp4", picture_frames(), FPS)
    (job,) = jobs_of_dataset(tmp_path / "made", folder, "test")
    assert (job.name, job.caption, job.reference) == ("one", "caption one", folder / "videos" / "one.mp4")
    assert sorted(names_of_dataset(folder, "test")) == ["one", "two"]
    write_video(tmp_path / "made" / "three.mp4", picture_frames(), FPS)
    with pytest.raises(ValueError, match="not a video of the split 'test'"):
        jobs_of_dataset(tmp_path / "made", folder, "test")
    with pytest.raises(ValueError, match=r"no clips in the split 'held-out', only in \['train', 'test'\]"):
        names_of_dataset(folder, "held-out")
