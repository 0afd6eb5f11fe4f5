"""`ucpe check`: its exit codes, its picture and what it must be told."""

import json

import numpy as np
import pytest

from ucpe.cli.check import main
from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory
from ucpe.video import write_video

FRAMES = 9


@pytest.mark.slow
def test_the_command_exits_with_its_verdict(tmp_path, capsys):
    video = tmp_path / "shot.mp4"
    write_video(video, np.random.default_rng(0).integers(0, 255, (FRAMES, 48, 80, 3), np.uint8), 8.0)
    camera = Trajectory.move("truck-right 0.8 with pan-left 30", UCM(xfov=90), frames=FRAMES, fps=8)
    (tmp_path / "poses").mkdir()
    path = tmp_path / "path.json"
    camera.save(path)
    for poses, code in ((camera, 0), (camera[[0] * FRAMES], 3)):
        np.savez(tmp_path / "poses" / "shot.npz", data=poses.c2w.numpy())
        options = ["--camera", str(path), "--pose", "stored", "--pose-results", str(tmp_path / "poses"), "--json"]
        with pytest.raises(SystemExit) as stopped:
            main([str(video), *options])
        assert stopped.value.code == code
        found = json.loads(capsys.readouterr().out)
        assert found["quantities"]["turn"]["verdict"] == ("not obeyed" if code else "obeyed")
    assert (tmp_path / "shot.check.png").is_file()
    with pytest.raises(ValueError, match="say what the camera was"):
        main([str(video), "--pose", "none"])
