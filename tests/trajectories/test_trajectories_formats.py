"""Every trajectory format: write -> read is the identity, real files, other software, and files that are broken."""

import json
import struct
import warnings

import numpy as np
import pytest
import torch
from evo.tools import file_interface
from scipy.spatial.transform import Rotation

from ucpe.lenses import EUCM, UCM, BrownConrady, Equirectangular, KannalaBrandt, Pinhole
from ucpe.trajectories import DEFAULT_FPS, DEFAULT_LENS, Trajectory
from ucpe.trajectories.formats import FORMATS, ImageSize, recognise, save_trajectory
from ucpe.trajectories.formats.base import ReadOnly
from ucpe.trajectories.formats.captioned import clip_of_pose_file, read_demo, read_near_depths, read_panshot

CALIBRATED = Pinhole(fx=600.0, fy=610.0, cx=400.0, cy=245.0, width=832, height=480)
KEPT_LENS = {"ucpe", "realestate10k", "nerfstudio", "colmap"}
KEPT_RATE = {"ucpe", "realestate10k", "nerfstudio", "tum"}
HEIGHT, WIDTH = 60, 104


def camera(lens=CALIBRATED, frames=7, fps=8.0):
    path = Trajectory.spiral(lens, degrees=200, frames=frames, fps=fps, pitch=-10, roll=15, yaw=70)
    return path @ Trajectory.handheld(lens, degrees=20, distance=0.3, frames=frames, fps=fps)


def saved(trajectory, folder, format, **options):
    path = folder / {"ucpe": "a.json", "nerfstudio": "t.json", "colmap": "model"}.get(format, "poses")
    save_trajectory(trajectory, path, format=format, **options)
    return path


def same_rays(one, other, height=HEIGHT, width=WIDTH):
    a, b = (lens.rays(height, width, dtype=torch.float64) for lens in (one, other))
    torch.testing.assert_close(a.directions, b.directions, atol=1e-9, rtol=0)
    assert torch.equal(a.valid, b.valid)


@pytest.mark.parametrize("format", [name for name, kind in FORMATS.items() if not isinstance(kind, ReadOnly)])
@pytest.mark.parametrize("frames", [1, 2, 7])
def test_writing_then_reading_is_the_identity(tmp_path, format, frames):
    original = camera(frames=frames)
    path = saved(original, tmp_path, format)
    assert recognise(path).name == format
    read = Trajectory.load(path)
    torch.testing.assert_close(read.c2w, original.c2w, atol=1e-12, rtol=0)
    assert read.fps == (
        original.fps if format in KEPT_RATE and (frames > 1 or format in ("ucpe", "nerfstudio")) else DEFAULT_FPS
    )
    if format in KEPT_LENS:
        same_rays(read.lens, original.lens)
    else:
        assert read.lens is DEFAULT_LENS
    assert Trajectory.load(path, lens=CALIBRATED, fps=3).fps == 3
    assert not [entry for entry in tmp_path.rglob("*") if entry.name.startswith(".")]


def test_our_own_format_is_exact_bit_for_bit(tmp_path):
    for lens in (UCM(xfov=180, xi=2.0), CALIBRATED, Equirectangular(), KannalaBrandt(xfov=170, k1=0.01)):
        original = camera(lens)
        read = Trajectory.load(saved(original, tmp_path, "ucpe"))
        assert torch.equal(read.c2w, original.c2w) and read.lens.to_dict() == lens.to_dict()
    zoom = Trajectory.zoom(UCM(xfov=120, xi=0.7), frames=5)
    read = Trajectory.load(saved(zoom, tmp_path, "ucpe"))
    assert torch.equal(read.lens.parameters["xfov"], zoom.lens.parameters["xfov"])
    assert read.lens.parameters["xi"].expand(5).tolist() == [0.7] * 5


@pytest.mark.parametrize("format", ["realestate10k", "nerfstudio", "colmap"])
def test_a_lens_that_changes_is_kept_per_frame(tmp_path, format):
    zoom = Trajectory.zoom(CALIBRATED, frames=4)
    read = Trajectory.load(saved(zoom, tmp_path, format))
    assert read.lens.batch_shape == (4,)
    same_rays(read.lens, zoom.lens)


@pytest.mark.parametrize("lens", [Pinhole(xfov=90), BrownConrady(xfov=80, k1=-0.1, p1=0.001), KannalaBrandt(xfov=150)])
@pytest.mark.parametrize("format", ["nerfstudio", "colmap"])
def test_intrinsics_are_written_for_the_size_asked_for(tmp_path, lens, format):
    read = Trajectory.load(saved(camera(lens), tmp_path, format, size=ImageSize(300, 400)))
    assert read.lens.settings == {"width": 400, "height": 300}
    same_rays(read.lens, lens, 300, 400)


def test_formats_say_what_they_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match="pinhole cameras only"):
        saved(camera(UCM(xfov=180, xi=2.0)), tmp_path, "realestate10k")
    with pytest.raises(ValueError, match="does not tell the format"):
        camera().save(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="no trajectory format 'bvh'"):
        camera().save(tmp_path / "x.bvh", format="bvh")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.json", "ucpe"),
        ("transforms.json", "nerfstudio"),
        ("a.npy", "panshot"),
        ("a.npz", "vipe"),
        ("sparse", "colmap"),
    ],
)
def test_the_name_tells_the_format_to_write(tmp_path, name, format):
    camera().save(tmp_path / name)
    assert recognise(tmp_path / name).name == format


def test_every_published_file_is_read_and_written(published, tmp_path):
    files = sorted(published.glob("re10k/*[0-9a-f].txt")) + sorted(published.glob("panshot/*.npy"))
    files = [file for file in files if file.name != "traj_normalization.txt"]
    assert len(files) == 12
    for file in files:
        read = Trajectory.load(file)
        again = Trajectory.load(saved(read, tmp_path, recognise(file).name))
        torch.testing.assert_close(again.c2w, read.c2w, atol=1e-8, rtol=0)
        assert again.fps == pytest.approx(read.fps, rel=1e-6)


def test_realestate10k_against_its_own_numbers(published):
    file = published / "re10k/38f7ba7fd9a83069.txt"
    rows = np.array([line.split() for line in file.read_text().splitlines()[1:]], dtype=np.float64)
    read = Trajectory.load(file)
    w2c = np.tile(np.eye(4), (len(rows), 1, 1))
    w2c[:, :3] = rows[:, 7:].reshape(-1, 3, 4)
    np.testing.assert_allclose(read.c2w.numpy(), np.linalg.inv(w2c), atol=1e-6, rtol=0)
    assert read.fps == pytest.approx(1e6 / np.diff(rows[:, 0]).mean(), rel=1e-3)
    assert read.lens.batch_shape == ()
    matrix = read.lens.intrinsics(480, 832).double().numpy()
    np.testing.assert_allclose(matrix[[0, 1], [0, 1]], rows[0, 1:3] * [832, 480], rtol=1e-6)
    settings = read.lens.settings
    assert settings == {"width": round(720 * rows[0, 2] / rows[0, 1]), "height": 720}
    assert read.lens.parameters["fx"].item() == pytest.approx(read.lens.parameters["fy"].item(), rel=1e-6)


@pytest.mark.parametrize("name", ["teaser", "pose", "lens"])
def test_released_demo_lists(published, name):
    depths = read_near_depths(published / "panshot/near_plane_depth-test.jsonl")
    scale = float((published / "re10k/traj_normalization.txt").read_text())
    folders = [published / "re10k", published / "panshot"]
    file = published / f"demo/{name}.json"
    entries = json.loads(file.read_text())
    cameras = read_demo(file, folders, depths, scale)
    assert len(cameras) == len(entries)
    for entry, one in zip(entries, cameras):
        assert one.caption == entry["caption"]
        trajectory = one.trajectory(frames=81)
        assert len(trajectory) == 81 and trajectory.positions[0].norm() < 1e-9
        assert trajectory.lens.parameters["xfov"].item() == entry["x_fov"]
        if one.pose.suffix == ".npy":
            raw, depth = np.load(one.pose), depths[clip_of_pose_file(one.pose)]
            expected = np.linalg.norm(np.diff(raw[:, :, 3], axis=0), axis=-1).sum() / depth
            assert trajectory.angles.yaw[0].abs() < 1e-4
            assert trajectory.angles.pitch[0].item() == pytest.approx(np.rad2deg(np.arcsin(-raw[0, 1, 2])), abs=1e-3)
        else:
            expected = Trajectory.load(one.pose)[:81].path_length() * scale
            torch.testing.assert_close(trajectory.c2w[0], torch.eye(4, dtype=torch.float64), atol=1e-7, rtol=0)
        assert trajectory.path_length() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="list of captioned cameras"):
        Trajectory.load(file)
    with pytest.raises(ValueError, match="entry 0: pose file"):
        read_demo(file)
    without = next((one for one in read_demo(file, folders) if one.pose.suffix == ".npy"), None)
    if without:
        with pytest.raises(ValueError, match="near-plane depth"):
            without.trajectory()


def panshot_tree(root):
    folder = root / "PanShot"
    for part in ("meta-test", "pose-test"):
        (folder / part).mkdir(parents=True)
    (root / "PanFlow").mkdir()
    camera().to(torch.float32).save(folder / "pose-test/a-b-3-0-yaw_aug_0.npy")
    video = {"video": "a-b-3-0-yaw_aug_0.mp4", "pose": "pose-test/a-b-3-0-yaw_aug_0.npy", "x_fov": 150, "xi": 1.5}
    silent = {**video, "video": "uncaptioned.mp4"}
    (folder / "meta-test/a-b.json").write_text(json.dumps([{"videos": [video, silent]}]))
    (folder / "captioned-test.jsonl").write_text(json.dumps({"video": video["video"], "caption": "a walk"}) + "\n")
    depth = {"video_id": "a-b", "clip_id": 3, "near_depth": 0.5}
    (root / "PanFlow/near_plane_depth-test.jsonl").write_text(json.dumps(depth) + "\n")


def test_panshot_dataset_on_disk(tmp_path):
    panshot_tree(tmp_path)
    (row,) = read_panshot(tmp_path, "test")
    assert row.caption == "a walk" and row.video == tmp_path / "PanShot/videos-test/a-b-3-0-yaw_aug_0.mp4"
    assert row.trajectory().path_length() == pytest.approx(2 * camera().path_length(), rel=1e-5)
    with pytest.raises(ValueError, match="no PanShot split 'train'"):
        read_panshot(tmp_path, "train")
    (tmp_path / "PanFlow/near_plane_depth-test.jsonl").write_text('{"video_id": "a-b", "clip_id": 3}\n')
    with pytest.raises(ValueError, match=r"line 1: expected the keys .* missing near_depth"):
        read_panshot(tmp_path, "test")
    (tmp_path / "PanShot/meta-test/a-b.json").write_text('[{"videos": [{"video": "a-b-3-0-yaw_aug_0.mp4"}]}]')
    with pytest.raises(ValueError, match="line 1"):
        read_panshot(tmp_path, "test")


def test_tum_and_kitti_agree_with_evo(tmp_path):
    original = camera(frames=12)
    save_trajectory(original, tmp_path / "tum.txt", format="tum")
    theirs = file_interface.read_tum_trajectory_file(str(tmp_path / "tum.txt"))
    np.testing.assert_allclose(np.stack(theirs.poses_se3), original.c2w.numpy(), atol=1e-9)
    np.testing.assert_allclose(theirs.timestamps, np.arange(12) / 8)
    save_trajectory(original, tmp_path / "kitti.txt", format="kitti")
    theirs = file_interface.read_kitti_poses_file(str(tmp_path / "kitti.txt"))
    np.testing.assert_allclose(np.stack(theirs.poses_se3), original.c2w.numpy(), atol=1e-9)
    file_interface.write_tum_trajectory_file(str(tmp_path / "evo.txt"), theirs_as_tum(original))
    read = Trajectory.load(tmp_path / "evo.txt")
    torch.testing.assert_close(read.c2w, original.c2w, atol=1e-9, rtol=0)
    assert read.fps == pytest.approx(8)


def theirs_as_tum(trajectory):
    from evo.core.trajectory import PoseTrajectory3D

    times = np.arange(len(trajectory)) / trajectory.fps
    return PoseTrajectory3D(poses_se3=list(trajectory.c2w.numpy()), timestamps=times)


def test_uneven_tum_times_are_resampled_with_a_warning(tmp_path):
    path = tmp_path / "keyframes.txt"
    times = [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0]
    path.write_text("".join(f"{t} {t} 0 0 0 0 0 1\n" for t in times))
    with pytest.warns(UserWarning, match="8 poses at uneven times were resampled to 11 even frames"):
        read = Trajectory.load(path)
    assert read.fps == pytest.approx(10)
    torch.testing.assert_close(read.positions[:, 0], torch.arange(11, dtype=torch.float64) / 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.write_text("".join(f"{t + 0.002 * (i % 2)} {t} 0 0 0 0 0 1\n" for i, t in enumerate([0.0, 0.1, 0.2, 0.3])))
        assert len(Trajectory.load(path)) == 4


def test_transforms_json_is_opengl_in_a_world_whose_z_is_up(tmp_path):
    # a Blender camera at height 2, level, looking along +y
    matrix = [[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 2], [0, 0, 0, 1]]
    content = {"camera_angle_x": np.pi / 2, "frames": [{"file_path": "r_0", "transform_matrix": matrix}]}
    (tmp_path / "transforms_train.json").write_text(json.dumps(content))
    read = Trajectory.load(tmp_path / "transforms_train.json")
    torch.testing.assert_close(read.rotations[0], torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(read.positions[0], torch.tensor([0.0, -2.0, 0.0], dtype=torch.float64))
    assert read.lens.xfov(100, 100).item() == pytest.approx(90)
    frames = [{"file_path": f"r_{i}", "transform_matrix": [[1, 0, 0, i], *matrix[1:]]} for i in (10, 2, 1)]
    (tmp_path / "t.json").write_text(json.dumps({**content, "frames": frames}))
    assert Trajectory.load(tmp_path / "t.json").positions[:, 0].tolist() == [1, 2, 10]


def test_colmap_text_and_binary_against_pycolmap(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    original = camera(BrownConrady(fx=500.0, fy=510.0, cx=410.0, cy=238.0, k1=-0.1, p1=0.001, width=832, height=480))
    original.save(tmp_path / "text")
    model = pycolmap.Reconstruction(str(tmp_path / "text"))
    assert model.num_images() == 7
    for image in model.images.values():
        w2c = np.eye(4)
        w2c[:3] = image.cam_from_world().matrix()
        frame = int(image.name.split("_")[1].split(".")[0])
        np.testing.assert_allclose(np.linalg.inv(w2c), original.c2w[frame].numpy(), atol=1e-9)
    (tmp_path / "binary/sparse/0").mkdir(parents=True)
    model.write_binary(str(tmp_path / "binary/sparse/0"))
    for path in (
        tmp_path / "text",
        tmp_path / "binary",
        tmp_path / "binary/sparse/0/images.bin",
        tmp_path / "text/images.txt",
    ):
        assert recognise(path).name == "colmap"
        read = Trajectory.load(path)
        torch.testing.assert_close(read.c2w, original.c2w, atol=1e-9, rtol=0)
        same_rays(read.lens, original.lens)


def test_colmap_images_with_points_and_several_cameras(tmp_path):
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 64 48 50 50 32 24\n2 PINHOLE 64 48 60 60 32 24\n")
    lines = "# comment\n7 1 0 0 0 0 0 -1 2 b.png\n1.0 2.0 -1 3.0 4.0 5\n3 1 0 0 0 0 0 -2 1 a photo.png\n\n"
    (tmp_path / "images.txt").write_text(lines)
    read = Trajectory.load(tmp_path)
    assert read.positions[:, 2].tolist() == [2, 1]
    assert read.lens.parameters["fx"].tolist() == [50, 60]
    (tmp_path / "images.txt").write_text(lines.replace(" 2 b.png", " 9 b.png"))
    with pytest.raises(ValueError, match="camera 9"):
        Trajectory.load(tmp_path)
    eucm = "1 EUCM 64 48 20 20 32 24 0.6 1.1\n"
    (tmp_path / "cameras.txt").write_text(eucm)
    (tmp_path / "images.txt").write_text(lines.replace(" 2 b.png", " 1 b.png"))
    assert isinstance(Trajectory.load(tmp_path).lens, EUCM)


def test_vipe_frames_that_are_missing_are_interpolated(tmp_path):
    original = Trajectory.dolly(CALIBRATED, distance=4, frames=5)
    keep = [0, 1, 4]
    np.savez(tmp_path / "pose.npz", data=original.c2w[keep].numpy(), inds=np.array(keep) + 10)
    torch.testing.assert_close(Trajectory.load(tmp_path / "pose.npz").c2w, original.c2w)


def test_pickles_are_never_loaded(tmp_path):
    np.save(tmp_path / "bad.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a plain NumPy array"):
        Trajectory.load(tmp_path / "bad.npy")
    np.savez(tmp_path / "bad.npz", data=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"bad\.npz: not a plain NumPy array .* allow_pickle"):
        Trajectory.load(tmp_path / "bad.npz")


ROW = "1 0.5 0.9 0.5 0.5 0 0 1 0 0 0 0 1 0 0 0 0 1 0"
LATER = ROW.replace("1 0.5", "2 0.5", 1)
TUM_ROW = "0.1 0 0 0 0 0 0 1"
KITTI_ROW = "1 0 0 0 0 1 0 0 0 0 1 0"
BROKEN = {
    "realestate10k, a number missing": (f"http\n{ROW}\n{LATER[:-2]}\n", "line 3: expected 19 numbers .* found 18"),
    "realestate10k, a word": (f"http\n{ROW}\n{LATER[:-2]} x\n", "line 3: expected 19 numbers"),
    "realestate10k, not a rotation": (
        f"http\n{ROW}\n{LATER[:-1]}5\n{LATER.replace('1 0 0 0 0 1', '1 1 0 0 0 1')}\n",
        "line 3|line 4",
    ),
    "realestate10k, no focal length": (f"http\n{ROW.replace('0.5 0.9', '0 0.9')}\n", "line 2: expected focal lengths"),
    "realestate10k, time runs back": (f"http\n{LATER}\n{ROW}\n", "line 3: expected a timestamp later"),
    "realestate10k, infinite": (f"http\n{ROW}\n{LATER[:-1]}inf\n", "line 3: expected finite"),
    "tum, quaternion": (f"# c\n{TUM_ROW}\n0.2 0 0 0 0 0 0 3\n", "line 3: expected a quaternion of length 1"),
    "tum, time runs back": (f"{TUM_ROW}\n{TUM_ROW}\n0{TUM_ROW[3:]}\n", "line 3: expected a time later"),
    "tum, a number missing": (f"{TUM_ROW}\n0.2 0 0 0 0 0 1\n", "line 2: expected 8 numbers .* found 7"),
    "kitti, mirrored": (f"{KITTI_ROW}\n-{KITTI_ROW}\n", "line 2: expected a rotation"),
    "no format": ("1 2 3\n4 5 6\n", "its first lines hold 3 and 3 numbers"),
    "prose": ("hello\nworld\n", "it starts with 'hello'"),
    "empty": ("", "empty or binary"),
    "json, other": ('{"a": 1}', "no trajectory file known"),
    "json, broken": ('{"format": "ucpe-trajectory",\n "fps": }', "no trajectory file known"),
    "ours, no lens": ('{"format": "ucpe-trajectory", "fps": 3, "c2w": []}', "missing lens"),
    "ours, unknown lens": (
        '{"format": "ucpe-trajectory", "fps": 3, "c2w": [[[1,0,0,0],[0,1,0,0],[0,0,1,0]]], "lens": {"model": "jelly"}}',
        "lens: model must be one of",
    ),
    "ours, ragged": (
        '{"format": "ucpe-trajectory", "fps": 3, "c2w": [[1], [2, 3]], "lens": {"model": "ucm"}}',
        "3 rows of 4",
    ),
    "ours, newer": (
        '{"format": "ucpe-trajectory", "version": 9, "fps": 3, "c2w": [], "lens": {}}',
        "version 9 is newer",
    ),
    "transforms, no matrix": (
        '{"frames": [{"transform_matrix": [[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]}, {"transform_matrix": [1]}]}',
        r"frames\[1\].transform_matrix: expected a matrix",
    ),
    "colmap, a word missing": ("1 1 0 0 0 0 0 0 1 a.png\n\n2 1 0 0 0 0 0 0 b.png\n\n", "line 3: expected ID QW"),
    "transforms, frames of numbers": ('{"frames": [1]}', r"frames\[0\].transform_matrix: expected a matrix"),
    "transforms, no frames": ('{"frames": []}', "list `frames` of at least one"),
    "transforms, first frame bad": (
        '{"frames": [{"file_path": "a.png"}]}',
        r"frames\[0\].transform_matrix: expected a matrix",
    ),
    **{
        f"transforms, fps {fps}": (
            f'{{"fps": {fps}, "frames": [{{"transform_matrix": [[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]}}]}}',
            "expected fps as a positive number, found",
        )
        for fps in ("0", '"abc"', "[3]")
    },
    **{
        f"ours, fps {fps}": (
            f'{{"format": "ucpe-trajectory", "fps": {fps}, "c2w": [[[1,0,0,0],[0,1,0,0],[0,0,1,0]]], '
            '"lens": {"model": "pinhole", "xfov": 90}}',
            "expected fps as a positive number, found",
        )
        for fps in ("0", "null", '"abc"', "[3]", "true", "NaN")
    },
    "ours, version a word": (
        '{"format": "ucpe-trajectory", "version": "2", "fps": 3, "c2w": [], "lens": {}}',
        "expected version as a whole number, found '2'",
    ),
    "a calibration": (
        '{"camera_matrix": [[300, 0, 160], [0, 300, 120], [0, 0, 1]], "image_width": 320, "image_height": 240}',
        r"this looks like the calibration of a camera \(--lens\), not a path",
    ),
    "colmap, no points": (
        "# c\n1 1 0 0 0 0 0 0 1 a.png\n2 1 0 0 0 0 0 0 1 b.png\n",
        "line 3: expected the points of the image above .* or an empty line .* found '2 1 0 0 0 0 0 0 1 b.png'",
    ),
    "colmap, no points and a number for a name": (
        "1 1 0 0 0 0 0 0 1 a.png\n2 1 0 0 0 0 0 0 1 2\n",
        "line 2: expected the points of the image above",
    ),
    "colmap, quaternion": ("1 1 0 0 0 0 0 0 1 a.png\n\n2 2 0 0 0 0 0 0 1 b.png\n\n", "line 3: expected a quaternion"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_say_where_and_what_was_expected(tmp_path, text, message):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        Trajectory.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("format", ["ucpe", "kitti"])
def test_a_frame_rate_of_zero_is_refused_when_loading(tmp_path, format):
    path = saved(camera(), tmp_path, format)
    with pytest.raises(ValueError, match="fps must be a positive number, got 0"):
        Trajectory.load(path, fps=0)


def test_broken_json_names_the_line_when_the_format_is_given(tmp_path):
    path = tmp_path / "file"
    path.write_text('{"fps": 3,\n "c2w": }')
    with pytest.raises(ValueError, match="line 2, column 9: not JSON"):
        Trajectory.load(path, format="ucpe")


def test_truncated_colmap_binary_and_missing_files(tmp_path):
    path = tmp_path / "images.bin"
    path.write_bytes(struct.pack("<Q", 3) + b"\0" * 20)
    with pytest.raises(ValueError, match="ends after 28 bytes"):
        Trajectory.load(path)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        Trajectory.load(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="the folder holds nothing"):
        Trajectory.load(tmp_path / "other")


@pytest.mark.parametrize("shape", [(5, 3, 3), (5, 12), (0, 3, 4)])
def test_arrays_of_other_shapes_are_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape))
    with pytest.raises(ValueError, match="shape"):
        Trajectory.load(tmp_path / "a.npy")


def test_poses_that_are_not_rigid_are_refused(tmp_path):
    poses = np.tile(np.eye(4)[:3], (4, 1, 1))
    poses[2, :, :3] = 2 * Rotation.from_euler("x", 30, degrees=True).as_matrix()
    np.save(tmp_path / "a.npy", poses)
    with pytest.raises(ValueError, match=r"a\.npy.*frame 2 must hold a rotation"):
        Trajectory.load(tmp_path / "a.npy")
