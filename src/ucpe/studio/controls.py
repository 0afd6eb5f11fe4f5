"""Small controls that several panels use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.studio.uploads import MAX_DOCUMENT

if TYPE_CHECKING:
    from ucpe.studio.page import Page


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
            ui.label(label)
            self.slider = ui.slider(min=low, max=high, step=step, value=low).props(f'aria-label="{label}"')
            self.slider.on("update:model-value", lambda event: on_move(float(event.args)), throttle=0.04)
            self.slider.on("change", lambda: on_settle())
            self.number = ui.number(value=low, format="%.6g").props(f'dense aria-label="{label}, number"')
            self.number.on("keydown.enter", typed).on("blur", typed)

    def show(self, value: float, high: float | None = None) -> None:
        """Show a value, and another upper end."""
        if high is not None and high != self.slider._props["max"]:
            self.slider._props["max"] = high
            self.slider.update()
        if abs((self.slider.value or 0) - value) > 1e-9:
            self.slider.set_value(value)
        self.number.set_value(round(value, 6))


def number_field(label: str, value: float | None, on_set: Callable[[float | None], Any], **options: Any) -> ui.number:
    """A number that is taken when one leaves it or presses Enter."""
    field = ui.number(label, value=value, **options).props("dense").classes("w-28")

    def taken(_: Any) -> None:
        on_set(field.value)

    field.on("keydown.enter", taken).on("blur", taken)
    return field


def upload_button(label: str, accept: str, on_file: Callable[[Any], Any], max_bytes: int) -> ui.upload:
    """A button that opens a file; the server checks the size again."""
    upload = ui.upload(label=label, auto_upload=True, on_upload=on_file, max_file_size=max_bytes)
    upload.props(f'flat bordered accept="{accept}" aria-label="{label}"').classes("w-full")
    upload.on_rejected(
        lambda: ui.notify(f"{label}: the file is too large or of another kind ({accept})", type="negative")
    )
    return upload


class CameraUpload:
    """A button that opens a lens or path; of a file with several cameras, it asks which."""

    def __init__(
        self, page: Page, label: str, accept: str,
        read: Callable[[Path, str | None], Any], take: Callable[[Any], Any],
    ):  # fmt: skip
        self.page, self.read, self.take = page, read, take
        upload_button(label, accept, self.on_file, MAX_DOCUMENT)
        self.camera = ui.select([], label="Camera of that file").props("dense").classes("w-full")
        self.camera.on("update:model-value", lambda: self.open(self.camera.value))
        self.camera.set_visibility(False)

    async def on_file(self, event: Any) -> None:
        """Take a file."""
        event.sender.reset()
        self.camera.set_visibility(False)
        try:
            self.file = await self.page.receive(event.file, MAX_DOCUMENT)
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
            ui.notify("The file holds several cameras: choose one below.")
            return
        for remark in remarks:
            self.page.complain(str(remark.message), "warning")
