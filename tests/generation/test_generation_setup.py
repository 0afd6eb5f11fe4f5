"""How a model is set up, its limits, and the words it knows."""

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from ucpe import desk
from ucpe.generation.checks import beyond_limits, check_output, read_facts
from ucpe.generation.defaults import Defaults, Limits
from ucpe.generation.options import Setup
from ucpe.generation.pipeline import CameraPipeline
from ucpe.generation.setup import EvenEuler, check_lora, make_scheduler, resolved, split_lora
from ucpe.generation.vocabulary import UnknownWords, Vocabulary
from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory


@pytest.mark.parametrize("steps", [1, 4, 50])
def test_the_released_sampler_has_its_noise_levels(steps):
    """Evenly spaced from 1, without 0, shifted by 5: s -> 5 s / (1 + 4 s); then Euler steps down to 0."""
    scheduler = make_scheduler(FlowMatchEulerDiscreteScheduler(), "euler", 5.0)
    assert isinstance(scheduler, EvenEuler)
    scheduler.set_timesteps(steps)
    even = 1 - np.arange(steps) / steps
    np.testing.assert_allclose(scheduler.sigmas, [*(5 * even / (1 + 4 * even)), 0], atol=1e-6)
    sample, velocity = torch.zeros(1, 2), torch.ones(1, 2)
    for timestep in scheduler.timesteps:
        sample = scheduler.step(velocity, timestep, sample, return_dict=False)[0]
    torch.testing.assert_close(sample, -velocity)


def test_a_scheduler_keeps_the_models_shift_unless_told():
    model = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    assert make_scheduler(model, "euler", None).config.shift == 3.0
    changed = make_scheduler(model, None, 8.0)
    assert isinstance(changed, UniPCMultistepScheduler) and changed.config.flow_shift == 8.0
    assert make_scheduler(FlowMatchEulerDiscreteScheduler(shift=2.0), "dpm++", None).config.flow_shift == 2.0


def test_what_is_not_said_is_chosen_for_machine_and_model():
    setup = resolved(Setup(), Defaults(scheduler="euler", shift=5.0))
    assert (setup.device, setup.scheduler, setup.shift) == (setup.device or "cpu", "euler", 5.0)
    assert setup.dtype == ("fp32" if setup.device == "cpu" else "bf16")
    assert resolved(Setup(scheduler="unipc"), Defaults(scheduler="euler", shift=5.0)).shift is None
    assert Setup.from_dict({"lora": ["a/b:0.5"]}).lora == ("a/b:0.5",)
    with pytest.raises(ValueError, match="unknown colour in the setup"):
        Setup.from_dict({"colour": 3})


def test_loras_are_files_or_hub_ids(tmp_path):
    assert split_lora("owner/name/fast.safetensors:0.8") == ("owner/name/fast.safetensors", 0.8)
    assert split_lora("owner/name") == ("owner/name", 1.0)
    (tmp_path / "fast.pt").write_bytes(b"")
    for wrong, message in (
        (str(tmp_path / "fast.pt"), "not a readable .safetensors"),
        (":0.5", "no hub id"),
        ("a/b:inf", "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            check_lora(wrong)


def test_a_camera_within_the_limits_is_not_remarked_on():
    defaults = Defaults(limits=Limits(pitch=30, roll=25, turn=60, travel=1.2, min_xfov=90, max_xfov=200))
    inside = Trajectory.move("pan 60 with dolly-in 1.2", UCM(xfov=200, xi=2.3), frames=17, pitch=-30)
    assert beyond_limits(inside, defaults, 64, 112) == []
    outside = Trajectory.move("pan 70 with dolly-in 1.3", UCM(xfov=210, xi=2.5), frames=17, pitch=31, roll=-26)
    assert len(beyond_limits(outside, defaults, 64, 112)) == 5
    assert beyond_limits(outside, Defaults(), 64, 112) == []


def test_outputs_are_tried_before_the_work(tmp_path):
    check_output(tmp_path / "new/folder/a.mp4")
    check_output(tmp_path / "new", folder=True)
    assert not (tmp_path / "new").exists()
    (tmp_path / "a.mp4").write_bytes(b"")
    with pytest.raises(ValueError, match="is a file: name a folder"):
        check_output(tmp_path / "a.mp4", folder=True)


def test_unknown_words_are_said_in_python():
    pipe = CameraPipeline.from_pretrained()
    pipe.set_progress_bar_config(disable=True)
    camera = Trajectory.static(UCM(xfov=100, xi=0.3), frames=1, fps=8)
    with pytest.warns(UnknownWords, match="does not know the words Zebra, walks; its card lists"):
        pipe("A Zebra walks on grass", camera, num_inference_steps=1)
    facts = read_facts(None, None)
    assert facts.vocabulary is not None and {"tower", "snow"} <= set(facts.vocabulary.words)
    assert facts.vocabulary.notes("grass " * 50, 40) == [
        "the prompt has 50 words, of which the model reads the first 39"
    ]
    assert (facts.temporal_stride, facts.token, facts.first_frame) == (4, (16, 16), "may")
    assert Vocabulary.of_file(desk.WEIGHTS / "nothing.json") is None
