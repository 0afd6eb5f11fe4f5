import hashlib
import os
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from ucpe.lenses import UCM, Pinhole
from ucpe.synthesis.footage import Footage, Shot, film
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.trajectories import Trajectory
from ucpe.video import VideoError, VideoWriter, probe_video, read_frames, read_video, write_video


def moving_panorama(frames: int = 10, height: int = 128) -> np.ndarray:
    """A textured panorama that turns by 8 pixels a frame, and gets brighter so that frames differ."""
    generator = torch.Generator().manual_seed(2)
    fine, broad = (
        torch.nn.functional.interpolate(
            torch.randn(1, channels, height // step, 2 * height // step, generator=generator),
            size=(height, 2 * height),
            mode="bicubic",
        )
        for step, channels in ((8, 1), (32, 3))
    )
    picture = (100 + 30 * fine + 25 * broad)[0].permute(1, 2, 0).numpy()
    return np.stack([np.roll(picture, 8 * n, 1) + 5 * n for n in range(frames)]).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def footage(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("footage") / "pano.mp4"
    write_video(path, moving_panorama(), 30, crf=8)
    return path


def test_video_round_trip_is_close_and_repeatable(tmp_path):
    frames = moving_panorama(6)
    for name in ("first.mp4", "second.mp4"):
        info = write_video(tmp_path / name, frames, 16)
    assert (info.height, info.width, info.fps, info.frames) == (128, 256, 16.0, 6)
    assert np.abs(read_frames(tmp_path / "first.mp4").astype(int) - frames).mean() < 2
    assert (tmp_path / "first.mp4").read_bytes() == (tmp_path / "second.mp4").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.mp4", "second.mp4"]


def test_encoding_does_not_depend_on_memory(tmp_path):
    """The bytes are those of a fresh process, whatever this one has allocated before."""
    script = (
        "import sys, numpy as np\n"
        "from ucpe.video import write_video\n"
        "frames = np.random.default_rng(0).integers(0, 255, (12, 48, 80, 3), dtype=np.uint8)\n"
        "frames = np.cumsum(frames // 12, 0, dtype=np.uint8)\n"
        "junk = [np.random.default_rng(n).integers(0, 255, 4000 * n) for n in range(int(sys.argv[2]))]\n"
        "write_video(sys.argv[1], frames, 16)\n"
    )
    hashes = set()
    for junk in (0, 30):
        path = tmp_path / f"{junk}.mp4"
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
        subprocess.run([sys.executable, "-c", script, str(path), str(junk)], check=True, env=environment)
        hashes.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(hashes) == 1


@pytest.mark.parametrize("start", [0, 1, 4, 9])
def test_reading_starts_at_the_frame_asked_for(footage, start):
    whole = read_frames(footage)
    part = list(read_video(footage, start=start, frames=3))
    assert [frame.index for frame in part] == list(range(10))[start : start + 3]
    assert all(np.array_equal(frame.rgb, whole[frame.index]) for frame in part)


def test_planes_are_the_files_own(footage):
    frame = next(read_video(footage))
    luma, blue, red, full_range = frame.planes
    assert luma.shape == (128, 256) and blue.shape == red.shape == (64, 128) and not full_range
    r, g, b = np.moveaxis(frame.rgb.astype(float), -1, 0)
    expected = 16 + 219 / 255 * (0.2126 * r + 0.7152 * g + 0.0722 * b)
    assert np.abs(luma - expected)[2:-2, 2:-2].mean() < 1.5


def test_memory_does_not_grow_with_length(tmp_path):
    pictures = moving_panorama(4)
    peaks = []
    for length in (8, 64):
        path = tmp_path / f"{length}.mp4"
        tracemalloc.start()
        write_video(path, (pictures[n % 4] for n in range(length)), 16, preset="ultrafast")
        assert sum(frame.planes.luma[0, 0] >= 0 for frame in read_video(path)) == length
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_nothing_is_left_of_a_video_that_fails(tmp_path):
    def frames():
        yield moving_panorama(1)[0]
        raise RuntimeError("camera fell")

    with pytest.raises(RuntimeError, match="camera fell"):
        write_video(tmp_path / "clip.mp4", frames(), 16)
    assert list(tmp_path.iterdir()) == []


def test_bad_videos_are_named(tmp_path, footage):
    whole = footage.read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2][100:])
    (tmp_path / "text.mp4").write_text("not a video")
    for name in ("cut.mp4", "text.mp4", "none.mp4"):
        with pytest.raises(VideoError, match=name):
            list(read_video(tmp_path / name))
    with pytest.raises(ValueError, match="even"):
        VideoWriter(tmp_path / "odd.mp4", 33, 64, 16)
    with pytest.raises(ValueError, match="uint8"):
        write_video(tmp_path / "float.mp4", np.zeros((1, 32, 32, 3)), 16)
    with pytest.raises(ValueError, match="no frames"):
        write_video(tmp_path / "none.mp4", [], 16)


def test_footage_that_ends_early_is_reported_and_leaves_no_file(tmp_path, footage):
    whole = footage.read_bytes()
    (tmp_path / "short.mp4").write_bytes(whole[: int(len(whole) * 0.6)])
    shot = Shot(tmp_path / "out.mp4", Pinhole(xfov=90), np.tile(np.eye(3), (10, 1, 1)), 64, 96)
    with pytest.raises(ValueError, match=r"short\.mp4"):
        film(Footage(tmp_path / "short.mp4"), [shot], range(10))
    assert not (tmp_path / "out.mp4").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("threads", [1, 2])
def test_every_shot_is_the_view_of_its_frame(tmp_path, footage, threads):
    lenses = [Pinhole(xfov=90), UCM(xfov=190, xi=2.0)]
    rotations = Trajectory.pan(lenses[0], degrees=90, frames=5).rotations.numpy()
    numbers = [0, 2, 4, 6, 9]
    shots = [Shot(tmp_path / f"{threads}-{n}.mp4", lens, rotations, 64, 96, 12.0) for n, lens in enumerate(lenses)]
    ticks: list[int] = []
    film(Footage(footage), shots, numbers, crf=4, threads=threads, progress=lambda: ticks.append(1))
    assert len(ticks) == 5
    source = read_frames(footage)
    for shot, lens in zip(shots, lenses):
        assert probe_video(shot.path).fps == 12.0
        view = View(lens, 64, 96)
        for frame, number, rotation in zip(read_frames(shot.path), numbers, rotations):
            expected = view.picture(Panorama(source[number]), rotation)
            assert np.abs(frame.astype(int) - expected).mean() < 3


def test_a_lens_that_zooms_and_a_still_image(tmp_path):
    from PIL import Image

    Image.fromarray(moving_panorama(1)[0]).save(tmp_path / "still.png")
    camera = Trajectory.zoom(Pinhole(xfov=100), factor=2, frames=4)
    still = Footage(tmp_path / "still.png")
    film(
        still,
        [Shot(tmp_path / "zoom.mp4", camera.lens, camera.rotations.numpy(), 64, 96)],
        still.frame_numbers(4),
        crf=4,
    )
    frames = read_frames(tmp_path / "zoom.mp4")
    expected = View(camera.lens[3], 64, 96).picture(Panorama.open(tmp_path / "still.png"), np.eye(3))
    assert np.abs(frames[3].astype(int) - expected).mean() < 3
    assert np.abs(frames[3].astype(int) - frames[0]).mean() > 5


def test_frame_numbers_follow_time(footage):
    panorama = Footage(footage)  # 10 frames at 30 fps
    assert panorama.frame_numbers() == list(range(10))
    assert panorama.frame_numbers(fps=15) == [0, 2, 4, 6, 8]
    assert panorama.frame_numbers(3, 15, start=0.1) == [3, 5, 7]
    with pytest.raises(ValueError, match="fewer frames"):
        panorama.frame_numbers(6, 15)
    with pytest.raises(ValueError, match="start"):
        panorama.frame_numbers(start=2.0)
    for wrong in ({"fps": 0}, {"frames": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            panorama.frame_numbers(**wrong)


@pytest.mark.parametrize("container", ["mkv", "mp4"])
def test_rates_come_from_time_stamps(tmp_path, container):
    """A container whose rate is that of ticks, not of frames."""
    import av

    path = tmp_path / f"clip.{container}"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        for number in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((32, 64, 3), 10 * number, np.uint8), format="rgb24")
            frame.pts, frame.time_base = 2 * number, Fraction(1, 30)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    assert probe_video(path).fps == pytest.approx(15, rel=1e-3)
    part = list(read_video(path, start=7, frames=3))
    assert [frame.index for frame in part] == [7, 8, 9]
    assert [int(frame.rgb.mean()) for frame in part] == pytest.approx([70, 80, 90], abs=3)
