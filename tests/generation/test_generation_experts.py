"""Models with two transformers that take turns in denoising (Wan2.2 A14B), at tiny size with the real classes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel

from ucpe.adapters import CameraAdapter, SCoPE
from ucpe.cli.parsing import parse
from ucpe.cli.train import Options
from ucpe.desk import model as desk
from ucpe.generation.defaults import Defaults
from ucpe.generation.pipeline import CameraPipeline
from ucpe.lenses import UCM, Pinhole
from ucpe.training.base_models import BaseModel
from ucpe.training.objective import FlowMatching
from ucpe.training.recipes import RECIPES
from ucpe.trajectories import Trajectory

PROMPT = "a red tower on grass"
DEFAULTS = Defaults(frames=5, fps=8.0, height=32, width=48, steps=6, guidance=1.0, text_tokens=12)
CAMERA = Trajectory.pan(UCM(xfov=160, xi=1.5), degrees=30, frames=5, fps=8)


def make_transformer():
    return WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
        text_dim=96, freq_dim=16, ffn_dim=32, num_layers=2, rope_max_seq_len=32,
    )  # fmt: skip


def make_adapter(transformer):
    adapter = CameraAdapter.for_transformer(transformer, compression=1, heads=1, head_dim=24)
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return adapter


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1, 1, 1], num_res_blocks=1, temperal_downsample=[True, True], patch_size=2,
        in_channels=12, out_channels=12, latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    tokenizer = desk.make_tokenizer(tuple(PROMPT.split()))
    pipe = WanPipeline(
        tokenizer=tokenizer, text_encoder=desk.make_text_encoder(len(tokenizer)).eval(), vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), transformer=make_transformer(),
        transformer_2=make_transformer(), boundary_ratio=0.8,
    )  # fmt: skip
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="module")
def saved(pipe, tmp_path_factory):
    """A model folder with an adapter for each expert, and a folder with an adapter that may serve both."""
    folder = tmp_path_factory.mktemp("experts")
    both = [make_adapter(pipe.transformer), make_adapter(pipe.transformer_2)]
    steered = CameraPipeline(pipe, both, DEFAULTS)
    steered.save_pretrained(folder / "model")
    steered.detach()
    both[0].save_pretrained(folder / "one")
    both[1].save_pretrained(folder / "two")
    return folder


def steered_calls(pipeline):
    """For each denoiser, how often it was called and how often a camera steered it while a video was made."""
    calls = {"transformer": [0, 0], "transformer_2": [0, 0]}
    handles = []
    for name, adapter in zip(calls, pipeline.adapters):

        def count(*_, counter=calls[name], adapter=adapter):
            counter[0] += 1
            counter[1] += adapter._running is not None

        handles.append(getattr(pipeline.pipe, name).blocks[0].register_forward_hook(count))
    pipeline(PROMPT, CAMERA)
    for handle in handles:
        handle.remove()
    return calls


def test_every_call_of_both_experts_is_steered_and_both_matter(saved):
    pipeline = CameraPipeline.from_pretrained(saved / "model")
    calls = steered_calls(pipeline)
    assert all(count and count == steered for count, steered in calls.values()), calls
    assert sum(count for count, _ in calls.values()) == DEFAULTS.steps
    video = pipeline(PROMPT, CAMERA).frames[0]
    for adapter in pipeline.adapters:
        for parameter in adapter.parameters():
            parameter.data.zero_()
        changed = pipeline(PROMPT, CAMERA).frames[0]
        assert not np.array_equal(changed, video)
        video = changed


def test_scope_steers_the_expert_of_high_noise_and_leaves_the_other(saved, tmp_path):
    """As released: one expert trained along with its rays, the other as it was."""
    model = CameraPipeline.from_pretrained(saved / "model").detach()
    high, low = (
        SCoPE.for_transformer(t, tuned=t is model.transformer) for t in (model.transformer, model.transformer_2)
    )
    for parameter in high.parameters():
        torch.nn.init.normal_(parameter)
    for name, adapter in (("high", high), ("low", low)):
        adapter.save_pretrained(tmp_path / name)
    pipeline = CameraPipeline.from_pretrained(saved / "model", [tmp_path / "high", tmp_path / "low"])
    calls = steered_calls(pipeline)
    assert all(count and count == steered for count, steered in calls.values()), calls
    video = pipeline(PROMPT, CAMERA).frames[0]
    assert not np.array_equal(pipeline(PROMPT, CAMERA.with_lens(Pinhole(xfov=60))).frames[0], video)


def test_a_pipeline_with_more_denoisers_than_adapters_is_refused(pipe, saved):
    with pytest.raises(ValueError, match="2 transformers that denoise, and 1 adapters"):
        CameraPipeline(pipe, make_adapter(pipe.transformer), DEFAULTS)
    alone = saved.parent / "alone"
    pipe.save_pretrained(alone)
    make_adapter(pipe.transformer).save_pretrained(alone / "camera_adapter")
    with pytest.raises(ValueError, match="2 transformers that denoise, and 1 adapters"):
        CameraPipeline.from_pretrained(alone)


def test_adapters_are_named_one_each_or_one_for_both(saved):
    for named in ([saved / "one", saved / "two"], f"{saved / 'one'},{saved / 'two'}"):
        first, second = CameraPipeline.from_pretrained(saved / "model", named).adapters
        assert not torch.equal(first.blocks[0].q_proj.weight, second.blocks[0].q_proj.weight)
    first, second = CameraPipeline.from_pretrained(saved / "model", saved / "one").adapters
    assert first is not second and torch.equal(first.blocks[0].q_proj.weight, second.blocks[0].q_proj.weight)


def test_saved_and_loaded_the_video_is_the_same(saved, tmp_path):
    pipeline = CameraPipeline.from_pretrained(saved / "model")
    video = pipeline(PROMPT, CAMERA).frames[0]
    pipeline.save_pretrained(tmp_path / "again")
    assert np.array_equal(CameraPipeline.from_pretrained(tmp_path / "again")(PROMPT, CAMERA).frames[0], video)
    other = CAMERA.with_lens(Pinhole(xfov=90))
    assert not np.array_equal(pipeline(PROMPT, other).frames[0], video)


def test_training_says_which_expert(saved):
    recipe = replace(RECIPES["ucpe"], model=str(saved / "model"), precision="no", compression=1, heads=1, head_dim=24)
    with pytest.raises(ValueError, match=r"--expert transformer_2 --max-level 0\.8") as refusal:
        BaseModel(recipe)
    second = re.search(r"then the other with (.*)", str(refusal.value))[1].split()
    options = parse(Options, second, "ucpe train", default=Options(recipe)).recipe
    assert (options.expert, options.objective.max_level) == ("transformer_2", 0.8)
    weights = [
        BaseModel(replace(recipe, expert=expert)).denoiser().transformer.patch_embedding.weight
        for expert in ("transformer", "transformer_2")
    ]
    assert not torch.equal(*weights)
    with pytest.raises(ValueError, match="has one transformer: leave --expert out"):
        BaseModel(replace(RECIPES["desk-ucpe"], expert="transformer_2"))


def test_an_expert_is_trained_on_its_noise_levels_only():
    generator = torch.Generator().manual_seed(0)
    for low, high in ((0.875, 1.0), (0.0, 0.875)):
        levels = FlowMatching(min_level=low, max_level=high).sample(1000, generator)
        assert levels.min() >= low and levels.max() <= high and levels.max() - levels.min() > 0.99 * (high - low) - 0.01
    with pytest.raises(ValueError, match="min_level must be below max_level"):
        FlowMatching(min_level=0.9, max_level=0.5)
