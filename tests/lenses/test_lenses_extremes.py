"""Rays are finite and of unit length or not valid, whatever numbers a calibration holds."""

import random

import pytest
import torch

from ucpe.lenses import MODELS
from ucpe.lenses.files.native import lens_from_dict

NUMBERS = {
    "pinhole": "",
    "brown_conrady": "k1 k2 k3 k4 k5 k6 p1 p2",
    "ucm": "xi",
    "mei": "xi k1 k2 p1 p2",
    "eucm": "alpha beta",
    "double_sphere": "xi alpha",
    "kannala_brandt": "k1 k2 k3 k4",
}
SCALE = ("fx", "fy", "cx", "cy")
EXTREMES = (0.0, 1e-320, 1e-40, 1e-9, 0.5, 1.0, -1.0, 3.0, 1e3, 1e9, 1e19, 1e38, -1e38, 1e40, -1e40, 1e300, -1e300)


def check(lens, height, width):
    """Raise AssertionError if a ray or pixel of a lens is called valid and is none."""
    for dtype in (torch.float32, torch.float64):
        rays = lens.rays(height, width, dtype=dtype)
        assert rays.directions.isfinite().all() and rays.origins.isfinite().all()
        assert (rays.directions.norm(dim=-1) - 1).abs().max() < 1e-3
        pixels, _ = lens.project(rays.directions, height, width)
        assert pixels.isfinite().all()


@pytest.mark.parametrize(
    "description",
    [
        {"model": "brown_conrady", "k3": 1e40},
        {"model": "brown_conrady", "k2": 1e300},
        {"model": "brown_conrady", "k6": -1e300, "p1": 1e300},
        {"model": "pinhole", "cx": 1e38},
        {"model": "kannala_brandt", "k4": 1e300},
        {"model": "ucm", "xi": 1e300},
        {"model": "eucm", "alpha": 1.0, "beta": 1e300},
    ],
)
def test_named_cases(description):
    scale = {"fx": 100.0, "fy": 100.0, "cx": 32.0, "cy": 24.0, "width": 64, "height": 48}
    try:
        lens = lens_from_dict({**scale, **description})
    except ValueError:
        return
    check(lens, 12, 16)


@pytest.mark.parametrize("model", NUMBERS)
def test_random_extremes(model):
    generator, usable = random.Random(model), 0
    for _ in range(60):
        description = {"model": model, "width": 64, "height": 48, "fx": 50.0}
        for name in (*SCALE, *NUMBERS[model].split()):
            if generator.random() < 0.5:
                description[name] = generator.choice(EXTREMES)
        try:
            lens = lens_from_dict(description)
        except ValueError:
            continue
        usable += 1
        check(lens, 6, 8)
    assert usable > 5


def test_every_planar_model_is_fuzzed():
    assert set(NUMBERS) <= set(MODELS)
