"""The cameras of the authors' demo lists, in the layout of their checkout, against plain NumPy and written numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.samples import PUBLISHED

from ucpe.trajectories.formats.captioned import read_released_list


@pytest.fixture
def root(published):
    return published / "released"


LAST = {
    "data/RealEstate10k/pose_files/test/f74139ac48f19b3c.txt": [
        [0.83708411, -0.10325124, 0.53724231, -0.99378633],
        [0.02862339, 0.98894921, 0.14546516, -0.22867619],
        [-0.54632483, -0.10638888, 0.83078912, -0.50048846],
    ],
    "data/UCPE/PanShot/pose-test/Msw3A5IPPD0-96-0-yaw_pitch_aug_0.npy": [
        [0.99898718, -0.04483622, 0.00376546, -0.65774267],
        [0.01143990, 0.33404282, 0.94248849, -0.03046153],
        [-0.04351542, -0.94149091, 0.33421742, 1.37997574],
    ],
    "data/UCPE/PanShot/pose-test/N99hmkAJwlQ-3-0-yaw_aug_0.npy": [
        [0.99983273, -0.00060656, 0.01827505, 0.32394163],
        [-0.00011894, 0.99921280, 0.03967145, 0.00757566],
        [-0.01828474, -0.03966699, 0.99904558, 1.55295790],
    ],
}
"""The 81st camera of some of the authors' files."""


def realestate(root, file):
    """Relative to the first camera, translations times the released factor."""
    rows = np.array([line.split() for line in (root / file).read_text().splitlines()[1:82]], dtype=np.float64)
    w2c = np.tile(np.eye(4), (81, 1, 1))
    w2c[:, :3] = rows[:, 7:].reshape(-1, 3, 4)
    c2w = w2c[0] @ np.linalg.inv(w2c)
    c2w[:, :3, 3] *= float((root / "data/RealEstate10k/traj_normalization.txt").read_text())
    return c2w[:, :3]


def panshot(root, file):
    """The first camera at the origin with yaw 0, translations over the clip's near-plane depth."""
    video, clip = Path(file).stem.rsplit("-", 2)[0].rsplit("-", 1)
    lines = map(json.loads, (root / "data/UCPE/PanFlow/near_plane_depth-test.jsonl").read_text().splitlines())
    depth = next(line["near_depth"] for line in lines if (line["video_id"], str(line["clip_id"])) == (video, clip))
    poses = np.load(root / file).astype(np.float64)
    yaw = -np.arctan2(poses[0, 0, 2], poses[0, 2, 2])
    turn = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
    moved = (poses[:, :, 3:] - poses[0, :, 3:]) / depth
    return turn @ np.concatenate([poses[:, :, :3], moved], axis=-1)


@pytest.mark.parametrize("name, count", [("lens", 12), ("pose", 22), ("teaser", 27)])
def test_every_entry_has_its_lens_pose_and_caption(name, count, root, monkeypatch, tmp_path):
    entries = json.loads((root / f"demo/{name}.json").read_text())
    for folder, file in ((root, Path(f"demo/{name}.json")), (tmp_path, root / f"demo/{name}.json")):
        monkeypatch.chdir(folder)
        cameras = read_released_list(file)
        assert len(cameras) == len(entries) == count
        for entry, camera in zip(entries, cameras):
            assert (camera.caption, root.resolve() / entry["pose_path"]) == (entry["caption"], camera.pose.resolve())
            parameters = camera.lens.parameters
            assert (float(parameters["xfov"]), float(parameters["xi"])) == pytest.approx((entry["x_fov"], entry["xi"]))
            made = camera.released().c2w[:, :3].numpy()
            expected = (panshot if entry["pose_path"].endswith(".npy") else realestate)(root, entry["pose_path"])
            np.testing.assert_allclose(made, expected, atol=2e-7, rtol=0)
            if root.parent == PUBLISHED and entry["pose_path"] in LAST:
                np.testing.assert_allclose(made[80], LAST[entry["pose_path"]], atol=2e-7, rtol=0)


def test_what_is_missing_is_named(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkout"
    (folder / "demo").mkdir(parents=True)
    for name in ("lens", "pose"):
        (folder / f"demo/{name}.json").write_bytes((root / f"demo/{name}.json").read_bytes())
    with pytest.raises(ValueError, match=r"lens.json, entry 0: pose file data/RealEstate10k/.* is in none of"):
        read_released_list(folder / "demo/lens.json")
    for file in root.glob("data/**/pose*/**/*.*"):
        (folder / file.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.relative_to(root)).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=r"lens.json, entry 0: .* needs a traj_normalization.txt"):
        read_released_list(folder / "demo/lens.json")
    with pytest.raises(ValueError, match=r"pose.json, entry 0: no near_plane_depth-.*the clip aQVLCO-OOqM-11"):
        read_released_list(folder / "demo/pose.json")
    (folder / "data/RealEstate10k/traj_normalization.txt").write_text("nan")
    with pytest.raises(ValueError, match=r"traj_normalization.txt: expected one positive number"):
        read_released_list(folder / "demo/lens.json")
