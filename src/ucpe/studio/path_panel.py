"""The path: its keyframes as numbers, moves to insert, and edits of the whole."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from nicegui import ui

from ucpe.studio import edits
from ucpe.studio.controls import number_field
from ucpe.studio.shot import EASING_NAMES
from ucpe.trajectories import NAMED_MOVES, Trajectory

if TYPE_CHECKING:
    from ucpe.studio.page import Page

MAX_LISTED = 40
"""Keyframes that get a button of their own."""


class PathPanel:
    """Edits keyframes by number, and all of them at once."""

    def __init__(self, page: Page):
        self.page = page
        self.times: list[float] = []
        self.marks: list[ui.button] = []
        self.marked: int | None = None
        with ui.row().classes("items-end"):
            self.frames = number_field("Frames", 1, lambda value: self.set_length(frames=value), min=1, format="%d")
            self.fps = number_field("Frames a second", 8, lambda value: self.set_length(fps=value), min=0.1)
        ui.label("Keyframes").props('role="heading" aria-level="3"').classes("font-semibold")
        with ui.row().classes("items-center"):
            self.list = ui.row().classes("gap-1")
            self.more = ui.label().classes("quiet")
        with ui.row().classes("items-end gap-2") as self.fields:
            self.numbers = {
                name: number_field(name, 0, partial(self.change, name), format="%.4g")
                for name in ("seconds", "x", "y", "z", "pitch", "yaw", "roll")
            }
            self.easing = ui.select(list(EASING_NAMES), label="Easing to the next").props("dense").classes("w-40")
            self.easing.on("update:model-value", lambda: self.change("easing", self.easing.value))
            ui.button("Delete keyframe", icon="delete", on_click=self.delete).props("dense flat no-caps")
        ui.label("Insert a move from this moment to the end").props('role="heading" aria-level="3"').classes(
            "font-semibold"
        )
        with ui.row().classes("items-end gap-2"):
            self.move = ui.select(list(NAMED_MOVES), value="orbit", label="Move", with_input=True).props("dense")
            self.move.on_value_change(lambda _: self.show_amounts())
            self.amounts_place = ui.row().classes("items-end gap-2")
            ui.button("Insert", on_click=self.insert).props("dense no-caps")
        ui.label("Whole path").props('role="heading" aria-level="3"').classes("font-semibold")
        with ui.row().classes("items-end gap-2"):
            self.scale = ui.number("Scale by", value=2.0, min=0.001).props("dense").classes("w-24")
            self.button("Scale", lambda shot: edits.scale_path(shot, float(self.scale.value or 0)))
            self.turn = ui.number("Turn by °", value=90.0).props("dense").classes("w-24")
            self.button("Turn", lambda shot: edits.turn_path(shot, float(self.turn.value or 0)))
            self.button("Level", edits.level_path)
            self.button("Reverse", edits.reverse_path)
            self.tolerance = ui.number("Off by at most", value=0.01, min=1e-6).props("dense").classes("w-24")
            self.button("Fewer keyframes", lambda shot: edits.simplify(shot, float(self.tolerance.value or 0.01)))
        self.show_amounts()

    def button(self, label: str, change: Any) -> None:
        """A button for an edit of the whole path."""
        ui.button(label, on_click=lambda: self.page.edit(change)).props("dense outline no-caps")

    def refresh(self) -> None:
        """Show the path as it is now."""
        shot, window = self.page.window.shot, self.page.window
        self.frames.show(shot.frames)
        self.fps.show(shot.fps)
        self.list_keys()
        self.fields.set_visibility(window.selected is not None)
        if window.selected is not None:
            key = shot.keys[window.selected]
            x, y, z = key.position
            values = {"seconds": key.frame / shot.fps, "x": x, "y": y, "z": z, "pitch": key.pitch, "yaw": key.yaw}
            for name, value in {**values, "roll": key.roll}.items():
                self.numbers[name].show(round(value, 5))
            self.easing.set_value(key.easing)

    def list_keys(self) -> None:
        """A button for each keyframe; they stay the same, so that the one pressed keeps the focus."""
        shot, selected = self.page.window.shot, self.page.window.selected
        times = [round(key.frame) / shot.fps for key in shot.keys]
        if times != self.times:
            self.times = times
            while len(self.marks) > len(times):
                self.marks.pop().delete()
            with self.list:
                for index in range(len(self.marks), min(len(times), MAX_LISTED)):
                    mark = ui.button(on_click=partial(self.page.choose, index))
                    self.marks.append(mark.props("dense no-caps size=sm outline"))
            for index, (mark, seconds) in enumerate(zip(self.marks, times)):
                mark.set_text(f"{seconds:.2f}")
                mark.props(f'aria-label="Keyframe {index + 1} at {seconds:.2f} seconds"')
            self.more.set_text(f"and {len(times) - MAX_LISTED} more" if len(times) > MAX_LISTED else "")
        if selected != self.marked:
            for index, mark in enumerate(self.marks):
                if index == self.marked:
                    mark.props("outline", remove="aria-current")
                elif index == selected:
                    mark.props("aria-current=true", remove="outline")
            self.marked = selected

    def change(self, name: str, value: Any) -> None:
        """Change a number of the chosen keyframe."""
        window = self.page.window
        if window.selected is None or value is None:
            return
        key, index = window.shot.keys[window.selected], window.selected
        if name == "seconds":
            if round(value * window.shot.fps) != key.frame:
                self.page.edit(lambda shot: edits.retime_key(shot, index, value * shot.fps))
                self.page.choose(index)
        elif name in ("x", "y", "z"):
            place = [value if axis == name else old for axis, old in zip("xyz", key.position)]
            if abs(place["xyz".index(name)] - key.position["xyz".index(name)]) > 1e-5:
                self.page.edit(lambda shot: edits.change_key(shot, index, position=tuple(place)))
        elif name == "easing" or abs(getattr(key, name) - value) > 1e-5:
            self.page.edit(lambda shot: edits.change_key(shot, index, **{name: value}))

    def delete(self) -> None:
        """Delete the chosen keyframe."""
        selected = self.page.window.selected
        if selected is not None:
            self.page.edit(lambda shot: edits.delete_key(shot, selected))

    def set_length(self, frames: float | None = None, fps: float | None = None) -> None:
        """Another number of frames, or another rate."""
        shot = self.page.window.shot
        wanted = (int(frames or shot.frames), float(fps or shot.fps))
        if wanted != (shot.frames, shot.fps):
            self.page.edit(lambda shot: edits.set_length(shot, *wanted))

    def show_amounts(self) -> None:
        """The amounts that the chosen move takes."""
        method, given = NAMED_MOVES[self.move.value]
        taken = inspect.signature(getattr(Trajectory, method)).parameters.items()
        usual = {name: entry.default for name, entry in taken if isinstance(entry.default, float)}
        self.amounts_place.clear()
        self.amounts = {}
        with self.amounts_place:
            for name, value in {**usual, **given}.items():
                label = name.replace("_", " ")
                self.amounts[name] = ui.number(label, value=value).props("dense").classes("w-24")

    def insert(self) -> None:
        """Insert the move."""
        amounts = {name: float(field.value) for name, field in self.amounts.items() if field.value is not None}
        frame = self.page.window.frame
        if self.page.edit(lambda shot: edits.insert_move(shot, self.move.value, frame, **amounts)):
            self.page.outside.see_all()
