"""Candidate motions: labels, poses, gravity, jitter, and continuing after an interruption."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ucpe.cli.match import main
from ucpe.lenses import UCM
from ucpe.synthesis.motion.candidates import (
    CameraBench,
    MoveSource,
    TrajectoryFolder,
    extract_motions,
    read_motions,
    read_up_vectors,
)
from ucpe.synthesis.motion.poses import VipeResults
from ucpe.synthesis.rows import MOTIONS, read_part
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_angle
from ucpe.video import write_video

LENS = UCM(xfov=90, xi=0.0)
UP = [0.0, -1.0, 0.0]


def camerabench(folder: Path, motions: dict[str, Trajectory], labels: dict[str, list[str]] | None = None) -> Path:
    """A folder of labelled videos' results: the world of each is its first camera, as ViPE leaves it."""
    (folder / "vipe" / "pose").mkdir(parents=True)
    lines = []
    for name, motion in motions.items():
        motion.relative_to_first().save(folder / "vipe" / "pose" / f"{name}.npz")
        words = (labels or {}).get(name, ["static"])
        lines.append({"path": f"videos/{name}.mp4", "labels": words, "caption": f"The camera films {name}."})
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def source(folder: Path, up: dict | None = None, fps: float | None = 16.0) -> CameraBench:
    names = [json.loads(line)["path"] for line in (folder / "test.jsonl").read_text().splitlines()]
    ups = {Path(name).stem: UP for name in names} if up is None else up
    return CameraBench(folder, VipeResults(folder / "vipe"), ups, fps)


def test_gravity_comes_from_the_first_frames_up_vector(tmp_path):
    true = Trajectory.orbit(LENS, degrees=60, frames=41, pitch=-25, roll=12)
    folder = camerabench(tmp_path / "bench", {"take.0.3": true})
    up = (true.rotations[0].mT @ torch.tensor(UP, dtype=torch.float64)).tolist()
    extract_motions([source(folder, {"take.0.3": up})], tmp_path / "motions")
    (motion,), dropped = read_motions(tmp_path / "motions", jittery_share=0)
    assert motion.id == "bench/take.0.3" and motion.split == "test" and not dropped
    torch.testing.assert_close(motion.trajectory.angles.pitch, true.angles.pitch, atol=1e-3, rtol=0)
    torch.testing.assert_close(motion.trajectory.angles.roll, true.angles.roll, atol=1e-3, rtol=0)
    steps = [torch.diff(path.positions, dim=0)[:, 1] for path in (motion.trajectory, true)]
    torch.testing.assert_close(*steps, atol=1e-5, rtol=0)


def test_a_calibrator_finds_up_where_none_is_given(tmp_path):
    """The bundled calibrator, on a rendered world, by the command line; stored up vectors still come first."""
    lens = UCM(xfov=120, xi=0.5)
    world = World.sample(3, kind="outdoor")
    true = Trajectory.pan(lens, degrees=20, frames=17, fps=8, pitch=-8, roll=14)
    folder = camerabench(tmp_path / "bench", {"a": true, "b": true, "unseen": true})
    frames = render_clip(world, lens, true.c2w.numpy(), 64, 112, 8, 2, threads=1).color
    for name in ("a", "b"):
        write_video(folder / "videos" / f"{name}.mp4", frames, 8)
    (folder / "up.jsonl").write_text(json.dumps({"video": "b", "up": UP}) + "\n")
    options = ["--results", str(folder / "vipe"), "--fps", "8", "--calibrator", "desk", "-o", str(tmp_path / "motions")]
    main(["motions", str(folder), *options])
    found = {motion.id: motion.trajectory.angles for motion in read_motions(tmp_path / "motions", jittery_share=0)[0]}
    assert found.keys() == {"bench/a", "bench/b"}
    assert found["bench/a"].pitch[0] == pytest.approx(-8, abs=3) and found["bench/a"].roll[0] == pytest.approx(
        14, abs=3
    )
    assert found["bench/b"].roll[0] == pytest.approx(0, abs=1e-6)
    (folder / "up.jsonl").unlink()
    with pytest.raises(ValueError, match=r"--up FILE, or .*up.jsonl, or --calibrator NAME"):
        main(["motions", str(folder), *options[:4]])
    with pytest.raises(ValueError, match="no calibrator 'nobody'"):
        main(["motions", str(folder), "--calibrator", "nobody"])


def test_zoom_missing_results_missing_gravity_and_missing_rate_are_written_down(tmp_path):
    moves = {name: Trajectory.pan(LENS, frames=41) for name in ("a", "b", "c", "lost")}
    folder = camerabench(tmp_path / "bench", moves, {"b": ["pan-left", "Zoom-in"]})
    (folder / "vipe" / "pose" / "lost.npz").unlink()
    counts = extract_motions([source(folder, {"a": UP, "b": UP, "lost": UP})], tmp_path / "motions")
    assert counts == {
        "": 1,
        "mentions zoom": 1,
        "failed: no up vector": 1,
        "failed: no ViPE result pose/lost.npz": 1,
    }
    motions, dropped = read_motions(tmp_path / "motions")
    assert [motion.id for motion in motions] == ["bench/a"] and dropped == {"failed": 2, "mentions zoom": 1}
    again = extract_motions([source(folder, {"a": UP}, fps=None)], tmp_path / "other")
    assert any("frame rate of a unknown" in reason for reason in again)


def test_a_caption_counts_as_a_label(tmp_path):
    folder = camerabench(tmp_path / "bench", {"a zooming shot": Trajectory.pan(LENS, frames=41)})
    assert extract_motions([source(folder)], tmp_path / "motions") == {"mentions zoom": 1}


def test_the_frame_rate_is_the_videos(tmp_path):
    from ucpe.video import write_video

    folder = camerabench(tmp_path / "bench", {"a": Trajectory.pan(LENS, degrees=30, frames=25)})
    (folder / "videos").mkdir()
    write_video(folder / "videos" / "a.mp4", np.zeros((25, 32, 48, 3), np.uint8), 24)
    extract_motions([source(folder, fps=None)], tmp_path / "motions")
    row = read_part(tmp_path / "motions" / "bench" / "a.parquet", MOTIONS).to_pylist()[0]
    assert row["fps"] == pytest.approx(24) and row["velocity"] == pytest.approx(30, rel=1e-4)


def test_the_fastest_fifth_of_a_collection_is_discarded_but_never_of_exact_moves(tmp_path):
    takes = {f"take {n:02d}": Trajectory.pan(LENS, degrees=5 * n, frames=41) for n in range(1, 11)}
    jerk = Trajectory.static(LENS, frames=41).c2w.clone()
    jerk[20:] = Trajectory.static(LENS, yaw=40, frames=21).c2w
    takes["take 04"] = Trajectory(jerk, LENS, 16.0)
    folder = camerabench(tmp_path / "bench", takes)
    extract_motions([source(folder), MoveSource(("pan-left", "orbit", "zoom-in", "dolly_zoom"))], tmp_path / "motions")
    motions, dropped = read_motions(tmp_path / "motions")
    names = {motion.id for motion in motions}
    assert "bench/take 04" not in names and "bench/take 10" not in names and "bench/take 09" in names
    assert {"moves/pan-left", "moves/orbit"} < names
    assert dropped == {"jittery": 2, "mentions zoom": 2}
    everything, _ = read_motions(tmp_path / "motions", jittery_share=0)
    assert len(everything) == len(motions) + 2


def test_moves_are_carried_by_hand_and_keep_their_character(tmp_path):
    extract_motions([MoveSource(("orbit-left", "dolly-in"))], tmp_path / "motions")
    motions, _ = read_motions(tmp_path / "motions")
    orbit = next(motion.trajectory for motion in motions if motion.id == "moves/orbit-left")
    plain = Trajectory.move("orbit-left", LENS)
    off = rotation_angle(orbit.rotations.mT @ plain.rotations)
    assert 0.05 < off.max() < 6 and (orbit.positions - plain.positions).norm(dim=-1).max() < 0.15


def test_trajectory_files_are_candidates_and_other_files_are_named(tmp_path, published):
    counts = extract_motions([TrajectoryFolder(published / "re10k")], tmp_path / "motions")
    assert counts[""] == 5 and sum(counts.values()) == 6
    assert any("traj_normalization" in reason for reason in counts)
    motions, dropped = read_motions(tmp_path / "motions", jittery_share=0.2)
    assert len(motions) == 4 and dropped == {"jittery": 1, "failed": 1}
    for motion in motions:
        torch.testing.assert_close(motion.trajectory.c2w[0], torch.eye(4, dtype=torch.float64), atol=1e-6, rtol=0)


def test_gravity_of_formats_that_have_it_is_kept(tmp_path):
    (tmp_path / "files").mkdir()
    tilted = Trajectory.dolly(LENS, distance=1, frames=41, pitch=-30)
    for name, format in (("ours.json", "ucpe"), ("kitti.txt", "kitti")):
        tilted.save(tmp_path / "files" / name, format=format)
    extract_motions([TrajectoryFolder(tmp_path / "files")], tmp_path / "motions")
    found = {motion.id: motion.trajectory for motion in read_motions(tmp_path / "motions", 0)[0]}
    assert found["files/ours"].angles.pitch[0] == pytest.approx(-30, abs=1e-4)
    assert found["files/kitti"].angles.pitch[0] == pytest.approx(0, abs=1e-4)


def test_running_again_repeats_only_what_failed_or_changed(tmp_path):
    folder = camerabench(tmp_path / "bench", {name: Trajectory.pan(LENS, frames=41) for name in "abc"})
    lost = (folder / "vipe" / "pose" / "c.npz").read_bytes()
    (folder / "vipe" / "pose" / "c.npz").unlink()
    extract_motions([source(folder)], tmp_path / "motions")
    parts = {name: tmp_path / "motions" / "bench" / f"{name}.parquet" for name in "abc"}
    assert not parts["c"].exists()
    before = {name: parts[name].stat().st_mtime_ns for name in "ab"}
    (folder / "vipe" / "pose" / "c.npz").write_bytes(lost)
    Trajectory.tilt(LENS, frames=41).save(folder / "vipe" / "pose" / "b.npz")
    parts["a"].with_name(".a.parquet.1.partial").write_bytes(b"half")
    assert extract_motions([source(folder)], tmp_path / "motions") == {"": 3}
    changed = {name for name, path in parts.items() if path.stat().st_mtime_ns != before.get(name)}
    assert changed == {"b", "c"}
    assert len(read_motions(tmp_path / "motions", 0)[0]) == 3


def test_up_vectors_from_directions_angles_and_folders(tmp_path):
    camera = Trajectory.static(LENS, pitch=20, yaw=70, roll=-15).rotations[0]
    seen = (camera.mT @ torch.tensor(UP, dtype=torch.float64)).tolist()
    lines = [{"video": "a.mp4", "up": seen}, {"video": "videos/b.1.mp4", "pitch": 20, "roll": [-15, 3]}]
    (tmp_path / "up.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read_up_vectors(tmp_path / "up.jsonl")
    np.testing.assert_allclose(found["a"], found["b.1"], atol=1e-9)
    (tmp_path / "calibrations").mkdir()
    (tmp_path / "calibrations" / "b.1.json").write_text(json.dumps({"pitch": [20.0], "roll": [-15.0], "yfov": [60]}))
    np.testing.assert_allclose(read_up_vectors(tmp_path / "calibrations")["b.1"], seen, atol=1e-9)


@pytest.mark.parametrize("line", ["[]", "{}", '{"video": "a"}', '{"video": "a", "up": [0, 0, 0]}', "nonsense"])
def test_up_vectors_that_are_none_are_refused_with_their_line(tmp_path, line):
    (tmp_path / "up.jsonl").write_text(f'{{"video": "ok", "up": [0, -1, 0]}}\n{line}\n')
    with pytest.raises(ValueError, match=r"line 2: expected an object with `video`|line 2, .*not JSON"):
        read_up_vectors(tmp_path / "up.jsonl")


def test_bad_labels_and_bad_shares_are_refused(tmp_path):
    folder = camerabench(tmp_path / "bench", {"a": Trajectory.pan(LENS, frames=41)})
    (folder / "test.jsonl").write_text('{"labels": []}\n')
    with pytest.raises(ValueError, match=r"test.jsonl, line 1: expected an object with the `path`"):
        CameraBench(folder, VipeResults(folder / "vipe"), {}).entries()
    with pytest.raises(ValueError, match="jittery"):
        read_motions(tmp_path, jittery_share=1.0)
    with pytest.raises(ValueError, match="no Parquet file"):
        read_motions(tmp_path / "bench")


def test_structure_from_motion_finds_the_motion_of_a_rendered_video(tmp_path):
    pytest.importorskip("pycolmap")
    from ucpe.synthesis.motion.poses import Pycolmap
    from ucpe.synthesis.worlds import World, render_clip
    from ucpe.trajectories import alignment_error, umeyama
    from ucpe.video import write_video

    world, lens = World.sample(5, kind="outdoor"), UCM(xfov=80, xi=0.0)
    true = Trajectory.truck(lens, distance=1.2, frames=10, fps=4).scaled(world.near_depth)
    image = render_clip(world, lens, true.c2w, 192, 336, 4.0, 1, threads=1)
    write_video(tmp_path / "a.mp4", image.color, 4, crf=10)
    found = Pycolmap(xfov=80, keyframe_fps=2).poses("a", tmp_path / "a.mp4", None)
    assert len(found) == 10 and found.fps == pytest.approx(4)
    similarity = umeyama(found.positions, true.positions)
    assert alignment_error(similarity, found.positions, true.positions) < 0.01 * true.path_length()
    assert found.maximum_rotation() < 1
