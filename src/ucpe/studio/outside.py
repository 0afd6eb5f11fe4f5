"""The path from outside: go round it, and drag its keyframes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from ucpe.studio import drawing, edits
from ucpe.studio.controls import card
from ucpe.studio.drawing import ABOVE_HEIGHT, ABOVE_WIDTH
from ucpe.studio.surface import Surface

if TYPE_CHECKING:
    from ucpe.studio.page import Page

LABEL = (
    "The path from outside, with keyframes and what they see. Drag to go round it, wheel to come closer, "
    "drag a keyframe to move it on its level, with shift up and down; arrow keys turn."
)

TURNS = {"ArrowLeft": (-8, 0), "ArrowRight": (8, 0), "ArrowUp": (0, 5), "ArrowDown": (0, -5)}
"""Degrees round the path and up that a key turns the view by."""

CLOSER = {"+": 1.15, "-": 1 / 1.15}


class Outside:
    """Shows the path in its world, with the view volume of every keyframe."""

    def __init__(self, page: Page):
        self.page, self.window = page, page.window
        self.grabbed: int | None = None
        self.shown: Any = None
        with card("Path from outside", "Drag keyframes, or the world."):
            self.surface = Surface(LABEL, ABOVE_WIDTH, ABOVE_HEIGHT, [*TURNS, *CLOSER]).classes("outside")
            self.surface.listen(
                press=self.press, drag=self.drag, release=lambda _: page.settle(),
                turn_wheel=lambda event: self.turn(closer=1.1 ** (-event["delta"] / 100)),
                press_key=lambda event: self.turn(*TURNS.get(event["key"], (0, 0)), CLOSER.get(event["key"], 1.0)),
            )  # fmt: skip
            ui.button("See all of it", on_click=self.see_all).props("dense flat no-caps").classes("self-start")

    def refresh(self) -> None:
        """Draw the path; the world behind it only where it looks different."""
        window, floor = self.window, self.window.floor
        now, selected = window.camera(), window.selected
        self.surface.draw(drawing.path_svg(window.shot, now, window.frame, selected, window.orbit, floor))
        shown = (window.shot.scene, window.orbit)
        if self.shown != shown:
            self.shown = shown
            self.surface.follow(self.page.address("outside") if floor is None else "")
            self.surface.classes(**{"remove" if floor is None else "add": "flat"})

    def press(self, event: dict[str, Any]) -> None:
        """Take hold of a keyframe, or of the world."""
        self.grabbed = drawing.key_under(self.window.shot, self.window.orbit, event["x"], event["y"])
        if self.grabbed is not None:
            self.page.choose(self.grabbed)

    def drag(self, event: dict[str, Any]) -> None:
        """Move the keyframe held on its level (with shift up and down), or go round the path."""
        index, orbit = self.grabbed, self.window.orbit
        if index is None:
            self.turn(event["dx"] * 0.4, event["dy"] * 0.4)
            return
        x, y, z = self.window.shot.keys[index].position
        if event["shift"]:
            y += event["dy"] * orbit.distance / ABOVE_HEIGHT
        else:
            point = orbit.on_level(event["x"], event["y"], y)
            if point is None:
                return
            x, _, z = point.tolist()
        self.page.edit(lambda shot: edits.change_key(shot, index, position=(x, y, z)), "move")
        self.refresh()

    def turn(self, right: float = 0.0, down: float = 0.0, closer: float = 1.0) -> None:
        """See the path from another place."""
        self.window.orbit = self.window.orbit.dragged(right, down).closer(closer)
        self.refresh()

    def see_all(self) -> None:
        """See the whole path."""
        self.window.orbit = drawing.around(self.window.shot)
        self.refresh()
