"""Generate: prompt and settings, what to expect, the queue, and the gallery of what came out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.studio.controls import number_field, upload_button
from ucpe.studio.jobs import ERRORS, Job, read_result, results
from ucpe.studio.preflight import preflight
from ucpe.studio.shot import Shot
from ucpe.studio.store import IMAGES
from ucpe.studio.uploads import MAX_DOCUMENT

if TYPE_CHECKING:
    from ucpe.studio.page import Page

POLL = 0.5
"""Seconds between looks at the queue."""

ICONS = {"impossible": "block", "beyond training": "warning", "fine": "check"}
MAX_RESULTS = 24


class GeneratePanel:
    """Decides what to generate, and starts it."""

    def __init__(self, page: Page):
        self.page = page
        self.checked: Shot | None = None
        self.prompt = ui.textarea("Prompt").props("dense autogrow outlined").classes("w-full")
        self.prompt.on("blur", lambda: self.take("prompt", self.prompt.value or ""))
        self.negative = ui.input("What not to see").props("dense").classes("w-full")
        self.negative.on("blur", lambda: self.take("negative", self.negative.value or ""))
        with ui.row().classes("items-end gap-2"):
            self.numbers = {
                name: number_field(label, None, partial(self.take_number, name))
                for name, label in (
                    ("seed", "Seed"), ("steps", "Steps"), ("guidance", "Guidance"),
                    ("video_height", "Video height"), ("video_width", "Video width"),
                )
            }  # fmt: skip
        upload_button("First frame: open a picture", ",".join(IMAGES), self.on_image, MAX_DOCUMENT)
        with ui.row().classes("items-center gap-2"):
            ui.button("First frame: this picture", on_click=self.use_picture).props("dense outline no-caps")
            self.no_image = ui.button("No first frame", on_click=lambda: self.take("image", None))
            self.no_image.props("dense flat no-caps")
        self.findings = ui.column().classes("w-full gap-1").props('role="status"')
        self.button = ui.button("Generate", icon="movie", on_click=self.generate).props("no-caps")
        self.queue_place = ui.column().classes("w-full gap-1")
        self.shown: Any = None
        self.timer = ui.timer(POLL, self.show_queue)

    def refresh(self) -> None:
        """Show the settings as they are, and what to expect."""
        shot = self.page.window.shot
        self.prompt.set_value(shot.prompt)
        self.negative.set_value(shot.negative)
        for name, entry in self.numbers.items():
            entry.set_value(getattr(shot, name))
        self.no_image.set_visibility(shot.image is not None)
        if self.checked is not shot and self.page.window.document.history.tag is None:
            self.checked = shot
            ui.timer(0, lambda: self.check(shot), once=True)

    async def check(self, shot: Shot) -> None:
        """Say what the model will and will not honour."""
        found = await run.io_bound(preflight, self.page.studio.request_of(shot))
        if found is None or self.checked is not shot:
            return
        self.findings.clear()
        with self.findings:
            for finding in found:
                with ui.row().classes("items-start no-wrap gap-2"):
                    ui.icon(ICONS[finding.level]).props(f'aria-label="{finding.level}"').classes("mt-1")
                    ui.label(finding.text).classes("wrong" if finding.level == "impossible" else "quiet")
        self.button.set_enabled(all(finding.level != "impossible" for finding in found))

    def take(self, name: str, value: Any) -> None:
        """Change a setting."""
        if value != getattr(self.page.window.shot, name):
            self.page.set(**{name: value})

    def take_number(self, name: str, value: float | None) -> None:
        """Change a number; an empty field leaves the choice to the model."""
        if name == "seed":
            value = value or 0
        self.take(name, value if value is None or name == "guidance" else int(value))

    async def on_image(self, event: Any) -> None:
        """Take a first frame."""
        event.sender.reset()
        try:
            kept = await self.page.receive(event.file, MAX_DOCUMENT)
            await run.io_bound(_check_image, kept)
            self.page.set(image=kept.name)
        except (ValueError, OSError) as error:
            self.page.complain(error)

    async def use_picture(self) -> None:
        """Make the picture through the lens the first frame."""
        if drawn := await run.io_bound(self.page.window.picture, True):  # None while the server stops
            self.page.set(image=self.page.studio.store.keep_bytes(drawn[0], ".png").name)

    def generate(self) -> None:
        """Put the shot into the queue."""
        shot, studio = self.page.window.shot, self.page.studio
        studio.submit(shot)
        self.show_queue()

    def show_queue(self) -> None:
        """Show the videos on their way."""
        jobs = [job for job in self.page.studio.queue.jobs if not job.finished or job.state == "failed"][-8:]
        state = [(job.name, job.state, job.done, job.message) for job in jobs]
        if state == self.shown:
            return
        self.shown = state
        self.queue_place.clear()
        with self.queue_place:
            for job in jobs:
                self.show_job(job)

    def show_job(self, job: Job) -> None:
        """One video on its way."""
        left = job.seconds_left
        words = job.state + (f", step {job.done} of {job.total}" if job.state == "making" else "")
        words += f", {left:.0f} s left" if left and job.state == "making" else ""
        with ui.row().classes("items-center w-full no-wrap"):
            ui.label(f"{job.request.prompt[:40]} · {words}").classes("quiet grow").props('role="status"')
            if not job.finished:
                ui.button("Cancel", on_click=lambda: self.page.studio.queue.cancel(job)).props("dense flat no-caps")
        if job.message:
            ui.label(job.message[:400]).classes("wrong").props('role="alert"')
        if job.total and not job.finished:
            ui.linear_progress(job.done / job.total, show_value=False).props('aria-label="Progress"')


class Gallery:
    """What came out, each beside what was commanded."""

    def __init__(self, page: Page):
        from ucpe.studio.compare import Compare

        self.page, self.compare = page, Compare
        self.shown: list[str] | None = None
        self.place = ui.element("section").classes("wide card").props('aria-label="Results"')
        self.timer = ui.timer(POLL, self.refresh)

    def refresh(self) -> None:
        """Show the results on disk."""
        folder = self.page.studio.store.results
        names = results(folder)[:MAX_RESULTS]
        if names == self.shown:
            return
        self.shown = names
        self.place.clear()
        with self.place:
            ui.label("Results").props('role="heading" aria-level="2"').classes("text-base font-semibold")
            if not names:
                ui.label("Nothing generated yet.").classes("quiet")
            with ui.element("div").classes("results"):
                for name in names:
                    self.page.attempt(partial(self.show_result, name))

    def show_result(self, name: str) -> None:
        """One result with its numbers, its files, and a way to make it again from here."""
        folder = self.page.studio.store.results
        record = read_result(folder, name)
        shot, measured = Shot.from_dict(record["shot"]), record["measured"]
        with ui.element("article").classes("result"):
            files = (f"/studio/result/{name}.mp4", f"/studio/result/{name}.commanded.mp4")
            self.compare(*files, record, f"Generated: {shot.prompt}")
            ui.label(shot.prompt).classes("text-sm")
            errors = [
                f"{label} off by {measured[key]:.1f}°"
                for key, label in ERRORS.items()
                if measured.get(key) is not None
            ]  # fmt: skip
            ui.label(" · ".join([*errors, measured.get("note", "")])).classes("quiet")
            with ui.row().classes("items-center gap-2"):
                ui.link("Video", f"/studio/result/{name}.mp4")
                ui.link("Record", f"/studio/result/{name}.json")
                ui.button("Again from here", on_click=lambda: self.again(shot)).props("dense flat no-caps")
            ui.label(f"ucpe generate --again {folder / name}.json").classes("quiet break-all")

    def again(self, shot: Shot) -> None:
        """Open the shot of a result as a new one."""
        ui.navigate.to(f"/shot/{self.page.studio.store.new(shot)}")


def _check_image(path: Any) -> None:
    from ucpe.reading import open_image

    open_image(path)
