"""`ucpe synthesize`: clips of worlds, made once, and settings that are refused before anything is filmed."""

import pytest

from ucpe.cli.synthesize import main
from ucpe.synthesis.dataset import open_dataset

SIZE = ["--frames", "2", "--height", "32", "--width", "56"]


def test_clips_are_made_once(tmp_path, capsys):
    command = ["worlds:outdoor", "-o", str(tmp_path / "set"), "--clips", "2", "--families", "fisheye", *SIZE]
    for made in (2, 0):
        main(command)
        assert f"2 clips, {made} of them made now" in capsys.readouterr().out
    clips = open_dataset(tmp_path / "set")
    assert clips.families() == ["fisheye"] * 2 and clips.video(0).shape == (2, 32, 56, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--families", "tele"], "no lens family 'tele'"),
        (["--height", "33"], "even height and width"),
        (["--panning", "wild"], "invalid choice 'wild'"),
        (["--caption-url", "http://localhost"], "--caption-url needs --caption-model"),
    ],
)
def test_impossible_settings_are_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(["worlds", "-o", str(tmp_path / "x"), *options])
    assert not (tmp_path / "x").exists()
