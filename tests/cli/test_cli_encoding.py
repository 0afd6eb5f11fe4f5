"""`ucpe encoding show` draws what it is asked for, through any lens."""

import matplotlib.image
import pytest

from ucpe.cli.encoding import main
from ucpe.lenses import Pinhole


@pytest.mark.parametrize("name", ["plucker", "raw"])
def test_command_draws(name, tmp_path, capsys):
    path = tmp_path / "new" / f"{name}.png"
    main(["show", name, "-o", str(path)])
    picture = matplotlib.image.imread(path)
    assert picture.shape[1] == 1320
    assert picture[..., :3].std() > 0.05
    assert str(path) in capsys.readouterr().out
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_lens_of_ones_own(tmp_path):
    pictures = []
    for xfov in ("50", "90"):
        main(["show", "frames", "--lens", "pinhole", "--xfov", xfov, "-o", str(tmp_path / "own.png")])
        pictures.append(matplotlib.image.imread(tmp_path / "own.png"))
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).any(-1).mean() > 0.01, "another lens is another picture"


def test_a_calibration_of_another_shape_is_cut_aloud(tmp_path):
    Pinhole(fx=400, width=640, height=480).save(tmp_path / "lens.yaml")
    with pytest.warns(UserWarning, match="lens.yaml: a calibration of 640 x 480 for images of 50 x 30: 96 of its 480 "):
        main(["show", "raw", "--lens", str(tmp_path / "lens.yaml"), "-o", str(tmp_path / "raw.png")])
