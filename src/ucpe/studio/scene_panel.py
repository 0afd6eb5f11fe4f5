"""What the camera is tried out in: a procedural world, or a panorama of one's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nicegui import run, ui

from ucpe.studio.controls import number_field, upload_button
from ucpe.studio.store import IMAGES
from ucpe.studio.uploads import MAX_FOOTAGE
from ucpe.studio.window import UPLOAD
from ucpe.synthesis.scenes import WORLD_NAME, WorldScene
from ucpe.video import VIDEO_SUFFIXES

if TYPE_CHECKING:
    from ucpe.studio.page import Page

KINDS = {"": "Any", "outdoor": "Outdoor", "indoor": "Indoor"}


class ScenePanel:
    """Chooses what is seen through the lens, and at what size."""

    def __init__(self, page: Page):
        self.page = page
        with ui.row().classes("items-end"):
            self.number = number_field("World number", 0, self.set_world, min=0, format="%d")
            self.kind = ui.select(KINDS, value="", label="Kind").props("dense").classes("w-28")
            self.kind.on("update:model-value", lambda: self.set_world(self.number.shown))
            ui.button("Another", icon="casino", on_click=lambda: self.set_world((self.number.shown or 0) + 1)).props(
                "dense flat no-caps"
            )
        self.caption = ui.label().classes("quiet")
        accepted = ",".join((*IMAGES, *VIDEO_SUFFIXES))
        upload_button(page, "Open a panorama (2:1 photo or video)", self.take_panorama, MAX_FOOTAGE, accepted)
        with ui.row().classes("items-end"):
            self.width = number_field("Picture width", 480, partial(self.set_side, "width"), min=16, format="%d")
            self.height = number_field("Picture height", 270, partial(self.set_side, "height"), min=16, format="%d")

    def refresh(self) -> None:
        """Show the scene as it is now."""
        shot = self.page.window.shot
        self.width.show(shot.width)
        self.height.show(shot.height)
        found = WORLD_NAME.fullmatch(shot.scene)
        self.number.show(int(found[1]) if found else None)
        self.kind.set_value(found[2] or "" if found else "")
        try:
            scene = self.page.window.scenes()[0]
        except (ValueError, OSError) as error:
            self.caption.set_text(str(error))
            return
        if isinstance(scene, WorldScene):
            self.caption.set_text(f"{scene.world.caption} · one unit is {scene.world.near_depth:.1f} m")
        else:
            self.caption.set_text("your panorama: it shows how the camera turns, but not how it travels")

    def set_world(self, number: float | None) -> None:
        """Look at the world of a number; without one, the panorama stays."""
        if number is None:
            return
        kind = f":{self.kind.value}" if self.kind.value else ""
        name = f"world:{int(number)}{kind}"
        if name != self.page.window.shot.scene:
            self.set_scene(name)

    def set_scene(self, name: str) -> None:
        """Look at another world, if it opens; a prompt that described the one before describes this one."""
        try:
            before, scene = self.page.window.caption(), self.page.window.open_scene(name)[0]
        except (ValueError, OSError) as error:
            self.page.complain(error)
            return
        changes = {"scene": name}
        if isinstance(scene, WorldScene) and self.page.window.shot.prompt == before:
            changes["prompt"] = scene.world.caption
        self.page.set(**changes)

    def set_side(self, name: str, pixels: float | None) -> None:
        """Another width or height of the picture."""
        if pixels is not None:
            self.page.set(**{name: int(pixels)})

    async def take_panorama(self, kept: Path) -> None:
        """Take a panorama."""
        waiting = ui.notification("Opening the panorama", spinner=True, timeout=None)
        try:
            name = UPLOAD + kept.name
            notes = await run.io_bound(self.page.window.try_scene, name)
            self.page.set(scene=name)
            for note in notes or []:
                self.page.complain(f"{kept.name}: {note}", "warning")
        finally:
            waiting.dismiss()
