import cv2
import numpy as np
import pytest
import torch

from ucpe.evaluation.rectification import Rectifier, rectify_video
from ucpe.lenses import UCM, BrownConrady, Equidistant, Pinhole

HEIGHT, WIDTH = 240, 416
LENSES = {
    "pinhole 90": Pinhole(xfov=90),
    "wide": UCM(xfov=125, xi=0.7),
    "fisheye": UCM(xfov=160, xi=1.5),
    "extreme fisheye": UCM(xfov=195, xi=2.2),
    "equidistant": Equidistant(xfov=170),
    "brown": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "off-centre calibration": Pinhole(fx=250.0, fy=240.0, cx=190.0, cy=130.0, width=WIDTH, height=HEIGHT),
}


def spots(lens, centres: torch.Tensor) -> np.ndarray:
    """Picture (H, W) float32 of round spots that are Gaussian in the rectified image, cast through the lens."""
    rectifier = Rectifier(lens, HEIGHT, WIDTH)
    rays = lens.rays(HEIGHT, WIDTH, dtype=torch.float64)
    pixels, seen = rectifier.pinhole.project(rays.directions, HEIGHT, WIDTH)
    distance = (pixels[..., None, :] - centres).norm(dim=-1)
    picture = torch.exp(-((distance / 4) ** 2) / 2).sum(-1)
    return torch.where(seen & rays.valid, picture, torch.zeros_like(picture)).float().numpy()


@pytest.mark.parametrize("name", LENSES)
def test_known_points_land_within_a_twentieth_of_a_pixel(name):
    lens = LENSES[name]
    rectifier = Rectifier(lens, HEIGHT, WIDTH)
    centres = torch.tensor([[120.3, 80.7], [208.0, 120.0], [300.25, 160.5], [90.5, 170.1]], dtype=torch.float64)
    rectified = rectifier(spots(lens, centres))
    checked = 0
    for u, v in centres.numpy():
        rows, columns = slice(int(v) - 14, int(v) + 15), slice(int(u) - 14, int(u) + 15)
        if not rectifier.valid[rows, columns].all():
            continue
        weight = rectified[rows, columns].astype(np.float64)
        y, x = np.mgrid[rows, columns] + 0.5
        found = (x * weight).sum() / weight.sum(), (y * weight).sum() / weight.sum()
        assert found == pytest.approx((u, v), abs=0.05), name
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("name", LENSES)
def test_is_the_inverse_of_where_pixels_go(name):
    lens = LENSES[name]
    rectifier = Rectifier(lens, HEIGHT, WIDTH)
    source, seen = rectifier._source
    rays = lens.unproject(source, HEIGHT, WIDTH)
    back, visible = rectifier.pinhole.project(rays.directions, HEIGHT, WIDTH)
    grid = torch.stack(torch.meshgrid(torch.arange(WIDTH) + 0.5, torch.arange(HEIGHT) + 0.5, indexing="xy"), -1)
    good = seen & visible & rays.valid & torch.from_numpy(rectifier.valid)
    assert good.double().mean() > 0.5
    assert (back - grid)[good].abs().max() < 1e-6


def test_view_is_capped_and_never_wider_than_the_lens():
    assert Rectifier(UCM(xfov=180, xi=2.0), HEIGHT, WIDTH).pinhole.xfov(HEIGHT, WIDTH).item() == pytest.approx(100)
    assert Rectifier(Pinhole(xfov=70), HEIGHT, WIDTH).pinhole.xfov(HEIGHT, WIDTH).item() == pytest.approx(70)


def test_a_pinhole_within_the_cap_stays_as_it_is():
    image = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    assert (Rectifier(Pinhole(xfov=80), HEIGHT, WIDTH)(image) == image).all()


def test_what_the_lens_does_not_see_is_invalid_and_black():
    wide = Pinhole(fx=100.0, cx=300.0, width=WIDTH, height=HEIGHT)
    rectifier = Rectifier(wide, HEIGHT, WIDTH)
    assert not rectifier.valid.all()
    assert rectifier.valid.any()
    picture = rectifier(np.full((HEIGHT, WIDTH, 3), 200, np.uint8))
    inner = cv2.erode(rectifier.valid.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    outer = ~cv2.dilate(rectifier.valid.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
    assert (picture[inner] == 200).all()
    assert (picture[outer] == 0).all()


def test_a_zooming_lens_is_rectified_to_its_narrowest_view():
    frames = np.zeros((3, 48, 84, 3), np.uint8)
    rectified, pinhole, valid = rectify_video(frames, UCM(xfov=torch.tensor([90.0, 80.0, 70.0]), xi=torch.zeros(3)))
    assert pinhole.xfov(48, 84).item() == pytest.approx(70, abs=1e-4)
    assert rectified.shape == frames.shape
    assert valid.shape == frames.shape[:3]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="index the batch"):
        Rectifier(UCM(xfov=torch.tensor([90.0, 80.0])), HEIGHT, WIDTH)
    with pytest.raises(ValueError, match="max_xfov"):
        Rectifier(Pinhole(xfov=90), HEIGHT, WIDTH, max_xfov=180)
    with pytest.raises(ValueError, match="240 x 416"):
        Rectifier(Pinhole(xfov=90), HEIGHT, WIDTH)(np.zeros((10, 10, 3), np.uint8))
    with pytest.raises(ValueError, match="batch shape"):
        rectify_video(np.zeros((3, 8, 8, 3), np.uint8), UCM(xfov=torch.tensor([90.0, 80.0])))
