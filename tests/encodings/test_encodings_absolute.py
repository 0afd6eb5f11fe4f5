"""Pluecker rays and raw parameters."""

import pytest
import torch

from ucpe.encodings import plucker_rays, raw_parameters
from ucpe.lenses import UCM, Equirectangular, OmniStereo, Pinhole


def test_plucker_coordinates_are_those_of_the_lines(lens, poses):
    c2w = poses(3)
    found = plucker_rays(lens, c2w, 4, 5, dtype=torch.float64)
    direction, moment = found.split(3, dim=-1)
    rays = lens.rays(4, 5, dtype=torch.float64)
    for frame in range(3):
        for v, u in ((0, 0), (1, 3), (3, 4)):
            expected = c2w[frame, :3, :3] @ rays.directions[v, u] * rays.valid[v, u]
            torch.testing.assert_close(direction[frame, v, u], expected)
            origin = c2w[frame, :3, :3] @ rays.origins[v, u] + c2w[frame, :3, 3]
            for along in (0.0, 3.0):  # any point of the line gives the same moment
                point = origin + along * expected
                torch.testing.assert_close(moment[frame, v, u], torch.linalg.cross(point, expected))


def test_per_pixel_and_per_token():
    c2w = torch.eye(4)[None]
    pixels, tokens = (plucker_rays(Pinhole(xfov=90), c2w, *size) for size in ((9, 15), (3, 5)))
    assert pixels.shape == (1, 9, 15, 6)
    torch.testing.assert_close(pixels[:, 1::3, 1::3], tokens)


def test_zero_without_a_ray(poses):
    lens = UCM(xfov=200, xi=2.3)
    found = plucker_rays(lens, poses(2), 8, 8)
    valid = lens.rays(8, 8).valid
    assert (found[:, ~valid] == 0).all()
    torch.testing.assert_close(found[:, valid][..., :3].norm(dim=-1), torch.ones(2, int(valid.sum())))


def test_non_central_origins_enter_the_moment():
    c2w = torch.eye(4)[None]
    assert plucker_rays(Equirectangular(), c2w, 4, 8)[..., 3:].abs().max() == 0
    stereo = plucker_rays(OmniStereo(baseline=0.5), c2w, 4, 8)[..., 3:]
    torch.testing.assert_close(stereo.norm(dim=-1), torch.full((1, 4, 8), 0.25))


def test_raw_parameters(poses):
    c2w = poses(2, 3)
    found = raw_parameters(UCM(xfov=torch.tensor([90.0, 120, 150]), xi=0.7), c2w, 480, 832)
    assert found.shape == (2, 3, 14)
    torch.testing.assert_close(found[1, 2, :12].double(), c2w[1, 2, :3].flatten(), atol=1e-6, rtol=0)
    torch.testing.assert_close(found[0, :, 12], torch.tensor([90.0, 120, 150]) / 180)
    assert (found[..., 13] == torch.tensor(0.7)).all()


def test_raw_parameters_of_a_calibration():
    lens = Pinhole(fx=416, width=832, height=480)
    found = raw_parameters(lens, torch.eye(4)[None], 30, 52)
    torch.testing.assert_close(found[0, 12:], torch.tensor([0.5, 0.0]), atol=1e-5, rtol=0)


def test_raw_parameters_of_another_model():
    with pytest.raises(ValueError, match=r"lens.fit\(UCM\)"):
        raw_parameters(Equirectangular(), torch.eye(4)[None], 30, 52)


def test_gradcheck(poses):
    def encode(c2w, xi):
        return plucker_rays(UCM(xfov=150, xi=xi), c2w, 2, 3, dtype=torch.float64)

    xi = torch.tensor([1.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encode, (poses(2).requires_grad_(), xi))
