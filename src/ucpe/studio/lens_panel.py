"""The lens: pick a model, move its sliders, or open a calibration; what it sees in numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegui import run, ui

from ucpe.lenses import UCM, Lens, PlanarLens, lens_by_name, lens_from_dict, load_lens
from ucpe.lenses.models import LENS_NAMES
from ucpe.studio import edits
from ucpe.studio.controls import CameraUpload, Slider
from ucpe.studio.shot import Shot

if TYPE_CHECKING:
    from ucpe.studio.page import Page

RANGES: dict[str, tuple[float, float, float]] = {
    "xfov": (10, 360, 0.5),
    "pinhole_xfov": (10, 170, 0.5),
    "xi": (0, 3, 0.01),
    "alpha": (0, 1, 0.01),
    "beta": (0.1, 4, 0.01),
    "p1": (-0.05, 0.05, 0.0005),
    "p2": (-0.05, 0.05, 0.0005),
    "top": (-90, 90, 1),
    "bottom": (-90, 90, 1),
    "baseline": (0, 0.3, 0.005),
}
"""Ends and step of a parameter's slider; a number outside them can be typed."""


class LensPanel:
    """Chooses the lens of the path or of one keyframe."""

    def __init__(self, page: Page):
        self.page = page
        self.shape: Any = None
        self.shown: Any = None
        self.sliders: dict[str, Slider] = {}
        self.measured: Any = None
        self.name = ui.select(list(LENS_NAMES), label="Model or family").props("dense").classes("w-full")
        self.name.on("update:model-value", lambda: self.put(lambda: lens_by_name(self.name.value)))
        self.scope = ui.toggle({False: "Whole path", True: "This keyframe"}, value=False).props("dense no-caps")
        self.sliders_place = ui.column().classes("w-full gap-1")
        self.wrong = ui.label().classes("wrong").props('role="alert"')
        self.numbers = ui.element("div").classes("numbers")
        CameraUpload(page, "Open a calibration", read_lens, lambda lens: self.put(lambda: lens))

    @property
    def index(self) -> int | None:
        """The keyframe to change; None for all."""
        return self.page.window.selected if self.scope.value else None

    def put(self, make: Any) -> None:
        """Put another lens on."""
        self.page.window.free = None
        self.page.edit(lambda shot: edits.set_lens(shot, make(), self.index))

    def move(self, name: str, value: float) -> None:
        """Change one parameter; what is impossible is said below the sliders."""
        self.page.window.free = None
        try:
            shot = edits.set_lens_parameter(self.page.window.shot, name, value, self.index)
        except ValueError as error:
            self.refresh()
            self.wrong.set_text(str(error))
            return
        self.page.window.document.edit(shot, f"lens {name}")

    def refresh(self) -> None:
        """Show the lens as it is now."""
        lens = self.page.window.view().lens
        names = [name for name, value in lens.items() if isinstance(value, float)]
        if self.shown != lens:
            self.shown = lens
            self.wrong.set_text("")
        if self.shape != (lens["model"], *names):
            self.shape = (lens["model"], *names)
            self.build_sliders(lens, names)
        if self.name.value not in LENS_NAMES or lens_by_name(self.name.value).kind != lens["model"]:
            self.name.set_value(lens["model"])
        for name, slider in self.sliders.items():
            slider.show(lens[name])
        if self.measured != lens and self.page.window.document.tag is None:
            self.measured = lens
            ui.timer(0, lambda: self.measure(lens), once=True)

    def build_sliders(self, lens: dict[str, Any], names: list[str]) -> None:
        """One slider for each parameter of the model."""
        self.sliders_place.clear()
        self.sliders = {}
        with self.sliders_place:
            for name in names:
                low, high, step = slider_range(name, lens)
                self.sliders[name] = Slider(name, low, high, step, partial(self.move, name), self.page.settle)

    async def measure(self, values: dict[str, Any]) -> None:
        """Show what the lens sees, and then the nearest UCM, which takes longer to find."""
        lens, shot = lens_from_dict(values), self.page.window.shot
        self.numbers.clear()
        for part in (fields_of_view, nearest_ucm):
            rows = await run.io_bound(part, lens, shot.height, shot.width)
            if rows is None or self.measured != values:
                return
            with self.numbers:
                for name, value in rows:
                    ui.label(name).classes("quiet")
                    ui.label(value)


def read_lens(path: Path, camera: str | None, shot: Shot) -> Lens:
    """The lens of a calibration, cut to the shape of a shot's pictures; of a batch of lenses the first."""
    lens = load_lens(path, camera)
    return edits.fitted(lens[(0,) * len(lens.batch_shape)] if lens.batch_shape else lens, shot)


def slider_range(name: str, lens: dict[str, Any]) -> tuple[float, float, float]:
    """Ends and step of the slider of a parameter."""
    if name == "xi" and lens["model"] == "double_sphere":
        return -0.9, 1.0, 0.01
    if name in RANGES:
        return RANGES[name]
    if name in ("fx", "fy"):
        return lens[name] / 4, lens[name] * 4, lens[name] / 200
    if name in ("cx", "cy"):
        return 0, lens["width" if name == "cx" else "height"], 0.5
    return -0.5, 0.5, 0.001


def fields_of_view(lens: Lens, height: int, width: int) -> list[tuple[str, str]]:
    """How much a lens sees, in words."""
    rows = [
        (name, f"{float(angle(height, width)):.1f}°")
        for name, angle in (("sees across", lens.xfov), ("sees down", lens.yfov), ("sees diagonally", lens.dfov))
    ]
    blind = 1 - float(lens.rays(height, width).valid.double().mean())
    return [*rows, ("blind corners", f"{100 * blind:.1f} % of the picture" if blind else "none")]


def nearest_ucm(lens: Lens, height: int, width: int) -> list[tuple[str, str]]:
    """The UCM nearest to a planar lens of another model, and how far off it is, in words."""
    if not isinstance(lens, PlanarLens) or isinstance(lens, UCM):
        return []
    try:
        fit = lens.fit(UCM)
    except ValueError as error:
        return [("nearest UCM", str(error))]
    number = fit.lens.parameters
    scale = "xfov" if "xfov" in number else "fx"
    near = f"{scale} {float(number[scale]):.1f}, xi {float(number['xi']):.3f}"
    return [("nearest UCM", f"{near}: off by {float(fit.rms):.2f}° RMS, {float(fit.maximum):.2f}° at most")]
