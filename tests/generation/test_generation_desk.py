import json
import socket

import numpy as np
import pytest
import torch

from ucpe import desk
from ucpe.evaluation.estimators.base import Clip
from ucpe.evaluation.estimators.desk import DeskMotionEstimator
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.generation.pipeline import CameraPipeline
from ucpe.lenses import FAMILIES, UCM
from ucpe.trajectories import Trajectory

SCENE = "a red tower on grass, hills on the horizon, under a clear sky"


@pytest.fixture(scope="module")
def pipe():
    return CameraPipeline.from_pretrained()


def test_the_desk_model_is_small_and_says_what_it_is(pipe):
    files = [path for path in desk.WEIGHTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 30e6
    card = (desk.WEIGHTS / "README.md").read_text()
    for word in ("seed", "commit", "steps", "limits", "ucpe train desk-model"):
        assert word in card.lower()
    assert json.loads((desk.WEIGHTS / "model_index.json").read_text())["expand_timesteps"] is True
    configs = [path.read_text() for path in files if path.suffix == ".json"]
    assert not any('"_name_or_path"' in config for config in configs), "a path of the machine that trained it"
    parts = (pipe.pipe.transformer, pipe.pipe.vae, pipe.pipe.text_encoder, pipe.adapter)
    assert {parameter.dtype for part in parts for parameter in part.parameters()} == {torch.float32}


def test_the_desk_model_needs_no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    camera = Trajectory.pan(UCM(xfov=120, xi=0.5), degrees=10, frames=5, fps=8)
    video = CameraPipeline.from_pretrained()(SCENE, camera, num_inference_steps=1).videos[0]
    assert video.frames.shape == (5, 64, 112, 3)


def test_the_horizon_is_where_pitch_and_roll_put_it(pipe):
    """Sky is blue and grass is green: their border, frame by frame, against the commanded latitude of every pixel."""
    agreement = []
    for seed, (pitch, roll) in enumerate([(-12, 20), (12, -20)]):
        camera = Trajectory.static(FAMILIES["wide"].typical(), frames=5, fps=8, pitch=pitch, roll=roll)
        frames = pipe(SCENE, camera, seed=seed, num_inference_steps=8).videos[0].frames.astype(float)
        rays = camera.lens.rays(64, 112, dtype=torch.float64)
        latitude = -(rays.directions @ camera.c2w[0, :3, :3].T)[..., 1].numpy()
        blue = frames[..., 2] > frames[..., 1]
        clear = np.abs(latitude) > np.sin(np.radians(12))
        agreement += [(blue[:, clear] == (latitude > 0)[clear]).mean()]
    assert min(agreement) > 0.8


def test_words_change_the_picture(pipe):
    camera = Trajectory.static(UCM(xfov=100, xi=0.3), frames=5, fps=8, pitch=-15)
    ground = {
        word: pipe(f"a tree on {word}, hills on the horizon, under a clear sky", camera, seed=1, num_inference_steps=8)
        .videos[0]
        .frames
        for word in ("grass", "snow")
    }
    below = {word: frames[:, 40:].reshape(-1, 3).mean(0) for word, frames in ground.items()}
    assert below["snow"].min() > below["grass"].min() + 40
    assert below["grass"][1] > below["grass"][2] + 20


def test_the_camera_turns_as_told_from_a_given_first_frame(pipe):
    """A pan of 50 degrees to either side, seen by the bundled motion estimator, which is not told the path."""
    lens = FAMILIES["wide"].typical()
    still = Trajectory.static(lens, frames=5, fps=8, pitch=-5)
    first = pipe(SCENE, still, seed=3, num_inference_steps=8).videos[0].frames[0]
    for degrees in (-50, 50):
        camera = Trajectory.pan(lens, degrees=degrees, frames=17, fps=8, pitch=-5)
        video = pipe(SCENE, camera, image=first, seed=4, num_inference_steps=8).videos[0]
        clip = Clip("pan", video.frames, np.arange(17) / 8)
        error = PROTOCOLS["robust"].evaluate(camera.c2w, DeskMotionEstimator().estimate(clip, lens).c2w, 1.0)["RotErr"]
        still = PROTOCOLS["robust"].evaluate(camera.c2w, camera.c2w[:1].repeat(17, 1, 1), 1.0)["RotErr"]
        assert error < 0.5 * still, (degrees, error, still)
