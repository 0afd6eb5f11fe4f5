"""Where finished parts are kept: one file for each item, there whole or not at all, with the item's fingerprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ucpe.files import write_json

if TYPE_CHECKING:
    from ucpe.work.stages import Item


class Parts:
    """Parts of one stage in a folder; a subclass says how a part is written."""

    suffix: str

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def file(self, item: Item) -> Path:
        """The file of an item's part."""
        return self.folder / f"{quote(item.id, safe=' ')}{self.suffix}"

    def load(self, item: Item) -> Any | None:
        """The part of an item, or None if there is none with its fingerprint."""
        raise NotImplementedError

    def save(self, item: Item, part: Any) -> None:
        """Write the part of an item in one step."""
        raise NotImplementedError


class JsonParts(Parts):
    """Parts that are plain data."""

    suffix = ".json"

    def load(self, item: Item) -> Any | None:
        """The part of an item, or None if there is none with its fingerprint."""
        try:
            content = json.loads(self.file(item).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        whole = isinstance(content, dict) and content.get("fingerprint") == item.fingerprint
        return content.get("part") if whole else None

    def save(self, item: Item, part: Any) -> None:
        """Write the part of an item in one step."""
        write_json(self.file(item), {"fingerprint": item.fingerprint, "part": part})
