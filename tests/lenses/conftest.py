"""The named lenses that every test of the shared suite runs over."""

import pytest
import torch

from ucpe.lenses import (
    EUCM,
    UCM,
    BrownConrady,
    Division,
    DoubleSphere,
    Equidistant,
    Equirectangular,
    Equisolid,
    FieldOfView,
    KannalaBrandt,
    Lens,
    Mei,
    OmniStereo,
    Orthographic,
    Pinhole,
    RadialPolynomial,
    Stereographic,
)

CALIBRATION = {"fx": 410.5, "fy": 396.25, "cx": 402.75, "cy": 251.5, "width": 832, "height": 480}

LENSES: dict[str, Lens] = {
    "pinhole": Pinhole(xfov=100),
    "pinhole[calibrated]": Pinhole(**CALIBRATION),
    "ucm[xi=0]": UCM(xfov=100, xi=0.0),
    "ucm[wide]": UCM(xfov=130, xi=0.7),
    "ucm[xi=1]": UCM(xfov=170, xi=1.0),
    "ucm[180]": UCM(xfov=180, xi=2.0),
    "ucm[200]": UCM(xfov=200, xi=2.3),
    "ucm[calibrated]": UCM(xi=1.4, **CALIBRATION),
    "eucm": EUCM(xfov=190, alpha=0.6, beta=1.1),
    "eucm[alpha<half]": EUCM(xfov=140, alpha=0.4, beta=0.8),
    "double_sphere": DoubleSphere(xfov=190, xi=-0.2, alpha=0.6),
    "double_sphere[xi>0]": DoubleSphere(xfov=170, xi=0.3, alpha=0.5),
    "brown_conrady[barrel]": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "brown_conrady[tangential]": BrownConrady(xfov=80, k1=-0.2, k2=0.03, p1=0.01, p2=-0.02),
    "brown_conrady[rational+tangential]": BrownConrady(
        k1=0.3, k2=-0.1, p1=1e-3, p2=-2e-3, k3=0.02, k4=0.6, k5=0.05, k6=0.01, **CALIBRATION
    ),
    "brown_conrady[border]": BrownConrady(pinhole_xfov=100, k1=-0.2, k2=-0.05),
    "brown_conrady[border+tangential]": BrownConrady(pinhole_xfov=100, k1=-0.2, k2=-0.05, p1=0.004, p2=0.01),
    "mei": Mei(xfov=150, xi=1.5, k1=0.1, k2=-0.2, p1=1e-3, p2=2e-3),
    "kannala_brandt": KannalaBrandt(xfov=180, k1=0.02, k2=-0.01, k3=0.002, k4=-0.001),
    "kannala_brandt[calibrated]": KannalaBrandt(k1=-0.01, k2=0.02, k3=-0.012, k4=0.002, **CALIBRATION),
    "radial_polynomial": RadialPolynomial(xfov=180, k1=-0.09, k2=0.14, k3=-0.02),
    "division[barrel]": Division(xfov=190, k=-0.3),
    "division[pincushion]": Division(
        xfov=80,
        k=0.2,
    ),
    "division[calibrated]": Division(k=-0.25, **CALIBRATION),
    "field_of_view": FieldOfView(xfov=150, k=1.0),
    "field_of_view[calibrated]": FieldOfView(k=0.4, **CALIBRATION),
    "equidistant": Equidistant(xfov=220),
    "equisolid": Equisolid(xfov=220),
    "stereographic": Stereographic(xfov=220),
    "orthographic": Orthographic(xfov=170),
    "equirectangular": Equirectangular(),
    "equirectangular[crop]": Equirectangular(xfov=200, top=60, bottom=-30),
    "omni_stereo[left]": OmniStereo(0.3),
    "omni_stereo[right]": OmniStereo(0.3, eye="right"),
}


@pytest.fixture(params=LENSES)
def lens(request: pytest.FixtureRequest) -> Lens:
    return LENSES[request.param]


@pytest.fixture(params=[name for name, lens in LENSES.items() if hasattr(lens, "from_plane")])
def planar_lens(request: pytest.FixtureRequest) -> Lens:
    return LENSES[request.param]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
