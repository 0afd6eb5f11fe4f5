"""In and out: path files, lens files, and the commands that make this very shot."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from nicegui import ui

from ucpe.lenses.files import FORMATS as LENS_FORMATS
from ucpe.lenses.files.document import ReadOnly as ReadOnlyLens
from ucpe.studio import edits
from ucpe.studio.commands import python_lines, shell_lines
from ucpe.studio.controls import CameraUpload
from ucpe.studio.shot import Shot
from ucpe.studio.uploads import MAX_FOOTAGE, unpack
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import FORMAT_OF_SUFFIX, FORMATS, ImageSize, load_upright, save_trajectory
from ucpe.trajectories.formats.base import ReadOnly as ReadOnlyPath

if TYPE_CHECKING:
    from ucpe.studio.page import Page

SUFFIXES = {**{name: suffix for suffix, name in FORMAT_OF_SUFFIX.items()}, "colmap": ""}
"""How files of each trajectory format end; .txt where not said, nothing for a folder."""


class FilesPanel:
    """Opens and saves paths and lenses, and shows the commands."""

    def __init__(self, page: Page):
        self.page = page
        self.others = ui.select({}, label="Open another shot").props("dense").classes("w-full")
        self.others.on("popup-show", self.list_others)
        self.list_others()
        self.others.on("update:model-value", lambda: ui.navigate.to(f"/shot/{self.others.value}"))
        CameraUpload(page, "Open a path (a folder as .zip)", load_path, self.open, MAX_FOOTAGE)
        self.format = self.saver("path", written(FORMATS), self.save_path)
        self.lens_format = self.saver("lens", written(LENS_FORMATS), self.save_lens)
        ui.label("On the command line").props('role="heading" aria-level="3"').classes("font-semibold")
        self.shell = ui.code("", language="bash").classes("w-full")
        self.shell.copy_button.props('aria-label="Copy the command lines"')
        ui.label("In Python").props('role="heading" aria-level="3"').classes("font-semibold")
        self.python = ui.code("", language="python").classes("w-full")
        self.python.copy_button.props('aria-label="Copy the Python lines"')

    def saver(self, what: str, formats: dict[str, str], save: Callable[[], Any]) -> ui.select:
        """A choice of formats, and a button that saves in the chosen one."""
        with ui.row().classes("w-full items-end gap-2"):
            chosen = ui.select(formats, value="ucpe", label=f"{what.capitalize()} format").props("dense options-dense")
            ui.button(f"Save {what}", icon="download", on_click=save).props("dense no-caps")
        return chosen.classes("grow basis-48 min-w-0")

    def refresh(self) -> None:
        """Show the commands of the shot as it is now."""
        if self.page.window.document.tag is None:
            path = self.page.studio.store.path_file(self.page.window.document.id)
            scene = self.page.studio.scene_file(self.page.window.shot)
            image = self.page.studio.image_file(self.page.window.shot)
            options = (self.page.window.shot, path, scene, image, self.page.studio.model, self.page.studio.adapter)
            self.shell.set_content(shell_lines(*options))
            self.python.set_content(python_lines(*options))

    def list_others(self) -> None:
        """Offer the shots on disk, the latest first."""
        others = self.page.studio.store.describe_others(self.page.window.document.id)
        self.others.set_options(others)
        self.others.set_visibility(bool(others))

    def open(self, camera: Trajectory) -> None:
        """Put the path of a file in place of the present one."""
        shot = edits.open_path(self.page.window.shot, camera)
        self.page.window.free = None
        self.page.window.document.edit(shot)
        self.page.outside.see_all()
        ui.notify(f"{len(camera)} frames at {camera.fps:g} a second, {len(shot.keys)} keyframes")

    def save_path(self) -> None:
        """Download the path."""
        self.page.attempt(lambda: ui.download.content(*path_download(self.page.window.shot, self.format.value)))

    def save_lens(self) -> None:
        """Download the lens that is looked through."""
        shot, window = self.page.window.shot, self.page.window

        def save() -> None:
            name = {"colmap": "cameras.txt", "transforms": "transforms.json"}.get(self.lens_format.value, "lens.yaml")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                lens = shot.camera.lens_at(window.frame)
                lens.save(path, self.lens_format.value, height=shot.height, width=shot.width)
                ui.download.content(path.read_bytes(), name)

        self.page.attempt(save)


def written(formats: Mapping[str, Any]) -> dict[str, str]:
    """What each format that can be written is called, by its name."""
    return {
        name: shorten(f"{name}: {format.description}", 70, placeholder=" …")
        for name, format in formats.items()
        if not isinstance(format, (ReadOnlyLens, ReadOnlyPath))
    }


def load_path(path: Path, camera: str | None, shot: Shot) -> Trajectory:
    """The trajectory of an uploaded file, or of one camera in it, or of the folder in an uploaded archive.

    Where it says nothing about lens or frame rate, those of the shot stay; a lens is cut to the shape of its pictures.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = unpack(path, Path(folder)) if path.suffix == ".zip" else path
        name = str(found) if camera is None else f"{found}:{camera}"
        advice = "ucpe trajectory convert FILE path.json --up +z turns it otherwise"
        camera_path = load_upright(name, advice, usual_lens=shot.camera.lens_at(0), usual_fps=shot.fps)
    return camera_path.with_lens(edits.fitted(camera_path.lens, shot))


def path_download(shot: Shot, format: str) -> tuple[bytes, str]:
    """Content and name of a shot's path in a format; a folder becomes an archive."""
    name = "transforms.json" if format == "nerfstudio" else f"path{SUFFIXES.get(format, '.txt')}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        save_trajectory(shot.camera, path, format=format, size=ImageSize(shot.height, shot.width))
        if path.is_file():
            return path.read_bytes(), name
        archive = Path(folder) / "path.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for member in sorted(path.rglob("*")):
                file.write(member, member.relative_to(path))
        return archive.read_bytes(), "path.zip"
