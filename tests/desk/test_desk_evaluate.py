import pytest
from recipes.desk.evaluate import constant_guess

from ucpe.lenses import FAMILIES
from ucpe.trajectories import Trajectory


def test_the_constant_guess_is_right_only_where_cameras_agree():
    level = Trajectory.pan(FAMILIES["wide"].typical(), degrees=30, frames=17, fps=8)
    tilted = Trajectory.pan(FAMILIES["wide"].typical(), degrees=30, frames=17, fps=8, pitch=20)
    alone = constant_guess([level])
    assert alone["PitchErr"] == pytest.approx(0, abs=1e-6) and alone["XFoVErr"] == pytest.approx(0, abs=1e-6)
    assert alone["RotErr"] == pytest.approx(15, abs=2)
    assert constant_guess([level, tilted])["PitchErr"] == pytest.approx(10, abs=1e-3)
