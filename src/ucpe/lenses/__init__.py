"""Pixel <-> ray: every lens, and the calibration files that describe real ones."""

from ucpe.lenses.base import Lens, Rays, pixel_grid, stack_lenses
from ucpe.lenses.families import FAMILIES, LensFamily, lens_family, sample_lens
from ucpe.lenses.files import load_lens, save_lens
from ucpe.lenses.files.native import lens_from_dict
from ucpe.lenses.fisheye import (
    Division,
    Equidistant,
    Equisolid,
    FieldOfView,
    KannalaBrandt,
    Orthographic,
    RadialLens,
    RadialPolynomial,
    Stereographic,
)
from ucpe.lenses.image_fit import fit_image
from ucpe.lenses.models import MODELS, lens_by_name
from ucpe.lenses.panoramic import Equirectangular, OmniStereo
from ucpe.lenses.pinhole import BrownConrady, Pinhole
from ucpe.lenses.planar import PlanarLens
from ucpe.lenses.sources import find_lens
from ucpe.lenses.unified import EUCM, UCM, DoubleSphere, Mei

__all__ = [
    "EUCM",
    "FAMILIES",
    "MODELS",
    "UCM",
    "BrownConrady",
    "Division",
    "DoubleSphere",
    "Equidistant",
    "Equirectangular",
    "Equisolid",
    "FieldOfView",
    "KannalaBrandt",
    "Lens",
    "LensFamily",
    "Mei",
    "OmniStereo",
    "Orthographic",
    "Pinhole",
    "PlanarLens",
    "RadialLens",
    "RadialPolynomial",
    "Rays",
    "Stereographic",
    "find_lens",
    "fit_image",
    "lens_by_name",
    "lens_family",
    "lens_from_dict",
    "load_lens",
    "pixel_grid",
    "sample_lens",
    "save_lens",
    "stack_lenses",
]
