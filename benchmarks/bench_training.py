"""What encoding clips once saves: a desk training step with clips from the cache against encoding them in the step.

Also how much of a step is spent before the model runs (reading latents, encoding cameras, drawing noise).
"""

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan
from safetensors.torch import save_file

from ucpe.desk.model import autoencoder_config
from ucpe.lenses import FAMILIES
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import open_source
from ucpe.training.encoded import EncodedClips, VideoEncoder, encode_missing
from ucpe.training.loop import accumulate, make_accelerator
from ucpe.training.recipes import RECIPES
from ucpe.training.steps import TrainingSteps, draw_clips
from ucpe.trajectories import Trajectory

CLIPS, STEPS = 16, 4


def write_clips(folder, recipe):
    """Clips of noise: the time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    shape = (CLIPS, recipe.frames, recipe.height, recipe.width, 3)
    lens = FAMILIES["wide"].typical()
    moves = [Trajectory.pan(lens, degrees=index, frames=recipe.frames, fps=8) for index in range(CLIPS)]
    tensors = {
        "video": torch.randint(0, 255, shape, generator=generator, dtype=torch.uint8),
        "c2w": torch.stack([move.c2w for move in moves]).float(),
        "xfov": torch.full((CLIPS,), float(lens.parameters["xfov"])),
        "xi": torch.full((CLIPS,), float(lens.parameters["xi"])),
        "seeds": torch.arange(CLIPS),
    }
    metadata = {"captions": json.dumps(["a red tower"] * CLIPS), "families": json.dumps(["wide"] * CLIPS)}
    save_file(tensors, folder / "clips-00000.safetensors", metadata)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        AutoencoderKLWan(**autoencoder_config()).save_pretrained(folder / "vae")
        recipe = replace(RECIPES["desk-model"], autoencoder=str(folder / "vae"))
        write_clips(folder, recipe)
        model = BaseModel(recipe)
        clips = EncodedClips(open_source(folder), model, folder / "encoded")
        encode_missing(clips, model, clips.numbers, torch.device("cpu"))
        denoiser, encoder = model.denoiser(), VideoEncoder(model, torch.device("cpu"))
        accelerator = make_accelerator(recipe, folder)
        optimizer = torch.optim.AdamW(denoiser.trained_parameters().values(), lr=1e-4)
        wrapped, optimizer = accelerator.prepare(denoiser, optimizer)
        steps = TrainingSteps(recipe, clips, denoiser.adapter, denoiser.expand_timesteps)
        accumulate(recipe, wrapped, steps[0], accelerator)
        loading = computing = encoding = 0.0
        for step in range(STEPS):
            began = time.perf_counter()
            batches = steps[step]
            loaded = time.perf_counter()
            accumulate(recipe, wrapped, batches, accelerator)
            optimizer.step()
            optimizer.zero_grad()
            computed = time.perf_counter()
            for index in draw_clips(recipe, step, CLIPS):
                encoder(clips.source.clip(index).pictures.video(recipe.frames, recipe.height, recipe.width))
            encoding += time.perf_counter() - computed
            loading, computing = loading + loaded - began, computing + computed - loaded
    cached = loading + computing
    print(f"desk-model, {recipe.batch} clips a step, one thread")
    print(f"step from the cache      {cached / STEPS:.3f} s, {loading / cached:.1%} of it before the model runs")
    print(f"step that encodes clips  {(cached + encoding) / STEPS:.3f} s")
    print(f"ratio                    {(cached + encoding) / cached:.2f}x")


if __name__ == "__main__":
    main()
