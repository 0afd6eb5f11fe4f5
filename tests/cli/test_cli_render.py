"""`ucpe render`."""

import numpy as np
import pytest
from tests.synthesis.test_synthesis_footage import footage  # noqa: F401

from ucpe.cli.render import main
from ucpe.lenses import UCM, Pinhole
from ucpe.synthesis.footage import Footage, Shot, film
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.trajectories import Trajectory
from ucpe.video import probe_video, read_frames


def test_several_lenses_at_once(tmp_path, footage, capsys):  # noqa: F811
    size = ["--height", "64", "--width", "96"]
    main([str(footage), "--lens", "fisheye,wide", "--move", "pan", "-o", str(tmp_path / "out.mp4"), *size])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-fisheye.mp4", "out-wide.mp4"]
    assert probe_video(tmp_path / "out-wide.mp4").frames == 10
    assert "out-fisheye.mp4" in capsys.readouterr().out


def test_it_takes_the_lens_of_a_path_file(tmp_path, footage):  # noqa: F811
    lens = UCM(xfov=150, xi=1.0)
    camera = Trajectory.pan(lens, degrees=20, frames=10, fps=probe_video(footage).fps)
    camera.save(tmp_path / "path.json")
    size = ["--height", "64", "--width", "96"]
    main([str(footage), "--camera", str(tmp_path / "path.json"), "-o", str(tmp_path / "file.mp4"), *size])
    shot = Shot(tmp_path / "own.mp4", lens, camera.rotations.numpy(), 64, 96, camera.fps)
    film(Footage(footage), [shot], range(10))
    np.testing.assert_array_equal(read_frames(tmp_path / "file.mp4"), read_frames(tmp_path / "own.mp4"))


def test_it_writes_stills_and_refuses_other_suffixes(tmp_path, footage, capsys):  # noqa: F811
    size = ["--height", "64", "--width", "96"]
    for yaw in (0, 90):
        main([str(footage), "--yaw", str(yaw), "--start", "0.1", "-o", str(tmp_path / f"{yaw}.png"), *size])
        picture = Panorama(read_frames(footage, 3, 1)[0])
        turn = Trajectory.static(Pinhole(xfov=100), yaw=yaw).rotations[0]
        expected = View(Pinhole(xfov=100), 64, 96).picture(picture, turn)
        assert np.abs(Panorama.open(tmp_path / f"{yaw}.png").levels[0].astype(int) - expected).mean() < 2
    for name in ("out.avi", "out"):
        with pytest.raises(ValueError, match=r"videos are \.mp4"):
            main([str(footage), "-o", str(tmp_path / name), *size])
    with pytest.raises(ValueError, match="one picture"):
        main([str(footage), "--frames", "3", "-o", str(tmp_path / "3.png"), *size])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "90.png"]


def test_it_ends_where_damaged_footage_does(tmp_path, footage, capsys):  # noqa: F811
    whole = footage.read_bytes()
    (tmp_path / "short.mp4").write_bytes(whole[: int(len(whole) * 0.8)])
    main([str(tmp_path / "short.mp4"), "-o", str(tmp_path / "out.mp4"), "--height", "64", "--width", "96"])
    written = len(read_frames(tmp_path / "out.mp4"))
    assert 1 <= written < 10
    assert f"only {written} can be decoded" in capsys.readouterr().err
