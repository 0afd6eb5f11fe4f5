from itertools import pairwise

import numpy as np
import pytest
import torch

from ucpe.bench import view_synthesis_data as data
from ucpe.bench.camera_encodings import CONTESTANTS, ModelShape, anchored, find_contestant, make_encoding
from ucpe.bench.view_synthesis_model import (
    Training,
    ViewSynthesisModel,
    describe,
    error_map,
    learning_rate_share,
    patches,
    predict,
    psnr,
    random_worlds,
    train,
    unpatch,
)
from ucpe.lenses import FAMILIES
from ucpe.trajectories.rotations import angles_from_rotation

ABSOLUTE = ("raw", "plucker-token", "plucker-pixel", "raype", "rore")
LEARNED = ("raype", "rore", "rayrope")


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def clips_of(count=3, family="extreme-fisheye", seed=0):
    """Clips of noise through real cameras: for what does not depend on what is seen."""
    generator = np.random.default_rng(seed)
    lens = FAMILIES[family].sample(torch.Generator().manual_seed(seed), (count, data.VIEWS))
    valid = lens.rays(data.SIZE, data.SIZE).valid
    images = torch.from_numpy(generator.integers(0, 256, (count, data.VIEWS, data.SIZE, data.SIZE, 3), np.uint8))
    poses = torch.from_numpy(np.stack([data.random_poses(generator) for _ in range(count)]))
    return data.Triples(images * valid[..., None], valid, poses, lens)


def random_model(name, seed=0):
    """A model in which no layer is zero."""
    model = ViewSynthesisModel(find_contestant(name), seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.normal_(0, 0.1, generator=generator)
    return model


def test_the_same_seed_renders_the_same_bytes_and_another_part_the_same_cameras(tmp_path, tiny_shards):
    first, again = (data.render_shard("all", 1, tmp_path / name) for name in "ab")
    assert first.read_bytes() == again.read_bytes()
    data.render_shard("narrow", 1, tmp_path / "a")
    for name in ("all", "narrow"):
        data.render_shard(name, 0, tmp_path / "a")
    every, narrow = (data.load_clips(name, 6, tmp_path / "a") for name in ("all", "narrow"))
    assert len(every) == 6
    assert torch.equal(every.c2w, narrow.c2w)
    assert not torch.equal(every.images, narrow.images)
    assert narrow.lens.parameters["xfov"].max() <= 140
    assert not every.images[~every.valid].any()
    before = first.stat().st_mtime_ns
    data.render_shard("all", 1, tmp_path / "a")
    assert first.stat().st_mtime_ns == before


def test_test_worlds_are_never_trained_on():
    assert {part.first_seed for part in data.TRAINING_PARTS.values()} == {0}
    assert {part.first_seed for part in data.TEST_PARTS.values()} == {data.TEST_SEED}
    assert Training().clips < data.TEST_SEED


def test_what_is_missing_is_named_and_what_is_foreign_refused(tmp_path, tiny_shards):
    assert list(data.missing_shards({"all": 9, "wide": 4}, tmp_path)) == [
        ("all", 0),
        ("all", 1),
        ("all", 2),
        ("wide", 0),
    ]
    data.render_shard("all", 1, tmp_path)
    assert list(data.missing_shards({"all": 9}, tmp_path)) == [("all", 0), ("all", 2)]
    from safetensors.torch import save_file

    save_file({"images": torch.zeros(1)}, tmp_path / "all-00000.safetensors", {"format": "something else"})
    with pytest.raises(ValueError, match="something else"):
        list(data.missing_shards({"all": 9}, tmp_path))


def test_lenses_are_drawn_from_their_families_one_per_clip_or_view():
    mixed = [data.random_lens(data.PARTS["mixed"], np.random.default_rng(i)) for i in range(40)]
    single = [data.random_lens(data.PARTS["fisheye"], np.random.default_rng(i)) for i in range(40)]
    assert all(len(lens.unique(dim=0)) == 3 for lens in mixed)
    assert all(len(lens.unique(dim=0)) == 1 for lens in single)
    xfov, xi = torch.stack(single)[:, 0].unbind(-1)
    assert 140 <= xfov.min() < 150 < 170 < xfov.max() <= 180
    assert 1.05 <= xi.min() < xi.max() <= 2.0
    draws = [data.random_lens(data.PARTS["all"], np.random.default_rng(i)) for i in range(200)]
    assert 70 < sum(len(lens.unique(dim=0)) == 3 for lens in draws) < 130


def test_the_unseen_lens_sees_everywhere_and_is_no_pinhole():
    lens = data._lens(data.PARTS["brown-conrady"], torch.zeros(2))
    rays, pinhole = lens.rays(data.SIZE, data.SIZE), data.pinhole_of(lens).rays(data.SIZE, data.SIZE)
    assert rays.valid.all()
    cosine = (rays.directions * pinhole.directions).sum(-1).clamp(-1, 1)
    assert torch.rad2deg(cosine.acos()).max() > 2


def test_patches_are_cut_and_put_back():
    shape = ModelShape()
    images = torch.rand(2, 48, 48, 3)
    tokens = patches(images, shape)
    assert torch.equal(tokens[1, 6 * 2 + 5], images[1, 16:24, 40:48].flatten())
    assert torch.equal(unpatch(tokens, shape), images)


def test_pixel_rays_are_cut_like_pixels():
    clips, shape = clips_of(2), ModelShape()
    rays = make_encoding("plucker-pixel", shape).features(clips.lens, clips.c2w)
    from ucpe.encodings import plucker_rays

    whole = plucker_rays(clips.lens, clips.c2w, 48, 48)
    assert torch.allclose(rays[1, 36 + 6 * 2 + 5], whole[1, 1, 16:24, 40:48].flatten())


@pytest.mark.parametrize("name", CONTESTANTS)
def test_only_absolute_encodings_notice_the_world_frame(name, double):
    clips, model = clips_of(), random_model(name)
    here, there = (predict(model, clips, world=random_worlds(len(clips), seed)) for seed in (0, 1))
    change = (here - there).abs().max().item()
    assert change > 1e-3 if name in ABSOLUTE else change < 1e-9


@pytest.mark.parametrize("name", CONTESTANTS)
def test_tokens_that_see_nothing_and_the_wanted_view_are_not_looked_at(name):
    clips, model = clips_of(), random_model(name)
    sees, _ = describe(model.encoding, clips.lens, clips.c2w, model.shape)
    assert not sees.all()
    changed = patches(clips.images, model.shape).clone()
    changed[:, :2].flatten(1, 2)[~sees[:, :72]] = 200
    changed[:, 2] = 100
    altered = data.Triples(unpatch(changed, model.shape), clips.valid, clips.c2w, clips.lens)
    before, after = predict(model, clips), predict(model, altered)
    assert torch.allclose(before, after, atol=1e-6)
    changed[:, 0] = 0
    altered = data.Triples(unpatch(changed, model.shape), clips.valid, clips.c2w, clips.lens)
    assert not torch.allclose(before, predict(model, altered), atol=1e-3)


@pytest.mark.parametrize("name", [name for name in CONTESTANTS if name != "none"])
def test_every_encoding_tells_the_model_about_the_target_camera(name):
    clips, model = clips_of(), random_model(name)
    moved = clips.c2w.clone()
    moved[:, 2, :3, 3] += 0.5
    other = data.Triples(clips.images, clips.valid, moved, clips.lens)
    assert not torch.allclose(predict(model, clips), predict(model, other), atol=1e-4)


@pytest.mark.parametrize("name", CONTESTANTS)
def test_all_contestants_start_alike_and_additive_layers_at_zero(name):
    model, plain = ViewSynthesisModel(find_contestant(name), 3), ViewSynthesisModel(find_contestant("none"), 3)
    mine = model.state_dict()
    assert all(torch.equal(value, mine[key]) for key, value in plain.state_dict().items())
    assert name in LEARNED or all(not parameter.any() for parameter in model.encoding.parameters())


def test_error_maps_show_where_and_only_of_pixels_that_see():
    clips = clips_of()
    predicted = clips.images[:, -1].float() / 255
    predicted[:, 20, 20] += 0.1
    found = error_map(predicted, clips)
    assert found[20, 20] == pytest.approx(0.01, rel=1e-4)
    assert found[30, 30] < 1e-10
    assert torch.equal(found.isnan(), ~clips.valid[:, -1].any(0))


def test_anchoring_keeps_relative_poses_and_gravity():
    poses = clips_of().c2w
    camera, gravity = anchored(poses, "camera"), anchored(poses, "gravity")
    assert torch.allclose(camera[:, 0], torch.eye(4, dtype=poses.dtype).expand(3, 4, 4))
    for moved in (camera, gravity):
        assert torch.allclose(torch.linalg.inv(moved[:, 1]) @ moved[:, 2], torch.linalg.inv(poses[:, 1]) @ poses[:, 2])
    before, after = (angles_from_rotation(p[..., :3, :3]) for p in (poses, gravity))
    assert torch.allclose(after.pitch, before.pitch, atol=1e-6)
    assert torch.allclose(after.roll, before.roll, atol=1e-6)
    assert torch.allclose(after.yaw[:, 0], torch.zeros(3, dtype=poses.dtype), atol=1e-6)
    assert gravity[:, 0, :3, 3].abs().max() < 1e-12
    with pytest.raises(ValueError, match="anchor"):
        anchored(poses, "sun")


def test_psnr_counts_only_pixels_that_see_something():
    clips = clips_of()
    truth = clips.images[:, -1].float() / 255
    off = (truth + 0.1) * clips.valid[:, -1, ..., None] + 5 * ~clips.valid[:, -1, ..., None]
    assert torch.allclose(psnr(off, clips), torch.full((3,), 20.0).double(), atol=1e-4)


def test_learning_rate_rises_then_falls():
    settings = Training(steps=100, warmup=0.1)
    shares = [learning_rate_share(step, settings) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[9] == shares[10] == 1
    assert all(a > b for a, b in pairwise(shares[10:]))
    assert shares[-1] < 0.001


def test_training_learns_and_repeats_itself():
    clips = clips_of(4, "wide")
    clips.images[:] = 60
    clips.images[:, :, 24:] = 190
    settings = Training(steps=12, batch=2, clips=4)
    model, losses = train(find_contestant("ucpe"), clips, settings, 0)
    assert losses[-1] < 0.3 * losses[0]
    again, _ = train(find_contestant("ucpe"), clips, settings, 0)
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())
