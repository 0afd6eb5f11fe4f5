import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ucpe.video import write_video

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.slow
def test_a_command_that_is_ended_says_so_in_one_line_though_colmap_is_at_work(tmp_path):
    pytest.importorskip("pycolmap")
    noise = np.random.default_rng(0).integers(0, 255, (30, 240, 320, 3), np.uint8)
    write_video(tmp_path / "noise.mp4", noise, 8.0, preset="ultrafast")
    command = [sys.executable, "-m", "ucpe", "check", tmp_path / "noise.mp4", "--move", "pan-left", "--pose", "colmap"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    while not list(tmp_path.glob(".ucpe.*.partial/matches.db")) and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=600)
    lines = [line for line in said.splitlines() if "checking" not in line and line.strip()]
    assert lines == ["ucpe check: ended by SIGTERM"]
    assert running.returncode == 130
    assert not list(tmp_path.glob(".ucpe.*"))  # nothing is left behind
