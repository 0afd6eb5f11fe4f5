"""The adapter benchmark end to end at tiny size: killed and continued, cut short, and asked for the impossible."""

import json
import os
import pickle
import signal
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from safetensors.torch import save_file
from tests.pictures import filled_cells, pixels, shows

from ucpe import desk
from ucpe.bench import adapters, generated_videos
from ucpe.bench.adapter_contestants import (
    BATCH,
    CONTESTANTS,
    LEARNING_RATE,
    MAIN,
    contestant_recipe,
    find_contestants,
)
from ucpe.bench.adapter_results import LOSS, Base, assemble, markdown
from ucpe.bench.adapters import Benchmark, Folders, run_benchmark
from ucpe.bench.figures import COLORS
from ucpe.evaluation.report.quoted import quoted_rows
from ucpe.lenses import FAMILIES
from ucpe.training import loop
from ucpe.training.checkpoints import save_checkpoint
from ucpe.training.progress import CURVE_FILE, read_curve
from ucpe.training.recipes import RECIPES, desk_model
from ucpe.training.runs import run
from ucpe.trajectories import Trajectory
from ucpe.work import Record

FIELDS = (("batch", 2), ("micro_batch", 2), ("validation_clips", 2), ("checkpoint_every", 1))
TINY = Benchmark(("none", "ucpe"), 1, steps=3, videos=2, sample_steps=1, fields=FIELDS)
METRIC = "PitchErr"


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """accelerate keeps its state between accelerators; every test starts without."""
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    yield
    AcceleratorState._reset_state(True)


def save_clips(folder, count, seed):
    """Desk clips of smooth random pictures."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count * 17, 3, 4, 7, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, (64, 112), mode="bilinear")
    families = [list(FAMILIES)[index % len(FAMILIES)] for index in range(count)]
    lenses = [FAMILIES[name].typical() for name in families]
    moves = [Trajectory.pan(lens, degrees=10 + 5 * i, frames=17, fps=8, pitch=3 * i) for i, lens in enumerate(lenses)]
    poses = torch.stack([move.c2w for move in moves]).float()
    poses[:, :, 0, 3] = torch.linspace(0, 0.5, 17)
    tensors = {
        "video": (fine * 255).round().byte().permute(0, 2, 3, 1).unflatten(0, (count, 17)).contiguous(),
        "c2w": poses,
        "xfov": torch.tensor([float(lens.parameters["xfov"]) for lens in lenses]),
        "xi": torch.tensor([float(lens.parameters["xi"]) for lens in lenses]),
        "seeds": torch.arange(count),
    }
    folder.mkdir(parents=True)
    metadata = {"captions": json.dumps(["a red tower on sand"] * count), "families": json.dumps(families)}
    save_file(tensors, folder / "clips-00000.safetensors", metadata)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Clips, and a base trained for two steps as `ucpe train desk-model --adapter none` would."""
    root = tmp_path_factory.mktemp("adapters")
    train, held = save_clips(root / "train", 4, 0), save_clips(root / "held", 2, 1)
    changes = {**dict(FIELDS), "steps": 2, "samples": 0, "autoencoder": str(desk.WEIGHTS / "vae")}
    recipe = replace(desk_model(), adapter="none", orientation=False, **changes)
    base = run(recipe, train, root / "base", validation=held, tracker=None, quiet=True)
    AcceleratorState._reset_state(True)
    return Folders(root / "out", root / "shared", train, held, base=base)


def run_until_killed(folders):
    def save_and_die(*arguments):
        save_checkpoint(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    loop.save_checkpoint = save_and_die
    run_benchmark(TINY, folders, workers=1)


@pytest.fixture(scope="module")
def killed(folders):
    """A run that is killed while its first contestant trains; what it left behind."""
    process = get_context("fork").Process(target=run_until_killed, args=(folders,))
    process.start()
    process.join()
    return list(folders.output.glob("work/ucpe/*/checkpoints/step-*1.safetensors"))


@pytest.fixture(scope="module")
def continued(folders, killed):
    AcceleratorState._reset_state(True)
    seen = []
    results = run_benchmark(TINY, folders, workers=1, progress=lambda *what: seen.append(what))
    return results, seen


def test_a_killed_run_continues_and_ends_the_same(folders, killed, continued):
    results, seen = continued
    assert killed
    assert [step for step in seen if step[0] == "runs"] == [("runs", 1, 2), ("runs", 2, 2)]
    assert not list(folders.output.glob("work/*/*/checkpoints"))
    only = replace(TINY, contestants=("ucpe",), modes=("text",))
    whole = run_benchmark(only, replace(folders, output=folders.output.with_name("whole")), workers=1)
    assert whole.errors["text"] == {
        metric: {name: value if name == "ucpe" else None for name, value in values.items()}
        for metric, values in results.errors["text"].items()
    }
    assert whole.errors["first-frame"][METRIC]["ucpe"] is None


def test_finished_runs_are_kept_and_only_what_is_new_is_run(folders, continued, monkeypatch):
    monkeypatch.setattr(adapters, "perform", lambda setup, task: pytest.fail(f"{task} was run again"))
    results = run_benchmark(TINY, folders, workers=1, minutes=0)
    assert results.errors == continued[0].errors
    two = run_benchmark(replace(TINY, seeds=2), folders, workers=1, minutes=0)
    assert [name for name, facts in two.runs.items() if facts is None] == ["ucpe/seed-1", "none/seed-1"]
    assert two.errors == results.errors
    other = run_benchmark(replace(TINY, videos=1), folders, workers=1, minutes=0)
    assert not any(other.runs.values())
    run_benchmark(TINY, folders, workers=1, minutes=0)


def test_results_have_the_layout_of_the_papers_table(folders, continued):
    results, _ = continued
    stored = json.loads((folders.output / "results.json").read_text())
    assert stored["errors"] == results.to_json()["errors"]
    assert (stored["clips"], stored["base"]["kind"]) == (4, "given")
    for mode in ("text", "first-frame"):
        for metric in (*generated_videos.METRICS, LOSS):
            spread = results.errors[mode][metric]["ucpe"]
            assert np.isfinite(spread.mean) and (spread.deviation, spread.seeds) == (None, 1)
        assert results.differences[mode][METRIC]["none"].verdict == "one seed"
        assert results.differences[mode][METRIC]["prope"] is None
    text = (folders.output / "results.md").read_text()
    for row in quoted_rows("1"):
        assert f"| {row.method} (quoted) | {row.parameters} |" in text
    table = text.partition("## Videos with")[0]
    assert table.count("not run") == (len(CONTESTANTS) - 2) * (len(generated_videos.METRICS) + 1)
    assert "*floor*" in table and "*constant guess*" in table
    assert results.runs["ucpe/seed-0"]["parameters"] == 449_856
    assert results.runs["none/seed-0"]["parameters"] == 0
    assert shows(pixels(folders.output / "errors.png"), COLORS[0])
    assert filled_cells(pixels(folders.output / "views.png"), 1, 1).item() > 0.3


def test_the_base_alone_is_what_an_untrained_adapter_leaves(folders, continued):
    results, _ = continued
    base = read_curve(folders.base.parent / CURVE_FILE)[-1]["validation/high-noise"]
    assert results.errors["text"][LOSS]["none"].mean == pytest.approx(base, rel=0.02)
    assert results.errors["text"][LOSS]["none"].mean != results.errors["text"][LOSS]["ucpe"].mean


def test_when_time_is_over_a_training_keeps_its_steps_and_nothing_else_is_run(folders, continued, tmp_path):
    calls = iter(range(1000))
    setup = replace(folders, output=tmp_path / "out", shared=tmp_path / "shared")
    longer = replace(TINY, steps=50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapters.Setup, "goes_on", lambda self: next(calls) < 1)
        results = run_benchmark(longer, setup, workers=1, minutes=60)
    assert "after 2 of 50 steps" in results.unfinished
    assert list(setup.output.glob("work/ucpe/*/checkpoints/step-0000002.safetensors"))
    assert not any(results.runs.values())
    text = (setup.output / "results.md").read_text()
    assert "0 of 2 runs" in text and "ucpe/seed-0" in text
    assert (setup.output / "errors.png").exists()


def test_a_given_base_is_named_so(continued):
    assert continued[0].base == Base("given")
    assert "The base was given. Each contestant" in markdown(continued[0])


def test_without_one_the_bundled_base_is_used(folders, tmp_path):
    where = replace(folders, output=tmp_path / "out", shared=tmp_path / "shared", base=None)
    only = replace(TINY, contestants=("none",), modes=("text",))
    results = run_benchmark(only, where, workers=1)
    assert (results.base.kind, results.base.steps) == ("bundled", 3000)
    assert "The base, bundled: 3000 steps without any camera" in (where.output / "results.md").read_text()
    assert results.runs["none/seed-0"] is not None
    stopped = run_benchmark(replace(only, videos=1), where, workers=1, minutes=0)
    assert (stopped.base, stopped.runs) == (results.base, {"none/seed-0": None})


def test_only_a_decoder_of_the_same_latents_is_accepted(tmp_path):
    from diffusers import AutoencoderKLWan

    vae = AutoencoderKLWan.from_pretrained(desk.WEIGHTS / "vae")
    generated_videos.check_same_latents(vae, vae, tmp_path)
    other = AutoencoderKLWan.from_pretrained(desk.WEIGHTS / "vae")
    torch.nn.init.normal_(other.encoder.conv_in.weight)
    with pytest.raises(ValueError, match="another encoder"):
        generated_videos.check_same_latents(vae, other, tmp_path)
    scaled = AutoencoderKLWan.from_pretrained(desk.WEIGHTS / "vae", latents_std=[9.0] * vae.config.z_dim)
    with pytest.raises(ValueError, match="cannot decode them"):
        generated_videos.check_same_latents(vae, scaled, tmp_path)


def test_the_constant_guess_is_right_only_where_cameras_agree():
    level = Trajectory.pan(FAMILIES["wide"].typical(), degrees=30, frames=17, fps=8)
    tilted = Trajectory.pan(FAMILIES["wide"].typical(), degrees=30, frames=17, fps=8, pitch=20)
    alone = generated_videos.constant_guess([level])
    assert alone["PitchErr"] == pytest.approx(0, abs=1e-6) and alone["XFoVErr"] == pytest.approx(0, abs=1e-6)
    assert alone["RotErr"] == pytest.approx(15, abs=2)
    assert generated_videos.constant_guess([level, tilted])["PitchErr"] == pytest.approx(10, abs=1e-3)


def record(pitch, loss):
    tensors = {f"{mode}/{name}": torch.tensor(pitch) for mode in ("text", "first-frame") for name in ("PitchErr",)}
    return Record(tensors, {"validation": {"high-noise": loss}, "parameters": 1, "processor_seconds": 1.0})


def test_better_is_only_said_where_the_interval_says_so():
    records = {f"ucpe/seed-{seed}": record([1.0, 2.0, 3.0], 0.5) for seed in range(3)}
    records |= {f"gta/seed-{seed}": record([1.5 + 0.01 * seed, 2.5, float("nan")], 0.6) for seed in range(3)}
    records |= {f"prope/seed-{seed}": record([1.0 + seed, 2.0 - seed, 3.0], 0.5 + 0.1 * seed) for seed in range(3)}
    benchmark = Benchmark(("ucpe", "gta", "prope"), 3, videos=3)
    results = assemble(benchmark, records)
    found = results.differences["text"]["PitchErr"]
    assert (found["gta"].verdict, found["gta"].clips) == ("worse", 2)
    assert found["gta"].mean == pytest.approx(0.505)
    assert found["prope"].verdict == "undecided"
    assert results.errors["text"]["PitchErr"]["gta"].clips == 2
    assert results.differences["text"][LOSS]["gta"].verdict == "worse"
    assert results.differences["first-frame"][LOSS]["gta"] is None
    text = markdown(results)
    gta = found["gta"]
    assert f"{gta.mean:+.2f} [{gta.low:+.2f}, {gta.high:+.2f}] worse" in text
    assert "| GTA | 0.00M | – |" in text


def test_every_contestant_has_the_recipe_of_its_row_and_the_same_terms():
    assert set(MAIN) < {name for name, one in CONTESTANTS.items() if not one.ablation}
    quoted = {(row.group, row.method) for row in quoted_rows("1")}
    assert {(one.group, one.quoted) for one in CONTESTANTS.values() if one.quoted} == quoted
    same = ("steps", "batch", "learning_rate", "first_frame", "objective", "seed", "weight_decay", "warmup")
    recipes = [contestant_recipe(one, 300, seed=4) for one in CONTESTANTS.values()]
    assert len({tuple(str(getattr(recipe, name)) for name in same) for recipe in recipes}) == 1
    assert (recipes[0].learning_rate, recipes[0].batch) == (LEARNING_RATE, BATCH)
    own = contestant_recipe(CONTESTANTS["cameractrl"], 300, learning_rate=None)
    assert own.learning_rate == RECIPES["desk-cameractrl"].learning_rate != LEARNING_RATE
    base = desk_model()
    assert (base.first_frame, base.objective) == (recipes[0].first_frame, recipes[0].objective)
    assert [one.name for one in find_contestants(("gta", "ucpe", "gta"))] == ["ucpe", "gta"]
    assert CONTESTANTS["gta"].reference == "ucpe" == CONTESTANTS["ucpe-relative"].reference
    assert CONTESTANTS["cameractrl-relative"].reference == "ucpe-relative"


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_fits_the_desk_transformer(name):
    from ucpe.desk.model import make_transformer
    from ucpe.training.base_models import build_denoiser

    recipe = contestant_recipe(CONTESTANTS[name], 10)
    denoiser = build_denoiser(recipe, make_transformer(), expand_timesteps=True)
    assert sum(parameter.numel() for parameter in denoiser.trained_parameters().values()) > 30_000


def test_a_base_without_first_frames_is_refused(folders, tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "WanPipeline"}))
    with pytest.raises(ValueError, match="takes no first frame"):
        run_benchmark(TINY, replace(folders, base=tmp_path))


def test_everything_a_worker_process_needs_can_be_sent_to_it(folders):
    setup = adapters.Setup(TINY, folders, Path("base"), "identity", deadline=0.0)
    work, runs = pickle.loads(pickle.dumps((partial(adapters.perform, setup), setup.plan())))
    assert (work.args, runs) == ((setup,), setup.plan())
    assert not setup.goes_on() and replace(setup, deadline=None).goes_on()
    first = setup.plan()[0]
    assert first.fingerprint != replace(setup, identity="other").plan()[0].fingerprint
    assert first.fingerprint != replace(setup, benchmark=replace(TINY, steps=4)).plan()[0].fingerprint
    assert setup.work_folder(first.task) == replace(setup, benchmark=replace(TINY, videos=1)).work_folder(first.task)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contestants": ("ucpee",)}, "no contestant 'ucpee'"),
        ({"contestants": ()}, "no contestants"),
        ({"seeds": 0}, "seeds"),
        ({"steps": 0}, "steps"),
        ({"videos": 0}, "videos"),
        ({"videos": 3}, "too few for 3 videos"),
        ({"modes": ("image",)}, "no mode 'image'"),
        ({"data": Path("nowhere")}, "no desk clips"),
        ({"decoder": Path("nowhere")}, "no decoder in nowhere"),
        ({"shards": 0}, "shards"),
    ],
)
def test_impossible_requests_raise_before_anything_is_made(change, message, folders, tmp_path):
    inside = {name: value for name, value in change.items() if hasattr(TINY, name)}
    outside = {name: value for name, value in change.items() if name not in inside}
    wrong = replace(folders, output=tmp_path / "out", shared=tmp_path / "shared", **outside)
    with pytest.raises(ValueError, match=message):
        run_benchmark(replace(TINY, **inside), wrong)
    assert not list(tmp_path.iterdir())
