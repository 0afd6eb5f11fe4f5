"""What every lens must do, over the named lenses of conftest.py."""

import math

import numpy as np
import pytest
import torch

from ucpe.lenses import EUCM, UCM, BrownConrady, Equirectangular, KannalaBrandt, Lens, OmniStereo, Pinhole, pixel_grid

HEIGHT, WIDTH = 120, 208
ROUND_TRIP = {torch.float64: 1e-9, torch.float32: 0.02}
DIFFERENTIABLE = ("xfov", "pinhole_xfov", "fx", "fy", "cx", "cy", "xi", "alpha", "beta", "baseline", "top", "bottom")
DIFFERENTIABLE += ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")


def with_parameters(lens: Lens, **parameters) -> Lens:
    return type(lens)(**{**lens.parameters, **parameters}, **lens.settings)


def some_pixels(lens: Lens, generator: torch.Generator, count: int = 6) -> torch.Tensor:
    """Random pixels inside the visible area, away from its edge."""
    pixels = torch.rand(400, 2, dtype=torch.float64, generator=generator) * torch.tensor([WIDTH - 8, HEIGHT - 8]) + 4
    around = pixels[:, None] + torch.tensor([[0.0, 0.0], [2, 2], [-2, 2], [2, -2], [-2, -2]]).double()
    return pixels[lens.unproject(around, HEIGHT, WIDTH).valid.all(-1)][:count]


@pytest.mark.parametrize("dtype", ROUND_TRIP)
def test_round_trip_over_the_whole_image(lens, dtype):
    rays = lens.rays(240, 416, dtype=dtype)
    assert rays.directions.dtype == rays.origins.dtype == dtype
    assert rays.valid.float().mean() > 0.4
    for distance in (1.0, 250.0):
        pixels, seen = lens.project((rays.origins + distance * rays.directions)[rays.valid], 240, 416)
        assert seen.all()
        assert (pixels - pixel_grid(240, 416, dtype)[rays.valid]).abs().max() < ROUND_TRIP[dtype]


def test_projection_then_ray_returns_to_the_point(lens, generator):
    points = torch.randn(4000, 3, dtype=torch.float64, generator=generator) * 3
    pixels, seen = lens.project(points, HEIGHT, WIDTH)
    rays = lens.unproject(pixels, HEIGHT, WIDTH)
    seen = seen & rays.valid  # an equirectangular crop projects points outside its image
    towards = torch.nn.functional.normalize(points - rays.origins, dim=-1)
    assert seen.sum() > 300
    assert (towards - rays.directions)[seen].abs().max() < 1e-7


def test_rays_are_unit_and_invalid_ones_look_ahead(lens):
    rays = lens.rays(HEIGHT, WIDTH, dtype=torch.float64)
    assert torch.allclose(rays.directions.norm(dim=-1), torch.ones(1, dtype=torch.float64))
    assert (rays.directions[~rays.valid] == torch.tensor([0.0, 0, 1]).double()).all()
    assert (rays.origins[~rays.valid] == 0).all()
    assert lens.central == bool((rays.origins == 0).all())


def test_optical_axis_is_seen(lens):
    axis = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    pixel, seen = lens.project(axis, HEIGHT, WIDTH)
    assert seen
    if lens.central:
        assert torch.allclose(lens.unproject(pixel, HEIGHT, WIDTH).directions, axis / 2, atol=1e-12)


def test_gradient_in_pixels_and_points(lens, generator):
    pixels = some_pixels(lens, generator).requires_grad_()
    rays = lens.unproject(pixels.detach(), HEIGHT, WIDTH)
    points = (rays.origins + 2.5 * rays.directions).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: tuple(lens.unproject(p, HEIGHT, WIDTH)[:2]), pixels)
    assert torch.autograd.gradcheck(lambda p: lens.project(p, HEIGHT, WIDTH)[0], points)


def test_gradient_in_parameters(lens, generator):
    pixels = some_pixels(lens, generator, 3)
    rays = lens.unproject(pixels, HEIGHT, WIDTH)
    points = rays.origins + 2.5 * rays.directions
    names = [name for name in DIFFERENTIABLE if name in lens.parameters]
    if lens.kind == "ucm" and not lens.parameters["xi"]:
        names.remove("xi")  # the end of its range, where differences step outside
    if "top" in names and lens.parameters["top"] == 90:
        names = [name for name in names if name in ("baseline",)]
    values = [lens.parameters[name].detach().clone().double().requires_grad_() for name in names]
    if not values:
        return

    def directions(*values):
        return tuple(with_parameters(lens, **dict(zip(names, values))).unproject(pixels, HEIGHT, WIDTH)[:2])

    def projected(*values):
        return with_parameters(lens, **dict(zip(names, values))).project(points, HEIGHT, WIDTH)[0]

    assert torch.autograd.gradcheck(directions, values)
    assert torch.autograd.gradcheck(projected, values)


def test_gradients_are_finite_everywhere(lens):
    """Also at invalid pixels, on the axis, behind the camera and at the camera centre."""
    hard = [
        [0.0, 0, 0],
        [0, 0, 1],
        [0, 0, -1],
        [0, 1, 0],
        [0, -1, 0],
        [1, 0, 0],
        [1e-9, 0, 1],
        [1e-9, 0, -1],
        [3, 1, -9],
    ]
    for dtype in (torch.float32, torch.float64):
        parameters = {
            name: value.detach().to(dtype).clone().requires_grad_() for name, value in lens.parameters.items()
        }
        model = with_parameters(lens, **parameters)
        border = torch.tensor([[0.0, 0], [WIDTH, HEIGHT], [WIDTH / 2, HEIGHT / 2], [-1e4, 7]], dtype=dtype)
        pixels = torch.cat([pixel_grid(30, 52, dtype).reshape(-1, 2) * 4, border]).requires_grad_()
        points = torch.tensor(hard, dtype=dtype, requires_grad=True)
        rays = model.unproject(pixels, HEIGHT, WIDTH)
        total = rays.directions.sum() + rays.origins.sum() + model.project(points, HEIGHT, WIDTH)[0].sum()
        assert total.isfinite()
        gradients = torch.autograd.grad(total, [pixels, points, *parameters.values()], allow_unused=True)
        for name, gradient in zip(["pixels", "points", *parameters], gradients):
            assert gradient is None or gradient.isfinite().all(), name


def test_batch_equals_loop(lens):
    stretch = torch.tensor([1.0, 0.97, 0.9], dtype=torch.float64)
    batch = with_parameters(lens, **{name: value * stretch for name, value in lens.parameters.items()})
    assert batch.batch_shape == (3,)
    together = batch.rays(30, 52, dtype=torch.float64)
    points = torch.randn(3, 50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pixels, seen = batch.project(points, 30, 52)
    assert together.directions.shape == (3, 30, 52, 3)
    for index in range(3):
        single = batch[index].rays(30, 52, dtype=torch.float64)
        assert torch.equal(single.valid, together.valid[index])
        assert torch.allclose(single.directions, together.directions[index], atol=1e-12)
        assert torch.allclose(single.origins, together.origins[index], atol=1e-12)
        one_pixels, one_seen = batch[index].project(points[index], 30, 52)
        assert torch.equal(one_seen, seen[index])
        assert torch.allclose(one_pixels, pixels[index], atol=1e-9)
        assert torch.allclose(batch.intrinsics(30, 52)[index], batch[index].intrinsics(30, 52))
    angles = torch.stack([batch[index].dfov(30, 52) for index in range(3)])
    assert torch.allclose(batch.dfov(30, 52), angles, atol=1e-3)


def test_two_batch_dimensions_broadcast():
    lens = UCM(xfov=torch.tensor([[100.0], [150.0]]), xi=torch.tensor([0.0, 0.5, 1.2]))
    rays = lens.rays(6, 8)
    assert rays.directions.shape == (2, 3, 6, 8, 3)
    assert torch.allclose(rays.directions[1, 2], UCM(xfov=150, xi=1.2).rays(6, 8).directions, atol=1e-6)
    pixels, _ = lens.project(torch.tensor([0.1, 0.2, 1.0]).expand(1, 1, 3), 6, 8)
    assert pixels.shape == (2, 3, 2)


def test_per_frame_distortion_with_one_focal_length():
    lens = BrownConrady(xfov=90, k1=torch.tensor([-0.2, 0.0, 0.1]), k2=0.02)
    pixels = torch.tensor([[3.0, 2.0], [1.0, 1.0]]).double()
    rays = lens.unproject(pixels.expand(1, 2, 2), 6, 8)
    for index in range(3):
        assert torch.allclose(rays.directions[index], lens[index].unproject(pixels, 6, 8).directions, atol=1e-7)


def test_batch_must_lead(lens):
    batch = lens.expand(3)
    with pytest.raises(ValueError, match=r"batch shape \(3,\)"):
        batch.project(torch.ones(5, 3), 6, 8)
    with pytest.raises(ValueError, match=r"pixels must have shape \(\.\.\., 2\)"):
        batch.unproject(torch.ones(3, 5), 6, 8)


def test_another_size_is_the_same_lens(lens):
    pixels = pixel_grid(30, 52, torch.float64)
    small, large = lens.unproject(pixels, 30, 52), lens.unproject(pixels * 16, 480, 832)
    assert torch.equal(small.valid, large.valid)
    assert torch.allclose(small.directions, large.directions, atol=1e-12)
    assert torch.allclose(lens.intrinsics(480, 832)[:2], 16 * lens.intrinsics(30, 52)[:2], rtol=1e-6)


def test_crop_sees_the_same_rays(planar_lens):
    whole = planar_lens.rays(120, 208, dtype=torch.float64)
    window = planar_lens.cropped(40, 16, 64, 96, height=120, width=208).rays(64, 96, dtype=torch.float64)
    assert torch.equal(window.valid, whole.valid[16:80, 40:136])
    assert torch.allclose(window.directions, whole.directions[16:80, 40:136], atol=1e-12)


def test_calibrated_is_the_same_lens(planar_lens):
    pixels = planar_lens.calibrated(480, 832)
    assert torch.allclose(
        pixels.rays(60, 104, dtype=torch.float64).directions,
        planar_lens.rays(60, 104, dtype=torch.float64).directions,
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_computed_in_float32(lens, dtype):
    half = {name: value.to(dtype) for name, value in lens.parameters.items()}
    rays = with_parameters(lens, **half).rays(30, 52)
    exact = with_parameters(lens, **{name: value.float() for name, value in half.items()}).rays(30, 52)
    assert rays.directions.dtype == torch.float32
    assert torch.equal(rays.directions, exact.directions)
    low = lens.rays(30, 52, dtype=dtype)
    assert low.directions.dtype == dtype
    assert torch.equal(low.directions, lens.rays(30, 52).directions.to(dtype))
    assert lens.unproject(torch.ones(2, dtype=dtype), 30, 52).directions.dtype == torch.float32


def test_parameters_do_not_change_the_dtype(lens):
    double = with_parameters(lens, **{name: value.double()[None] for name, value in lens.parameters.items()})
    assert double.rays(4, 6).directions.dtype == torch.float32
    assert double.rays(4, 6, dtype=torch.float64).directions.dtype == torch.float64
    assert double.project(torch.ones(1, 3), 4, 6)[0].dtype == torch.float32


def test_field_of_view_is_the_one_asked_for(lens):
    if "xfov" in lens.parameters:
        assert lens.xfov(480, 832).item() == pytest.approx(lens.parameters["xfov"].item(), abs=1e-4)
    assert lens.yfov(480, 832) <= lens.dfov(480, 832)


@pytest.mark.parametrize("xfov, xi", [(100, 0.0), (130, 0.7), (180, 2.0), (200, 2.3)])
def test_ucm_edges_and_focal_length(xfov, xi):
    """The left and right image edges are exactly at +-xfov/2; the focal length is the paper's."""
    gamma = math.radians(xfov) / 2
    lens = UCM(xfov=xfov, xi=xi)
    edges = lens.unproject(torch.tensor([[0.0, 240.0], [832.0, 240.0]], dtype=torch.float64), 480, 832).directions
    angles = torch.atan2(edges[:, 0], edges[:, 2])
    assert torch.allclose(angles, torch.tensor([-gamma, gamma], dtype=torch.float64), atol=1e-12)
    focal = 832 / 2 * (math.cos(gamma) + xi) / math.sin(gamma)
    expected = torch.tensor([[focal, 0, 416], [0, focal, 240], [0, 0, 1]])
    assert torch.allclose(lens.intrinsics(480, 832), expected, atol=1e-4)


@pytest.mark.parametrize("xfov, xi", [(100, 0.0), (130, 0.7), (170, 1.0), (180, 2.0), (200, 2.3)])
def test_ucm_is_eucm(xfov, xi):
    ucm = UCM(xfov=xfov, xi=xi).rays(HEIGHT, WIDTH, dtype=torch.float64)
    eucm = EUCM(xfov=xfov, alpha=xi / (1 + xi), beta=1.0).rays(HEIGHT, WIDTH, dtype=torch.float64)
    assert torch.equal(ucm.valid, eucm.valid)
    assert torch.allclose(ucm.directions, eucm.directions, atol=1e-12)


def test_the_papers_printed_ray_is_not_the_inverse():
    """The paper's d ~ [x, y, 1 - xi rho] misses the ray that the same pixel projects from by 16.5 degrees."""
    lens = UCM(xfov=180, xi=2.0)
    rays = lens.rays(480, 832, dtype=torch.float64)
    plane = (pixel_grid(480, 832, torch.float64) - torch.tensor([416.0, 240.0])) / lens.intrinsics(480, 832)[0, 0]
    printed = torch.cat([plane, 1 - 2.0 * plane.norm(dim=-1, keepdim=True)], -1)
    cosine = (torch.nn.functional.normalize(printed, dim=-1) * rays.directions).sum(-1)[rays.valid]
    assert torch.rad2deg(cosine.clamp(-1, 1).acos()).max() > 16


@pytest.mark.parametrize("name", ["ucm", "equidistant", "stereographic", "kannala_brandt"])
def test_wide_lenses_see_behind_the_image_plane(name):
    from ucpe.lenses import Equidistant, Stereographic

    lens = {
        "ucm": UCM(xfov=200, xi=2.3),
        "equidistant": Equidistant(xfov=200),
        "stereographic": Stereographic(xfov=200),
        "kannala_brandt": KannalaBrandt(xfov=200, k1=0.01),
    }[name]
    edge = lens.unproject(torch.tensor([832.0, 240.0]).double(), 480, 832)
    assert edge.valid
    assert torch.allclose(edge.directions[2], torch.tensor(math.cos(math.radians(100))).double(), atol=1e-9)
    angle = math.radians(99)
    pixel, seen = lens.project(torch.tensor([math.sin(angle), 0.0, math.cos(angle)]).double(), 480, 832)
    assert seen and 800 < pixel[0] < 832
    assert not lens.project(torch.tensor([0.0, 0.0, -1.0]), 480, 832)[1]


def test_brown_conrady_beyond_its_monotone_radius_is_invalid():
    """k1 = -0.2, k2 = -0.05 grows up to r = 1.064: what lies beyond would fold back into the image."""
    lens = BrownConrady(pinhole_xfov=100, k1=-0.2, k2=-0.05)
    radii = torch.linspace(0, 3, 301, dtype=torch.float64)
    pixels, seen = lens.project(torch.stack([radii, 0 * radii, torch.ones_like(radii)], -1), 480, 832)
    assert torch.equal(seen, radii < 1.0642)
    assert (pixels[seen][1:, 0] > pixels[seen][:-1, 0]).all()
    rays = lens.rays(480, 832)
    assert not rays.valid[0, 0] and not rays.valid[240, 0] and rays.valid[240, 416]
    assert lens.xfov(480, 832).item() == pytest.approx(93.5593, abs=1e-3)


def test_brown_conrady_impossible_field_of_view_names_the_largest():
    with pytest.raises(ValueError, match=r"xfov must be below 93\.559\d+ degrees.*got 100"):
        BrownConrady(xfov=100, k1=-0.2, k2=-0.05)
    with pytest.raises(ValueError, match=r"xfov must be below 89\.10\d+ degrees.*got 100"):
        BrownConrady(xfov=100, k1=-0.2, k2=-0.05, p2=0.004)
    BrownConrady(xfov=93.55, k1=-0.2, k2=-0.05)
    assert BrownConrady(xfov=100, k1=-0.2, k2=0.03).rays(48, 83).valid.all()


@pytest.mark.parametrize("p1, p2", [(0.0, 0.0), (0.003, -0.01)])
def test_largest_field_of_view_is_sharp(p1, p2):
    limit = BrownConrady(xfov=10, k1=-0.2, k2=-0.05, p1=p1, p2=p2).max_xfov().item()
    BrownConrady(xfov=limit - 1e-3, k1=-0.2, k2=-0.05, p1=p1, p2=p2)
    with pytest.raises(ValueError, match="xfov must be below"):
        BrownConrady(xfov=limit + 1e-3, k1=-0.2, k2=-0.05, p1=p1, p2=p2)


@pytest.mark.parametrize(
    "lens, expected",
    [
        (Pinhole(xfov=60), 180),
        (UCM(xfov=60, xi=0.5), 240),
        (UCM(xfov=60, xi=2.0), 240),
        (EUCM(xfov=60, alpha=0.5), 360),
    ],
)
def test_largest_field_of_view_in_closed_form(lens, expected):
    assert lens.max_xfov().item() == pytest.approx(expected, abs=1e-5)


def test_strong_tangential_distortion_does_not_fold():
    """Where the Jacobian is not positive definite the map is not one to one, also far outside the image."""
    lens = BrownConrady(fx=100, width=800, height=800, p2=0.1)
    x = torch.linspace(-20, 1, 400, dtype=torch.float64)
    pixels, seen = lens.project(torch.stack([x, 0 * x, torch.ones_like(x)], -1), 800, 800)
    assert torch.equal(seen, x > -1 / 0.6)
    assert (pixels[seen][1:, 0] > pixels[seen][:-1, 0]).all()


def test_field_of_view_of_a_crop_beside_the_axis():
    lens = Pinhole(xfov=90).cropped(50, 0, 50, 50, height=50, width=100)
    assert lens.xfov(50, 50).item() == pytest.approx(45, abs=1e-4)


@pytest.mark.parametrize("eye, side", [("left", -1), ("right", 1)])
def test_omni_stereo_rays_are_tangents_of_the_viewing_circle(eye, side):
    rays = OmniStereo(0.3, eye=eye).rays(30, 60, dtype=torch.float64)
    assert torch.allclose(rays.origins.norm(dim=-1), torch.tensor(0.15).double())
    assert (rays.origins[..., 1] == 0).all()
    assert (rays.origins * rays.directions).sum(-1).abs().max() < 1e-12
    assert rays.origins[15, 30, 0] * side > 0
    inside, seen = OmniStereo(0.3).project(torch.tensor([0.1, 5.0, 0.0]), 30, 60)
    assert not seen and inside.tolist() == [30, 15]


def test_omni_stereo_without_baseline_is_equirectangular():
    flat, stereo = Equirectangular().rays(20, 40), OmniStereo(0.0).rays(20, 40)
    assert torch.allclose(flat.directions, stereo.directions)
    assert (stereo.origins == 0).all()


def test_indexing_expanding_moving(lens):
    batch = lens.expand(2, 3)
    assert batch.batch_shape == (2, 3)
    assert batch[1].batch_shape == (3,)
    assert batch[:, 0].batch_shape == (2,)
    assert lens.to(torch.float32).parameters.keys() == lens.parameters.keys()
    assert type(lens).__name__ in repr(lens)
    with pytest.raises(IndexError, match="no batch dimension"):
        lens[0]


def test_empty_input_is_fine(lens):
    assert lens.unproject(torch.ones(0, 2), 6, 8).directions.shape == (0, 3)
    assert lens.project(torch.ones(0, 3), 6, 8)[0].shape == (0, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_finite_is_invalid(lens, bad, dtype):
    """Wherever it stands, with finite results and gradients, and without touching its neighbours."""
    pixels = torch.tensor([[bad, 1.0], [1.0, bad], [bad, bad], [2.0, 2.0]], dtype=dtype, requires_grad=True)
    rays = lens.unproject(pixels, 4, 4)
    assert not rays.valid[:3].any() and rays.valid[3]
    assert (rays.directions[:3] == torch.tensor([0.0, 0.0, 1.0])).all() and (rays.origins[:3] == 0).all()
    points = [[bad, 0.1, 1.0], [0.1, bad, 1.0], [0.1, 0.1, bad], [bad, bad, bad], [0.1, 0.1, 1.0]]
    points = torch.tensor(points, dtype=dtype, requires_grad=True)
    projected, seen = lens.project(points, 4, 4)
    assert seen.tolist() == [False] * 4 + [True]
    assert (projected[:4] == 2).all() and projected.isfinite().all()
    total = rays.directions.sum() + rays.origins.sum() + projected.sum()
    for gradient in torch.autograd.grad(total, [pixels, points]):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("distance", [1e-25, 1e20, 3e38])
def test_distance_does_not_overflow(lens, distance):
    """Squares of such points leave float32; the pixel of a far point is that of its direction."""
    if not lens.central and distance < 1:
        return
    direction = torch.tensor([[0.3, 0.1, 1.0], [0.0, 0.0, 1.0], [1.0, -0.5, 0.9]])
    expected, seen = lens.project(direction.double() * (1 if lens.central else 1e9), HEIGHT, WIDTH)
    pixels, visible = lens.project(direction * distance, HEIGHT, WIDTH)
    assert torch.equal(visible, seen)
    assert torch.allclose(pixels.double(), expected, atol=1e-2)


def test_pixels_too_far_away_for_float32_have_no_ray(lens):
    rays = lens.unproject(torch.tensor([[1e30, 3.0], [3.0, -3e38]]), 4, 4)
    assert not rays.valid.any() and (rays.directions == torch.tensor([0.0, 0.0, 1.0])).all()


def test_any_integral_is_a_size(lens):
    rays = lens.rays(np.int64(3), np.int32(4))
    assert torch.equal(rays.directions, lens.rays(3, 4).directions)
    for size in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match="height must be a whole number of pixels, at least 1"):
            lens.rays(size, 4)


def test_a_size_is_kept_as_a_plain_number(tmp_path):
    Pinhole(fx=3.0, width=np.int64(4), height=np.int64(3)).save(tmp_path / "lens.json")
    assert Pinhole(xfov=90).calibrated(np.int64(3), 4).settings == {"width": 4, "height": 3}
