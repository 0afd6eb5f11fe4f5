"""Calibrations of robotics, SLAM and video tools, each against an independent computation."""

import gzip
import json
import math
import re
import warnings

import cv2
import numpy as np
import pytest
import torch

from ucpe.lenses import (
    EUCM,
    BrownConrady,
    Division,
    DoubleSphere,
    Equirectangular,
    FieldOfView,
    KannalaBrandt,
    Mei,
    Pinhole,
    RadialPolynomial,
    find_lens,
    fit_image,
    load_lens,
)

POINTS = np.random.default_rng(0).uniform([-1, -0.7, 2], [1, 0.7, 4], (200, 3))

VINS = """%YAML:1.0
---
model_type: {kind}
camera_name: camera
image_width: 752
image_height: 480
{mirror}
distortion_parameters:
   k1: -2.9e-01
   k2: 8.5e-02
   p1: -4.0e-04
   p2: 1.8e-03
projection_parameters:
{projection}
"""
PINHOLE = "   fx: 461.6\n   fy: 460.3\n   cx: 363.0\n   cy: 248.1"
MEI = "   gamma1: 861.6\n   gamma2: 860.3\n   u0: 363.0\n   v0: 248.1"
KB = (
    "   k2: 0.0034\n   k3: 0.0007\n   k4: -0.002\n   k5: 0.0002\n   mu: 190.9\n   mv: 190.8\n   u0: 254.9\n   v0: 256.8"
)
ORB = """Camera.type: "{kind}"
Camera{one}.fx:\t458.6
Camera{one}.fy: 457.2
Camera{one}.cx: 367.2
Camera{one}.cy: 248.3
"""
ORB_DISTORTION = (
    "Camera{one}.k1: -0.28\nCamera{one}.k2: 0.07\nCamera{one}.{third}: 0.0002\nCamera{one}.{fourth}: 1e-05\n"
)
MATRIX = [[458.6, 0, 367.2], [0, 457.2, 248.3], [0, 0, 1]]
SIZE = {"image_width": 752, "image_height": 480}
SCALE = {"fx": 458.6, "fy": 457.2, "cx": 367.7, "cy": 248.8, "width": 752, "height": 480}
FOUR = {"k1": -0.28, "k2": 0.07, "p1": 0.0002, "p2": 1e-05}
VOCABULARY = {word: 300 for word in ("fx", "fy", "cx", "cy", "xi", "width", "height", *map(str, range(1000)))}
FISHEYE = dict(zip(("k1", "k2", "k3", "k4"), FOUR.values()))


def write(folder, text, name="c.yaml", encoding="utf-8"):
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding=encoding)
    return path


def same(first, second):
    assert type(first) is type(second) and first.settings == second.settings
    for name, value in first.parameters.items():
        assert float(value) == pytest.approx(float(second.parameters[name]), abs=1e-9), name


def check_cv2(lens, matrix, coefficients, xi=None, fisheye=False, width=752, height=480):
    """Our pixels are OpenCV's plus half a pixel."""
    matrix, coefficients = np.asarray(matrix, float).reshape(3, 3), np.asarray(coefficients, float).ravel()
    if xi is not None:
        unit = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
        plane = unit[:, :2] / (unit[:, 2:] + xi)
        expected = cv2.projectPoints(np.c_[plane, np.ones(len(plane))], np.zeros(3), np.zeros(3), matrix, coefficients)[
            0
        ]
    elif fisheye:
        expected = cv2.fisheye.projectPoints(POINTS[:, None], np.zeros(3), np.zeros(3), matrix, coefficients)[0]
    else:
        expected = cv2.projectPoints(POINTS, np.zeros(3), np.zeros(3), matrix, coefficients)[0]
    pixels, seen = lens.project(torch.from_numpy(POINTS), height, width)
    assert seen.all()
    assert np.abs(pixels.numpy() - expected.reshape(-1, 2) - 0.5).max() < 1e-7


def test_vins_and_camodocal(tmp_path):
    lens = load_lens(write(tmp_path, VINS.format(kind="PINHOLE", mirror="", projection=PINHOLE)))
    check_cv2(lens, [461.6, 0, 363, 0, 460.3, 248.1, 0, 0, 1], [-0.29, 0.085, -4e-4, 1.8e-3])
    text = VINS.format(kind="MEI", mirror="mirror_parameters:\n   xi: 1.6", projection=MEI)
    mei = load_lens(write(tmp_path, text))
    assert isinstance(mei, Mei)
    check_cv2(mei, [861.6, 0, 363, 0, 860.3, 248.1, 0, 0, 1], [-0.29, 0.085, -4e-4, 1.8e-3], xi=1.6)
    lens = load_lens(write(tmp_path, VINS.format(kind="KANNALA_BRANDT", mirror="", projection=KB)))
    check_cv2(lens, [190.9, 0, 254.9, 0, 190.8, 256.8, 0, 0, 1], [0.0034, 0.0007, -0.002, 0.0002], fisheye=True)
    with pytest.raises(ValueError, match=r"model_type: expected one of PINHOLE, .* got SCARAMUZZA"):
        load_lens(write(tmp_path, VINS.format(kind="SCARAMUZZA", mirror="", projection=KB)))


@pytest.mark.parametrize("one", ["", "1"])
def test_orbslam_old_and_new_keys(tmp_path, one):
    size = "Camera.width: 752\nCamera.height: 480\n"
    straight = ORB_DISTORTION.format(one=one, third="p1", fourth="p2")
    text = ORB.format(kind="PinHole", one=one) + straight
    same(load_lens(write(tmp_path, text + size)), BrownConrady(**FOUR, **SCALE))
    same(load_lens(write(tmp_path, text), size=(752, 480)), BrownConrady(**FOUR, **SCALE))
    with pytest.raises(ValueError, match="--lens-size WIDTHxHEIGHT"):
        load_lens(write(tmp_path, text))
    with pytest.raises(ValueError, match="says itself that it is for 752 x 480 pixels, not 640 x 480"):
        load_lens(write(tmp_path, text + size), size=(640, 480))
    curved = ORB_DISTORTION.format(one=one, third="k3", fourth="k4")
    text = ORB.format(kind="KannalaBrandt8", one=one) + curved + size
    same(load_lens(write(tmp_path, text)), KannalaBrandt(**FISHEYE, **SCALE))
    same(load_lens(write(tmp_path, ORB.format(kind="Rectified", one=one) + size)), Pinhole(**SCALE))
    second = ORB.format(kind="PinHole", one="2").split("\n", 1)[1]
    path = write(tmp_path, ORB.format(kind="PinHole", one=one) + second + size)
    with pytest.raises(ValueError, match=f"holds 2 cameras .* as .*c.yaml:Camera{one}"):
        load_lens(path)
    assert load_lens(f"{path}:Camera2").settings == {"width": 752, "height": 480}


def test_euroc_basalt_stella_gyroflow(tmp_path):
    intrinsics = "camera_model: pinhole\nintrinsics: [458.6, 457.2, 367.2, 248.3]\nresolution: [752, 480]\n"
    euroc = intrinsics + "distortion_model: {}\ndistortion_coefficients: [-0.28, 0.07, 0.0002, 1.0e-05]\n"
    same(load_lens(write(tmp_path, euroc.format("radial-tangential"))), BrownConrady(**FOUR, **SCALE))
    same(load_lens(write(tmp_path, euroc.format("equidistant"))), KannalaBrandt(**FISHEYE, **SCALE))
    focal = {"fx": 458.6, "fy": 457.2, "cx": 367.2, "cy": 248.3}
    models = {
        "ds": ({"xi": -0.2, "alpha": 0.57}, DoubleSphere(xi=-0.2, alpha=0.57, **SCALE)),
        "eucm": ({"alpha": 0.6, "beta": 1.1}, EUCM(alpha=0.6, beta=1.1, **SCALE)),
        "kb4": (FISHEYE, KannalaBrandt(**FISHEYE, **SCALE)),
        "pinhole": ({}, Pinhole(**SCALE)),
    }
    entries = [{"camera_type": kind, "intrinsics": {**focal, **extra}} for kind, (extra, _) in models.items()]
    basalt = {"value0": {"intrinsics": entries, "resolution": [[752, 480]] * 4, "T_imu_cam": []}}
    path = write(tmp_path, basalt, "b.json")
    for index, (_, lens) in enumerate(models.values()):
        same(load_lens(f"{path}:cam{index}"), lens)
    with pytest.raises(ValueError, match=r"value0\.resolution\[0\]: missing, .*--lens-size"):
        load_lens(write(tmp_path, {"value0": {"intrinsics": entries}}, "b.json"), "cam0")
    entries[0]["camera_type"] = "jelly"
    with pytest.raises(ValueError, match=r"value0\.intrinsics\[0\]\.camera_type: expected one of"):
        load_lens(write(tmp_path, basalt, "b.json"), "cam0")
    camera = {"model": "fisheye", **focal, **FISHEYE, "cols": 752, "rows": 480}
    same(load_lens(write(tmp_path, {"Camera": camera})), KannalaBrandt(**FISHEYE, **SCALE))
    old = {
        f"Camera.{key}": value
        for key, value in {**camera, **FOUR, "model": "perspective"}.items()
        if key not in ("k3", "k4")
    }
    same(load_lens(write(tmp_path, old)), BrownConrady(**FOUR, **SCALE))
    same(load_lens(write(tmp_path, {"Camera": {"model": "equirectangular"}})), Equirectangular())
    profile = {
        "calib_dimension": {"w": 752, "h": 480},
        "fisheye_params": {"camera_matrix": MATRIX, "distortion_coeffs": list(FISHEYE.values())},
        "digital_lens": None,
        "distortion_model": None,
    }
    same(load_lens(write(tmp_path, profile)), KannalaBrandt(**FISHEYE, **SCALE))
    with pytest.raises(ValueError, match="digital_lens: gopro_superview bends the image"):
        load_lens(write(tmp_path, {**profile, "digital_lens": "gopro_superview"}))


def test_opencv_spellings_that_were_silently_wrong(tmp_path):
    values = list(FISHEYE.values())
    fish, straight = KannalaBrandt(**FISHEYE, **SCALE), BrownConrady(**FOUR, **SCALE)
    for extra in ({"fisheye": True}, {"fisheye": "true"}, {"Fisheye_Model": 1}, {"distortion_model": "equidistant"}):
        same(load_lens(write(tmp_path, {"camera_matrix": MATRIX, "dist_coeffs": values, **SIZE, **extra})), fish)
    same(load_lens(write(tmp_path, {"K": MATRIX, "D": values, "Xi": [[1.2]], **SIZE})), Mei(xi=1.2, **FOUR, **SCALE))
    tutorial = {"Camera_Matrix": MATRIX, "Distortion_Coefficients": values, "image_Width": 752, "image_Height": 480}
    same(load_lens(write(tmp_path, tutorial)), straight)
    same(load_lens(write(tmp_path, tutorial, encoding="utf-16")), straight)
    same(load_lens(write(tmp_path, tutorial, encoding="utf-8-sig")), straight)
    transposed = np.array(MATRIX).T + np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]])
    matlab = {"IntrinsicMatrix": transposed.tolist(), "RadialDistortion": [-0.28, 0.07], "ImageSize": [480, 752]}
    same(load_lens(write(tmp_path, {**matlab, "TangentialDistortion": [0.0002, 1e-05]})), straight)
    stereo = {"M1": MATRIX, "D1": values, "M2": [[500, 0, 1], [0, 500, 2], [0, 0, 1]], "D2": [0.0] * 5}
    path = write(tmp_path, stereo)
    same(load_lens(f"{path}:M1", size=(752, 480)), straight)
    assert float(load_lens(path, "M2", (752, 480)).parameters["fx"]) == 500
    nested = write(tmp_path, {**SIZE, "left": {"K": MATRIX, "D": values}, "right": {"K": MATRIX, "D": [0.0] * 4}})
    same(load_lens(f"{nested}:left"), straight)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(left, right\)"):
        load_lens(nested)


@pytest.mark.parametrize(
    "content, lens",
    [
        ({"K": MATRIX, "D": list(FOUR.values()), "camera_model": "KannalaBrandt8"}, KannalaBrandt(**FISHEYE, **SCALE)),
        ({"K": MATRIX, "D": list(FOUR.values()), "DIM": [752, 480], "fisheye": 1}, KannalaBrandt(**FISHEYE, **SCALE)),
        ({"fx": 458.6, "fy": 457.2, "cx": 367.2, "cy": 248.3, **FOUR}, BrownConrady(**FOUR, **SCALE)),
        ({"fx": 458.6, "fy": 457.2, "ppx": 367.2, "ppy": 248.3, "model": "Brown Conrady", "coeffs": [0.0] * 5},
         BrownConrady(**SCALE)),
        ({"fx": 458.6, "fy": 457.2, "cx": 367.2, "cy": 248.3, **FISHEYE, "model": "fisheye"},
         KannalaBrandt(**FISHEYE, **SCALE)),
        ({"cam": {"fx": 458.6, "fy": 457.2, "cx": 367.2, "cy": 248.3, **FOUR}}, BrownConrady(**FOUR, **SCALE)),
        ({"K": [[*row, 0] for row in MATRIX]}, BrownConrady(**SCALE)),
        ({"P2": "458.6 0 367.2 44.8 0 457.2 248.3 0.2 0 0 1 0.003"}, BrownConrady(**SCALE)),
        ({"K_02": "458.6 0 367.2 0 457.2 248.3 0 0 1", "D_02": "-0.28 0.07 0.0002 1e-05 0", "S_02": "752 480"},
         BrownConrady(**FOUR, **SCALE)),
        ({"r3live_vio": {"camera_intrinsic": np.ravel(MATRIX).tolist(), "camera_dist_coeffs": [*FOUR.values(), 0.0]}},
         BrownConrady(**FOUR, **SCALE)),
        ({"K": [[458.6, 0, 368.2], [0, 457.2, 249.3], [0, 0, 1]], "RadialDistortion": [-0.28, 0.07],
          "TangentialDistortion": [0.0002, 1e-05], "ImageSize": [480, 752]}, BrownConrady(**FOUR, **SCALE)),
    ],
    ids=["kb8", "DIM", "numbers", "RealSense", "fisheye", "named", "3x4", "KITTI P", "KITTI K", "r3live", "MATLAB K"],
)  # fmt: skip
def test_other_spellings_of_a_camera_matrix(tmp_path, content, lens):
    sized = any(key in content for key in ("DIM", "S_02", "ImageSize"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(load_lens(write(tmp_path, content if sized else {**SIZE, **content})), lens)


def test_calibrations_of_one_line(tmp_path):
    droid = write(tmp_path, "458.6 457.2 367.2 248.3 -0.28 0.07 0.0002 1e-05\n", "euroc.txt")
    same(load_lens(droid, size=(752, 480)), BrownConrady(**FOUR, **SCALE))
    with pytest.raises(ValueError, match="give it with --lens-size"):
        load_lens(droid)
    same(load_lens(write(tmp_path, json.dumps({**SIZE, "K": MATRIX}).replace('"', ""))), BrownConrady(**SCALE))
    for line in ("0.9 0.9 0.5 0.5", "1305031102.17 1.3 1.6 1.7 0.66 0.62 -0.3 -0.29", "1 0 0 0 0 1 0 0 0 0 1 0"):
        with pytest.raises(ValueError, match="rows of numbers, such as a camera path"):
            load_lens(write(tmp_path, line, "one.txt"), size=(752, 480))


@pytest.mark.parametrize("between", [" ", ", "])
@pytest.mark.parametrize("side", [3, 4])
def test_a_camera_matrix_alone(tmp_path, side, between):
    matrix = np.eye(side)
    matrix[:3, :3] = MATRIX
    path = write(tmp_path, "\n".join(between.join(map(str, row)) for row in matrix) + "\n", "intrinsic_color.txt")
    same(load_lens(path, size=(752, 480)), BrownConrady(**SCALE))
    with pytest.raises(ValueError, match="give it with --lens-size"):
        load_lens(path)
    write(tmp_path, "\n".join(" ".join(map(str, row)) for row in np.eye(side)), "pose.txt")
    with pytest.raises(ValueError, match="rows of numbers, such as a camera path"):
        load_lens(tmp_path / "pose.txt", size=(752, 480))


def test_the_two_cameras_of_a_file_are_also_cam0_and_cam1(tmp_path):
    second = [[500, 0, 1], [0, 500, 2], [0, 0, 1]]
    for names in (("M1", "M2"), ("K_left", "K_right")):
        path = write(tmp_path, {**SIZE, names[1]: second, names[0]: MATRIX})
        same(load_lens(f"{path}:cam0"), load_lens(path, names[0]))
        assert float(load_lens(f"{path}:cam1").parameters["fx"]) == 500
        with pytest.raises(ValueError, match=f"no camera 'cam2'; there are {names[1]}, {names[0]}"):
            load_lens(f"{path}:cam2")


def test_what_a_file_does_not_say_is_said_and_what_it_says_is_not_ignored(tmp_path):
    with pytest.warns(UserWarning, match="the four numbers of D are: taken as k1 k2 p1 p2"):
        load_lens(write(tmp_path, {"K": MATRIX, "D": list(FOUR.values()), **SIZE}))
    with pytest.raises(ValueError, match=r"distortion_model: expected plumb_bob, .* got jelly"):
        load_lens(write(tmp_path, {"K": MATRIX, "D": list(FOUR.values()), **SIZE, "distortion_model": "jelly"}))
    ngp = {"is_fisheye": True, "fl_x": 300, "fl_y": 300, "cx": 376, "cy": 240, "w": 752, "h": 480, "k1": 0.1}
    assert isinstance(load_lens(write(tmp_path, {**ngp, "frames": []}, "transforms.json")), KannalaBrandt)
    with pytest.raises(ValueError, match="is_fisheye: expected camera_model OPENCV_FISHEYE"):
        load_lens(write(tmp_path, {**ngp, "camera_model": "OPENCV"}, "transforms.json"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_encodings_and_line_ends(tmp_path, encoding):
    text = VINS.format(kind="PINHOLE", mirror="", projection=PINHOLE)
    expected = load_lens(write(tmp_path, text))
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "c.yaml").write_bytes(text.replace("\n", end).encode(encoding))
        same(load_lens(tmp_path / "c.yaml"), expected)


@pytest.mark.parametrize("k", [-0.4, 0.1])
def test_radial_division_of_stella_and_colmap(tmp_path, k):
    scale = "  fx: 458.6\n  fy: 457.2\n  cx: 367.2\n  cy: 248.3\n  cols: 752\n  rows: 480\n"
    lens = load_lens(write(tmp_path, f"Camera:\n  model: radial_division\n{scale}  distortion: {k}\n"))
    same(lens, Division(k=k, **SCALE))
    rays = lens.rays(480, 752)
    distorted = np.stack(np.meshgrid((np.arange(752) - 367.2) / 458.6, (np.arange(480) - 248.3) / 457.2), -1)
    straight = distorted / (1 + k * (distorted**2).sum(-1, keepdims=True))
    inside = rays.valid.numpy()
    np.testing.assert_allclose(
        (rays.directions[..., :2] / rays.directions[..., 2:]).numpy()[inside], straight[inside], rtol=1e-4, atol=1e-5
    )
    assert inside.all()
    pycolmap = pytest.importorskip("pycolmap")
    camera = pycolmap.Camera(model="DIVISION", params=[458.6, 457.2, 367.7, 248.8, k], width=752, height=480)
    pixels, _ = lens.project(torch.from_numpy(POINTS), 480, 752)
    assert np.abs(pixels.numpy() - camera.img_from_cam(POINTS)).max() < 1e-6
    lens.save(tmp_path / "cameras.txt")
    same(load_lens(tmp_path / "cameras.txt"), lens)


@pytest.mark.parametrize("name", ["c.xml", "c.yml.gz", "c.json"])
def test_files_as_opencv_writes_them(tmp_path, name):
    storage = cv2.FileStorage(str(tmp_path / name), cv2.FILE_STORAGE_WRITE)
    storage.write("image_width", 752)
    storage.write("image_height", 480)
    storage.write("camera_matrix", np.array(MATRIX))
    storage.write("distortion_coefficients", np.array(list(FOUR.values())))
    storage.release()
    with pytest.warns(UserWarning, match="taken as k1 k2 p1 p2"):
        same(load_lens(tmp_path / name), BrownConrady(**FOUR, **SCALE))


def test_xml_with_entities_and_damaged_gzip_are_refused(tmp_path):
    bomb = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><opencv_storage>&b;</opencv_storage>'
    with pytest.raises(ValueError, match="document type or entities"):
        load_lens(write(tmp_path, bomb, "b.xml"))
    (tmp_path / "c.yml.gz").write_bytes(gzip.compress(b"camera_matrix: 1")[:-9])
    with pytest.raises(ValueError, match="a damaged gzip file"):
        load_lens(tmp_path / "c.yml.gz")


def test_a_ros_stream_gives_its_first_document(tmp_path):
    document = "header:\n  seq: {}\nheight: 480\nwidth: 752\ndistortion_model: plumb_bob\n"
    document += "D: [-0.28, 0.07, 0.0002, 1.0e-05, 0.0]\n"
    document += "K: [458.6, 0.0, 367.2, 0.0, 457.2, 248.3, 0.0, 0.0, 1.0]\nR: [1, 0, 0, 0, 1, 0, 0, 0, 1]\n"
    text = document.format(0) + "---\n" + document.format(1).replace("458.6", "999") + "---\nheader:\n  se"
    same(load_lens(write(tmp_path, text)), BrownConrady(**FOUR, **SCALE))


def test_woodscape_by_its_published_formula(tmp_path):
    entry = {"model": "radial_poly", "poly_order": 4, "aspect_ratio": 1.02, "width": 1280.0, "height": 966.0}
    entry |= {"k1": 339.7, "k2": -31.9, "k3": 48.2, "k4": -7.2, "cx_offset": 3.9, "cy_offset": -3.1}
    lens = load_lens(write(tmp_path, {"intrinsic": entry, "name": "FV"}))
    check_woodscape(lens, entry)


def check_woodscape(lens, entry):
    assert isinstance(lens, RadialPolynomial)
    points = np.random.default_rng(1).normal(size=(300, 3))
    points = points[points[:, 2] > -0.2 * np.linalg.norm(points, axis=1)]
    theta = np.arctan2(np.hypot(points[:, 0], points[:, 1]), points[:, 2])
    radius = sum(entry[f"k{power}"] * theta**power for power in range(1, 5))
    expected = (
        points[:, :2] / np.hypot(points[:, 0], points[:, 1])[:, None] * radius[:, None] * [1, entry["aspect_ratio"]]
    )
    centre = [entry["width"] / 2 + entry["cx_offset"] - 0.5, entry["height"] / 2 + entry["cy_offset"] - 0.5]
    pixels, seen = lens.project(torch.from_numpy(points), int(entry["height"]), int(entry["width"]))
    assert seen.all() and np.abs(pixels.numpy() - 0.5 - expected - centre).max() < 1e-9


OMEGA = 0.93
SHARES = {name: repr(SCALE[name] / side) for name, side in zip(("fx", "fy", "cx", "cy"), (752, 480, 752, 480))}


@pytest.mark.parametrize(
    "text",
    [
        f"1 FOV 752 480 458.6 457.2 367.7 248.8 {OMEGA}\n",
        f"FOV 458.6 457.2 367.2 248.3 {OMEGA}\n752 480\ncrop\n640 480\n",
        f"458.6 457.2 367.2 248.3 {OMEGA}\n752 480\n0.5 0.6 0.5 0.5 0\n640 480\n",
        f"{' '.join(SHARES.values())}\t{OMEGA}\n752 480\nnone\n752 480\n",
        f"cam_model: ATAN\ncam_width: 752\ncam_height: 480\ncam_d0: {OMEGA}\n"
        + "".join(f"cam_{name}: {value}\n" for name, value in SHARES.items()),
        "cam0:\n  camera_model: pinhole\n  intrinsics: [458.6, 457.2, 367.2, 248.3]\n  distortion_model: fov\n"
        f"  distortion_coeffs: [{OMEGA}]\n  resolution: [752, 480]\n",
    ],
    ids=["colmap", "dso", "dso[plain]", "dso[shares]", "vikit", "kalibr"],
)
def test_the_fov_model(tmp_path, text):
    lens = load_lens(write(tmp_path, text))
    assert isinstance(lens, FieldOfView)
    straight = np.hypot(POINTS[:, 0], POINTS[:, 1]) / POINTS[:, 2]
    bent = np.arctan(2 * straight * math.tan(OMEGA / 2)) / OMEGA
    expected = POINTS[:, :2] / POINTS[:, 2:] * (bent / straight)[:, None] * [458.6, 457.2] + [367.7, 248.8]
    pixels, seen = lens.project(torch.from_numpy(POINTS), 480, 752)
    assert seen.all() and np.abs(pixels.numpy() - expected).max() < 1e-9
    lens.save(tmp_path / "cameras.txt")
    pycolmap = pytest.importorskip("pycolmap")
    written = [float(word) for word in (tmp_path / "cameras.txt").read_text().split()[-5:]]
    camera = pycolmap.Camera(model="FOV", params=written, width=752, height=480)
    assert np.abs(camera.img_from_cam(POINTS) - expected).max() < 1e-6


def test_dso_cameras_of_other_models(tmp_path):
    size, values = "\n752 480\ncrop\n640 480\n", " ".join(map(str, FOUR.values()))
    for word in ("RadTan ", ""):
        lens = load_lens(write(tmp_path, f"{word}458.6 457.2 367.2 248.3 {values}{size}"))
        check_cv2(lens, MATRIX, list(FOUR.values()))
    for word in ("EquiDistant", "KannalaBrandt"):
        lens = load_lens(write(tmp_path, f"{word} 458.6 457.2 367.2 248.3 {values}{size}"))
        check_cv2(lens, MATRIX, list(FOUR.values()), fisheye=True)
    for word in ("Pinhole ", ""):
        same(load_lens(write(tmp_path, f"{word}458.6 457.2 367.2 248.3 0{size}")), Pinhole(**SCALE))
    with pytest.raises(ValueError, match=r"line 1: expected RadTan fx fy cx cy k1 k2 p1 p2; got RadTan 1 2 3 4"):
        load_lens(write(tmp_path, f"RadTan 1 2 3 4 5{size}"))


OV2SLAM = "Camera.model_left: {kind}\nCamera.model_right: {kind}\n" + "".join(
    f"Camera.{side}_nwidth: 752\nCamera.{side}_nheight: 480\n"
    f"Camera.fx{side[0]}: 458.6\nCamera.fy{side[0]}: 457.2\nCamera.cx{side[0]}: 367.2\nCamera.cy{side[0]}: 248.3\n"
    f"Camera.k1{side[0]}: -0.28\nCamera.k2{side[0]}: 0.07\nCamera.p1{side[0]}: 0.0002\nCamera.p2{side[0]}: 1e-05\n"
    for side in ("left", "right")
)


def test_ov2slam(tmp_path):
    check_cv2(load_lens(write(tmp_path, OV2SLAM.format(kind="pinhole")), "left"), MATRIX, list(FOUR.values()))
    path = write(tmp_path, OV2SLAM.format(kind="fisheye"))
    check_cv2(load_lens(f"{path}:right"), MATRIX, list(FOUR.values()), fisheye=True)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(left, right\)"):
        load_lens(path)


OCAM_INVERSE = (
    293.667187375663, 149.982043337335, -10.448650568161, 28.2295300683376, 7.13365723186292, 0.056303218962532,
    10.4144677485333, 0.166354960773665, -5.86858687381081, 1.18165998645705, 3.1108311354746, 0.810799620714366,
)  # fmt: skip
OCAM_DIRECT = (-209.200757992065, 0.0, 0.00213741670953883, -4.2203617319086e-06, 1.77146086919594e-08)
ACROSS, ALONG, DOWN = -0.0034775192597376, 0.00385134991673147, 0.999626131079017
SENSOR_CENTRE = 392.219508388648, 243.494438476351
MULTICOL = "Camera.Iw: 754\nCamera.Ih: 480\nCamera.nrpol: 5\nCamera.nrinvpol: 12\n" + "".join(
    f"Camera.{name}: {value}\n"
    for name, value in [
        *((f"a{power}", value) for power, value in enumerate(OCAM_DIRECT)),
        *zip("cde", (1.0, ACROSS, ALONG)),
        *zip(("u0", "v0"), SENSOR_CENTRE),
    ]
)
OCAM = f"""#polynomial coefficients for the DIRECT mapping function (ocam_model.ss in MATLAB)

5 {" ".join(map(str, OCAM_DIRECT))}

#polynomial coefficients for the inverse mapping function (ocam_model.invpol in MATLAB)

12 {" ".join(map(str, OCAM_INVERSE))}

#center: "row" and "column", starting from 0 (C convention)

{SENSOR_CENTRE[1]} {SENSOR_CENTRE[0]}

#affine parameters "c", "d", "e"

{DOWN} {ALONG} {ACROSS}

#image size: "height" and "width"

480 754
"""
KIMERA = f"""camera_model: omni
resolution: [754, 480]
intrinsics: []
distortion_model: omni
distortion_coefficients: {[-value for value in OCAM_DIRECT]}
omni_affine: [{ACROSS}, {ALONG}, {DOWN}]
omni_distortion_center: {list(SENSOR_CENTRE)}
"""


@pytest.mark.parametrize(
    "text, down", [(MULTICOL, 1.0), (OCAM, DOWN), (KIMERA, DOWN)], ids=["multicol", "ocamcalib", "kimera"]
)
def test_scaramuzzas_polynomials(tmp_path, text, down):
    """Against the calibration's own inverse polynomial, which our reader does not use."""
    with pytest.warns(UserWarning, match="nearest kannala_brandt, which is off by 1.. pixels at most"):
        lens = load_lens(write(tmp_path, text))
    points = np.random.default_rng(3).normal(size=(2000, 3))
    points = points[points[:, 2] > 0.1 * np.linalg.norm(points, axis=1)]
    sideways = np.hypot(points[:, 0], points[:, 1])
    radius = np.polynomial.polynomial.polyval(np.arctan(-points[:, 2] / sideways), OCAM_INVERSE)
    sensor = points[:, :2] / sideways[:, None] * radius[:, None]
    expected = sensor @ np.array([[1, ACROSS], [ALONG, down]]).T + SENSOR_CENTRE + 0.5
    inside = (expected > 0).all(1) & (expected < [754, 480]).all(1)
    pixels, seen = lens.project(torch.from_numpy(points[inside]), 480, 754)
    assert inside.sum() > 300 and seen.all()
    assert np.linalg.norm(pixels.numpy() - expected[inside], axis=1).max() < 2


def test_cameras_inside_of_a_configuration(tmp_path):
    inner = {"fx": 458.6, "fy": 457.2, "cx": 367.2, "cy": 248.3, **FOUR, "width": 752, "height": 480}
    check_cv2(load_lens(write(tmp_path, {"Dataset": {"Calibration": inner}})), MATRIX, list(FOUR.values()))
    path = write(tmp_path, {"rig": {"a": inner, "b": {**inner, "fx": 400.0}}})
    assert float(load_lens(f"{path}:rig.b").parameters["fx"]) == 400
    with pytest.raises(ValueError, match=r"holds 2 cameras \(rig.a, rig.b\)"):
        load_lens(path)


def test_stereolabs_conf(tmp_path):
    lines = "fx=458.6\nfy=457.2\ncx=367.2\ncy=248.3\nk1=-0.28\nk2=0.07\np1=0.0002\np2=1e-05\n"
    text = f"[LEFT_CAM_HD]\n{lines}\n[RIGHT_CAM_HD]\n{lines}\n[STEREO]\nBaseline=119.87\n"
    lens = load_lens(write(tmp_path, text, "SN1.conf"), "RIGHT_CAM_HD", size=(752, 480))
    check_cv2(lens, MATRIX, list(FOUR.values()))


@pytest.mark.parametrize(
    "text, message",
    [
        ("target_type: aprilgrid\ntagCols: 6\n", "looks like a calibration target"),
        ("gyroscope_noise_density: 1e-4\nupdate_rate: 200\n", "inertial sensor"),
        ("cam0_calib: cam0_mei.yaml\ngyr_n: 0.004\nimage_width: 752\n", "a VINS-Fusion configuration"),
        ('{"sfm_data_version": "0.3", "views": []}', "OpenMVG's sfm_data.json"),
        ('{"version": ["1"], "featuresFolders": [], "intrinsics": []}', r"AliceVision's \(Meshroom's\) sfm.json"),
        ("cameras: 3\nfps: 30\n", "its keys are cameras, fps"),
        ("[image]\nwidth\n640\n[width]\nwidth\n1\n", "not a calibration of a known format"),
        ("1.0 2.0 3.0\n4.0 5.0 6.0\n", "rows of numbers, such as a camera path"),
        ("A title: of words\nNo: more: words\n", "line 2: not YAML .*; expected a camera's calibration"),
        ("<document><chunk/></document>", "expected a <sensor> with a <calibration>"),
        (json.dumps(VOCABULARY), "a list of 1007 words with a number each, such as a tokenizer's vocabulary"),
        (json.dumps({"vocab": VOCABULARY}), "not a calibration of a known format: its keys are vocab"),
    ],
)
def test_what_is_no_calibration_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_lens(write(tmp_path, text))


@pytest.mark.parametrize("fit, size", [("crop", (752, 434)), ("pad", (832, 480))])
def test_fitting_a_calibration_keeps_its_rays(fit, size):
    lens = BrownConrady(**FOUR, **SCALE)
    fitted, note = fit_image(lens, 480, 832, fit)
    assert (fitted.settings["width"], fitted.settings["height"]) == size and "752 x 480" in note
    pixel = torch.tensor([300.0, 200.0], dtype=torch.float64)
    moved = pixel + torch.tensor([size[0] - 752, size[1] - 480]) / 2
    rays = lens.unproject(pixel, 480, 752).directions, fitted.unproject(moved, size[1], size[0]).directions
    torch.testing.assert_close(*rays)


def test_a_lens_by_file_or_name(tmp_path):
    path = write(tmp_path, {"K": MATRIX, **SIZE})
    same(find_lens(str(path)), BrownConrady(**SCALE))
    assert float(find_lens("fisheye", xfov=150).parameters["xfov"]) == 150
    with pytest.raises(ValueError, match="--xfov changes a named lens, not the calibration"):
        find_lens(str(path), xfov=90)


def test_files_as_tools_ship_them_against_opencv_and_published_formulas(published):
    real = published / "calibrations"

    def matrices(name, *keys):
        storage = cv2.FileStorage(str(real / name), cv2.FILE_STORAGE_READ)
        return [storage.getNode(key).mat() for key in keys]

    def named(name, focal, coefficients, prefix=""):
        """Camera matrix and coefficients by their keys."""
        text = (real / name).read_text()

        def number(key):
            return float(re.search(rf"^\s*{re.escape(prefix + key)}: *(\S+)", text, re.MULTILINE)[1])

        fx, fy, cx, cy = map(number, focal.split())
        return [fx, 0, cx, 0, fy, cy, 0, 0, 1], list(map(number, coefficients.split()))

    euroc = named("orb3_euroc.yaml", "fx fy cx cy", "k1 k2 p1 p2", "Camera1.")
    for name in ("orb3_euroc.yaml", "kimera_euroc_sensor.yaml"):
        check_cv2(load_lens(real / name), *euroc)
    file = "opencv_out_camera_data.yml"
    check_cv2(load_lens(real / file), *matrices(file, "Camera_Matrix", "Distortion_Coefficients"), width=640)
    for side in "12":
        lens = load_lens(f"{real / 'opencv_intrinsics_stereo.yml'}:M{side}", size=(640, 480))
        check_cv2(lens, *matrices("opencv_intrinsics_stereo.yml", f"M{side}", f"D{side}"), width=640)
    profile = json.loads((real / "gyro_gopro11.json").read_text())["fisheye_params"]
    lens = load_lens(real / "gyro_gopro11.json")
    check_cv2(lens, profile["camera_matrix"], profile["distortion_coeffs"], fisheye=True, width=3840, height=2160)
    stella = named("stella_fisheye.yaml", "fx fy cx cy", "k1 k2 k3 k4")
    check_cv2(load_lens(real / "stella_fisheye.yaml"), *stella, fisheye=True, width=960, height=540)
    tum = named("vinsm_tum_kb.yaml", "mu mv u0 v0", "k2 k3 k4 k5")
    check_cv2(load_lens(real / "vinsm_tum_kb.yaml"), *tum, fisheye=True, width=512, height=512)
    mei = named("vinsf_euroc_mei.yaml", "gamma1 gamma2 u0 v0", "xi k1 k2 p1 p2")
    check_cv2(load_lens(real / "vinsf_euroc_mei.yaml"), mei[0], mei[1][1:], xi=mei[1][0])
    entry = json.loads((real / "woodscape_front.json").read_text())["intrinsic"]
    check_woodscape(load_lens(real / "woodscape_front.json"), entry)
    entry = json.loads((real / "basalt_euroc_ds.json").read_text())["value0"]["intrinsics"][0]["intrinsics"]
    pixels, _ = load_lens(f"{real / 'basalt_euroc_ds.json'}:cam0").project(torch.from_numpy(POINTS), 480, 752)
    for (x, y, z), pixel in zip(POINTS, pixels.tolist()):
        first = math.sqrt(x * x + y * y + z * z)
        shifted = entry["xi"] * first + z
        depth = entry["alpha"] * math.sqrt(x * x + y * y + shifted * shifted) + (1 - entry["alpha"]) * shifted
        assert pixel == pytest.approx(
            [entry["fx"] * x / depth + entry["cx"] + 0.5, entry["fy"] * y / depth + entry["cy"] + 0.5]
        )
    with pytest.raises(ValueError, match="calibration target"):
        load_lens(real / "orb3_aprilgrid_target.yaml")


@pytest.mark.parametrize("header", ["%YAML:1.0\n", ""])
def test_settings_as_orbslam2_ships_them(tmp_path, header):
    """OpenCV takes `key:value` without a space, which YAML does not, and ORB-SLAM2's own files have one."""
    text = header + ORB.format(kind="PinHole", one="") + 'Viewer.PointSize:2\nViewer.Name:"a:b"\nWhere: a:1\n'
    text += ORB_DISTORTION.format(one="", third="p1", fourth="p2") + "Camera.width:752\nCamera.height:480\n"
    check_cv2(load_lens(write(tmp_path, text)), MATRIX, list(FOUR.values()))


INI = """# oST version 5.0 parameters


[image]

width
752

height
480

[narrow_stereo]

camera matrix
458.6 0.000000 367.2
0.000000 457.2 248.3
0.000000 0.000000 1.000000

distortion
-0.28 0.07 0.0002 1e-05 -0.01

rectification
1.000000 0.000000 0.000000
0.000000 1.000000 0.000000
0.000000 0.000000 1.000000

projection
262.9 0.000000 320.9 0.000000
0.000000 302.0 188.5 0.000000
0.000000 0.000000 1.000000 0.000000
"""


def test_ini_files_of_ros(tmp_path):
    check_cv2(load_lens(write(tmp_path, INI, "ost.txt")), MATRIX, [*FOUR.values(), -0.01])
    second = INI[INI.index("[narrow_stereo]") :].replace("narrow_stereo", "right")
    path = write(tmp_path, INI + second, "two.ini")
    with pytest.raises(ValueError, match=r"holds 2 cameras \(narrow_stereo, right\)"):
        load_lens(path)
    check_cv2(load_lens(f"{path}:right"), MATRIX, [*FOUR.values(), -0.01])
    with pytest.raises(ValueError, match="--lens-size"):
        load_lens(write(tmp_path, second, "no_size.ini"))
    with pytest.raises(ValueError, match="not a calibration of a known format"):
        load_lens(write(tmp_path, "[image]\nwidth\n640\n", "empty.ini"))


OKVIS = """%YAML:1.0
cameras:
     - {{T_SC:
        [ 1.0, 0.0, 0.0, 0.1,
          0.0, 1.0, 0.0, 0.0,
          0.0, 0.0, 1.0, 0.0,
          0.0, 0.0, 0.0, 1.0],
        image_dimension: [752, 480],
        distortion_coefficients: [-0.28, 0.07, 0.0002, 1e-05],
        distortion_type: {kind},
        focal_length: [458.6, 457.2],
        principal_point: [367.2, 248.3]}}
imu_params:
    a_max: 176.0
"""
SVO = """label: rig
cameras:
- camera:
    distortion:
      parameters:
        cols: 1
        rows: 4
        data: [-0.28, 0.07, 0.0002, 1.0e-05]
      type: {kind}
    image_height: 480
    image_width: 752
    intrinsics:
      cols: 1
      rows: 4
      data: [458.6, 457.2, 367.2, 248.3]
    label: cam0
    type: pinhole
  T_B_C:
    cols: 4
    rows: 4
    data: [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
"""
VIKIT = """cam_model: {kind}
cam_width: 752
cam_height: 480
scale: 0.5
cam_fx: 458.6
cam_fy: 457.2
cam_cx: 367.2
cam_cy: 248.3
cam_d0: -0.28
cam_d1: 0.07
cam_d2: 0.0002
cam_d3: 1.0e-05
"""


@pytest.mark.parametrize(
    "text, straight, curved, other",
    [
        (OKVIS, "radialtangential", "equidistant", "splined"),
        (SVO, "radial-tangential", "equidistant", "splined"),
        (VIKIT, "Pinhole", "EquidistantCamera", "PinholeSplined"),
    ],
    ids=["okvis", "svo", "vikit"],
)
def test_rigs_of_okvis_svo_and_fast_livo(tmp_path, text, straight, curved, other):
    check_cv2(load_lens(write(tmp_path, text.format(kind=straight))), MATRIX, list(FOUR.values()))
    check_cv2(load_lens(write(tmp_path, text.format(kind=curved))), MATRIX, list(FOUR.values()), fisheye=True)
    with pytest.raises(ValueError, match=f"expected one of .*; got {other}"):
        load_lens(write(tmp_path, text.format(kind=other)))


def test_one_camera_of_a_rig(tmp_path):
    text = SVO.format(kind="radial-tangential")
    alone = "\n".join(line[4:] for line in text.splitlines()[3:19])
    check_cv2(load_lens(write(tmp_path, alone)), MATRIX, list(FOUR.values()))
    second = text[text.index("- camera") :].replace("radial-tangential", "equidistant")
    path = write(tmp_path, text + second)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(cam0, cam1\): say which one, as .*c.yaml:cam0"):
        load_lens(path)
    check_cv2(load_lens(f"{path}:cam1"), MATRIX, list(FOUR.values()), fisheye=True)
    with pytest.raises(ValueError, match=r"cam0\.type: expected pinhole, got omni"):
        load_lens(write(tmp_path, text.replace("type: pinhole", "type: omni")))
    ways = {"cam0": VIKIT.format(kind="Pinhole"), "cam1": VIKIT.format(kind="PinholeEquidistant")}
    nested = "".join(f"{name}:\n" + "".join(f"  {line}\n" for line in way.splitlines()) for name, way in ways.items())
    check_cv2(load_lens(f"{write(tmp_path, nested)}:cam1"), MATRIX, list(FOUR.values()), fisheye=True)


def test_cameras_of_opensfm(tmp_path):
    """A pixel is a share of the longer side from the image centre, by OpenSfM's own convention."""
    camera = {"projection_type": "brown", "width": 752, "height": 480, "focal_x": 0.6, "focal_y": 0.61, "c_x": 0.01}
    camera |= {"c_y": -0.02, **FOUR, "k3": -0.01}
    matrix = [[0.6 * 752, 0, 375.5 + 7.52], [0, 0.61 * 752, 239.5 - 15.04], [0, 0, 1]]
    check_cv2(load_lens(write(tmp_path, {"v2 a b": camera}, "camera_models.json")), matrix, [*FOUR.values(), -0.01])
    fisheye = {**camera, "projection_type": "fisheye_opencv", **FISHEYE}
    models = {"a": camera, "b": fisheye, "c": {"projection_type": "spherical", "width": 4000, "height": 2000}}
    path = write(tmp_path, [{"cameras": models, "shots": {}}], "reconstruction.json")
    check_cv2(load_lens(f"{path}:b"), matrix, list(FOUR.values()), fisheye=True)
    assert isinstance(load_lens(f"{path}:c"), Equirectangular)
    with pytest.raises(ValueError, match=r"holds 3 cameras \(a, b, c\): say which one"):
        load_lens(path)
    with pytest.raises(ValueError, match=r"a\.projection_type: expected one of perspective.*; got dual"):
        load_lens(write(tmp_path, {"a": {**camera, "projection_type": "dual"}}, "camera_models.json"))


def test_a_gyroflow_profile_of_stretched_footage(tmp_path):
    """Gyroflow scales its matrix by (footage / calibration) x stretch, and divides its pixels by stretch again."""
    profile = {
        "calib_dimension": {"w": 1128, "h": 480},
        "input_horizontal_stretch": 1.5,
        "input_vertical_stretch": 1.0,
        "fisheye_params": {"camera_matrix": [[687.9, 0, 550.8], *MATRIX[1:]], "distortion_coeffs": [*FOUR.values()]},
    }
    with pytest.warns(UserWarning, match="stretched by 1.5 x 1 to the shape of 1128 x 480.* --fit squeeze"):
        lens = load_lens(write(tmp_path, profile, "anamorphic.json"))
    recorded, _ = fit_image(lens, 480, 752, "squeeze")
    pixels, seen = recorded.project(torch.from_numpy(POINTS), 480, 752)
    matrix = np.diag([752 / 1128, 1, 1]) @ np.array(profile["fisheye_params"]["camera_matrix"])
    expected = cv2.fisheye.projectPoints(POINTS[:, None], np.zeros(3), np.zeros(3), matrix, np.array([*FOUR.values()]))[
        0
    ]
    half = [0.5 * 752 / 1128, 0.5]  # half a pixel of the calibration
    assert seen.all() and np.abs(pixels.numpy() - expected.reshape(-1, 2) - half).max() < 1e-6


METASHAPE = """<?xml version="1.0" encoding="UTF-8"?>
<document version="2.1.0">
  <chunk label="Chunk 1" enabled="true">
    <sensors next_id="3">
      <sensor id="0" label="no calibration" type="frame"><resolution width="5472" height="3648"/></sensor>
      <sensor id="1" label="drone (10.3mm)" type="{kind}">
        <resolution width="1200" height="800"/>
        <calibration type="{kind}" class="adjusted">
          <resolution width="1200" height="800"/>
          <f>{f}</f><cx>-17.25</cx><cy>11.5</cy>{more}
        </calibration>
        <calibration type="frame" class="initial"><resolution width="1200" height="800"/><f>1</f></calibration>
      </sensor>
      {another}
    </sensors>
  </chunk>
</document>
"""


def metashape_pixels(plane, f, k, p1, p2, b1):
    """The published formula of Metashape's manual, for coordinates (N, 2) on the plane of a 1200 x 800 image."""
    (x, y), r2 = plane.T, (plane**2).sum(1)
    radial = 1 + k[0] * r2 + k[1] * r2**2 + k[2] * r2**3 + k[3] * r2**4
    bent_x = x * radial + p1 * (r2 + 2 * x**2) + 2 * p2 * x * y
    bent_y = y * radial + p2 * (r2 + 2 * y**2) + 2 * p1 * x * y
    return np.stack([600 - 17.25 + bent_x * (f + b1), 400 + 11.5 + bent_y * f], -1)


@pytest.mark.parametrize("kind", ["frame", "fisheye", "equidistant_fisheye", "equisolid_fisheye"])
def test_metashape(tmp_path, kind):
    k = {"frame": (-0.12, 0.03, -0.006, 0.0), "equisolid_fisheye": (0.053, 0.044, -0.012, 0.0)}.get(
        kind, (0.05, -0.01, 0.002, -0.0003)
    )
    f, p1, p2, b1 = (700.0, 0.0039, 0.0004, 0.5) if kind == "frame" else (330.0, 0.0, 0.0, 0.0)
    terms = {**{f"k{i + 1}": value for i, value in enumerate(k)}, "p1": p1, "p2": p2, "b1": b1}
    more = "".join(f"<{name}>{value}</{name}>" for name, value in terms.items() if value)
    text = METASHAPE.format(kind=kind, f=f, more=more, another="")
    if kind == "frame":  # PhotoScan before 1.2 calls the same lens so
        terms |= {"fx": f + b1, "fy": f, "p1": p2, "p2": p1, "cx": 582.75, "cy": 411.5, "b1": 0.0}
        old = "".join(f"<{name}>{value}</{name}>" for name, value in terms.items() if value)
        saved = f"<calibration><width>1200</width><height>800</height>{old}</calibration>"
        same(load_lens(write(tmp_path, saved, "old.xml")), load_lens(write(tmp_path, text, "new.xml")))
    with warnings.catch_warnings():
        warnings.simplefilter("error" if kind != "equisolid_fisheye" else "ignore")
        lens = load_lens(write(tmp_path, text.replace("\n", "\r\n"), "cameras.xml", "utf-8-sig"))
    angle = np.arctan2(np.linalg.norm(POINTS[:, :2], axis=1), POINTS[:, 2])
    radius = {"frame": np.tan(angle), "equisolid_fisheye": 2 * np.sin(angle / 2)}.get(kind, angle)
    plane = POINTS[:, :2] / np.linalg.norm(POINTS[:, :2], axis=1, keepdims=True) * radius[:, None]
    pixels, seen = lens.project(torch.from_numpy(POINTS), 800, 1200)
    assert seen.all()
    off = np.abs(pixels.numpy() - metashape_pixels(plane, f, k, p1, p2, b1)).max()
    assert off < (1.0 if kind == "equisolid_fisheye" else 1e-6)


def test_metashape_with_what_no_lens_of_ours_has(tmp_path):
    text = METASHAPE.format(kind="frame", f=700, more="<k1>-0.09</k1><k4>-0.07</k4><b2>-0.3</b2>", another="")
    with pytest.warns(UserWarning, match=r"nearest brown_conrady, which is off by 0\.\d+ pixels at most"):
        load_lens(write(tmp_path, text, "cameras.xml"))
    saved = "<calibration><projection>frame</projection><width>640</width><height>480</height><f>500</f></calibration>"
    lens = load_lens(write(tmp_path, saved, "lens.xml"))
    same(lens, BrownConrady(fx=500, width=640, height=480))
    same(
        load_lens(write(tmp_path, saved.replace("500", "900000"), "tele.xml")),
        BrownConrady(fx=900000, width=640, height=480),
    )
    another = '<sensor id="2" label="360" type="spherical"><resolution width="4096" height="2048"/></sensor>'
    two = write(tmp_path, METASHAPE.format(kind="frame", f=700, more="", another=another), "two.xml")
    assert isinstance(load_lens(f"{two}:2"), Equirectangular)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(1, 2\): say which one, as .*two.xml:1"):
        load_lens(two)
    for wrong, message in (
        (("frame", "cylindrical"), "type: expected one of frame"),
        (("500", "?"), "f: expected a number"),
        (("500", "-500"), "f: expected a positive number"),
        (("<f>", "<p3>0.1</p3><f>"), "p3: expected none"),
    ):
        with pytest.raises(ValueError, match=message):
            load_lens(write(tmp_path, saved.replace(*wrong), "bad.xml"))


XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/">
  <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
    <rdf:Description xmlns:xcr="http://www.capturingreality.com/ns/xcr/1.1#" xcr:Version="3" xcr:PosePrior="exact"
       xcr:DistortionModel="{model}" xcr:FocalLength35mm="24.5" xcr:Skew="0" xcr:AspectRatio="1"
       xcr:PrincipalPointU="-0.004" xcr:PrincipalPointV="0.002">
      <xcr:Position>66.9 45.3 5.5</xcr:Position>
      <xcr:DistortionCoeficients>{coefficients}</xcr:DistortionCoeficients>
    </rdf:Description>
  </rdf:RDF>
</x:xmpmeta>
"""


def test_realitycapture(tmp_path):
    path = write(tmp_path, XMP.format(model="brown3", coefficients="-0.12 0.1 -0.01 0 0 0"), "photo.xmp")
    with pytest.raises(ValueError, match="--lens-size WIDTHxHEIGHT"):
        load_lens(path)
    lens = load_lens(path, size=(800, 1200))
    x, y = POINTS[:, 0] / POINTS[:, 2], POINTS[:, 1] / POINTS[:, 2]
    r2 = x * x + y * y
    radial = 1 - 0.12 * r2 + 0.1 * r2**2 - 0.01 * r2**3
    sides = np.stack([24.5 / 36 * x * radial - 0.004, 24.5 / 36 * y * radial + 0.002], -1)  # of the longer side
    pixels, _ = lens.project(torch.from_numpy(POINTS), 1200, 800)
    assert np.abs(pixels.numpy() - (sides * 1200 + [400, 600])).max() < 1e-6
    plain = load_lens(write(tmp_path, XMP.format(model="division", coefficients="0 0 0 0 0 0")), size=(800, 1200))
    assert float(plain.parameters["fx"]) == pytest.approx(24.5 / 36 * 1200) and not float(plain.parameters["k1"])
    for model, coefficients, key in (
        ("brown4", "-0.1 0 0 0.2 0 0", "Coeficients"),
        ("division", "1 0 0 0 0 0", "Model"),
    ):
        with pytest.raises(ValueError, match=f"{key}: expected"):
            load_lens(write(tmp_path, XMP.format(model=model, coefficients=coefficients), "bad.xmp"), size=(800, 1200))


def test_lensfun_by_name():
    """Against Lensfun's published formula, and for fisheyes its correction to a rectilinear picture."""
    lensfunpy = pytest.importorskip("lensfunpy")
    lens = find_lens("lensfun:Canon EF 24-70mm f/2.8L II USM@24", size=(1200, 800))
    (entry,) = [one for one in lensfunpy.Database().lenses if one.model == "Canon EF 24-70mm f/2.8L II USM"]
    a, b, c = entry.interpolate_distortion(24.0).terms
    angles = np.radians(np.arange(1, 37, 5))
    straight = np.tan(angles) * 24 / math.hypot(36, 24) * math.hypot(1200, 800) / 400  # in half heights
    expected = 400 * straight * (a * straight**3 + b * straight**2 + c * straight + 1 - a - b - c)
    points = torch.from_numpy(np.stack([np.sin(angles), 0 * angles, np.cos(angles)], -1))
    np.testing.assert_allclose(lens.project(points, 800, 1200)[0][:, 0].numpy() - 600, expected, atol=0.3)

    with pytest.warns(UserWarning, match="taken as 1920 x 1280"):
        gopro = find_lens("lensfun:GoPro HERO4")
    assert isinstance(gopro, KannalaBrandt) and 80 < float(gopro.xfov(1280, 1920)) < 180
    (entry,) = [one for one in lensfunpy.Database().lenses if one.model == "HERO4"]
    modifier = lensfunpy.Modifier(entry, entry.crop_factor, 1920, 1280)
    flags = lensfunpy.ModifyFlags.GEOMETRY | lensfunpy.ModifyFlags.DISTORTION
    modifier.initialize(3.0, 4.0, 1000.0, 1.0, lensfunpy.LensType.RECTILINEAR, np.uint8, flags)
    shown = modifier.apply_geometry_distortion()
    focal = 3.0 * entry.crop_factor / math.hypot(36, 24) * math.hypot(1920, 1280)
    for u, v in ((1000, 700), (1500, 640), (960, 100), (1700, 1200)):
        point = torch.tensor([(u - 959.5) / focal, (v - 639.5) / focal, 1.0], dtype=torch.float64)
        np.testing.assert_allclose(gopro.project(point, 1280, 1920)[0].numpy() - 0.5, shown[v, u], atol=3)


@pytest.mark.parametrize(
    "name, message",
    [
        ("Canon EF 24-70mm f/2.8L II USM", "needs its focal length, 24 to 70"),
        ("Canon EF 24-70mm f/2.8L II USM@300", "needs its focal length, 24 to 70"),
        ("Canon EOS 5D Mark III", "takes .* lenses; name the lens, such as"),
        ("GoPro", "may be several: gopro"),
        ("Holga 9000", "no camera and no lens of that name"),
    ],
)
def test_names_that_are_no_lens_of_lensfun(name, message):
    pytest.importorskip("lensfunpy")
    with pytest.raises(ValueError, match=message):
        find_lens(f"lensfun:{name}")
