"""The page's one element of our own: a picture under a drawing, that is dragged, scrolled and steered by keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui


class Surface(ui.element, component="surface.js"):
    """A picture (by address) under an SVG drawing; events come in units of width x height."""

    def __init__(self, label: str, width: int, height: int, keys: Sequence[str] = ()):
        super().__init__()
        self._props.update(label=label, width=width, height=height, keys=list(keys))

    def show(self, overlay: str, source: str | None = None, size: tuple[int, int] | None = None) -> None:
        """Show a drawing and, if given, another picture and another (width, height)."""
        self._props["overlay"] = overlay
        if source is not None:
            self._props["source"] = source
        if size is not None:
            self._props["width"], self._props["height"] = size
        self.update()

    def listen(self, **handlers: Callable[[dict[str, Any]], Any]) -> None:
        """Call handlers with the event's numbers: press, drag, release, turn_wheel, press_key."""
        for name, handler in handlers.items():
            self.on(name, lambda event, handler=handler: handler(event.args if isinstance(event.args, dict) else {}))
