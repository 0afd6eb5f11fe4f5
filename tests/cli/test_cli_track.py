"""`ucpe track`: the path of a video, with poses that another tool has found."""

import numpy as np
import pytest
import torch

from ucpe.cli.track import main
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.video import write_video


def test_stored_poses_become_a_path(tmp_path, capsys):
    camera = Trajectory.truck(Pinhole(xfov=80), frames=5, fps=8)
    write_video(tmp_path / "shot.mp4", np.zeros((5, 48, 80, 3), np.uint8), 8.0)
    (tmp_path / "poses").mkdir()
    np.savez(tmp_path / "poses" / "shot.npz", data=camera.c2w.numpy())
    video, path = str(tmp_path / "shot.mp4"), tmp_path / "path.json"
    stored = ["--pose", "stored", "--pose-results", str(tmp_path / "poses")]
    main([video, *stored, "--xfov", "80", "-o", str(path)])
    told = capsys.readouterr().out
    assert told.startswith("sure: 5 of 5 frames placed") and "up is not known" in told
    found = Trajectory.load(path)
    assert found.fps == 8 and torch.allclose(found.positions, camera.positions, atol=1e-6)
    with pytest.raises(ValueError, match="start must be 0 or more"):
        main([video, *stored, "--xfov", "80", "--start", "-1"])
