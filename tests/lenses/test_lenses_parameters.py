"""A parameter that makes no camera raises ValueError naming the parameter, the value and the range."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ucpe.lenses import EUCM, UCM, BrownConrady, DoubleSphere, Equirectangular, KannalaBrandt, Mei, OmniStereo, Pinhole

QUICK = settings(max_examples=40)
MODELS = [Pinhole, UCM, EUCM, DoubleSphere, BrownConrady, Mei, KannalaBrandt, Equirectangular]
CALIBRATION = {"fx": 400.0, "fy": 400.0, "cx": 320.0, "cy": 240.0}


def refused(name: str, value: float, make, **arguments) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be") as raised:
        make(**{**arguments, name: value})
    assert f"{value:g}" in str(raised.value), raised.value


@QUICK
@given(st.sampled_from(MODELS), st.floats(max_value=0) | st.floats(min_value=360.001, max_value=1e300))
def test_impossible_field_of_view(model, xfov):
    refused("xfov", xfov, model)


@QUICK
@given(
    st.sampled_from([(UCM, "xi"), (EUCM, "beta"), (BrownConrady, "k2"), (BrownConrady, "p1"), (KannalaBrandt, "k3")]),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_not_finite(model_and_name, value):
    model, name = model_and_name
    refused(name, value, model, xfov=60)
    refused("xfov", value, model)


@QUICK
@given(st.sampled_from([UCM, Mei]), st.floats(max_value=-1e-9, min_value=-1e300))
def test_negative_xi(model, xi):
    refused("xi", xi, model, xfov=60)


@QUICK
@given(st.floats(max_value=-1e-9, min_value=-1e9) | st.floats(min_value=1.0001, max_value=1e9))
def test_alpha_outside_its_range(alpha):
    refused("alpha", alpha, EUCM, xfov=60)
    refused("alpha", alpha, DoubleSphere, xfov=60)


@QUICK
@given(st.floats(max_value=0, min_value=-1e9))
def test_beta_not_positive(beta):
    refused("beta", beta, EUCM, xfov=60)


@QUICK
@given(st.sampled_from(["fx", "fy"]), st.floats(max_value=0, min_value=-1e9))
def test_focal_length_not_positive(name, value):
    refused(name, value, Pinhole, **{**CALIBRATION, "width": 640, "height": 480})


@QUICK
@given(st.sampled_from(["width", "height"]), st.integers(-999, 0))
def test_image_of_no_size(name, value):
    refused(name, value, Pinhole, **{**CALIBRATION, "width": 640, "height": 480})
    with pytest.raises(ValueError, match=f"{name} must be a whole number of pixels, at least 1, got {value}"):
        UCM(xfov=90).rays(**{"height": 4, "width": 4, name: value})


@QUICK
@given(st.floats(-90, 90), st.floats(0, 180))
def test_panorama_upside_down(top, more):
    bottom = min(top + more, 90.0)
    with pytest.raises(ValueError, match="top must be above bottom"):
        Equirectangular(top=top, bottom=bottom)


@QUICK
@given(
    st.floats(1, 300),
    st.floats(0, 5),
    st.lists(st.floats(-0.5, 0.5), min_size=4, max_size=4),
    st.sampled_from(["ucm", "brown_conrady", "mei", "kannala_brandt"]),
)
def test_any_parameters_make_a_lens_or_a_clear_error(xfov, xi, k, kind):
    """Whatever the numbers: a lens whose valid rays project back to their pixels, or a field of view too wide."""
    make = {
        "ucm": lambda: UCM(xfov=xfov, xi=xi),
        "brown_conrady": lambda: BrownConrady(xfov=xfov, k1=k[0], k2=k[1], k3=k[2], k4=k[3]),
        "mei": lambda: Mei(xfov=xfov, xi=xi, k1=k[0], k2=k[1], p1=k[2] / 50, p2=k[3] / 50),
        "kannala_brandt": lambda: KannalaBrandt(xfov=xfov, k1=k[0], k2=k[1], k3=k[2], k4=k[3]),
    }[kind]
    try:
        lens = make()
    except ValueError as error:
        assert "xfov must be below" in str(error)
        return
    rays = lens.rays(12, 16, dtype=torch.float64)
    assert rays.directions.isfinite().all()
    pixels, seen = lens.project(rays.directions, 12, 16)
    expected = lens.project(torch.tensor([0.0, 0, 1]).double(), 12, 16)[0]
    assert expected.tolist() == pytest.approx([8, 6])
    grid = torch.stack(torch.meshgrid(torch.arange(16) + 0.5, torch.arange(12) + 0.5, indexing="xy"), -1).double()
    both = rays.valid & seen
    assert both.sum() >= 0.99 * rays.valid.sum()
    assert ((pixels - grid).abs().amax(-1)[both] < 1e-6).all()


def test_which_entry_of_a_batch_is_wrong():
    with pytest.raises(ValueError, match=r"xi must be in \[0, inf\), got -2 at index \[1\]"):
        UCM(xfov=90, xi=torch.tensor([0.0, -2.0, 1.0]))
    with pytest.raises(ValueError, match=r"xfov must be finite, got nan at index \[0, 1\]"):
        UCM(xfov=torch.tensor([[90.0, math.nan]]))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "exactly one of xfov, pinhole_xfov or fx.*got none"),
        ({"xfov": 90, "fx": 100}, "exactly one of.*got xfov and fx"),
        ({"fx": 100}, "needs the width and height"),
        ({"xfov": 90, "cx": 4}, "takes no fy, cx, cy"),
        ({"xfov": "wide"}, "xfov must be a number or a tensor, got 'wide'"),
        ({"xfov": 180}, "xfov must be below 180 degrees"),
        ({"xfov": 190}, "xfov must be below 180 degrees"),
        ({"pinhole_xfov": 180}, r"pinhole_xfov must be in \[0.001, 179.999\], got 180"),
        ({"fx": 9, "width": 4.5, "height": 3}, "width must be a whole number of pixels, at least 1, got 4.5"),
    ],
)
def test_how_a_lens_is_scaled(arguments, message):
    with pytest.raises(ValueError, match=message):
        Pinhole(**arguments)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match="must broadcast to one batch shape"):
        UCM(xfov=torch.ones(2) * 90, xi=torch.ones(3))


def test_omni_stereo_arguments():
    with pytest.raises(ValueError, match="eye must be 'left' or 'right', got 'middle'"):
        OmniStereo(0.1, eye="middle")
    refused("baseline", -1.0, OmniStereo)
