"""`ucpe lens`: show, convert and fit lenses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ucpe.cli.cameras import parse_size
from ucpe.cli.parsing import given, parse

if TYPE_CHECKING:
    from ucpe.lenses import Lens


@dataclass
class Parameters:
    """Parameters that change a named lens."""

    xfov: float | None = None
    """Horizontal field of view in degrees."""
    pinhole_xfov: float | None = None
    """Field of view that a pinhole of the same focal length would have, in degrees."""
    xi: float | None = None
    """Distortion of UCM, Mei or double sphere."""
    alpha: float | None = None
    """Alpha of EUCM or double sphere."""
    beta: float | None = None
    """Beta of EUCM."""
    k: float | None = None
    """Bend of a division or FOV lens."""
    k1: float | None = None
    """Radial distortion, up to k4 (Kannala-Brandt) or k6 (Brown-Conrady)."""
    k2: float | None = None
    k3: float | None = None
    k4: float | None = None
    k5: float | None = None
    k6: float | None = None
    p1: float | None = None
    """Tangential distortion."""
    p2: float | None = None
    top: float | None = None
    """Highest latitude of a panorama in degrees."""
    bottom: float | None = None
    """Lowest latitude of a panorama in degrees."""
    baseline: float | None = None
    """Distance between the eyes of a stereo panorama."""
    eye: Literal["left", "right"] | None = None
    """Eye of a stereo panorama."""


@dataclass(kw_only=True)
class GivenLens:
    """A lens from anywhere."""

    source: Annotated[str, tyro.conf.Positional]
    """A calibration file (Kalibr, OpenCV, COLMAP, transforms.json, ours), or a name: pinhole, wide, fisheye, ..."""
    camera: str | None = None
    """Which camera of a file that holds several (cam0, 1, ...), or which entry of a batch (0, 1, ...)."""
    lens_size: Annotated[str | None, tyro.conf.arg(metavar="WIDTHxHEIGHT")] = None
    """Image size that a calibration file is for, if it does not say: 1920x1080."""
    parameters: Annotated[Parameters, tyro.conf.arg(name="")] = field(default_factory=Parameters)


@dataclass(kw_only=True)
class Show(GivenLens):
    """Draw a lens: a room through it, its angles, the Lat-Up map of a tilted camera, and its numbers."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("lens.png")
    """Picture to write (.png, .svg, .pdf)."""
    pitch: float = 0.0
    """The camera looks up by this many degrees."""
    roll: float = 0.0
    """The camera is tilted clockwise by this many degrees."""
    height: int | None = None
    """Height of the image in pixels. [default: the calibration's, else 480]"""
    width: int | None = None
    """Width of the image in pixels. [default: the calibration's, else 832, or 960 for a panorama]"""
    title: str | None = None
    """Heading. [default: the name or file]"""

    def run(self) -> None:
        """Draw a lens."""
        from ucpe.encodings import lat_up_map
        from ucpe.figures import save_figure
        from ucpe.lenses.files import split_camera
        from ucpe.lenses.show import display_size, draw_lens, lens_numbers
        from ucpe.trajectories import Trajectory

        lens = _lens(self)
        height, width = _size(lens, self.height, self.width)
        camera = Trajectory.move("static", lens, frames=1, pitch=self.pitch, roll=self.roll)
        lat_up = lat_up_map(lens, camera.c2w, *display_size(height, width))[0]
        is_file = split_camera(self.source)[0].exists()
        title = self.title or (Path(self.source).name if is_file else self.source.replace("-", " "))
        subtitle = f"{lens.kind} at {width} x {height}, camera pitched {self.pitch:g}° and rolled {self.roll:g}°"
        figure = draw_lens(lens, lat_up, camera.c2w[0], height=height, width=width, title=title, subtitle=subtitle)
        save_figure(figure, self.output)
        for name, value in lens_numbers(lens, height, width):
            print(f"{name:<16} {value}")
        print(self.output)


@dataclass(kw_only=True)
class Convert(GivenLens):
    """Write a lens in another format."""

    target: Annotated[Path, tyro.conf.Positional]
    """File to write: .json or .yaml (ours), cameras.txt (COLMAP), transforms.json, or any with --format."""
    format: Literal["ucpe", "kalibr", "opencv", "colmap", "transforms"] | None = None
    """Format of the target, if its name does not say."""
    height: int = 480
    """Height of the image in pixels, for formats in pixels, if the lens has no size of its own."""
    width: int = 832
    """Width of the image in pixels."""

    def run(self) -> None:
        """Read one format, write another."""
        _lens(self).save(self.target, self.format, height=self.height, width=self.width)
        print(self.target)


@dataclass(kw_only=True)
class Fit(GivenLens):
    """Find the nearest lens of another model and say how far it is off."""

    model: str = "ucm"
    """Model to fit: ucm, eucm, double_sphere, kannala_brandt, brown_conrady, ..."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File to write the fitted lens to (.json or .yaml)."""
    height: int | None = None
    """Height of the image in pixels. [default: the calibration's, else 480]"""
    width: int | None = None
    """Width of the image in pixels. [default: the calibration's, else 832]"""

    def run(self) -> None:
        """Fit another model."""
        from ucpe.lenses import MODELS

        kind = self.model.lower().replace("-", "_")
        if kind not in MODELS:
            raise ValueError(f"--model must be one of {', '.join(MODELS)}, got {self.model!r}")
        lens = _lens(self)
        result = lens.fit(MODELS[kind], *_size(lens, self.height, self.width))
        print(result.lens)
        print(f"off by {float(result.rms):.4g} degrees (root mean square), {float(result.maximum):.4g} at most")
        if result.unseen > 0:
            print(f"cannot see {100 * float(result.unseen):.1f} % of what the original sees")
        if self.output is not None:
            result.lens.save(self.output)
            print(self.output)


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    parse({"show": Show, "convert": Convert, "fit": Fit}, arguments, "ucpe lens").run()


def _lens(command: Show | Convert | Fit) -> Lens:
    from ucpe.lenses import find_lens

    lens = find_lens(command.source, command.camera, parse_size(command.lens_size), **given(command.parameters))
    if lens.batch_shape and not isinstance(command, Convert):
        shape = tuple(lens.batch_shape)
        raise ValueError(
            f"{command.source}: holds a batch of lenses of shape {shape}: say which one with {command.source}:0, ..."
        )
    return lens


def _size(lens: Lens, height: int | None, width: int | None) -> tuple[int, int]:
    from ucpe.lenses.base import check_size

    usual = 832 if "fx" in lens.parameters or "top" not in lens.parameters else 960
    height = lens.settings.get("height", 480) if height is None else height
    width = lens.settings.get("width", usual) if width is None else width
    return check_size(height, width)
