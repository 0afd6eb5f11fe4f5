"""Every lens model by name, and lenses by the names people say."""

from __future__ import annotations

from typing import Any

from ucpe.lenses.base import Lens
from ucpe.lenses.families import FAMILIES
from ucpe.lenses.fisheye import (
    Division,
    Equidistant,
    Equisolid,
    FieldOfView,
    KannalaBrandt,
    Orthographic,
    RadialPolynomial,
    Stereographic,
)
from ucpe.lenses.panoramic import Equirectangular, OmniStereo
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.unified import EUCM, UCM, DoubleSphere, Mei

MODELS: dict[str, Any] = {
    model.kind: model
    for model in (
        Pinhole,
        BrownConrady,
        UCM,
        Mei,
        EUCM,
        DoubleSphere,
        KannalaBrandt,
        RadialPolynomial,
        Division,
        FieldOfView,
        Equidistant,
        Equisolid,
        Stereographic,
        Orthographic,
        Equirectangular,
        OmniStereo,
    )
}
"""Lens classes by the name written to files."""

USUAL_XFOV = {
    **dict.fromkeys(("pinhole", "brown_conrady", "ucm", "mei", "division", "field_of_view"), 100.0),
    "orthographic": 170.0,
}
"""Field of view in degrees of a lens named without one; 180 for the rest."""


LENS_NAMES = tuple(dict.fromkeys((*FAMILIES, *MODELS)))
"""Names that `lens_by_name` knows; - and _ are the same in them."""


def lens_by_name(name: str, **parameters: Any) -> Lens:
    """A family's typical lens ("wide", "fisheye", ...) or a model ("kannala_brandt", ...), with parameters to change.

    >>> lens_by_name("fisheye", xfov=150)
    UCM(xfov=150, xi=1.525)
    >>> lens_by_name("pinhole")
    Pinhole(xfov=100)
    """
    family = FAMILIES.get(name.lower().replace("_", "-"))
    kind = name.lower().replace("-", "_")
    scaled = any(parameter in parameters for parameter in ("xfov", "pinhole_xfov", "fx"))
    if kind in MODELS:
        model, usual = MODELS[kind], {}
        if not scaled and not issubclass(model, Equirectangular | OmniStereo):
            usual = {"xfov": USUAL_XFOV.get(kind, 180.0)}
    elif family is not None:
        typical = family.typical()
        model, usual = type(typical), {key: value.item() for key, value in typical.parameters.items()}
        if scaled:
            usual.pop("xfov")
    else:
        raise ValueError(f"no lens is named {name!r}; there are {', '.join(LENS_NAMES)}")
    try:
        return model(**{**usual, **parameters})
    except TypeError as error:
        raise ValueError(f"{name}: {str(error).split('() ')[-1]}") from None
