"""Small controls that several panels use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.studio.uploads import MAX_DOCUMENT

if TYPE_CHECKING:
    from ucpe.studio.page import Page


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


class Slider:
    """A named number: a slider to feel it, a field to type it."""

    def __init__(
        self, label: str, low: float, high: float, step: float,
        on_move: Callable[[float], Any], on_settle: Callable[[], Any],
    ):  # fmt: skip
        def typed(event: Any) -> None:
            if self.number.value is not None:
                on_move(float(self.number.value))
                on_settle()

        with ui.element("div").classes("slider-row"):
            ui.label(f"{label} (°)" if label in ANGLES else label)
            self.slider = ui.slider(min=low, max=high, step=step, value=low).props(f'aria-label="{label}"')
            self.slider.on("update:model-value", lambda event: on_move(float(event.args)), throttle=0.04)
            self.slider.on("change", lambda: on_settle())
            self.number = ui.number(value=low, format="%.6g").props(f'dense aria-label="{label}, number"')
            self.number.on("keydown.enter", typed).on("blur", typed)

    def show(self, value: float) -> None:
        """Show a value."""
        if abs((self.slider.value or 0) - value) > 1e-9:
            self.slider.set_value(value)
        self.number.set_value(round(value, 6))


def number_field(label: str, value: float | None, on_set: Callable[[float | None], Any], **options: Any) -> ui.number:
    """A field for a number, which is taken on Enter and when the focus leaves it."""
    field = ui.number(label, value=value, **options).props("dense stack-label").classes("w-28")

    def taken(_: Any) -> None:
        on_set(field.value)

    field.on("keydown.enter", taken).on("blur", taken)
    return field


def upload_button(label: str, on_file: Callable[[Any], Any], max_bytes: int, accept: str = "") -> ui.upload:
    """A button that opens a file, of certain endings or of any; the server checks the size again."""
    upload = ui.upload(label=label, auto_upload=True, on_upload=on_file, max_file_size=max_bytes)
    upload.props(f'flat bordered accept="{accept}" aria-label="{label}"').classes("w-full")
    upload.on_rejected(
        lambda: ui.notify(
            f"{label}: at most {max_bytes >> 20} MB{accept and f', and one of {accept}'}", type="negative"
        )
    )
    return upload


class CameraUpload:
    """A button that opens a lens or path; of a file with several cameras, it asks which."""

    def __init__(
        self, page: Page, label: str, read: Callable[[Path, str | None], Any], take: Callable[[Any], Any],
        max_bytes: int = MAX_DOCUMENT,
    ):  # fmt: skip
        self.page, self.read, self.take, self.max_bytes = page, read, take, max_bytes
        upload_button(label, self.on_file, max_bytes)
        self.camera = ui.select([], label="Camera of that file").props("dense").classes("w-full")
        self.camera.on("update:model-value", lambda: self.open(self.camera.value))
        self.camera.set_visibility(False)

    async def on_file(self, event: Any) -> None:
        """Take a file."""
        event.sender.reset()
        self.camera.set_visibility(False)
        try:
            self.file = await self.page.receive(event.file, self.max_bytes)
        except (ValueError, OSError) as error:
            self.page.complain(error)
            return
        await self.open(None)

    async def open(self, camera: str | None) -> None:
        """Read the file, or one camera of it, and show what there is to say about it."""
        try:
            with warnings.catch_warnings(record=True) as remarks:
                warnings.simplefilter("always", UserWarning)
                content = await run.io_bound(self.read, self.file, camera)
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
