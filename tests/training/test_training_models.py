"""Base models load from folders, see what their pipelines would show them, and end up where generation finds them."""

import json
import shutil

import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanTransformer3DModel

from ucpe.adapters import load_adapter
from ucpe.generation.pipeline import CameraPipeline
from ucpe.training.base_models import BaseModel, find_folder
from ucpe.training.checkpoints import load_checkpoint
from ucpe.training.denoiser import Batch
from ucpe.training.dry_run import dry_run
from ucpe.training.encoded import EncodedClips
from ucpe.training.export import export
from ucpe.training.loop import make_accelerator, train
from ucpe.training.memory import activation_bytes, estimate_memory, example_batch, saved_bytes
from ucpe.training.recipes import RECIPES
from ucpe.training.runs import run
from ucpe.training.steps import TrainingSteps, make_batch


def recorded_calls(transformer):
    """What a transformer is called with, from now on."""
    calls = []
    transformer.register_forward_pre_hook(lambda module, args, kwargs: calls.append(kwargs), with_kwargs=True)
    return calls


def test_a_given_first_frame_has_timestep_zero_per_token_as_the_pipeline_has(tiny_recipe, ti2v, encoded):
    recipe = tiny_recipe(ti2v, first_frame=1.0, drop_text=0.0)
    clips, model = encoded(recipe)
    batch = TrainingSteps(recipe, clips, model.adapter, model.expand_timesteps)[0][0]
    assert torch.equal(batch.noisy[:, :, 0], batch.latents[:, :, 0])
    ours = recorded_calls(model.transformer)
    model(batch)

    pipe = WanImageToVideoPipeline.from_pretrained(ti2v, image_encoder=None, image_processor=None)
    theirs = recorded_calls(pipe.transformer)
    picture = clips.source.clip(0).pictures.video(5, 32, 48)[0].numpy()
    from PIL import Image

    pipe(Image.fromarray(picture), "a ball", height=32, width=48, num_frames=5, num_inference_steps=2)
    given, expected = ours[0]["timestep"][0], theirs[0]["timestep"][0]
    assert given.shape == expected.shape
    assert torch.equal(given == 0, expected == 0)
    level = batch.level[0, 0, 1, 0, 0]
    torch.testing.assert_close(given[given > 0], (level * 1000).expand(int((given > 0).sum())))


def test_text_to_video_gets_one_timestep_a_clip(tiny_recipe, t2v, encoded):
    recipe = tiny_recipe(t2v)
    clips, model = encoded(recipe)
    calls = recorded_calls(model.transformer)
    batch = TrainingSteps(recipe, clips, model.adapter, False)[0][0]
    model(batch)
    torch.testing.assert_close(calls[0]["timestep"], batch.level[:, 0, 0, 0, 0] * 1000)
    assert calls[0]["encoder_hidden_states_image"] is None


def test_image_to_video_trains_with_the_first_frame_beside_the_latents(tiny_recipe, i2v, encoded, tmp_path):
    recipe = tiny_recipe(i2v, first_frame=1.0, steps=2)
    clips, model = encoded(recipe)
    assert model.concatenates_image and not model.expand_timesteps
    calls = recorded_calls(model.transformer)
    batch = TrainingSteps(recipe, clips, model.adapter, model.expand_timesteps)[0][0]
    model(batch)
    assert (batch.level > 0).all()
    assert torch.equal(calls[0]["hidden_states"][:, 4:], batch.image)
    assert calls[0]["encoder_hidden_states_image"].shape == (4, 5, 8)
    train(recipe, model, clips, tmp_path, validation=clips, quiet=True)


@pytest.mark.parametrize(
    ("kind", "first_frame", "message"), [("i2v", 0.5, "always takes a first frame"), ("t2v", 0.5, "from text alone")]
)
def test_first_frames_that_a_model_cannot_take_are_refused(tiny_recipe, request, kind, first_frame, message):
    recipe = tiny_recipe(request.getfixturevalue(kind), first_frame=first_frame)
    with pytest.raises(ValueError, match=message):
        BaseModel(recipe).denoiser()


def test_missing_weights_say_what_to_download_and_where_to_put_it(tiny_recipe, t2v, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"cannot get Some/Model .*hf download Some/Model --local-dir FOLDER"):
        find_folder("Some/Model")
    with pytest.raises(OSError, match=r"no folder .*/none"):
        find_folder(str(tmp_path / "none"))
    with pytest.raises(OSError, match=r"no model_index.json"):
        find_folder(str(tmp_path))
    partial = shutil.copytree(t2v, tmp_path / "partial")
    shutil.rmtree(partial / "transformer")
    with pytest.raises(OSError, match="has no transformer"):
        BaseModel(tiny_recipe(partial)).denoiser()
    next((partial / "vae").glob("*.safetensors")).unlink()
    with pytest.raises(OSError, match="cannot load AutoencoderKLWan"):
        BaseModel(tiny_recipe(partial)).autoencoder()


def test_frozen_weights_take_the_precision_and_trained_ones_stay_float32(tiny_recipe, t2v):
    model = BaseModel(tiny_recipe(t2v, precision="bf16", adapter="recammaster")).denoiser()
    assert {value.dtype for value in model.trained_parameters().values()} == {torch.float32}
    assert model.transformer.blocks[0].attn1.to_q.weight.dtype == torch.float32
    assert model.transformer.blocks[0].attn2.to_q.weight.dtype == torch.bfloat16


def test_a_model_that_is_trained_on_keeps_the_adapter_that_it_has(tiny_recipe, t2v, tmp_path):
    folder = shutil.copytree(t2v, tmp_path / "model")
    recipe = tiny_recipe(folder, train_base=True, cache_text=False)
    fresh = BaseModel(recipe).denoiser().adapter
    for value in fresh.parameters():
        torch.nn.init.normal_(value)
    fresh.save_pretrained(folder / "camera_adapter")
    kept = BaseModel(recipe).denoiser()
    torch.testing.assert_close(kept.adapter.state_dict(), fresh.state_dict())
    assert {name.split(".")[0] for name in kept.trained_parameters()} == {"adapter", "transformer", "text_encoder"}
    assert BaseModel(tiny_recipe(folder, train_base=True, cache_text=False, adapter="none")).denoiser().adapter is None


@pytest.mark.parametrize("adapter", ["camera", "recammaster", "cameractrl"])
def test_bf16_training_works_and_the_result_loads(tiny_recipe, t2v, encoded, tmp_path, adapter):
    recipe = tiny_recipe(t2v, steps=2, precision="bf16", adapter=adapter, ema=0.5)
    clips, model = encoded(recipe)
    accelerator = make_accelerator(recipe, tmp_path)
    trained = train(recipe, model, clips, tmp_path, accelerator=accelerator, quiet=True)
    folder = export(recipe, BaseModel(recipe), trained, tmp_path, accelerator)
    batch = make_batch(recipe, model.adapter, [clips[0]], torch.zeros(1, 4, 2, 4, 6), torch.full((1, 1, 2, 1, 1), 0.5))
    trained.float()
    expected = trained(batch)
    transformer = WanTransformer3DModel.from_pretrained(t2v / "transformer")
    loaded = load_adapter(folder).attach(transformer)
    with loaded.camera(batch.condition):
        found = transformer(batch.noisy, torch.tensor([500.0]), batch.text, return_dict=False)[0]
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)
    assert any(not torch.equal(value, torch.zeros_like(value)) for value in loaded.parameters())


def test_a_model_from_scratch_becomes_a_pipeline_that_generates(make_clips, t2v, tmp_path, monkeypatch):
    """The desk model's own recipe, with a smaller transformer and an untrained autoencoder."""
    from dataclasses import replace

    from ucpe.desk import model as desk_parts

    small = {**desk_parts.transformer_config(), "num_attention_heads": 2, "num_layers": 1, "ffn_dim": 32}
    monkeypatch.setattr(desk_parts, "transformer_config", lambda channels=16: small)
    from diffusers import AutoencoderKLWan

    AutoencoderKLWan(**desk_parts.autoencoder_config(4, 4)).save_pretrained(tmp_path / "vae")
    clips = make_clips(tmp_path / "clips", count=4, frames=17, height=64, width=112)
    recipe = replace(
        RECIPES["desk-model"],
        autoencoder=str(tmp_path / "vae"),
        heads=1,
        head_dim=16,
        steps=2,
        batch=2,
        micro_batch=2,
        validate_every=2,
        validation_clips=1,
        samples=1,
    )
    folder = run(recipe, clips, tmp_path / "run", validation=clips, tracker=None, quiet=True)
    assert (tmp_path / "run/samples/step-0000002-0.mp4").is_file()
    pipe = CameraPipeline.from_pretrained(folder)
    camera = EncodedClips(_source(clips), BaseModel(recipe), clips / "encoded").source.clip(0).camera
    video = pipe("a red tower", camera, num_inference_steps=1)
    assert video.frames[0].shape == (17, 64, 112, 3)
    state = json.loads((tmp_path / "run/recipe.json").read_text())
    assert state["train_base"] and state["ema"] == 0.999


@pytest.mark.parametrize("adapter", ["camera", "recammaster"])
def test_making_samples_changes_nothing(tiny_recipe, t2v, clip_folder, tmp_path, adapter):
    fields = {"steps": 2, "validate_every": 1, "validation_clips": 1, "sample_steps": 1, "ema": 0.9}
    for samples in (0, 1):
        recipe = tiny_recipe(t2v, adapter=adapter, samples=samples, precision="bf16", **fields)
        folders = {"validation": clip_folder, "cache": tmp_path / "cache"}
        run(recipe, clip_folder, tmp_path / f"run{samples}", tracker=None, quiet=True, **folders)
    plain, sampled = (load_checkpoint(tmp_path / f"run{samples}/checkpoints").tensors for samples in (0, 1))
    assert all(torch.equal(value, sampled[name]) for name, value in plain.items())
    videos = sorted(path.name for path in (tmp_path / "run1/samples").iterdir())
    assert videos == ["step-0000001-0.mp4", "step-0000002-0.mp4"]


def _source(folder):
    from ucpe.training.clips import DeskClipFiles

    return DeskClipFiles(folder)


def test_a_model_from_scratch_needs_an_autoencoder():
    with pytest.raises(ValueError, match="--autoencoder"):
        BaseModel(RECIPES["desk-model"])


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("adapter", ["camera", "recammaster", "cameractrl"])
def test_estimated_activations_are_those_that_are_kept(tiny_recipe, ti2v, adapter, precision):
    recipe = tiny_recipe(ti2v, adapter=adapter, precision=precision, gradient_checkpointing=False, micro_batch=3)
    model = BaseModel(recipe).denoiser()
    model.expand_timesteps = False
    kept = saved_bytes(model, example_batch(recipe, model, 5, 32, 48), precision)
    assert activation_bytes(recipe) == pytest.approx(kept, rel=0.1)


def test_checkpointing_needs_less_memory_and_weights_are_counted(tiny_recipe, t2v):
    plain = estimate_memory(tiny_recipe(t2v, gradient_checkpointing=False, frames=81))
    less = estimate_memory(tiny_recipe(t2v, gradient_checkpointing=True, frames=81))
    assert less.activations < plain.activations
    model = BaseModel(tiny_recipe(t2v)).denoiser()
    assert plain.trained_parameters + plain.frozen_parameters == sum(value.numel() for value in model.parameters())
    assert plain.weights == 4 * (plain.trained_parameters + plain.frozen_parameters)
    assert plain.optimizer == 2 * plain.gradients


def test_dry_run_checks_one_batch_and_trains_nothing(tiny_recipe, t2v, clip_folder, tmp_path):
    recipe = tiny_recipe(t2v, micro_batch=2)
    report = dry_run(recipe, clip_folder, tmp_path / "run", tmp_path / "cache")
    assert report.problem is None and report.clips == 6 and report.steps_per_epoch == 1.5
    assert report.loss > 0 and report.gradient > 0
    text = "\n".join(f"{name} {value}" for name, value in report.lines())
    assert "batch 4 = 1 process(es) x 2 pass(es) x 2" in text
    assert not (tmp_path / "run").exists()


def test_dry_run_without_weights_sizes_the_run_and_says_what_is_missing(
    tiny_recipe, clip_folder, tmp_path, monkeypatch
):
    from ucpe import desk

    monkeypatch.setattr(desk, "WEIGHTS", tmp_path / "none")
    recipe = tiny_recipe("desk", cache_text=False)
    assert dry_run(recipe, None, tmp_path).problem == "no --data given"
    report = dry_run(recipe, clip_folder, tmp_path)
    assert "desk model's weights are not part of this installation" in report.problem
    assert report.memory.trained_parameters > 0 and report.clips == 6


def test_batches_move_whole(tiny_recipe, t2v, encoded):
    recipe = tiny_recipe(t2v)
    clips, model = encoded(recipe)
    batch: Batch = TrainingSteps(recipe, clips, model.adapter, False)[0][0]
    moved = batch.to(torch.device("meta"))
    assert moved.latents.is_meta and moved.text.is_meta and moved.condition.features.is_meta
