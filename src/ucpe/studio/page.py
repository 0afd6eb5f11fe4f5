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
from ucpe.studio.controls import card, icon_button, pad
from ucpe.studio.files_panel import FilesPanel
from ucpe.studio.generate_panel import Gallery, GeneratePanel
from ucpe.studio.lens_panel import LensPanel
from ucpe.studio.outside import Outside
from ucpe.studio.path_panel import PathPanel
from ucpe.studio.scene_panel import ScenePanel
from ucpe.studio.surface import Surface
from ucpe.studio.timeline import Timeline
from ucpe.studio.uploads import receive
from ucpe.studio.window import MOVES, Move, Window

if TYPE_CHECKING:
    from ucpe.studio.server import Studio

SETTLE_AFTER = 0.5
"""Seconds without wheel or key until their edit is done: written to disk, and one step to undo."""

REST_EVERY = 0.8
"""While something moves, what is beside the picture is drawn at most once in so many seconds."""

ACCENT = "#0b6bcb"
"""Colour of buttons and switches: white on it, and it on white, has a contrast of 5.3 : 1."""

GOOD = "#1e7d34"
"""Colour of good news: white on it has a contrast of 5.2 : 1."""

HELP = "Drag to look, wheel to zoom. Keys after a click: W A S D walk, Q E height, R F roll, arrows turn, K keyframe."


class Later:
    """Does something after a delay; asking again starts the delay anew."""

    def __init__(self, action: Callable[[], Any]):
        self.action = action
        self.timer: asyncio.TimerHandle | None = None

    def ask(self, seconds: float) -> None:
        """Do it after so many seconds."""
        self.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.action)

    def cancel(self) -> None:
        """Forget it."""
        if self.timer:
            self.timer.cancel()


class Page:
    """Builds the page of one window and keeps it true to the shot."""

    def __init__(self, studio: Studio, window: Window):
        self.studio, self.window = studio, window
        self.token = secrets.token_hex(8)
        self.answering = False
        self.asked: float | None = None
        self.rested = 0.0
        self.resting, self.settling = Later(self.refresh_rest), Later(self.settle)
        self.panels: list[Any] = []
        self.opened: dict[str, str] = {}
        self.build()

    def build(self) -> None:
        """Put everything on the page."""
        ui.add_css(Path(__file__).with_name("page.css"))
        ui.add_head_html(f"<script>{Path(__file__).with_name('names.js').read_text()}</script>")
        ui.colors(primary=ACCENT, positive=GOOD)
        dark = ui.dark_mode(None)
        with ui.header().classes("items-center q-py-xs"):
            ui.label("ucpe studio").classes("text-lg font-semibold").props('role="heading" aria-level="1"')
            ui.space()
            self.undo_button = icon_button("undo", "Undo (Ctrl+Z)", self.undo)
            self.redo_button = icon_button("redo", "Redo (Ctrl+Y)", self.redo)
            icon_button("add", "New shot", lambda: ui.navigate.to("/new"))
            icon_button("dark_mode", "Light or dark", lambda: dark.set_value(not dark.value))
        ui.keyboard(on_key=self.on_key, ignore=["input", "select", "textarea"])
        with ui.element("div").classes("studio"):
            with ui.element("div").classes("column"):
                self.build_viewfinder()
                self.timeline = Timeline(self)
            with ui.element("div").classes("column"):
                self.outside = Outside(self)
                self.build_panels()
            self.panels.append(Gallery(self))
        document, client = self.window.document, ui.context.client
        document.listeners.append(self.on_change)
        document.windows.add(self.token)
        client.on_connect(lambda: document.windows.add(self.token))
        client.on_disconnect(lambda: document.windows.discard(self.token))
        client.on_delete(self.close)
        self.refresh()

    def build_viewfinder(self) -> None:
        """The picture through the lens, with its switches."""
        shot = self.window.shot
        with card("Through the lens", HELP).classes("seen"):
            keys = [*MOVES, "k", "Escape"]
            label = f"Through the lens. {HELP} + and - zoom, Escape returns to the path."
            size = (shot.width, shot.height)
            self.finder = Surface(label, *size, keys, drawing.OVERLAYS, self.address("picture")).classes("finder")
            self.finder.listen(release=lambda _: self.settle(), turn_wheel=self.on_zoom, press_key=self.on_move)
            with ui.row().classes("items-center gap-x-4 gap-y-0"):
                for name, label in (("horizon", "Horizon"), ("latitudes", "Latitudes"), ("arrows", "Up arrows")):
                    ui.switch(label, value=name in self.window.overlays).on_value_change(
                        lambda event, name=name: self.switch(name, event.value)
                    )
            with ui.row().classes("where items-center gap-x-2 gap-y-0"):
                self.pad_button = ui.button("Move", icon="gamepad", on_click=self.toggle_pad)
                self.pad_button.props('dense flat no-caps aria-expanded="false"')
                self.where = ui.label().classes("quiet").props('role="status" aria-live="polite"')
                self.back = ui.button("Back to the path", on_click=lambda: self.go(self.window.frame))
                self.back.props("dense flat no-caps")
            self.pad = pad(lambda key: self.on_move({"key": key}))
            self.pad.set_visibility(False)

    def toggle_pad(self) -> None:
        """Show the buttons that move the camera, or hide them."""
        self.pad.set_visibility(not self.pad.visible)
        self.pad_button.props(f'aria-expanded="{str(self.pad.visible).lower()}"')

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
        self.window.document.windows.discard(self.token)
        self.window.document.settle()
        self.resting.cancel()
        self.settling.cancel()
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
        text = str(error).replace(str(self.studio.store.uploads) + "/", "").partition("; known are ")[0]
        for kept, name in self.opened.items():
            text = text.replace(kept, name)
        ui.notify(text[:600], type=type, multi_line=True, close_button="Close", timeout=10000)

    def edit(self, change: Callable[[Any], Any], tag: str | None = None) -> bool:
        """Change the shot by a function of `edits`."""
        done = self.attempt(lambda: self.window.document.edit(change(self.window.shot), tag))
        if not done:
            self.refresh_rest(panels=True)
        return done

    def settle(self) -> None:
        """End of a drag, or of what wheel and keys do, when nothing more comes."""
        self.window.document.settle()

    def on_change(self) -> None:
        """The shot was changed, here or in another window."""
        with self.finder:
            self.window.follow()
            self.refresh()

    def refresh(self) -> None:
        """Show everything as it is now: while something is dragged, the picture at once and the rest now and then."""
        self.show_picture()
        if self.window.document.tag is None:
            self.refresh_rest(panels=True)
        else:
            self.refresh_rest_soon()

    def show_picture(self) -> None:
        """Have the browser fetch what the camera sees now, unless an answer brings it."""
        if not self.answering:
            self.asked = time.monotonic()
            self.finder.follow(self.address("picture"))

    @property
    def behind(self) -> bool:
        """Whether the browser has yet to fetch a picture; one that does not for a second is not waited for."""
        return self.asked is not None and time.monotonic() - self.asked < 1

    def address(self, kind: Literal["picture", "outside"]) -> str:
        """Where the browser gets what is seen now, through the lens or from outside."""
        return f"/studio/{kind}/{self.token}"

    def refresh_rest_soon(self) -> None:
        """Show everything beside the picture, but not more often than every REST_EVERY seconds."""
        wait = self.rested + REST_EVERY - time.monotonic()
        if wait <= 0:
            self.refresh_rest()
        else:
            self.resting.ask(wait)

    def refresh_rest(self, panels: bool = False) -> None:
        """Show everything beside the picture; the panels only while nothing moves, unless they are to be."""
        self.resting.cancel()
        self.rested = time.monotonic()
        window, document = self.window, self.window.document
        with self.finder:
            self.finder.resize(window.shot.width, window.shot.height)
            self.where.set_text(window.place())
            self.back.set_visibility(window.free is not None)
            self.undo_button.set_enabled(bool(document.past))
            self.redo_button.set_enabled(bool(document.undone))
            self.timeline.refresh()
            self.outside.refresh()
            if panels or (document.tag is None and not self.timeline.playing):
                for panel in self.panels:
                    panel.refresh()

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
        self.timeline.refresh()
        self.refresh_rest_soon()

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

    def look(self, move: Move) -> None:
        """Turn the camera with the pointer; the answer to the move brings the picture."""
        self.answering = True
        try:
            with self.finder:
                self.change_view(lambda _: self.window.drag(move), "look")
        finally:
            self.answering = False

    def on_zoom(self, event: dict[str, Any]) -> None:
        """Zoom with the wheel."""
        self.change_view(lambda view: edits.zoomed(view, 1.1 ** (-event["delta"] / 100)), "zoom")
        self.settling.ask(SETTLE_AFTER)

    def on_move(self, event: dict[str, Any]) -> None:
        """Move the camera by the keyboard."""
        if event["key"] == "k":
            self.add_key()
        elif event["key"] == "Escape":
            self.go(self.window.frame)
        else:
            size = 4.0 if event.get("shift") else 1.0
            self.change_view(lambda view: MOVES[event["key"]](view, size), f"key {event['key']}")
            self.settling.ask(SETTLE_AFTER)

    def change_view(self, change: Callable[[Any], Any], tag: str) -> None:
        """Change what is looked at: the keyframe of this moment, or a look off the path."""
        if self.attempt(lambda: self.window.look(change(self.window.view()), tag)) and self.window.free:
            self.show_picture()
            self.refresh_rest_soon()

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
