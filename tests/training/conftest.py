"""Real diffusers and transformers classes at tiny sizes, saved as pipeline folders, and tiny clips to train them on."""

import json
import os
import socket
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from diffusers import (
    AutoencoderKLWan,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from safetensors.torch import save_file

from ucpe.desk.model import make_tokenizer
from ucpe.lenses import FAMILIES
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import DeskClipFiles
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.recipes import Recipe
from ucpe.trajectories import Trajectory

torch.set_num_threads(1)

FRAMES, HEIGHT, WIDTH = 5, 32, 48
CAPTIONS = ("a red tower", "a blue house on sand", "two pines on snow", "a ball")


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """accelerate keeps its state between accelerators; every test starts without."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(True)


def tiny_vae():
    torch.manual_seed(1)
    return AutoencoderKLWan(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.1, -0.2, 0.3, 0.0],
        latents_std=[0.5, 0.6, 0.7, 0.8],
    )


def tiny_transformer(**options):
    torch.manual_seed(2)
    sizes = {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "in_channels": 4,
        "out_channels": 4,
        "text_dim": 16,
        "freq_dim": 16,
        "ffn_dim": 32,
        "num_layers": 2,
        "rope_max_seq_len": 32,
    }
    return WanTransformer3DModel(**{**sizes, **options})


def tiny_text():
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(3)
    tokenizer = make_tokenizer(tuple(sorted({word for caption in CAPTIONS for word in caption.split()})))
    config = UMT5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0
    )
    return {"tokenizer": tokenizer, "text_encoder": UMT5EncoderModel(config)}


def tiny_clip():
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

    torch.manual_seed(4)
    config = CLIPVisionConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    processor = CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    return {"image_encoder": CLIPVisionModel(config), "image_processor": processor}


def save_pipeline(folder, kind):
    """A whole pipeline of a kind ("t2v", "ti2v" or "i2v") in a folder."""
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    parts = {"vae": tiny_vae(), "scheduler": scheduler, **tiny_text()}
    if kind == "i2v":
        transformer = tiny_transformer(in_channels=12, image_dim=8, added_kv_proj_dim=32)
        pipe = WanImageToVideoPipeline(transformer=transformer, **parts, **tiny_clip())
    else:
        pipe = WanPipeline(transformer=tiny_transformer(), expand_timesteps=kind == "ti2v", **parts)
    pipe.save_pretrained(folder)
    return folder


def save_clips(folder, count=6, seed=0, frames=FRAMES, height=HEIGHT, width=WIDTH):
    """Desk clips of smooth random pictures, one shard."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count * frames, 3, 4, 6, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    video = (fine * 255).round().byte().permute(0, 2, 3, 1).unflatten(0, (count, frames)).contiguous()
    families = [list(FAMILIES)[index % len(FAMILIES)] for index in range(count)]
    lenses = [FAMILIES[name].typical() for name in families]
    moves = [Trajectory.pan(lens, degrees=10 + index, frames=frames, fps=8) for index, lens in enumerate(lenses)]
    tensors = {
        "video": video,
        "c2w": torch.stack([move.c2w for move in moves]).float(),
        "xfov": torch.tensor([float(lens.parameters["xfov"]) for lens in lenses]),
        "xi": torch.tensor([float(lens.parameters["xi"]) for lens in lenses]),
        "seeds": torch.arange(count),
    }
    captions = [CAPTIONS[index % len(CAPTIONS)] for index in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"captions": json.dumps(captions), "families": json.dumps(families)}
    save_file(tensors, folder / "clips-00000.safetensors", metadata)
    return folder


@pytest.fixture(scope="session")
def tiny_recipe():
    """A function that makes a recipe of six steps of four clips on a tiny model."""
    return _tiny_recipe


@pytest.fixture(scope="session")
def make_clips():
    """A function that writes tiny desk clips into a folder."""
    return save_clips


def _tiny_recipe(model, **changes):
    base = Recipe(
        "tiny",
        model=str(model),
        compression=2,
        steps=6,
        batch=4,
        micro_batch=4,
        learning_rate=1e-2,
        precision="no",
        text_tokens=8,
        frames=FRAMES,
        height=HEIGHT,
        width=WIDTH,
        workers=0,
        checkpoint_every=2,
        validate_every=3,
        validation_clips=3,
    )
    return replace(base, **changes)


@pytest.fixture(scope="session")
def t2v(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("t2v"), "t2v")


@pytest.fixture(scope="session")
def ti2v(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("ti2v"), "ti2v")


@pytest.fixture(scope="session")
def i2v(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("i2v"), "i2v")


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory):
    return save_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture
def encoded(clip_folder):
    """A function that encodes the tiny clips for a recipe and returns them with the model to train."""

    def encode(recipe):
        model = BaseModel(recipe)
        clips = EncodedClips(DeskClipFiles(clip_folder), model, clip_folder / "encoded")
        encode_missing(clips, model, list(clips.numbers), torch.device("cpu"))
        return clips, model.denoiser()

    return encode


@pytest.fixture(scope="session")
def run_processes():
    """A function that runs target(rank, *args) in processes of one gloo group and returns their exit codes."""

    def run(target, processes, *args):
        context = get_context("fork")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        workers = [
            context.Process(target=_as_rank, args=(target, rank, processes, port, args)) for rank in range(processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(900)
        return [worker.exitcode for worker in workers]

    return run


def _as_rank(target, rank, processes, port, args):
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    torch.set_num_threads(1)
    if processes > 1:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        os.environ.update({name: str(value) for name, value in numbers.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    target(rank, *args)
