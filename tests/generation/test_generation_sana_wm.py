"""The camera pipeline on diffusers' real SANA-WM classes at tiny size."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from ucpe.cli.evaluate import main as evaluate
from ucpe.cli.generate import main
from ucpe.generation.families import lens_of_cropped
from ucpe.generation.pipeline import CameraPipeline
from ucpe.lenses import UCM, KannalaBrandt, Pinhole
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames

pytest.importorskip("diffusers.pipelines.sana_wm")

PROMPT = "a red tower on grass"
SIZE = {"height": 64, "width": 96}
CALL = {**SIZE, "num_inference_steps": 2, "guidance_scale": 2.0, "max_sequence_length": 12, "chi_prompt": ["a"]}


@pytest.fixture(scope="module")
def pipeline(sana_wm_folder):
    pipe = CameraPipeline.from_pretrained(sana_wm_folder)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="module")
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 96, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def orbit():
    return Trajectory.orbit(Pinhole(xfov=80), degrees=20, frames=17, fps=16, pitch=-5)


def latents(pipeline, camera, picture, **options):
    return pipeline(PROMPT, camera, image=picture, seed=3, output_type="latent", **{**CALL, **options}).frames


def untouched(pipe, camera, picture, **options):
    """diffusers' own pipeline with a pinhole camera; intrinsics are those of the picture before it is cropped."""
    matrix = camera.lens.cropped(0, -8, 80, 96, height=64, width=96).intrinsics(80, 96)
    noise = torch.Generator().manual_seed(3)
    return pipe(
        picture, PROMPT, c2w=camera.c2w.numpy(), intrinsics=matrix.numpy(), num_frames=17, generator=noise,
        output_type="latent", **{**CALL, **options},
    ).frames  # fmt: skip


def test_a_pinhole_gives_the_video_of_the_untouched_pipeline(make_sana_wm_pipeline, pipeline, orbit, picture):
    """With guidance and without; rays rounded once instead of at every operation is all that differs."""
    for options in ({}, {"guidance_scale": 1.0}):
        expected = untouched(make_sana_wm_pipeline(), orbit, picture, **options)
        assert torch.equal(untouched(pipeline.pipe, orbit, picture, **options), expected), "without a camera of ours"
        difference = (latents(pipeline, orbit, picture, **options) - expected).abs().max()
        assert difference < 1e-4 * expected.abs().max()


def test_every_lens_makes_its_own_video(pipeline, orbit, picture):
    zoom = UCM(xfov=torch.linspace(80, 150, 17), xi=torch.linspace(0, 1.2, 17))
    lenses = (orbit.lens, UCM(xfov=150, xi=1.2), zoom, KannalaBrandt(xfov=180))
    videos = [latents(pipeline, orbit.with_lens(lens), picture) for lens in lenses]
    for index, video in enumerate(videos):
        assert torch.equal(video[:, :, 0], videos[0][:, :, 0]), "the first frame is given"
        for other in videos[:index]:
            assert (video - other).abs().max() > 1e-3


def test_several_videos_are_those_of_one_at_a_time(pipeline, orbit, picture):
    other = orbit.with_lens(UCM(xfov=150, xi=1.2))
    both = pipeline([PROMPT, "a tower"], [orbit, other], image=picture, seed=[3, 4], **CALL)
    alone = pipeline("a tower", other, image=np.asarray(picture), seed=4, output_type="pt", **CALL)
    assert both.frames.shape == (2, 17, 64, 96, 3)
    assert np.array_equal(both.videos[1].frames, alone.videos[0].frames)
    assert not np.array_equal(both.videos[0].frames, both.videos[1].frames)


def test_its_own_defaults_and_options(pipeline, orbit, picture):
    defaults = pipeline.defaults
    assert (defaults.height, defaults.width, defaults.frames, defaults.steps) == (704, 1280, 161, 60)
    with pytest.raises(ValueError, match="needs a first frame"):
        pipeline(PROMPT, orbit, **CALL)
    with pytest.raises(ValueError, match="given as camera=, leave action out"):
        pipeline(PROMPT, orbit, image=picture, action="w-16", **CALL)
    with pytest.raises(ValueError, match=r"16 frames; the model makes 8 n \+ 1"):
        pipeline(PROMPT, orbit[:16], image=picture, **CALL)
    with pytest.raises(ValueError, match="multiple of 32"):
        pipeline(PROMPT, orbit, image=picture, **{**CALL, "height": 60})
    seen = []
    latents(pipeline, orbit, picture, on_step=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("size", "height", "width"), [((96, 80), 64, 96), ((200, 100), 64, 96), ((60, 40), 64, 96), ((97, 80), 32, 64)]
)
def test_the_lens_of_a_cropped_photograph(size, height, width):
    """Against diffusers' own cropping of a picture with its intrinsics."""
    from diffusers.pipelines.sana_wm.image_processor import SanaWMImageProcessor

    across, down = size
    lens = UCM(fx=70.0, fy=75.0, cx=50.0, cy=30.0, xi=1.1, width=across, height=down)
    numbers = np.array([[70.0, 75.0, 50.0, 30.0]])
    _, expected = SanaWMImageProcessor().preprocess_with_intrinsics(Image.new("RGB", size), numbers, height, width)
    cropped = lens_of_cropped(lens, size, height, width)
    matrix = cropped.intrinsics(height, width).numpy()
    np.testing.assert_allclose(matrix[[0, 1, 0, 1], [0, 1, 2, 2]], expected[0], rtol=1e-5)
    for video_lens in (UCM(xfov=150, xi=1.2), UCM(fx=70.0, width=64, height=64)):
        assert lens_of_cropped(video_lens, (100, 50), height, width) is video_lens


def test_generate_on_the_command_line(sana_wm_folder, picture, tmp_path):
    picture.save(tmp_path / "first.png")
    size = ["--height", "64", "--width", "96", "--frames", "9", "--steps", "1"]
    files = ["--model", str(sana_wm_folder), "--image", str(tmp_path / "first.png"), "-o", str(tmp_path / "out.mp4")]
    main([PROMPT, *files, "--lens", "fisheye", "--move", "orbit", *size])
    assert read_frames(tmp_path / "out.mp4").shape == (9, 64, 96, 3)
    assert json.loads((tmp_path / "out.json").read_text())["request"]["camera"]["lens"]["model"] == "ucm"
    report = tmp_path / "report"
    evaluate([str(tmp_path / "out.mp4"), "--cameras", str(tmp_path / "out.json"), "-o", str(report)])
    assert [video["name"] for video in json.loads((report / "results.json").read_text())["videos"]] == ["out"]
