"""How footage is laid out, told by its content, on rendered worlds and on real footage where it is there."""

from __future__ import annotations

import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest

from ucpe.lenses import Pinhole
from ucpe.synthesis.curation.projection import ProjectionCheck
from ucpe.synthesis.footage import Footage
from ucpe.synthesis.layouts import cube_edges_alike, recognize_layout, seam
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.synthesis.sources import open_sources
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames, write_video

FOOTAGE = Path(__file__).resolve().parents[2] / "../shared/data/footage"
VIDEO = FOOTAGE / "pano_189_in_header_188_in_stream.mp4"
PHOTO = FOOTAGE / "equirectangular_photo.jpg"
REAL = VIDEO.is_file() and PHOTO.is_file()
"""Whether real footage is here, which is then looked at beside what is rendered."""


def resized(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def cubemap(panorama: np.ndarray, width: int = 540, height: int = 360) -> np.ndarray:
    """An equi-angular cubemap, face by face: left, front, right; then down, back, up with the left at the bottom."""
    wide, high = width // 3, height // 2
    along, down = np.meshgrid((np.arange(wide) + 0.5) / wide * 2 - 1, (np.arange(high) + 0.5) / high * 2 - 1)
    u, v, one = np.tan(along * np.pi / 4), np.tan(down * np.pi / 4), np.ones_like(along)
    faces = [[(-one, v, u), (u, v, one), (one, v, -u)], [(-v, one, -u), (-v, -u, -one), (-v, -one, u)]]
    strips = []
    for row in faces:
        strip = []
        for x, y, z in row:
            column = (np.arctan2(x, z) / (2 * np.pi) + 0.5) * panorama.shape[1] - 0.5
            line = (np.arctan2(y, np.hypot(x, z)) / np.pi + 0.5) * panorama.shape[0] - 0.5
            maps = column.astype(np.float32), line.astype(np.float32)
            strip.append(cv2.remap(panorama, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP))
        strips.append(np.concatenate(strip, 1))
    return np.concatenate(strips)


def test_curation_names_a_cubemap(panoramas):
    check, whole = ProjectionCheck(), {"border": 0.0, "stereo": 0.0, "height": 360, "width": 640}
    for panorama in panoramas:
        cube = cube_edges_alike(cubemap(panorama).astype(np.float32))
        assert check.verdict({**whole, "cube": cube}).startswith("cubemap: make it equirectangular first")
        flat = {**whole, "cube": cube_edges_alike(panorama.astype(np.float32)), "seam": 0.0, "poles": 0.0}
        assert check.verdict(flat) == ""


@pytest.fixture(scope="module")
def panoramas(scenes) -> list[np.ndarray]:
    return [scene.frames[0] for scene in scenes.values()]


def test_every_layout_is_recognised_and_nothing_else(panoramas):
    shot = [Panorama.open(PHOTO).levels[0], read_frames(VIDEO, 90, 1)[0]] if REAL else []
    for number, panorama in enumerate([*panoramas, *(resized(picture, 960, 480) for picture in shot)]):
        other = np.roll(panorama, 3, 1)
        above, beside = np.concatenate([panorama, other]), np.concatenate([panorama, other], 1)
        for name, picture, expected in (
            ("2:1", panorama, ("equirectangular", "mono")),
            ("squeezed", resized(panorama, 640, 360), ("equirectangular", "mono")),
            ("square", above, ("equirectangular", "top-bottom")),
            ("4:1", beside, ("equirectangular", "side-by-side")),
            ("top-bottom 16:9", resized(above, 640, 360), ("equirectangular", "top-bottom")),
            ("side-by-side 2:1", resized(beside, 640, 320), ("equirectangular", "side-by-side")),
            ("cubemap 3:2", cubemap(panorama), ("eac", "mono")),
            ("cubemap 16:9", resized(cubemap(panorama), 960, 540), ("eac", "mono")),
        ):
            layout = recognize_layout([picture])
            assert layout[:2] == expected, (number, name)
            assert bool(layout.note) == (name != "2:1")


def test_flat_pictures_are_refused_unless_told(panoramas):
    refused = 0
    for panorama in panoramas:
        turn = Trajectory.static(Pinhole(xfov=90), yaw=35).rotations[0]  # straight ahead, rooms are symmetric
        flat = View(Pinhole(xfov=90), 360, 640).picture(Panorama(panorama), turn)
        assert cube_edges_alike(flat.astype(np.float32)) < 0.3
        try:
            recognize_layout([flat])
        except ValueError as error:
            assert "--projection" in str(error)
            refused += 1
        assert recognize_layout([flat], "equirectangular", "mono").projection == "equirectangular"
    assert refused >= len(panoramas) - 1


def test_a_step_in_brightness_and_an_offset_at_the_seam_are_no_missing_seam(panoramas):
    for panorama in panoramas:
        gain = np.linspace(0.85, 1.15, panorama.shape[1])[:, None]
        stepped = (panorama * gain).clip(0, 255).astype(np.float32)
        assert seam(stepped) < 1 < 0.7 * seam(np.ascontiguousarray(stepped[:, 90:280])) or seam(stepped) < 0.5
        moved = panorama.astype(np.float32)
        moved[:, :40] = np.roll(moved[:, :40], 2, 0)
        assert seam(moved) < 1


def test_the_left_eye_is_filmed(tmp_path, panoramas):
    frames = np.stack([np.concatenate([panoramas[0], 255 - np.roll(panoramas[0], 5, 1)])] * 3)
    write_video(tmp_path / "both.mp4", frames, 10, crf=4)
    footage = Footage(tmp_path / "both.mp4", stereo="top-bottom")
    luma = next(footage.planes([0]))[0].levels[0]
    assert luma.shape == panoramas[0].shape[:2]
    assert np.abs(luma.astype(int) - (16 + 219 / 255 * panoramas[0] @ [0.2126, 0.7152, 0.0722])).mean() < 3


def test_a_source_says_how_its_layout_is_told(tmp_path, panoramas):
    write_video(tmp_path / "both.mp4", np.stack([np.concatenate([panoramas[0], np.roll(panoramas[0], 5, 1)])] * 3), 10)
    with pytest.warns(UserWarning, match=r"top-bottom .* \(ucpe synthesize: these fields in NAME\.source\.json\)"):
        open_sources([tmp_path / "both.mp4"])[0].check()
    (tmp_path / "both.source.json").write_text('{"projection": "equirectangular", "stereo": "top-bottom"}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_sources([tmp_path / "both.mp4"])[0].check()


def check_overcounted(video: Path, frames: int, folder: Path, capsys) -> None:
    """A header that counts one frame more than there is, at 25 frames a second; the last eight are rendered."""
    from ucpe.cli.render import main

    footage = Footage(video)
    assert (footage.info.fps, footage.info.frames, footage.frames) == (25.0, frames + 1, frames)
    assert footage.frame_numbers()[-1] == frames - 1
    size = ["--height", "32", "--width", "48"]
    main([str(video), "--start", str((frames - 8) / 25), "-o", str(folder / "end.mp4"), *size])
    assert len(read_frames(folder / "end.mp4")) == 8
    notes = capsys.readouterr().err
    assert f"{frames + 1} frames, but only {frames} can be decoded" in notes and "squeezed" in notes


def test_a_header_that_promises_too_much(tmp_path, capsys, panoramas):
    video = tmp_path / "promises.mp4"
    write_video(video, np.stack([resized(np.roll(panoramas[0], i, 1), 640, 360) for i in range(12)]), 25)
    data = bytearray(video.read_bytes())
    count = data.index(b"stts") + 12  # samples of the first, and only, duration in the header
    data[count : count + 4] = (int.from_bytes(data[count : count + 4], "big") + 1).to_bytes(4, "big")
    video.write_bytes(data)
    check_overcounted(video, 12, tmp_path, capsys)
    if REAL:
        check_overcounted(VIDEO, 188, tmp_path, capsys)
