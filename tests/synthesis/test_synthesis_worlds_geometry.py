"""Exactness of the ray caster, against closed forms and against an independent slow caster in float64."""

import math

import numpy as np
import pytest

from ucpe.synthesis.worlds import Motion, Thing, World, near_plane_depth
from ucpe.synthesis.worlds.intersect import CEILING_Y, ROOM_X0, ROOM_X1, ROOM_Z0, ROOM_Z1, WINDOW_BAR
from ucpe.synthesis.worlds.numerics import angle_of, noise_at, noise_pyramid, pulse, rough_log2
from ucpe.synthesis.worlds.shapes import Material, arch, box, cylinder, ellipsoid, sphere, tapered

EYE = 1.6
GREY = Material((0.5, 0.5, 0.5))


def inside_box(p, width, height, depth):
    return (abs(p[0]) <= width / 2) & (p[1] >= 0) & (p[1] <= height) & (abs(p[2]) <= depth / 2)


def inside_tapered(p, bottom, top, height):
    share = p[1] / height
    wide, deep = (b + (t - b) * share for b, t in zip(bottom, top, strict=True))
    return (p[1] >= 0) & (p[1] <= height) & (abs(p[0]) <= wide / 2) & (abs(p[2]) <= deep / 2)


def inside_round(p, radius, top, height):
    limit = radius + (top - radius) * p[1] / height
    return (p[1] >= 0) & (p[1] <= height) & (p[0] ** 2 + p[2] ** 2 <= limit**2)


def inside_ellipsoid(p, width, height, depth):
    return (2 * p[0] / width) ** 2 + (2 * p[1] / height - 1) ** 2 + (2 * p[2] / depth) ** 2 <= 1


def inside_arch(p, width, height, depth, gap, spring):
    hole = (abs(p[0]) < gap / 2) & ((p[1] < spring) | (p[0] ** 2 + (p[1] - spring) ** 2 < (gap / 2) ** 2))
    return inside_box(p, width, height, depth) & ~hole


SHAPES = {
    "box": (box(2, 3, 1.5, GREY), lambda p: inside_box(p, 2, 3, 1.5)),
    "pyramid": (tapered((4, 4), (0.01, 0.01), 3, GREY), lambda p: inside_tapered(p, (4, 4), (0.01, 0.01), 3)),
    "gable-roof": (tapered((4, 3), (4, 0.02), 2, GREY), lambda p: inside_tapered(p, (4, 3), (4, 0.02), 2)),
    "funnel": (tapered((1, 1), (3, 4), 2.5, GREY), lambda p: inside_tapered(p, (1, 1), (3, 4), 2.5)),
    "cylinder": (cylinder(1.2, 3, GREY), lambda p: inside_round(p, 1.2, 1.2, 3)),
    "cone": (cylinder(1.8, 3, GREY, top=0), lambda p: inside_round(p, 1.8, 0, 3)),
    "frustum": (cylinder(1.0, 2, GREY, top=1.7), lambda p: inside_round(p, 1.0, 1.7, 2)),
    "sphere": (sphere(1.5, GREY), lambda p: inside_ellipsoid(p, 3, 3, 3)),
    "ellipsoid": (ellipsoid(3, 2, 1.2, GREY), lambda p: inside_ellipsoid(p, 3, 2, 1.2)),
    "arch": (arch(4, 4, 1.4, 2, 2, GREY), lambda p: inside_arch(p, 4, 4, 1.4, 2, 2)),
}


def only(shape, position=(0.0, 0.0), yaw=0.0, motion=None):
    return World.build(objects=[Thing("cube", "red", (shape,), position, yaw, motion)])


def rays_towards(target, count, seed, spread):
    """Rays from around the target, half of them from close by, aimed near it."""
    generator = np.random.default_rng(seed)
    away = generator.normal(size=(count, 3))
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    origins = target + away * generator.uniform(4, 14, (count, 1))
    origins[:, 1] = np.minimum(origins[:, 1], EYE - 0.05)
    aims = target + generator.uniform(-spread, spread, (count, 3))
    directions = aims - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return origins.astype(np.float32), directions.astype(np.float32)


def march(origins, directions, inside, position, yaw, steps=2500, reach=20.0):
    """First entry of each ray into a solid: fixed steps, then bisection; inf where it never enters."""
    cosine, sine = math.cos(math.radians(yaw)), math.sin(math.radians(yaw))

    def solid(distance):  # (rays, n)
        x, y, z = (
            origins[:, None, axis] + distance * directions[:, None, axis] - centre
            for axis, centre in enumerate((position[0], EYE, position[1]))
        )
        return inside((cosine * x - sine * z, -y, sine * x + cosine * z))

    distance = np.arange(steps + 1) * reach / steps
    hit = solid(np.broadcast_to(distance, (len(origins), steps + 1)))
    first = hit.argmax(1)
    low, high = distance[np.maximum(first - 1, 0)][:, None], distance[first][:, None]
    for _ in range(50):
        middle = (low + high) / 2
        within = solid(middle)
        low, high = np.where(within, low, middle), np.where(within, middle, high)
    return np.where(hit.any(1), high[:, 0], np.inf)


@pytest.mark.parametrize("name", SHAPES)
def test_shape_agrees_with_a_marched_solid(name):
    shape, inside = SHAPES[name]
    position, yaw = (1.5, 9.0), 33.0
    world = only(shape, position, yaw)
    target = np.array([position[0], EYE - shape.height / 2, position[1]])
    origins, directions = (array.astype(np.float64) for array in rays_towards(target, 500, len(name), shape.reach))
    slow = march(origins, directions, inside, position, yaw)
    starts_outside = slow > 0
    ground = np.where(directions[:, 1] > 1e-9, (EYE - origins[:, 1]) / np.maximum(directions[:, 1], 1e-9), np.inf)
    picture = world.render((origins, directions, None))
    expected = np.minimum(slow, ground)
    hits = (picture.objects == 0) & starts_outside
    assert hits.sum() > 120
    both = hits & (slow < ground)
    assert np.mean(hits[starts_outside] == (slow < ground)[starts_outside]) > 0.99
    np.testing.assert_allclose(picture.depth[both], expected[both], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("box", 10 - 0.75),
        ("pyramid", 10 - 2 * (1 - EYE / 3)),
        ("gable-roof", 10 - 1.5 + (1.5 - 0.01) * EYE / 2),
        ("cylinder", 10 - 1.2),
        ("cone", 10 - 1.8 * (1 - EYE / 3)),
        ("frustum", 10 - (1.0 + 0.7 * EYE / 2)),
        ("sphere", 10 - math.sqrt(1.5**2 - 0.1**2)),
        ("ellipsoid", 10 - 0.6 * math.sqrt(1 - 0.6**2)),
    ],
)
def test_depth_straight_ahead_is_the_closed_form(name, expected):
    world = only(SHAPES[name][0], (0.0, 10.0))
    depth = world.depth((np.zeros(3), [[0.0, 0.0, 1.0]], None))
    tolerance = 0.01 if name == "pyramid" else 2e-6 * 10
    assert depth[0] == pytest.approx(expected, abs=tolerance)


def test_arch_lets_rays_through_its_passage_and_shows_its_inside():
    world = only(SHAPES["arch"][0], (0.0, 10.0))
    through = world.render((np.zeros(3), [[0.0, 0.0, 1.0]], None))
    assert through.objects[0] == -1
    slanted = np.array([0.1, -0.0, 1.0])  # meets the passage's wall x = 1 at z = 10
    inner = world.render((np.zeros(3), slanted[None], None))
    assert inner.objects[0] == 0
    assert inner.depth[0] == pytest.approx(np.linalg.norm(slanted) * 10, rel=1e-6)
    within = world.render(([[0.0, 0.0, 10.0]], [[1.0, 0.0, 0.0]], None))
    assert within.depth[0] == pytest.approx(1.0, rel=1e-6)


def test_ground_and_room_are_planes():
    down = np.array([[0.0, 1.0, 0.0], [0.0, 0.6, 0.8], [0.6, 0.0, 0.8]])
    outdoor = World.build(skyline="forest").depth((np.zeros(3), down, None))
    np.testing.assert_allclose(outdoor[:2], [EYE, EYE / 0.6], rtol=1e-6)
    world = World.build("indoor", size=(8.0, 3.0, 10.0))
    place = world.surroundings.place
    axes = np.array([[1, 0, 0], [-1, 0, 0], [0, 0, 1], [0, 0, -1], [0, 1, 0]], float)
    below = np.array([0.0, 1.0, 0.0])  # under the windows
    depth = world.depth((below, axes, None))
    np.testing.assert_allclose(depth[:4], np.abs(place[[ROOM_X1, ROOM_X0, ROOM_Z1, ROOM_Z0]]), rtol=1e-6)
    assert depth[4] == pytest.approx(EYE - 1.0, rel=1e-6)
    assert place[CEILING_Y] == pytest.approx(EYE - 3.0)


def test_windows_are_open_and_their_bars_are_not():
    world = World.build("indoor", size=(8.0, 3.4, 10.0), skyline="hills")
    wall, left, right, top, bottom = world.surroundings.windows[0]
    across, level = (left + right) / 2 + 0.3, (top + bottom) / 2 - 0.3
    bar = (left + right) / 2 + 0.5 * WINDOW_BAR
    depths = []
    for along in (across, bar):
        axis, far = (0, world.surroundings.place[ROOM_X1 if wall == 0 else ROOM_X0])
        if wall >= 2:
            axis, far = (2, world.surroundings.place[ROOM_Z1 if wall == 2 else ROOM_Z0])
        target = np.array([far, level, along]) if axis == 0 else np.array([along, level, far])
        depths.append(world.depth((np.zeros(3), (target / np.linalg.norm(target))[None], None))[0])
        assert (depths[-1] > np.linalg.norm(target) + 1) == (along == across)


@pytest.mark.parametrize("skyline", ["mountains", "hills", "forest", "city"])
def test_skyline_stands_on_its_cylinders(skyline):
    world = World.build(skyline=skyline)
    around = world.surroundings
    generator = np.random.default_rng(3)
    azimuth, elevation = generator.uniform(-np.pi, np.pi, 4000), generator.uniform(0.002, 0.35, 4000)
    origin = np.array([1.5, -0.5, -2.0])
    flat = np.stack([np.cos(elevation) * np.sin(azimuth), -np.sin(elevation), np.cos(elevation) * np.cos(azimuth)], 1)
    directions = flat.astype(np.float32).astype(np.float64)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    expected = np.full(len(directions), np.inf)
    margin = np.full(len(directions), np.inf)
    for (radius, _), profile in reversed(list(zip(around.layers, around.profiles, strict=True))):
        a = directions[:, 0] ** 2 + directions[:, 2] ** 2
        b = origin[0] * directions[:, 0] + origin[2] * directions[:, 2]
        c = origin[0] ** 2 + origin[2] ** 2 - radius**2
        distance = (-b + np.sqrt(b * b - a * c)) / a
        points = origin + distance[:, None] * directions
        position = (np.arctan2(points[:, 0], points[:, 2]) / (2 * np.pi) + 0.5) * len(profile)
        wrapped = np.append(profile, profile[0]).astype(np.float64)
        height = np.interp(position, np.arange(len(wrapped)), wrapped)
        above = EYE - points[:, 1]
        margin = np.minimum(margin, np.abs(above - height) / radius)
        expected = np.where(above < height, distance, expected)
    depth = world.depth((origin, directions, None))
    clear = margin > 1e-3 if skyline == "city" else margin > 1e-5
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(np.isinf(depth[clear]), np.isinf(expected[clear]))
    np.testing.assert_allclose(depth[clear], expected[clear], rtol=1e-5)


def test_culling_of_runs_of_rays_changes_nothing():
    world = World.sample(5, "outdoor", objects=9)
    generator = np.random.default_rng(0)
    directions = generator.normal(size=(3000, 3)).astype(np.float32)
    origins = generator.uniform(-1, 1, (3000, 3)).astype(np.float32)
    together = world.depth((origins, directions, None))
    order = np.argsort(np.arctan2(directions[:, 0], directions[:, 2]))
    np.testing.assert_array_equal(together[order], world.depth((origins[order], directions[order], None)))
    alone = [world.depth((origins[i : i + 1], directions[i : i + 1], None))[0] for i in range(0, 3000, 10)]
    np.testing.assert_array_equal(together[::10], alone)


def test_nearest_of_many_objects_is_the_nearest_of_each():
    world = World.sample(2, "outdoor", objects=8)
    generator = np.random.default_rng(1)
    directions = generator.normal(size=(4000, 3)).astype(np.float32) * [1, 0.3, 1]
    rays = (np.zeros(3), directions, None)
    single = [World.build(objects=[thing], skyline="hills").render(rays) for thing in world.objects]
    objects = np.stack([np.where(image.objects == 0, image.depth, np.inf) for image in single])
    picture = world.render(rays)
    seen = picture.objects >= 0
    assert seen.sum() > 200
    np.testing.assert_array_equal(picture.depth[seen], objects.min(0)[seen])
    np.testing.assert_array_equal(picture.objects[seen], objects.argmin(0)[seen])
    assert (objects.min(0)[~seen] >= picture.depth[~seen]).all()


def test_moving_shape_is_exact_at_every_time():
    motion = Motion(sway=(1.0, 0.5, -0.5), hop=0.8, period=3.0, phase=0.1, spin=30.0)
    world = only(SHAPES["sphere"][0], (0.0, 10.0), motion=motion)
    for time in (0.0, 0.4, 1.7, 2.9):
        wave = math.sin(2 * math.pi * (time / 3.0 + 0.1))
        centre = np.array([wave, EYE - 1.5 - 0.5 * wave - 0.8 * abs(wave), 10 - 0.5 * wave])
        depth = world.depth((np.zeros(3), (centre / np.linalg.norm(centre))[None], None), time=time)
        assert depth[0] == pytest.approx(np.linalg.norm(centre) - 1.5, rel=1e-5)


def test_clearance_is_a_lower_bound_of_the_true_distance():
    world = World.sample(11, "outdoor", objects=6)
    generator = np.random.default_rng(4)
    points = generator.uniform((-14, -6, -14), (14, 1.5, 14), (300, 3))
    bound = world.clearance(points)
    around = generator.normal(size=(400, 3))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    free = bound > 0
    assert 0.5 < free.mean() < 1.0
    for point, least in zip(points[free], bound[free], strict=True):
        assert world.depth((point, around, None)).min() >= least - 1e-4
    assert world.clearance(np.zeros(3)) == pytest.approx(EYE)
    assert world.clearance([0.0, 2.0, 0.0]) < 0


def test_near_plane_depth_is_the_median_of_lower_quartiles():
    generator = np.random.default_rng(0)
    depth = generator.uniform(1, 9, (5, 8, 12))
    depth[:, :3] = np.inf
    expected = np.median([np.quantile(frame[np.isfinite(frame)], 0.25) for frame in depth])
    assert near_plane_depth(depth) == pytest.approx(expected)
    assert near_plane_depth(depth[0]) == pytest.approx(np.quantile(depth[0][np.isfinite(depth[0])], 0.25))
    with pytest.raises(ValueError, match="only sky"):
        near_plane_depth(np.full((4, 4), np.inf))


def test_compiled_helpers_agree_with_numpy():
    generator = np.random.default_rng(0)
    x, z = generator.normal(size=(2, 500))
    np.testing.assert_allclose([angle_of(a, b) for a, b in zip(x, z, strict=True)], np.arctan2(x, z), atol=3e-8)
    assert angle_of(0.0, 0.0) == 0.0
    values = np.exp(generator.uniform(-12, 12, 200))
    np.testing.assert_allclose([rough_log2(value) for value in values], np.log2(values), atol=0.01)
    for position, duty, span in ((0.3, 0.4, 0.5), (-1.2, 0.1, 2.7), (5.95, 0.5, 0.01)):
        fine = position + span * (np.arange(200000) + 0.5) / 200000 - span / 2
        assert pulse(position, duty, span) == pytest.approx(np.mean(fine % 1 < duty), abs=1e-4)


def test_noise_tiles_and_its_levels_stay_aligned():
    noise = noise_pyramid()
    for u, v, level in ((0.1, 0.7, 0.0), (0.93, 0.999, 1.3), (-0.4, 2.2, 3.7)):
        assert noise_at(noise, u, v, level) == pytest.approx(noise_at(noise, u + 3, v - 5, level), abs=1e-5)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 32, endpoint=False)] * 2), -1).reshape(-1, 2)

    def image(level, shift):
        return np.array([noise_at(noise, u + shift, v, level) for u, v in grid])

    coarse = image(4.0, 0.0)
    shifts = np.arange(-3, 4) / 128
    match = [np.corrcoef(coarse, image(2.0, shift))[0, 1] for shift in shifts]
    assert abs(shifts[int(np.argmax(match))]) < 0.01
    assert noise_at(noise, 0.2, 0.3, 7.5) == 0.0
