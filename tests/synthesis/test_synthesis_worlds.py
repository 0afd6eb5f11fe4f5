"""Worlds as data: captions, repeatability, light, motion, parallax, and lenses of every kind."""

import colorsys
import re

import numpy as np
import pytest
import torch

from ucpe.lenses import UCM, Equirectangular, OmniStereo, Pinhole
from ucpe.synthesis.worlds import World, WorldView, caption, make_thing, near_plane_depth, render_clip, vocabulary
from ucpe.synthesis.worlds.intersect import cast
from ucpe.synthesis.worlds.shading import resolve, shade
from ucpe.synthesis.worlds.surfaces import paint
from ucpe.synthesis.worlds.words import COLORS, GROUNDS, SKIES, SKYLINES, UNCOLORED

EYE = 1.6
SEEDS = range(12)


def panorama(world, height=96, origin=(0.0, 0.0, 0.0), **options):
    rays = Equirectangular().rays(height, 2 * height)
    return world.render((np.array(origin), rays.directions, rays.valid), **options)


def poses(*positions, yaw=0.0):
    c2w = np.tile(np.eye(4), (len(positions), 1, 1))
    c2w[:, :3, 3] = positions
    cosine, sine = np.cos(np.radians(yaw)), np.sin(np.radians(yaw))
    c2w[:, 0, 0] = c2w[:, 2, 2] = cosine
    c2w[:, 0, 2], c2w[:, 2, 0] = sine, -sine
    return c2w


def decode(color):
    """Linear light of sRGB bytes."""
    value = np.asarray(color) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def test_same_seed_gives_the_same_bytes_whatever_the_threads():
    for kind in ("outdoor", "indoor"):
        view = WorldView(Equirectangular(), 96, 192, samples=2)
        first = view.image(World.sample(4, kind, moving=True), np.eye(4), 0.3, threads=1)
        for threads in (1, 2, 3):
            again = view.image(World.sample(4, kind, moving=True), np.eye(4), 0.3, threads=threads)
            for one, other in zip(first, again, strict=True):
                assert one.tobytes() == other.tobytes()


def test_seeds_give_different_worlds():
    pictures = [panorama(World.sample(seed), 32).color.tobytes() for seed in range(20)]
    assert len(set(pictures)) == 20
    captions = {World.sample(seed).caption for seed in range(20)}
    assert len(captions) == 20
    assert {World.sample(seed).kind for seed in range(20)} == {"outdoor", "indoor"}


def test_compiled_code_has_one_version_for_all_inputs():
    world = World.sample(1)
    world.render(([[0.0, 0.0, 0.0]], np.broadcast_to([[0.0, 0.1, 1.0]], (4, 3)), np.broadcast_to(True, (4,))))
    world.render((torch.zeros(3), torch.ones(2, 3, 4, 3, dtype=torch.float64), None))
    render_clip(World.sample(2, "indoor"), UCM(xfov=200.0, xi=2.3), torch.eye(4)[None], 24, 24, samples=2)
    for kernel in (cast, paint, shade, resolve):
        assert len(kernel.signatures) == 1


@pytest.mark.parametrize("kind", ["outdoor", "indoor"])
def test_captions_name_what_is_there_and_seen(kind):
    words = set(vocabulary())
    for seed in SEEDS:
        world = World.sample(seed, kind, moving=seed % 3 == 0, objects=None if seed % 2 else 7)
        assert set(re.findall(r"[a-z]+", world.caption)) <= words
        for word in (world.sky, world.ground):
            assert word in world.caption
        assert sum(entry["count"] for entry in world.description["objects"]) == len(world.objects)
        for thing in world.objects:
            assert thing.name in world.caption and (
                thing.color is None or f"{thing.color} {thing.name}" in world.caption
            )
            assert (thing.color is None) == (thing.name in UNCOLORED)
        reach = 0.5 * world.near_depth
        for origin in ((0, 0, 0), (reach, 0, 0), (-reach, 0, 0), (0, 0, reach), (0, 0, -reach)):
            seen = panorama(world, 128, origin).objects
            pixels = np.bincount(seen[seen >= 0], minlength=len(world.objects))
            assert (pixels >= 12).all(), (seed, world.caption, pixels)


def test_caption_reads_as_written():
    things = [
        make_thing("tower", "red", (0, 12)),
        make_thing("pine", position=(8, 8)),
        make_thing("pine", position=(-8, 8)),
    ]
    world = World.build(sky="overcast", ground="sand", skyline="hills", objects=things)
    assert world.caption == "a red tower and two pines on sand, hills on the horizon, under an overcast sky"
    assert world.description["objects"][1] == {"name": "pine", "color": None, "moving": False, "count": 2}
    assert caption(world.describe([])) == "an empty plain on sand, hills on the horizon, under an overcast sky"
    indoor = World.build("indoor", sky="clear", ground="tiled", walls="blue", objects=[make_thing("sofa", "orange")])
    assert indoor.caption == "an orange sofa in a room with a tiled floor and blue walls, a clear sky outside"


def test_caption_of_a_clip_names_only_what_it_shows():
    things = [make_thing("tower", "red", (0, 14)), make_thing("cube", "blue", (0, -14))]
    world = World.build(ground="grass", objects=things)
    ahead = render_clip(world, Pinhole(xfov=80.0), poses((0, 0, 0)), 48, 84)
    behind = render_clip(world, Pinhole(xfov=80.0), poses((0, 0, 0), yaw=180.0), 48, 84)
    assert world.caption_of(ahead).startswith("a red tower on grass")
    assert world.caption_of(behind).startswith("a blue cube on grass")


@pytest.mark.parametrize("word", COLORS)
def test_objects_have_the_colour_that_is_said(word):
    world = World.build(sky="overcast", ground="paving", objects=[make_thing("silo", word, (0, 8))])
    picture = WorldView(Pinhole(xfov=60.0), 60, 100, samples=2).image(world, np.eye(4))
    red, green, blue = np.median(decode(picture.color[picture.objects == 0]), 0)
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    true_hue, _, _ = colorsys.rgb_to_hls(*decode(COLORS[word]))
    if word in ("white", "black"):
        assert saturation < 0.2
        assert (green > 0.3) == (word == "white")
    else:
        assert saturation > 0.25
        assert abs((hue - true_hue + 0.5) % 1 - 0.5) < 0.05


def test_skies_and_grounds_look_like_their_words():
    sky, soil = {}, {}
    for word in SKIES:
        picture = panorama(World.build(sky=word, skyline="hills"), 48)
        sky[word] = decode(picture.color[np.isinf(picture.depth)]).mean(0)
    for word in GROUNDS:
        picture = panorama(World.build(ground=word, sky="overcast"), 48)
        soil[word] = decode(picture.color[30:]).mean((0, 1))
    assert sky["clear"][2] > 2 * sky["clear"][0]
    assert sky["cloudy"][0] > 1.2 * sky["clear"][0]
    assert np.ptp(sky["overcast"]) < 0.2 * sky["overcast"].mean()
    assert sky["sunset"][0] > sky["sunset"][1]
    assert sky["twilight"].mean() < 0.4 * min(sky[word].mean() for word in SKIES if word != "twilight")
    assert soil["grass"][1] > 1.2 * soil["grass"][0] > soil["grass"][2]
    assert soil["sand"][0] > soil["sand"][1] > soil["sand"][2] and soil["earth"][0] > 2 * soil["earth"][2]
    assert soil["snow"].mean() > 1.15 * soil["paving"].mean() and np.ptp(soil["paving"]) < 0.1


@pytest.mark.parametrize("skyline", SKYLINES)
def test_horizon_lies_at_latitude_zero(skyline):
    height = 360
    world = World.build(skyline=skyline, ground="sand", sky="clear")
    picture = panorama(world, height)
    latitude = ((np.arange(height) + 0.5) / height - 0.5) * np.pi
    ground = EYE / np.sin(np.maximum(latitude, 1e-9))
    near = ground < 100
    np.testing.assert_allclose(
        picture.depth[near], np.broadcast_to(ground[near, None], picture.depth[near].shape), rtol=1e-5
    )
    assert (picture.depth[: height // 2 - 1] > 140).all()
    rows = decode(picture.color).astype(float)
    jump = np.abs(np.diff(rows, axis=0)).sum(-1)
    around = jump[height // 2 - 30 : height // 2 + 30]
    steepest = np.argsort(around, axis=0)[-3:] - 29
    assert np.mean((np.abs(steepest) <= 2).any(0)) > 0.8


def test_yaw_is_told_by_the_skyline():
    world = World.build(skyline="forest", sky="overcast")
    view = WorldView(Equirectangular(), 180, 360, samples=2)
    band = decode(view.image(world, np.eye(4)).color[84:89]).mean(0)
    hue = band / band.sum(1, keepdims=True)
    quarters = hue.reshape(8, -1, 3).mean(1)
    apart = np.linalg.norm(quarters[:, None] - quarters[None], axis=-1) + np.eye(8)
    assert apart.min() > 0.008 and apart[0, 4] > 0.05


@pytest.mark.parametrize("kind", ["outdoor", "indoor"])
def test_the_middle_is_free_to_move_in(kind):
    for seed in SEEDS:
        world = World.sample(seed, kind, moving=True, objects=None if seed % 2 else 8)
        reach = 2 * world.near_depth
        angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        circle = np.stack([reach * np.sin(angle), np.zeros(48), reach * np.cos(angle)], 1)
        for time in (0.0, 0.7, 1.9):
            assert world.clearance(circle * np.linspace(0, 1, 5)[:, None, None], time).min() > 0.1, (
                seed,
                world.caption,
            )


def test_near_depth_is_that_of_the_panorama_at_the_origin():
    world = World.sample(3, "outdoor")
    assert world.near_depth == pytest.approx(near_plane_depth(panorama(world, 96).depth), rel=1e-3)
    assert 1.0 < world.near_depth / EYE < 1.3


def test_only_moving_objects_move():
    world = World.sample(3, "outdoor", moving=True)
    moving = {index for index, thing in enumerate(world.objects) if thing.motion}
    assert moving and "moving" in world.caption
    now, later = panorama(world, time=0.2), panorama(world, time=1.3)
    for index in range(len(world.objects)):
        changed = (now.objects == index) != (later.objects == index)
        covered = np.isin(now.objects, list(moving)) | np.isin(later.objects, list(moving))
        assert index in moving or not (changed & ~covered).any()
    for index in moving:
        assert (now.objects != later.objects)[(now.objects == index) | (later.objects == index)].any()
    still = World.sample(3, "outdoor")
    assert panorama(still, time=0.0).color.tobytes() == panorama(still, time=5.0).color.tobytes()
    clip = render_clip(world, Pinhole(xfov=90.0), poses(*[(0, 0, 0)] * 3), 48, 84, fps=2.0, start=1.0)
    frame = render_clip(world, Pinhole(xfov=90.0), poses((0, 0, 0)), 48, 84, start=2.0)
    assert clip.color[2].tobytes() == frame.color[0].tobytes()
    assert clip.color[0].tobytes() != clip.color[2].tobytes()


@pytest.mark.parametrize("kind", ["outdoor", "indoor"])
def test_moving_the_camera_moves_the_picture_as_depth_says(kind):
    height, width = 120, 200
    world = World.sample(8, kind, objects=5)
    lens = Pinhole(xfov=80.0)
    c2w = poses((0, 0, 0), (0.35, -0.1, 0.2), yaw=-4.0)
    c2w[0] = np.eye(4)
    here, there = (render_clip(world, lens, c2w[i : i + 1], height, width, samples=3) for i in (0, 1))
    directions = lens.rays(height, width).directions.numpy().astype(np.float64)
    finite = np.isfinite(here.depth[0])
    points = directions[finite] * here.depth[0][finite][:, None]
    local = (points - c2w[1, :3, 3]) @ c2w[1, :3, :3]
    pixels, seen = (value.numpy() for value in lens.project(torch.from_numpy(local), height, width))
    column, row = np.floor(pixels).astype(int).T
    inside = seen & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    column, row = column[inside], row[inside]
    distance = np.linalg.norm(local[inside], axis=1)
    same = np.abs(there.depth[0][row, column] - distance) < 0.03 * distance
    assert same.mean() > 0.85
    apart = np.abs(here.color[0][finite][inside].astype(int) - there.color[0][row, column].astype(int)).max(1)[same]
    assert np.median(apart) <= 8 and np.mean(apart < 30) > 0.9
    shuffled = np.abs(here.color[0][finite][inside].astype(int) - there.color[0][row, column][::-1].astype(int)).max(1)
    assert np.median(shuffled) > 3 * np.median(apart)


@pytest.mark.parametrize("kind", ["outdoor", "indoor"])
def test_supersampling_keeps_the_light_and_removes_aliasing(kind):
    world = World.sample(6, kind, objects=5)
    lens = Pinhole(xfov=90.0)
    one, two, many = (render_clip(world, lens, poses((0, 0, 0)), 64, 112, samples=samples) for samples in (1, 2, 6))
    light = [decode(image.color).mean() for image in (one, two, many)]
    assert light[0] == pytest.approx(light[2], rel=0.02) and light[1] == pytest.approx(light[2], rel=0.01)
    errors = [np.abs(image.color.astype(int) - many.color.astype(int)).mean() for image in (one, two)]
    assert errors[1] < 0.6 * errors[0]
    np.testing.assert_array_equal(one.depth, two.depth)
    np.testing.assert_array_equal(one.objects, many.objects)


def test_pictures_are_neither_burnt_nor_black():
    for seed in range(24):
        light = decode(panorama(World.sample(seed), 48).color)
        assert (light.max(-1) > 0.995).mean() < 0.02, seed
        assert 0.02 < light.mean() < 0.75, seed


def test_rays_of_any_shape_see_the_same():
    world = World.sample(9, "outdoor")
    directions = torch.nn.functional.normalize(torch.randn(2, 3, 5, 7, 3, generator=torch.manual_seed(0)), dim=-1)
    origins = 0.1 * torch.randn(2, 3, 5, 7, 3)
    grid = world.render((origins, directions, None), widths=0.002)
    flat = world.render(
        (origins.reshape(-1, 3), directions.reshape(-1, 3), torch.ones(210, dtype=torch.bool)), widths=0.002
    )
    assert grid.color.shape == (2, 3, 5, 7, 3) and grid.depth.shape == grid.valid.shape == (2, 3, 5, 7)
    np.testing.assert_array_equal(grid.color.reshape(-1, 3), flat.color)
    np.testing.assert_array_equal(grid.depth.ravel(), flat.depth)
    scaled = world.render((origins, 3 * directions, None), widths=0.002)
    np.testing.assert_allclose(scaled.depth, grid.depth, rtol=1e-5)
    assert world.render((np.zeros(3), np.zeros((0, 3)), None)).color.shape == (0, 3)


def test_rays_with_their_own_origins_are_cameras_of_their_own():
    world = World.sample(10, "outdoor")
    rays = Pinhole(xfov=70.0).rays(24, 40)
    shift = np.array([0.4, -0.2, 0.3])
    moved = render_clip(world, Pinhole(xfov=70.0), poses(shift), 24, 40)
    own = world.render((np.broadcast_to(shift, (24, 40, 3)), rays.directions, rays.valid))
    np.testing.assert_array_equal(own.color, moved.color[0])
    np.testing.assert_allclose(own.depth, moved.depth[0], rtol=1e-5)


def test_lens_per_frame_and_invalid_pixels():
    world = World.sample(12, "outdoor")
    lens = UCM(xfov=torch.tensor([90.0, 180.0, 200.0]), xi=torch.tensor([0.2, 1.5, 2.3]))
    c2w = poses((0, 0, 0), (0.2, 0, 0), (0.4, 0, 0))
    clip = render_clip(world, lens, c2w, 48, 48, samples=2)
    for frame in range(3):
        alone = render_clip(world, lens[frame], c2w[frame : frame + 1], 48, 48, samples=2)
        np.testing.assert_array_equal(clip.color[frame], alone.color[0])
        np.testing.assert_array_equal(clip.depth[frame], alone.depth[0])
    outside = ~clip.valid
    assert outside[2].any() and not outside[0].any()
    assert (
        (clip.color[outside] == 0).all() and np.isinf(clip.depth[outside]).all() and (clip.objects[outside] == -1).all()
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: World.sample(0, "underwater"), "kind must be 'outdoor' or 'indoor', got 'underwater'"),
        (lambda: World.sample(0, objects=40), "0 to 12 objects, got 40"),
        (lambda: World.build(sky="green"), "unknown sky 'green'; choose from clear"),
        (lambda: World.build(ground="lava"), "unknown ground 'lava'"),
        (lambda: World.build(skyline="sea"), "unknown skyline 'sea'"),
        (lambda: World.build("indoor", walls="beige"), "unknown colour 'beige'"),
        (lambda: make_thing("dragon", "red"), "unknown object 'dragon'"),
        (lambda: make_thing("tower"), "a tower needs a colour word"),
        (lambda: make_thing("pine", "red"), "a pine has its own colour"),
        (lambda: World.build().render((np.zeros(3), np.ones((4, 2)), None)), "directions"),
        (lambda: World.build().render((np.zeros(3), np.full((4, 3), np.nan), None)), "finite"),
        (lambda: WorldView(Pinhole(xfov=60.0), 4, 4, samples=0), "samples must be"),
        (lambda: World.build().render((np.zeros(3), np.ones((4, 3)), None), threads=0), "threads must be"),
        (
            lambda: render_clip(World.build(), Pinhole(xfov=70.0), np.eye(4), 8, 8),
            r"c2w must be finite and \(N, 4, 4\)",
        ),
        (
            lambda: render_clip(World.build(), UCM(xfov=torch.ones(5) * 90, xi=0.5), poses((0, 0, 0)), 8, 8),
            "does not fit",
        ),
    ],
)
def test_bad_input_is_told_clearly(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_structure_from_motion_recovers_the_cameras(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    cv2 = pytest.importorskip("cv2")
    height, width, frames = 240, 416, 7
    world = World.sample(0, "outdoor")
    swing = np.linspace(-1, 1, frames)
    c2w = np.concatenate([poses((1.2 * s, -0.3 * s, 0.6 * np.cos(2 * s)), yaw=-8 * s) for s in swing])
    clip = render_clip(world, Pinhole(xfov=75.0), c2w, height, width, samples=2)
    (tmp_path / "images").mkdir()
    for index, image in enumerate(clip.color):
        cv2.imwrite(str(tmp_path / "images" / f"{index}.png"), image[..., ::-1])
    focal = width / 2 / np.tan(np.radians(37.5))
    reader = pycolmap.ImageReaderOptions(
        camera_model="PINHOLE", camera_params=f"{focal},{focal},{width / 2},{height / 2}"
    )
    database = tmp_path / "database.db"
    pycolmap.extract_features(
        database, tmp_path / "images", camera_mode=pycolmap.CameraMode.SINGLE, reader_options=reader
    )
    pycolmap.match_exhaustive(database)
    fixed = {"ba_refine_focal_length": False, "ba_refine_principal_point": False, "ba_refine_extra_params": False}
    models = pycolmap.incremental_mapping(database, tmp_path / "images", tmp_path, {**fixed, "min_model_size": 3})
    model = max(models.values(), key=lambda found: found.num_reg_images())
    assert model.num_reg_images() == frames
    estimate = np.zeros((frames, 3, 4))
    for image in model.images.values():
        estimate[int(image.name[0])] = image.cam_from_world().inverse().matrix()
    relative = estimate[:1, :, :3].transpose(0, 2, 1) @ estimate[:, :, :3]
    true_relative = c2w[:1, :3, :3].transpose(0, 2, 1) @ c2w[:, :3, :3]
    cosine = (np.einsum("nij,nij->n", relative, true_relative) - 1) / 2
    assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).max() < 0.5
    path = estimate[:, :, 3] - estimate[:, :, 3].mean(0)
    truth = c2w[:, :3, 3] - c2w[:, :3, 3].mean(0)
    rotation, spectrum, basis = np.linalg.svd(truth.T @ path)
    flip = np.array([1, 1, np.sign(np.linalg.det(rotation @ basis))])
    aligned = (spectrum * flip).sum() / (path**2).sum() * path @ ((rotation * flip) @ basis).T
    assert np.linalg.norm(aligned - truth, axis=1).max() < 0.03 * np.linalg.norm(np.ptp(truth, axis=0))


def test_plain_worlds_have_large_tiles_a_smooth_sky_and_the_same_geometry():
    for seed in SEEDS:
        world = World.sample(seed, style="plain")
        picture = panorama(world, 128)
        assert world.kind == "outdoor" and "cloudy" not in world.caption
        light = decode(picture.color).mean(-1)
        sky = np.isinf(picture.depth)
        steps = np.abs(np.diff(light, axis=1))[sky[:, 1:] & sky[:, :-1]]
        assert np.percentile(steps, 99) < 0.02
        ground = (picture.objects < 0) & np.isfinite(picture.depth)
        near, far = (ground & (picture.depth > low) & (picture.depth < high) for low, high in ((2, 5), (25, 45)))
        flat = np.where(ground, light, np.nan)
        ripple = np.abs(flat[:, 1:] - flat[:, :-1])
        assert np.nanmax(ripple[near[:, 1:]]) > 2 * np.nanpercentile(ripple[far[:, 1:]], 90)


def test_a_plain_world_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="outdoor"):
        World.sample(0, "indoor", style="plain")
    with pytest.raises(ValueError, match="style"):
        World.sample(0, style="flat")


@pytest.mark.parametrize("lens", [UCM(xfov=190.0, xi=1.2), OmniStereo(eye="left")], ids=lambda lens: lens.kind)
@pytest.mark.parametrize("kind", ["outdoor", "indoor"])
def test_a_quick_picture_differs_from_one_ray_a_pixel_only_where_nothing_has_an_edge(kind, lens):
    world, view = World.sample(3, kind), WorldView(lens, 135, 241)
    pose = np.eye(4)
    image, quick = view.image(world, pose), view.quick(world, pose)
    assert (quick[::2, ::2] == image.color[::2, ::2]).all() and (quick[~image.valid] == 0).all()
    wrong = np.abs(quick.astype(int) - image.color).max(-1)
    assert 0 < (wrong > 0).mean() < 0.75 and (wrong > 40).mean() < 0.01
    assert (quick == view.quick(world, pose, threads=1)).all()
