"""How commands take a camera: a lens by name or file, and a move or a path file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from ucpe.lenses import Lens
    from ucpe.trajectories import Trajectory


@dataclass
class CameraOptions:
    """A camera: what lens it has and how it moves."""

    lens: str | None = None
    """Lens family or model (pinhole, wide, fisheye, extreme-fisheye, ...) or a calibration file. [default: pinhole]"""
    xfov: float | None = None
    """Horizontal field of view in degrees, instead of the named lens's own."""
    xi: float | None = None
    """UCM distortion, instead of the named lens's own."""
    move: str | None = None
    """How the camera moves: static, pan-left, orbit, dolly-in, zoom-in, ... [default: static]"""
    degrees: float | None = None
    """Amount of a pan, tilt, roll, orbit or arc."""
    distance: float | None = None
    """Amount of a dolly, truck or pedestal, in near-plane depths."""
    factor: float | None = None
    """Amount of a zoom."""
    pitch: float = 0.0
    """First frame looks up by this many degrees."""
    roll: float = 0.0
    """First frame is tilted clockwise by this many degrees."""
    camera: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="A path file (RealEstate10K, transforms.json, COLMAP, TUM, KITTI, npy, our JSON) instead of a move. "
            "Its motion keeps its speed at --fps (a file without a rate counts as 16 fps) and is cut to --frames; "
            "a path too short for that is an error.",
        ),
    ] = None

    def make_lens(self) -> Lens:
        """The lens asked for."""
        from ucpe.lenses import lens_by_name, load_lens

        name = self.lens or "pinhole"
        changes = {key: value for key, value in (("xfov", self.xfov), ("xi", self.xi)) if value is not None}
        if Path(name).is_file() or Path(name).is_dir():
            if changes:
                raise ValueError(f"--xfov and --xi change a named lens, not the calibration {name}")
            return load_lens(name)
        return lens_by_name(name, **changes)

    def make_trajectory(self, frames: int, fps: float) -> Trajectory:
        """The camera asked for, with that many frames."""
        from ucpe.trajectories import Trajectory

        amounts: dict[str, Any] = {
            key: value
            for key, value in (("degrees", self.degrees), ("distance", self.distance), ("factor", self.factor))
            if value is not None
        }
        if self.camera is None:
            shot = {"frames": frames, "fps": fps, "pitch": self.pitch, "roll": self.roll}
            return Trajectory.move(self.move or "static", self.make_lens(), **shot, **amounts)
        if self.move is not None or amounts or self.pitch or self.roll:
            raise ValueError(f"give a move or the path file {self.camera}, not both")
        lens_given = any(value is not None for value in (self.lens, self.xfov, self.xi))
        path = Trajectory.load(self.camera, lens=self.make_lens() if lens_given else None)
        same_rate = math.isclose(path.fps, fps, rel_tol=1e-4)  # timestamps are rounded
        path = Trajectory(path.c2w, path.lens, fps) if same_rate else path.resample(fps=fps)
        if len(path) < frames:
            raise ValueError(
                f"{self.camera} gives {len(path)} frames at {fps:g} fps, but {frames} are asked for: pass --frames "
                f"{len(path)} or fewer"
            )
        return path[:frames]
