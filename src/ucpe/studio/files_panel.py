"""In and out: path files, lens files, and the commands that make this very shot."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import ui

from ucpe.lenses.files import FORMATS as LENS_FORMATS
from ucpe.studio import edits
from ucpe.studio.commands import python_lines, shell_lines
from ucpe.studio.controls import CameraUpload
from ucpe.studio.uploads import unpack
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import FORMATS, ImageSize, save_trajectory

if TYPE_CHECKING:
    from ucpe.studio.page import Page

PATHS = ".json,.txt,.npy,.npz,.csv,.zip"

SUFFIXES = {"ucpe": ".json", "nerfstudio": ".json", "panshot": ".npy", "vipe": ".npz", "colmap": ""}
"""How files of each trajectory format end; .txt where not said, nothing for a folder."""


class FilesPanel:
    """Opens and saves paths and lenses, and shows the commands."""

    def __init__(self, page: Page):
        self.page = page
        CameraUpload(page, "Open a path (a folder as .zip)", PATHS, load_path, self.open)
        with ui.row().classes("items-end gap-2"):
            kinds = {name: f"{name}: {format.description}"[:70] for name, format in FORMATS.items()}
            self.format = ui.select(kinds, value="ucpe", label="Path format").props("dense").classes("w-60")
            ui.button("Save path", icon="download", on_click=self.save_path).props("dense no-caps")
        with ui.row().classes("items-end gap-2"):
            kinds = {name: f"{name}: {format.description}"[:70] for name, format in LENS_FORMATS.items()}
            self.lens_format = ui.select(kinds, value="ucpe", label="Lens format").props("dense").classes("w-60")
            ui.button("Save lens", icon="download", on_click=self.save_lens).props("dense no-caps")
        ui.label("On the command line").props('role="heading" aria-level="3"').classes("font-semibold")
        self.shell = ui.code("", language="bash").classes("w-full")
        self.shell.copy_button.props('aria-label="Copy the command lines"')
        ui.label("In Python").props('role="heading" aria-level="3"').classes("font-semibold")
        self.python = ui.code("", language="python").classes("w-full")
        self.python.copy_button.props('aria-label="Copy the Python lines"')

    def refresh(self) -> None:
        """Show the commands of the shot as it is now."""
        if self.page.window.document.history.tag is None:
            path = self.page.studio.store.path_file(self.page.window.document.id)
            scene = self.page.studio.scene_file(self.page.window.shot)
            image = self.page.studio.image_file(self.page.window.shot)
            options = (self.page.window.shot, path, scene, image, self.page.studio.model, self.page.studio.adapter)
            self.shell.set_content(shell_lines(*options))
            self.python.set_content(python_lines(*options))

    def open(self, camera: Trajectory) -> None:
        """Put the path of a file in place of the present one."""
        shot = edits.open_path(self.page.window.shot, camera)
        self.page.window.free = None
        self.page.window.document.edit(shot)
        self.page.see_all()
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
                lens = shot.lens_at(window.frame)
                lens.save(path, self.lens_format.value, height=shot.height, width=shot.width)
                ui.download.content(path.read_bytes(), name)

        self.page.attempt(save)


def load_path(path: Path, camera: str | None = None) -> Trajectory:
    """The trajectory of an uploaded file, or of one camera in it, or of the folder in an uploaded archive."""
    end = "" if camera is None else f":{camera}"
    if path.suffix != ".zip":
        return Trajectory.load(f"{path}{end}")
    with tempfile.TemporaryDirectory() as folder:
        return Trajectory.load(f"{unpack(path, Path(folder))}{end}")


def path_download(shot: Any, format: str) -> tuple[bytes, str]:
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
