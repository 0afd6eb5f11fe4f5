"""Calibration files: read as the tools that write them mean it, refused with the key or line that is wrong."""

import json

import cv2
import numpy as np
import pytest
import torch

from ucpe.lenses import (
    EUCM,
    UCM,
    BrownConrady,
    DoubleSphere,
    Equidistant,
    Equirectangular,
    KannalaBrandt,
    Mei,
    OmniStereo,
    Pinhole,
    Stereographic,
    lens_from_dict,
    load_lens,
)

CAMCHAIN = """
cam0:
  camera_model: pinhole
  intrinsics: [458.654, 457.296, 367.215, 248.375]
  distortion_model: radtan
  distortion_coeffs: [-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05]
  resolution: [752, 480]
  T_cam_imu:
  - [1.0, 0.0, 0.0, 0.0]
  - [0.0, 1.0, 0.0, 0.0]
  - [0.0, 0.0, 1.0, 0.0]
  - [0.0, 0.0, 0.0, 1.0]
cam1:
  camera_model: omni
  intrinsics: [1.5, 700.0, 701.0, 400.0, 250.0]
  distortion_model: radtan
  distortion_coeffs: [-0.01, 0.002, 1e-3, 2e-3]
  resolution: [752, 480]
"""

OPENCV = """%YAML:1.0
---
calibration_time: "Tue"
image_width: 752
image_height: 480
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 458.654, 0., 367.215, 0., 457.296, 248.375, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0. ]
"""


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def same(first, second, tolerance=1e-9):
    assert type(first) is type(second)
    assert first.settings == second.settings
    for name, value in first.parameters.items():
        assert torch.allclose(value.double(), second.parameters[name].double(), atol=tolerance), name


def test_kalibr(tmp_path):
    path = write(tmp_path, "camchain.yaml", CAMCHAIN)
    size = {"width": 752, "height": 480}
    focal = {"fx": 458.654, "fy": 457.296, "cx": 367.715, "cy": 248.875}
    distortion = {"k1": -0.28340811, "k2": 0.07395907, "p1": 0.00019359, "p2": 1.76187114e-05}
    same(load_lens(path, "cam0"), BrownConrady(**focal, **distortion, **size))
    omni = Mei(xi=1.5, fx=700, fy=701, cx=400.5, cy=250.5, k1=-0.01, k2=0.002, p1=1e-3, p2=2e-3, **size)
    same(load_lens(path, "cam1"), omni)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(cam0, cam1\): say which one, as .*:cam0"):
        load_lens(path)
    with pytest.raises(ValueError, match="no camera 'cam7'; there are cam0, cam1"):
        load_lens(path, "cam7")


def test_opencv_pixels_are_shifted_to_our_centres(tmp_path):
    """cv2 says pixel (0, 0) has its centre at (0, 0); the same point in our pixels is half a pixel further."""
    lens = load_lens(write(tmp_path, "calibration.yml", OPENCV))
    storage = cv2.FileStorage(str(tmp_path / "calibration.yml"), cv2.FILE_STORAGE_READ)
    matrix, coefficients = (storage.getNode(k).mat() for k in ("camera_matrix", "distortion_coefficients"))
    points = np.random.default_rng(0).uniform([-1, -0.6, 2], [1, 0.6, 4], (50, 3))
    expected, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), matrix, coefficients)
    pixels, seen = lens.project(torch.from_numpy(points), 480, 752)
    assert seen.all()
    assert np.abs(pixels.numpy() - (expected[:, 0] + 0.5)).max() < 1e-9


def test_opencv_variants(tmp_path):
    size = {"image_width": 640, "image_height": 480}
    matrix = [[400, 0, 319.5], [0, 401, 239.5], [0, 0, 1]]
    scale = {"fx": 400, "fy": 401, "cx": 320, "cy": 240, "width": 640, "height": 480}

    def read(**content):
        return load_lens(write(tmp_path, "c.json", json.dumps({"camera_matrix": matrix, **size, **content})))

    fisheye = KannalaBrandt(k1=0.1, k2=0.02, k3=0.003, k4=0.0004, **scale)
    same(read(distortion_coefficients=[0.1, 0.02, 0.003, 0.0004], fisheye_model=1), fisheye)
    same(read(D=[0.1, 0.02, 0.003, 0.0004], distortion_model="equidistant"), fisheye)
    same(
        read(dist_coeffs=[[0.1, 0.02, 0.003, 0.0004]], xi=1.25),
        Mei(xi=1.25, k1=0.1, k2=0.02, p1=0.003, p2=0.0004, **scale),
    )
    same(read(), BrownConrady(**scale))
    ros = {"rows": 1, "cols": 5, "data": [0.1, 0.02, 0.003, 0.0004, 0.5]}
    same(
        read(distortion_coefficients=ros, distortion_model="plumb_bob"),
        BrownConrady(k1=0.1, k2=0.02, p1=0.003, p2=0.0004, k3=0.5, **scale),
    )
    same(read(D=[0.0] * 14), BrownConrady(**scale))
    with pytest.raises(ValueError, match=r"c\.json: D: expected 8 coefficients"):
        read(D=[0.0] * 11 + [0.3, 0.0, 0.0])


SCALE = {"fx": 410.5, "fy": 396.25, "cx": 402.75, "cy": 251.5, "width": 832, "height": 480}
COLMAP = {
    "PINHOLE": Pinhole(**SCALE),
    "SIMPLE_PINHOLE": Pinhole(**{**SCALE, "fy": 410.5}),
    "SIMPLE_RADIAL": BrownConrady(k1=0.01, **{**SCALE, "fy": 410.5}),
    "RADIAL": BrownConrady(k1=0.01, k2=0.02, **{**SCALE, "fy": 410.5}),
    "OPENCV": BrownConrady(k1=0.01, k2=0.02, p1=0.03, p2=0.04, **SCALE),
    "FULL_OPENCV": BrownConrady(k1=0.01, k2=0.02, p1=0.03, p2=0.04, k3=0.05, k4=0.06, k5=0.07, k6=0.08, **SCALE),
    "OPENCV_FISHEYE": KannalaBrandt(k1=0.01, k2=0.02, k3=0.03, k4=0.04, **SCALE),
    "SIMPLE_RADIAL_FISHEYE": KannalaBrandt(k1=0.01, **{**SCALE, "fy": 410.5}),
    "RADIAL_FISHEYE": KannalaBrandt(k1=0.01, k2=0.02, **{**SCALE, "fy": 410.5}),
    "SIMPLE_FISHEYE": Equidistant(**{**SCALE, "fy": 410.5}),
    "FISHEYE": Equidistant(**SCALE),
    "EUCM": EUCM(alpha=0.01, beta=0.02, **SCALE),
    "EQUIRECTANGULAR": Equirectangular(),
}


def colmap_reconstruction():
    pycolmap = pytest.importorskip("pycolmap")
    reconstruction = pycolmap.Reconstruction()
    for number, name in enumerate(COLMAP, 1):
        camera = pycolmap.Camera.create_from_model_name(number, name, 410.5, 832, 480)
        camera.camera_id = number
        fixed = {"fx": 410.5, "f": 410.5, "fy": 396.25, "cx": 402.75, "cy": 251.5, "w": 832, "h": 480}
        extra = iter(0.01 * i for i in range(1, 20))
        names = [key.strip() for key in camera.params_info.split(",")]
        camera.params = [fixed[key] if key in fixed else next(extra) for key in names]
        reconstruction.add_camera_with_trivial_rig(camera)
    return reconstruction


@pytest.mark.parametrize("kind", ["txt", "bin"])
def test_colmap_as_pycolmap_writes_it(tmp_path, kind):
    reconstruction = colmap_reconstruction()
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    folder = tmp_path / "sparse" / "0"
    (reconstruction.write_text if kind == "txt" else reconstruction.write_binary)(str(folder))
    for number, (name, lens) in enumerate(COLMAP.items(), 1):
        same(load_lens(tmp_path, camera=number), lens)
        same(load_lens(folder / f"cameras.{kind}", camera=number), lens)
        assert reconstruction.cameras[number].model_name == name


def test_colmap_pixels_need_no_shift(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    lens = load_lens(write(tmp_path, "cameras.txt", "# a comment\n3 PINHOLE 832 480 410.5 396.25 402.75 251.5\n"))
    camera = pycolmap.Camera(model="PINHOLE", params=[410.5, 396.25, 402.75, 251.5], width=832, height=480)
    points = np.random.default_rng(0).uniform([-1, -0.6, 2], [1, 0.6, 4], (50, 3))
    assert (
        np.abs(lens.project(torch.from_numpy(points), 480, 832)[0].numpy() - camera.img_from_cam(points)).max() < 1e-9
    )


def test_transforms_shared_intrinsics(tmp_path):
    content = {"camera_model": "OPENCV", "fl_x": 410.5, "fl_y": 396.25, "cx": 402.75, "cy": 251.5, "w": 832, "h": 480}
    content |= {"k1": 0.1, "k2": 0.02, "p1": 0.003, "p2": 0.0004, "frames": [{"file_path": "a.png"}]}
    lens = load_lens(write(tmp_path, "transforms.json", json.dumps(content)))
    same(lens, BrownConrady(k1=0.1, k2=0.02, p1=0.003, p2=0.0004, **SCALE))


def test_transforms_per_frame_intrinsics_make_a_batch(tmp_path):
    frames = [{"fl_x": 400 + i, "fl_y": 400 + i, "cx": 320, "cy": 240, "w": 640, "h": 480} for i in range(3)]
    path = write(
        tmp_path, "transforms.json", json.dumps({"camera_model": "OPENCV_FISHEYE", "k1": 0.1, "frames": frames})
    )
    lens = load_lens(path)
    assert lens.batch_shape == (3,)
    same(lens[1], KannalaBrandt(k1=0.1, fx=401, fy=401, cx=320, cy=240, width=640, height=480))
    same(load_lens(path, camera=2), lens[2])
    frames[2]["w"] = 320
    with pytest.raises(ValueError, match=r"frames\[2\]: expected the camera model and size of frame 0"):
        load_lens(write(tmp_path, "transforms.json", json.dumps({"frames": frames})))


def test_transforms_of_blender(tmp_path):
    path = write(tmp_path, "transforms_train.json", json.dumps({"camera_angle_x": 0.6911112070083618, "frames": []}))
    same(load_lens(path), Pinhole(xfov=39.597752709049864))


def test_our_own_files_hold_every_lens(lens, tmp_path):
    for name in ("lens.json", "lens.yaml"):
        lens.save(tmp_path / name)
        same(load_lens(tmp_path / name), lens, 0)
    same(lens_from_dict(lens.to_dict()), lens, 0)
    batch = lens.expand(2)
    batch.save(tmp_path / "batch.json")
    assert load_lens(tmp_path / "batch.json").batch_shape == (2,)


@pytest.mark.parametrize(
    "format, lens",
    [
        *(("kalibr", lens) for lens in (Pinhole(xfov=80), EUCM(xfov=150, alpha=0.6), DoubleSphere(xfov=150, xi=0.1))),
        ("kalibr", BrownConrady(k1=0.1, k2=-0.05, p1=0.01, p2=0.02, **SCALE)),
        ("kalibr", KannalaBrandt(k1=0.1, **SCALE)),
        ("kalibr", UCM(xi=1.2, **SCALE)),
        ("kalibr", Mei(xi=1.2, k1=0.1, **SCALE)),
        ("opencv", BrownConrady(k1=0.1, k5=0.02, p1=0.01, **SCALE)),
        ("opencv", KannalaBrandt(k1=0.1, k4=0.001, **SCALE)),
        ("opencv", Mei(xi=1.2, k1=0.1, p2=0.001, **SCALE)),
        ("colmap", Pinhole(xfov=80)),
        ("colmap", BrownConrady(k1=0.1, k5=0.02, p1=0.01, **SCALE)),
        ("colmap", KannalaBrandt(k1=0.1, k4=0.001, **SCALE)),
        ("colmap", Equidistant(**SCALE)),
        ("colmap", EUCM(alpha=0.6, beta=1.2, **SCALE)),
        ("colmap", Equirectangular()),
        ("transforms", Pinhole(xfov=80)),
        ("transforms", BrownConrady(k1=0.1, k3=0.02, p1=0.01, **SCALE)),
        ("transforms", KannalaBrandt(k1=0.1, k4=0.001, **SCALE)),
        ("transforms", Equirectangular()),
    ],
)
def test_other_tools_files_round_trip(format, lens, tmp_path):
    path = tmp_path / {"colmap": "cameras.txt", "opencv": "c.yml"}.get(format, "c.yaml")
    lens.save(path, format, height=480, width=832)
    again = load_lens(path)
    expected = lens.rays(30, 52, dtype=torch.float64)
    actual = again.rays(30, 52, dtype=torch.float64)
    assert torch.equal(actual.valid, expected.valid)
    assert torch.allclose(actual.directions, expected.directions, atol=1e-12)
    assert list(tmp_path.iterdir()) == [path]


def test_ucm_goes_to_colmap_as_eucm_and_to_opencv_as_omnidir(tmp_path):
    lens = UCM(xfov=180, xi=2.0)
    for name, format, model in (("cameras.txt", "colmap", EUCM), ("c.json", "opencv", Mei)):
        lens.save(tmp_path / name, format)
        again = load_lens(tmp_path / name)
        assert type(again) is model
        assert torch.allclose(again.rays(30, 52).directions, lens.rays(30, 52).directions, atol=1e-6)


@pytest.mark.parametrize(
    "lens, format, message",
    [
        (Stereographic(xfov=150), "kalibr", "Kalibr has no stereographic"),
        (Stereographic(xfov=150), "opencv", "OpenCV has no stereographic"),
        (Stereographic(xfov=150), "colmap", "COLMAP has no stereographic"),
        (UCM(xfov=150, xi=1), "transforms", r"transforms\.json has no ucm"),
        (OmniStereo(), "colmap", "COLMAP has no omni_stereo"),
        (Equirectangular(top=30), "colmap", "360 x 180 degrees only"),
        (BrownConrady(xfov=60, k3=0.1), "kalibr", "has no k3"),
        (Pinhole(xfov=60), "exr", "format must be one of"),
        (Pinhole(xfov=torch.tensor([60.0, 70.0])), "colmap", "holds one lens, not a batch"),
    ],
)
def test_what_a_format_cannot_hold(lens, format, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        lens.save(tmp_path / "c.yaml", format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.yaml", CAMCHAIN.replace("457.296, ", "").replace("cam1", "x"), "cam0.intrinsics: expected 4 numbers"),
        ("a.yaml", CAMCHAIN.replace("resolution: [752, 480]", ""), "cam0.resolution: missing, .*--lens-size"),
        (
            "a.yaml",
            CAMCHAIN.replace("radtan", "spline"),
            r"cam0.camera_model: expected one of .* got pinhole \+ spline",
        ),
        ("a.yaml", CAMCHAIN.replace("458.654", "wide"), r"cam0.intrinsics: expected 4 numbers .* got \['wide'"),
        ("a.yaml", CAMCHAIN.replace("458.654", ".nan"), "cam0.intrinsics: expected 4 numbers"),
        ("a.yaml", CAMCHAIN.replace("458.654", "-458.654"), r"a\.yaml: fx must be in"),
        ("a.yml", OPENCV.replace("image_width: 752", ""), "image_width: missing, .*--lens-size"),
        ("a.yml", OPENCV.replace("458.654, 0.", "458.654, 3."), "camera_matrix: expected no skew, got 3"),
        ("a.yml", OPENCV.replace(", 0., 0., 1. ]", " ]"), "camera_matrix: expected 9 numbers"),
        ("a.yml", OPENCV.replace("rows: 3", "rows: [3"), "a.yml, line .: not YAML"),
        ("a.json", '{"model": "ucm",\n "xfov" 180}', "a.json, line 2, column 9: not JSON"),
        ("a.json", '{"model": "ucm", "xfov": 180, "zeta": 2}', "ucm: got an unexpected keyword argument 'zeta'|zeta"),
        ("a.json", '{"model": "ucm", "xfov": 400, "xi": 2}', r"a\.json: xfov must be in"),
        ("a.json", "[1, 2]", "this holds a list; expected a camera's calibration"),
        ("a.json", '{"colour": "red"}', "not a calibration of a known format: its keys are colour"),
        ("a.yaml", "model: !!python/object/apply:os.system ['true']", "not YAML .could not determine a constructor"),
        ("t.json", '{"camera_model": "FOV", "fl_x": 1, "frames": []}', "camera_model: expected one of PINHOLE"),
        ("t.json", '{"camera_model": "OPENCV", "fl_x": 1, "k4": 1}', "k4: expected zero"),
        ("t.json", '{"fl_x": 400, "frames": []}', "w: missing; expected a number"),
        ("cameras.txt", "1 PINHOLE 640 480 400 400 320\n", "line 1: PINHOLE expects 4 numbers .* got 3"),
        ("cameras.txt", "#\n1 PINHOLES 640 480 400\n", "line 2: expected a COLMAP camera model"),
        ("cameras.txt", "1 PINHOLE 640 480 a b c d\n", "line 1: expected numbers after the size"),
        (
            "cameras.txt",
            "1 THIN_PRISM_FISHEYE 640 480 400 400 320 240 1 2 3 4 5 6 7 8\n",
            "line 1: THIN_PRISM_FISHEYE has no lens here",
        ),
        ("cameras.txt", "1 PINHOLE 640 480 -4 400 320 240\n", "line 1: fx must be in"),
        ("cameras.bin", "\1\0\0\0\0\0\0\0\1", "expected a COLMAP cameras.bin, but it ends after 9 bytes"),
    ],
)
def test_malformed_files_say_what_is_wrong(name, text, message, tmp_path):
    path = write(tmp_path, name, text)
    with pytest.raises(ValueError, match=message) as raised:
        load_lens(path, "cam0" if "cam0" in text else None)
    assert name in str(raised.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        load_lens(tmp_path / "nothing.yaml")
    with pytest.raises(ValueError, match=r"expected cameras\.txt or cameras.bin in this folder"):
        load_lens(tmp_path)
    with pytest.raises(ValueError, match=r"saved as \.json or .yaml"):
        UCM(xfov=90).save(tmp_path / "lens.png")


def test_a_model_that_is_no_name(tmp_path):
    (tmp_path / "lens.json").write_text('{"model": ["x"]}')
    with pytest.raises(ValueError, match=r"lens\.json: not a calibration of a known format"):
        load_lens(tmp_path / "lens.json")
    with pytest.raises(ValueError, match=r"model must be one of .* got \['x'\]"):
        lens_from_dict({"model": ["x"]})


def test_entry_of_a_batch(tmp_path):
    UCM(xfov=[90.0, 100.0], xi=0.5).save(tmp_path / "lens.json")
    assert load_lens(tmp_path / "lens.json").batch_shape == (2,)
    assert load_lens(tmp_path / "lens.json", 1).to_dict() == {"model": "ucm", "xfov": 100.0, "xi": 0.5}
    for camera in ("2", "cam0", "-1"):
        with pytest.raises(
            ValueError, match=rf"lens\.json: no camera '{camera}'; it holds a batch of 2 lenses, 0 to 1"
        ):
            load_lens(tmp_path / "lens.json", camera)
