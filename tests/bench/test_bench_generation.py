"""Generation from scratch: same start for all, exact continuation, readable latents, honest results."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ucpe.bench import generation, pair_clips
from ucpe.bench.generation import Benchmark, run_benchmark
from ucpe.bench.generation_results import assemble, markdown
from ucpe.bench.pair_clips import KEPT, PrincipalLatents, load_pairs
from ucpe.bench.pair_model import (
    ADAPTERS,
    BASE,
    CONTESTANTS,
    TRANSFORMER,
    PairModel,
    base_latents,
    find_contestant,
    save_base,
)
from ucpe.bench.runs import Machine
from ucpe.desk import clips as desk_clips
from ucpe.desk.model import make_tokenizer
from ucpe.synthesis.worlds import vocabulary
from ucpe.work import Record

SMALL = Benchmark(("ucpe", "none"), seeds=1, steps=4, clips=8, cameras=4, checks=2)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for name, seed in (("training", 0), ("held-out", desk_clips.VALIDATION_SEED)):
        desk_clips.render_shard(0, seed, folder / name, 1, style="plain", kept=KEPT, clips=8)
    return folder


def test_latents_keep_what_the_components_hold_and_decode_linearly(clips):
    pairs = load_pairs(clips / "training", 8)
    latents = PrincipalLatents.fit(pairs.video)
    encoded = latents.encode(pairs.video)
    assert encoded.shape == (8, pair_clips.CHANNELS, 2, 8, 14)
    decoded = latents.decode(encoded)
    error = ((decoded.astype(float) - pairs.video[:, [0, 4]].numpy()) / 255) ** 2
    assert -10 * np.log10(error.mean()) > 26
    assert latents.encode(torch.from_numpy(decoded[:, [0, 1, 1, 1, 1]])).shape == encoded.shape
    for mean, basis in zip(latents.means, latents.bases):
        assert torch.allclose(basis @ basis.T, torch.eye(len(basis)), atol=1e-4)
        assert mean.shape == basis.shape[1:]


def test_all_contestants_start_as_the_same_function(clips):
    pairs = load_pairs(clips / "training", 4)
    latents = PrincipalLatents.fit(pairs.video).encode(pairs.video)
    words = torch.ones(4, 6, dtype=torch.long)
    noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(0))
    made = {}
    for name in CONTESTANTS:
        model = PairModel(name, 0, 10, 4)
        made[name] = model.sample(latents[:, :, 0], noise, words, model.encode(pairs)([0, 1, 2, 3]), steps=2)
    for name, found in made.items():
        assert torch.allclose(found, made["none"], atol=1e-5), name
        assert torch.equal(found[:, :, 0], latents[:, :, 0])


@pytest.mark.parametrize("name", ["ucpe", "cameractrl"])
def test_a_training_continues_exactly(clips, tmp_path, name):
    pairs = load_pairs(clips / "training", 8)
    latents = PrincipalLatents.fit(pairs.video).encode(pairs.video)
    words = torch.ones(8, 6, dtype=torch.long)
    whole = PairModel(name, 3, 10, 4)
    cameras = whole.encode(pairs)
    losses = [whole.train_step(latents, words, cameras) for _ in range(3)]
    part = PairModel(name, 3, 10, 4)
    assert part.train_step(latents, words, part.encode(pairs)) == losses[0]
    part.save(tmp_path / "state.safetensors", {"seen": torch.tensor(1)})
    again = PairModel(name, 3, 10, 4)
    assert again.load(tmp_path / "state.safetensors") == {"seen": torch.tensor(1)}
    assert [again.train_step(latents, words, again.encode(pairs)) for _ in range(2)] == losses[1:]
    for one, other in zip(whole.average.values(), again.average.values()):
        assert torch.equal(one, other)


@pytest.fixture(scope="module")
def base(clips, tmp_path_factory):
    """A base whose averaged weights are not its weights."""
    pairs = load_pairs(clips / "training", 8)
    latents = PrincipalLatents.fit(pairs.video)
    words = len(make_tokenizer(vocabulary()))
    model = PairModel("none", 0, words, 4)
    torch._foreach_mul_(list(model.average.values()), 1.5)
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    save_base(path, model, latents)
    return path


def test_a_base_keeps_its_averaged_weights_and_its_latents(clips, base):
    pairs = load_pairs(clips / "training", 8)
    latents = PrincipalLatents.fit(pairs.video)
    assert torch.equal(base_latents(base).encode(pairs.video), latents.encode(pairs.video))
    words = len(make_tokenizer(vocabulary()))
    fresh, loaded = (PairModel("none", 0, words, 4, path).module.state_dict() for path in (None, base))
    for name, value in loaded.items():
        assert torch.allclose(value, 1.5 * fresh[name], rtol=1e-3, atol=1e-6), name


def test_adapters_start_as_the_base_and_train_only_what_they_ask_for(clips, base):
    pairs = load_pairs(clips / "training", 8)
    latents = base_latents(base).encode(pairs.video)
    words = torch.ones(8, 6, dtype=torch.long)
    noise = torch.randn(latents[:4].shape, generator=torch.Generator().manual_seed(0))
    made, before = {}, load_file(base)
    for name in ADAPTERS:
        model = PairModel(name, 0, len(make_tokenizer(vocabulary())), 4, base)
        cameras = model.encode(pairs)
        made[name] = model.sample(latents[:4, :, 0], noise, words[:4], cameras([0, 1, 2, 3]), steps=2)
        for _ in range(2):
            model.train_step(latents, words, cameras)
        held = {f"module.{key}": value for key, value in model.module.state_dict().items()}
        moved = [key for key in before if key in held and not torch.equal(before[key].float(), held[key])]
        changed = {key.rpartition("blocks.")[2].split(".")[1] for key in moved}
        expected = {"recammaster": {"attn1"}, "recammaster-relative": {"attn1"}}.get(name, set())
        assert (len(moved) > 50) if name.startswith("cameractrl") else changed == expected, name
        assert torch.equal(model.module["words"].weight, before["module.words.weight"].float())
        assert model.learning_rate == (2e-3 if changed else 4e-3)
    for name, found in made.items():
        assert torch.allclose(found, made["none"], atol=1e-5), name


def test_the_frozen_benchmark_runs_whole_and_compares_to_ucpe_with_up(clips, base, tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "missing_shards", lambda *_, **__: {})
    small = replace(SMALL, contestants=("ucpe-lat-up", "none", "ucpe", "recammaster-relative"), base=str(base))
    results = run_benchmark(small, tmp_path, clips, workers=1)
    assert all(facts is not None for facts in results.runs.values())
    assert results.runs["none-seed-0"]["parameters"] == 0 < results.runs["ucpe-seed-0"]["parameters"]
    assert set(results.differences["text"]) == {"none", "ucpe", "recammaster-relative"}
    table = markdown(results)
    assert table.startswith("# Adapters on a frozen base") and "4.12 / 15.21" in table
    assert "Difference to UCPE + Lat-Up" in table


def test_the_bundled_base_is_of_the_benchmarks_size_and_small():
    assert BASE.stat().st_size < 4e6
    model = PairModel("none", 0, len(make_tokenizer(vocabulary())), 4, BASE)
    assert len(model.denoiser.transformer.blocks) == TRANSFORMER["num_layers"]


def test_a_camera_changes_what_a_trained_model_makes(clips):
    pairs = load_pairs(clips / "training", 8)
    latents = PrincipalLatents.fit(pairs.video).encode(pairs.video)
    words = torch.ones(8, 6, dtype=torch.long)
    model = PairModel("ucpe", 0, 10, 4)
    cameras = model.encode(pairs)
    for _ in range(3):
        model.train_step(latents, words, cameras)
    noise = torch.zeros_like(latents[:1])
    first, second = (model.sample(latents[:1, :, 0], noise, words[:1], cameras([index]), 2) for index in (0, 1))
    assert not torch.allclose(first[:, :, 1], second[:, :, 1], atol=1e-6)


def test_the_benchmark_runs_whole_resumes_and_says_what_was_not_run(clips, tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "missing_shards", lambda *_, **how: {})
    results = run_benchmark(SMALL, tmp_path, clips, workers=1)
    assert all(facts is not None for facts in results.runs.values())
    assert results.floors["true"]["yaw"] < results.still["yaw"]
    assert set(json.loads((tmp_path / "results.json").read_text())["final"]["text"]) == {"ucpe", "none"}
    assert (tmp_path / "curves.png").read_bytes()[1:4] == b"PNG" and (tmp_path / "views.png").exists()

    def unexpected(*_):
        raise AssertionError("what is done is not repeated")

    monkeypatch.setattr(generation, "perform", unexpected)
    assert run_benchmark(SMALL, tmp_path, clips, workers=1).final == results.final
    more = run_benchmark(Benchmark(("ucpe", "gta"), 1, 4, 8, 4, 2), tmp_path, clips, workers=1, minutes=0)
    assert "## Not run\n\ngta-seed-0" in markdown(more)


def test_errors_are_those_of_the_commands():
    yaw, travel = torch.tensor([20.0, -40.0]), torch.tensor([[0.5, 0.0], [0.0, -0.6]])
    level = {"pitch": torch.zeros(2), "roll": torch.zeros(2)}
    commanded = {"yaw": yaw, "travel": travel, **level}
    truth = {f"{kind}/{name}": value for kind in ("commanded", "true", "latents") for name, value in commanded.items()}
    half = {"yaw": yaw / 2, "travel": -travel, **level}
    made = {f"{mode}/4/{name}": value for mode in ("first-frame", "text") for name, value in half.items()}
    made |= {f"first-frame/2/{name}": value for name, value in commanded.items()}
    facts = {"processor_seconds": 1.0, "latents_psnr": 30.0}
    tasks = {
        "truth": SimpleNamespace(contestant="truth", seed=0),
        "ucpe-seed-0": SimpleNamespace(contestant="ucpe", seed=0),
    }
    records = {"truth": Record(truth, facts), "ucpe-seed-0": Record(made, facts)}
    benchmark = Benchmark(("ucpe",), steps=4, checks=2, clips=8, cameras=2)
    results = assemble(benchmark, {"ucpe": "UCPE"}, tasks, records, Machine(1))
    assert results.still == {"yaw": 30.0, "travel": pytest.approx(0.55)}
    assert [value.mean for value in results.curves["yaw"]["ucpe"]] == [0.0, 15.0]
    assert results.final["text"]["ucpe"]["travel"].mean == pytest.approx(1.1)
    assert results.obedience["text"]["ucpe"] == {
        "turn_correlation": pytest.approx(1.0),
        "turn_sign": 1.0,
        "travel_direction": 0.0,
    }


def test_strange_contestants_are_refused():
    with pytest.raises(ValueError, match="no contestant 'upe'; there are ucpe"):
        find_contestant("upe")
    with pytest.raises(ValueError, match="must be a subclass of"):
        find_contestant("json:JSONDecoder")
    assert find_contestant("ucpe.adapters:ReCamMaster").title == "ReCamMaster"
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        run_benchmark(Benchmark(steps=0), None, None)
