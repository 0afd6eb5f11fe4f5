"""One thread per test process: tests run side by side, and some of them fork."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOW = Path(__file__).with_name("slow.txt")
"""Tests, or whole files of them, that `make quick` leaves out beside those marked in place."""


def pytest_addoption(parser):
    parser.addoption(
        "--times", metavar="FILE", help="append the processor seconds of every test to FILE, in JSON lines"
    )


def pytest_collection_modifyitems(items):
    slow = set(SLOW.read_text().splitlines())
    for item in items:
        name = item.nodeid
        if not slow.isdisjoint((name, name.partition("[")[0], name.partition("::")[0])):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        if (path := item.config.getoption("--times")) is not None:
            with open(path, "a") as file:
                file.write(json.dumps([item.nodeid, round(sum(os.times()[:4]) - before, 3)]) + "\n")


def tiny_sana_wm():
    """diffusers' SANA-WM pipeline of the real classes at tiny size, with random weights that use every part."""
    import torch
    from diffusers import (
        AutoencoderKLLTX2Video,
        FlowMatchEulerDiscreteScheduler,
        SanaWMPipeline,
        SanaWMTransformer3DModel,
    )
    from transformers import Gemma2Config, Gemma2ForCausalLM

    from ucpe.desk.model import make_tokenizer

    torch.manual_seed(0)
    vae = AutoencoderKLLTX2Video(
        latent_channels=4, block_out_channels=(8, 16, 32, 64), decoder_block_out_channels=(8, 16, 32),
        layers_per_block=(1,) * 5, decoder_layers_per_block=(1,) * 4, decoder_causal=False,
        spatial_compression_ratio=32, temporal_compression_ratio=8,
    )  # fmt: skip
    transformer = SanaWMTransformer3DModel(
        in_channels=4, num_layers=2, hidden_size=64, num_attention_heads=2, linear_head_dim=32, softmax_every_n=2,
        caption_channels=8, mlp_ratio=1.0,
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            if not name.endswith(("A_log", "dt_bias")):
                parameter.normal_(std=0.15)
    tokenizer = make_tokenizer(("a", "red", "tower", "on", "grass"))
    text = Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    pipe = SanaWMPipeline(
        tokenizer=tokenizer, text_encoder=Gemma2ForCausalLM(text).eval(), vae=vae.eval(),
        transformer=transformer.eval(), scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
    )  # fmt: skip
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The authors' files where they are here, else stand-ins of our own making."""
    from tests.samples import PUBLISHED, make_samples

    return PUBLISHED if PUBLISHED.is_dir() else make_samples(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="session")
def make_sana_wm_pipeline():
    pytest.importorskip("diffusers.pipelines.sana_wm")
    return tiny_sana_wm


@pytest.fixture(scope="session")
def sana_wm_folder(make_sana_wm_pipeline, tmp_path_factory):
    """A tiny SANA-WM as a pipeline folder."""
    folder = tmp_path_factory.mktemp("sana-wm")
    make_sana_wm_pipeline().save_pretrained(folder)
    return folder
