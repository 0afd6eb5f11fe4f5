import json

import pytest
import torch
from diffusers import AutoencoderKLWan
from recipes.desk.pairs import MIRROR, Clips, LinearLatents, Options, load, pass_latents_through, train
from recipes.desk.principal_encoder import fit_encoder

from ucpe import CameraAdapter, CameraPipeline, Trajectory
from ucpe.desk import FPS
from ucpe.desk.clips import load_shard, render_shard
from ucpe.desk.model import autoencoder_config, make_transformer
from ucpe.training.encoded import encode_video, to_model_range


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    render_shard(0, 0, folder, samples=1, style="plain", clips=4)
    return folder


@pytest.fixture(scope="module")
def vae(data, tmp_path_factory):
    torch.manual_seed(0)
    model = AutoencoderKLWan(**autoencoder_config(17, 8, channels=24))
    fit_encoder(model, to_model_range(load_shard(data / "clips-00000.safetensors").video))
    folder = tmp_path_factory.mktemp("autoencoder") / "vae"
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
@torch.no_grad()
def clips(data, vae):
    return Clips(data, LinearLatents(AutoencoderKLWan.from_pretrained(vae), load_shard(next(data.iterdir())).video), 32)


def drawn_whole(clips, wanted, sides=(False, True)):
    """A whole clip with a caption, run forwards, and whether it is mirrored."""
    shard = clips.all[0]
    for seed in range(200):
        latents, captions, condition = clips.draw(1, True, torch.Generator().manual_seed(seed))
        first = clips.latents(shard.video[wanted][:1][None])[0]
        for mirrored in sides:
            start = clips.latents(shard.video[wanted].flip(2)[:1][None])[0] if mirrored else first
            if captions == [shard.captions[wanted]] and torch.equal(latents[0, :, 0], start):
                return latents, condition, mirrored
    raise AssertionError("never drawn")


@torch.no_grad()
def test_drawn_latents_are_those_of_the_autoencoder(clips, data, vae):
    latents, _, _ = drawn_whole(clips, 1, sides=(False,))
    video = to_model_range(load_shard(data / "clips-00000.safetensors").video[1:2])
    expected = encode_video(AutoencoderKLWan.from_pretrained(vae), video)
    assert (latents - expected).square().mean() < 2e-3 * expected.var()


@pytest.mark.parametrize("mirrored", [False, True])
def test_drawn_cameras_are_those_of_the_adapter(clips, data, mirrored):
    """Also of a mirrored clip: the camera whose picture is the mirror image."""
    _, condition, _ = drawn_whole(clips, 1, sides=(mirrored,))
    stored = load_shard(data / "clips-00000.safetensors")
    side = MIRROR if mirrored else torch.eye(4)
    camera = Trajectory((side @ stored.c2w[1] @ side).double(), stored.lens(1), FPS)
    adapter = CameraAdapter.for_transformer(make_transformer(), heads=4, head_dim=32)
    expected = adapter.encode(camera, 64, 112)
    torch.testing.assert_close(condition.features, expected.features, atol=1e-5, rtol=0)
    for name in ("blocks", "inverse", "cosine", "sine"):
        torch.testing.assert_close(
            getattr(condition.operator, name), getattr(expected.operator, name), atol=1e-5, rtol=0
        )
    valid = condition.operator.valid
    assert valid.all() if expected.operator.valid is None else torch.equal(valid, expected.operator.valid)


def test_what_a_mirrored_clip_sees_is_mirrored(clips):
    here, there = (side["features"].unflatten(2, (4, 7)).flip(3) for side in clips.all[0].sides)
    across = torch.tensor([-1.0, 1.0, 1.0])  # Up leans to the other side, and latitude stays
    torch.testing.assert_close(here.flip(3), there * across, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_fresh_model_starts_by_passing_its_input_through():
    torch.manual_seed(0)
    transformer = make_transformer(24).eval()
    pass_latents_through(transformer)
    noisy = torch.randn(1, 24, 2, 8, 14)
    made = transformer(noisy, torch.tensor([900.0]), torch.zeros(1, 40, 96), return_dict=False)[0]
    assert torch.corrcoef(torch.stack([noisy.flatten(), made.flatten()]))[0, 1] > 0.8


@pytest.mark.slow
def test_a_stopped_training_continues_and_its_model_generates(data, vae, tmp_path):
    options = Options(data, tmp_path, fresh=True, autoencoder=vae, minutes=0.02, batch=2, pairs_until=0.3)
    train(options)
    before = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    train(Options(**{**vars(options), "minutes": 0.06}))
    after = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(after) > len(before) and after[: len(before)] == before
    assert any("whole" in row for row in after) and any("pair" in row for row in after)
    camera = Trajectory.pan(load_shard(data / "clips-00000.safetensors").lens(0), degrees=10, frames=17, fps=FPS)
    video = CameraPipeline.from_pretrained(tmp_path / "model")("a red tower", camera, num_inference_steps=1).videos[0]
    assert video.frames.shape == (17, 64, 112, 3)
    pipe, model = load(Options(data, tmp_path / "again", model=tmp_path / "model"))
    assert pipe.vae.config.z_dim == 24 and model.adapter.config["heads"] == 4
