"""Stand-ins of our own making for the files that the authors published: the same names, layouts and formats."""

import json
import shutil
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory

PUBLISHED = Path(__file__).resolve().parents[1] / "../shared/data"
"""Where the real files lie, if they are here."""

REALESTATE = ("20e7a3651ec30386", "38f7ba7fd9a83069", "5451cefde53f06f1", "ecc2b1b9cb1fa9ad", "f74139ac48f19b3c")
PANSHOT = (
    "aQVLCO-OOqM-11-1-no_rot_aug_0", "1jVPI3bNCBc-5-0-no_rot_aug_0", "HTdKkiu771g-3-0-no_rot_aug_0",
    "Msw3A5IPPD0-96-0-yaw_pitch_aug_0", "N99hmkAJwlQ-3-0-linear_aug_0", "N99hmkAJwlQ-3-0-yaw_aug_0",
    "YUPoNo1j420-5-0-no_rot_aug_0",
)  # fmt: skip
LISTS = {"lens": 12, "pose": 22, "teaser": 27}
MOVES = ("orbit-left", "arc-right", "crane-up", "dolly-in", "truck-left", "spiral", "orbit-right")


def make_samples(folder: Path) -> Path:
    """Write re10k/, panshot/, demo/, released/ (a checkout of the authors' code), calibrations/ and trajectories/."""
    poses, panoramas = folder / "re10k", folder / "panshot"
    lens = Pinhole(xfov=90.6)  # 59 degrees from top to bottom, as RealEstate10K's
    for number, name in enumerate(REALESTATE):
        camera = Trajectory.move(MOVES[number], lens, frames=90, fps=30, pitch=4.0 * number, yaw=20.0 * number)
        (camera @ Trajectory.handheld(lens, frames=90, fps=30, seed=number)).save(poses / f"{name}.txt")
    (poses / "traj_normalization.txt").write_text("9.569655060768127441e-01\n")
    depths = {}
    for number, name in enumerate(PANSHOT):
        camera = Trajectory.move(MOVES[number], lens, frames=81, roll=3.0, yaw=50.0 * number)
        clip, depth = tuple(name.rsplit("-", 2)[0].rsplit("-", 1)), 0.3 + 0.2 * number
        depths.setdefault(clip, depth)
        panoramas.mkdir(parents=True, exist_ok=True)
        np.save(panoramas / f"{name}.npy", camera.scaled(depth).c2w[:, :3].float().numpy())
    lines = [
        {"video_id": video, "clip_id": int(number), "near_depth": depth} for (video, number), depth in depths.items()
    ]
    (panoramas / "near_plane_depth-test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _checkout(folder, folder / "released")
    _calibrations(folder / "calibrations")
    _trajectories(folder / "trajectories")
    return folder


def _checkout(folder: Path, root: Path) -> None:
    """The files once more, as the authors' code and its lists of demo videos expect them."""
    poses, panoramas = root / "data/RealEstate10k/pose_files/test", root / "data/UCPE/PanShot/pose-test"
    for file, target in (
        *((file, poses) for file in folder.glob("re10k/[0-9a-f]*.txt")),
        (folder / "re10k/traj_normalization.txt", root / "data/RealEstate10k"),
        *((file, panoramas) for file in folder.glob("panshot/*.npy")),
        (folder / "panshot/near_plane_depth-test.jsonl", root / "data/UCPE/PanFlow"),
    ):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    realestate = [f"data/RealEstate10k/pose_files/test/{name}.txt" for name in REALESTATE]
    panshot = [f"data/UCPE/PanShot/pose-test/{name}.npy" for name in PANSHOT]
    for name, count in LISTS.items():
        files = {"lens": realestate[-1:], "pose": panshot, "teaser": realestate + panshot}[name]
        entries = [
            {"pose_path": files[n % len(files)], "x_fov": 90.0 + 3 * n, "xi": n % 3 * 0.5, "caption": f"cat {n}"}
            for n in range(count)
        ]
        for place in (folder / "demo", root / "demo"):
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}.json").write_text(json.dumps(entries))


CALIBRATIONS = {
    "orb3_euroc.yaml": """%YAML:1.0
# Camera Parameters. Adjust them!
File.version: "1.0"
Camera.type: "PinHole"
Camera1.fx: 451.25
Camera1.fy: 450.5
Camera1.cx: 370.75
Camera1.cy: 244.125

Camera1.k1: -0.27
Camera1.k2: 0.065
Camera1.p1: 0.0003
Camera1.p2: 2.5e-05
Camera.width: 752
Camera.height: 480
Camera.newWidth: 600
Camera.RGB: 1
ORBextractor.nFeatures: 1000
""",
    "kimera_euroc_sensor.yaml": """%YAML:1.0
camera_id: left_cam
T_BS:
  cols: 4
  rows: 4
  data: [0.0, -1.0, 0.0, -0.02,
         1.0,  0.0, 0.0, -0.06,
         0.0,  0.0, 1.0,  0.01,
         0.0,  0.0, 0.0,  1.0]
rate_hz: 20
resolution: [752, 480]
camera_model: pinhole
intrinsics: [451.25, 450.5, 370.75, 244.125] #fu, fv, cu, cv
distortion_model: radial-tangential
distortion_coefficients: [-0.27, 0.065, 0.0003, 2.5e-05]
""",
    "opencv_out_camera_data.yml": """%YAML:1.0
calibration_Time: "08/19/11 20:44:38"
image_Width: 640
image_Height: 480
# flags:  +fix_aspectRatio +fix_principal_point +zero_tangent_dist
Camera_Matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 6.5e+002, 0., 3.195e+002, 0., 6.5e+002, 2.395e+002, 0., 0., 1. ]
Distortion_Coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -4.1e-001, 5.0e-001, 0., 0., -5.7e-001 ]
Extrinsic_Parameters: !!opencv-matrix
   rows: 1
   cols: 6
   dt: d
   data: [ -7.8e-002, -1.5e-001, 0., 1., 2., 300. ]
""",
    "opencv_intrinsics_stereo.yml": "%YAML:1.0\n"
    + "".join(
        f"{name}{side}: !!opencv-matrix\n   rows: {rows}\n   cols: {columns}\n   dt: d\n   data: [ {data} ]\n"
        for side, shift in ((1, ""), (2, "1"))
        for name, rows, columns, data in (
            ("M", 3, 3, f"5.3e+02, 0., 33{shift or 5}., 0., 5.3e+02, 241., 0., 0., 1."),
            ("D", 1, 5, f"0.{shift}2, -0.{shift}9, 0., 0., 0."),
        )
    ),
    "gyro_gopro11.json": json.dumps({
        "asymmetrical": False, "calib_dimension": {"h": 2160, "w": 3840}, "camera_brand": "GoPro", "crop": None,
        "digital_lens": None, "digital_lens_params": None, "distortion_model": None, "fps": 50.0,
        "fisheye_params": {
            "RMS_error": 0.7, "radial_distortion_limit": None, "distortion_coeffs": [0.4, -0.3, 1.0, -0.7],
            "camera_matrix": [[1820.5, 0.0, 1921.25], [0.0, 1822.5, 1077.5], [0.0, 0.0, 1.0]],
        },
    }),
    "stella_fisheye.yaml": """# LUMIX fisheye model
Camera:
  name: "fisheye 1K"
  setup: "monocular"
  model: "fisheye"

  fx: 440.5
  fy: 441.25
  cx: 481.5
  cy: 274.75

  k1: -3.0e-02
  k2: -3.3e-03
  k3: -2.9e-03
  k4: -5.9e-04

  fps: 30.0
  cols: 960
  rows: 540
  color_order: "RGB"
Mapping:
  baseline_dist_thr_ratio: 0.02
""",
    "vinsm_tum_kb.yaml": """%YAML:1.0
imu_topic: "/imu0"
model_type: KANNALA_BRANDT
camera_name: camera
image_width: 512
image_height: 512
projection_parameters:
   k2: 0.0035
   k3: 0.0007
   k4: -0.0021
   k5: 0.0002
   mu: 191.25
   mv: 190.75
   u0: 254.5
   v0: 257.0
estimate_extrinsic: 0   # 0  Have an accurate extrinsic parameters.
""",
    "vinsf_euroc_mei.yaml": """%YAML:1.0
---
model_type: MEI
camera_name: camera
image_width: 752
image_height: 480
mirror_parameters:
   xi: 3.6e+00
distortion_parameters:
   k1: 1.2e+00
   k2: 1.5e+01
   p1: -8.1e-04
   p2: 6.7e-04
projection_parameters:
   gamma1: 2.1e+03
   gamma2: 2.2e+03
   u0: 3.6e+02
   v0: 2.5e+02
""",
    "woodscape_front.json": json.dumps({
        "extrinsic": {"quaternion": [0.6, -0.6, 0.4, -0.35], "translation": [3.75, 0.0, 0.66]}, "name": "FV",
        "intrinsic": {
            "aspect_ratio": 1.0, "cx_offset": 4.0, "cy_offset": -3.0, "height": 966.0, "width": 1280.0, "k1": 340.0,
            "k2": -32.0, "k3": 48.0, "k4": -7.0, "model": "radial_poly", "poly_order": 4,
        },
    }),
    "basalt_euroc_ds.json": json.dumps({"value0": {
        "T_imu_cam": [{"px": 0.0, "py": 0.0, "pz": 0.0, "qx": 0.0, "qy": 0.0, "qz": 0.0, "qw": 1.0}] * 2,
        "intrinsics": [
            {"camera_type": "ds",
             "intrinsics": {"fx": 350.5, "fy": 349.5, "cx": x, "cy": 249.0, "xi": -0.24, "alpha": 0.57}}
            for x in (366.0, 379.0)
        ],
        "resolution": [[752, 480], [752, 480]], "vignette": [],
    }}),
    "orb3_aprilgrid_target.yaml": """target_type: 'aprilgrid' #gridtype
tagCols: 6               #number of apriltags
tagRows: 6               #number of apriltags
tagSize: 0.04           #size of apriltag, edge to edge [m]
tagSpacing: 0.3          #ratio of space between tags to tagSize
""",
}  # fmt: skip
"""Calibrations by name, in the layouts in which the tools that are named ship them."""


def _calibrations(folder: Path) -> None:
    folder.mkdir()
    for name, text in CALIBRATIONS.items():
        (folder / name).write_text(text)


def _trajectories(folder: Path) -> None:
    """Walks of a level camera that turns, as ReCamMaster, EuRoC, TUM, KITTI-360 and nerfstudio's viewer write them."""
    folder.mkdir()
    turns = Rotation.from_euler("z", np.arange(81)[:, None], degrees=True)
    places = np.stack([0.01 * np.arange(81), 0.02 * np.arange(81), np.ones(81)], -1)
    level = turns * Rotation.from_matrix([[1, 0, 0], [0, 0, 1], [0, -1, 0]])  # of a camera in a world with z up
    body = level * Rotation.from_matrix([[0, -1, 0], [1, 0, 0], [0, 0, 1]]).inv()  # see T_BS of the calibration
    rows = ["".join(f"[{' '.join(f'{x:g}' for x in [*axis, 0])}] " for axis in turn.as_matrix()) for turn in turns]
    frames = {f"frame{i}": {f"cam0{n}": f"{row}[{10 * i} 20 {3 * i} 1] " for n in (1, 5)} for i, row in enumerate(rows)}
    (folder / "recammaster_extrinsics.json").write_text(json.dumps(frames, indent=4))
    head = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], v_RS_R_x"
    lines = [
        ",".join(map(str, [1403715524907143168 + 5_000_000 * i, *place, turn[3], *turn[:3], 0.0]))
        for i, (place, turn) in enumerate(zip(places, body.as_quat()))
    ]
    (folder / "euroc_state_groundtruth.csv").write_text("\n".join([head, *lines]) + "\n")
    rows = [" ".join(f"{x:.4f}" for x in (*place, *turn)) for place, turn in zip(places, level.as_quat())]
    for name, repeated in (("tum_freiburg1_xyz.txt", -1), ("tum_repeated_timestamp.txt", 40)):
        lines = [f"{1305031098.6659 + 0.01 * (i - (i == repeated)):.4f} {row}" for i, row in enumerate(rows)]
        (folder / name).write_text("\n".join(["# ground truth trajectory", *lines]) + "\n")
    poses = np.concatenate([turns.as_matrix(), places[..., None]], 2).reshape(81, 12)
    np.savetxt(folder / "kitti360_poses.txt", poses, "%.6f")
    matrices = [np.eye(4).tolist(), np.diag([1, 0.4, 1, 1]).tolist()]  # the second is no rotation
    path = [{"camera_to_world": matrix, "fov": 50, "aspect": 1.7778} for matrix in matrices]
    content = {"camera_type": "perspective", "render_height": 720, "render_width": 1280, "camera_path": path}
    (folder / "ns_camera_path2.json").write_text(json.dumps(content))
