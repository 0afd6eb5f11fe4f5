"""Pictures of trajectories, the shape of views, and the `ucpe trajectory` command."""

import math

import pytest
import torch

from ucpe.lenses import UCM, Equirectangular, OmniStereo, Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.frustum import frustum
from ucpe.trajectories.show import show_trajectory

PNG = b"\x89PNG"


def test_a_pinhole_view_is_a_pyramid():
    shape = frustum(Pinhole(xfov=90), 480, 640)
    expected = torch.tensor([[-1, -0.75, 1], [1, -0.75, 1], [1, 0.75, 1], [-1, 0.75, 1]], dtype=torch.float64)
    torch.testing.assert_close(shape.corners.double(), expected, atol=1e-6, rtol=0)
    assert (shape.cap[..., 2] - 1).abs().max() < 1e-6
    torch.testing.assert_close(shape.border[0], shape.border[-1])


def test_a_fisheye_view_is_a_curved_cap_as_wide_as_the_lens():
    shape = frustum(UCM(xfov=170, xi=1.5), 480, 832)
    assert (shape.cap.norm(dim=-1) - 1).abs().max() < 1e-6
    for end in (shape.row[0], shape.row[-1]):
        angle = torch.rad2deg(torch.atan2(end[:2].norm(), end[2])).item()
        assert angle == pytest.approx(85, abs=1e-3)


def test_a_view_ends_at_the_image_circle():
    xi = 2.0
    shape = frustum(UCM(xfov=200, xi=xi), 832, 832)
    angles = torch.rad2deg(torch.atan2(shape.cap[-1, :, :2].norm(dim=-1), shape.cap[-1, :, 2]))
    assert angles.max().item() == pytest.approx(math.degrees(math.acos(-1 / xi)), abs=0.1)
    assert torch.isfinite(shape.cap).all()


TRAJECTORIES = {
    "one frame": Trajectory.static(Pinhole(xfov=60), frames=1),
    "still": Trajectory.static(Equirectangular(), frames=5),
    "turning over the top": Trajectory.tilt(UCM(xfov=180, xi=2.0), degrees=180),
    "lens that changes": Trajectory.dolly_zoom(Pinhole(xfov=100)),
    "non-central lens": Trajectory.truck(OmniStereo(), frames=3),
    "float32": Trajectory.orbit(UCM(xfov=150, xi=1.2)).to(torch.float32),
}


@pytest.mark.parametrize("trajectory", TRAJECTORIES.values(), ids=TRAJECTORIES.keys())
def test_every_kind_of_trajectory_is_drawn(tmp_path, trajectory):
    show_trajectory(trajectory, tmp_path / "a.png", views=3)
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    show_trajectory(trajectory, tmp_path / "a.html", views=3, title="turn me")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "turn me" in page and "Plotly" in page and '<script src="http' not in page


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shown as"):
        show_trajectory(TRAJECTORIES["still"], tmp_path / "a.gif")
