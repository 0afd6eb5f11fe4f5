"""Lines of latitude against the rays of the pixels they pass through."""

import math

import pytest
import torch

from ucpe.encodings.latitudes import latitude_lines
from ucpe.lenses import lens_by_name
from ucpe.trajectories import Trajectory


@pytest.mark.parametrize("name", ["pinhole", "fisheye", "extreme-fisheye", "kannala_brandt", "equirectangular"])
def test_every_point_of_a_line_has_its_latitude(name):
    lens = lens_by_name(name)
    c2w = Trajectory.static(lens, frames=1, pitch=-20, yaw=35, roll=14).c2w[0]
    lines = latitude_lines(lens, c2w, 90, 160)
    assert lines[0]
    for level, pieces in lines.items():
        for piece in pieces:
            inside = torch.from_numpy(piece)
            inside = inside[((inside > 0) & (inside < torch.tensor([160.0, 90.0]))).all(-1)]
            rays = lens.unproject(inside, 90, 160)
            up = -(rays.directions.double() @ c2w[:3, :3].T)[:, 1]
            assert torch.allclose(up, torch.full_like(up, math.sin(math.radians(level))), atol=1e-5)


def test_a_panoramas_lines_do_not_jump_over_its_seam():
    lens = lens_by_name("equirectangular")
    pieces = latitude_lines(lens, torch.eye(4).double(), 90, 180, levels=(0,))[0]
    longest = max(abs(piece[1:] - piece[:-1]).max() for piece in pieces)
    assert longest < 2 and sum(len(piece) for piece in pieces) > 300
