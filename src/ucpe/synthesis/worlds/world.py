"""Procedural worlds: what is in them, what they are called, and what any camera sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from ucpe.synthesis.worlds import words as vocabulary
from ucpe.synthesis.worlds.intersect import CEILING_Y, GROUND_Y, ROOM_X0, ROOM_X1, ROOM_Z0, ROOM_Z1
from ucpe.synthesis.worlds.objects import plain as plain_thing
from ucpe.synthesis.worlds.placement import furnish, scatter
from ucpe.synthesis.worlds.rays import array, ray_widths, unpack_rays
from ucpe.synthesis.worlds.rendering import Caster, FlatRays, WorldImage, in_threads, thread_count
from ucpe.synthesis.worlds.shapes import Packed, Thing, pack
from ucpe.synthesis.worlds.solids import A0, A1, ARCH, B0, B1, BLOCK, COS, HEIGHT, SIN, X, Y, Z
from ucpe.synthesis.worlds.surroundings import Surroundings, outdoors, room
from ucpe.synthesis.worlds.surroundings import plain as plain_surroundings

Kind = Literal["outdoor", "indoor"]
Style = Literal["textured", "plain"]

IDENTITY = np.eye(3, 4)


class RayMap(Protocol):
    """The part of a lens that rendering needs."""

    def rays(self, height: int, width: int) -> Any:
        """(origins, directions, valid) of an image, in the camera frame."""


@dataclass(frozen=True, eq=False)
class World:
    """A scene around the origin: x right, y down, z forward, in metres; the ground lies 1.6 m below.

    Build one with `World.sample` (by seed) or `World.build` (by name).
    """

    kind: Kind
    sky: str
    ground: str
    skyline: str
    walls: str | None
    objects: tuple[Thing, ...]
    surroundings: Surroundings
    seed: int = 0

    @classmethod
    def sample(
        cls,
        seed: int,
        kind: Kind | None = None,
        moving: bool = False,
        objects: int | None = None,
        style: Style = "textured",
    ) -> World:
        """A random world; the same arguments always give the same one.

        `objects` is their number (by default 2 or 3 outdoors, 4 to 6 indoors); with `moving` one or two of them move.
        The "plain" style is for outdoor worlds: no texture, tiles on the ground, a smooth sky.
        """
        generator = np.random.default_rng([seed, 7])
        if style not in ("textured", "plain"):
            raise ValueError(f"style must be 'textured' or 'plain', got {style!r}")
        if style == "plain":
            kind = kind or "outdoor"
            if kind == "indoor":
                raise ValueError("the plain style is for outdoor worlds; leave out kind='indoor' or style='plain'")
        if kind is None:
            kind = "outdoor" if generator.random() < 0.75 else "indoor"
        if kind not in ("outdoor", "indoor"):
            raise ValueError(f"kind must be 'outdoor' or 'indoor', got {kind!r}")
        words = vocabulary.FLOORS if kind == "indoor" else vocabulary.GROUNDS
        skies = vocabulary.PLAIN_SKIES if style == "plain" else vocabulary.SKIES
        sky, skyline = str(generator.choice(skies)), str(generator.choice(vocabulary.SKYLINES))
        ground = str(generator.choice(words))
        walls = str(generator.choice([word for word in vocabulary.COLORS if word != "black"]))
        if kind == "indoor":
            surroundings = room(sky, ground, walls, skyline, generator)
            things = furnish(surroundings, walls, generator, moving, objects)
            return cls(kind, sky, ground, skyline, walls, things, surroundings, seed)
        things = scatter(ground, generator, moving, objects)
        around = outdoors(sky, ground, skyline, generator)
        if style == "plain":
            things, around = tuple(plain_thing(thing) for thing in things), plain_surroundings(around)
        return cls(kind, sky, ground, skyline, None, things, around, seed)

    @classmethod
    def build(
        cls,
        kind: Kind = "outdoor",
        *,
        sky: str = "clear",
        ground: str | None = None,
        skyline: str = "mountains",
        walls: str = "white",
        objects: Sequence[Thing] = (),
        size: tuple[float, float, float] | None = None,
        seed: int = 0,
    ) -> World:
        """A world of named parts with the given objects (see `make_thing`); the seed varies only its details.

        `size` is the (width, height, depth) of an indoor room in metres.
        """
        generator = np.random.default_rng([seed, 11])
        if kind == "indoor":
            ground = ground or "wooden"
            around = room(sky, ground, walls, skyline, generator, size)
            return cls(kind, sky, ground, skyline, walls, tuple(objects), around, seed)
        if kind != "outdoor":
            raise ValueError(f"kind must be 'outdoor' or 'indoor', got {kind!r}")
        ground = ground or "grass"
        return cls(kind, sky, ground, skyline, None, tuple(objects), outdoors(sky, ground, skyline, generator), seed)

    @property
    def caption(self) -> str:
        """One true sentence about the world."""
        return vocabulary.caption(self.description)

    @property
    def description(self) -> dict[str, Any]:
        """Words for sky, ground, skyline (or walls) and objects: kind, sky, ground, skyline, walls, objects."""
        return self.describe(range(len(self.objects)))

    def describe(self, indices: Sequence[int]) -> dict[str, Any]:
        """The description with only the objects of these indices, such as those that one camera sees."""
        counts: dict[tuple[str, str | None, bool], int] = {}
        for index in indices:
            thing = self.objects[index]
            key = (thing.name, thing.color, thing.motion is not None)
            counts[key] = counts.get(key, 0) + 1
        things = [
            {"name": name, "color": color, "moving": moving, "count": count}
            for (name, color, moving), count in counts.items()
        ]
        words: dict[str, Any] = {name: getattr(self, name) for name in ("kind", "sky", "ground", "skyline")}
        if self.kind == "indoor":
            words["walls"] = self.walls
        return {**words, "objects": things}

    def caption_of(self, image: WorldImage, share: float = 0.004) -> str:
        """The caption naming only objects that fill at least `share` of the image's (or clip's) pixels."""
        seen = image.objects[image.valid & (image.objects >= 0)]
        counts = np.bincount(seen, minlength=len(self.objects))
        enough = np.flatnonzero(counts >= max(share * image.valid.sum(), 1))
        return vocabulary.caption(self.describe([int(index) for index in enough]))

    @cached_property
    def near_depth(self) -> float:
        """Near-plane depth in metres at the origin: the 25th percentile over an equirectangular view."""
        height = 96
        latitude = (np.arange(height) + 0.5) / height * np.pi - np.pi / 2
        longitude = (np.arange(2 * height) + 0.5) / height * np.pi - np.pi
        lat, lon = np.meshgrid(latitude, longitude, indexing="ij")
        directions = np.stack([np.cos(lat) * np.sin(lon), np.sin(lat), np.cos(lat) * np.cos(lon)], -1)
        return near_plane_depth(self.depth((np.zeros(3), directions, None)))

    def clearance(self, points: Any, time: float = 0.0) -> np.ndarray:
        """Lower bound (...) of the distance in metres from points (..., 3) to any surface; negative inside or below."""
        x, y, z = np.moveaxis(array(points, np.float64), -1, 0)
        place = self.surroundings.place
        free = place[GROUND_Y] - y
        if self.kind == "indoor":
            walls = (x - place[ROOM_X0], place[ROOM_X1] - x, z - place[ROOM_Z0], place[ROOM_Z1] - z)
            free = np.minimum.reduce([free, y - place[CEILING_Y], *walls])
        packed = self.packed(time)
        for row, kind in zip(packed.shapes, packed.kinds, strict=True):
            across, along = x - row[X], z - row[Z]
            if kind in (BLOCK, ARCH):
                wide, deep = (row[A0], row[B0]) if kind == ARCH else (max(row[A0], row[A1]), max(row[B0], row[B1]))
                side = np.abs(row[COS] * across - row[SIN] * along) - wide
                end = np.abs(row[SIN] * across + row[COS] * along) - deep
            else:
                side = end = np.hypot(across, along) - max(row[A0], row[A1], row[B0])
            rise = np.maximum(row[Y] - row[HEIGHT] - y, y - row[Y])
            flat = np.hypot(np.maximum(side, 0), np.maximum(end, 0)) if kind in (BLOCK, ARCH) else np.maximum(side, 0)
            inside = np.minimum(np.maximum(np.maximum(side, end), rise), 0)
            free = np.minimum(free, np.hypot(flat, np.maximum(rise, 0)) + inside)
        return free

    def packed(self, time: float = 0.0) -> Packed:
        """Tables of all shapes at a time in seconds."""
        packed = pack((*self.objects, *self.surroundings.fixtures), self.surroundings.place[GROUND_Y], time)
        packed.owners[packed.owners >= len(self.objects)] = -1
        return packed

    def render(self, rays: Any, time: float = 0.0, *, widths: Any = None, threads: int | None = None) -> WorldImage:
        """What rays (origins, directions, valid) in world coordinates see at a time in seconds.

        Arrays or tensors: origins broadcast to directions (..., 3); valid (...) may be None. For a grid of rays
        (..., H, W, 3) textures are filtered to the angle between neighbours; `widths` (radians) replaces these angles.
        `render_clip` casts several rays per pixel.
        """
        origins, directions, valid = unpack_rays(rays)
        if widths is None:
            widths = ray_widths(directions, valid) if valid.ndim >= 2 else 0.0
        widths = array(np.broadcast_to(array(widths, np.float32), valid.shape), np.float32)
        caster = Caster(self, time, threads)
        flat = _flat(origins, directions, valid)
        depth, objects, light = caster.see(flat, IDENTITY, widths.ravel())
        color = caster.bytes(light, flat[2], flat[2], valid.shape[-1] if valid.ndim >= 2 else 1, 1)
        shape = valid.shape
        return WorldImage(color.reshape(*shape, 3), depth.reshape(shape), valid, objects.reshape(shape))

    def depth(self, rays: Any, time: float = 0.0, *, threads: int | None = None) -> np.ndarray:
        """Distance (...) in metres along rays (origins, directions, valid), inf for sky; faster than `render`."""
        origins, directions, valid = unpack_rays(rays)
        depth, *_ = Caster(self, time, threads).see(_flat(origins, directions, valid), IDENTITY)
        return depth.reshape(valid.shape)


def render_clip(
    world: World,
    lens: RayMap,
    c2w: Any,  # (N, 4, 4)
    height: int,
    width: int,
    fps: float = 16.0,
    samples: int = 1,
    *,
    start: float = 0.0,
    threads: int | None = None,
) -> WorldImage:
    """A clip of N frames of height x width through a lens (or one lens per frame, by its batch dimension).

    Each pixel averages samples x samples exact rays of the lens; depth (N, H, W) is along the pixel's central ray.
    """
    poses = array(c2w, np.float64)
    if poses.ndim != 3 or poses.shape[1:] not in ((4, 4), (3, 4)) or not np.isfinite(poses).all():
        raise ValueError(f"c2w must be finite and (N, 4, 4), got shape {poses.shape}")
    _check_samples(samples)
    batch = tuple(getattr(lens, "batch_shape", ()))
    if batch not in ((), (len(poses),)):
        raise ValueError(f"a lens of batch shape {batch} does not fit {len(poses)} poses")
    shape = (len(poses), height, width)
    clip = WorldImage(
        np.empty((*shape, 3), np.uint8), np.empty(shape, np.float32), np.empty(shape, bool), np.empty(shape, np.int16)
    )
    view = WorldView(lens[0] if batch else lens, height, width, samples)  # type: ignore[index]
    for frame, pose in enumerate(poses):
        if frame and batch:
            view = WorldView(lens[frame], height, width, samples)  # type: ignore[index]
        image = view.image(world, pose, start + frame / fps, threads=threads)
        for whole, part in zip(clip, image):
            whole[frame] = part
    return clip


class WorldView:
    """A lens at an image size, ready to look at worlds from any pose: its rays are computed once."""

    def __init__(self, lens: RayMap, height: int, width: int, samples: int = 1):
        _check_samples(samples)
        fine = unpack_rays(lens.rays(height * samples, width * samples))
        centre = fine if samples == 1 else unpack_rays(lens.rays(height, width))
        self.widths = ray_widths(*fine[1:]).ravel()
        self.shape, self.samples, self.valid = (height, width), samples, centre[2]
        self.fine, self.centre = _flat(*fine), _flat(*centre)

    def image(self, world: World, pose: Any, time: float = 0.0, *, threads: int | None = None) -> WorldImage:
        """What the lens sees at a camera-to-world pose (4, 4) in metres and a time in seconds."""
        caster = Caster(world, time, threads)
        pose = np.ascontiguousarray(array(pose, np.float64)[:3])
        depth, owner, light = caster.see(self.fine, pose, self.widths)
        if self.samples > 1:
            depth, owner, _ = caster.see(self.centre, pose)
        color = caster.bytes(light, self.fine[2], self.centre[2], self.shape[1], self.samples)
        return WorldImage(
            color.reshape(*self.shape, 3), depth.reshape(self.shape), self.valid, owner.reshape(self.shape)
        )

    def quick(self, world: World, pose: Any, time: float = 0.0, *, threads: int | None = None) -> np.ndarray:
        """The colours (H, W, 3) uint8 of `image` at one sample per pixel; casts one ray in four on smooth surfaces."""
        caster = Caster(world, time, threads=1)
        pose = np.ascontiguousarray(array(pose, np.float64)[:3])
        height, width = self.shape
        color = np.empty((height, width, 3), np.uint8)

        def run(first: int, last: int) -> None:
            start, stop = 2 * first, min(2 * last, height)
            end = min(stop + 1, height)  # pixels of odd rows lie between two even ones
            rows = slice(start * width, end * width)
            origins, directions, valid = self.centre
            rays = origins if len(origins) == 1 else origins[rows], directions[rows], valid[rows]
            light = caster.quick_color(rays, self.widths[rows], pose, (end - start, width))
            strip = caster.bytes(light, rays[2], rays[2], width, 1).reshape(-1, width, 3)
            color[start:stop] = strip[: stop - start]

        in_threads(run, (height + 1) // 2, thread_count(threads))
        return color


def near_plane_depth(depth: Any) -> float:
    """Near-plane depth of a clip (N, H, W) or frame (H, W): 25th percentile of finite depths, median over frames."""
    depth = array(depth, np.float64)
    frames = depth.reshape(-1, *depth.shape[-2:]) if depth.ndim > 2 else depth[None]
    near = [np.percentile(frame[np.isfinite(frame)], 25) for frame in frames if np.isfinite(frame).any()]
    if not near:
        raise ValueError("no finite depth: the camera sees only sky, so the clip has no near-plane depth")
    return float(np.median(near))


def _flat(origins: np.ndarray, directions: np.ndarray, valid: np.ndarray) -> FlatRays:
    return origins.reshape(-1, 3), directions.reshape(-1, 3), valid.ravel()


def _check_samples(samples: int) -> None:
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number of at least 1, got {samples!r}")
