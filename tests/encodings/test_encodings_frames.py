"""Ray frames: always rotations, the paper's axes where those exist, differentiable everywhere."""

import math

import pytest
import torch

from ucpe.encodings import ray_frames, world_rays
from ucpe.lenses import UCM, Equidistant, Equirectangular, OmniStereo, Pinhole

FRAMES = ["paper", "transport"]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_is_a_rotation_whose_z_axis_is_the_ray(lens, frame, poses):
    c2w = poses(3)
    transform, valid = ray_frames(lens, c2w, 7, 9, frame=frame)
    rays = world_rays(lens, c2w, 7, 9)
    rotation = transform[..., :3, :3]
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3).double().expand_as(rotation), atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.linalg.det(rotation), torch.ones(3, 7, 9).double())
    torch.testing.assert_close(rotation[valid][..., 2], rays.directions[valid], atol=1e-12, rtol=0)
    torch.testing.assert_close(transform[valid][..., :3, 3], rays.origins[valid], atol=1e-12, rtol=0)
    torch.testing.assert_close(valid, lens.rays(7, 9, dtype=torch.float64).valid.expand(3, 7, 9))


@pytest.mark.parametrize("frame", FRAMES)
def test_inverse_transform(lens, frame, poses):
    frames = ray_frames(lens, poses(2, distance=30), 4, 5, frame=frame)
    identity = torch.eye(4).double().expand_as(frames.ray_to_world)
    torch.testing.assert_close(frames.world_to_ray @ frames.ray_to_world, identity, atol=1e-12, rtol=0)


def test_paper_axes_in_the_world(poses):
    c2w = poses(2)
    transform, _ = ray_frames(UCM(xfov=130, xi=0.7), c2w, 5, 6)
    x, y, z = transform[..., :3, :3].unbind(-1)
    expected = torch.linalg.cross(c2w[:, None, None, :3, 1].expand_as(z), z)
    torch.testing.assert_close(x, expected / expected.norm(dim=-1, keepdim=True))
    torch.testing.assert_close(y, torch.linalg.cross(z, x))


def test_transport_is_the_smallest_rotation_to_the_ray():
    lens = Equidistant(xfov=300)
    transform, valid = ray_frames(lens, torch.eye(4)[None], 20, 20, frame="transport")
    rotation = transform[0, ..., :3, :3]
    turned = torch.arccos(((rotation.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-1, 1))
    off_axis = torch.arccos(rotation[..., 2, 2].clamp(-1, 1))
    torch.testing.assert_close(turned[valid[0]], off_axis[valid[0]], atol=1e-6, rtol=0)


def test_transport_does_not_flip_past_a_right_angle_where_the_paper_frame_does():
    lens = Equidistant(xfov=240)
    flips = {}
    for frame in FRAMES:
        x = ray_frames(lens, torch.eye(4)[None], 63, 63, frame=frame).ray_to_world[0, :, 31, :3, 0]
        flips[frame] = (x[1:] * x[:-1]).sum(-1).min().item()
    assert flips["paper"] < -0.9
    assert flips["transport"] > 0.99


def test_a_ray_straight_up_falls_back_to_the_camera_x_axis():
    lens = Equirectangular(xfov=1e-3, top=90, bottom=90 - 1e-3)
    transform, valid = ray_frames(lens, torch.eye(4)[None], 1, 1)
    assert valid.all()
    right, forward, up = [1.0, 0, 0], [0.0, 0, 1], [0.0, -1, 0]
    expected = torch.tensor([right, forward, up]).double().mT
    torch.testing.assert_close(transform[0, 0, 0, :3, :3], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", ["ucm[200, 2.3]", "equidistant[220]", "equirectangular", "omni_stereo", "pinhole[90]"])
def test_gradients_are_finite_at_poles_past_180_degrees_and_without_rays(lenses, name, frame, poses):
    c2w = poses(1).requires_grad_()
    transform = ray_frames(lenses[name], c2w, 9, 9, frame=frame).ray_to_world
    (gradient,) = torch.autograd.grad((transform * torch.randn_like(transform)).sum(), c2w)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("direction", [[0.0, 1, 0], [0, -1, 0], [0, 0, -1], [0, 0, 1], [1e-5, 1, 1e-5], [1e-9, 0, -1]])
@pytest.mark.parametrize("frame", FRAMES)
def test_lens_gradients_are_finite_at_the_singular_directions(direction, frame):
    from ucpe.encodings.frames import _paper_axes, _transport_axes

    axes = _paper_axes if frame == "paper" else _transport_axes
    ray = torch.tensor(direction, dtype=torch.float64)
    ray = (ray / ray.norm()).requires_grad_()
    rotation = axes(ray)
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3).double(), atol=1e-9, rtol=0)
    assert math.isclose(torch.linalg.det(rotation).item(), 1, abs_tol=1e-9)
    (gradient,) = torch.autograd.grad((rotation * torch.randn(3, 3)).sum(), ray)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("frame", FRAMES)
def test_gradcheck_of_pose_and_lens(frame, poses):
    def frames(c2w, xfov, xi):
        return ray_frames(UCM(xfov=xfov, xi=xi), c2w, 2, 3, frame=frame).ray_to_world

    xfov, xi = (torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (150.0, 1.4))
    assert torch.autograd.gradcheck(frames, (poses(2).requires_grad_(), xfov, xi))


def test_non_central_rays_start_off_the_camera_centre(poses):
    c2w = poses(1)
    transform, valid = ray_frames(OmniStereo(baseline=0.5), c2w, 4, 8)
    distance = (transform[..., :3, 3] - c2w[:, None, None, :3, 3]).norm(dim=-1)
    torch.testing.assert_close(distance, torch.full_like(distance, 0.25))
    assert valid.all()


def test_tokens_without_a_ray_carry_the_identity(poses):
    transform, valid = ray_frames(UCM(xfov=200, xi=2.3), poses(2), 12, 12)
    assert 0.05 < (~valid).double().mean() < 0.25
    assert torch.equal(transform[~valid], torch.eye(4).double().expand_as(transform[~valid]))


def test_token_rays_are_those_of_the_patch_centres(poses):
    lens, c2w = UCM(xfov=100, xi=0.5), poses(1)
    tokens = world_rays(lens, c2w, 30, 52).directions
    pixels = torch.tensor([[16 * 7 + 8.0, 16 * 3 + 8.0]]).double()
    expected = c2w[0, :3, :3] @ lens.unproject(pixels, 480, 832).directions[0]
    torch.testing.assert_close(tokens[0, 3, 7], expected)


def test_corner_rays_are_half_a_token_up_and_left(poses):
    lens, c2w = Pinhole(xfov=90), poses(1)
    corner = world_rays(lens, c2w, 30, 52, position="corner").directions
    pixels = torch.tensor([[16 * 7.0, 16 * 3.0]]).double()
    torch.testing.assert_close(corner[0, 3, 7], c2w[0, :3, :3] @ lens.unproject(pixels, 480, 832).directions[0])


def test_lenses_of_every_frame_and_clip(poses):
    xfov = torch.tensor([[60.0, 70, 80], [90, 100, 110]])
    c2w = poses(2, 3)
    together = ray_frames(UCM(xfov=xfov, xi=0.3), c2w, 4, 5).ray_to_world
    per_clip = ray_frames(UCM(xfov=xfov[:, :1], xi=0.3), c2w, 4, 5).ray_to_world
    per_frame = ray_frames(UCM(xfov=xfov[1], xi=0.3), c2w, 4, 5).ray_to_world
    for b in range(2):
        for n in range(3):
            one = ray_frames(UCM(xfov=xfov[b, n], xi=0.3), c2w[b, n : n + 1], 4, 5).ray_to_world[0]
            torch.testing.assert_close(together[b, n], one)
    torch.testing.assert_close(per_clip[:, 0], together[:, 0])
    torch.testing.assert_close(per_frame[1], together[1])


@pytest.mark.parametrize(
    ("c2w", "message"),
    [
        (torch.eye(4), "shape"),
        (torch.eye(3)[None], "shape"),
        (2 * torch.eye(4)[None], r"c2w\[0\] is not a rigid"),
        (torch.diag(torch.tensor([1.0, 1, -1, 1]))[None], "rigid"),
        (torch.full((1, 4, 4), torch.nan), "rigid"),
        (torch.eye(4)[None].index_fill(1, torch.tensor([3]), 0), "rigid"),
        (torch.eye(4)[None].index_fill(2, torch.tensor([3]), torch.inf), "rigid"),
    ],
)
def test_matrices_that_are_no_pose(c2w, message):
    with pytest.raises(ValueError, match=message):
        ray_frames(Pinhole(xfov=90), c2w, 2, 2)


def test_unknown_options():
    for option in ({"frame": "papr"}, {"position": "middle"}):
        with pytest.raises(ValueError, match=next(iter(option))):
            ray_frames(Pinhole(xfov=90), torch.eye(4)[None], 2, 2, **option)
    with pytest.raises(ValueError, match="height"):
        ray_frames(Pinhole(xfov=90), torch.eye(4)[None], 0, 2)
