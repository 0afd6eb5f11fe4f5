"""How footage is laid out, told by its content, on rendered worlds and on real footage where it is there."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ucpe.lenses import Pinhole
from ucpe.synthesis.curation import ProjectionCheck
from ucpe.synthesis.footage import Footage
from ucpe.synthesis.layouts import cube_edges_alike, recognize_layout, seam
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames, write_video

FOOTAGE = Path(__file__).resolve().parents[2] / "../shared/data/footage"
VIDEO = FOOTAGE / "pano_189_in_header_188_in_stream.mp4"
PHOTO = FOOTAGE / "equirectangular_photo.jpg"
with_footage = pytest.mark.skipif(not VIDEO.is_file() or not PHOTO.is_file(), reason="no real footage here")


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


def check_all_layouts(panoramas: list[np.ndarray]) -> None:
    """Every layout of each panorama is recognised, and nothing else in it."""
    for number, panorama in enumerate(panoramas):
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


def test_every_layout_of_a_world_is_recognised(panoramas):
    check_all_layouts(panoramas)


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


@with_footage
def test_every_layout_of_real_footage_is_recognised():
    photo = Panorama.open(PHOTO).levels[0]
    check_all_layouts([resized(photo, 960, 480), resized(read_frames(VIDEO, 90, 1)[0], 960, 480)])


@with_footage
def test_a_header_that_promises_too_much(tmp_path, capsys):
    from ucpe.cli.render import main

    footage = Footage(VIDEO)
    assert (footage.info.fps, footage.info.frames, footage.frames) == (25.0, 189, 188)
    assert footage.frame_numbers()[-1] == 187
    size = ["--height", "32", "--width", "48"]
    main([str(VIDEO), "--start", "7.2", "-o", str(tmp_path / "end.mp4"), *size])
    assert len(read_frames(tmp_path / "end.mp4")) == 8
    notes = capsys.readouterr().err
    assert "189 frames, 188 can be decoded" in notes and "squeezed" in notes
