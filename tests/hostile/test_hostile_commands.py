"""Two hundred hostile command lines, in one limited process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_hostile_command_lines_are_refused_in_one_line():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(Path(__file__).with_name("commands.py"))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert ", 0 not refused in one line" in done.stdout
