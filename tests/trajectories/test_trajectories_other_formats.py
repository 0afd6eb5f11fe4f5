"""Paths of robotics, viewers and other video models, each against an independent computation."""

import gzip
import json
import math
import warnings
import zipfile

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from ucpe.cli.cameras import CameraOptions
from ucpe.lenses import BrownConrady, KannalaBrandt, Pinhole
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import recognise

QUATERNIONS = Rotation.random(5, random_state=0)
POSITIONS = np.random.default_rng(0).normal(size=(5, 3))
MATRICES = np.concatenate([QUATERNIONS.as_matrix(), POSITIONS[:, :, None]], -1)
LAST = np.tile([[[0.0, 0, 0, 1]]], (5, 1, 1))
FULL = np.concatenate([MATRICES, LAST], 1)
FLIP = np.diag([1.0, -1, -1])


def quiet(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Trajectory.load(path, **options)


def turned(rotation):
    """A world with z up as ours: x stays, z becomes -y, y becomes z."""
    return np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]) @ rotation


def csv(order, stamps, header=""):
    quaternions = QUATERNIONS.as_quat()[:, order]
    rows = [
        ",".join(map(repr, [stamp, *p.tolist(), *q.tolist()])) for stamp, p, q in zip(stamps, POSITIONS, quaternions)
    ]
    return "\n".join([header, *rows] if header else rows) + "\n"


W_FIRST, W_LAST = [3, 0, 1, 2], [0, 1, 2, 3]
EUROC = "#timestamp,p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],q_RS_w [],q_RS_x [],q_RS_y []"
NANOSECONDS = [1403715524907143168 + 50_000_000 * i for i in range(5)]


@pytest.mark.parametrize(
    "text, name, fps",
    [
        (
            csv(W_FIRST, NANOSECONDS, EUROC),
            "euroc",
            20,
        ),
        (csv(W_FIRST, NANOSECONDS).replace("\n", ",0,0,0,0,0,0,0,0,0\n"), "euroc", 20),
        (csv(W_FIRST, NANOSECONDS).replace("\n", " 0 0 0 0 0 0 0 0 0\n").replace(",", " "), "euroc", 20),
        (csv(W_LAST, NANOSECONDS), "tum", 20),
        (csv(W_LAST, [0.05 * i for i in range(5)]), "tum", 20),
        (csv(W_LAST, NANOSECONDS, "#timestamp,tx,ty,tz,qx,qy,qz,qw"), "tum", 20),
        (csv(W_LAST, NANOSECONDS).replace(",", " "), "tum", 20),
        (csv(W_LAST, [50_000 * i for i in range(5)]).replace(",", " "), "tum", 20),
        (csv(W_LAST, [50_000_000 * i for i in range(5)]).replace(",", "\t"), "tum", 20),
        (csv(W_LAST, [50 * i for i in range(5)]).replace(",", ";"), "tum", 20),
        (csv(W_LAST, [10 * i for i in range(5)]).replace(",", " ").replace("\n", " # note\n"), "tum", 100),
        (csv(W_LAST, [1403715524.9 + 3 * i for i in range(5)]).replace(",", " "), "tum", 1 / 3),
        (csv(W_LAST, range(5)).replace(",", " "), "tum", 16),
        (csv(W_LAST, range(100, 105)).replace(",", " ").replace("\n", "\r\n"), "tum", 16),
    ],
    ids=[
        "euroc",
        "euroc without header",
        "euroc with spaces",
        "tum csv in ns without header",
        "tum csv",
        "tum csv in ns",
        "tum in ns",
        "tum in us",
        "tum in ns from 0, tabs",
        "tum in ms from 0, semicolons",
        "tum in ms from 0, comments",
        "tum, slow keyframes",
        "tum counting frames",
        "tum counting frames from 100, CRLF",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_times_and_quaternions_are_read_as_they_are_meant(tmp_path, text, name, fps, encoding):
    path = tmp_path / "data.csv"
    path.write_text(text, encoding=encoding)
    assert recognise(path).name == name
    read = quiet(path)
    assert read.fps == pytest.approx(fps, rel=1e-4) and read.up_known == (name == "euroc")
    expected = QUATERNIONS.as_matrix()
    np.testing.assert_allclose(read.rotations.numpy(), turned(expected) if name == "euroc" else expected, atol=1e-12)


def test_a_body_is_said_and_a_camera_is_mounted_on_it(tmp_path):
    path, sensor = tmp_path / "data.csv", tmp_path / "sensor.yaml"
    path.write_text(csv(W_FIRST, NANOSECONDS, EUROC))
    mounted = np.eye(4)
    mounted[:3] = MATRICES[1]
    lens = "camera_model: pinhole\nintrinsics: [400, 400, 320, 240]\nresolution: [640, 480]\n"
    data = mounted.ravel().tolist()
    sensor.write_text(f"{lens}distortion_model: none\nT_BS:\n  cols: 4\n  rows: 4\n  data: {data}\n")
    with pytest.warns(UserWarning, match=r"holds poses of a body .* --lens cam0/sensor\.yaml"):
        Trajectory.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        camera = CameraOptions(camera=path, lens=str(sensor)).make_trajectory(5, 20.0)
    np.testing.assert_allclose(camera.rotations.numpy(), turned(MATRICES[:, :, :3] @ mounted[:3, :3]), atol=1e-9)
    chain = tmp_path / "camchain.yaml"
    inverse = np.linalg.inv(mounted).tolist()
    chain.write_text(json.dumps({"cam0": {"intrinsics": [1, 1, 1, 1], "T_cam_imu": inverse}}))
    np.testing.assert_allclose(quiet(path, extrinsics=chain).c2w, camera.c2w, atol=1e-9)
    pose = dict(zip(("px", "py", "pz"), mounted[:3, 3])) | dict(zip(("qx", "qy", "qz", "qw"), QUATERNIONS[1].as_quat()))
    chain.write_text(json.dumps({"value0": {"intrinsics": [{}, {}], "T_imu_cam": [{**pose, "px": 9}, pose]}}))
    np.testing.assert_allclose(quiet(path, extrinsics=f"{chain}:cam1").c2w, camera.c2w, atol=1e-9)
    chain.write_text(f"Camera.fx: 400\nTbc: !!opencv-matrix\n  rows: 4\n  cols: 4\n  dt: f\n  data: {data}\n")
    np.testing.assert_allclose(quiet(path, extrinsics=chain).c2w, camera.c2w, atol=1e-9)


def test_repeated_times_are_left_out_and_scaled_rotations_made_rotations(tmp_path):
    rows = "".join(f"{t} {i} 0 0 0 0 0 1\n" for i, t in enumerate([0.0, 0.1, 0.1, 0.2, 0.3]))
    (tmp_path / "a.txt").write_text(rows)
    with pytest.warns(UserWarning, match=r"1 poses repeat the time before \(line 3 first\)"):
        assert Trajectory.load(tmp_path / "a.txt").positions[:, 0].tolist() == [0, 1, 3, 4]
    scaled = MATRICES.copy()
    scaled[2, :, :3] *= 1.03
    np.savetxt(tmp_path / "b.txt", scaled.reshape(5, 12))
    with pytest.warns(UserWarning, match=r"rotations of 1 poses are scaled \(pose 3 by 1\.03\)"):
        read = Trajectory.load(tmp_path / "b.txt")
    np.testing.assert_allclose(read.rotations.numpy(), MATRICES[:, :, :3], atol=1e-12)
    long = np.concatenate([0.1 * np.arange(5)[:, None], POSITIONS, 1.05 * QUATERNIONS.as_quat()], 1)
    np.savetxt(tmp_path / "c.txt", long)
    with pytest.warns(UserWarning, match="5 quaternions are not of length 1 and were made so"):
        read = Trajectory.load(tmp_path / "c.txt")
    np.testing.assert_allclose(read.rotations.numpy(), MATRICES[:, :, :3], atol=1e-12)


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("between", ["\n", "\n\n", "\n0 0 1\n"], ids=["under", "apart", "redwood"])
def test_matrices_row_under_row(tmp_path, rows, between):
    blocks = ["\n".join(" ".join(map(repr, row)) for row in matrix.tolist()) for matrix in FULL[:, :rows]]
    (tmp_path / "poses.log").write_text((between.lstrip() if "0" in between else "") + between.join(blocks))
    read = Trajectory.load(tmp_path / "poses.log")
    np.testing.assert_allclose(read.c2w[:, :3].numpy(), MATRICES, atol=1e-12)
    assert not read.up_known


def test_transposed_matrices_are_turned_and_others_refused(tmp_path):
    turned_matrices = FULL.transpose(0, 2, 1)
    np.savetxt(tmp_path / "a.txt", turned_matrices.reshape(5, 16))
    np.save(tmp_path / "a.npy", turned_matrices)
    np.savez(tmp_path / "a.npz", c2w=turned_matrices)
    for name in ("a.txt", "a.npy", "a.npz"):
        with pytest.warns(UserWarning, match="its matrices are transposed"):
            read = Trajectory.load(tmp_path / name)
        np.testing.assert_allclose(read.c2w[:, :3].numpy(), MATRICES, atol=1e-12)
    spoilt = FULL.copy()
    spoilt[2, 3, 0] = 5
    np.save(tmp_path / "a.npy", spoilt)
    with pytest.raises(ValueError, match="expected 0 0 0 1 in the last row"):
        Trajectory.load(tmp_path / "a.npy")


def test_arrays_of_rows_and_of_whole_matrices_do_not_know_up(tmp_path):
    for array in (MATRICES.reshape(5, 12), FULL.reshape(5, 16), FULL):
        np.save(tmp_path / "a.npy", array)
        read = Trajectory.load(tmp_path / "a.npy")
        np.testing.assert_allclose(read.c2w[:, :3].numpy(), MATRICES, atol=1e-12)
        assert not read.up_known


@pytest.mark.parametrize("rows, numbered", [(3, False), (3, True), (4, False), (4, True)])
def test_kitti_360(tmp_path, rows, numbered):
    values = np.concatenate([MATRICES, LAST], 1)[:, :rows].reshape(5, -1)
    if numbered:
        values = np.concatenate([np.array([[7], [8], [9], [10], [12]]), values], 1)
    np.savetxt(tmp_path / "poses.txt", values)
    read = quiet(tmp_path / "poses.txt")
    assert len(read) == (6 if numbered else 5) and not read.up_known
    np.testing.assert_allclose(read.c2w[:4, :3].numpy(), MATRICES[:4], atol=1e-9)


@pytest.mark.parametrize("stamps", [[0] * 5, range(5)])
def test_videox_fun_files_hold_no_rate(tmp_path, stamps):
    rows = [" ".join(map(str, [s, 0.5, 0.9, 0.5, 0.5, 0, 0, *m.ravel()])) for s, m in zip(stamps, MATRICES)]
    (tmp_path / "camera.txt").write_text("\n".join(["title", *rows]))
    read = Trajectory.load(tmp_path / "camera.txt")
    assert read.fps == 16
    np.testing.assert_allclose(read.rotations.numpy(), MATRICES[:, :, :3].transpose(0, 2, 1), atol=1e-6)


def test_nerfstudio_camera_path_with_its_field_of_view(tmp_path):
    path = tmp_path / "camera_path.json"
    keys = [
        {"camera_to_world": np.concatenate([m, last]).ravel().tolist(), "fov": 50 + i, "aspect": 1.5}
        for i, (m, last) in enumerate(zip(MATRICES, LAST))
    ]
    content = {"camera_type": "perspective", "render_height": 400, "render_width": 600, "fps": 24, "camera_path": keys}
    path.write_text(json.dumps(content))
    read = Trajectory.load(path)
    assert read.fps == 24 and read.up_known
    np.testing.assert_allclose(read.lens.yfov(400, 600).numpy(), [50, 51, 52, 53, 54], rtol=1e-5)
    np.testing.assert_allclose(read.rotations.numpy(), turned(MATRICES[:, :, :3] @ FLIP), atol=1e-12)
    keys[2]["fov"] = 190
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"camera_path\[2\]: expected fov between 0 and 180"):
        Trajectory.load(path)


def recammaster_reference(text):
    """Poses relative to the first frame, as ReCamMaster computes them from Unreal's rows in centimetres."""
    poses = []
    for row in text:
        matrix = np.array([[float(x) for x in part.split()] for part in row.strip().strip("[]").split("] [")]).T
        matrix = matrix[:, [1, 2, 0, 3]]
        matrix[:3, 1] *= -1
        matrix[:3, 3] /= 100
        poses.append(matrix)
    return np.stack([np.linalg.inv(poses[0]) @ pose for pose in poses])


def test_recammaster(tmp_path):
    unreal = Rotation.random(4, random_state=1).as_matrix()
    rows = [
        " ".join(f"[{' '.join(f'{x:.9f}' for x in [*axis, 0])}]" for axis in matrix) + f" [{100 * i} 20 {3 * i} 1] "
        for i, matrix in enumerate(unreal)
    ]
    path = tmp_path / "camera_extrinsics.json"
    path.write_text(json.dumps({f"frame{i}": {"cam01": rows[0], "cam02": row} for i, row in enumerate(rows)}))
    read = Trajectory.load(f"{path}:cam02")
    assert read.up_known
    np.testing.assert_allclose(read.relative_to_first().c2w.numpy(), recammaster_reference(rows), atol=1e-6)
    with pytest.raises(ValueError, match=r"holds 2 cameras \(cam01, cam02\): say which one, as .*:cam01"):
        Trajectory.load(path)


def test_opensfm(tmp_path):
    camera = {"projection_type": "brown", "width": 800, "height": 600, "focal_x": 0.9, "focal_y": 0.91, "c_x": 0.01}
    camera |= {"c_y": -0.02, "k1": -0.1, "k2": 0.01, "k3": 0.001, "p1": 1e-3, "p2": 2e-3}
    vectors = QUATERNIONS.as_rotvec()
    shots = {
        f"{i}.jpg": {"rotation": vectors[i].tolist(), "translation": POSITIONS[i].tolist(), "camera": "c"}
        for i in range(5)
    }
    path = tmp_path / "reconstruction.json"
    path.write_text(json.dumps([{"cameras": {"c": camera}, "shots": shots}]))
    read = Trajectory.load(path)
    expected = QUATERNIONS.inv().as_matrix()
    np.testing.assert_allclose(read.rotations.numpy(), turned(expected), atol=1e-12)
    centres = turned(-np.einsum("nij,nj->ni", expected, POSITIONS).T).T
    np.testing.assert_allclose(read.positions.numpy(), centres, atol=1e-12)
    assert isinstance(read.lens, BrownConrady)
    assert [float(read.lens.parameters[n]) for n in ("fx", "fy", "cx", "cy")] == pytest.approx([720, 728, 408, 284])


@pytest.mark.parametrize("archive", [True, False], ids=["r3d", "metadata"])
def test_record3d(tmp_path, archive):
    coefficients = [[700 + i, 700 + i, 361, 480] for i in range(5)]
    content = {
        "fps": 30,
        "w": 720,
        "h": 960,
        "K": [726.6, 0, 0, 0, 726.6, 0, 361.3, 483.8, 1],
        "poses": np.c_[QUATERNIONS.as_quat(), POSITIONS].tolist(),
    }

    def load(content):
        path = tmp_path / ("clip.r3d" if archive else "metadata")
        if archive:
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("metadata", json.dumps(content))
                file.writestr("rgbd/0.jpg", b"")
        else:
            path.write_text(json.dumps(content), encoding="utf-8-sig")
        return Trajectory.load(path)

    camera = load(content)
    assert not camera.up_known and camera.fps == 30
    np.testing.assert_allclose(camera.c2w[:, :3, :3].numpy(), QUATERNIONS.as_matrix() @ FLIP, atol=1e-9)
    np.testing.assert_allclose(camera.c2w[:, :3, 3].numpy(), POSITIONS)
    assert camera.lens == Pinhole(fx=726.6, fy=726.6, cx=361.3, cy=483.8, width=720, height=960)
    camera = load({**content, "perFrameIntrinsicCoeffs": coefficients})
    assert camera.lens[3] == Pinhole(fx=703.0, fy=703.0, cx=361.0, cy=480.0, width=720, height=960)
    for wrong, message in (
        ({"poses": [[0, 0, 0, 1]]}, "poses: expected rows of 7 numbers"),
        ({"perFrameIntrinsicCoeffs": coefficients[:4]}, "expected 5 rows, one a pose, found 4"),
        ({"K": [1, 2, 3]}, r"K: expected 9 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            load({**content, **wrong})


def test_a_damaged_record3d_file(tmp_path):
    path = tmp_path / "clip.r3d"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("sound.m4a", b"")
    with pytest.raises(ValueError, match="not a readable Record3D file"):
        Trajectory.load(path)


def test_polycam(tmp_path):
    for folder, shift in (("cameras", 100.0), ("corrected_cameras", 0.0)):
        (tmp_path / "keyframes" / folder).mkdir(parents=True)
        for index, matrix in enumerate(MATRICES):
            camera = {f"t_{i}{j}": matrix[i, j] + shift * (j == 3) for i in range(3) for j in range(4)}
            camera |= {"fx": 760 + index, "fy": 761, "cx": 510.5, "cy": 383, "width": 1024, "height": 768}
            file = tmp_path / "keyframes" / folder / f"{[9, 10, 100, 101, 1000][index]}.json"
            file.write_text(json.dumps({"blur_score": 90.1, **camera}), newline="\r\n")
    camera = Trajectory.load(tmp_path)
    assert camera.up_known and camera.lens[4] == Pinhole(fx=764.0, fy=761.0, cx=510.5, cy=383.0, width=1024, height=768)
    upside = np.diag([-1.0, -1, 1])  # a world with y up as ours
    np.testing.assert_allclose(camera.c2w[:, :3, :3].numpy(), upside @ MATRICES[:, :, :3] @ FLIP, atol=1e-9)
    np.testing.assert_allclose(camera.c2w[:, :3, 3].numpy(), POSITIONS @ upside.T, atol=1e-9)
    assert torch.equal(Trajectory.load(tmp_path / "keyframes" / "corrected_cameras").c2w, camera.c2w)
    file.write_text(file.read_text().replace("t_11", "t_1"))
    with pytest.raises(ValueError, match=r"1000.json: t_11: missing"):
        Trajectory.load(tmp_path)


def test_arkitscenes(tmp_path):
    """Against scipy's rotation vectors: the file holds world-to-camera, in a world with z up."""
    path = tmp_path / "lowres_wide.traj"
    inverse = QUATERNIONS.inv()
    rows = np.c_[4764.5 + np.arange(5) / 10, inverse.as_rotvec(), -inverse.apply(POSITIONS)]
    path.write_bytes(gzip.compress("\r\n".join(" ".join(map(repr, row)) for row in rows.tolist()).encode()))
    camera = Trajectory.load(path)
    assert camera.up_known and camera.fps == pytest.approx(10)
    np.testing.assert_allclose(camera.c2w[:, :3, :3].numpy(), turned(QUATERNIONS.as_matrix()), atol=1e-9)
    np.testing.assert_allclose(camera.c2w[:, :3, 3].numpy(), turned(POSITIONS.T).T, atol=1e-9)
    path.write_text("\n".join(" ".join(map(repr, row)) for row in np.c_[POSITIONS, QUATERNIONS.as_quat()].tolist()))
    with pytest.raises(ValueError, match="its first lines hold 7 and 7 numbers"):
        Trajectory.load(path)  # positions and quaternions without times


def test_motionctrl(tmp_path):
    """World-to-camera by its authors' own words: zooming in is a translation along -z."""
    path = tmp_path / "test_camera_I.json"
    path.write_text(json.dumps([[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, -0.2 * i] for i in range(4)]))
    camera = Trajectory.load(path)
    np.testing.assert_allclose(camera.positions[:, 2].numpy(), [0, 0.2, 0.4, 0.6], atol=1e-12)
    path.write_text(json.dumps(MATRICES.reshape(5, 12).tolist()))
    camera = Trajectory.load(path)
    np.testing.assert_allclose(camera.c2w.numpy(), np.linalg.inv(FULL), atol=1e-12)
    assert not camera.up_known
    path.write_text(json.dumps([*MATRICES.reshape(5, 12).tolist(), [1, 2]]))
    with pytest.raises(ValueError, match=r"\[5\]: expected 12 numbers"):
        Trajectory.load(path)


def test_covariances_behind_a_tum_pose_are_not_used(tmp_path):
    rows = np.c_[np.arange(5) / 10, POSITIONS, QUATERNIONS.as_quat()]
    path = tmp_path / "stamped_traj_estimate.txt"
    wide = np.c_[rows, np.full((5, 12), 7.0)].tolist()
    path.write_text("# timestamp(s) tx ty tz qx qy qz qw Pr11 ...\n" + "\n".join(" ".join(map(repr, r)) for r in wide))
    np.testing.assert_allclose(Trajectory.load(path).c2w.numpy(), FULL, atol=1e-9)


@pytest.mark.parametrize("header", [True, False])
def test_what_an_imu_measured_is_no_path(tmp_path, header):
    title = "#timestamp [ns],w_RS_S_x [rad s^-1],w_RS_S_y [rad s^-1],w_RS_S_z [rad s^-1],a_RS_S_x [m s^-2]\n"
    rows = "".join(f"{1403636579758555392 + 5_000_000 * i},-0.09,0.14,0.03,8.1,-0.37,-2.4\n" for i in range(4))
    path = tmp_path / "data.csv"
    path.write_text(title * header + rows)
    with pytest.raises(ValueError, match=r"an inertial sensor's \(IMU's\) measurements|hold 7 and 7 numbers") as error:
        Trajectory.load(path)
    assert "\n" not in str(error.value)


def test_transforms_to_txt_as_the_readme_says(tmp_path):
    frames = [
        {"file_path": f"{i}.png", "transform_matrix": np.concatenate([m, [[0, 0, 0, 1]]]).tolist()}
        for i, m in enumerate(MATRICES)
    ]
    content = {"fl_x": 400, "w": 640, "h": 480, "frames": frames}
    (tmp_path / "transforms.json").write_text(json.dumps(content))
    read = Trajectory.load(tmp_path / "transforms.json")
    read.save(tmp_path / "path.txt")
    again = Trajectory.load(tmp_path / "path.txt")
    torch.testing.assert_close(again.c2w, read.c2w, atol=1e-6, rtol=0)
    assert isinstance(again.lens, Pinhole)
    with pytest.warns(UserWarning, match="TUM's format, which holds no lens"):
        read.with_lens(KannalaBrandt(xfov=150)).save(tmp_path / "fisheye.txt")
    (tmp_path / "t.json").write_text(json.dumps({**content, "applied_transform": []}))
    assert read.up_known and not Trajectory.load(tmp_path / "t.json").up_known


def test_files_as_tools_ship_them(published):
    files = published / "trajectories"
    content = json.loads((files / "recammaster_extrinsics.json").read_text())
    rows = [content[f"frame{i}"]["cam05"] for i in range(81)]
    read = Trajectory.load(f"{files / 'recammaster_extrinsics.json'}:cam05").relative_to_first()
    np.testing.assert_allclose(read.c2w.numpy(), recammaster_reference(rows), atol=2e-5)
    euroc = quiet(files / "euroc_state_groundtruth.csv", extrinsics=published / "calibrations/kimera_euroc_sensor.yaml")
    assert euroc.fps == pytest.approx(200, rel=1e-3) and abs(float(euroc.angles.roll[0])) < 10
    with pytest.warns(UserWarning, match="1 poses repeat the time"):
        Trajectory.load(files / "tum_repeated_timestamp.txt")
    assert not Trajectory.load(files / "kitti360_poses.txt").up_known
    with pytest.raises(ValueError, match="frame 1 must hold a rotation"):
        Trajectory.load(files / "ns_camera_path2.json")
    upright = quiet(files / "tum_freiburg1_xyz.txt", up="+z").angles
    assert math.hypot(float(upright.roll[0])) < 20
