"""Projection agrees with OpenCV and COLMAP to 1e-6 px."""

import cv2
import numpy as np
import pytest
import torch

from ucpe.lenses import EUCM, UCM, BrownConrady, Equidistant, Equirectangular, KannalaBrandt, Mei, Pinhole

SIZE = {"width": 832, "height": 480}
FOCAL = {"fx": 410.5, "fy": 396.25, "cx": 402.75, "cy": 251.5, **SIZE}
MATRIX = np.array([[410.5, 0, 402.75], [0, 396.25, 251.5], [0, 0, 1]])
PARAMETERS = [410.5, 396.25, 402.75, 251.5]
RATIONAL = {"k1": 0.3, "k2": -0.1, "p1": 1e-3, "p2": -2e-3, "k3": 0.02, "k4": 0.6, "k5": 0.05, "k6": 0.01}
FISHEYE = {"k1": -0.01, "k2": 0.02, "k3": -0.012, "k4": 0.002}


def points_within(degrees: float, count: int = 500) -> np.ndarray:
    """Random points up to an angle from the optical axis, at distances from 0.5 to 20."""
    random = np.random.default_rng(0)
    angle, around = np.radians(degrees) * np.sqrt(random.uniform(size=count)), random.uniform(0, 2 * np.pi, count)
    direction = np.stack([np.sin(angle) * np.cos(around), np.sin(angle) * np.sin(around), np.cos(angle)], -1)
    return direction * random.uniform(0.5, 20, (count, 1))


def project(lens, points: np.ndarray) -> np.ndarray:
    pixels, seen = lens.project(torch.from_numpy(points), 480, 832)
    assert seen.all()
    return pixels.numpy()


@pytest.mark.parametrize(
    "lens, coefficients",
    [
        (Pinhole(**FOCAL), []),
        (BrownConrady(k1=-0.2, k2=0.03, **FOCAL), [-0.2, 0.03, 0, 0]),
        (BrownConrady(k1=-0.2, k2=0.03, p1=0.004, p2=-0.003, k3=0.001, **FOCAL), [-0.2, 0.03, 0.004, -0.003, 0.001]),
        (BrownConrady(**RATIONAL, **FOCAL), list(RATIONAL.values())),
    ],
    ids=["pinhole", "radial", "radial+tangential", "rational+tangential"],
)
def test_opencv_pinhole(lens, coefficients):
    points = points_within(45)
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), MATRIX, np.array(coefficients, dtype=float))
    assert np.abs(project(lens, points) - expected[:, 0]).max() < 1e-6


def test_opencv_undistorts_what_we_distort():
    lens = BrownConrady(**RATIONAL, **FOCAL)
    pixels = np.random.default_rng(0).uniform([50, 50], [780, 430], (200, 2))
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_MAX_ITER, 200, 1e-14)
    coefficients = np.array(list(RATIONAL.values()))
    ideal = cv2.undistortPoints(pixels[:, None], MATRIX, coefficients, criteria=criteria)[:, 0]
    rays = lens.unproject(torch.from_numpy(pixels), 480, 832)
    directions, valid = rays.directions.numpy(), rays.valid.numpy()
    assert valid.mean() > 0.5
    assert np.abs(directions[:, :2] / directions[:, 2:] - ideal)[valid].max() < 1e-8


def test_opencv_fisheye():
    points = points_within(75)
    lens = KannalaBrandt(**FISHEYE, **FOCAL)
    coefficients = np.array(list(FISHEYE.values()))
    expected, _ = cv2.fisheye.projectPoints(points[:, None], np.zeros(3), np.zeros(3), MATRIX, coefficients)
    assert np.abs(project(lens, points) - expected[:, 0]).max() < 1e-6


@pytest.mark.parametrize("xi", [0.3, 1.0, 2.3])
def test_opencv_projects_the_sphere_moved_by_xi(xi):
    points = points_within(100 if xi >= 1 else 70)
    sphere = points / np.linalg.norm(points, axis=-1, keepdims=True) + [0, 0, xi]
    arguments = sphere[:, None], np.zeros(3), np.zeros(3), MATRIX
    expected, _ = cv2.projectPoints(*arguments, np.zeros(4))
    assert np.abs(project(UCM(xi=xi, **FOCAL), points) - expected[:, 0]).max() < 1e-6
    expected, _ = cv2.projectPoints(*arguments, np.array([0.01, -0.002, 1e-3, -2e-3]))
    lens = Mei(xi=xi, k1=0.01, k2=-0.002, p1=1e-3, p2=-2e-3, **FOCAL)
    assert np.abs(project(lens, points) - expected[:, 0]).max() < 1e-6


@pytest.mark.parametrize(
    "model, parameters, lens, degrees",
    [
        ("PINHOLE", PARAMETERS, Pinhole(**FOCAL), 70),
        (
            "OPENCV",
            [*PARAMETERS, -0.2, 0.03, 0.004, -0.003],
            BrownConrady(k1=-0.2, k2=0.03, p1=0.004, p2=-0.003, **FOCAL),
            45,
        ),
        ("FULL_OPENCV", [*PARAMETERS, *RATIONAL.values()], BrownConrady(**RATIONAL, **FOCAL), 45),
        ("OPENCV_FISHEYE", [*PARAMETERS, *FISHEYE.values()], KannalaBrandt(**FISHEYE, **FOCAL), 85),
        ("EUCM", [*PARAMETERS, 0.6, 1.1], EUCM(alpha=0.6, beta=1.1, **FOCAL), 85),
        ("FISHEYE", PARAMETERS, Equidistant(**FOCAL), 85),
        ("EQUIRECTANGULAR", [832, 480], Equirectangular(), 175),
    ],
)
def test_colmap(model, parameters, lens, degrees):
    pycolmap = pytest.importorskip("pycolmap")
    camera = pycolmap.Camera(model=model, params=parameters, **SIZE)
    points = points_within(degrees)
    assert np.abs(project(lens, points) - camera.img_from_cam(points)).max() < 1e-6
