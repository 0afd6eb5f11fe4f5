"""From curated rows to rotations that are ready to film: transfer, splits, continuing, and the command."""

import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from tests.pictures import pixels, shows

from ucpe.cli.match import main
from ucpe.lenses import UCM
from ucpe.synthesis.augmentation import compose_poses
from ucpe.synthesis.motion.candidates import MoveSource, TrajectoryFolder, extract_motions, read_motions
from ucpe.synthesis.motion.pipeline import MatchSettings, match_clips
from ucpe.synthesis.motion.selection import Limits
from ucpe.synthesis.motion.transfer import transfer_rotations, write_sources
from ucpe.synthesis.motion.window import Window
from ucpe.synthesis.rows import CURATED, MATCHES, PAIRS, pose_column, read_part, table_of, write_part
from ucpe.trajectories import Trajectory, align
from ucpe.trajectories.formats.captioned import clip_of_pose_file, read_near_depths
from ucpe.trajectories.rotations import pose_matrix, rotation_angle, rotation_from_angles

LENS = UCM(xfov=90, xi=0.0)
SETTINGS = MatchSettings(Window(frames=21, fps=4.0), best=6, test_share=0.3)


def curated_clip(name: str, motion: Trajectory, drift: float = 0.0, **facts) -> dict:
    """A panoramic clip that went along a path, its own heading turning by `drift` degrees."""
    zero = torch.zeros(len(motion), dtype=torch.float64)
    turn = rotation_from_angles(zero, torch.linspace(0, drift, len(motion), dtype=torch.float64), zero)
    known = {
        "id": name,
        "source": name.split("-")[0],
        "video": "",
        "c2w": pose_column(pose_matrix(turn, motion.positions)),
        "fps": motion.fps,
        "quality": 0.8,
        "watermark": 0.1,
        "rotation_score": abs(drift),
        "categories": ["Street-View"],
        "motion_magnitude": 12.0,
    }
    return known | facts


def curated_folder(folder: Path, sources: int = 12, clips: int = 4, seed: int = 0) -> Path:
    """One part a source video; clips follow our moves, shaken, turned and scaled."""
    generator = np.random.default_rng(seed)
    moves = ("orbit-left", "orbit-right", "arc-left", "crane-up", "dolly-in", "truck-left", "spiral")
    for number in range(sources):
        rows = []
        for clip in range(clips):
            move = Trajectory.move(moves[generator.integers(len(moves))], LENS, frames=161, fps=30)
            move = move @ Trajectory.handheld(LENS, frames=161, fps=30, seed=int(generator.integers(1000)))
            zero = torch.zeros((), dtype=torch.float64)
            yaw = rotation_from_angles(zero, torch.tensor(generator.uniform(-180, 180), dtype=torch.float64), zero)
            move = move.transformed(pose_matrix(yaw, torch.zeros(3, dtype=torch.float64)))
            rows.append(
                curated_clip(
                    f"video{number:02d}-{clip}",
                    move.scaled(float(generator.uniform(0.2, 3))),
                    drift=float(generator.uniform(0, 25)),
                    quality=float(generator.random()),
                    watermark=float(generator.random()),
                    categories=[["Mountains"], ["Street-View"], ["Lakes", "Mountains"], []][generator.integers(4)],
                    motion_magnitude=float(generator.uniform(0, 50)),
                )
            )
        write_part(folder / f"video{number:02d}.parquet", table_of(rows, CURATED))
    return folder


@pytest.fixture(scope="module")
def motions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("motions")
    extract_motions([MoveSource(frames=81, fps=16.0)], folder)
    return folder


def rotations_of(row: dict) -> torch.Tensor:
    return torch.tensor(np.array(row["rotations"]), dtype=torch.float64).reshape(-1, 3, 3)


def test_the_transferred_camera_looks_as_the_aligned_motion_does_however_the_panorama_turns():
    motion = Trajectory.orbit(LENS, degrees=50, frames=21, pitch=-10, roll=4) @ Trajectory.handheld(LENS, frames=21)
    erp = Trajectory.pan(LENS, degrees=90, frames=21).c2w
    rotations = transfer_rotations(erp, motion, yaw=33.0)
    zero = torch.zeros((), dtype=torch.float64)
    turn = rotation_from_angles(zero, torch.tensor(33.0, dtype=torch.float64), zero)
    poses = compose_poses(erp, rotations, near_depth=1.0)
    torch.testing.assert_close(poses[:, :3, :3], turn @ motion.rotations, atol=1e-12, rtol=0)
    camera = Trajectory(poses, LENS)
    torch.testing.assert_close(camera.angles.pitch, motion.angles.pitch, atol=1e-9, rtol=0)
    torch.testing.assert_close(camera.angles.roll, motion.angles.roll, atol=1e-9, rtol=0)
    with pytest.raises(ValueError, match="resample"):
        transfer_rotations(erp[:20], motion, 0.0)


def test_a_motion_comes_back_to_the_clip_that_was_made_from_it(tmp_path, motions):
    """The clip's path is a motion turned, scaled and moved: it must be found, with the rotations it was filmed with."""
    library = {motion.id: motion.trajectory for motion in read_motions(motions)[0]}
    true = library["moves/arc-left"]
    zero = torch.zeros((), dtype=torch.float64)
    turn = rotation_from_angles(zero, torch.tensor(-77.0, dtype=torch.float64), zero)
    placed = true.transformed(pose_matrix(turn, torch.tensor([4.0, 1, 2], dtype=torch.float64))).scaled(0.31)
    write_part(tmp_path / "clips.parquet", table_of([curated_clip("v-0", placed, drift=28.0)], CURATED))
    settings = MatchSettings(test_share=0.0)
    match_clips(tmp_path / "clips.parquet", motions, tmp_path / "matches.parquet", settings)
    best = read_part(tmp_path / "matches.parquet", MATCHES).to_pylist()[0]
    assert best["motion"] == "moves/arc-left" and best["split"] == "train" and best["rmse"] < 1e-5
    assert best["yaw"] == pytest.approx(-77, abs=1e-2) and best["scale"] == pytest.approx(0.31, rel=1e-3)
    clip = curated_clip("v-0", placed, drift=28.0)
    erp = torch.tensor(np.array(clip["c2w"]), dtype=torch.float64).reshape(-1, 3, 4)[best["frames"]]
    world = erp[:, :, :3] @ rotations_of(best)
    assert rotation_angle(world.mT @ placed.rotations).max() < 0.02
    torch.testing.assert_close(world, align(true, placed, vertical=True).rotations, atol=1e-4, rtol=0)


def test_splits_share_no_panorama_no_source_and_no_motion_and_limits_hold(tmp_path, motions):
    curated = curated_folder(tmp_path / "curated")
    limits = Limits(per_panorama=3, per_motion=4, per_category=20, per_magnitude=12)
    strict = Limits(per_panorama=1, per_motion=2, total=5)
    settings = MatchSettings(SETTINGS.window, best=6, test_share=0.3, train=limits, test=strict)
    summary = match_clips(curated, motions, tmp_path / "matches.parquet", settings)
    rows = read_part(tmp_path / "matches.parquet", MATCHES).to_pylist()
    assert summary.chosen == dict(Counter(row["split"] for row in rows)) and min(summary.chosen.values()) > 0
    used = defaultdict(lambda: defaultdict(set))
    for row in rows:
        used[row["split"]]["clip"].add(row["clip"])
        used[row["split"]]["source"].add(row["clip"].split("-")[0])
        used[row["split"]]["motion"].add(row["motion"])
    for what in ("clip", "source", "motion"):
        assert not used["train"][what] & used["test"][what], what
    for split, most in (("train", limits), ("test", strict)):
        own = [row for row in rows if row["split"] == split]
        assert max(Counter(row["clip"] for row in own).values()) <= most.per_panorama
        assert max(Counter(row["motion"] for row in own).values()) <= most.per_motion
    assert summary.chosen["test"] <= 5
    assert sum(summary.before.values()) >= summary.clips == 48 and sum(summary.after.values()) >= len(rows)
    for row in rows[:5]:
        rotations = rotations_of(row)
        assert rotations.shape == (21, 3, 3) and len(row["frames"]) == 21
        assert (rotations.mT @ rotations - torch.eye(3, dtype=torch.float64)).abs().max() < 1e-5


def test_killed_anywhere_and_run_again_it_gives_the_same_rows(tmp_path, motions, monkeypatch):
    from ucpe.synthesis.motion import pipeline

    curated = curated_folder(tmp_path / "curated", sources=5)
    match_clips(curated, motions, tmp_path / "whole.parquet", SETTINGS)
    writes: list[Path] = []

    def dies(path, *rest):
        if len(writes) == 3:
            path.with_name(f".{path.name}.1.partial").write_bytes(b"half a file")
            raise KeyboardInterrupt
        writes.append(path)
        write_part(path, *rest)

    monkeypatch.setattr(pipeline, "write_part", dies)
    with pytest.raises(KeyboardInterrupt):
        match_clips(curated, motions, tmp_path / "broken.parquet", SETTINGS)
    monkeypatch.undo()
    assert not (tmp_path / "broken.parquet").exists()
    finished = {path: path.stat().st_mtime_ns for path in writes}
    match_clips(curated, motions, tmp_path / "broken.parquet", SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in writes} == finished
    whole, again = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("whole", "broken"))
    assert whole.equals(again)


def test_parts_made_from_something_else_are_made_again(tmp_path, motions):
    curated = curated_folder(tmp_path / "curated", sources=3)
    match_clips(curated, motions, tmp_path / "m.parquet", SETTINGS)
    parts = sorted((tmp_path / "m.parts").glob("*.parquet"))
    before = [path.stat().st_mtime_ns for path in parts]
    match_clips(curated, motions, tmp_path / "m.parquet", MatchSettings(SETTINGS.window, best=2, test_share=0.3))
    assert all(path.stat().st_mtime_ns != time for path, time in zip(parts, before))
    assert max(len(row["motions"]) for path in parts for row in read_part(path, PAIRS).to_pylist()) == 2


def test_clips_that_cannot_be_used_are_counted(tmp_path, motions):
    orbit = Trajectory.orbit(LENS, frames=161, fps=30)
    broken = curated_clip("b-0", orbit)
    broken["c2w"][7][3] = math.nan
    rows = [
        curated_clip("a-0", orbit),
        curated_clip("a-1", orbit[:60]),
        curated_clip("a-2", orbit, drift=45.0),
        broken,
    ]
    write_part(tmp_path / "curated" / "a.parquet", table_of(rows, CURATED))
    settings = MatchSettings(Window(frames=21, fps=30 / 7), test_share=0.0)
    summary = match_clips(tmp_path / "curated", motions, tmp_path / "m.parquet", settings)
    assert summary.dropped_clips == {"shorter than the window": 1, "turns too much": 1, "poses are not finite": 1}
    assert {row["clip"] for row in read_part(tmp_path / "m.parquet", MATCHES).to_pylist()} == {"a-0"}


def test_nothing_to_match_is_an_empty_table_with_reasons(tmp_path, motions):
    orbit = Trajectory.orbit(LENS, frames=161, fps=30)
    rows = [curated_clip(f"a-{n}", orbit[: 20 if n else None]) for n in range(3)]
    write_part(tmp_path / "curated" / "a.parquet", table_of(rows, CURATED))
    summary = match_clips(
        tmp_path / "curated", motions, tmp_path / "m.parquet", MatchSettings(test_share=0.0, train=Limits(total=0))
    )
    assert summary.dropped_clips == {"shorter than the window": 2} and summary.chosen == {"train": 0, "test": 0}
    assert read_part(tmp_path / "m.parquet", MATCHES).num_rows == 0
    write_part(tmp_path / "short" / "a.parquet", table_of(rows[1:], CURATED))
    assert match_clips(tmp_path / "short", motions, tmp_path / "s.parquet").chosen == {"train": 0, "test": 0}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quality": math.nan}, r"quality of clip 'a-0' must be in \[0, 1\], got nan"),
        ({"watermark": 3.0}, "watermark of clip 'a-0'"),
        ({"fps": 0.0}, "fps of clip 'a-0'"),
        ({"motion_magnitude": -1.0}, "motion_magnitude of clip 'a-0'"),
    ],
)
def test_wrong_numbers_are_named(tmp_path, motions, change, says):
    row = curated_clip("a-0", Trajectory.orbit(LENS, frames=161, fps=30)) | change
    write_part(tmp_path / "a.parquet", table_of([row], CURATED))
    with pytest.raises(ValueError, match=says):
        match_clips(tmp_path / "a.parquet", motions, tmp_path / "m.parquet")


def test_wrong_tables_are_named(tmp_path, motions):
    write_part(tmp_path / "a.parquet", table_of([curated_clip("a-0", Trajectory.orbit(LENS))], CURATED).drop(["fps"]))
    with pytest.raises(ValueError, match=r"a.parquet: no column fps; it needs id, source"):
        match_clips(tmp_path / "a.parquet", motions, tmp_path / "m.parquet")
    (tmp_path / "b.parquet").write_bytes(b"not a table")
    with pytest.raises(ValueError, match=r"b.parquet: not a readable table"):
        match_clips(tmp_path / "b.parquet", motions, tmp_path / "m.parquet")
    twice = [curated_clip("a-0", Trajectory.orbit(LENS))] * 2
    write_part(tmp_path / "c.parquet", table_of(twice, CURATED))
    with pytest.raises(ValueError, match="'a-0' is in the curated clips more than once"):
        match_clips(tmp_path / "c.parquet", motions, tmp_path / "m.parquet")


def test_a_window_keeps_a_motions_speed_and_stretches_short_ones_a_little():
    window = Window(frames=81, fps=16.0)
    long = Trajectory.pan(LENS, degrees=300, frames=301, fps=30)
    assert window.of_motion(long).angles.yaw[-1] == pytest.approx(150)
    short = Trajectory.pan(LENS, degrees=40, frames=101, fps=25)
    assert window.of_motion(short).angles.yaw[-1] == pytest.approx(40)
    with pytest.raises(ValueError, match=r"3.00 s long.*5.00 s"):
        window.of_motion(Trajectory.pan(LENS, frames=76, fps=25))
    assert window.clip_frames(30.0)[[0, 1, 2, 80]].tolist() == [0, 1, 3, 150]
    same = Trajectory.orbit(LENS, frames=81, fps=16.0)
    torch.testing.assert_close(window.of_motion(same).c2w, same.c2w, rtol=0, atol=0)


def test_published_clips_and_real_motions(tmp_path, published):
    """PanShot's paths as panoramic clips, RealEstate10K's as motions."""
    depths = read_near_depths(published / "panshot" / "near_plane_depth-test.jsonl")
    rows = {}
    for file in sorted((published / "panshot").glob("*.npy")):
        depth = depths[clip_of_pose_file(file)]
        path = Trajectory.load(file, fps=16.0).scaled(1 / depth)
        video = "-".join(file.stem.split("-")[:-3])
        rows[file.stem] = curated_clip(file.stem, path, source=video)
    write_part(tmp_path / "curated" / "panshot.parquet", table_of(rows.values(), CURATED))
    extract_motions([TrajectoryFolder(published / "re10k"), MoveSource()], tmp_path / "motions")
    summary = match_clips(
        tmp_path / "curated", tmp_path / "motions", tmp_path / "m.parquet", MatchSettings(test_share=0.0)
    )
    found = read_part(tmp_path / "m.parquet", MATCHES).to_pylist()
    assert summary.clips == 7 and {row["clip"] for row in found} == set(rows) and len(found) == 35
    for row in found:
        positions = np.array(rows[row["clip"]]["c2w"])[:, [3, 7, 11]]
        assert row["rmse"] <= np.sqrt(((positions - positions.mean(0)) ** 2).sum(1).mean()) * (1 + 1e-5)


def test_the_command_from_motions_to_sources_that_synthesize_opens(tmp_path, capsys):
    from ucpe.synthesis.sources import open_sources
    from ucpe.video import write_video

    orbit = Trajectory.orbit(LENS, frames=161, fps=30)
    rows = [curated_clip(f"v{n}-0", orbit.scaled(1 + n), drift=9.0, video=f"videos/v{n}.mp4") for n in range(4)]
    write_part(tmp_path / "curated" / "all.parquet", table_of(rows, CURATED))
    (tmp_path / "curated" / "videos").mkdir()
    for n in range(4):
        write_video(tmp_path / "curated" / "videos" / f"v{n}.mp4", np.zeros((161, 32, 64, 3), np.uint8), 30)
    folder = str(tmp_path)
    main(["motions", "moves", "-o", f"{folder}/motions"])
    assert "not used: mentions zoom" in capsys.readouterr().out
    figure = ["--figure", f"{folder}/balance.png"]
    matching = [f"{folder}/curated", "--motions", f"{folder}/motions", "-o", f"{folder}/m.parquet"]
    main([*matching, "--test-share", "0", "--train.per-panorama", "2", *figure])
    assert "train      8 matches" in capsys.readouterr().out
    assert all(shows(pixels(tmp_path / "balance.png"), colour, least=500) for colour in ("#9aa5b1", "#2b6cb0"))
    given = ["--matches", f"{folder}/m.parquet", "--curated", f"{folder}/curated", "--motions", f"{folder}/motions"]
    main(["show", "v2-0", *given, "-o", f"{folder}/v2.png"])
    assert (tmp_path / "v2.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="clip 'v9' has no match"):
        main(["show", "v9", *given])
    sources = open_sources([tmp_path / "m.parquet"])
    assert len(sources) == 4
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "m.sources").iterdir()}
    assert open_sources([tmp_path / "m.parquet"]) == sources
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "m.sources").iterdir()} == written
    with pytest.raises(ValueError, match="no match is in the test split"):
        open_sources([f"{folder}/m.parquet:test"])
    matches = {(row["clip"], row["motion"]): row for row in read_part(tmp_path / "m.parquet", MATCHES).to_pylist()}
    sources[1].check()
    path = sources[1].plan(1, 81, 16.0, np.random.default_rng(0))
    own = [row for (clip, _), row in matches.items() if clip == "v1-0"]
    torch.testing.assert_close(path.rotations, rotations_of(own[1]), atol=1e-6, rtol=0)
    erp = np.array(rows[1]["c2w"]).reshape(-1, 3, 4)[own[1]["frames"]]
    np.testing.assert_allclose(path.erp[:, :3].numpy(), erp, atol=1e-6)


def test_sources_of_clips_that_are_gone_or_have_no_video_are_refused(tmp_path, motions):
    orbit = Trajectory.orbit(LENS, frames=161, fps=30)
    for name in ("a", "b"):
        write_part(tmp_path / name / "x.parquet", table_of([curated_clip(f"{name}-0", orbit)], CURATED))
    match_clips(tmp_path / "a", motions, tmp_path / "m.parquet", MatchSettings(test_share=0.0))
    with pytest.raises(ValueError, match="no clip 'a-0'"):
        write_sources(tmp_path / "m.parquet", tmp_path / "b", tmp_path / "s")
    with pytest.raises(ValueError, match="names no video"):
        write_sources(tmp_path / "m.parquet", tmp_path / "a", tmp_path / "s")
