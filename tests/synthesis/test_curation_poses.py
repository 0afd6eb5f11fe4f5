"""Camera motion of rendered panoramas, against the motion they were rendered with."""

import functools
import os
import stat
import sys
import textwrap

import cv2
import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from ucpe.lenses import Equirectangular
from ucpe.synthesis.curation.poses import SEAM, SphericalMapper, _seen_again, fit_rotation, match_features
from ucpe.synthesis.curation.stella import StellaVSLAM
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory, alignment_error, umeyama

pycolmap = pytest.importorskip("pycolmap")

LENS, HEIGHT, WIDTH, FRAMES = Equirectangular(), 256, 512, 16
MAPPER = SphericalMapper(features=1000)
MAX_ERROR = 0.005

SHOTS = {
    "forward, outdoors": (World.sample(3, "outdoor"), Trajectory.dolly(LENS, 1.2, frames=FRAMES)),
    "sideways, indoors": (World.sample(4, "indoor"), Trajectory.truck(LENS, 0.8, frames=FRAMES)),
    "turning, outdoors": (World.sample(5, "outdoor"), Trajectory.arc(LENS, 60, radius=1.2, frames=FRAMES)),
    "upwards, indoors": (World.sample(8, "indoor"), Trajectory.pedestal(LENS, -0.5, frames=FRAMES)),
    "over snow, under stars": (World.sample(9524), Trajectory.arc(LENS, 60, radius=1.0, frames=FRAMES)),
}


def film(world, camera):
    return render_clip(world, LENS, camera.c2w, HEIGHT, WIDTH, threads=1).color


@functools.cache
def footage(name):
    world, camera = SHOTS[name]
    return film(world, camera), camera.c2w.double().numpy()


@pytest.fixture(scope="module", params=SHOTS)
def shot(request):
    return footage(request.param)


def trajectory_error(track, truth):
    """Root mean square distance of positions after the best similarity, in path lengths."""
    truth = torch.from_numpy(truth[track.start : track.stop, :3, 3])
    found = torch.from_numpy(track.c2w[:, :3, 3])
    length = truth.diff(dim=0).norm(dim=1).sum()
    return float(alignment_error(umeyama(found, truth), found, truth) / length)


def rotation_error(track, truth):
    """Largest difference in degrees of rotations relative to the first frame."""
    truth = truth[track.start : track.stop, :3, :3]
    found = track.c2w[:, :3, :3]
    difference = (found[0].T @ found).transpose(0, 2, 1) @ (truth[0].T @ truth)
    return np.degrees(Rotation.from_matrix(difference).magnitude()).max()


def test_known_motion(shot):
    frames, truth = shot
    (track,) = MAPPER.track(frames)
    assert (track.start, track.stop) == (0, FRAMES) and track.moves
    assert trajectory_error(track, truth) < MAX_ERROR
    assert rotation_error(track, truth) < 0.3
    assert 0 < track.error < 0.5
    assert np.allclose(track.c2w[0], np.eye(4), atol=1e-9)


def test_a_camera_that_stands_first_and_then_moves_is_tracked():
    world, camera = World.sample(3, "outdoor"), Trajectory.dolly(LENS, 1.0, frames=6)
    poses = torch.cat([camera.c2w[:1].expand(18, 4, 4), camera.c2w])
    (track,) = MAPPER.track(render_clip(world, LENS, poses, HEIGHT, WIDTH, threads=1).color)
    assert (track.start, track.stop, track.moves) == (0, 24, True)
    assert trajectory_error(track, poses.double().numpy()) < MAX_ERROR


def test_two_keyframes_get_one_between_them():
    frames, truth = footage("forward, outdoors")
    (track,) = SphericalMapper(features=1000, keyframe_spacing=FRAMES).track(frames)
    assert (track.start, track.stop, track.moves) == (0, FRAMES, True)
    assert trajectory_error(track, truth) < MAX_ERROR


def test_a_cut_splits_into_two_tracks_and_the_same_seed_repeats_them():
    shots = [footage(name) for name in ("forward, outdoors", "sideways, indoors")]
    frames, truth = (np.concatenate([shot[part][:12] for shot in shots]) for part in range(2))
    mapper = SphericalMapper(features=800, keyframe_spacing=4)
    tracks = mapper.track(frames, seed=3)
    assert [(track.start, track.stop) for track in tracks] == [(0, 12), (12, 24)]
    assert all(trajectory_error(track, truth) < MAX_ERROR for track in tracks)
    again = mapper.track(frames, seed=3)
    assert all((a.c2w == b.c2w).all() and a.error == b.error for a, b in zip(tracks, again, strict=True))


def test_a_camera_that_only_turns_has_one_position():
    world, camera = World.sample(6, "indoor"), Trajectory.pan(LENS, 60, frames=11)
    (track,) = MAPPER.track(film(world, camera))
    assert (track.start, track.stop, track.moves) == (0, 11, False)
    assert (track.c2w[:, :3, 3] == 0).all()
    assert rotation_error(track, camera.c2w.double().numpy()) < 0.2


def test_wrong_matches_of_a_turning_camera_are_no_motion():
    camera = Trajectory.pan(LENS, 40, frames=FRAMES, pitch=15, roll=10)
    clean = film(World.sample(9534, moving=True), camera)
    noise = np.random.default_rng(9534).normal(0, 2, clean.shape)
    (track,) = SphericalMapper().track((clean + noise).round().clip(0, 255).astype(np.uint8))
    assert (track.start, track.stop, track.moves) == (0, FRAMES, False)
    assert rotation_error(track, camera.c2w.double().numpy()) < 0.2


def test_a_camera_that_stands_still_has_one_pose():
    still = film(World.sample(7, "outdoor"), Trajectory.static(LENS, frames=1))[0].astype(float)
    noise = np.random.default_rng(0).normal(0, 2, (7, HEIGHT, WIDTH, 3))
    (track,) = MAPPER.track((still + noise).clip(0, 255).astype(np.uint8))
    assert not track.moves and rotation_error(track, np.tile(np.eye(4), (7, 1, 1))) < 0.1


@pytest.mark.parametrize("frames", [1, 7])
def test_nothing_to_see_gives_no_track(frames):
    assert MAPPER.track(np.full((frames, HEIGHT, WIDTH, 3), 90, np.uint8)) == []


def test_one_frame_gives_no_track():
    assert MAPPER.track(film(World.sample(3, "indoor"), Trajectory.static(LENS, frames=1))) == []


@pytest.mark.parametrize("frames", [np.zeros((0, 8, 16, 3), np.uint8), np.zeros((2, 8, 16, 3)), np.zeros((8, 16, 3))])
def test_what_is_no_footage_is_refused(frames):
    with pytest.raises(ValueError, match=r"\(N, H, W, 3\) uint8"):
        MAPPER.track(frames)


def test_pycolmap_sees_the_sphere_as_the_lens_does():
    camera = pycolmap.Camera.create_from_model_name(1, "EQUIRECTANGULAR", 1.0, 32, 16)
    columns, rows = np.meshgrid(np.arange(32) + 0.5, np.arange(16) + 0.5)
    rays = camera.cam_ray_from_img(np.stack([columns.ravel(), rows.ravel()], 1))
    assert np.allclose(rays, LENS.rays(16, 32).directions.reshape(-1, 3), atol=1e-5)


def test_features_do_not_stop_at_the_seam():
    frame = film(World.sample(4, "indoor"), Trajectory.static(LENS, frames=1))[0]
    features, rolled = (MAPPER._detect(picture).pixels for picture in (frame, np.roll(frame, WIDTH // 2, axis=1)))
    moved = (rolled - [WIDTH / 2, 0]) % [WIDTH, HEIGHT]
    near = features[np.abs(features[:, 0] - WIDTH / 2) > WIDTH / 2 - 20]
    distance = np.linalg.norm(near[:, None] - moved[None], axis=-1).min(1)
    assert len(near) > 20 and (distance < 0.1).mean() > 0.9


def test_matches_are_mutual_and_clear():
    generator = np.random.default_rng(1)
    first = generator.integers(0, 256, (40, 128), dtype=np.uint8)
    second = np.concatenate([first[20:], generator.integers(0, 256, (30, 128), dtype=np.uint8), first[:1], first[:1]])
    found = match_features(first, second, 0.8)
    assert sorted(map(tuple, found)) == [(20 + n, n) for n in range(20)]
    assert match_features(first[:1], second, 0.8).shape == (0, 2)


def test_features_are_put_where_their_picture_is_seen_again():
    picture = cv2.GaussianBlur(np.random.default_rng(0).uniform(0, 255, (96, 160 + 2 * SEAM)), (0, 0), 2)
    picture = cv2.normalize(picture, None, 0, 255, cv2.NORM_MINMAX)
    shift = np.array([1.3, -0.6])
    moved = cv2.warpAffine(picture, np.hstack([np.eye(2), shift[:, None]]), picture.shape[::-1], flags=cv2.INTER_CUBIC)
    moved[:, :64] = picture[::-1, -64:]
    before = np.stack(np.meshgrid(np.arange(20.0, 150, 10), np.arange(20.0, 80, 10)), -1).reshape(-1, 2)
    guess = before + shift + np.random.default_rng(1).uniform(-0.6, 0.6, before.shape)
    there, seen = _seen_again(picture.round().astype(np.uint8), moved.round().astype(np.uint8), before, guess)
    same = before[:, 0] > 64 - SEAM + 10
    assert seen[same].all() and not seen[before[:, 0] < 64 - SEAM - 10].any()
    assert np.abs(there - before - shift)[same].max() < 0.1
    far_off = _seen_again(picture.round().astype(np.uint8), moved.round().astype(np.uint8), before, guess + 5)
    assert not (far_off[1] & (np.abs(far_off[0] - before - shift).max(1) > 0.1)).any()


def test_rotation_is_found_among_outliers():
    generator = np.random.default_rng(2)
    before, wild = (rays / np.linalg.norm(rays, axis=1)[:, None] for rays in generator.normal(size=(2, 200, 3)))
    truth = Rotation.random(random_state=5)
    after = np.where(np.arange(200)[:, None] < 150, truth.apply(before), wild)
    assert Rotation.from_matrix(fit_rotation(before, after).T @ truth.as_matrix()).magnitude() < 1e-3


FAKE = """
    import sys, json, pathlib
    values = dict(zip(sys.argv, sys.argv[1:]))
    images = sorted(pathlib.Path(values["--img-dir"]).iterdir())
    config = pathlib.Path(values["--config"]).read_text()
    if "model: equirectangular" not in config or "cols: 16" not in config or "Feature:" not in config:
        sys.exit("wrong config")
    localising = "--disable-mapping" in sys.argv
    if localising and pathlib.Path(values["--map-db-in"]).read_text() != "map":
        sys.exit("no map")
    if "--map-db-out" in values:
        pathlib.Path(values["--map-db-out"]).write_text("map")
    if len(images) == 30:
        placed = [n for n in range(18) if n != 12]
    else:
        placed = range(len(images)) if len(images) == 12 else []
    lines = [f"{n / 30:.15g} {n + localising} 0 0 0 0.6 0 0.8" for n in placed]
    if lines:
        (pathlib.Path(values["--eval-log-dir"]) / "frame_trajectory.txt").write_text("\\n".join(lines) + "\\n")
"""


@pytest.fixture
def stella(tmp_path):
    def make(program=FAKE, **options):
        path, vocabulary, config = tmp_path / "run_image_slam", tmp_path / "orb.fbow", tmp_path / "config.yaml"
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(program)}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        vocabulary.write_bytes(b"words")
        config.write_text("Camera:\n  model: perspective\nFeature:\n  num_levels: 8\n")
        return StellaVSLAM(vocabulary, str(path), config, min_frames=5, **options)

    return make


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a Unix script")
@pytest.mark.parametrize("localise", [True, False])
def test_stella_tracks_stop_where_it_is_lost(stella, localise):
    tracks = stella(localise=localise).track(np.zeros((30, 8, 16, 3), np.uint8))
    assert [(track.start, track.stop) for track in tracks] == [(0, 12), (13, 18), (18, 30)]
    assert tracks[1].c2w[0, 0, 3] == 13 + localise and np.isnan(tracks[0].error)
    turned = Rotation.from_quat([0, 0.6, 0, 0.8]).as_matrix()
    assert np.allclose(tracks[2].c2w[:, :3, :3], turned)


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a Unix script")
def test_stella_failures_are_told(stella, tmp_path):
    with pytest.raises(ValueError, match="code 1: out of memory"):
        stella("import sys; sys.exit('out of memory')").track(np.zeros((9, 8, 16, 3), np.uint8))
    with pytest.raises(ValueError, match=r"within 0\.2 s"):
        stella("import time; time.sleep(9)", seconds=0.2).track(np.zeros((9, 8, 16, 3), np.uint8))
    with pytest.raises(ValueError, match="run_image_slam"):
        StellaVSLAM(tmp_path / "orb.fbow", str(tmp_path / "absent" / "run_image_slam"))
    with pytest.raises(ValueError, match="no vocabulary"):
        StellaVSLAM(tmp_path / "absent.fbow", sys.executable)
