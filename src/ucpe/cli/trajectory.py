"""`ucpe trajectory`: show and convert camera paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ucpe.cli.cameras import LensOptions, PathOptions
from ucpe.cli.parsing import given, parse

if TYPE_CHECKING:
    from ucpe.trajectories import Trajectory


@dataclass
class Show:
    """Draw a path file or a move: path and views in 3D, from above, and pitch, yaw and roll over time."""

    source: Annotated[str, tyro.conf.Positional]
    """A path file (RealEstate10K, transforms.json, COLMAP, TUM, KITTI, npy, npz, our JSON) or a move (orbit, ...)."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("trajectory.png")
    """Picture (.png, .svg, .pdf) or a page to turn with the mouse (.html)."""
    lens: Annotated[LensOptions, tyro.conf.arg(name="")] = field(default_factory=LensOptions)
    place: Annotated[PathOptions, tyro.conf.arg(name="")] = field(default_factory=PathOptions)
    frames: int | None = None
    """Number of frames. [default: the path file's, else 81]"""
    fps: float | None = None
    """Frames per second. [default: the path file's, else 16]"""
    degrees: float | None = None
    """Amount of a pan, tilt, roll, orbit, arc, spiral or handheld move, in degrees."""
    distance: float | None = None
    """Amount of a dolly, truck, pedestal, crane or dolly-zoom, in near-plane depths."""
    radius: float | None = None
    """Radius of an orbit, arc or spiral, in near-plane depths."""
    height: float | None = None
    """Rise of a crane or spiral, in near-plane depths."""
    factor: float | None = None
    """Factor of a zoom."""
    seed: int | None = None
    """Seed of the handheld shake."""
    pitch: float | None = None
    """A move's first frame looks up by this many degrees."""
    yaw: float | None = None
    """A move's first frame looks right by this many degrees."""
    roll: float | None = None
    """A move's first frame is tilted clockwise by this many degrees."""
    title: str | None = None
    """Heading. [default: the move or file name]"""
    views: int = 7
    """Number of cameras drawn along the path."""

    def run(self) -> None:
        """Draw a file or a move."""
        from ucpe.trajectories.show import show_trajectory

        trajectory = _trajectory(self)
        is_file = Path(self.source).exists()
        title = self.title or (Path(self.source).stem if is_file else self.source.replace("-", " "))
        show_trajectory(trajectory, self.output, title=title, views=self.views)
        print(self.output)


@dataclass
class Convert:
    """Convert a path file to another format, known by its name or given with --format."""

    source: Annotated[Path, tyro.conf.Positional]
    """File or folder to read; its format is recognised from its content."""
    target: Annotated[Path, tyro.conf.Positional]
    """File or folder to write: .json (ours), transforms.json, .npy (PanShot), .npz (ViPE), a folder (COLMAP), .txt."""
    format: str | None = None
    """ucpe, realestate10k, nerfstudio, colmap, tum, kitti, panshot or vipe. [default: by the name; a .txt is
    realestate10k for a pinhole, else tum]"""
    lens: Annotated[LensOptions, tyro.conf.arg(name="")] = field(default_factory=LensOptions)
    place: Annotated[PathOptions, tyro.conf.arg(name="")] = field(default_factory=PathOptions)
    frames: int | None = None
    """Resample the whole path to this many frames."""
    fps: float | None = None
    """Resample to this frame rate at the same speed; with --frames, the rate they are played at."""

    def run(self) -> None:
        """Read one format, write another."""
        from ucpe.trajectories import Trajectory

        trajectory = Trajectory.load(
            self.source, lens=self.lens.given_lens(), up=self.place.asked_up(), extrinsics=self.lens.lens
        )
        trajectory = self.place.scaled(_resampled(trajectory, self.frames, self.fps))
        trajectory.save(self.target, format=self.format)
        print(self.target)


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run."""
    parse({"show": Show, "convert": Convert}, arguments, "ucpe trajectory").run()


def _trajectory(command: Show) -> Trajectory:
    from ucpe.lenses.files import split_camera
    from ucpe.trajectories import DEFAULT_LENS, NAMED_MOVES, Trajectory, is_actions, is_direction, is_sequence

    amounts = given(command, "degrees", "distance", "radius", "height", "factor", "seed", "pitch", "yaw", "roll")
    if split_camera(command.source)[0].exists():
        if amounts:
            raise ValueError(f"--{next(iter(amounts))} is for a move, and {command.source} is a file")
        path = command.place.load(command.source, lens=command.lens.given_lens(), extrinsics=command.lens.lens)
        return command.place.scaled(_resampled(path, command.frames, command.fps))
    if command.place.path_given():
        raise ValueError(f"--up, --level and --scale are for a path file, and {command.source} is a move")
    said = (is_actions, is_direction, is_sequence)
    if command.source not in NAMED_MOVES and not any(kind(command.source) for kind in said):
        raise ValueError(f"{command.source} is neither a file nor a move; moves are {', '.join(NAMED_MOVES)}")
    timing = given(command, "frames", "fps")
    return Trajectory.move(command.source, command.lens.given_lens() or DEFAULT_LENS, **timing, **amounts)


def _resampled(trajectory: Trajectory, frames: int | None, fps: float | None) -> Trajectory:
    return trajectory if frames is None and fps is None else trajectory.resample(frames=frames, fps=fps)
