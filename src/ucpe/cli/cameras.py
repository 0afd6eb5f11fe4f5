"""How commands take a camera: a lens by name or file, and a move or a path file."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ucpe.cli.parsing import given

if TYPE_CHECKING:
    from ucpe.lenses import Lens
    from ucpe.trajectories import Trajectory

AUTOMATIC_LENGTH = 1.0
"""Path length of `--scale auto` in near-plane depths; the desk model saw 0.15 to 1.2, the released one 1.0 to 1.6."""


@dataclass
class LensOptions:
    """A lens."""

    lens: str | None = None
    """Lens by name (pinhole, wide, fisheye, ...) or calibration file, also camchain.yaml:cam0. [default: pinhole]"""
    xfov: float | None = None
    """Horizontal field of view in degrees, instead of the named lens's own."""
    xi: float | None = None
    """UCM distortion, instead of the named lens's own."""
    lens_size: Annotated[str | None, tyro.conf.arg(metavar="WIDTHxHEIGHT")] = None
    """Image size that a calibration file is for, if it does not say: 1920x1080."""
    fit: Literal["crop", "squeeze", "pad"] = "crop"
    """What to do with a calibration whose aspect ratio is not the video's: cut it, distort it or extend it."""

    def lens_given(self) -> bool:
        """Whether any option asks for a lens."""
        return bool(given(self, "lens", "xfov", "xi"))

    def given_lens(self) -> Lens | None:
        """The lens asked for, if any is."""
        return self.make_lens() if self.lens_given() else None

    def make_lens(self) -> Lens:
        """The lens asked for."""
        from ucpe.lenses import find_lens

        return find_lens(self.lens or "pinhole", size=parse_size(self.lens_size), **given(self, "xfov", "xi"))

    def fitted(self, lens: Lens, height: int, width: int) -> Lens:
        """The lens for images of height x width, with a warning that says what `fit` did to its calibration."""
        from ucpe.lenses import fit_image

        fitted, note = fit_image(lens, height, width, self.fit)
        if note:
            name = f"{Path(self.lens).name}: " if self.lens else ""
            others = "|".join(way for way in ("crop", "squeeze", "pad") if way != self.fit)
            warnings.warn(f"{name}{note} (--fit {others} to change that)")
        return fitted


@dataclass
class LayoutOptions:
    """How 360 degree footage is laid out in its pictures."""

    projection: Literal["equirectangular", "eac"] | None = None
    """Layout of the panorama: with poles, or as YouTube's 3 x 2 equi-angular cubemap (eac). [default: by content]"""
    stereo: Literal["mono", "top-bottom", "side-by-side"] | None = None
    """Layout of stereo footage; the left eye is used. [default: by content]"""


@dataclass
class PathOptions:
    """How a path file is placed in our world."""

    up: Annotated[str | None, tyro.conf.arg(metavar="UP")] = None
    """Up in a path file's world: +z, -y, x,y,z, ..., or first (its first camera is level). [default: the format's]"""
    level: bool = False
    """Turn a path so that its first camera is level: the same as --up first."""
    scale: Annotated[float | Literal["auto"] | None, tyro.conf.arg(metavar="FACTOR|auto")] = None
    """Factor on a path's translations; auto makes it 1 near-plane depth long, within what models are trained on."""

    def path_given(self) -> bool:
        """Whether any option is about a path file."""
        return self.up is not None or self.level or self.scale is not None

    def asked_up(self) -> str | None:
        """The up direction asked for, as `Trajectory.load` takes it."""
        if self.level and self.up not in (None, "first"):
            raise ValueError(f"--level makes the first camera level, --up {self.up} something else: give one of them")
        return "first" if self.level else self.up

    def load(self, file: Path | str, lens: Lens | None = None, extrinsics: str | None = None) -> Trajectory:
        """The path of a file, upright and in its own unit of length; warns if which way is up had to be assumed."""
        from ucpe.trajectories.formats import load_upright

        advice = (
            "--up +z, --up -y, ... or --up x,y,z says which way is up in the file's world, --level that the first "
            "camera is level"
        )
        return load_upright(file, advice, self.asked_up(), lens=lens, extrinsics=extrinsics)

    def scaled(self, path: Trajectory) -> Trajectory:
        """The path with its translations multiplied as asked for."""
        if self.scale is None:
            return path
        if self.scale != "auto":
            return path.scaled(float(self.scale))
        length = path.path_length()
        if length < 1e-9:
            return path
        warnings.warn(
            f"the path is {length:.4g} long: translations times {AUTOMATIC_LENGTH / length:.4g} (--scale auto)"
        )
        return path.scaled(AUTOMATIC_LENGTH / length)


@dataclass
class CameraOptions(PathOptions, LensOptions):
    """A camera: what lens it has and how it moves."""

    move: str | None = None
    """A move (pan-left, orbit, dolly-in, ...), several ("dolly-in 0.5 with tilt-up 10, then pan-left 30", each for the
    same time), or keys of a world model ("w-80,jw-40"; "sana:w-80,aw-40" in SANA-WM's own key map)."""
    degrees: float | None = None
    """Amount of a pan, tilt, roll, orbit or arc, in degrees."""
    distance: float | None = None
    """Amount of a dolly, truck or pedestal, in near-plane depths."""
    factor: float | None = None
    """Factor of a zoom."""
    pitch: float = 0.0
    """First frame looks up by this many degrees."""
    yaw: float = 0.0
    """First frame looks to the right by this many degrees, in the world; moves start along it."""
    roll: float = 0.0
    """First frame is tilted clockwise by this many degrees."""
    camera: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="A path file (RealEstate10K, transforms.json, COLMAP, TUM, KITTI, EuRoC, npy, our JSON, ...) instead "
            "of a move. Its motion keeps its speed at --fps (a file without a rate counts as 16 fps) and is cut to "
            "--frames; a path too short for that is an error.",
        ),
    ] = None

    def make_trajectory(
        self, frames: int, fps: float, height: int | None = None, width: int | None = None, stride: int = 1
    ) -> Trajectory:
        """The camera asked for, with that many frames, its calibration fitted to images of height x width.

        A path that is too short is refused; the error names the largest possible number of frames, `stride` n + 1.
        """
        path = self._moved(frames, fps) if self.camera is None else self._loaded(self.camera, frames, fps, stride)
        if height is None or width is None:
            return path
        return path.with_lens(self.fitted(path.lens, height, width))

    def _moved(self, frames: int, fps: float) -> Trajectory:
        from ucpe.trajectories import Trajectory

        if self.path_given():
            raise ValueError("--up, --level and --scale are for a path file: --camera FILE")
        shot = {"frames": frames, "fps": fps, "pitch": self.pitch, "yaw": self.yaw, "roll": self.roll}
        return Trajectory.move(self.move or "static", self.make_lens(), **shot, **self._amounts())

    def _loaded(self, file: Path, frames: int, fps: float, stride: int) -> Trajectory:
        if self.move is not None or self._amounts() or self.pitch or self.yaw or self.roll:
            raise ValueError(f"give a move or the path file {file}, not both")
        path = self.load(file, lens=self.given_lens(), extrinsics=self.lens)
        same_rate = math.isclose(path.fps, fps, rel_tol=1e-4)  # timestamps are rounded
        path = path.resample(len(path), fps) if same_rate else path.resample(fps=fps)
        if len(path) < frames:
            raise ValueError(
                f"{file} gives {len(path)} frames at {fps:g} fps, but {frames} are asked for: pass --frames "
                f"{(len(path) - 1) // stride * stride + 1} or fewer"
            )
        return self.scaled(path[:frames])

    def _amounts(self) -> dict[str, Any]:
        return given(self, "degrees", "distance", "factor")


def lens_label(source: str) -> str:
    """A lens as part of a file name: fisheye, camchain-cam0."""
    file, _, camera = source.partition(":")
    return f"{Path(file).stem}-{camera.replace('/', '-')}" if camera else Path(file).stem


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Width and height in pixels of "1920x1080"."""
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    if not (width.strip().isdecimal() and height.strip().isdecimal()):
        raise ValueError(f"--lens-size must be WIDTHxHEIGHT in pixels, such as 1920x1080, got {text!r}")
    return int(width), int(height)
