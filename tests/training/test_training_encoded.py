"""Clips and captions are encoded once, as Wan's own pipelines do, and found again by content."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from PIL import Image
from safetensors.torch import load_file

from ucpe.synthesis.dataset import PanShotFolder, sized
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import DeskClipFiles, open_source
from ucpe.training.encoded import EncodedClips, VideoEncoder, encode_missing, encode_video, to_model_range
from ucpe.training.steps import TrainingSteps, plan_step, planned_clips, visible_latents
from ucpe.video import write_video
from ucpe.work import parts

CPU = torch.device("cpu")


def open_clips(recipe, folder, cache):
    model = BaseModel(recipe)
    return EncodedClips(DeskClipFiles(folder), model, cache), model


def test_text_is_what_the_pipeline_would_give_the_transformer(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)
    encode_missing(clips, model, [0, 1], CPU)
    pipe = WanPipeline.from_pretrained(t2v)
    expected = pipe.encode_prompt(
        clips.source.clip(1).caption, max_sequence_length=8, do_classifier_free_guidance=False
    )[0]
    torch.testing.assert_close(clips[1].text, expected[0], atol=1e-2, rtol=1e-2)
    assert (clips[1].text[len(clips.source.clip(1).caption.split()) + 1 :] == 0).all()
    assert clips.embedding("").abs().sum() > 0


def test_latents_decode_as_the_pipeline_decodes_them(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)
    encode_missing(clips, model, [0], CPU)
    vae = model.autoencoder()
    video = to_model_range(clips.source.clip(0).pictures.video(5, 32, 48)[None])
    mean, spread = (torch.tensor(vae.config[name]).reshape(1, -1, 1, 1, 1) for name in ("latents_mean", "latents_std"))
    raw = clips[0].latents[None] * spread + mean
    torch.testing.assert_close(raw, vae.encode(video).latent_dist.mode(), atol=2e-3, rtol=2e-3)


def test_first_frames_are_what_the_image_to_video_pipeline_concatenates(tiny_recipe, i2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(i2v, first_frame=1.0), clip_folder, tmp_path)
    encode_missing(clips, model, [2], CPU)
    clip = clips[2]
    picture = Image.fromarray(clips.source.clip(2).pictures.video(5, 32, 48)[0].numpy())
    pipe = WanImageToVideoPipeline.from_pretrained(i2v)
    seen = {}

    def spy(hidden_states, encoder_hidden_states_image, **kwargs):
        seen["image"], seen["image_embeds"] = hidden_states[:, 4:], encoder_hidden_states_image
        raise StopIteration

    pipe.transformer.forward = spy
    with pytest.raises(StopIteration):
        pipe(picture, "a ball", height=32, width=48, num_frames=5, num_inference_steps=1, max_sequence_length=8)
    torch.testing.assert_close(clip.image, seen["image"][0], atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(clip.image_embeds, seen["image_embeds"][0], atol=2e-3, rtol=2e-3)
    assert clip.image[:4, 0].eq(1).all() and clip.image[:4, 1:].eq(0).all()


def test_what_is_on_disk_is_not_encoded_again_even_where_the_folder_moved(
    tiny_recipe, t2v, clip_folder, tmp_path, monkeypatch
):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)
    encode_missing(clips, model, [0, 1, 2], CPU)
    moved = shutil.copytree(clip_folder, tmp_path / "elsewhere")
    clips, model = open_clips(tiny_recipe(t2v), moved, tmp_path)
    monkeypatch.setattr(BaseModel, "autoencoder", lambda self: pytest.fail("loaded the autoencoder for nothing"))
    monkeypatch.setattr(BaseModel, "prompts", lambda self: pytest.fail("loaded the text encoder for nothing"))
    encode_missing(clips, model, [0, 1, 2], CPU)
    assert clips.missing_videos(range(6)) == [3, 4, 5]


def test_other_weights_or_sizes_are_encoded_anew(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, _ = open_clips(tiny_recipe(t2v), clip_folder, tmp_path / "cache")
    other = shutil.copytree(t2v, tmp_path / "other")
    weights = next((other / "vae").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    changed, _ = open_clips(tiny_recipe(other), clip_folder, tmp_path / "cache")
    assert changed.videos.folder != clips.videos.folder and changed.texts.folder == clips.texts.folder
    smaller, _ = open_clips(tiny_recipe(t2v, frames=1), clip_folder, tmp_path / "cache")
    assert smaller.videos.folder != clips.videos.folder


def interrupted(rank, recipe, folder, cache):
    clips, model = open_clips(recipe, folder, cache)

    def die(what, done, total):
        if what == "clips" and done == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    encode_missing(clips, model, range(6), CPU, progress=die)


def test_killed_while_encoding_it_goes_on_with_the_rest(tiny_recipe, t2v, clip_folder, tmp_path, run_processes):
    recipe = tiny_recipe(t2v)
    assert run_processes(interrupted, 1, recipe, clip_folder, tmp_path) == [-signal.SIGKILL]
    clips, model = open_clips(recipe, clip_folder, tmp_path)
    assert len(clips.missing_videos(range(6))) == 3
    torn = clips.videos.file(clips.video(1))
    torn.write_bytes(torn.read_bytes()[:50] if torn.exists() else b"")
    encode_missing(clips, model, range(6), CPU)
    assert clips.missing_videos(range(6)) == []
    assert clips[1].latents.shape == clips.latent_shape == (4, 2, 4, 6)


def test_a_full_disk_while_encoding_says_what_to_do(tiny_recipe, t2v, clip_folder, tmp_path, monkeypatch):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)

    def no_space(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "write_file", no_space)
    with pytest.raises(OSError, match=r"No space left.*make room.*kept"):
        encode_missing(clips, model, [0], CPU)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.fixture
def panshot(tmp_path):
    """PanShot as published, with two clips of 5 frames and one whose video is damaged."""
    root = tmp_path / "data"
    for folder in ("PanShot/meta-train", "PanShot/pose-train", "PanShot/videos-train", "PanFlow"):
        (root / folder).mkdir(parents=True)
    videos, captions, depths = [], [], []
    generator = np.random.default_rng(0)
    for index, (xfov, xi) in enumerate([(100.0, 0.0), (120.0, 0.7), (170.0, 1.3)]):
        stem = f"vid{index}-{index}-0-no_rot_aug_0"
        poses = np.tile(np.eye(4, dtype=np.float32)[:3], (5, 1, 1))
        poses[:, 0, 3] = np.arange(5) * (index + 1)
        np.save(root / f"PanShot/pose-train/{stem}.npy", poses)
        coarse = generator.integers(0, 255, (5, 4, 6, 3), dtype=np.uint8)
        video = f"{stem}-fov{xfov:.0f}-xi{xi:.2f}"
        write_video(root / f"PanShot/videos-train/{video}.mp4", coarse.repeat(16, 1).repeat(16, 2), 16)
        videos.append({"video": video, "pose": stem, "x_fov": xfov, "xi": xi})
        captions.append({"video": video, "caption": "a red tower"})
        depths.append({"video_id": f"vid{index}", "clip_id": index, "near_depth": 2.0})
    damaged = root / "PanShot/videos-train/vid2-2-0-no_rot_aug_0-fov170-xi1.30.mp4"
    damaged.write_bytes(damaged.read_bytes()[:300])
    (root / "PanShot/meta-train/a.json").write_text(json.dumps([{"videos": videos}, {"clip_id": 9}]))
    (root / "PanShot/captioned-train.jsonl").write_text("\n".join(map(json.dumps, captions)))
    (root / "PanFlow/near_plane_depth-train.jsonl").write_text("\n".join(map(json.dumps, depths)))
    return root


def test_panshot_trains_as_published_and_broken_clips_are_named(tiny_recipe, t2v, panshot, tmp_path):
    source = open_source(panshot)
    assert isinstance(source, PanShotFolder) and len(source) == 3
    assert source.families() == ["pinhole", "wide", "fisheye"]
    torch.testing.assert_close(source.clip(1).camera.positions[:, 0].abs(), torch.arange(5.0).double())
    model = BaseModel(tiny_recipe(t2v))
    clips = EncodedClips(source, model, tmp_path / "cache")
    broken = encode_missing(clips, model, range(3), CPU)
    assert list(broken) == [2] and "vid2-2-0" in broken[2]
    assert clips.missing_videos(range(3)) == [2]
    clips.leave_out(broken)
    steps = TrainingSteps(model.recipe, clips, model.denoiser().adapter, False)
    assert steps[0][0].latents.shape == (4, *clips.latent_shape)


def test_a_synthesized_dataset_trains_and_validates_on_its_test_split(tiny_recipe, t2v, tmp_path):
    from ucpe.lenses import FAMILIES
    from ucpe.synthesis.dataset import DatasetClip, clip_row, write_metadata
    from ucpe.training.progress import read_curve
    from ucpe.training.runs import run
    from ucpe.trajectories import Trajectory

    rows = []
    for index, split in enumerate(["train", "train", "test"]):
        path = tmp_path / f"data/videos/clip{index}.mp4"
        write_video(path, np.full((5, 32, 48, 3), 60 * index, np.uint8), 16)
        camera = Trajectory.pan(FAMILIES["fisheye"].typical(), degrees=20, frames=5, fps=16)
        rows.append(
            clip_row(DatasetClip(f"clip{index}", path, "a ball", camera, "fisheye", split=split, height=32, width=48))
        )
    write_metadata(tmp_path / "data", rows)
    source = open_source(tmp_path / "data")
    assert len(source) == 2 and len(open_source(tmp_path / "data", "test")) == 1
    assert source.clip(1).pictures.video(5, 32, 48).float().mean() == pytest.approx(60, abs=3)
    run(tiny_recipe(t2v, steps=1), tmp_path / "data", tmp_path / "run", tracker=None, quiet=True)
    assert "validation/fisheye" in read_curve(tmp_path / "run/metrics.jsonl")[-1]
    with pytest.raises(ValueError, match="no clip of the split 'other'"):
        open_source(tmp_path / "data", "other")


def test_a_run_stops_at_broken_clips_or_goes_on_without(tiny_recipe, t2v, panshot, tmp_path):
    from ucpe.training.runs import run

    recipe = tiny_recipe(t2v, steps=2)
    with pytest.raises(ValueError, match=r"(?s)1 of 3 clips cannot be read.*vid2-2-0.*--skip-broken"):
        run(recipe, panshot, tmp_path / "run", tracker=None, quiet=True)
    result = run(recipe, panshot, tmp_path / "run", tracker=None, skip_broken=True, quiet=True)
    assert (result / "config.json").is_file()


def test_two_workers_encode_the_same_bytes_as_one(tiny_recipe, t2v, clip_folder, tmp_path):
    found = []
    for workers in (1, 2):
        clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path / str(workers))
        assert encode_missing(clips, model, range(6), CPU, workers=workers) == {}
        files = [file for file in (tmp_path / str(workers)).rglob("*") if file.is_file()]
        found.append({file.relative_to(tmp_path / str(workers)): file.read_bytes() for file in files})
    assert found[0] == found[1] and len(found[0]) > 6


def test_processes_that_train_together_share_the_clips(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)
    for rank in range(2):
        left = len(clips.missing_videos(range(6)))
        encode_missing(clips, model, range(6), CPU, rank, 2)
        assert left - len(clips.missing_videos(range(6))) == 3


def test_resizing_keeps_the_shape_and_refuses_to_squeeze():
    video = torch.randint(0, 255, (5, 64, 96, 3), dtype=torch.uint8)
    assert sized(video, "clip", 5, 32, 48).shape == (5, 32, 48, 3)
    with pytest.raises(ValueError, match=r"clip is 64 x 96: at 32 x 32 it would be squeezed"):
        sized(video, "clip", 5, 32, 32)
    with pytest.raises(ValueError, match=r"has 5 frames, training needs 9: set --frames 5"):
        sized(video, "clip", 9, 64, 96)


def test_a_folder_without_clips_says_what_it_could_hold(tmp_path):
    with pytest.raises(ValueError, match="ucpe synthesize"):
        open_source(tmp_path)


def test_only_planned_clips_are_needed_and_a_plan_depends_on_its_step_alone(tiny_recipe, t2v):
    recipe = tiny_recipe(t2v, steps=3, first_frame=0.5)
    planned = planned_clips(recipe, 1000)
    plans = [plan_step(recipe, step, 1000, (4, 2, 4, 6), True) for step in range(3)]
    assert planned == sorted({clip for plan in plans for clip in plan.clips})
    again = plan_step(recipe, 1, 1000, (4, 2, 4, 6), True)
    assert again.clips == plans[1].clips and torch.equal(again.noise, plans[1].noise)
    assert not torch.equal(plans[0].noise, plans[1].noise)
    kept = plan_step(recipe, 1, 1000, (4, 2, 4, 6), False)
    assert (kept.level > 0).all()


def test_the_black_around_a_fisheye_is_masked_and_a_pinhole_is_not(clip_folder):
    source = DeskClipFiles(clip_folder)
    cameras = {clip.family: clip.camera for clip in map(source.clip, range(4))}
    assert visible_latents([cameras["pinhole"]], (2, 8, 12)) is None
    square = visible_latents([cameras["extreme-fisheye"], cameras["pinhole"]], (2, 24, 24))
    assert square.shape == (2, 1, 2, 24, 24)
    assert not square[0, 0, 0, 0, 0] and square[0, 0, 0, 12, 12] and square[1].all()


def test_silenced_clips_see_the_empty_caption(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(t2v, drop_text=1.0), clip_folder, tmp_path)
    encode_missing(clips, model, range(6), CPU)
    batch = TrainingSteps(clips.recipe, clips, None, False)[0][0]
    assert all(torch.equal(text, clips.embedding("")) for text in batch.text)


def test_encoded_files_hold_half_precision(tiny_recipe, t2v, clip_folder, tmp_path):
    clips, model = open_clips(tiny_recipe(t2v), clip_folder, tmp_path)
    encode_missing(clips, model, [0], CPU)
    assert load_file(clips.videos.file(clips.video(0)))["latents"].dtype == torch.float16
    video = clips.source.clip(0).pictures.video(5, 32, 48)
    whole = encode_video(model.autoencoder(), to_model_range(video[None]))[0]
    torch.testing.assert_close(VideoEncoder(model, CPU)(video)["latents"].float(), whole, atol=2e-3, rtol=1e-3)
