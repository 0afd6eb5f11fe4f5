"""Procedural worlds: what is in them, what they are called, and what any camera sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from ucpe.synthesis.worlds import words as vocabulary
from ucpe.synthesis.worlds.intersect import A0, HEIGHT, RADIUS, X, Y, Z
from ucpe.synthesis.worlds.placement import furnish, scatter
from ucpe.synthesis.worlds.rendering import (
    IDENTITY,
    Caster,
    WorldImage,
    array,
    finish,
    ray_widths,
    thread_count,
)
from ucpe.synthesis.worlds.shapes import Packed, Thing, pack
from ucpe.synthesis.worlds.surroundings import EYE_HEIGHT, Surroundings, outdoors, room

Kind = Literal["outdoor", "indoor"]


class RayMap(Protocol):
    """The part of a lens that rendering needs."""

    def rays(self, height: int, width: int) -> Any:
        """(origins, directions, valid) of an image, in the camera frame."""


@dataclass(frozen=True)
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
    def sample(cls, seed: int, kind: Kind | None = None, moving: bool = False, objects: int | None = None) -> World:
        """A random world; the same arguments always give the same one.

        `objects` is how many there are (2 or 3 outdoors, 3 to 5 indoors, unless told); with `moving` one or two of them move.
        """
        generator = np.random.default_rng([seed, 7])
        if kind is None:
            kind = "outdoor" if generator.random() < 0.75 else "indoor"
        if kind not in ("outdoor", "indoor"):
            raise ValueError(f"kind must be 'outdoor' or 'indoor', got {kind!r}")
        words = vocabulary.FLOORS if kind == "indoor" else vocabulary.GROUNDS
        sky, skyline = str(generator.choice(vocabulary.SKIES)), str(generator.choice(vocabulary.SKYLINES))
        ground = str(generator.choice(words))
        walls = str(generator.choice([word for word in vocabulary.COLORS if word != "black"]))
        if kind == "indoor":
            surroundings = room(sky, ground, walls, skyline, generator)
            things = furnish(surroundings, walls, generator, moving, objects)
            return cls(kind, sky, ground, skyline, walls, things, surroundings, seed)
        things = scatter(ground, generator, moving, objects)
        return cls(kind, sky, ground, skyline, None, things, outdoors(sky, ground, skyline, generator), seed)

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
            return cls(
                kind, sky, ground, skyline, walls, tuple(objects), room(sky, ground, walls, skyline, generator, size), seed
            )
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
        """The description with only the objects of these indices (for what one camera sees, say)."""
        counts: dict[tuple[str, str | None, bool], int] = {}
        for index in indices:
            thing = self.objects[index]
            key = (thing.name, thing.color, thing.motion is not None)
            counts[key] = counts.get(key, 0) + 1
        things = [
            {"name": name, "color": color, "moving": moving, "count": count}
            for (name, color, moving), count in counts.items()
        ]
        words: dict[str, Any] = {"kind": self.kind, "sky": self.sky, "ground": self.ground, "skyline": self.skyline}
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
        points = array(points, np.float64)
        place = self.surroundings.place
        free = place[0] - points[..., 1]
        if self.kind == "indoor":
            walls = (points[..., 0] - place[2], place[3] - points[..., 0], points[..., 2] - place[4], place[5] - points[..., 2])
            free = np.minimum.reduce([free, points[..., 1] - place[6], *walls])
        packed = self.packed(time)
        for row in packed.shapes:
            reach = np.sqrt(max(row[RADIUS] ** 2 - (row[HEIGHT] / 2) ** 2, row[A0] ** 2))
            side = np.hypot(points[..., 0] - row[X], points[..., 2] - row[Z]) - reach
            rise = np.maximum(row[Y] - row[HEIGHT] - points[..., 1], points[..., 1] - row[Y])
            outside = np.hypot(np.maximum(side, 0), np.maximum(rise, 0))
            free = np.minimum(free, outside + np.minimum(np.maximum(side, rise), 0))
        return free

    def packed(self, time: float = 0.0) -> Packed:
        """Tables of all shapes at a time in seconds."""
        return pack(self.objects, float(self.surroundings.place[0]), time)

    def render(
        self, rays: Any, time: float = 0.0, samples: int = 1, *, widths: Any = None, threads: int | None = None
    ) -> WorldImage:
        """What rays (origins, directions, valid) in world coordinates see at a time in seconds.

        Arrays or tensors: origins broadcast to directions (..., 3); valid (...) may be None. For a grid of rays (..., H, W, 3)
        textures are filtered to the angle between neighbours and samples > 1 casts samples x samples rays interpolated
        between them; depth is always that of the ray itself. `widths` (radians) replaces the estimated angles.
        """
        origins, directions, valid = unpack_rays(rays)
        _check_samples(samples)
        count = thread_count(threads)
        caster = Caster(self, time, count)
        lead = valid.shape
        if widths is None:
            widths = ray_widths(directions, valid) if len(lead) >= 2 else np.zeros(1, np.float32)
        widths = array(widths, np.float32)
        flat_widths = widths.ravel() if widths.size == 1 else np.ascontiguousarray(np.broadcast_to(widths, lead)).ravel()
        flat = (origins.reshape(-1, 3), directions.reshape(-1, 3), valid.ravel())
        if samples == 1:
            linear, depth, met = caster.color(*flat, flat_widths, IDENTITY)
            color = finish(linear, flat[2], 1, valid.size, 1, flat[2], count)
        else:
            depth, met = caster.depth(*flat, IDENTITY)
            fine = finer_rays(origins, directions, valid, samples)
            height, width = lead[-2:]
            fine_widths = flat_widths / samples
            if fine_widths.size > 1:
                blocks = fine_widths.reshape(lead).repeat(samples, -1).repeat(samples, -2)
                fine_widths = np.ascontiguousarray(blocks).ravel()
            linear, _, _ = caster.color(fine[0].reshape(-1, 3), fine[1].reshape(-1, 3), fine[2].ravel(), fine_widths, IDENTITY)
            rows = valid.size // width
            color = finish(linear, fine[2].ravel(), samples, rows, width, flat[2], count)
        return WorldImage(color.reshape(*lead, 3), depth.reshape(lead), valid, caster.owners(met).reshape(lead))

    def depth(self, rays: Any, time: float = 0.0, *, threads: int | None = None) -> np.ndarray:
        """Distance (...) in metres along rays (origins, directions, valid), inf for sky; faster than `render`."""
        origins, directions, valid = unpack_rays(rays)
        caster = Caster(self, time, thread_count(threads))
        depth, _ = caster.depth(origins.reshape(-1, 3), directions.reshape(-1, 3), valid.ravel(), IDENTITY)
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

    Each pixel averages samples x samples exact rays of the lens; depth (N, H, W) is along the ray of the pixel's centre.
    """
    poses = array(c2w, np.float64)
    if poses.ndim != 3 or poses.shape[1:] not in ((4, 4), (3, 4)) or not np.isfinite(poses).all():
        raise ValueError(f"c2w must be finite and (N, 4, 4), got shape {poses.shape}")
    _check_samples(samples)
    batch = tuple(getattr(lens, "batch_shape", ()))
    if batch not in ((), (1,), (len(poses),)):
        raise ValueError(f"a lens of batch shape {batch} does not fit {len(poses)} poses")
    if batch == (1,):
        lens, batch = lens[0], ()  # type: ignore[index]
    count = thread_count(threads)
    shape = (len(poses), height, width)
    color, depth = np.empty((*shape, 3), np.uint8), np.empty(shape, np.float32)
    valid, objects = np.empty(shape, bool), np.empty(shape, np.int16)
    for frame, pose in enumerate(poses):
        if frame == 0 or batch:
            now = lens[frame] if batch else lens  # type: ignore[index]
            origins, directions, seen = unpack_rays(now.rays(height, width))
            fine = (origins, directions, seen) if samples == 1 else unpack_rays(now.rays(height * samples, width * samples))
            widths = ray_widths(fine[1], fine[2]).ravel()
            flat = (origins.reshape(-1, 3), directions.reshape(-1, 3), seen.ravel())
            fine_flat = (fine[0].reshape(-1, 3), fine[1].reshape(-1, 3), fine[2].ravel())
        caster = Caster(world, start + frame / fps, count)
        linear, distance, met = caster.color(*fine_flat, widths, pose)
        if samples > 1:
            distance, met = caster.depth(*flat, pose)
        color[frame] = finish(linear, fine_flat[2], samples, height, width, flat[2], count).reshape(height, width, 3)
        depth[frame] = distance.reshape(height, width)
        objects[frame] = caster.owners(met).reshape(height, width)
        valid[frame] = seen
    return WorldImage(color, depth, valid, objects)


def near_plane_depth(depth: Any) -> float:
    """Near-plane depth of a clip (N, H, W) or frame (H, W): 25th percentile of finite depths per frame, median over frames."""
    depth = array(depth, np.float64)
    frames = depth.reshape(-1, *depth.shape[-2:]) if depth.ndim > 2 else depth[None]
    near = [np.percentile(frame[np.isfinite(frame)], 25) for frame in frames if np.isfinite(frame).any()]
    if not near:
        raise ValueError("no finite depth: the camera sees only sky, so the clip has no near-plane depth")
    return float(np.median(near))


def unpack_rays(rays: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(origins (..., 3) or (1, 3), directions (..., 3), valid (...)) as contiguous float32 and bool arrays."""
    origins, directions, valid = rays
    directions = array(directions, np.float32)
    origins = array(origins, np.float32)
    if directions.shape[-1:] != (3,) or origins.shape[-1:] != (3,):
        raise ValueError(f"rays need origins and directions (..., 3), got {origins.shape} and {directions.shape}")
    if origins.size == 3 or not np.any(origins):
        origins = origins.reshape(-1, 3)[:1]
    else:
        origins = np.ascontiguousarray(np.broadcast_to(origins, directions.shape))
    if valid is None:
        valid = np.ones(directions.shape[:-1], bool)
    else:
        valid = np.ascontiguousarray(np.broadcast_to(array(valid, bool), directions.shape[:-1]))
    return np.ascontiguousarray(origins), directions, valid


def finer_rays(
    origins: np.ndarray, directions: np.ndarray, valid: np.ndarray, samples: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rays of a grid samples times finer on both axes, interpolated from each ray and its valid neighbours."""
    if valid.ndim < 2:
        raise ValueError("samples > 1 needs a grid of rays (..., H, W, 3); pass the finer rays yourself or samples=1")
    steps = (np.arange(samples) + 0.5) / samples - 0.5
    fields = [directions] if len(origins.reshape(-1, 3)) == 1 else [directions, origins]
    results = []
    for values in fields:
        down, right = _slope(values, valid, -3), _slope(values, valid, -2)
        *lead, height, width, _ = values.shape
        fine = np.empty((*lead, height, samples, width, samples, 3), np.float32)
        for i, down_step in enumerate(steps):
            for j, right_step in enumerate(steps):
                fine[..., :, i, :, j, :] = values + np.float32(down_step) * down + np.float32(right_step) * right
        results.append(fine.reshape(*lead, height * samples, width * samples, 3))
    fine_valid = valid.repeat(samples, -1).repeat(samples, -2)
    return (results[1] if len(results) > 1 else origins), results[0], np.ascontiguousarray(fine_valid)


def _slope(values: np.ndarray, valid: np.ndarray, axis: int) -> np.ndarray:
    """Change per pixel along an axis from the valid neighbours on both sides (zero where there is none)."""
    size = values.shape[axis]
    if size < 2:
        return np.zeros_like(values)
    step = np.diff(values, axis=axis)
    both = np.take(valid, range(size - 1), axis + 1) & np.take(valid, range(1, size), axis + 1)
    step = np.where(both[..., None], step, 0)
    edge = np.zeros_like(np.take(values, [0], axis))
    none = np.zeros_like(np.take(valid, [0], axis + 1))
    total = np.concatenate([step, edge], axis) + np.concatenate([edge, step], axis)
    count = np.concatenate([both, none], axis + 1).astype(np.float32) + np.concatenate([none, both], axis + 1)
    return total / np.maximum(count, 1)[..., None]


def _check_samples(samples: int) -> None:
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number of at least 1, got {samples!r}")


__all__ = ["EYE_HEIGHT", "World", "near_plane_depth", "render_clip"]
