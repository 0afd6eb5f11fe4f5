"""The studio's page: what a window shows, and what the person does in it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nicegui import ui

from ucpe.studio import drawing, edits
from ucpe.studio.files_panel import FilesPanel
from ucpe.studio.generate_panel import Gallery, GeneratePanel
from ucpe.studio.lens_panel import LensPanel
from ucpe.studio.path_panel import PathPanel
from ucpe.studio.scene_panel import ScenePanel
from ucpe.studio.surface import Surface
from ucpe.studio.uploads import receive
from ucpe.studio.window import MOVES, Window

if TYPE_CHECKING:
    from ucpe.studio.server import Studio

SETTLE_AFTER = 0.5
"""Seconds after the last turn of the wheel or key after which the edit is done: written, and one step to undo."""

REST_EVERY = 0.8
"""Least seconds between two showings of everything beside the picture while something moves."""

ABOVE_WIDTH, ABOVE_HEIGHT = 560, 380

ACCENT = "#0b6bcb"
"""Colour of buttons and switches: white on it, and it on white, has a contrast of 5.3 : 1."""

HELP = (
    "Drag to look. W A S D to walk, Q and E to sink and rise, R and F to roll, arrow keys to turn, wheel or + and - to "
    "zoom; K adds a keyframe here, Escape returns to the path."
)


class Page:
    """Builds the page of one window and keeps it true to the shot."""

    def __init__(self, studio: Studio, window: Window):
        self.studio, self.window = studio, window
        self.token = secrets.token_hex(8)
        self.version = 0
        self.curves: tuple[Any, drawing.Curves] | None = None
        self.shown_outside: Any = None
        self.rested = 0.0
        self.resting: asyncio.Task[None] | None = None
        self.settling: asyncio.Task[None] | None = None
        self.grabbed: int | None = None
        self.panels: list[Any] = []
        self.opened: dict[str, str] = {}
        self.build()

    def build(self) -> None:
        """Put everything on the page."""
        ui.add_css(Path(__file__).with_name("page.css"))
        ui.add_head_html(f"<script>{Path(__file__).with_name('names.js').read_text()}</script>")
        ui.colors(primary=ACCENT)
        dark = ui.dark_mode(None)
        with ui.header().classes("items-center q-py-xs"):
            ui.label("ucpe studio").classes("text-lg font-semibold").props('role="heading" aria-level="1"')
            ui.space()
            self.undo_button = _icon("undo", "Undo (Ctrl+Z)", self.undo)
            self.redo_button = _icon("redo", "Redo (Ctrl+Y)", self.redo)
            _icon("add", "New shot", lambda: ui.navigate.to("/new"))
            _icon("dark_mode", "Light or dark", lambda: dark.set_value(not dark.value))
        ui.keyboard(on_key=self.on_key, ignore=["input", "select", "textarea"])
        with ui.element("main").classes("studio"):
            with ui.element("div").classes("column"):
                self.build_viewfinder()
                self.build_timeline()
            with ui.element("div").classes("column"):
                self.build_outside()
                self.build_panels()
            self.panels.append(Gallery(self))
        self.timer = ui.timer(1 / self.window.shot.fps, self.tick, active=False)
        self.window.document.listeners.append(self.on_change)
        client = ui.context.client
        client.on_delete(self.close)
        self.refresh()

    def build_viewfinder(self) -> None:
        """The picture through the lens, with its switches."""
        shot = self.window.shot
        with _card("Through the lens").classes("seen"):
            keys = [*MOVES, "k", "Escape"]
            self.finder = Surface(f"Through the lens. {HELP}", shot.width, shot.height, keys, drawing.OVERLAYS)
            self.finder.classes("finder")
            self.finder.listen(
                drag=self.on_look, release=lambda _: self.settle(), turn_wheel=self.on_zoom, press_key=self.on_move
            )
            with ui.row().classes("items-center gap-x-4 gap-y-0"):
                for name, label in (("horizon", "Horizon"), ("latitudes", "Latitudes"), ("arrows", "Up arrows")):
                    ui.switch(label, value=name in self.window.overlays).on_value_change(
                        lambda event, name=name: self.switch(name, event.value)
                    )
                self.where = ui.label().classes("quiet").props('role="status" aria-live="polite"')

    def build_timeline(self) -> None:
        """Transport and graphs."""
        with _card("Over time"):
            with ui.row().classes("transport items-center w-full no-wrap"):
                self.play_button = _icon("play_arrow", "Play", self.toggle_play)
                self.loop = ui.switch("Loop", value=True)
                self.scrub = ui.slider(min=0, max=1, step=1).props('aria-label="Moment, in frames" label')
                self.scrub.on("update:model-value", lambda event: self.go(event.args), throttle=0.03)
                self.clock = ui.label().classes("quiet whitespace-nowrap")
            with ui.row().classes("items-center"):
                ui.button("Keyframe here", icon="add_location", on_click=self.add_key).props("dense no-caps")
                ui.button("Previous", icon="skip_previous", on_click=lambda: self.hop(-1)).props("dense flat no-caps")
                ui.button("Next", icon="skip_next", on_click=lambda: self.hop(1)).props("dense flat no-caps")
            label = "Graphs of pitch, yaw, roll, speed and field of view. Drag to scrub, drag a mark to retime it."
            self.graphs = Surface(label, *drawing.graph_size(), keys=["ArrowLeft", "ArrowRight"]).classes("graphs")
            self.graphs.listen(
                press=self.on_graph_press, drag=self.on_graph_drag, release=lambda _: self.release(),
                press_key=lambda event: self.go(self.window.frame + (1 if event["key"] == "ArrowRight" else -1)),
            )  # fmt: skip

    def build_outside(self) -> None:
        """The path from outside."""
        with _card("Path from outside"):
            label = (
                "The path from outside, with keyframes and what they see. Drag to go round it, wheel to come closer, "
                "drag a keyframe to move it on its level, with shift up and down; arrow keys turn."
            )
            keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "+", "-"]
            self.outside = Surface(label, ABOVE_WIDTH, ABOVE_HEIGHT, keys).classes("outside")
            self.outside.listen(
                press=self.on_outside_press, drag=self.on_outside_drag, release=lambda _: self.release(),
                turn_wheel=lambda event: self.orbit(closer=1.1 ** (-event["delta"] / 100)),
                press_key=self.on_outside_key,
            )  # fmt: skip
            ui.button("See all of it", on_click=self.see_all).props("dense flat no-caps").classes("self-start")

    def build_panels(self) -> None:
        """Lens, path, scene, files and generation, one at a time."""
        panels: dict[str, Callable[[Page], Any]] = {
            "Lens": LensPanel, "Path": PathPanel, "Scene": ScenePanel, "Files": FilesPanel, "Generate": GeneratePanel,
        }  # fmt: skip
        with ui.element("section").classes("card"):
            with ui.tabs().props("dense no-caps align=left outside-arrows mobile-arrows").classes("w-full") as tabs:
                for name in panels:
                    ui.tab(name)
            with ui.tab_panels(tabs, value="Lens").classes("w-full bg-transparent").props("keep-alive"):
                for name, make in panels.items():
                    with ui.tab_panel(name).classes("p-1 gap-2"):
                        self.panels.append(make(self))

    def close(self) -> None:
        """The window is gone."""
        if self.on_change in self.window.document.listeners:
            self.window.document.listeners.remove(self.on_change)
        self.window.document.settle()
        for task in (self.resting, self.settling):
            if task:
                task.cancel()
        self.studio.pages.pop(self.token, None)

    async def receive(self, file: Any, max_bytes: int) -> Path:
        """Keep an uploaded file; notices call it by the name that the person knows."""
        kept = await receive(self.studio.store, file, max_bytes)
        self.opened[kept.name] = Path(file.name).name[:80]
        return kept

    def attempt(self, change: Callable[[], Any]) -> bool:
        """Do something that may not be possible; if it is not, say why on the page."""
        try:
            change()
            return True
        except (ValueError, OSError) as error:
            self.complain(error)
            return False

    def complain(self, error: Exception | str, type: Literal["negative", "warning"] = "negative") -> None:
        """Show one clear notice."""
        text = str(error).replace(str(self.studio.store.uploads) + "/", "")
        for kept, name in self.opened.items():
            text = text.replace(kept, name)
        ui.notify(text[:600], type=type, multi_line=True, close_button="Close", timeout=10000)

    def edit(self, change: Callable[[Any], Any], tag: str | None = None) -> bool:
        """Change the shot by a function of `edits`."""
        return self.attempt(lambda: self.window.document.edit(change(self.window.shot), tag))

    def settle(self) -> None:
        """End of a drag."""
        self.window.document.settle()

    def settle_soon(self) -> None:
        """End of an edit by wheel or keys, which have no release: when nothing more comes."""
        if self.settling:
            self.settling.cancel()
        self.settling = asyncio.get_running_loop().create_task(self.settle_later())

    async def settle_later(self) -> None:
        """Settle, unless more comes."""
        await asyncio.sleep(SETTLE_AFTER)
        with self.finder:
            self.settle()

    def on_change(self) -> None:
        """The shot was changed, here or in another window."""
        with self.finder:
            self.window.follow()
            self.refresh()

    def refresh(self) -> None:
        """Show everything as it is now: while something is dragged, the picture at once and the rest now and then."""
        self.show_picture()
        if self.window.document.history.tag is None:
            self.refresh_rest()
        else:
            self.refresh_rest_soon()

    def show_picture(self) -> None:
        """Have the browser fetch what the camera sees now."""
        self.version += 1
        self.finder.follow(f"/studio/picture/{self.token}/{self.version}")

    def refresh_rest_soon(self) -> None:
        """Show everything beside the picture, but not more often than every REST_EVERY seconds."""
        wait = self.rested + REST_EVERY - time.monotonic()
        if wait <= 0:
            self.refresh_rest()
        elif self.resting is None:
            self.resting = asyncio.get_running_loop().create_task(self.refresh_rest_after(wait))

    async def refresh_rest_after(self, seconds: float) -> None:
        """Show everything beside the picture after a while."""
        await asyncio.sleep(seconds)
        self.resting = None
        with self.finder:
            self.refresh_rest()

    def refresh_rest(self) -> None:
        """Show everything beside the picture; the panels only while nothing moves."""
        if self.resting:
            self.resting.cancel()
        self.resting, self.rested = None, time.monotonic()
        shot, window, history = self.window.shot, self.window, self.window.document.history
        self.finder.resize(shot.width, shot.height)
        if self.scrub._props["max"] != max(shot.last_frame, 1):
            self.scrub._props["max"] = max(shot.last_frame, 1)
            self.scrub.update()
        self.refresh_clock()
        self.where.set_text(window.place())
        self.undo_button.set_enabled(bool(history.past))
        self.redo_button.set_enabled(bool(history.undone))
        self.timer.interval = 1 / shot.fps
        self.refresh_outside()
        self.refresh_graphs()
        if history.tag is None and not self.timer.active:
            for panel in self.panels:
                panel.refresh()

    def refresh_clock(self) -> None:
        """Show the present moment in time."""
        shot, frame = self.window.shot, self.window.frame
        self.scrub.set_value(frame)
        self.clock.set_text(f"{frame / shot.fps:.2f} s · frame {frame} of {shot.last_frame}")

    def refresh_outside(self) -> None:
        """Show the path from outside; the world behind it only where it looks different."""
        window = self.window
        try:
            floor = window.floor
        except (ValueError, OSError):
            floor = 0.5
        self.outside.draw(
            drawing.path_svg(window.shot, window.frame, window.selected, window.orbit, ABOVE_HEIGHT, ABOVE_WIDTH, floor)
        )
        shown = (window.shot.scene, window.orbit)
        if self.shown_outside != shown:
            self.shown_outside = shown
            self.version += 1
            self.outside.follow("" if floor is not None else f"/studio/outside/{self.token}/{self.version}")
            self.outside.classes(add="flat" if floor is not None else "", remove="" if floor is not None else "flat")

    def refresh_graphs(self) -> None:
        """Draw the graphs."""
        shot, window = self.window.shot, self.window
        if self.curves is None or self.curves[0] is not shot.camera:
            self.curves = (shot.camera, drawing.Curves.of(shot))
        self.graphs.draw(drawing.graphs_svg(shot, self.curves[1], window.frame, window.selected))

    def switch(self, name: str, value: bool) -> None:
        """Switch something drawn over the picture."""
        self.window.overlays = self.window.overlays - {name} | ({name} if value else set())
        self.show_picture()

    def go(self, frame: Any) -> None:
        """Go to a moment."""
        self.window.go(float(frame))
        self.moved()

    def moved(self) -> None:
        """The moment is another: show it."""
        self.show_picture()
        self.refresh_clock()
        self.refresh_graphs()
        self.refresh_rest_soon()

    def hop(self, step: int) -> None:
        """Go to the keyframe before or after this moment."""
        frames = [key.frame for key in self.window.shot.keys]
        there = [frame for frame in frames if (frame - self.window.frame) * step > 0.5]
        if there:
            self.go(min(there) if step > 0 else max(there))

    def choose(self, index: int) -> None:
        """Go to a keyframe."""
        self.window.choose(index)
        self.moved()

    def add_key(self) -> None:
        """Make a keyframe of what is seen."""
        self.attempt(self.window.add_key)
        self.moved()

    def undo(self) -> None:
        """Undo the last step."""
        self.window.free = None
        self.window.document.undo()

    def redo(self) -> None:
        """Take back an undo."""
        self.window.free = None
        self.window.document.redo()

    def toggle_play(self) -> None:
        """Play or stop."""
        self.timer.active = not self.timer.active
        self.play_button._props["icon"] = "pause" if self.timer.active else "play_arrow"
        self.play_button._props["aria-label"] = "Stop" if self.timer.active else "Play"
        self.play_button.update()
        if self.timer.active and self.window.frame >= self.window.shot.last_frame:
            self.window.go(0)
        if not self.timer.active:
            self.moved()

    def tick(self) -> None:
        """The next frame while playing."""
        window = self.window
        if window.frame < window.shot.last_frame or self.loop.value:
            self.go((window.frame + 1) % window.shot.frames)
        else:
            self.toggle_play()

    def on_look(self, event: dict[str, Any]) -> None:
        """Turn the camera with the pointer."""
        self.change_view(lambda _: self.window.drag(event["x"], event["y"], event["dx"], event["dy"]), "look")

    def on_zoom(self, event: dict[str, Any]) -> None:
        """Zoom with the wheel."""
        self.change_view(lambda view: edits.zoomed(view, 1.1 ** (-event["delta"] / 100)), "zoom")
        self.settle_soon()

    def on_move(self, event: dict[str, Any]) -> None:
        """Move the camera by the keyboard."""
        if event["key"] == "k":
            self.add_key()
        elif event["key"] == "Escape":
            self.go(self.window.frame)
        else:
            size = 4.0 if event.get("shift") else 1.0
            self.change_view(lambda view: MOVES[event["key"]](view, size), f"key {event['key']}")
            self.settle_soon()

    def change_view(self, change: Callable[[Any], Any], tag: str) -> None:
        """Change what is looked at: the keyframe of this moment, or a look off the path."""
        if self.attempt(lambda: self.window.look(change(self.window.view()), tag)) and self.window.free:
            self.show_picture()
            self.refresh_rest_soon()

    def on_graph_press(self, event: dict[str, Any]) -> None:
        """Take hold of a keyframe's mark, or scrub."""
        self.grabbed = drawing.key_over(self.window.shot, event["x"], event["y"])
        if self.grabbed is None:
            self.go(drawing.graph_frame(self.window.shot, event["x"]))
        else:
            self.choose(self.grabbed)

    def on_graph_drag(self, event: dict[str, Any]) -> None:
        """Retime the keyframe held, or scrub."""
        frame = drawing.graph_frame(self.window.shot, event["x"])
        if self.grabbed is None:
            self.go(frame)
            return
        self.edit(lambda shot: edits.retime_key(shot, self.grabbed or 0, frame), "retime")
        self.choose(self.grabbed)

    def on_outside_press(self, event: dict[str, Any]) -> None:
        """Take hold of a keyframe, or of the world."""
        found = drawing.key_under(
            self.window.shot, self.window.orbit, event["x"], event["y"], ABOVE_HEIGHT, ABOVE_WIDTH
        )
        self.grabbed = found
        if found is not None:
            self.choose(found)

    def on_outside_drag(self, event: dict[str, Any]) -> None:
        """Move the keyframe held on its level (with shift up and down), or go round the path."""
        if self.grabbed is None:
            self.orbit(event["dx"] * 0.4, event["dy"] * 0.4)
            return
        x, y, z = self.window.shot.keys[self.grabbed].position
        if event["shift"]:
            place: Any = (x, y + event["dy"] * self.window.orbit.distance / ABOVE_HEIGHT, z)
        else:
            point = self.window.orbit.on_level(event["x"], event["y"], y, ABOVE_HEIGHT, ABOVE_WIDTH)
            if point is None:
                return
            place = (float(point[0]), y, float(point[2]))
        self.edit(lambda shot: edits.change_key(shot, self.grabbed or 0, position=place), "move")
        self.refresh_outside()

    def on_outside_key(self, event: dict[str, Any]) -> None:
        """Go round the path by the keyboard."""
        turns = {"ArrowLeft": (-8, 0), "ArrowRight": (8, 0), "ArrowUp": (0, 5), "ArrowDown": (0, -5)}
        if event["key"] in turns:
            self.orbit(*turns[event["key"]])
        else:
            self.orbit(closer=1.15 if event["key"] == "+" else 1 / 1.15)

    def orbit(self, right: float = 0.0, down: float = 0.0, closer: float = 1.0) -> None:
        """See the path from another place."""
        self.window.orbit = self.window.orbit.dragged(right, down).closer(closer)
        self.refresh_outside()

    def see_all(self) -> None:
        """See the whole path from outside."""
        self.window.orbit = drawing.around(self.window.shot)
        self.refresh_outside()

    def release(self) -> None:
        """Let go of what was dragged."""
        self.grabbed = None
        self.settle()

    def on_key(self, event: Any) -> None:
        """Shortcuts that work everywhere on the page."""
        if not event.action.keydown or not (event.modifiers.ctrl or event.modifiers.meta):
            return
        name = str(event.key.name).lower()
        if name == "y" or (name == "z" and event.modifiers.shift):
            self.redo()
        elif name == "z":
            self.undo()

    def set(self, **changes: Any) -> bool:
        """Change settings of the shot."""
        return self.edit(lambda shot: replace(shot, **changes))


def _card(title: str) -> Any:
    """A titled part of the page."""
    card = ui.element("section").classes("card").props(f'aria-label="{title}"')
    with card:
        ui.label(title).props('role="heading" aria-level="2"').classes("text-base font-semibold")
    return card


def _icon(icon: str, label: str, action: Callable[[], Any]) -> ui.button:
    """A button of an icon, whose name is read out and shown when pointed at."""
    button = ui.button(icon=icon, on_click=action).props(f'flat round dense color=inherit aria-label="{label}"')
    with button:
        ui.tooltip(label)
    return button
