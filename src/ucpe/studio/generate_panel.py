"""Generate: prompt and settings, what to expect, the queue, and the gallery of what came out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.reading import open_image
from ucpe.studio.controls import Typed, card, number_field, upload_button
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
        prompt = ui.textarea("Prompt").props("dense autogrow outlined").classes("w-full")
        self.prompt = Typed(prompt, lambda text: self.take("prompt", text or ""))
        self.describe = ui.button("Describe the scene", on_click=self.take_caption)
        self.describe.props("dense flat no-caps").classes("self-start")
        negative = ui.input("Negative prompt").props("dense").classes("w-full")
        self.negative = Typed(negative, lambda text: self.take("negative", text or ""))
        usual = page.studio.facts.defaults
        with ui.row().classes("items-end gap-2"):
            self.numbers = {
                name: number_field(label, None, partial(self.take_number, name), placeholder=f"{value:g} (usual)")
                for name, label, value in (
                    ("seed", "Seed", 0), ("steps", "Steps", usual.steps), ("guidance", "Guidance", usual.guidance),
                    ("video_height", "Video height", usual.height), ("video_width", "Video width", usual.width),
                )
            }  # fmt: skip
        upload_button(page, "First frame: open a picture", self.take_image, MAX_DOCUMENT, ",".join(IMAGES))
        ui.button("First frame: what the lens sees now", on_click=self.use_picture).props(
            "dense outline no-caps"
        ).classes("self-start")
        with ui.row().classes("items-center gap-2") as self.first:
            self.image = ui.element("img").classes("first")
            ui.button("No first frame", on_click=lambda: self.take("image", None)).props("dense flat no-caps")
        self.findings = ui.column().classes("w-full gap-1").props('role="status"')
        self.button = ui.button("Generate", icon="movie", on_click=self.generate).props("no-caps")
        self.queue_place = ui.column().classes("w-full gap-1")
        self.rows: dict[str, JobRow] = {}
        self.timer = ui.timer(POLL, self.show_queue)

    def refresh(self) -> None:
        """Show the settings as they are, and what to expect."""
        shot = self.page.window.shot
        self.prompt.show(shot.prompt)
        self.negative.show(shot.negative)
        for name, entry in self.numbers.items():
            entry.show(getattr(shot, name))
        self.describe.set_visibility(self.page.window.caption() not in (None, shot.prompt))
        self.first.set_visibility(shot.image is not None)
        self.image.props(f'src="/studio/upload/{shot.image}" alt="The first frame"' if shot.image else "")
        if self.checked is not shot and self.page.window.document.tag is None:
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

    def take_caption(self) -> None:
        """Make what the world shows the prompt."""
        self.take("prompt", self.page.window.caption() or "")

    def take_number(self, name: str, value: float | None) -> None:
        """Change a number; an empty field leaves the choice to the model."""
        if name == "seed":
            value = value or 0
        self.take(name, value if value is None or name == "guidance" else int(value))

    async def take_image(self, kept: Path) -> None:
        """Take a first frame."""
        await run.io_bound(open_image, kept)
        self.page.set(image=kept.name)

    async def use_picture(self) -> None:
        """Make the picture through the lens the first frame."""
        if drawn := await run.io_bound(self.page.window.picture, True):  # None while the server stops
            self.page.set(image=self.page.studio.store.keep_bytes(drawn[0], ".png").name)

    def generate(self) -> None:
        """Put the shot into the queue."""
        self.page.studio.submit(self.page.window.shot)
        self.show_queue()

    def show_queue(self) -> None:
        """Show the videos on their way; a row stays the same while its video is made, so it keeps the focus."""
        queue = self.page.studio.queue
        jobs = {job.name: job for job in queue.jobs if not job.finished or job.state == "failed"}
        for name in self.rows.keys() - jobs.keys():
            self.rows.pop(name).place.delete()
        for name, job in jobs.items():
            if name not in self.rows:
                with self.queue_place:
                    self.rows[name] = JobRow(job, partial(queue.cancel, job))
            self.rows[name].refresh()


class JobRow:
    """One video on its way: how far it is, and a button to cancel it."""

    def __init__(self, job: Job, cancel: Callable[[], None]):
        self.job = job
        with ui.column().classes("w-full gap-1") as self.place:
            with ui.row().classes("items-center w-full no-wrap"):
                self.words = ui.label().classes("quiet grow").props('role="status"')
                self.button = ui.button("Cancel", on_click=cancel).props("dense flat no-caps")
            self.progress = ui.linear_progress(0, show_value=False).props('aria-label="Progress"')
            self.wrong = ui.label().classes("wrong").props('role="alert"')

    def refresh(self) -> None:
        """Show how far the video is."""
        job = self.job
        self.words.set_text(f"{shorten(job.request.prompt, 40, placeholder=' …')} · {job.words}")
        self.button.set_text("Dismiss" if job.finished else "Cancel")
        self.button.set_enabled(job.finished or not job.stop.is_set())
        self.progress.set_value(round(job.done / job.total, 3) if job.total else 0)
        self.progress.set_visibility(job.state == "making")
        self.wrong.set_text(job.message[:400])
        self.wrong.set_visibility(bool(job.message))


class Gallery:
    """What came out, each beside what was commanded."""

    def __init__(self, page: Page):
        self.page = page
        self.shown: list[str] | None = None
        self.articles: dict[str, ui.element] = {}
        with card("Results").classes("wide"):
            self.nothing = ui.label("Nothing generated yet: the Generate tab makes videos.").classes("quiet")
            self.place = ui.element("div").classes("results")
        self.timer = ui.timer(POLL, self.refresh)

    def refresh(self) -> None:
        """Show the results on disk; those that are shown already go on playing."""
        names = results(self.page.studio.store.results)[:MAX_RESULTS]
        if names == self.shown:
            return
        if self.shown is not None and set(names) - set(self.shown):
            ui.notify("A video is ready: see Results at the end of the page.", type="positive", close_button="Close")
        self.shown = names
        self.nothing.set_visibility(not names)
        for name in self.articles.keys() - set(names):
            self.articles.pop(name).delete()
        for name in reversed(names):
            if name not in self.articles:
                with self.place:
                    self.page.attempt(partial(self.show_result, name))

    def show_result(self, name: str) -> None:
        """One result with its numbers, its files, and a way to make it again from here."""
        folder = self.page.studio.store.results
        record = read_result(folder, name)
        shot, measured = Shot.from_dict(record["shot"]), record["measured"]
        with ui.element("article").classes("result") as self.articles[name]:
            self.articles[name].move(target_index=0)
            files = (f"/studio/result/{name}.mp4", f"/studio/result/{name}.commanded.mp4")
            Compare(*files, record, f"Generated: {shot.prompt}")
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


class Compare(ui.element, component="compare.js"):
    """A result beside the commanded picture, the commanded horizon over both."""

    def __init__(self, made: str, commanded: str, record: dict[str, Any], label: str):
        super().__init__()
        size = {name: record[name] for name in ("fps", "width", "height")}
        self._props.update(made=made, commanded=commanded, lines=record["horizon"], label=label, **size)
