"""`ucpe trajectory`."""

import pytest

from ucpe.cli.trajectory import main
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory

PNG = b"\x89PNG"


def test_show(tmp_path, capsys):
    picture = tmp_path / "deep/orbit.png"
    main(
        ["show", "orbit", "--lens", "fisheye", "--degrees", "90", "--pitch", "-10", "--frames", "9", "-o", str(picture)]
    )
    assert picture.read_bytes().startswith(PNG)
    assert str(picture) in capsys.readouterr().out
    with pytest.raises(ValueError, match="neither a file nor a move; moves are static"):
        main(["show", "moonwalk", "-o", str(picture)])
    with pytest.raises(ValueError, match=r"move 'orbit' takes degrees, radius, .* not factor"):
        main(["show", "orbit", "--factor", "3"])


def test_convert(tmp_path):
    source, target = tmp_path / "a.json", tmp_path / "b.txt"
    Trajectory.dolly(Pinhole(xfov=90), distance=2, frames=5, fps=4).save(source)
    main(["convert", str(source), str(target), "--format", "tum", "--frames", "9", "--scale", "0.5"])
    read = Trajectory.load(target)
    assert len(read) == 9 and read.fps == pytest.approx(8)
    assert read.positions[-1, 2].item() == pytest.approx(1)
    main(["convert", str(target), str(tmp_path / "c.json"), "--lens", "wide", "--xfov", "120"])
    assert Trajectory.load(tmp_path / "c.json").lens.parameters["xfov"].item() == 120
    with pytest.raises(ValueError, match="is for a move"):
        main(["show", str(source), "--degrees", "3"])
