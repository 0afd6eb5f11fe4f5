"""Files from the browser to the studio's folder."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ucpe.studio.store import Store

MAX_DOCUMENT = 64 << 20
"""Bytes of a lens, path or picture."""

MAX_FOOTAGE = 2 << 30
"""Bytes of a panoramic photo or video."""

MAX_MEMBERS = 10_000
"""Files in an archive."""


async def receive(store: Store, file: Any, max_bytes: int) -> Path:
    """Keep an uploaded file of NiceGUI under a safe name; ValueError if it is too large."""
    if file.size() > max_bytes:
        raise ValueError(f"the file has {file.size() / 2**20:.0f} MB, and the limit is {max_bytes >> 20} MB")
    with tempfile.TemporaryDirectory(dir=store.folder) as folder:
        content = Path(folder) / "upload"
        await file.save(content)
        return store.keep(content, file.name)


def unpack(path: Path, folder: Path) -> Path:
    """The contents of an archive in a folder (COLMAP has several files); names that lead elsewhere are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > 4 * MAX_DOCUMENT:
                raise ValueError(f"an archive has at most {MAX_MEMBERS} files and {4 * MAX_DOCUMENT >> 20} MB")
            for member in members:
                target = (folder / member.filename).resolve()
                if not target.is_relative_to(folder.resolve()):
                    raise ValueError(f"the archive holds {member.filename[:60]!r}, which leads out of it")
            archive.extractall(folder, members)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"not a readable zip archive ({error})") from None
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 else folder
