import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from ucpe import video
from ucpe.lenses import FAMILIES, Equirectangular
from ucpe.synthesis import augmentation, clips
from ucpe.synthesis.augmentation import VARIANTS, augment_rotations, compose_poses
from ucpe.synthesis.clips import ClipSettings, synthesize
from ucpe.synthesis.dataset import open_dataset, read_metadata
from ucpe.synthesis.sources import PanoramaSource, WorldSource, open_sources
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import angles_from_rotation, pose_matrix, rotation_angle
from ucpe.video import read_frames, write_video
from ucpe.work import folder_lock

SMALL = ClipSettings(frames=4, height=32, width=56, seed=3)
SOURCE = Path(__file__).resolve().parents[2] / "src"


def path_of_rotations(frames: int = 9) -> torch.Tensor:
    return Trajectory.handheld(Equirectangular(), degrees=3, frames=frames, pitch=10, yaw=30, max_hertz=2).rotations


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_smooth_rotations(variant):
    rotations = path_of_rotations()
    varied = augment_rotations(rotations, variant, torch.Generator().manual_seed(1))
    assert torch.allclose(varied @ varied.mT, torch.eye(3).double(), atol=1e-12)
    steps = rotation_angle(varied[:-1].mT @ varied[1:])
    limit = sum(2 * angle for angle in augmentation.PANNING_RANGES) / 8
    assert steps.max() < rotation_angle(rotations[:-1].mT @ rotations[1:]).max() + (
        limit if variant == "panning" else 1e-6
    )
    assert torch.equal(varied, augment_rotations(rotations, variant, torch.Generator().manual_seed(1)))


def test_variants_have_the_papers_ranges():
    level = torch.eye(3, dtype=torch.float64).expand(5, 3, 3)
    draws = {
        variant: [
            Trajectory(
                torch.nn.functional.pad(augment_rotations(level, variant, generator), (0, 1, 0, 1))
                + torch.diag(torch.tensor([0.0, 0, 0, 1])),
                FAMILIES["pinhole"].typical(),
            ).angles
            for generator in (torch.Generator().manual_seed(seed) for seed in range(400))
        ]
        for variant in VARIANTS
    }

    def spread(variant, name):
        values = torch.stack([getattr(angles, name) for angles in draws[variant]])  # (400, 5)
        return values.min().item(), values.max().item(), (values - values[:, :1]).abs().max().item()

    for name in ("pitch", "yaw", "roll"):
        assert spread("original", name)[:2] == pytest.approx((0, 0), abs=1e-9)
    low, high, change = spread("yaw", "yaw")
    assert -180 <= low < -170 and 170 < high <= 180 and change < 1e-6
    assert spread("yaw", "pitch")[1] == pytest.approx(0, abs=1e-9)
    low, high, change = spread("yaw_pitch", "pitch")
    assert -80 <= low < -75 and 75 < high <= 80 and change < 1e-6
    for name, limit in (("yaw", 90), ("pitch", 40), ("roll", 30)):
        low, high, change = spread("panning", name)
        assert -limit - 1e-9 <= low < -0.9 * limit and 0.9 * limit < high <= limit + 1e-9 and change > limit
    with pytest.raises(ValueError, match="variant"):
        augment_rotations(level, "spin", torch.Generator())


def test_released_panning_draws_a_start_and_a_change():
    level = torch.eye(3, dtype=torch.float64).expand(5, 3, 3)
    paper, released = (
        [
            augment_rotations(level, "panning", torch.Generator().manual_seed(seed), panning)[[0, -1]]
            for seed in range(300)
        ]
        for panning in ("paper", "released")
    )
    assert all(torch.allclose(one[0], other[0]) for one, other in zip(paper, released))  # the same starts
    pitch, roll = (
        torch.stack([getattr(angles_from_rotation(ends[1]), name) for ends in released]).abs().max().item()
        for name in ("pitch", "roll")
    )
    assert 65 < pitch <= 80 + 1e-6 and 48 < roll <= 60 + 1e-6


def test_poses_compose_and_scale():
    erp = Trajectory.orbit(Equirectangular(), degrees=30, frames=5).c2w
    rotations = path_of_rotations(5)
    poses = compose_poses(erp, rotations, 2.5)
    for n in range(5):
        assert torch.allclose(poses[n, :3, :3], erp[n, :3, :3] @ rotations[n])
        assert torch.allclose(poses[n, :3, 3] * 2.5, erp[n, :3, 3] - erp[0, :3, 3])
    with pytest.raises(ValueError, match="near-plane"):
        compose_poses(erp, rotations, 0.0)


@pytest.fixture(scope="module")
def footage(tmp_path_factory) -> Path:
    """A world filmed as a panorama by a moving camera, with its poses and near depth beside it."""
    folder = tmp_path_factory.mktemp("footage")
    world = World.sample(4, kind="outdoor")
    c2w = torch.eye(4, dtype=torch.float64).repeat(12, 1, 1)
    c2w[:, 2, 3] = torch.linspace(0, 1, 12)
    image = render_clip(world, Equirectangular(), c2w, 256, 512, threads=1)
    write_video(folder / "walk.mp4", image.color, 16, crf=6)
    np.save(folder / "walk.npy", c2w[:, :3].numpy())
    settings = {"near_depth": world.near_depth, "caption": world.caption, "categories": ["Beaches"]}
    (folder / "walk.source.json").write_text(json.dumps(settings))
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    """Everything a dataset holds, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_clips_of_footage_match_their_poses_and_lenses(tmp_path, footage):
    """The video of a clip is what its own camera sees of the world that was filmed."""
    settings = ClipSettings(frames=4, height=48, width=84, seed=1)
    summary = synthesize([footage], tmp_path, 8, settings)
    assert (summary.clips, summary.made, summary.failed, summary.set_aside) == (8, 8, {}, {})
    dataset, world = open_dataset(tmp_path), World.sample(4, kind="outdoor")
    rows = read_metadata(tmp_path).to_pylist()
    for index, row in enumerate(rows):
        clip = dataset.clip(index)
        c2w = clip.camera.c2w.clone()
        c2w[:, :3, 3] = c2w[:, :3, 3] * world.near_depth
        c2w[:, 2, 3] += row["start"] / 11
        expected = render_clip(world, clip.camera.lens, c2w, 48, 84, threads=1)
        error = np.abs(dataset.video(index).numpy().astype(int) - expected.color)[expected.valid]
        wrong = np.abs(dataset.video(index).numpy().astype(int) - expected.color[:, :, ::-1])[expected.valid]
        assert error.mean() < 12 and error.mean() < 0.6 * wrong.mean()
        assert clip.caption == world.caption and clip.categories == ("Beaches",) and clip.source == "walk.mp4"
    assert {row["variant"] for row in rows} == set(VARIANTS)


def test_world_clips_are_cast_through_the_lens_itself(tmp_path):
    synthesize(["worlds:indoor"], tmp_path, 4, SMALL)
    dataset, rows = open_dataset(tmp_path), read_metadata(tmp_path).to_pylist()
    world = World.sample(rows[0]["start"], kind="indoor")
    for index in range(4):
        clip = dataset.clip(index)
        c2w = clip.camera.c2w.clone()
        c2w[:, :3, 3] *= clip.near_depth
        shake = WorldSource("indoor").plan(0, 4, 16.0, np.random.default_rng([3, 0]))
        c2w[:, :3, 3] += shake.erp[0, :3, 3]
        expected = render_clip(world, clip.camera.lens, c2w, 32, 56, threads=1)
        error, wrong = (
            np.abs(dataset.video(index).numpy().astype(int) - picture).mean()
            for picture in (expected.color, expected.color[:, :, ::-1])
        )
        assert error < 8 and error < 0.5 * wrong  # what is left is the half resolution of colour in a tiny video
        assert clip.caption == world.caption_of(expected)
        assert (world.clearance(c2w[:, :3, 3].numpy()) > 0.3).all()


def test_same_bytes_for_any_number_of_workers_and_in_parts(tmp_path, footage):
    sources = ["worlds:outdoor", footage]
    synthesize(sources, tmp_path / "whole", 10, SMALL)
    synthesize(sources, tmp_path / "workers", 10, SMALL, workers=2)
    for count in (3, 9, 10):
        synthesize(sources, tmp_path / "parts", count, SMALL)
    whole = tree(tmp_path / "whole")
    assert len([name for name in whole if name.endswith(".mp4")]) == 10
    assert tree(tmp_path / "workers") == whole
    assert tree(tmp_path / "parts") == whole
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "whole" / "videos").iterdir()}
    assert synthesize(sources, tmp_path / "whole", 10, SMALL).made == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "whole" / "videos").iterdir()} == before


POINTS = {
    "plan written": (clips, "_agree", True),
    "inside a video": (video.VideoWriter, "write", True),
    "before the check": (video, "check_video", False),
    "video done, record not": (clips, "write_record", False),
    "record done": (clips, "write_record", True),
    "before the table": (clips, "write_metadata", False),
    "inside the table": (os, "replace", False),
}
"""Where a run is killed: at a call of this function, after it or before."""


def run_and_die(folder: Path, point: str, count: int) -> None:
    """Synthesize in this process, which kills itself at the count-th call of a function."""
    module, name, after = POINTS[point]
    real, calls = getattr(module, name), [0]

    def deadly(*arguments, **options):
        calls[0] += 1
        if calls[0] == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, name, deadly)
    synthesize(["worlds:outdoor"], folder, 6, SMALL)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    synthesize(["worlds:outdoor"], folder, 6, SMALL)
    return tree(folder)


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("plan written", 1),
        ("inside a video", 7),
        ("before the check", 3),
        ("video done, record not", 2),
        ("record done", 5),
        ("before the table", 1),
        ("inside the table", 14),
    ],
)
def test_killed_anywhere_and_run_again(tmp_path, undisturbed, point, count):
    run = multiprocessing.get_context("fork").Process(target=run_and_die, args=(tmp_path, point, count))
    run.start()
    run.join()
    assert run.exitcode == -signal.SIGKILL
    assert not (tmp_path / "metadata.parquet").exists()
    for file in (tmp_path / "videos").glob("[!.]*.mp4"):
        assert file.read_bytes() == undisturbed[f"videos/{file.name}"]
    summary = synthesize(["worlds:outdoor"], tmp_path, 6, SMALL)
    assert summary.clips == 6
    assert tree(tmp_path) == undisturbed


def test_workers_killed_at_a_random_moment(tmp_path, undisturbed):
    script = (
        "from ucpe.synthesis.clips import *\nimport sys\nif __name__ == '__main__':\n"
        " settings = ClipSettings(frames=4, height=32, width=56, seed=3)\n"
        " synthesize(['worlds:outdoor'], sys.argv[1], 6, settings, workers=2)\n"
    )
    (tmp_path / "run.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "set")], env=environment, start_new_session=True
    )
    while not list((tmp_path / "set" / "videos").glob("*.mp4")) and run.poll() is None:
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    with suppress(ProcessLookupError):  # once the workers are gone too, not only their parent
        for _ in range(3000):
            os.killpg(run.pid, 0)
            time.sleep(0.02)
    assert synthesize(["worlds:outdoor"], tmp_path / "set", 6, SMALL).clips == 6
    assert tree(tmp_path / "set") == undisturbed


def test_damaged_clips_are_made_again(tmp_path, undisturbed):
    synthesize(["worlds:outdoor"], tmp_path, 6, SMALL)
    (tmp_path / "videos" / "000000-yaw.mp4").write_bytes(b"half")
    (tmp_path / "videos" / "000001-original.mp4").unlink()
    assert synthesize(["worlds:outdoor"], tmp_path, 6, SMALL).made == 2
    assert tree(tmp_path) == undisturbed


def test_bad_sources_are_set_aside_and_the_rest_goes_on(tmp_path, footage):
    whole = (footage / "walk.mp4").read_bytes()
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "still.mp4").write_bytes(whole)  # no poses beside it: a camera that stands still
    (folder / "mismatch.mp4").write_bytes(whole)
    np.save(folder / "mismatch.npy", np.tile(np.eye(4)[:3], (5, 1, 1)))
    (folder / "scaleless.mp4").write_bytes(whole)
    np.save(folder / "scaleless.npy", np.load(footage / "walk.npy"))
    summary = synthesize([folder], tmp_path / "set", 8, SMALL)
    assert summary.clips == 8
    assert set(summary.set_aside) == {"empty.mp4", "cut.mp4", "mismatch.mp4", "scaleless.mp4"}
    assert "5 poses for the 12 frames" in summary.set_aside["mismatch.mp4"]
    assert "near_depth" in summary.set_aside["scaleless.mp4"]
    assert {clip.source for clip in map(open_dataset(tmp_path / "set").clip, range(8))} == {"still.mp4"}
    with pytest.raises(ValueError, match="none of the 1 sources"):
        synthesize([folder / "cut.mp4"], tmp_path / "other", 4, SMALL)


def test_footage_damaged_in_the_middle_fails_its_clips_only(tmp_path, footage, monkeypatch):
    real = PanoramaSource.film

    def damaged(self, *arguments):
        if self.name == "bad.mp4":
            raise ValueError("bad.mp4: damaged after frame 7")
        return real(self, *arguments)

    monkeypatch.setattr(PanoramaSource, "film", damaged)
    for name in ("bad", "good"):
        (tmp_path / f"{name}.mp4").write_bytes((footage / "walk.mp4").read_bytes())
    summary = synthesize([tmp_path / "bad.mp4", tmp_path / "good.mp4"], tmp_path / "set", 8, SMALL)
    assert summary.clips == 4
    assert list(summary.failed.values()) == ["bad.mp4: damaged after frame 7"]
    assert "bad.mp4" in next(iter(summary.failed))
    monkeypatch.undo()
    sources = [tmp_path / "bad.mp4", tmp_path / "good.mp4"]
    assert synthesize(sources, tmp_path / "set", 8, SMALL).failed == summary.failed
    again = synthesize(sources, tmp_path / "set", 8, SMALL, retry_failed=True)
    assert (again.clips, again.made, again.failed) == (8, 4, {})


def test_another_dataset_is_not_mixed_in(tmp_path):
    synthesize(["worlds"], tmp_path, 1, SMALL)
    with pytest.raises(ValueError, match="seed 3, not 4"):
        synthesize(["worlds"], tmp_path, 1, ClipSettings(frames=4, height=32, width=56, seed=4))
    with pytest.raises(ValueError, match="sources"):
        synthesize(["worlds:indoor"], tmp_path, 1, SMALL)


def test_footage_that_changes_between_runs_is_noticed(tmp_path, footage):
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "one.mp4").write_bytes((footage / "walk.mp4").read_bytes())
    synthesize([folder], tmp_path / "set", 1, SMALL)
    (folder / "another.mp4").write_bytes((footage / "walk.mp4").read_bytes())
    with pytest.raises(ValueError, match="has changed"):
        synthesize([folder], tmp_path / "set", 2, SMALL)
    (folder / "another.mp4").unlink()
    (folder / "one.mp4").write_bytes((footage / "walk.mp4").read_bytes() + bytes(8))
    with pytest.raises(ValueError, match="has changed"):
        synthesize([folder], tmp_path / "set", 2, SMALL)


def test_a_second_run_in_the_same_folder_is_kept_out(tmp_path):
    with folder_lock(tmp_path / clips.STATE, "lock"), pytest.raises(ValueError, match="another run is writing here"):
        synthesize(["worlds"], tmp_path, 1, SMALL)


def test_test_split_holds_whole_paths(tmp_path):
    synthesize(["worlds"], tmp_path, 16, ClipSettings(frames=1, height=16, width=28, test_share=0.5))
    rows = read_metadata(tmp_path).to_pylist()
    splits = {row["id"][:6]: {other["split"] for other in rows if other["id"][:6] == row["id"][:6]} for row in rows}
    assert all(len(split) == 1 for split in splits.values())
    assert {row["split"] for row in rows} == {"train", "test"}
    assert len(open_dataset(tmp_path, "test")) + len(open_dataset(tmp_path, "train")) == 16


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1"),
        ('{"video": "a.mp4", "fov": 3}', "unknown fields fov"),
        ('{"video": "a.mp4", "near_depth": -1}', "near_depth"),
        ("[1]", "expected an object"),
    ],
)
def test_bad_lines_of_a_sources_file_are_named(tmp_path, line, message):
    (tmp_path / "sources.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        open_sources([tmp_path / "sources.jsonl"])


def test_source_names():
    assert [source.name for source in open_sources(["worlds", "worlds:indoor:moving"])] == [
        "worlds",
        "worlds:indoor:moving",
    ]
    for bad in ("worlds:moon", "nowhere", "worlds:indoor:outdoor"):
        with pytest.raises(ValueError, match=bad):
            open_sources([bad])
    with pytest.raises(ValueError, match="family"):
        ClipSettings(families=("tele",))


def test_a_source_says_its_up(tmp_path, footage):
    """Poses of a world with z up, in a format that does not know it."""
    path, to_z_up = tmp_path / "walk.txt", torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]], dtype=torch.float64)
    poses = torch.from_numpy(np.load(footage / "walk.npy"))
    Trajectory(pose_matrix(to_z_up @ poses[:, :, :3], poses[:, :, 3] @ to_z_up.T), Equirectangular()).save(
        path, "kitti"
    )
    source = PanoramaSource(footage / "walk.mp4", path, up="+z", near_depth=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source.check()
    erp = source.plan(0, 12, 16.0, np.random.default_rng(0)).erp
    torch.testing.assert_close(erp[:, :3], poses)
    with pytest.warns(UserWarning, match="does not say which way is up: its first panorama is taken to be level"):
        PanoramaSource(footage / "walk.mp4", path, near_depth=1.0).check()


def test_transferred_rotations_are_used(tmp_path, footage):
    """A line of a sources file, as matching writes it: rotations by file, start fixed."""
    pan = Trajectory.pan(Equirectangular(), degrees=60, frames=4)
    np.save(tmp_path / "pan.npy", pan.c2w[:, :3].numpy())
    (tmp_path / "footage").symlink_to(footage)
    line = {"video": "footage/walk.mp4", "poses": "footage/walk.npy", "near_depth": 2.0}
    line |= {"rotations": ["pan.npy"], "start": 5, "scores": {"quality": 0.8}}
    (tmp_path / "sources.jsonl").write_text(json.dumps(line) + "\n")
    synthesize([tmp_path / "sources.jsonl"], tmp_path / "set", 1, SMALL)
    row, clip = read_metadata(tmp_path / "set").to_pylist()[0], open_dataset(tmp_path / "set").clip(0)
    assert row["start"] == 5 and clip.scores == {"quality": 0.8} and clip.variant == "original"
    assert torch.allclose(clip.camera.rotations, pan.rotations, atol=1e-6)
    assert torch.allclose(clip.camera.positions[-1, 2], torch.tensor(3 / 11 / 2).double(), atol=1e-6)
    assert len(read_frames(clip.video)) == 4
