"""Geometry does not depend on torch's default dtype or device, which loaders of large models change."""

import subprocess
import sys

import pytest
import torch

from ucpe.encodings import ENCODINGS, camera_operator, lat_up_map
from ucpe.lenses import MODELS, lens_by_name
from ucpe.trajectories import NAMED_MOVES, Trajectory

SIZE = {"height": 33, "width": 57}


def numbers(lens_name, move):
    """Everything that is computed from one camera."""
    lens = lens_by_name(lens_name)
    camera = Trajectory.move(move, lens, frames=5, pitch=10)
    rays = lens.rays(**SIZE)
    pixels, seen = lens.project(rays.directions, **SIZE)
    return {
        "directions": rays.directions,
        "valid": rays.valid,
        "pixels": pixels,
        "seen": seen,
        "intrinsics": lens.intrinsics(**SIZE),
        "xfov": lens.xfov(**SIZE),
        "yfov": lens.yfov(**SIZE),
        "c2w": camera.c2w,
        "resampled": camera.resample(frames=7).c2w,
        "latent": camera.latent_frames().c2w,
        "angles": torch.stack(list(camera.angles)),
        "lat_up": lat_up_map(lens, camera.c2w, **SIZE),
    }


def same(found, expected):
    for name, value in expected.items():
        assert found[name].device.type == "cpu", name
        if value.is_floating_point():
            assert torch.finfo(found[name].dtype).bits >= 32, name
            assert torch.equal(found[name].double(), value.double()), name
        else:
            assert torch.equal(found[name], value), name


CAMERAS = [*((name, "orbit") for name in MODELS), *(("wide", move) for move in NAMED_MOVES)]


@pytest.mark.parametrize("lens, move", CAMERAS)
def test_under_another_default_dtype(lens, move):
    expected = numbers(lens, move)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = numbers(lens, move)
    finally:
        torch.set_default_dtype(torch.float32)
    same(found, expected)


@pytest.mark.parametrize("lens, move", CAMERAS)
def test_under_another_default_device(lens, move):
    expected = numbers(lens, move)
    with torch.device("meta"):
        found = numbers(lens, move)
    same(found, expected)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_operators_under_other_defaults(encoding):
    def blocks():
        camera = Trajectory.orbit(lens_by_name("fisheye"), frames=3, degrees=40)
        operator = camera_operator(encoding, camera.lens, camera.c2w, 3, 5, 16)
        return {name: getattr(operator, name) for name in ("blocks", "inverse", "cosine", "sine")}

    expected = blocks()
    with torch.device("meta"):
        same(blocks(), expected)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = blocks()
    finally:
        torch.set_default_dtype(torch.float32)
    same(found, expected)


@pytest.mark.parametrize("default", ["torch.set_default_device('meta')", "torch.set_default_dtype(torch.bfloat16)"])
def test_the_package_is_imported_and_adapters_are_made_under_other_defaults(default):
    """As loaders do it, for the first time in a process."""
    script = f"""
import torch
{default}
import ucpe, pkgutil, importlib
for name in ucpe.__all__:
    getattr(ucpe, name)
for room in ("lenses", "trajectories", "encodings", "adapters", "generation", "synthesis", "evaluation"):
    importlib.import_module(f"ucpe.{{room}}")
import ucpe.evaluation.inputs, ucpe.trajectories.formats
ucpe.CameraAdapter(width=64, num_blocks=2, base_heads=2, heads=2, head_dim=24)
assert ucpe.Trajectory.orbit(ucpe.UCM(xfov=180, xi=2.0), frames=5).c2w.dtype == torch.float64
assert ucpe.Pinhole(xfov=90).rays(4, 4).directions.dtype == torch.float32
assert ucpe.trajectories.formats.transforms.WORLD.device.type == "cpu"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
