"""Where finished parts are kept: one file for each item, there whole or not at all, with the item's fingerprint."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ucpe.files import safe_name, write_file, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from ucpe.work.stages import Item


class Parts:
    """Parts of one stage in a folder; a subclass says how a part is written."""

    suffix: str

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def file(self, item: Item) -> Path:
        """The file of an item's part."""
        return self.folder / f"{safe_name(item.id)}{self.suffix}"

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


@dataclass(frozen=True)
class Record:
    """Tensors by name, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)


class RecordParts(Parts):
    """Parts that are records, as safetensors; a name with a slash is in a folder of its own."""

    suffix = ".safetensors"

    def file(self, item: Item) -> Path:
        """The file of an item's part."""
        return self.folder / f"{item.id}{self.suffix}"

    def holds(self, item: Item) -> bool:
        """Whether there is a whole part of an item with its fingerprint; reads no tensor."""
        return self._facts(item) is not None

    def load(self, item: Item) -> Record | None:
        """The part of an item, or None if there is none with its fingerprint."""
        from safetensors.torch import load_file

        facts = self._facts(item)
        return None if facts is None else Record(load_file(self.file(item)), facts)

    def save(self, item: Item, part: Record) -> None:
        """Write the part of an item in one step."""
        from safetensors.torch import save

        facts = {"facts": json.dumps(part.facts)} if part.facts else {}  # two entries have no fixed order in the file
        write_file(self.file(item), save(part.tensors, {"fingerprint": item.fingerprint, **facts}))

    def _facts(self, item: Item) -> dict[str, Any] | None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.file(item), "pt") as file:
                metadata = file.metadata() or {}
        except (SafetensorError, OSError):
            return None
        whole = metadata.get("fingerprint", "") == item.fingerprint
        return json.loads(metadata.get("facts", "{}")) if whole else None
