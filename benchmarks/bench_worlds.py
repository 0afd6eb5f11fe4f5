"""Rays per second of `ucpe.synthesis.worlds` and of a plain eager-torch caster of the same scene, and clips per second.

    python benchmarks/bench_worlds.py

Everything runs on one thread; times are processor seconds, the best of several runs, the two casters in turn.
"""

import time
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ucpe.lenses import Pinhole
from ucpe.synthesis.worlds import World, make_thing, render_clip
from ucpe.synthesis.worlds.intersect import SUN_X
from ucpe.synthesis.worlds.solids import A0, A1, B0, B1, BLOCK, COS, ELLIPSOID, HEIGHT, SIN, X, Y, Z

HEIGHT_WIDTH = (480, 832)


def main() -> None:
    torch.set_num_threads(1)
    world = World.build(
        sky="cloudy",
        ground="grass",
        objects=[
            make_thing("tower", "red", (0.0, 13.0), 20.0),
            make_thing("pine", position=(8.0, 9.0)),
            make_thing("column", "blue", (-7.0, 8.0), 30.0),
            make_thing("ball", "yellow", (3.5, 7.5)),
        ],
    )
    shapes = len(world.packed().shapes)
    lens, height, width = Pinhole(xfov=90.0), *HEIGHT_WIDTH
    rays = lens.rays(height, width)

    def ours() -> np.ndarray:
        return world.render(rays, threads=1).depth

    def plain() -> Tensor:
        return plain_torch_caster(world, rays.origins, rays.directions)[1]

    agree = np.isclose(ours(), plain().numpy(), rtol=1e-3) | (ours() > 100)
    times = {"plain": np.inf, "ours": np.inf}
    for _ in range(5):
        times["plain"] = min(times["plain"], seconds(plain))
        times["ours"] = min(times["ours"], seconds(ours))
    rate = {name: height * width / taken / 1e6 for name, taken in times.items()}
    print(f"{shapes} shapes, {height} x {width}, one thread; depth agrees on {agree.mean():.2%} of the rays")
    print(f"plain eager torch, flat shading      {rate['plain']:6.2f} million rays/s")
    print(f"ucpe.synthesis.worlds, full shading  {rate['ours']:6.2f} million rays/s")
    print(f"ratio                                {rate['ours'] / rate['plain']:6.2f}")

    sampled = {kind: [World.sample(seed, kind) for seed in range(4)] for kind in ("outdoor", "indoor")}
    for frames, size, samples in ((17, (64, 112), 1), (17, (64, 112), 2), (17, (64, 112), 3), (81, (480, 832), 1)):
        c2w = np.tile(np.eye(4), (frames, 1, 1))
        c2w[:, 0, 3] = np.linspace(-1, 1, frames)
        for kind, worlds in sampled.items():
            chosen = worlds if size[0] < 100 else worlds[:1]
            clips = [partial(render_clip, each, lens, c2w, *size, samples=samples, threads=1) for each in chosen]
            taken = sum(min(seconds(clip) for _ in range(3)) for clip in clips) / len(clips)
            print(f"{frames} frames of {size[0]} x {size[1]}, samples={samples}, {kind:7}: {1 / taken:7.2f} clips/s")


def seconds(run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def plain_torch_caster(world: World, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Colour and depth of the same shapes as one would write them first: every ray against every shape, in float32."""
    packed, place = world.packed(), torch.from_numpy(world.surroundings.place).float()
    shapes, kinds = torch.from_numpy(packed.shapes).float(), packed.kinds
    colors = torch.from_numpy(packed.materials[:, :3]).float()
    sun = place[SUN_X : SUN_X + 3]
    nearest = torch.where(directions[..., 1] > 0, (place[0] - origins[..., 1]) / directions[..., 1], torch.inf)
    points = origins + nearest[..., None] * directions
    checks = ((points[..., 0].floor() + points[..., 2].floor()) % 2)[..., None]
    up = (-directions[..., 1:2]).clamp(0, 1)
    color = torch.where(
        torch.isfinite(nearest)[..., None],
        (0.2 + 0.1 * checks) * torch.tensor([0.6, 1.0, 0.4]),
        torch.tensor([0.7, 0.8, 0.9]) * (1 - up) + torch.tensor([0.2, 0.4, 0.8]) * up,
    )
    normal = torch.tensor([0.0, -1.0, 0.0]).expand_as(directions)
    for shape, kind, paint in zip(shapes, kinds, colors, strict=True):
        cosine, sine = shape[COS], shape[SIN]

        def turn(v: Tensor, cosine: Tensor = cosine, sine: Tensor = sine) -> Tensor:
            return torch.stack(
                [cosine * v[..., 0] - sine * v[..., 2], -v[..., 1], sine * v[..., 0] + cosine * v[..., 2]], -1
            )

        local, way = turn(origins - shape[[X, Y, Z]]), turn(directions)
        height = shape[HEIGHT]
        if kind == BLOCK:
            distance, facing = _meet_block(local, way, height, shape[A0], shape[A1], shape[B0], shape[B1])
        elif kind == ELLIPSOID:
            half = torch.stack([shape[A0], height / 2, shape[B0]])
            start, along = (local - torch.stack([0 * height, height / 2, 0 * height])) / half, way / half
            a, b, c = (along**2).sum(-1), (start * along).sum(-1), (start**2).sum(-1) - 1
            root = b * b - a * c
            distance = torch.where(root > 0, (-b - root.clamp(min=0).sqrt()) / a, torch.inf)
            facing = (start + distance[..., None] * along) / half
        else:
            distance, facing = _meet_round(local, way, height, shape[A0], shape[A1])
        closer = (distance > 1e-4) & (distance < nearest)
        nearest = torch.where(closer, distance, nearest)
        color = torch.where(closer[..., None], paint, color)
        facing = torch.stack(
            [
                cosine * facing[..., 0] + sine * facing[..., 2],
                -facing[..., 1],
                cosine * facing[..., 2] - sine * facing[..., 0],
            ],
            -1,
        )
        normal = torch.where(closer[..., None], torch.nn.functional.normalize(facing, dim=-1), normal)
    light = 0.4 + 0.7 * (normal @ sun).clamp(min=0)
    color = torch.where(torch.isfinite(nearest)[..., None], color * light[..., None], color)
    return (255 * color.clamp(0, 1) ** (1 / 2.2)).to(torch.uint8), nearest


def _meet_block(local: Tensor, way: Tensor, height: Tensor, a0, a1, b0, b1) -> tuple[Tensor, Tensor]:
    slope_x, slope_z = (a1 - a0) / height, (b1 - b0) / height
    zero, one = 0 * height, 0 * height + 1
    planes = [
        (torch.stack([one, -slope_x, zero]), a0),
        (torch.stack([-one, -slope_x, zero]), a0),
        (torch.stack([zero, -slope_z, one]), b0),
        (torch.stack([zero, -slope_z, -one]), b0),
        (torch.stack([zero, one, zero]), height),
        (torch.stack([zero, -one, zero]), zero),
    ]
    enter = torch.full(local.shape[:-1], -torch.inf).expand(way.shape[:-1])
    leave = torch.full(way.shape[:-1], torch.inf)
    facing = torch.zeros_like(way)
    for plane, limit in planes:
        value, rate = local @ plane - limit, way @ plane
        at = -value / rate
        entering = (rate < 0) & (at > enter)
        enter = torch.where(entering, at, enter)
        facing = torch.where(entering[..., None], plane, facing)
        leave = torch.where(rate > 0, torch.minimum(leave, at), leave)
    return torch.where(enter <= leave, enter, torch.inf), facing


def _meet_round(local: Tensor, way: Tensor, height: Tensor, bottom: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    slope = (top - bottom) / height
    radius = bottom + slope * local[..., 1]
    a = way[..., 0] ** 2 + way[..., 2] ** 2 - slope**2 * way[..., 1] ** 2
    b = local[..., 0] * way[..., 0] + local[..., 2] * way[..., 2] - slope * way[..., 1] * radius
    c = local[..., 0] ** 2 + local[..., 2] ** 2 - radius**2
    root = b * b - a * c
    distance = torch.where(root > 0, (-b - root.clamp(min=0).sqrt()) / a, torch.inf)
    level = local[..., 1] + distance * way[..., 1]
    distance = torch.where((level >= 0) & (level <= height), distance, torch.inf)
    point = local + distance[..., None] * way
    facing = torch.stack([point[..., 0], -slope * (bottom + slope * point[..., 1]), point[..., 2]], -1)
    for cap, limit, sign in ((height, top, 1.0), (0 * height, bottom, -1.0)):
        at = (cap - local[..., 1]) / way[..., 1]
        x, z = local[..., 0] + at * way[..., 0], local[..., 2] + at * way[..., 2]
        closer = (at > 0) & (at < distance) & (x * x + z * z <= limit * limit)
        distance = torch.where(closer, at, distance)
        facing = torch.where(closer[..., None], torch.tensor([0.0, sign, 0.0]), facing)
    return distance, facing


if __name__ == "__main__":
    main()
