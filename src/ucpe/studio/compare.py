"""Two videos in step: what was generated, and what was commanded."""

from __future__ import annotations

from typing import Any

from nicegui import ui


class Compare(ui.element, component="compare.js"):
    """A result beside the commanded picture, the commanded horizon over both."""

    def __init__(self, made: str, commanded: str, record: dict[str, Any], label: str):
        super().__init__()
        size = {name: record[name] for name in ("fps", "width", "height")}
        self._props.update(made=made, commanded=commanded, lines=record["horizon"], label=label, **size)
