"""The page's one element of our own: a picture under a drawing, that is dragged, scrolled and steered by keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import ui


class Surface(ui.element, component="surface.js"):
    """A picture (by address) under an SVG drawing; events come in units of width x height.

    The pictures of a live surface bring `lines` of these classes over them, and are exact only once nothing moves any
    more. Pictures and drawings go to the browser as calls: after an update it lays out the whole page anew.
    """

    def __init__(
        self, label: str, width: int, height: int, keys: Sequence[str] = (), lines: Sequence[str] = (),
        address: str | None = None,
    ):  # fmt: skip
        super().__init__()
        self._props.update(label=label, width=width, height=height, keys=list(keys), lines=list(lines), address=address)

    def follow(self, source: str) -> None:
        """Show the picture of another address; none if it is empty."""
        self.run_method("follow", source)

    def draw(self, drawing: str) -> None:
        """Show another drawing."""
        self.run_method("draw", drawing)

    def resize(self, width: int, height: int) -> None:
        """Have another size."""
        if (width, height) != (self._props["width"], self._props["height"]):
            self._props["width"], self._props["height"] = width, height
            self.update()

    def listen(self, **handlers: Callable[[dict[str, Any]], Any]) -> None:
        """Call handlers with the event's numbers: press, drag, release, turn_wheel, press_key."""

        def answer(handler: Callable[[dict[str, Any]], Any], event: Any) -> None:
            handler(event.args if isinstance(event.args, dict) else {})
            self.run_method("answered")

        for name, handler in handlers.items():
            self.on(name, partial(answer, handler))
