"""SANA-WM's own camera branch, trained at tiny size and sized at full size."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ucpe.adapters import load_adapter
from ucpe.generation.pipeline import CameraPipeline
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import open_source
from ucpe.training.dry_run import dry_run
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.export import export
from ucpe.training.loop import make_accelerator, train
from ucpe.training.runs import find_recipe

SIZE = {"frames": 9, "height": 64, "width": 96}


@pytest.fixture(scope="module")
def recipe(tiny_recipe, sana_wm_folder):
    return tiny_recipe(sana_wm_folder, adapter="sana-wm", first_frame=1.0, steps=8, learning_rate=3e-3, **SIZE)


@pytest.fixture(scope="module")
def clips(recipe, make_clips, tmp_path_factory):
    folder = make_clips(tmp_path_factory.mktemp("clips"), **SIZE)
    clips = EncodedClips(open_source(folder), BaseModel(recipe), folder / "encoded")
    encode_missing(clips, BaseModel(recipe), list(clips.numbers), torch.device("cpu"))
    return clips


def test_what_is_trained_is_what_the_pipeline_runs(recipe, clips, make_sana_wm_pipeline):
    """Latents, text and the prediction, each against diffusers' pipeline on the same clip."""
    pipe, clip = make_sana_wm_pipeline(), clips[0]
    video = clips.source.clip(0).pictures.video(*SIZE.values())
    first = torch.from_numpy(np.array(video[0])).permute(2, 0, 1)[None] / 127.5 - 1
    expected = pipe._encode_first_frame(first, torch.device("cpu"), torch.float32)
    torch.testing.assert_close(clip.latents[None, :, :1], expected, atol=2e-3, rtol=2e-3)
    from diffusers.pipelines.sana_wm.pipeline_sana_wm import DEFAULT_CHI_PROMPT

    text, mask, silence, silent = pipe.encode_prompt(
        clips.source.clip(0).caption, max_sequence_length=8, chi_prompt=DEFAULT_CHI_PROMPT
    )
    torch.testing.assert_close(clip.text, text[0, 0] * mask[0, :, None], atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(clips.embedding(""), silence[0, 0] * silent[0, :, None], atol=2e-2, rtol=2e-2)


def test_training_changes_the_branch_alone_and_lowers_the_error(recipe, clips, tmp_path, sana_wm_folder):
    model = BaseModel(recipe)
    denoiser = model.denoiser()
    before = {name: value.clone() for name, value in denoiser.transformer.state_dict().items()}
    trained = train(recipe, denoiser, clips, tmp_path, validation=clips, quiet=True)
    changed = {name for name, value in trained.transformer.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all("_cam." in name or "plucker_" in name for name in changed)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    errors = [
        float(line.split('"validation/first-frame": ')[1].split(",")[0]) for line in lines if "first-frame" in line
    ]
    assert errors[-1] < errors[0]
    folder = export(recipe, model, trained, tmp_path, make_accelerator(recipe, tmp_path))
    assert load_adapter(folder).config["trained"]
    call = {"seed": 1, "num_inference_steps": 1, "max_sequence_length": 8, "height": 64, "width": 96}
    picture = Image.fromarray(clips.source.clip(0).pictures.video(*SIZE.values())[0].numpy())
    videos = []
    for adapter in (None, folder):
        pipe = CameraPipeline.from_pretrained(sana_wm_folder, adapter)
        pipe.set_progress_bar_config(disable=True)
        videos.append(pipe("a red tower", clips[0].camera, image=picture, output_type="latent", **call).frames)
    assert (videos[0] - videos[1]).abs().max() > 1e-4


def test_the_full_size_recipe_is_sized_without_its_weights(tmp_path):
    recipe = find_recipe(str(Path(__file__).resolve().parents[2] / "recipes" / "sana_wm.py"))
    found = dry_run(recipe, None, tmp_path)
    assert found.memory.trained_parameters == 502_317_760
    assert found.memory.trained_parameters + found.memory.frozen_parameters == 2_661_800_448
    assert found.memory.activations > 1e9
