"""The camera pipeline on diffusers' real Wan classes at tiny size."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
from diffusers.utils import export_to_video
from matplotlib.colors import to_rgb
from tests.pictures import filled_cells, pixels, shows

from ucpe.adapters import CameraAdapter, ReCamMaster
from ucpe.desk import model as desk
from ucpe.generation.defaults import Defaults
from ucpe.generation.pipeline import CameraPipeline
from ucpe.generation.preview import preview_sheet
from ucpe.generation.requests import Request, make_video, make_video_without_camera, read_again, read_list
from ucpe.lenses import UCM, Pinhole, fit_image
from ucpe.pages.drawings import HORIZON, UP
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames

PROMPT = "a red tower on grass"
DEFAULTS = Defaults(frames=5, fps=8.0, height=32, width=48, steps=2, guidance=2.0, text_tokens=12)


def tiny_pipeline(expand_timesteps=True, placement="parallel"):
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=4, z_dim=4, dim_mult=[1, 1, 1], num_res_blocks=1, temperal_downsample=[True, True], patch_size=2,
        in_channels=12, out_channels=12, latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
        text_dim=96, freq_dim=16, ffn_dim=32, num_layers=2, rope_max_seq_len=32,
    )  # fmt: skip
    tokenizer = desk.make_tokenizer(tuple(PROMPT.split()))
    pipe = WanPipeline(
        tokenizer=tokenizer, text_encoder=desk.make_text_encoder(len(tokenizer)).eval(), vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), transformer=transformer,
        expand_timesteps=expand_timesteps,
    )  # fmt: skip
    pipe.set_progress_bar_config(disable=True)
    adapter = CameraAdapter.for_transformer(transformer, compression=1, heads=1, head_dim=24, placement=placement)
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return CameraPipeline(pipe, adapter, DEFAULTS)


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


@pytest.fixture(scope="module")
def camera():
    return Trajectory.pan(UCM(xfov=160, xi=1.5), degrees=30, frames=5, fps=8, pitch=-10)


@pytest.fixture(scope="module")
def video(pipeline, camera):
    return pipeline(PROMPT, camera, seed=3).videos[0]


def test_a_video_has_the_cameras_frames(video, camera):
    assert video.frames.shape == (5, 32, 48, 3) and video.frames.dtype == np.uint8
    assert video.camera is camera and video.prompt == PROMPT


def test_a_model_left_to_itself_does_not_know_the_camera(pipeline, camera, video, tmp_path):
    alone = pipeline(PROMPT, camera, seed=3, follow_camera=False).videos[0].frames
    other = Trajectory.orbit(Pinhole(xfov=60), degrees=40, frames=5, fps=8)
    assert np.array_equal(alone, pipeline(PROMPT, other, seed=3, follow_camera=False).videos[0].frames)
    assert not np.array_equal(alone, video.frames)
    assert np.array_equal(pipeline(PROMPT, camera, seed=3).videos[0].frames, video.frames)  # and it follows again
    path = tmp_path / "without.mp4"
    make_video_without_camera(pipeline, Request(PROMPT, camera, seed=3), path)
    assert read_frames(path).shape == alone.shape


def test_same_seed_same_video_and_another_seed_another(pipeline, camera, video):
    assert np.array_equal(pipeline(PROMPT, camera, seed=3).videos[0].frames, video.frames)
    assert not np.array_equal(pipeline(PROMPT, camera, seed=4).videos[0].frames, video.frames)


def test_the_lens_and_the_path_change_the_video(pipeline, camera, video):
    for other in (camera.with_lens(Pinhole(xfov=90)), Trajectory.static(camera.lens, frames=5, fps=8, pitch=-10)):
        assert not np.array_equal(pipeline(PROMPT, other, seed=3).videos[0].frames, video.frames)


def test_a_batch_gives_every_video_its_own_camera_and_seed(pipeline, camera, video):
    other = camera.with_lens(Pinhole(xfov=90))
    batch = pipeline(PROMPT, [camera, other], seed=[3, 5]).videos
    for entry, alone in zip(batch, (video, pipeline(PROMPT, other, seed=5).videos[0])):
        difference = np.abs(entry.frames.astype(int) - alone.frames.astype(int))
        assert difference.max() <= 1


def test_a_first_frame_is_kept(pipeline, camera):
    image = np.random.default_rng(0).integers(0, 255, (32, 48, 3), dtype=np.uint8)
    given = pipeline(PROMPT, camera, image=image, seed=3)
    without = pipeline(PROMPT, camera, seed=3)
    assert given.frames.shape == without.frames.shape
    assert not np.array_equal(given.frames, without.frames)


def test_progress_is_reported_after_every_step(pipeline, camera):
    seen = []
    pipeline(PROMPT, camera, num_inference_steps=3, on_step=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_it_speaks_diffusers_dialect(pipeline, camera, video, tmp_path):
    output = pipeline(
        PROMPT, camera=camera, num_frames=5, num_inference_steps=2, guidance_scale=2.0, height=32, width=48,
        negative_prompt="", generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    assert output.frames.shape == (1, 5, 32, 48, 3) and output[0] is output.frames
    assert output.frames.min() >= 0 and output.frames.max() <= 1
    assert np.array_equal(output.videos[0].frames, video.frames)
    export_to_video(output.frames[0], str(tmp_path / "out.mp4"), fps=8)
    assert np.corrcoef(read_frames(tmp_path / "out.mp4").ravel(), video.frames.ravel())[0, 1] > 0.5
    for kind in ("pt", "pil"):
        other = pipeline(PROMPT, camera, seed=3, output_type=kind)
        assert np.abs(other.videos[0].frames.astype(int) - video.frames).max() <= 1
    latents = pipeline(PROMPT, camera, output_type="latent")
    with pytest.raises(ValueError, match="latents are no pictures"):
        latents.videos  # noqa: B018
    assert isinstance(pipeline(PROMPT, camera, return_dict=False), tuple)


def test_callbacks_see_and_change_the_latents_and_an_exception_cancels(pipeline, camera, video):
    seen = []

    def zero(pipe, step, timestep, tensors):
        seen.append((step, sorted(tensors)))
        return {"latents": torch.zeros_like(tensors["latents"])}

    changed = pipeline(PROMPT, camera, seed=3, callback_on_step_end=zero)
    assert seen == [(0, ["latents"]), (1, ["latents"])]
    assert not np.array_equal(changed.videos[0].frames, video.frames)

    def cancel(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline(PROMPT, camera, on_step=cancel)
    assert np.array_equal(pipeline(PROMPT, camera, seed=3).videos[0].frames, video.frames)


def test_what_is_not_here_is_the_diffusers_pipelines(pipeline, camera, video):
    assert pipeline.vae is pipeline.pipe.vae and pipeline.transformer is pipeline.pipe.transformer
    scheduler = pipeline.scheduler
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=9.0)
    try:
        assert pipeline.pipe.scheduler.config.shift == 9.0
        assert not np.array_equal(pipeline(PROMPT, camera, seed=3).videos[0].frames, video.frames)
    finally:
        pipeline.scheduler = scheduler
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pipeline.nonsense  # noqa: B018


@pytest.mark.parametrize("placement", ["parallel", "pre", "post"])
def test_the_users_own_pipeline_still_runs_and_is_as_it_was(camera, placement):
    arguments = {"num_frames": 5, "height": 32, "width": 48, "num_inference_steps": 1, "max_sequence_length": 12}

    def own(pipe):
        return pipe(PROMPT, generator=torch.Generator().manual_seed(0), **arguments).frames

    made = tiny_pipeline(placement=placement)
    attached = own(made.pipe)
    steered = made(PROMPT, camera, seed=0, num_inference_steps=1, guidance_scale=5.0).frames
    assert np.array_equal(own(made.pipe), attached) and not np.array_equal(steered, attached)
    assert np.array_equal(own(made.detach()), attached)


def test_an_adapter_that_tuned_the_transformer_says_how_to_detach(camera):
    pipe = tiny_pipeline().detach()
    made = CameraPipeline(pipe, ReCamMaster.for_transformer(pipe.transformer), DEFAULTS)
    with pytest.raises(ValueError, match=r"ReCamMaster is attached.*no camera is set.*detach\(\) first"):
        pipe(PROMPT, num_frames=5, height=32, width=48, num_inference_steps=1, max_sequence_length=12)
    assert made(PROMPT, camera).frames.shape == (1, 5, 32, 48, 3)


def test_it_moves_casts_and_offloads(camera, video):
    made = tiny_pipeline().to(dtype=torch.bfloat16, device="cpu")
    assert {part.dtype for part in (made.transformer, made.vae, made.adapter)} == {torch.bfloat16}
    made.vae.to(torch.float32)
    made.vae.enable_tiling()
    half = made(PROMPT, camera, seed=3).videos[0].frames
    assert np.abs(half.astype(int) - video.frames).mean() < 4
    whole = tiny_pipeline()
    whole.enable_group_offload(onload_device=torch.device("cpu"), offload_type="leaf_level")
    assert np.array_equal(whole(PROMPT, camera, seed=3).videos[0].frames, video.frames)


def test_a_second_expert_without_an_adapter_is_refused():
    pipe = tiny_pipeline().detach()
    pipe.register_modules(transformer_2=pipe.transformer)
    adapter = CameraAdapter.for_transformer(pipe.transformer, compression=1, heads=1, head_dim=24)
    with pytest.raises(ValueError, match="has 2 transformers that denoise, and 1 adapters are given"):
        CameraPipeline(pipe, adapter)


def test_saved_and_loaded_it_makes_the_same_video(pipeline, camera, video, tmp_path):
    pipeline.save_pretrained(tmp_path / "model")
    loaded = CameraPipeline.from_pretrained(tmp_path / "model")
    assert loaded.defaults == DEFAULTS
    assert np.array_equal(loaded(PROMPT, camera, seed=3).videos[0].frames, video.frames)


def test_wrong_combinations_fail_early_and_clearly(pipeline, camera, tmp_path):
    with pytest.raises(ValueError, match=r"4 frames.*such as 1 or 5.*resample\(frames=5\)"):
        pipeline(PROMPT, camera[:4])
    with pytest.raises(ValueError, match=r"height must be a multiple of 16 pixels.*got 40"):
        pipeline(PROMPT, camera, height=40)
    with pytest.raises(ValueError, match=r"5 frames and num_frames is 9.*resample\(frames=9\)"):
        pipeline(PROMPT, camera, num_frames=9)
    with pytest.raises(ValueError, match="no camera given"):
        pipeline(PROMPT)
    with pytest.raises(ValueError, match="seed or a generator, not both"):
        pipeline(PROMPT, camera, seed=1, generator=torch.Generator())
    with pytest.raises(ValueError, match="instead of num_videos_per_prompt"):
        pipeline(PROMPT, camera, num_videos_per_prompt=2)
    with pytest.raises(ValueError, match="2 prompts do not fit 3 cameras"):
        pipeline([PROMPT] * 2, [camera] * 3)
    with pytest.raises(ValueError, match=r"equally many frames, got \[1, 5\]"):
        pipeline(PROMPT, [camera, camera[:1]])
    with pytest.raises(ValueError, match="has no folder camera_adapter"):
        CameraPipeline.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="from text alone"):
        tiny_pipeline(expand_timesteps=False)(PROMPT, camera, image=np.zeros((32, 48, 3), np.uint8))


def test_a_missing_model_says_what_to_download(pipeline, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pipeline.adapter.save_pretrained(tmp_path / "adapter")
    with pytest.raises(OSError, match=r"cannot get nobody/nothing .*hf download nobody/nothing"):
        CameraPipeline.from_pretrained("nobody/nothing", adapter=tmp_path / "adapter", local_files_only=True)


def test_a_record_makes_the_same_video_again(pipeline, camera, video, tmp_path):
    request = Request(PROMPT, camera, seed=3)
    written = make_video(pipeline, request, tmp_path / "a.mp4", preview=True)
    assert set(written) == {"video", "record", "preview"} and filled_cells(pixels(written["preview"]), 1, 6).all()
    again = read_again(written["record"])
    assert again.prompt == PROMPT and again.seed == 3
    torch.testing.assert_close(again.camera.c2w, camera.c2w, rtol=0, atol=0)
    make_video(pipeline, again, tmp_path / "b.mp4")
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_a_file_that_is_no_record_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="not the record of a generated video"):
        read_again(path)


def test_a_calibration_of_another_shape_is_not_squeezed_without_a_word(pipeline):
    lens = Pinhole(fx=400, width=640, height=480)
    height, width = pipeline.defaults.height, pipeline.defaults.width
    camera = Trajectory.static(lens, frames=5, fps=8)
    with pytest.warns(UserWarning, match=f"640 x 480 for images of {width} x {height}: it is squeezed .*fit_image"):
        pipeline(PROMPT, camera, num_inference_steps=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "a calibration of")
        pipeline(PROMPT, camera.with_lens(fit_image(lens, height, width)[0]), num_inference_steps=1)


def test_a_list_of_requests_is_read(camera, tmp_path):
    camera.save(tmp_path / "path.json")
    listed = tmp_path / "list.json"
    listed.write_text(
        json.dumps([{"prompt": "a", "camera": "path.json", "seed": 7}, {"prompt": "b", "camera": "path.json"}])
    )
    requests = read_list(listed, seed=1, steps=2)
    assert [(request.prompt, request.seed, request.steps) for request in requests] == [("a", 7, 2), ("b", 1, 2)]
    listed.write_text(json.dumps([{"prompt": "a", "colour": 3}]))
    with pytest.raises(ValueError, match="entry 0: needs prompt and camera"):
        read_list(listed)


def test_a_path_of_a_list_that_lies_on_its_side_is_levelled_aloud(camera, tmp_path):
    tilted = camera.transformed(Trajectory.static(camera.lens, roll=88).c2w[0])
    tilted.save(tmp_path / "path.txt", "tum")
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps([{"prompt": "a", "camera": "path.txt"}]))
    with pytest.warns(UserWarning, match=r"path.txt does not say which way is up: .* \(--up \+z, --up -y"):
        (request,) = read_list(listed)
    assert abs(float(request.camera.angles.roll[0])) < 1e-6
    (request,) = read_list(listed, up="-y")
    assert float(request.camera.angles.roll[0]) == pytest.approx(88, abs=1)


def test_preview_draws_every_video(video, tmp_path):
    colours = ("#102080", "#c03010", "#20a040")
    painted = [np.full(video.frames.shape, np.multiply(to_rgb(name), 255).round(), np.uint8) for name in colours]
    preview_sheet([replace(video, frames=frames) for frames in painted], tmp_path / "sheet.png")
    rows = np.array_split(pixels(tmp_path / "sheet.png"), 3)
    for row, colour in zip(rows, colours):
        assert [shows(row, other, least=5000) for other in colours] == [other == colour for other in colours]
        assert shows(row, np.divide(HORIZON, 255)) and shows(row, np.divide(UP, 255))


def test_words_outside_the_vocabulary_become_unknown():
    tokenizer = desk.make_tokenizer(("a", "tower"))
    assert tokenizer("A zebra, tower!").input_ids == [3, 2, 4, 1]


def test_the_record_of_a_video_is_a_camera_file(pipeline, camera, tmp_path):
    make_video(pipeline, Request(PROMPT, camera, steps=1), tmp_path / "a.mp4")
    again = Trajectory.load(tmp_path / "a.json")
    assert torch.equal(again.c2w, camera.c2w) and again.lens == camera.lens and again.fps == camera.fps
    assert again.up_known is camera.up_known
