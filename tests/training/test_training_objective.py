import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from ucpe.training.objective import FlowMatching, denoising_error, denoising_loss

SHIFTS = st.sampled_from([1.0, 3.0, 5.0, 8.0])


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shift", [1.0, 3.0, 5.0])
def test_shifted_levels_are_the_sigmas_that_sampling_uses(shift):
    objective = FlowMatching(shift=shift)
    euler = FlowMatchEulerDiscreteScheduler(shift=shift)
    every = torch.linspace(1, 1000, 1000).flip(0) / 1000
    torch.testing.assert_close(objective.shifted(every), euler.sigmas, atol=1e-6, rtol=0)
    unipc = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)
    unipc.set_timesteps(20)
    plain = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=1.0)
    plain.set_timesteps(20)
    torch.testing.assert_close(objective.shifted(plain.sigmas), unipc.sigmas, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shift", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("weighting", ["bell", "none"])
def test_weights_average_one_over_the_schedule_and_are_never_negative(shift, weighting):
    objective = FlowMatching(shift=shift, weighting=weighting)
    level = objective.shifted(torch.linspace(1, 1e-3, 1000, dtype=torch.float64))
    weight = objective.weight(level)
    assert weight.mean().item() == pytest.approx(1, abs=1e-9)
    assert weight.min() >= 0


def test_bell_weight_is_the_one_of_wan_fine_tuning():
    """Written out with timesteps, as it is usually given: exp(-2 ((t - 500) / 1000)^2), less its minimum, mean 1."""
    timesteps = [1000 * 5 * level / (1 + 4 * level) for level in (index / 1000 for index in range(1000, 0, -1))]
    bell = torch.tensor([-2 * ((t - 500) / 1000) ** 2 for t in timesteps], dtype=torch.float64).exp()
    expected = (bell - bell.min()) * 1000 / (bell - bell.min()).sum()
    found = FlowMatching(shift=5.0).weight(torch.tensor(timesteps, dtype=torch.float64) / 1000)
    torch.testing.assert_close(found, expected)


@settings(max_examples=20)
@given(count=st.integers(1, 64), seed=st.integers(0, 1000), shift=SHIFTS)
def test_sampled_levels_cover_the_range_evenly_before_the_shift(count, seed, shift):
    level = FlowMatching(shift=shift).sample(count, torch.Generator().manual_seed(seed)).double()
    assert ((level > 0) & (level <= 1)).all()
    before = level / (shift - (shift - 1) * level)
    strata = ((1 - before) / (1 - 1e-3) * count).floor().clamp(0, count - 1).long()
    assert (strata.bincount(minlength=count) - 1).abs().max() <= 1


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), given_frames=st.integers(0, 2), masked=st.booleans())
def test_a_perfect_prediction_has_no_loss_and_any_other_has(seed, given_frames, masked):
    velocity = random(2, 4, 3, 5, 6, seed=seed)
    level = torch.full((2, 1, 3, 1, 1), 0.7)
    level[:, :, :given_frames] = 0
    visible = (random(2, 1, 3, 5, 6, seed=seed + 1) > 0) if masked else None
    objective = FlowMatching()
    assert denoising_loss(velocity, velocity, level, objective, visible).abs().max() == 0
    off = denoising_loss(velocity + 0.5, velocity, level, objective, visible)
    torch.testing.assert_close(off, objective.weight(torch.tensor([0.7, 0.7])) * 0.25)


def test_given_frames_and_pixels_outside_the_lens_do_not_count():
    velocity, wrong = random(1, 4, 3, 5, 6), random(1, 4, 3, 5, 6, seed=1)
    level = torch.full((1, 1, 3, 1, 1), 0.5)
    level[:, :, 0] = 0
    visible = torch.ones(1, 1, 3, 5, 6, dtype=torch.bool)
    visible[..., 0] = False
    prediction = velocity.clone()
    prediction[:, :, 0] = wrong[:, :, 0]
    prediction[..., 0] = wrong[..., 0]
    assert denoising_error(prediction, velocity, level, visible).item() == 0
    assert denoising_error(prediction, velocity, level).item() > 0
    everywhere = torch.ones_like(visible)
    torch.testing.assert_close(
        denoising_error(wrong, velocity, level, everywhere), denoising_error(wrong, velocity, level)
    )


@pytest.mark.parametrize("arguments", [{"shift": 0.0}, {"shift": -1.0}, {"weighting": "cosmap"}])
def test_impossible_objectives_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        FlowMatching(**arguments)
