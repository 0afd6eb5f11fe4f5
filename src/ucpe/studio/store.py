"""What the studio keeps on disk: shots as they change, uploaded files, and results.

FOLDER/shots/ID.json     the shot, written after every edit
FOLDER/paths/ID.json     its camera, for `ucpe generate --camera` and `ucpe render --camera`
FOLDER/uploads/HASH.ext  files from outside, named by their content
FOLDER/results/          videos and records as `ucpe generate` writes them
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

from ucpe.files import atomic_file, write_file, write_json
from ucpe.reading import read_json
from ucpe.studio.shot import UPLOADED, Shot
from ucpe.video import VIDEO_SUFFIXES

ID = re.compile(r"[0-9a-f]{8}")

IMAGES = (".png", ".jpg", ".jpeg", ".webp")
UPLOADS = (*IMAGES, *VIDEO_SUFFIXES, ".npy", ".npz", ".bin", ".zip", ".r3d")
"""Endings of uploaded files, all that is kept of their names; others become .txt, and content says what they are."""

MAX_LISTED = 20
"""Shots that are offered to be opened."""

MAX_UNDO = 500
"""Steps that can be undone."""


class Document:
    """A shot that is open, what it was before, what was undone, and the windows that show it."""

    def __init__(self, store: Store, id: str, shot: Shot):
        self.store, self.id, self.shot = store, id, shot
        self.past: list[Shot] = []
        self.undone: list[Shot] = []
        self.tag: str | None = None
        """Of the drag that goes on: edits with the same tag in a row are one step to undo."""
        self.listeners: list[Callable[[], None]] = []
        self.windows: set[str] = set()
        """Names of the windows that show it now; one that was closed is gone from here before its listener is."""

    def edit(self, shot: Shot, tag: str | None = None) -> None:
        """Take the next shot, write it down and tell every window; the one before can be brought back."""
        if shot != self.shot:
            if tag is None or tag != self.tag:
                self.past = [*self.past[-MAX_UNDO + 1 :], self.shot]
            self.shot, self.undone, self.tag = shot, [], tag
        self._changed()

    def undo(self) -> None:
        """Bring back the shot before the last step."""
        if self.past:
            self.undone.append(self.shot)
            self.shot, self.tag = self.past.pop(), None
        self._changed()

    def redo(self) -> None:
        """Take back the last undo."""
        if self.undone:
            self.past.append(self.shot)
            self.shot, self.tag = self.undone.pop(), None
        self._changed()

    def settle(self) -> None:
        """End a drag: write what it led to, and tell every window; the next edit is a step of its own."""
        self.tag = None
        self._changed()

    def _changed(self) -> None:
        if self.tag is None:
            self.store.save(self)
        for listener in list(self.listeners):
            listener()


class Store:
    """The studio's folder."""

    def __init__(self, folder: Path, make_shot: Callable[[], Shot] = Shot):
        self.folder, self.make_shot = folder, make_shot
        self.shots, self.paths = folder / "shots", folder / "paths"
        self.uploads, self.results = folder / "uploads", folder / "results"
        for path in (self.shots, self.paths, self.uploads, self.results):
            path.mkdir(parents=True, exist_ok=True)
        self.open_documents: dict[str, Document] = {}

    def latest_unwatched(self) -> str:
        """The shot that was changed last and is in no window; a new one where all are."""
        for path in self._latest_first():
            document = self.open_documents.get(path.stem)
            if not (document and document.windows):
                return path.stem
        return self.new()

    def describe_others(self, id: str) -> dict[str, str]:
        """When each other shot was changed and its prompt, by its id, the latest first."""
        others = {}
        for path in [path for path in self._latest_first() if path.stem != id][:MAX_LISTED]:
            with contextlib.suppress(ValueError):
                changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
                others[path.stem] = shorten(f"{changed} · {self.open(path.stem).shot.prompt}", 90, placeholder=" …")
        return others

    def _latest_first(self) -> list[Path]:
        files = (path for path in self.shots.glob("*.json") if ID.fullmatch(path.stem))
        return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)

    def new(self, shot: Shot | None = None) -> str:
        """Write a new shot and return its id."""
        document = Document(self, secrets.token_hex(4), shot or self.make_shot())
        self.save(document)
        self.open_documents[document.id] = document
        return document.id

    def open(self, id: str) -> Document:
        """The shot of an id; ValueError if there is none or its file is broken."""
        if not ID.fullmatch(id):
            raise ValueError(f"no shot {id[:20]!r}")
        if id not in self.open_documents:
            path = self.shots / f"{id}.json"
            if not path.is_file():
                raise ValueError(f"no shot {id} in {self.folder}")
            content = read_json(path)
            try:
                shot = Shot.from_dict(content)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}: {error}") from None
            self.open_documents[id] = Document(self, id, shot)
        return self.open_documents[id]

    def save(self, document: Document) -> None:
        """Write a shot and its camera."""
        write_json(self.shots / f"{document.id}.json", document.shot.to_dict())
        document.shot.camera.save(self.path_file(document.id))

    def path_file(self, id: str) -> Path:
        """The file with a shot's camera."""
        return self.paths / f"{id}.json"

    def keep(self, content: Path, name: str) -> Path:
        """Keep a file from outside under a name made of its content; of its own name only a known suffix is used."""
        suffix = Path(name).suffix.lower()
        suffix = suffix if suffix in UPLOADS else ".txt"
        kept = self.uploads / f"{_digest(content)[:24]}{suffix}"
        if not kept.exists():
            with atomic_file(kept) as temporary:
                shutil.copyfile(content, temporary)
        return kept

    def keep_bytes(self, content: bytes, suffix: str) -> Path:
        """Keep content made here."""
        kept = self.uploads / f"{hashlib.sha256(content).hexdigest()[:24]}{suffix}"
        write_file(kept, content)
        return kept

    def upload(self, name: str) -> Path:
        """The path of a kept file; ValueError for any other name."""
        path = self.uploads / name
        if not UPLOADED.fullmatch(name) or not path.is_file():
            raise ValueError("that file is not in the studio's uploads any more: choose it again")
        return path


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
