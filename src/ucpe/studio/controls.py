"""Small controls that several panels use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.studio.uploads import MAX_DOCUMENT

if TYPE_CHECKING:
    from ucpe.studio.page import Page
    from ucpe.studio.shot import Shot


def card(title: str, hint: str = "") -> ui.element:
    """A titled part of the page, with a few words on how to use it."""
    section = ui.element("section").classes("card").props(f'aria-label="{title}"')
    with section, ui.row().classes("title w-full items-center justify-between gap-x-4 gap-y-0"):
        ui.label(title).props('role="heading" aria-level="2"').classes("text-base font-semibold")
        if hint:
            ui.label(hint).classes("quiet")
    return section


def icon_button(icon: str, label: str, action: Callable[[], Any]) -> ui.button:
    """An icon as a button; its name is read out, and shown when pointed at."""
    button = ui.button(icon=icon, on_click=action).props(f'flat round dense color=inherit aria-label="{label}"')
    with button:
        ui.tooltip(label)
    return button


ANGLES = ("xfov", "top", "bottom")
"""Parameters of lenses that are degrees."""


PAD = {
    "Walk": {"w": ("north", "forward"), "s": ("south", "back"), "a": ("west", "left"), "d": ("east", "right")},
    "Height": {"e": ("vertical_align_top", "up"), "q": ("vertical_align_bottom", "down")},
    "Turn": {
        "ArrowLeft": ("chevron_left", "left"), "ArrowRight": ("chevron_right", "right"),
        "ArrowUp": ("expand_less", "up"), "ArrowDown": ("expand_more", "down"),
    },
    "Roll": {"r": ("rotate_left", "left"), "f": ("rotate_right", "right")},
    "Zoom": {"+": ("zoom_in", "in"), "-": ("zoom_out", "out")},
}  # fmt: skip
"""Buttons that move the camera as keys do: for each key its icon, and the direction in words."""


def pad(press: Callable[[str], Any]) -> ui.element:
    """Buttons for every key that moves the camera."""
    with ui.row().classes("items-center gap-x-3 gap-y-0") as row:
        for what, keys in PAD.items():
            with ui.row().classes("items-center gap-0 no-wrap"):
                ui.label(what).classes("quiet")
                for key, (icon, way) in keys.items():
                    name = key.upper() if len(key) == 1 else "arrow key"
                    icon_button(icon, f"{what} {way} ({name})", partial(press, key))
    return row


class Bar(ui.element):
    """A slider that stays where the hand has put it, however late the server answers.

    NiceGUI's own sends every value back: one that comes late undoes the keys pressed since.
    """

    def __init__(
        self, label: str, low: float, high: float, step: float,
        on_move: Callable[[float], Any], on_settle: Callable[[], Any] = lambda: None,
    ):  # fmt: skip
        super().__init__("q-slider")
        self.on_move, self.on_settle = on_move, on_settle
        self.settled: float | None = None
        usual = {"min": low, "max": high, "step": step, "model-value": low, "loopback": False, "label": True}
        self._props.update({"aria-label": label, **usual})
        self.on("update:model-value", self.moved, throttle=0.04)
        self.on("change", self.let_go)

    def show(self, value: float) -> None:
        """Show a value; the ends give way to one beyond them."""
        if value != self._props["model-value"]:
            low, high = min(self._props["min"], value), max(self._props["max"], value)
            self._props.update({"min": low, "max": high, "model-value": value})

    def moved(self, event: Any) -> None:
        """Take a value, unless it is the last one again, which the throttle sends after the hand let go."""
        if event.args != self.settled:
            with self._props.suspend_updates():
                self._props["model-value"] = event.args
            self.on_move(float(event.args))

    def let_go(self, event: Any) -> None:
        """Take the last value."""
        self.settled = None
        self.moved(event)
        self.settled = event.args
        self.on_settle()


class Typed:
    """What is typed into a field: taken on Enter and when the field is left, and never overwritten before.

    What is refused does not stay in the field.
    """

    def __init__(self, field: Any, on_take: Callable[[Any], Any]):
        self.field, self.on_take = field, on_take
        self.shown = field.value
        # The page's library reports that a field was left late, after the key or click that left it: `change` comes
        # before, and `blur` is for what was put back to how it was.
        for event in ("keydown.enter", "change", "blur"):
            field.on(event, self.take, [])

    def show(self, value: Any) -> None:
        """Show a value, unless another one is being typed."""
        pattern = getattr(self.field, "format", None)
        value = float(pattern % value) if pattern and value is not None else value
        if self.field.value == self.shown:
            self.field.set_value(value)
        self.shown = value

    def take(self) -> None:
        """Take what was typed."""
        if self.field.value != self.shown:
            self.on_take(self.field.value)
            self.field.set_value(self.shown)


class Slider:
    """A named number: a slider to feel it, a field to type it."""

    def __init__(
        self, label: str, low: float, high: float, step: float,
        on_move: Callable[[float], Any], on_settle: Callable[[], Any],
    ):  # fmt: skip
        def typed(value: float | None) -> None:
            if value is not None:
                on_move(value)
                on_settle()

        with ui.element("div").classes("slider-row"):
            ui.label(f"{label} (°)" if label in ANGLES else label)
            self.bar = Bar(label, low, high, step, on_move, on_settle)
            number = ui.number(value=low, format="%.6g").props(f'dense aria-label="{label}, number"')
            self.number = Typed(number, typed)

    def show(self, value: float) -> None:
        """Show a value."""
        self.bar.show(value)
        self.number.show(value)


def number_field(label: str, value: float | None, on_take: Callable[[float | None], Any], **options: Any) -> Typed:
    """A field for a number."""
    return Typed(ui.number(label, value=value, **options).props("dense stack-label").classes("w-28"), on_take)


def upload_button(
    page: Page, label: str, take: Callable[[Path], Awaitable[None]], max_bytes: int, accept: str = ""
) -> None:
    """A button that opens a file, of certain endings or of any; the server keeps it, and checks the size again."""

    async def receive(event: Any) -> None:
        try:
            await take(await page.receive(event.file, max_bytes))
        except (ValueError, OSError) as error:
            page.complain(error)

    upload = ui.upload(label=label, auto_upload=True, on_upload=receive, max_file_size=max_bytes)
    upload.props(f'flat bordered accept="{accept}" aria-label="{label}"').classes("w-full")
    # The browser forgets the file as soon as it is here: told to by the server, it could drop the one after it.
    upload.on("finish", js_handler=f"() => getElement({upload.id}).$refs.qRef.reset()")
    upload.on_rejected(
        lambda: ui.notify(
            f"{label}: at most {max_bytes >> 20} MB{accept and f', and one of {accept}'}", type="negative"
        )
    )


class CameraUpload:
    """A button that opens a lens or path; of a file with several cameras, it asks which."""

    def __init__(
        self, page: Page, label: str, read: Callable[[Path, str | None, Shot], Any], take: Callable[[Any], Any],
        max_bytes: int = MAX_DOCUMENT,
    ):  # fmt: skip
        self.page, self.read, self.take = page, read, take
        upload_button(page, label, self.take_file, max_bytes)
        self.camera = ui.select([], label="Camera of that file").props("dense").classes("w-full")
        self.camera.on("update:model-value", lambda: self.open(self.camera.value))
        self.camera.set_visibility(False)

    async def take_file(self, kept: Path) -> None:
        """Take a file."""
        self.camera.set_visibility(False)
        self.file = kept
        await self.open(None)

    async def open(self, camera: str | None) -> None:
        """Read the file, or one camera of it, and show what there is to say about it."""
        try:
            with warnings.catch_warnings(record=True) as remarks:
                warnings.simplefilter("always", UserWarning)
                content = await run.io_bound(self.read, self.file, camera, self.page.window.shot)
            self.take(content)
        except (ValueError, OSError) as error:
            several = re.search(r"holds \d+ cameras \(([^)]+)\)", str(error))
            if not several:
                self.page.complain(error)
                return
            self.camera.set_options(several[1].split(", "))
            self.camera.set_visibility(True)
            ui.notify("The file holds several cameras: choose one in the field that appeared below its button.")
            return
        for remark in remarks:
            self.page.complain(str(remark.message), "warning")
