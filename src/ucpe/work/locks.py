"""One run per output folder."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from ucpe.files import is_running


@contextmanager
def folder_lock(folder: str | Path, name: str = ".lock") -> Iterator[None]:
    """Keep other runs out of a folder; ValueError says who is in it.

    The system holds the lock and drops it with this process, however that ends; the file `name` says who holds it.
    Where a file system knows no locks, the file alone counts.
    """
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        if not _taken(file):
            raise ValueError(f"{folder}: another run is writing here ({_holder(file)}); wait for it, or stop it")
        file.truncate(0)
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _taken(file: IO[str]) -> bool:
    """Try to lock a file for this process, without waiting."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(1 << 30)  # a byte beyond the content, which others may still read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        holder = _read(file)
        ours = holder.get("host") == socket.gethostname()
        return not holder or (ours and not is_running(int(holder["pid"])))
    return True


def _read(file: IO[str]) -> dict[str, str]:
    file.seek(0)
    try:
        return json.loads(file.read())
    except ValueError:
        return {}


def _holder(file: IO[str]) -> str:
    holder = _read(file)
    if not holder:
        return f"it holds {file.name}"
    return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
