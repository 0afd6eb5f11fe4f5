"""One window on a shot: the moment and keyframe it is at, what it looks at, and its pictures. Knows no browser."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

import cv2
import numpy as np
import torch

from ucpe.lenses import Lens
from ucpe.studio import edits
from ucpe.studio.drawing import ABOVE_HEIGHT, ABOVE_LENS, ABOVE_WIDTH, around, overlay_paths
from ucpe.studio.shot import Key, Shot
from ucpe.studio.store import Document, Store
from ucpe.synthesis.scenes import PanoramaScene, Scene, WorldScene, open_scene
from ucpe.trajectories.rotations import rotation_between

LIVE_PIXELS = 480 * 270
"""Pixels of a picture while something is dragged; the still picture that follows has all of the shot's."""

UPLOAD = "upload:"
"""How the scene of a shot names a file of the studio's uploads."""

STEP, TURN, ZOOM = 0.05, 3.0, 1.05
"""What a key does: near-plane depths, degrees, focal length."""

MOVES: dict[str, Callable[[Key, float], Key]] = {
    "w": lambda key, size: edits.walked(key, forward=size * STEP),
    "s": lambda key, size: edits.walked(key, forward=-size * STEP),
    "a": lambda key, size: edits.walked(key, right=-size * STEP),
    "d": lambda key, size: edits.walked(key, right=size * STEP),
    "q": lambda key, size: edits.walked(key, up=-size * STEP),
    "e": lambda key, size: edits.walked(key, up=size * STEP),
    "r": lambda key, size: edits.turned(key, roll=-size * TURN),
    "f": lambda key, size: edits.turned(key, roll=size * TURN),
    "ArrowLeft": lambda key, size: edits.turned(key, yaw=-size * TURN),
    "ArrowRight": lambda key, size: edits.turned(key, yaw=size * TURN),
    "ArrowUp": lambda key, size: edits.turned(key, pitch=size * TURN),
    "ArrowDown": lambda key, size: edits.turned(key, pitch=-size * TURN),
    "+": lambda key, size: edits.zoomed(key, ZOOM**size),
    "-": lambda key, size: edits.zoomed(key, ZOOM**-size),
}
"""What each key of the keyboard does to the camera; with shift, four times as much."""


@dataclass(frozen=True)
class Move:
    """Where the pointer is in the picture through the lens, and how far it went since, in pixels of the shot."""

    x: float
    y: float
    dx: float
    dy: float


class Window:
    """The state of one browser tab."""

    def __init__(self, store: Store, document: Document):
        self.store, self.document = store, document
        self.frame = 0
        self.free: Key | None = None
        self.selected: int | None = 0
        self.orbit = around(document.shot)
        self.overlays = {"horizon", "latitudes"}
        self._scenes: dict[str, tuple[Scene, Scene]] = {}
        self._lock = Lock()

    @property
    def shot(self) -> Shot:
        """The shot as it is now."""
        return self.document.shot

    def view(self) -> Key:
        """The camera shown: off the path while looking around, otherwise the one at the current moment."""
        return self.free or edits.view_at(self.shot, self.frame)

    def place(self) -> str:
        """Where the camera shown is, in words."""
        if self.free:
            where = "off the path: not kept until it is a keyframe (K)"
        else:
            where = "on the path" if self.selected is None else f"keyframe {self.selected + 1} of {len(self.shot.keys)}"
        view = self.view()
        return " · ".join(
            [where, *(f"{name} {round(getattr(view, name), 1) + 0.0:.1f}°" for name in ("pitch", "yaw", "roll"))]
        )

    def camera(self) -> tuple[Lens, torch.Tensor]:
        """Lens and pose (4, 4) of the camera shown: on the path, the very ones that `ucpe render` takes."""
        if self.free:
            return self.free.optics(), self.free.pose()
        return self.shot.camera.lens_at(self.frame), self.shot.camera.c2w[self.frame]

    def look(self, view: Key, tag: str) -> None:
        """Look from there: changes the keyframe of the moment, or leaves the path where there is none."""
        if self.free is None and self.shot.key_at(self.frame) is not None:
            self.document.edit(edits.put_key(self.shot, view), tag)
        else:
            self.free = view

    def go(self, frame: float) -> None:
        """Go to a moment of the path."""
        self.frame = min(max(round(frame), 0), self.shot.last_frame)
        self.free = None
        self.selected = self.shot.key_at(self.frame)

    def choose(self, index: int) -> None:
        """Go to a keyframe."""
        index = min(max(index, 0), len(self.shot.keys) - 1)
        self.go(self.shot.keys[index].frame)

    def add_key(self) -> None:
        """Make what is looked at a keyframe of this moment."""
        self.document.edit(edits.put_key(self.shot, replace(self.view(), frame=float(self.frame))))
        self.go(self.frame)

    def follow(self) -> None:
        """After an edit, stay within the shot."""
        self.frame = min(self.frame, self.shot.last_frame)
        self.selected = self.shot.key_at(self.frame)

    def drag(self, move: Move) -> Key:
        """The camera turned so that what was under the pointer stays under it."""
        view, (lens, c2w) = self.view(), self.camera()
        pixels = torch.tensor([[move.x - move.dx, move.y - move.dy], [move.x, move.y]], dtype=torch.float64)
        rays = lens.unproject(pixels, self.shot.height, self.shot.width)
        if not rays.valid.all():
            return view
        turn = rotation_between(rays.directions[1], rays.directions[0])
        forward = (c2w[:3, :3] @ turn)[:, 2].tolist()
        pitch = math.degrees(math.asin(min(max(-forward[1], -1.0), 1.0)))
        yaw = math.degrees(math.atan2(forward[0], forward[2]))
        yaw += 360 * round((view.yaw - yaw) / 360)
        return replace(view, pitch=pitch, yaw=yaw)

    def picture(self, exact: bool) -> tuple[bytes, list[str]]:
        """What the camera sees, and the lines over it: the very pixels of `ucpe render` (PNG), or a quick JPEG."""
        shot, (lens, c2w) = self.shot, self.camera()
        height, width = shot.height, shot.width
        lines = overlay_paths(lens, c2w, height, width, self.overlays)
        if not exact and height * width > LIVE_PIXELS:
            scale = math.sqrt(LIVE_PIXELS / (height * width))
            height, width = (max(2, round(side * scale / 2) * 2) for side in (height, width))
        with self._lock:
            picture = self.scenes()[0].picture(lens, c2w, self.frame / shot.fps, height, width, fast=not exact)
        return encode(picture, exact), lines

    def above(self) -> bytes:
        """The world from where the path is looked at; nothing for a panorama, which has no outside."""
        with self._lock:
            scene = self.scenes()[1]
            seconds = self.frame / self.shot.fps
            pose, size = self.orbit.key().pose(), (ABOVE_HEIGHT, ABOVE_WIDTH)
            picture = scene.picture(ABOVE_LENS, pose, seconds, *size, fast=True)
        return encode(picture // 2 + 110, exact=False)

    def warm_up(self) -> None:
        """Open the scene and make a first picture, away from the page; what fails shows on the page later."""
        with contextlib.suppress(ValueError, OSError):
            self.picture(exact=False)

    def scenes(self) -> tuple[Scene, Scene]:
        """The scene of the shot, once for each of the two cameras that look at it."""
        return self._scenes.get(self.shot.scene) or self.open_scene(self.shot.scene)

    def try_scene(self, name: str) -> list[str]:
        """Open a scene and look at it once, so that what is broken is found before it is shown; gives what to know."""
        shot = self.shot
        with self._lock:
            scene = self.open_scene(name)[0]
            scene.picture(shot.camera.lens_at(0), shot.camera.c2w[0], 0.0, shot.height, shot.width, fast=True)
            return scene.footage.notes if isinstance(scene, PanoramaScene) else []

    def caption(self) -> str | None:
        """What the world of the shot shows, as a prompt; None for a panorama, and for a file that is gone."""
        with contextlib.suppress(ValueError, OSError):
            scene = self.scenes()[0]
            return scene.world.caption if isinstance(scene, WorldScene) else None
        return None

    def open_scene(self, name: str) -> tuple[Scene, Scene]:
        """The scene of a name, kept beside the one before; only worlds and files that were uploaded here."""
        if name.startswith(UPLOAD):
            scene = open_scene(str(self.store.upload(name.removeprefix(UPLOAD))))
        elif name.startswith("world:"):
            scene = open_scene(name)
        else:
            raise ValueError(f"a scene of the studio is world:NUMBER or an uploaded file, got {name[:40]!r}")
        opened = scene, WorldScene(scene.world) if isinstance(scene, WorldScene) else scene
        self._scenes = {**dict(list(self._scenes.items())[-1:]), name: opened}
        return opened

    @property
    def floor(self) -> float | None:
        """Where to draw a grid below the path, in near-plane depths; None where the world shows its own floor."""
        with contextlib.suppress(ValueError, OSError):
            if self.scenes()[0].has_depth:
                return None
        return 0.5


def encode(picture: np.ndarray, exact: bool) -> bytes:
    """A picture (H, W, 3) uint8 as an exact PNG or a quick JPEG."""
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1] if exact else [cv2.IMWRITE_JPEG_QUALITY, 85]
    done, data = cv2.imencode(".png" if exact else ".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    assert done
    return data.tobytes()
