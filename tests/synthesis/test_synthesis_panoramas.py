import math
import shutil
import subprocess

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ucpe.lenses import UCM, Equirectangular, KannalaBrandt, OmniStereo, Pinhole
from ucpe.synthesis import panoramas, sphere
from ucpe.synthesis.panoramas import Panorama, View, render

LENSES = {
    "pinhole": Pinhole(xfov=95),
    "wide": UCM(xfov=130, xi=0.8),
    "fisheye": UCM(xfov=160, xi=1.5),
    "circle": UCM(xfov=200, xi=2.3),
    "kannala_brandt": KannalaBrandt(xfov=150, k1=0.02),
    "equirectangular": Equirectangular(),
}


def turn(yaw: float = 0, pitch: float = 0, roll: float = 0) -> np.ndarray:
    """Camera to world of a camera turned right by yaw, up by pitch, clockwise by roll (degrees)."""
    y, p, r = np.deg2rad([yaw, pitch, roll])
    about_y = [[math.cos(y), 0, math.sin(y)], [0, 1, 0], [-math.sin(y), 0, math.cos(y)]]
    about_x = [[1, 0, 0], [0, math.cos(p), -math.sin(p)], [0, math.sin(p), math.cos(p)]]
    about_z = [[math.cos(r), -math.sin(r), 0], [math.sin(r), math.cos(r), 0], [0, 0, 1]]
    return np.array(about_y) @ about_x @ about_z


def soft_colors(directions: np.ndarray) -> np.ndarray:
    """A smooth picture of all directions (..., 3), uint8."""
    a, b, c = np.moveaxis(directions, -1, 0)
    waves = [np.sin(5 * a + 2 * b) * np.cos(4 * c), np.sin(6 * b - 3 * a * c), np.cos(5 * a * b + 4 * c)]
    return np.round(127.5 + 120 * np.stack(waves, -1)).astype(np.uint8)


def soft_panorama(height: int) -> np.ndarray:
    return soft_colors(Equirectangular().rays(height, 2 * height, dtype=torch.float64).directions.numpy())


def eac_panorama(face: int) -> np.ndarray:
    """An unpadded 3 x 2 equi-angular cubemap of the smooth picture, from the definition of its faces."""
    faces = {  # the direction at the middle of the face, and the scene's direction at its right and bottom edge
        (0, 0): ("left", "front", "down"),
        (0, 1): ("front", "right", "down"),
        (0, 2): ("right", "back", "down"),
        (1, 0): ("down", "back", "left"),
        (1, 1): ("back", "up", "left"),
        (1, 2): ("up", "front", "left"),
    }
    axes = {"left": (-1, 0, 0), "right": (1, 0, 0), "up": (0, -1, 0), "down": (0, 1, 0), "front": (0, 0, 1)}
    axes["back"] = (0, 0, -1)
    pad, size = panoramas.EAC_PADDING, face
    picture = np.zeros((2 * size, 3 * size, 3), np.uint8)
    x = (np.arange(3 * size) + 0.5 - pad) / (3 * size - 2 * pad) * 3
    y = (np.arange(size) + 0.5 - pad) / (size - 2 * pad) - 0.5
    for (row, column), names in faces.items():
        middle, right, bottom = (np.array(axes[name], float) for name in names)
        where = slice(column * size, (column + 1) * size)
        u, v = np.meshgrid(np.tan(np.pi / 2 * (x[where] - column - 0.5)), np.tan(np.pi / 2 * y))
        direction = middle + u[..., None] * right + v[..., None] * bottom
        direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
        picture[row * size : (row + 1) * size, where] = soft_colors(direction)
    return picture


@pytest.mark.parametrize("interpolation", ["bilinear", "lanczos"])
@pytest.mark.parametrize("name", LENSES)
def test_every_lens_shows_the_colour_of_its_ray(name, interpolation):
    lens, rotation = LENSES[name], turn(75, 40, 20)
    picture, mask = render(soft_panorama(512), lens, rotation, 96, 168, interpolation, antialias=False)
    rays = lens.rays(96, 168, dtype=torch.float64)
    expected = soft_colors(rays.directions.numpy() @ rotation.T)
    assert np.array_equal(mask, rays.valid.numpy())
    assert np.abs(picture.astype(int) - expected)[mask].max() <= 2
    assert (picture[~mask] == 0).all()


@pytest.mark.parametrize("interpolation", ["bilinear", "lanczos"])
@pytest.mark.parametrize("name", LENSES)
def test_equi_angular_cubemap_shows_the_same(name, interpolation):
    lens, rotation = LENSES[name], turn(-130, -35, 10)
    panorama = Panorama(eac_panorama(256), "eac")
    picture, mask = render(panorama, lens, rotation, 96, 168, interpolation, antialias=False)
    expected = soft_colors(lens.rays(96, 168, dtype=torch.float64).directions.numpy() @ rotation.T)
    assert np.abs(picture.astype(int) - expected)[mask].max() <= 3
    assert np.abs(picture.astype(float) - expected)[mask].mean() < 0.6


@pytest.mark.parametrize("projection", ["equirectangular", "eac"])
def test_anti_aliased_levels_stay_in_register(projection):
    panorama = Panorama(soft_panorama(1024) if projection == "equirectangular" else eac_panorama(510), projection)
    lens, rotation = UCM(xfov=190, xi=2.1), turn(170, 80)
    picture, mask = render(panorama, lens, rotation, 60, 104)
    expected = soft_colors(lens.rays(60, 104, dtype=torch.float64).directions.numpy() @ rotation.T)
    assert np.abs(picture.astype(float) - expected)[mask].mean() < 1.5
    assert np.abs(picture.astype(int) - expected)[mask].max() < 16


@settings(max_examples=12)
@given(
    shift=st.integers(0, 255),
    yaw=st.floats(-180, 180),
    pitch=st.floats(-90, 90),
    interpolation=st.sampled_from(["bilinear", "lanczos"]),
    antialias=st.booleans(),
)
def test_rolling_the_panorama_is_turning_the_camera(shift, yaw, pitch, interpolation, antialias):
    generator = np.random.default_rng(3)
    coarse = generator.integers(0, 256, (32, 64, 3), dtype=np.uint8)
    panorama = coarse.repeat(4, 0).repeat(4, 1)  # hard edges everywhere, also at the seam
    lens, step = UCM(xfov=170, xi=1.6), 4 * (shift // 4)
    first, _ = render(panorama, lens, turn(yaw, pitch), 60, 104, interpolation, antialias)
    rolled = np.roll(panorama, step, axis=1)
    second, _ = render(rolled, lens, turn(yaw + step / 256 * 360, pitch), 60, 104, interpolation, antialias)
    difference = np.abs(first.astype(int) - second)
    assert difference.max() <= 26  # OpenCV interpolates at 1/32 pixel: two steps of that on the hardest edge
    assert difference.mean() < 0.4


def slow_equirectangular(picture, direction, lanczos):
    """One sample from the definition: every tap is the pixel that lies in that direction."""
    height, width, _ = picture.shape
    x = (math.atan2(direction[0], direction[2]) / (2 * math.pi) + 0.5) * width - 0.5
    y = (math.asin(direction[1]) / math.pi + 0.5) * height - 0.5
    reach = 4 if lanczos else 1
    taps = range(1 - reach, reach + 1)
    kernel = (lambda t: np.sinc(t) * np.sinc(t / 4) if abs(t) < 4 else 0.0) if lanczos else (lambda t: 1 - abs(t))
    total, weight = 0.0, 0.0
    for j in taps:
        for i in taps:
            row, column = math.floor(y) + j, math.floor(x) + i
            if not 0 <= row < height:
                row, column = (-1 - row if row < 0 else 2 * height - 1 - row), column + width // 2
            share = kernel(y - math.floor(y) - j) * kernel(x - math.floor(x) - i)
            total, weight = total + share * picture[row, column % width].astype(float), weight + share
    return np.clip(total / weight, 0, 255)


@pytest.mark.parametrize("lanczos", [False, True])
@pytest.mark.parametrize("rotation", [turn(180), turn(30, 90), turn(-120, -90, 45)], ids=["seam", "zenith", "nadir"])
def test_seam_and_poles_against_the_definition(rotation, lanczos):
    panorama = np.random.default_rng(1).integers(0, 256, (40, 80, 3), dtype=np.uint8)
    lens = Pinhole(xfov=30)
    picture, _ = render(panorama, lens, rotation, 14, 18, "lanczos" if lanczos else "bilinear", antialias=False)
    rays = lens.rays(14, 18, dtype=torch.float64).directions.numpy() @ rotation.T
    slow = np.array([[slow_equirectangular(panorama, ray, lanczos) for ray in row] for row in rays])
    assert np.abs(picture - slow).max() < 16  # noise of full contrast, positions rounded to 1/32 pixel
    assert np.abs(picture - slow).mean() < 1.5


def test_map_error_is_below_a_fiftieth_of_a_pixel():
    generator = np.random.default_rng(0)
    directions = generator.normal(size=(3, 400, 1000))
    directions /= np.linalg.norm(directions, axis=0)
    (x, y), edges = np.empty((2, 400, 1000), np.float32), np.empty(400_000, np.int32)
    sphere.map_equirectangular(
        directions.astype(np.float32), np.eye(3, dtype=np.float32), 3840, 1920, 0.0, 1, x, y, edges
    )
    exact_x = (np.arctan2(directions[0], directions[2]) / (2 * np.pi) + 0.5) * 3840 - 0.5
    exact_y = (np.arcsin(directions[1]) / np.pi + 0.5) * 1920 - 0.5
    wrapped = np.abs((x - exact_x + 1920) % 3840 - 1920) * np.sqrt(1 - directions[1] ** 2)
    assert wrapped.max() < 0.02
    assert np.abs(y - exact_y).max() < 0.02


def zone_plate(height: int) -> np.ndarray:
    """Rings around +z whose spacing falls to two panorama pixels at 90 degrees: too fine for any smaller picture."""
    directions = Equirectangular().rays(height, 2 * height, dtype=torch.float64).directions.numpy()
    angle = np.arccos(directions[..., 2].clip(-1, 1))
    rings = 0.5 + 0.5 * np.cos(height / np.pi * angle**2)
    return np.round(255 * rings).astype(np.uint8)[..., None].repeat(3, -1)


def test_moire_of_a_zone_plate_is_gone():
    """Away from the axis the rings are finer than the view's pixels: all that is left there should be grey."""
    panorama = Panorama(zone_plate(1024))
    lens = UCM(xfov=200, xi=2.3)
    angle = np.arccos(lens.rays(120, 208, dtype=torch.float64).directions[..., 2].numpy())
    contrast = {}
    for antialias in (False, True):
        picture, mask = render(panorama, lens, np.eye(3), 120, 208, antialias=antialias)
        contrast[antialias] = picture[mask & (angle > 1.1) & (angle < 1.5)].astype(float).std()
    assert contrast[False] > 50
    assert contrast[True] < contrast[False] / 6


def test_a_lens_that_magnifies_is_not_blurred():
    panorama = soft_panorama(128)
    lens = Pinhole(xfov=40)
    sharp, _ = render(panorama, lens, turn(30), 120, 208, antialias=False)
    assert np.array_equal(render(panorama, lens, turn(30), 120, 208, antialias=True)[0], sharp)


def test_planes_are_those_of_the_picture():
    """Rendering 4:2:0 planes agrees with rendering RGB-like full planes sampled at the same sites."""
    full = soft_panorama(512)
    sites = (
        Equirectangular()
        .unproject(torch.from_numpy(panoramas._grid(256, 512, 2, 0.5, 1.0)), 512, 1024)
        .directions.numpy()
    )
    chroma = soft_colors(sites)
    view = View(LENSES["fisheye"], 96, 168, antialias=False)
    sources = tuple(Panorama(np.ascontiguousarray(plane)) for plane in (full[..., 0], chroma[..., 1], chroma[..., 2]))
    rotation = turn(179, 60)
    planes = view.planes(sources, rotation)
    at = LENSES["fisheye"].unproject(torch.from_numpy(panoramas._grid(48, 84, 2, 0.5, 1.0)), 96, 168)
    expected = soft_colors(at.directions.numpy() @ rotation.T)
    valid = at.valid.numpy()
    assert np.array_equal(planes.luma, view.picture(full, rotation)[..., 0])
    assert np.abs(planes.blue.astype(int) - expected[..., 1])[valid].max() <= 2
    assert np.abs(planes.red.astype(int) - expected[..., 2])[valid].max() <= 2


def test_a_view_used_again_shows_what_a_new_one_would():
    lens, small, large = UCM(xfov=150, xi=1), soft_panorama(64), soft_panorama(128)
    panoramas = [Panorama(small), Panorama(255 - small), Panorama(large), Panorama(eac_panorama(32), "eac")]
    view = View(lens, 32, 48)
    for panorama in (*panoramas, *reversed(panoramas)):
        for yaw in (0, 0, 40, 0):
            fresh = View(lens, 32, 48).picture(panorama, turn(yaw))
            np.testing.assert_array_equal(view.picture(panorama, turn(yaw)), fresh)


def test_black_is_black_in_either_range():
    dim = Panorama(np.full((64, 128), 200, np.uint8))
    half = Panorama(np.full((32, 64), 90, np.uint8))
    view = View(LENSES["circle"], 96, 96)
    for full_range, black in ((False, 16), (True, 0)):
        planes = view.planes((dim, half, half), np.eye(3), full_range)
        assert planes.luma[0, 0] == black and planes.blue[0, 0] == planes.red[0, 0] == 128


def test_origins_of_a_non_central_lens_are_ignored():
    panorama = soft_panorama(128)
    flat = render(panorama, Equirectangular(), turn(20), 64, 128)[0]
    offset = render(panorama, OmniStereo(baseline=0.5), turn(20), 64, 128)[0]
    assert np.array_equal(flat, offset)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_layout_is_that_of_ffmpeg(tmp_path):
    Image.fromarray(soft_panorama(480)).save(tmp_path / "flat.png")
    command = ["ffmpeg", "-v", "error", "-i", "flat.png", "-vf", "v360=e:eac:w=768:h=512", "eac.png"]
    subprocess.run(command, cwd=tmp_path, check=True)
    panorama = Panorama.open(tmp_path / "eac.png", "eac")
    for rotation in (turn(), turn(180), turn(90, 60), turn(-90, -60), turn(0, 90), turn(0, -90)):
        from_eac, mask = render(panorama, LENSES["fisheye"], rotation, 96, 168, antialias=False)
        from_flat, _ = render(
            Panorama.open(tmp_path / "flat.png"), LENSES["fisheye"], rotation, 96, 168, antialias=False
        )
        assert np.abs(from_eac.astype(int) - from_flat)[mask].mean() < 1.5
        assert np.abs(from_eac.astype(int) - from_flat)[mask].max() < 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Panorama(np.zeros((8, 16, 3))), "uint8"),
        (lambda: Panorama(np.zeros((8, 16, 3), np.uint8), "cylinder"), "projection"),
        (lambda: Panorama(np.zeros((9, 16, 3), np.uint8), "eac"), "3 x 2"),
        (lambda: render(soft_panorama(16), Pinhole(xfov=60), np.eye(4), 8, 8), r"\(3, 3\)"),
        (lambda: render(soft_panorama(16), Pinhole(xfov=60), np.eye(3) * 2, 8, 8), "orthonormal"),
        (lambda: render(soft_panorama(16), Pinhole(xfov=60), np.diag([1, 1, -1.0]), 8, 8), "determinant"),
        (lambda: render(soft_panorama(16), Pinhole(xfov=60), np.eye(3), 0, 8), "height"),
        (lambda: render(soft_panorama(16), Pinhole(xfov=60), np.eye(3), 8, 8, "cubic"), "interpolation"),
        (lambda: View(Pinhole(xfov=torch.tensor([60.0, 70.0])), 8, 8), "one lens"),
        (lambda: Panorama.open("nowhere.png"), "nowhere.png"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((ValueError, OSError), match=message):
        make()
