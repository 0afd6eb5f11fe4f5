"""Other people's programs, run as part of an item: they end when the process that needs them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def run_program(
    command: list[str], folder: Path | None = None, seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, for `seconds` at most; on Linux it is killed with this process.

    It does not hear the Ctrl-C of a terminal: an item that runs is finished.
    """
    import ctypes  # noqa: F401  (not between fork and exec)

    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what a worker does not hear, its programs may need
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        end_with_parent(parent)

    return subprocess.run(
        command,
        cwd=folder,
        timeout=seconds,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        start_new_session=True,
        preexec_fn=None if sys.platform == "win32" else prepare,
    )


def end_with_parent(parent: int) -> None:
    """On Linux: the system kills this process as soon as its parent is gone."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
