import json
import os
import pickle
import re
import signal
import sys
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.pictures import filled_cells, pixels, shows

from ucpe.bench import encodings
from ucpe.bench.encodings import SETTINGS, Benchmark, run_benchmark
from ucpe.bench.figures import COLORS
from ucpe.bench.runs import Budget, TimedRuns, run_all
from ucpe.bench.view_synthesis_data import random_poses
from ucpe.bench.view_synthesis_model import Training, ViewSynthesisModel, describe
from ucpe.lenses import FAMILIES
from ucpe.work import Item, Record, RecordParts

ROOT = Path(__file__).resolve().parents[2]
TINY = Benchmark(
    ("none", "ucpe"), seeds=2, training=Training(steps=2, batch=2, clips=8), trainings=("all",), test_clips=4
)

MY_ENCODING = """
import torch
from ucpe.bench.camera_encodings import AdditiveEncoding

class MyEncoding(AdditiveEncoding):
    def __init__(self, shape):
        super().__init__(shape, channels=3)

    def features(self, lens, c2w):
        return c2w[..., :3, 3].float()

class TooShort(MyEncoding):
    def features(self, lens, c2w):
        return c2w[..., :2, 3].float()

class Stranger:
    pass
"""


@pytest.fixture
def my_module(tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text(MY_ENCODING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_module", None)


def double(task):
    return Record({"value": torch.tensor([2.0 * task])}, {})


def test_runs_are_kept_and_redone_only_when_their_key_changes(tmp_path):
    folder, calls = RecordParts(tmp_path), []

    def work(task):
        calls.append(task)
        return double(task)

    runs = [Item(f"some/run-{i}", i, "a") for i in range(3)]
    seen = []
    records = run_all(runs[:2], work, folder, Budget(), progress=lambda *what: seen.append(what))
    assert [record.tensors["value"].item() for record in records.values()] == [0, 2]
    assert seen == [("runs", 1, 2), ("runs", 2, 2)]
    records = run_all(runs, work, folder, Budget())
    assert (calls, list(records)) == ([0, 1, 2], ["some/run-0", "some/run-1", "some/run-2"])
    assert records["some/run-0"].facts["seconds"] >= 0
    run_all([Item("some/run-1", 1, "b")], work, folder, Budget())
    assert calls == [0, 1, 2, 1]


def test_a_budget_starts_only_what_fits():
    now = [0.0]
    budget = Budget(1, clock=lambda: now[0])
    assert budget.allows_another()
    budget.note(25.0)
    now[0] = 34.0
    assert budget.allows_another()
    now[0] = 36.0
    assert not budget.allows_another()
    assert not Budget(0).allows_another()
    assert Budget(None).allows_another()
    with pytest.raises(ValueError, match="minutes"):
        Budget(-1)


def test_everything_a_worker_process_needs_can_be_sent_to_it(tmp_path):
    contestants = [encodings.find_contestant("ucpe")]
    sent = (
        TimedRuns(partial(encodings.perform, TINY, tmp_path), RecordParts(tmp_path)),
        encodings.plan(TINY, contestants),
    )
    work, runs = pickle.loads(pickle.dumps(sent))
    assert runs == sent[1]
    assert work.work.args == (TINY, tmp_path)
    render = partial(encodings.data.render_shard, "all", 0, tmp_path)
    assert pickle.loads(pickle.dumps(render)).args == render.args


def test_the_documented_example_is_gta(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/evidence-encodings.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "documented_encoding.py").write_text(code.group(1))
    monkeypatch.syspath_prepend(tmp_path)
    mine, gta = (encodings.find_contestant(name) for name in ("documented_encoding:MyEncoding", "gta"))
    lens = FAMILIES["wide"].sample(torch.Generator().manual_seed(0), (2, 3))
    poses = torch.from_numpy(np.stack([random_poses(np.random.default_rng(seed)) for seed in range(2)]))
    images = torch.rand(2, 3, 48, 48, 3)
    views = []
    for contestant in (mine, gta):
        model = ViewSynthesisModel(contestant)
        views.append(model(images, *describe(model.encoding, lens, poses, model.shape)))
    assert torch.allclose(*views, atol=1e-5)


def die_after_the_first_run(*progress):
    if progress == ("runs", 1, 2):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_run_continues_and_ends_the_same(tmp_path, tiny_shards):
    one_seed = replace(TINY, seeds=1)
    options = {"workers": 1, "progress": die_after_the_first_run}
    process = get_context("fork").Process(target=run_benchmark, args=(one_seed, tmp_path / "killed"), kwargs=options)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    first = tmp_path / "killed/runs/ucpe/all-seed-0.safetensors"
    assert first.exists()
    assert not (tmp_path / "killed/results.json").exists()
    before = first.stat().st_mtime_ns
    seen: list[tuple[str, int, int]] = []
    results = run_benchmark(one_seed, tmp_path / "killed", workers=1, progress=lambda *what: seen.append(what))
    assert first.stat().st_mtime_ns == before
    assert seen[-1] == ("runs", 2, 2)
    whole = run_benchmark(one_seed, tmp_path / "whole", tmp_path / "killed/clips", workers=1)
    assert whole.psnr == results.psnr
    assert whole.differences == results.differences


def test_results_name_every_setting_and_say_what_was_not_run(tmp_path, tiny_shards):
    results = run_benchmark(TINY, tmp_path, workers=1)
    assert json.loads((tmp_path / "results.json").read_text()) == json.loads(json.dumps(results.to_json()))
    assert set(results.psnr) == set(SETTINGS)
    seen = results.psnr["seen"]
    assert seen["mean"]["ucpe"].mean == pytest.approx(
        sum(seen[test]["ucpe"].mean for test in SETTINGS["seen"].tests) / 4
    )
    assert results.psnr["unseen"]["pinhole"] == {"none": None, "ucpe": None}
    assert results.psnr["random-world"]["mean"]["ucpe"].mean == pytest.approx(seen["mean"]["ucpe"].mean, abs=1e-3)
    assert results.differences["seen"]["mean"]["none"].verdict in ("better", "worse", "undecided")
    text = (tmp_path / "results.md").read_text()
    assert text.count("not run") == 2 * 5 + 1
    assert shows(pixels(tmp_path / "psnr.png"), COLORS[0]) and shows(pixels(tmp_path / "curves.png"), COLORS[0])
    for name in ("views", "errors"):
        assert filled_cells(pixels(tmp_path / f"{name}.png"), 1, 1).item() > 0.2
    assert results.cost["ucpe"].ratio == 1
    assert results.cost["none"].step_milliseconds > 0
    assert len(results.curves["none"]) == 2
    back = run_benchmark(replace(TINY, reference="none"), tmp_path, workers=1)  # trains nothing again
    assert back.runs == results.runs
    there = results.differences["seen"]["mean"]["none"].mean
    assert back.differences["seen"]["mean"]["ucpe"].mean == pytest.approx(-there)
    assert back.cost["none"].ratio == 1
    assert "## Difference to None" in (tmp_path / "results.md").read_text()
    narrow = run_benchmark(replace(TINY, contestants=("ucpe",), seeds=1, trainings=("narrow",)), tmp_path, workers=1)
    assert len(narrow.curves["ucpe"]) == 2
    assert narrow.psnr["seen"]["mean"]["ucpe"] is None and narrow.psnr["unseen"]["mean"]["ucpe"].mean > 0


def test_without_time_everything_is_shown_as_not_run(tmp_path, tiny_shards):
    results = run_benchmark(TINY, tmp_path, workers=1, minutes=0)
    assert all(facts is None for facts in results.runs.values())
    text = (tmp_path / "results.md").read_text()
    assert "0 of 4 trainings" in text
    assert "ucpe/all-seed-1" in text
    assert (tmp_path / "psnr.png").exists()


def test_a_users_class_takes_part_by_its_import_path(tmp_path, tiny_shards, my_module):
    mine = replace(TINY, contestants=("ucpe", "my_module:MyEncoding"), seeds=1)
    results = run_benchmark(mine, tmp_path / "out", workers=1)
    assert results.contestants["my_module:MyEncoding"] == "MyEncoding"
    assert results.psnr["mixed"]["mean"]["my_module:MyEncoding"].mean > 0
    assert results.differences["seen"]["mean"]["my_module:MyEncoding"].verdict == "one seed"
    (tmp_path / "my_module.py").write_text(MY_ENCODING + "\n# changed\n")
    runs = encodings.plan(mine, [encodings.find_contestant(name) for name in mine.contestants])
    done = [RecordParts(tmp_path / "out/runs").load(run) is not None for run in runs]
    assert done == [True, False]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_module:TooShort", "fails on two clips"),
        ("my_module:Stranger", "subclass"),
        ("my_module:Nobody", "cannot import"),
        ("no_such_module:MyEncoding", "cannot import"),
        ("ucpee", "no contestant 'ucpee'"),
    ],
)
def test_what_cannot_take_part_is_refused_before_rendering(name, message, tmp_path, my_module):
    with pytest.raises(ValueError, match=message):
        run_benchmark(Benchmark((name,)), tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds"),
        ({"trainings": ("wide",)}, "training set 'wide'"),
        ({"trainings": ()}, "no training sets"),
        ({"contestants": ()}, "contestants"),
        ({"reference": "ucpee"}, "no contestant 'ucpee'"),
    ],
)
def test_impossible_requests_raise(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run_benchmark(Benchmark(**change), tmp_path)
