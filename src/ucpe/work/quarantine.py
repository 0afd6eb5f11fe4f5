"""Items that failed, with their reasons: one line of JSON each."""

from __future__ import annotations

import json
from pathlib import Path

from ucpe.files import write_file
from ucpe.work.stages import Item


class Quarantine:
    """The table `quarantine.jsonl` of a folder: `id`, `reason`, and the `fingerprint` of what failed.

    A line is appended as soon as an item fails; `tidy` puts the table in order.
    """

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "quarantine.jsonl"
        self.rows: dict[str, dict[str, str]] = {}
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        for line in text.splitlines():
            try:
                row = json.loads(line)
                self.rows[row["id"]] = row
            except (json.JSONDecodeError, KeyError, TypeError):
                continue  # a line that a killed run did not finish
        if text and not text.endswith("\n"):
            self.tidy()

    def reason(self, item: Item) -> str | None:
        """Why an item made from the same things failed, or None if it did not."""
        row = self.rows.get(item.id)
        return row["reason"] if row is not None and row.get("fingerprint") == item.fingerprint else None

    def add(self, item: Item, reason: str) -> None:
        """Note a failure at once."""
        row = {"id": item.id, "reason": reason, "fingerprint": item.fingerprint}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows[item.id] = row

    def remove(self, item: Item) -> None:
        """Forget a failure: the item has been done."""
        self.rows.pop(item.id, None)

    def tidy(self) -> None:
        """Write the table in order of ids; remove it when nothing is in it."""
        if self.rows:
            lines = [json.dumps(row) + "\n" for _, row in sorted(self.rows.items())]
            content = "".join(lines).encode()
            if self.path.read_bytes() != content:
                write_file(self.path, content)
        else:
            self.path.unlink(missing_ok=True)
