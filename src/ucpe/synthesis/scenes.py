"""Something to film: a procedural world or panoramic footage, seen by any camera at any moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from ucpe.lenses import Lens
from ucpe.synthesis.footage import Footage
from ucpe.synthesis.panoramas import Interpolation, Panorama, Projection, View
from ucpe.synthesis.worlds import World, WorldView
from ucpe.synthesis.worlds.rendering import thread_count
from ucpe.trajectories import Trajectory
from ucpe.video import planes_to_rgb

WORLD_NAME = re.compile(r"world:(\d{1,9})(?::(indoor|outdoor))?")

SAMPLES = 2
"""Number of rays across, and down, each pixel of a world."""

AHEAD = 60
"""A frame at most this far ahead is reached by decoding up to it, a further one by seeking."""

NOWHERE = -AHEAD - 1
"""Frame number of a video that is not open yet."""


class Scene(Protocol):
    """What a camera looks at."""

    has_depth: bool
    """Whether moving the camera changes what it sees."""

    def picture(
        self, lens: Lens, c2w: torch.Tensor, seconds: float, height: int, width: int, *, fast: bool = False
    ) -> np.ndarray:
        """What a lens sees at a pose (4, 4) in near-plane depths, (height, width, 3) uint8; `fast` may alias."""


def open_scene(name: str, projection: Projection | None = None) -> Scene:
    """The scene of a name: "world:SEED", "world:SEED:indoor", or the path of a panorama (image or video)."""
    found = WORLD_NAME.fullmatch(name)
    if found:
        kind: Any = found[2]
        return WorldScene(World.sample(int(found[1]), kind))
    if name.startswith("world:"):
        raise ValueError(f"a world is named world:SEED or world:SEED:indoor, such as world:7, got {name!r}")
    return PanoramaScene(Footage(name, projection))


class WorldScene:
    """A procedural world; poses are in its near-plane depths, as the models that are trained on it take them."""

    has_depth = True

    def __init__(self, world: World):
        self.world = world
        self._view: Callable[..., WorldView] = _remembered(WorldView)

    def picture(
        self, lens: Lens, c2w: torch.Tensor, seconds: float, height: int, width: int, *, fast: bool = False
    ) -> np.ndarray:
        """What a lens sees at a pose (4, 4), (height, width, 3) uint8; `fast` casts at most one ray per pixel."""
        pose = c2w.double().clone()
        pose[:3, 3] *= self.world.near_depth
        if fast:
            threads = max(thread_count(None) - 1, 1)  # one core is for who looks: a browser needs as much as the rays
            return self._view(lens, height, width).quick(self.world, pose, seconds, threads=threads)
        return self._view(lens, height, width, SAMPLES).image(self.world, pose, seconds).color


class PanoramaScene:
    """Panoramic footage: what one point sees, so only a camera's rotations show. After the end the last frame stays."""

    has_depth = False

    def __init__(self, footage: Footage, *, interpolation: Interpolation = "bilinear", antialias: bool = True):
        self.footage = footage
        make = partial(View, interpolation=interpolation, antialias=antialias)
        self._view: Callable[..., View] = _remembered(make)
        self._frames: Iterator[tuple[int, Any]] = iter(())
        self._number, self._frame = NOWHERE, None

    def picture(
        self, lens: Lens, c2w: torch.Tensor, seconds: float, height: int, width: int, *, fast: bool = False
    ) -> np.ndarray:
        """What a lens sees at a pose (4, 4), (height, width, 3) uint8, in the colours that a video player shows."""
        luma, blue, red, full_range = self._at(seconds)
        planes = self._view(lens, height, width).planes((luma, blue, red), c2w[:3, :3], full_range)
        return planes_to_rgb(planes, self.footage.info.colors)

    def _at(self, seconds: float) -> tuple[Panorama, Panorama, Panorama, bool]:
        footage = self.footage
        wanted = 0 if footage.still else min(int(seconds * footage.info.fps + 1e-6), footage.frames - 1)
        if not self._number < wanted <= self._number + AHEAD and wanted != self._number:
            numbers = range(wanted, footage.frames)
            self._number, self._frames = NOWHERE, zip(numbers, footage.planes(numbers))
        while self._number != wanted:
            self._number, self._frame = next(self._frames)
        assert self._frame is not None
        return self._frame


def pictures(scene: Scene, camera: Trajectory, height: int, width: int, *, start: float = 0.0) -> Iterator[np.ndarray]:
    """Every frame (height, width, 3) uint8 that a camera films of a scene from `start` seconds on."""
    for frame in range(len(camera)):
        lens = camera.lens_at(frame)
        yield scene.picture(lens, camera.c2w[frame], start + frame / camera.fps, height, width)


def _remembered(make: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, remembering the last lens seen: while only the pose changes, nothing is made anew."""
    last: dict[Any, Any] = {}

    def get(lens: Lens, *size: int) -> Any:
        key = (str(lens.to_dict()), *size)
        if key not in last:
            last.clear()
            last[key] = make(lens, *size)
        return last[key]

    return get
