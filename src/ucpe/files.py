"""Files that are there whole or not at all, and the one answer to "is this the same file?"."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

WHOLE = 1 << 20
"""Files up to this many bytes are compared by all of their content, larger ones by blocks of it."""

BLOCKS, BLOCK = 16, 1 << 14
"""How many blocks of a large file are read, and their size in bytes."""

ABANDONED = 24 * 3600
"""Seconds after which a temporary file of another machine counts as left behind."""

MAX_NAME = 150
"""Maximum length of a file name made from a title; systems take 255, and temporary names are longer."""

_numbers = itertools.count()
_UMASK = os.umask(0o077)
os.umask(_UMASK)
_tidied: set[Path] = set()


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` once the block succeeds and vanishes if it fails."""
    temporary = temporary_name(path)
    try:
        yield temporary
        commit(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_name(path: str | Path) -> Path:
    """A hidden name beside `path` that no other process or thread uses; what dead ones left there is removed."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write")
    path.parent.mkdir(parents=True, exist_ok=True)
    _tidy(path.parent)
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{next(_numbers)}.partial")


def commit(temporary: Path, path: str | Path) -> None:
    """Give a complete temporary file its name, in one step and once its bytes are on the disk.

    It may be read by whoever may read other new files: safetensors leaves files that only their owner can.
    """
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.chmod(0o666 & ~_UMASK)
    os.replace(temporary, path)


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file that is whole or absent; text as UTF-8."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: str | Path, content: Any) -> None:
    """Write JSON that is whole or absent; numbers must be finite."""
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder where the system keeps temporary files, gone after the block; those of killed processes are removed."""
    _tidy(Path(tempfile.gettempdir()))
    name = tempfile.mkdtemp(prefix=f".ucpe.{_host()}.{os.getpid()}.", suffix=".partial")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders of processes that are gone, as far as this user may."""
    for path in folder.glob(".*.partial"):
        owner = re.search(r"\.([^.]+)\.(\d+)\.\w+\.partial$", path.name)
        if owner is None:
            continue  # not ours
        with suppress(OSError):
            if owner[1] == _host():
                left = not is_running(int(owner[2]))
            else:
                left = time.time() - path.stat().st_mtime > ABANDONED
            if left:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _tidy(folder: Path) -> None:
    """Remove what dead processes left in a folder, once in this process."""
    if folder not in _tidied:
        _tidied.add(folder)
        remove_leftovers(folder)


def is_running(process: int) -> bool:
    """Whether a process of this machine still exists."""
    if os.name == "nt":
        import ctypes

        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined]
        handle = kernel.OpenProcess(0x100000, False, process)  # SYNCHRONIZE
        if not handle:
            return False
        ended = kernel.WaitForSingleObject(handle, 0) == 0
        kernel.CloseHandle(handle)
        return not ended
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def safe_name(title: str) -> str:
    """A file name for any title: unusual characters as %XX, and a long one cut and told apart by a hash."""
    name = quote(title, safe="")
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def fingerprint_of(*things: Any, **named: Any) -> str:
    """A short name (32 hexadecimal digits) for JSON-like things; the same things have the same name."""
    return hashlib.sha256(json.dumps([things, named], sort_keys=True, default=str).encode()).hexdigest()[:32]


def file_fingerprint(path: str | Path) -> str:
    """A short name of a file's content, wherever it lies and whenever it was copied.

    Two files are the same if all their bytes are, up to 1 MiB; beyond, if their sizes and 16 blocks spread over them
    are. A missing file is named by its path.
    """
    path = Path(path)
    if not path.is_file():
        return f"missing-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    facts = path.stat()
    return _file_fingerprint(path, facts.st_size, facts.st_mtime_ns)


@cache
def _file_fingerprint(path: Path, size: int, modified: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= WHOLE:
            digest.update(file.read())
        else:
            for index in range(BLOCKS):
                file.seek((size - BLOCK) * index // (BLOCKS - 1))
                digest.update(file.read(BLOCK))
    return digest.hexdigest()[:20]


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
