"""The loop: killed anywhere it continues bit for bit; accumulation, processes and shards change nothing."""

import json
import math
import os
import signal
from dataclasses import replace

import pytest
import torch
from torch.distributed.tensor import DTensor

from ucpe.generation.pipeline import CameraPipeline
from ucpe.training import checkpoints
from ucpe.training.checkpoints import AVERAGED, WEIGHTS, checkpoint_paths, load_checkpoint
from ucpe.training.loop import accumulate, make_accelerator, schedule, swapped, train
from ucpe.training.progress import read_curve
from ucpe.training.runs import run
from ucpe.training.steps import TrainingSteps
from ucpe.work import OutOfTime


def curve(output):
    """The numbers of every step but the clock's."""
    return [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in read_curve(output / "metrics.jsonl")
    ]


def trained_weights(checkpoint):
    """What training is for, by parameter name: the averaged weights where there are any."""
    prefix = AVERAGED if any(name.startswith(AVERAGED) for name in checkpoint.tensors) else WEIGHTS
    return {name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)}


def test_training_lowers_the_loss_and_leaves_the_base_alone(tiny_recipe, t2v, encoded, tmp_path):
    recipe = tiny_recipe(t2v, steps=24, checkpoint_every=24, gradient_checkpointing=False)
    clips, model = encoded(recipe)
    before = {name: value.clone() for name, value in model.transformer.state_dict().items()}
    train(recipe, model, clips, tmp_path, quiet=True)
    losses = [line["loss"] for line in curve(tmp_path)]
    assert sum(losses[-6:]) < 0.9 * sum(losses[:6])
    assert all(torch.equal(value, before[name]) for name, value in model.transformer.state_dict().items())
    assert any(value.abs().sum() > 0 for name, value in model.adapter.named_parameters() if "out_proj" in name)


def killed_run(rank, recipe, encoded, output, kill_at, in_checkpoint):
    """Train, and die by SIGKILL in the middle of a step or of writing a checkpoint."""
    clips, model = encoded(recipe)
    if in_checkpoint:
        write = checkpoints.save_file

        def dying_write(tensors, path, metadata):
            if int(metadata["step"]) == kill_at:
                path.write_bytes(b"half of a checkpoint")
                os.kill(os.getpid(), signal.SIGKILL)
            write(tensors, path, metadata)

        checkpoints.save_file = dying_write
    elif kill_at is not None:
        handle = [0]

        def die(module, args):
            handle[0] += 1
            if handle[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        model.register_forward_pre_hook(die)
    train(recipe, model, clips, output, validation=clips, quiet=True)


def test_killed_at_any_moment_the_curve_continues_bit_for_bit(tiny_recipe, ti2v, encoded, tmp_path, run_processes):
    recipe = tiny_recipe(ti2v, ema=0.9, first_frame=0.5, warmup=3, final_learning_rate=0.1, validation_clips=2)
    clips, model = encoded(recipe)
    whole = train(recipe, model, clips, tmp_path / "whole", validation=clips, quiet=True)

    output = tmp_path / "killed"
    moments = [(1, False), (2, True), (4, False), (4, True), (3, False)]
    for kill_at, in_checkpoint in moments:
        codes = run_processes(killed_run, 1, recipe, encoded, output, kill_at, in_checkpoint)
        assert codes == [-signal.SIGKILL]
    assert run_processes(killed_run, 1, recipe, encoded, output, None, False) == [0]

    assert curve(output) == curve(tmp_path / "whole")
    ended, expected = load_checkpoint(output / "checkpoints"), load_checkpoint(tmp_path / "whole/checkpoints")
    assert ended.step == expected.step == 6
    assert ended.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(value, expected.tensors[name]) for name, value in ended.tensors.items())
    weights = trained_weights(expected)
    assert all(torch.equal(value.data, weights[name]) for name, value in whole.trained_parameters().items())
    assert not list(output.rglob(".*.partial"))


def gradients(recipe, encoded, tmp_path):
    clips, model = encoded(recipe)
    accelerator = make_accelerator(recipe, tmp_path)
    optimizer = torch.optim.AdamW(model.trained_parameters().values())
    wrapped, _ = accelerator.prepare(model, optimizer)
    steps = TrainingSteps(recipe, clips, model.adapter, model.expand_timesteps)
    loss = accumulate(recipe, wrapped, steps[0], accelerator)
    return loss, {name: value.grad for name, value in model.trained_parameters().items()}


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_accumulation_gives_the_gradient_of_the_large_batch(tiny_recipe, t2v, encoded, tmp_path, micro_batch):
    whole, expected = gradients(tiny_recipe(t2v, micro_batch=4), encoded, tmp_path)
    parts, found = gradients(tiny_recipe(t2v, micro_batch=micro_batch), encoded, tmp_path)
    assert parts == pytest.approx(whole, rel=1e-5)
    assert any(value.abs().max() > 1e-4 for value in expected.values())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-4)


def whole_run(rank, recipe, data, output):
    run(recipe, data, output, validation=data, cache=output / "cache", tracker=None, quiet=True)


def test_two_processes_get_the_loss_of_one(tiny_recipe, t2v, clip_folder, tmp_path, run_processes):
    recipe = tiny_recipe(t2v, micro_batch=1, ema=0.9)
    whole_run(0, recipe, clip_folder, tmp_path / "one")
    assert run_processes(whole_run, 2, recipe, clip_folder, tmp_path / "two") == [0, 0]
    assert (tmp_path / "two/adapter/config.json").is_file()
    for one, two in zip(curve(tmp_path / "one"), curve(tmp_path / "two"), strict=True):
        assert two == pytest.approx(one, rel=1e-3)
    one, two = (load_checkpoint(tmp_path / name / "checkpoints") for name in ("one", "two"))
    for name, value in one.tensors.items():
        torch.testing.assert_close(two.tensors[name], value, atol=2e-3, rtol=1e-2)  # Adam amplifies rounding


def sharded_run(rank, recipe, encoded, output):
    """Train under FSDP, which accelerate itself offers on GPUs only."""
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    clips, model = encoded(recipe)
    accelerator = make_accelerator(recipe, output)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["WanTransformerBlock"],
        cpu_ram_efficient_loading=False,
    )
    AcceleratorState._shared_state.update(fsdp_plugin=plugin, distributed_type=DistributedType.FSDP)
    train(recipe, model, clips, output, validation=clips, accelerator=accelerator, quiet=True)
    assert all(isinstance(value, DTensor) for value in model.trained_parameters().values())


def test_shards_over_two_processes_get_the_loss_of_one(tiny_recipe, t2v, encoded, tmp_path, run_processes):
    recipe = tiny_recipe(t2v, micro_batch=2, ema=0.9, adapter="recammaster", learning_rate=1e-3)
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path / "one", validation=clips, quiet=True)
    assert run_processes(sharded_run, 2, replace(recipe, steps=3), encoded, tmp_path / "two") == [0, 0]
    assert run_processes(sharded_run, 2, recipe, encoded, tmp_path / "two") == [0, 0]
    for one, two in zip(curve(tmp_path / "one"), curve(tmp_path / "two"), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    one, two = (load_checkpoint(tmp_path / name / "checkpoints") for name in ("one", "two"))
    assert two.tensors.keys() == one.tensors.keys()
    for name, value in one.tensors.items():
        torch.testing.assert_close(two.tensors[name], value, atol=2e-3, rtol=1e-2)  # Adam amplifies rounding


def test_a_loss_that_is_no_number_ends_the_run_with_its_state_kept(tiny_recipe, t2v, encoded, tmp_path):
    recipe = tiny_recipe(t2v, checkpoint_every=4, gradient_checkpointing=False)
    clips, model = encoded(recipe)
    calls = [0]

    def poison(module, args, output):
        calls[0] += 1
        return output * math.nan if calls[0] == 4 else output

    handle = model.transformer.proj_out.register_forward_hook(poison)
    with pytest.raises(ValueError, match=r"at step 3 the loss is nan.*clips-00000.*lower learning_rate"):
        train(recipe, model, clips, tmp_path, quiet=True)
    handle.remove()
    assert load_checkpoint(tmp_path / "checkpoints").step == 3
    assert all(value.isfinite().all() for value in load_checkpoint(tmp_path / "checkpoints").tensors.values())
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path, quiet=True)
    assert [line["step"] for line in curve(tmp_path)] == list(range(6))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to write to")
def test_a_full_disk_ends_the_run_with_the_last_checkpoint_kept(tiny_recipe, t2v, encoded, tmp_path, monkeypatch):
    recipe = tiny_recipe(t2v, gradient_checkpointing=False)
    clips, model = encoded(recipe)
    write = checkpoints.save_file

    def disk_fills_up(tensors, path, metadata):
        if metadata["step"] == "4":
            path.write_bytes(b"what fitted")
            with open("/dev/full", "wb") as full:
                full.write(b"what did not" * 10_000)
        write(tensors, path, metadata)

    monkeypatch.setattr(checkpoints, "save_file", disk_fills_up)
    with pytest.raises(OSError, match=r"checkpoint of step 4 .*No space left.*step-0000002.safetensors is kept"):
        train(recipe, model, clips, tmp_path, quiet=True)
    monkeypatch.undo()
    assert [path.name for path in checkpoint_paths(tmp_path / "checkpoints")] == ["step-0000002.safetensors"]
    assert not list((tmp_path / "checkpoints").glob(".*"))
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path, quiet=True)
    assert [line["step"] for line in curve(tmp_path)] == list(range(6))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tiny_recipe, t2v, encoded, tmp_path):
    recipe = tiny_recipe(t2v, gradient_checkpointing=False)
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path, quiet=True)
    newest = checkpoint_paths(tmp_path / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"):
        assert load_checkpoint(tmp_path / "checkpoints").step == 4


def test_loading_ahead_in_workers_changes_nothing(tiny_recipe, t2v, encoded, tmp_path):
    for workers in (0, 2):
        recipe = tiny_recipe(t2v, steps=3, workers=workers)
        clips, model = encoded(recipe)
        train(recipe, model, clips, tmp_path / str(workers), quiet=True)
    assert curve(tmp_path / "2") == curve(tmp_path / "0")


def test_asked_to_stop_it_keeps_its_state_and_continues_bit_for_bit(tiny_recipe, t2v, encoded, tmp_path):
    recipe = tiny_recipe(t2v, checkpoint_every=100)
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path / "whole", quiet=True)
    answers = iter([True, True, False])
    clips, model = encoded(recipe)
    with pytest.raises(OutOfTime, match="after 3 of 6 steps"):
        train(recipe, model, clips, tmp_path / "stopped", quiet=True, goes_on=lambda: next(answers))
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path / "stopped", quiet=True)
    assert curve(tmp_path / "stopped") == curve(tmp_path / "whole")


def test_a_base_trained_without_an_adapter_is_a_model_that_adapters_train_on(tiny_recipe, ti2v, clip_folder, tmp_path):
    recipe = tiny_recipe(ti2v, adapter="none", train_base=True, cache_text=False, steps=2, ema=0.9)
    base = run(recipe, clip_folder, tmp_path / "base", tracker=None, quiet=True)
    adapted = run(tiny_recipe(base, steps=2), clip_folder, tmp_path / "adapter", tracker=None, quiet=True)
    pipe = CameraPipeline.from_pretrained(base, adapted)
    assert pipe.defaults.frames == recipe.frames
    trained = trained_weights(load_checkpoint(tmp_path / "base/checkpoints"))
    held = {f"transformer.{name}": value for name, value in pipe.transformer.state_dict().items()}
    held |= {f"text_encoder.{name}": value for name, value in pipe.pipe.text_encoder.state_dict().items()}
    assert all(torch.equal(held[name], value) for name, value in trained.items())


def test_a_folder_of_another_recipe_is_not_continued(tiny_recipe, t2v, encoded, tmp_path):
    recipe = tiny_recipe(t2v, steps=1)
    clips, model = encoded(recipe)
    train(recipe, model, clips, tmp_path, quiet=True)
    other = replace(recipe, learning_rate=1.0, steps=2)
    clips, model = encoded(other)
    with pytest.raises(ValueError, match=r"another recipe: learning_rate 0.01 \(now 1.0\)"):
        train(other, model, clips, tmp_path, quiet=True)
    assert json.loads((tmp_path / "recipe.json").read_text())["learning_rate"] == 0.01


def test_a_batch_that_does_not_split_is_refused(tiny_recipe, t2v, encoded):
    recipe = tiny_recipe(t2v)
    clips, model = encoded(recipe)
    with pytest.raises(ValueError, match="a batch of 4 clips does not split evenly over 3"):
        TrainingSteps(recipe, clips, model.adapter, False, processes=3)


def test_learning_rate_rises_then_falls_to_its_share(tiny_recipe, t2v):
    recipe = tiny_recipe(t2v, steps=100, warmup=10, final_learning_rate=0.1)
    rates = [schedule(recipe, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(rates[9], rel=0.05)
    assert rates[-1] == pytest.approx(0.1, rel=0.02)
    assert [schedule(tiny_recipe(t2v), step) for step in (0, 5)] == [1.0, 1.0]


def test_averaged_weights_are_in_place_only_inside():
    layer = torch.nn.Linear(2, 1, bias=False)
    before, average = layer.weight.detach().clone(), torch.zeros(1, 2)
    with swapped(layer, {"weight": layer.weight}, {"weight": average}):
        assert layer.weight.tolist() == [[0, 0]]
    assert torch.equal(layer.weight, before)
    assert average.tolist() == [[0, 0]]


def test_curve_goes_to_tensorboard(tiny_recipe, t2v, encoded, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe = tiny_recipe(t2v, steps=3)
    clips, model = encoded(recipe)
    accelerator = make_accelerator(recipe, tmp_path, "tensorboard")
    train(recipe, model, clips, tmp_path, accelerator=accelerator, quiet=True)
    accelerator.end_training()
    events = EventAccumulator(str(tmp_path / "logs" / "ucpe")).Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(
        [line["loss"] for line in curve(tmp_path)]
    )
