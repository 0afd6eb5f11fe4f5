"""The path over time: play and scrub, graphs, and keyframes to retime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from ucpe.studio import drawing, edits
from ucpe.studio.controls import Bar, card, icon_button
from ucpe.studio.surface import Surface

if TYPE_CHECKING:
    from ucpe.studio.page import Page

LABEL = "Graphs of pitch, yaw, roll, speed and field of view. Drag to scrub, drag a mark to retime it."


class Timeline:
    """Goes through the moments of a shot."""

    def __init__(self, page: Page):
        self.page, self.window = page, page.window
        self.curves: tuple[Any, dict[str, Any]] | None = None
        self.grabbed: int | None = None
        self.due = 0
        with card("Over time", "Drag to scrub, drag a mark to retime its keyframe."):
            with ui.row().classes("transport items-center w-full no-wrap"):
                self.play_button = icon_button("play_arrow", "Play", self.toggle_play)
                self.loop = ui.switch("Loop", value=True)
                self.scrub = Bar("Moment, in frames", 0, 1, 1, page.go)
                self.clock = ui.label().classes("clock quiet whitespace-nowrap")
            with ui.row().classes("items-center"):
                ui.button("Keyframe here", icon="add_location", on_click=page.add_key).props("dense no-caps")
                ui.button("Previous", icon="skip_previous", on_click=lambda: self.hop(-1)).props("dense flat no-caps")
                ui.button("Next", icon="skip_next", on_click=lambda: self.hop(1)).props("dense flat no-caps")
            self.graphs = Surface(LABEL, *drawing.GRAPH_SIZE, keys=["ArrowLeft", "ArrowRight"]).classes("graphs")
            self.graphs.listen(
                press=self.press, drag=self.drag, release=lambda _: page.settle(),
                press_key=lambda event: page.go(self.window.frame + (1 if event["key"] == "ArrowRight" else -1)),
            )  # fmt: skip
        self.timer = ui.timer(1 / self.window.shot.fps, self.tick, active=False)

    @property
    def playing(self) -> bool:
        """Whether the path is being played."""
        return self.timer.active

    def refresh(self) -> None:
        """Show length and rate, the present moment and the graphs."""
        shot, frame = self.window.shot, self.window.frame
        if self.scrub._props["max"] != max(shot.last_frame, 1):
            self.scrub._props["max"] = max(shot.last_frame, 1)
        self.scrub.show(frame)
        self.timer.interval = 1 / shot.fps
        self.clock.set_text(f"{frame / shot.fps:.2f} s · frame {frame} of {shot.last_frame}")
        if self.curves is None or self.curves[0] is not shot.camera:
            self.curves = (shot.camera, drawing.curves(shot))
        self.graphs.draw(drawing.graphs_svg(shot, self.curves[1], frame, self.window.selected))

    def hop(self, step: int) -> None:
        """Go to the keyframe before or after this moment."""
        frames = [key.frame for key in self.window.shot.keys]
        there = [frame for frame in frames if (frame - self.window.frame) * step > 0.5]
        if there:
            self.page.go(min(there) if step > 0 else max(there))

    def toggle_play(self) -> None:
        """Play or stop."""
        self.timer.active = not self.timer.active
        self.due = 0
        self.play_button._props["icon"] = "pause" if self.timer.active else "play_arrow"
        self.play_button._props["aria-label"] = "Stop" if self.timer.active else "Play"
        self.play_button.update()
        if self.timer.active and self.window.frame >= self.window.shot.last_frame:
            self.window.go(0)
        if not self.timer.active:
            self.page.moved()

    def tick(self) -> None:
        """The next frame while playing; those for which there is no time are skipped."""
        self.due += 1
        if self.page.behind:
            return
        there, self.due, shot = self.window.frame + self.due, 0, self.window.shot
        if there <= shot.last_frame or self.loop.value:
            self.page.go(there % shot.frames)
        else:
            self.page.go(shot.last_frame)
            self.toggle_play()

    def press(self, event: dict[str, Any]) -> None:
        """Take hold of a keyframe's mark, or scrub."""
        self.grabbed = drawing.key_over(self.window.shot, event["x"], event["y"])
        if self.grabbed is None:
            self.page.go(drawing.graph_frame(self.window.shot, event["x"]))
        else:
            self.page.choose(self.grabbed)

    def drag(self, event: dict[str, Any]) -> None:
        """Retime the keyframe held, or scrub."""
        index, frame = self.grabbed, drawing.graph_frame(self.window.shot, event["x"])
        if index is None:
            self.page.go(frame)
            return
        self.page.edit(lambda shot: edits.retime_key(shot, index, frame), "retime")
        self.page.choose(index)
