"""The Lat-Up map: analytic values, its limit, what it says about the camera, and its edges."""

import math

import pytest
import torch
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from ucpe.encodings import lat_up_map
from ucpe.encodings.frames import token_grid
from ucpe.lenses import UCM, BrownConrady, Equidistant, Equirectangular, OmniStereo, Pinhole


def pose(pitch: float = 0.0, roll: float = 0.0, yaw: float = 0.0) -> torch.Tensor:
    """c2w (1, 4, 4) of a camera looking up by pitch and rolled clockwise by roll, degrees."""
    rotation = Rotation.from_euler("YXZ", [yaw, pitch, roll], degrees=True).as_matrix()
    c2w = torch.eye(4, dtype=torch.float64)
    c2w[:3, :3] = torch.as_tensor(rotation)
    return c2w[None]


def test_level_pinhole():
    up, latitude = lat_up_map(Pinhole(xfov=90), pose(yaw=37), 9, 15).split([2, 1], dim=-1)
    assert latitude[0, 4].abs().max() < 1e-7
    assert (latitude[0, 0] > 0).all() and (latitude[0, -1] < 0).all()
    torch.testing.assert_close(up, torch.tensor([0.0, -1]).expand_as(up), atol=1e-6, rtol=0)


def test_latitude_follows_pitch():
    for pitch in (-40, 0, 25, 80):
        centre = lat_up_map(Pinhole(xfov=60), pose(pitch=pitch), 3, 5)[0, 1, 2, 2]
        assert math.degrees(centre) == pytest.approx(pitch, abs=1e-4)


@pytest.mark.parametrize("roll", [-170, -30, 15, 90, 180])
def test_rolling_turns_up_the_other_way(roll):
    up = lat_up_map(Pinhole(xfov=60), pose(roll=roll), 5, 5)[0, 2, 2, :2]
    expected = torch.tensor([-math.sin(math.radians(roll)), -math.cos(math.radians(roll))])
    torch.testing.assert_close(up, expected, atol=1e-6, rtol=0)


def test_unit_or_zero_and_finite_for_every_lens(lens, poses):
    found = lat_up_map(lens, poses(4), 15, 17, dtype=torch.float64)
    valid = lens.rays(15, 17, dtype=torch.float64).valid.expand(4, 15, 17)
    length = found[..., :2].norm(dim=-1)
    assert torch.isfinite(found).all()
    assert (((length - 1).abs() < 1e-9) | (length == 0)).all()
    assert ((length > 0) & valid).double().mean() > 0.98 * valid.double().mean()
    assert (found[~valid] == 0).all()
    assert found[..., 2].abs().max() <= math.pi / 2


def test_small_delta_is_the_derivative_of_project(lens, poses):
    """Up is the Jacobian of `project` along the direction in which latitude grows."""
    height, width, c2w = 6, 7, poses(2)
    pixels = token_grid(height, width, "center", c2w)
    rays = lens.unproject(pixels.expand(*lens.batch_shape, *pixels.shape), height, width)
    found = lat_up_map(lens, c2w, height, width, delta=1e-5, dtype=torch.float64)
    far = 1.0 if lens.central else 1e6
    for frame in range(2):
        up = -c2w[frame, 1, :3]
        direction = rays.directions
        tangent = up - direction * (direction @ up)[..., None]
        tangent = tangent / tangent.norm(dim=-1, keepdim=True)
        derivative = torch.func.jvp(
            lambda d: lens.project(rays.origins + far * d, height, width)[0], (direction,), (tangent,)
        )[1]
        expected = derivative / derivative.norm(dim=-1, keepdim=True)
        clear = rays.valid & (derivative.norm(dim=-1) > 1e-9) & (found[frame, ..., :2].norm(dim=-1) > 0)
        assert clear.double().mean() > 0.7
        torch.testing.assert_close(found[frame, ..., :2][clear], expected[clear], atol=2e-3, rtol=0)


@pytest.mark.parametrize(("pitch", "roll"), [(12.0, -20.0), (-35.0, 7.0)])
def test_pitch_and_roll_are_recoverable(lens, pitch, roll):
    given = lat_up_map(lens, pose(pitch, roll, yaw=50), 8, 9, dtype=torch.float64)

    def residual(angles):
        return (lat_up_map(lens, pose(*angles), 8, 9, dtype=torch.float64) - given).flatten().numpy()

    found = least_squares(residual, [pitch + 4, roll - 4], loss="soft_l1")
    assert found.x == pytest.approx([pitch, roll], abs=0.01)


def test_yaw_and_position_do_not_matter(lens):
    moved = pose(10, 20, 130)
    moved[:, :3, 3] = 7
    first, second = (lat_up_map(lens, c2w, 5, 6, dtype=torch.float64) for c2w in (pose(10, 20), moved))
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


def test_up_points_at_the_zenith_within_delta_of_it():
    lens, height, width = Pinhole(xfov=30), 31, 31
    up = lat_up_map(lens, pose(pitch=90), height, width, dtype=torch.float64)[0, ..., :2]
    towards_zenith = torch.tensor([width / 2, height / 2]) - token_grid(height, width, "center", up)
    distance = towards_zenith.norm(dim=-1, keepdim=True)
    expected = torch.where(distance > 0, towards_zenith / distance.clamp(min=1e-9), 0)
    torch.testing.assert_close(up, expected, atol=1e-6, rtol=0)
    assert (up[15, 15] == 0).all()


@pytest.mark.parametrize("lens", [Equirectangular(), OmniStereo(baseline=0.2)], ids=["equirectangular", "omni_stereo"])
def test_up_is_up_in_every_row_of_a_level_panorama(lens):
    up = lat_up_map(lens, pose(), 32, 64, dtype=torch.float64)[0, ..., :2]
    torch.testing.assert_close(up, torch.tensor([0.0, -1.0], dtype=up.dtype).expand_as(up), atol=1e-6, rtol=0)


@pytest.mark.parametrize("pitch", [90, -90])
def test_gradients_are_finite_at_the_poles(pitch):
    c2w = pose(pitch=pitch).requires_grad_()
    for lens in (Pinhole(xfov=60), Equidistant(xfov=220), Equirectangular()):
        (gradient,) = torch.autograd.grad(lat_up_map(lens, c2w, 9, 9).sum(), c2w)
        assert torch.isfinite(gradient).all()


def test_gradcheck_of_pose_and_lens():
    def encode(c2w, xfov, xi):
        return lat_up_map(UCM(xfov=xfov, xi=xi), c2w, 3, 4, dtype=torch.float64)

    xfov, xi = (torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (120.0, 0.8))
    assert torch.autograd.gradcheck(encode, (pose(20, 10).requires_grad_(), xfov, xi))


def test_rays_that_turn_out_of_sight_are_turned_back():
    """At the rim of the image circle the turned ray leaves it; up continues the pattern of the inside."""
    lens = UCM(xfov=200, xi=2.3)
    found = lat_up_map(lens, pose(), 40, 40, dtype=torch.float64)[0]
    small = lat_up_map(lens, pose(), 40, 40, delta=0.004, dtype=torch.float64)[0]
    valid = lens.rays(40, 40, dtype=torch.float64).valid
    agreement = (found[..., :2] * small[..., :2]).sum(-1)[valid]
    assert (found[valid][:, :2].norm(dim=-1) > 0).all()
    assert agreement.min() > 0.9


def test_panoramas_have_no_seam():
    up = lat_up_map(Equirectangular(), pose(pitch=20, roll=30), 32, 64, dtype=torch.float64)[0, ..., :2]
    across_seam = (up[8:24, 0] * up[8:24, -1]).sum(-1)
    assert across_seam.min() > 0.9


def test_delta_in_the_paper_and_its_limit_are_close():
    lens = BrownConrady(xfov=100, k1=-0.2, k2=0.03)
    paper, limit = (lat_up_map(lens, pose(10, 20), 8, 9, delta=delta)[..., :2] for delta in (0.1, 1e-4))
    assert 0.9 < (paper * limit).sum(-1).min() < 0.99999


def test_released_up_reproduces_the_released_formula(poses):
    """Written out as the released code computes it, in the world frame."""
    height, width, xfov, xi, delta = 6, 8, 150.0, 1.5, 0.1
    lens, c2w = UCM(xfov=xfov, xi=xi), poses(2)
    found = lat_up_map(lens, c2w, height, width, position="corner", released_up=True, dtype=torch.float64)
    grid = token_grid(height, width, "corner", c2w)
    rays = lens.unproject(grid, height, width)
    theta = math.radians(xfov / 2)
    focal = width / 2 * (math.cos(theta) + xi) / math.sin(theta)
    for frame in range(2):
        rotation = c2w[frame, :3, :3]
        d = rays.directions @ rotation.T
        k = torch.linalg.cross(d, torch.tensor([0.0, -1, 0]).double().expand_as(d))
        k = k / k.norm(dim=-1, keepdim=True)
        third = k * (k * d.sum(-1, keepdim=True)) * (1 - math.cos(delta))
        turned = d * math.cos(delta) + torch.linalg.cross(k, d) * math.sin(delta) + third
        x, y, z = (turned @ rotation).unbind(-1)
        depth = z + xi * (x * x + y * y + z * z).sqrt()
        projected = torch.stack([focal * x / depth + width / 2, focal * y / depth + height / 2], -1)
        shift = projected - grid
        expected = shift / shift.norm(dim=-1, keepdim=True) * rays.valid[..., None]
        torch.testing.assert_close(found[frame, ..., :2], expected, atol=1e-5, rtol=0)
    plain = lat_up_map(lens, c2w, height, width, position="corner", dtype=torch.float64)
    torch.testing.assert_close(plain[..., 2], found[..., 2])
    assert 1e-3 < (plain - found).abs().max() < 0.5
    with pytest.raises(ValueError, match="released_up"):
        lat_up_map(Equirectangular(), c2w, height, width, released_up=True)


def test_batches_of_lenses(poses):
    xfov = torch.tensor([[60.0, 120], [90, 150]])
    c2w = poses(2, 2)
    together = lat_up_map(UCM(xfov=xfov, xi=1.2), c2w, 4, 5)
    assert together.shape == (2, 2, 4, 5, 3)
    one = lat_up_map(UCM(xfov=xfov[1, 0], xi=1.2), c2w[1, :1], 4, 5)
    torch.testing.assert_close(together[1, :1], one)
    per_clip = lat_up_map(UCM(xfov=xfov[:, :1], xi=1.2), c2w, 4, 5)
    torch.testing.assert_close(per_clip[1, 0], together[1, 0])


@pytest.mark.parametrize("delta", [0.0, -0.1, 2.0, math.nan])
def test_delta_out_of_range(delta):
    with pytest.raises(ValueError, match="delta"):
        lat_up_map(Pinhole(xfov=90), pose(), 2, 2, delta=delta)
