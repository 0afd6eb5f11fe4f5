"""The nearest lens of another model, with an honest error."""

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

from ucpe.lenses import (
    EUCM,
    FAMILIES,
    UCM,
    BrownConrady,
    DoubleSphere,
    Equirectangular,
    KannalaBrandt,
    Mei,
    OmniStereo,
    Orthographic,
    Pinhole,
)

KANNALA_BRANDT = {"k1": 0.02, "k2": -0.01, "k3": 0.002, "k4": -0.001}
CALIBRATION = {"fx": 410.5, "fy": 396.25, "cx": 402.75, "cy": 251.5, "width": 832, "height": 480}


def errors(lens, fitted, height=480, width=832):
    """Angles in degrees between the rays of two lenses at every pixel that the first one sees."""
    first, second = (x.rays(height, width, dtype=torch.float64) for x in (lens, fitted))
    both = first.valid & second.valid
    sine = torch.linalg.cross(first.directions, second.directions)[both].norm(dim=-1)
    return torch.rad2deg(torch.atan2(sine, (first.directions * second.directions).sum(-1)[both]))


@pytest.mark.parametrize("xfov, xi", [(100, 0.0), (130, 0.7), (180, 2.0), (200, 2.3)])
def test_ucm_is_an_eucm(xfov, xi):
    fit = UCM(xfov=xfov, xi=xi).fit(EUCM)
    assert fit.rms < 1e-8 and fit.maximum < 1e-7 and fit.unseen == 0
    assert fit.lens.parameters["alpha"].item() == pytest.approx(xi / (1 + xi), abs=1e-6)
    assert fit.lens.xfov(480, 832).item() == pytest.approx(xfov, abs=1e-4)


@pytest.mark.parametrize(
    "lens",
    [
        UCM(xfov=180, xi=2.0),
        UCM(xi=1.2, **CALIBRATION),
        EUCM(xfov=150, alpha=0.55, beta=1.3),
        DoubleSphere(xfov=150, xi=0.2, alpha=0.55),
        KannalaBrandt(xfov=180, **KANNALA_BRANDT),
        BrownConrady(xfov=80, k1=-0.2, k2=0.03, p1=0.01, p2=-0.02),
        Mei(xfov=150, xi=1.5, k1=0.1, k2=-0.2, p1=1e-3, p2=2e-3),
    ],
    ids=lambda lens: lens.kind,
)
def test_fit_to_its_own_model_is_exact(lens):
    fit = lens.fit(type(lens), height=120, width=208)
    assert fit.rms < 1e-9
    again = fit.lens.rays(48, 83, dtype=torch.float64)
    assert torch.allclose(again.directions, lens.rays(48, 83, dtype=torch.float64).directions, atol=1e-9)
    for name, value in lens.model_parameters.items():
        assert fit.lens.parameters[name].item() == pytest.approx(value.item(), abs=1e-6), name


@pytest.mark.parametrize(
    "lens",
    [KannalaBrandt(xfov=180, **KANNALA_BRANDT), BrownConrady(xfov=100, k1=-0.2, k2=0.03)],
    ids=lambda lens: lens.kind,
)
def test_at_least_as_good_as_scipy(lens):
    rays = lens.rays(60, 104, dtype=torch.float64)

    def angles(values):
        candidate = UCM(fx=float(values[0]), xi=float(values[1]), width=832, height=480)
        directions = candidate.rays(60, 104, dtype=torch.float64).directions
        sine = torch.linalg.cross(rays.directions, directions).norm(dim=-1)
        return torch.atan2(sine, (rays.directions * directions).sum(-1))[rays.valid].numpy()

    starts = [(700.0, 1.0), (1200.0, 2.0)]
    bounds = ([1.0, 0.0], [1e4, 10.0])
    best = min(
        (least_squares(angles, start, bounds=bounds, x_scale=(1000, 1)) for start in starts), key=lambda r: r.cost
    )
    scipy_lens = UCM(fx=best.x[0], xi=best.x[1], width=832, height=480)
    fit = lens.fit(UCM)
    ours, theirs = (errors(lens, x).square().mean().sqrt() for x in (fit.lens, scipy_lens))
    assert ours < theirs * 1.001
    assert fit.rms.item() == pytest.approx(ours.item())
    assert fit.maximum.item() == pytest.approx(errors(lens, fit.lens).max().item())
    assert 0.05 < fit.rms < 1


def test_a_calibration_keeps_its_principal_point():
    fit = KannalaBrandt(k1=-0.01, k2=0.02, k3=-0.012, k4=0.002, **CALIBRATION).fit(UCM)
    assert fit.rms < 0.05
    assert fit.lens.settings == {"width": 832, "height": 480}
    assert fit.lens.parameters["cx"].item() == pytest.approx(402.75, abs=0.5)
    ratio = fit.lens.parameters["fx"] / fit.lens.parameters["fy"]
    assert ratio.item() == pytest.approx(410.5 / 396.25, rel=1e-3)


def test_invisible_border_is_left_out():
    lens = BrownConrady(pinhole_xfov=100, k1=-0.2, k2=-0.05)
    fit = lens.fit(UCM)
    assert fit.unseen == 0
    assert 0.1 < fit.rms < 1 < fit.maximum < 5


def test_what_the_fitted_lens_cannot_see_is_reported():
    fit = Equirectangular().fit(UCM, height=200, width=400)
    assert fit.rms > 5 or fit.unseen > 0.1
    both = errors(Equirectangular(), fit.lens, 200, 400)
    assert fit.rms.item() == pytest.approx(both.square().mean().sqrt().item())


def test_other_models_follow_ucm_closely():
    lens = UCM(xfov=180, xi=2.0)
    assert lens.fit(KannalaBrandt, 120, 208).rms < 3e-3
    assert lens.fit(Mei, 120, 208).rms < 1e-6
    assert UCM(xfov=130, xi=0.7).fit(BrownConrady, 120, 208).rms < 1e-3
    assert Pinhole(xfov=90).fit(UCM).lens.parameters["xi"].item() == pytest.approx(0, abs=1e-6)
    assert lens.fit(Pinhole).rms > 5


def test_batch_is_fitted_entry_by_entry():
    batch = KannalaBrandt(xfov=torch.tensor([150.0, 170.0]), k1=torch.tensor([0.0, 0.01]))
    fit = batch.fit(UCM, 120, 208)
    assert fit.lens.batch_shape == fit.rms.shape == (2,)
    for index in range(2):
        single = batch[index].fit(UCM, 120, 208)
        assert fit.rms[index].item() == pytest.approx(single.rms.item())
        assert np.allclose(fit.lens[index].parameters["xi"], single.lens.parameters["xi"])


def test_what_cannot_be_fitted():
    with pytest.raises(ValueError, match="omni_stereo has no single centre"):
        OmniStereo().fit(UCM)
    with pytest.raises(ValueError, match="a model with an image plane"):
        UCM(xfov=90).fit(Equirectangular)


def test_a_calibration_is_fitted_at_its_own_size():
    lens = KannalaBrandt(xfov=180).calibrated(1080, 1920)
    fit = lens.fit(UCM)
    assert fit.lens.settings == {"width": 1920, "height": 1080}
    assert fit.lens.parameters["fx"].item() == pytest.approx(fit.lens.parameters["fy"].item(), rel=0.01)
    assert lens.fit(UCM, 120, 208).lens.settings == {"width": 208, "height": 120}


def test_a_narrow_model_is_widened_to_see_the_image():
    """No focal length on a fine grid is better, with unseen pixels counted as looking along the axis."""
    lens = FAMILIES["fisheye"].typical()
    first = lens.rays(120, 208, dtype=torch.float64)

    def cost(focal):
        second = Orthographic(fx=focal, width=832, height=480).rays(120, 208, dtype=torch.float64)
        cosine = (first.directions * second.directions).sum(-1)[first.valid]
        return cosine.clamp(-1, 1).acos().square().mean().item()

    fit = lens.fit(Orthographic)
    focal = fit.lens.intrinsics(480, 832)[0, 0].item()
    assert fit.unseen < 0.01
    assert cost(focal) < 1.02 * min(cost(float(other)) for other in range(300, 600, 5))
