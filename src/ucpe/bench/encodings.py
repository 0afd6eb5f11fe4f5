"""Novel view synthesis with every camera encoding: same data, model, steps, learning rate and seeds for all.

`ucpe bench encodings` runs it; `docs/evidence-encodings.md` says what it does and shows its runs.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from typing_extensions import Unpack

from ucpe.bench import view_synthesis_data as data
from ucpe.bench.camera_encodings import CONTESTANTS, ModelShape, find_contestant
from ucpe.bench.contestants import Contestant
from ucpe.bench.figures import coloured, curve_plot, dot_plot, image_grid
from ucpe.bench.runs import Budget, Machine, check_sizes, on_all_cores, render_all, run_all
from ucpe.bench.statistics import Difference, Spread, difference_of, spread_of
from ucpe.bench.tables import NOT_RUN, markdown_table, not_run, shown_difference, shown_spread
from ucpe.bench.view_synthesis_model import (
    GIVEN,
    Training,
    ViewSynthesisModel,
    describe,
    error_map,
    predict,
    psnr,
    random_worlds,
    train,
)
from ucpe.files import fingerprint_of, write_file
from ucpe.lenses import FAMILIES
from ucpe.work import Item, Record, RecordParts, WorkArguments, folder_lock

FORMAT = "ucpe-bench-encodings-2"
"""Name and version of records and results; a change of anything that changes a number changes it."""

PICTURES = 8
"""Predicted views kept of each test set."""

CURVE_POINTS = 16
"""Points of a learning curve: the training loss over that many equal parts of the steps."""

ERROR_RANGE = 1.0
"""Difference in dB at which an error map is fully blue or red."""


@dataclass(frozen=True)
class Setting:
    """One question: models trained on one set of clips, tested on others."""

    title: str
    training: str
    tests: tuple[str, ...]
    told: Literal["truth", "pinhole"] = "truth"
    """Lens that the model is told to have: the true one, or a pinhole with its field of view."""
    world: Literal["anchored", "random"] = "anchored"


SETTINGS = {
    "seen": Setting("all lenses seen", "all", tuple(FAMILIES)),
    "random-world": Setting("random world frame", "all", tuple(FAMILIES), world="random"),
    "mixed": Setting("lens differs between views", "all", ("mixed",)),
    "brown-conrady": Setting("unseen Brown-Conrady, right rays", "all", ("brown-conrady",)),
    "brown-conrady-pinhole": Setting("unseen Brown-Conrady, pinhole rays", "all", ("brown-conrady",), told="pinhole"),
    "unseen": Setting("pinhole and wide seen", "narrow", tuple(FAMILIES)),
}


@dataclass(frozen=True)
class Benchmark:
    """What is run."""

    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    """Names of contestants, or import paths `module:Class`."""
    seeds: int = 3
    training: Training = Training()  # noqa: RUF009
    trainings: tuple[str, ...] = ("all", "narrow")
    """Sets of clips to train on."""
    test_clips: int = 256
    """Clips of each test set."""
    reference: str = "ucpe"
    """Contestant that all others are compared to."""


QUICK = Benchmark(seeds=2, training=Training(steps=300, clips=4096), trainings=("all",))
"""A first look: fewer steps, two seeds, and nothing trained on narrow lenses only."""


LONG = Benchmark(
    contestants=("plucker-pixel", "prope", "ucpe", "ucpe-lat-up", "urope", "sightline"),
    seeds=2,
    training=Training(steps=20_000, clips=48_000),
    trainings=("all",),
)
"""What longer training leaves of the differences: a night on 2 cores, in as many goes as you like."""


@dataclass(frozen=True)
class Task:
    """One training with all its tests."""

    contestant: Contestant
    training: str
    seed: int


Trained = defaultdict[tuple[str, str], dict[int, Record]]
"""Records by contestant and training set, then by seed."""


@dataclass(frozen=True)
class Cost:
    """What a contestant costs."""

    parameters: int
    """Of the whole model."""
    step_milliseconds: float
    """Processor time of a training step, cameras included."""
    ratio: float | None
    """The same relative to the reference's."""


@dataclass(frozen=True)
class Results:
    """PSNR in dB and differences to the reference by setting, test set and contestant; None where nothing was run."""

    benchmark: Benchmark
    contestants: dict[str, str]
    """Titles by name."""
    psnr: dict[str, dict[str, dict[str, Spread | None]]]
    differences: dict[str, dict[str, dict[str, Difference | None]]]
    cost: dict[str, Cost | None]
    curves: dict[str, list[float] | None]
    """PSNR of the training loss over equal parts of the steps, on the first set of training clips."""
    runs: dict[str, dict[str, Any] | None]
    machine: Machine

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the sizes and settings that are the same for every run."""
        settings = {name: asdict(setting) for name, setting in SETTINGS.items()}
        return {"format": FORMAT, **asdict(self), "shape": asdict(ModelShape()), "settings": settings}


def run_benchmark(
    benchmark: Benchmark,
    output: Path,
    clips: Path | None = None,
    minutes: float | None = None,
    **options: Unpack[WorkArguments],
) -> Results:
    """Run what is missing, write results.json, results.md and pictures to `output`, and return the results.

    `clips` is where rendered clips are kept, `output`/clips unless told. The same call again continues.
    """
    contestants = _checked(benchmark)
    budget, output, options = Budget(minutes), Path(output), on_all_cores(options)
    clips = Path(clips or output / "clips")
    runs = plan(benchmark, contestants)
    folder = RecordParts(output / "runs")
    with folder_lock(output):
        missing = [run for run in runs if not folder.holds(run)]
        complete = render(benchmark, {run.task.training for run in missing}, clips, budget, **options)
        ready = runs if complete else [run for run in runs if folder.holds(run)]
        records = run_all(ready, partial(perform, benchmark, clips), folder, budget, **options)
    results = assemble(benchmark, contestants, runs, records, Machine(options["workers"] or 1))
    write_file(output / "results.json", json.dumps(results.to_json(), indent=1) + "\n")
    write_file(output / "results.md", markdown(results))
    draw(results, records, runs, clips, output)
    return results


def plan(benchmark: Benchmark, contestants: Sequence[Contestant]) -> list[Item]:
    """All trainings, seed by seed and the reference first, so that a run cut short still has pairs to compare."""
    settings = {
        "format": FORMAT,
        "clips": data.FORMAT,
        "training": asdict(benchmark.training),
        "shape": asdict(ModelShape()),
        "test_clips": benchmark.test_clips,
        "settings": {name: asdict(setting) for name, setting in SETTINGS.items()},
    }
    tasks = [
        Task(contestant, training, seed)
        for seed in range(benchmark.seeds)
        for training in benchmark.trainings
        for contestant in sorted(contestants, key=lambda contestant: contestant.name != benchmark.reference)
    ]
    return [
        Item(
            f"{task.contestant.name.replace(':', '-')}/{task.training}-seed-{task.seed}",
            task,
            fingerprint_of(**settings, version=task.contestant.version),
        )
        for task in tasks
    ]


def render(
    benchmark: Benchmark, trainings: set[str], clips: Path, budget: Budget, **options: Unpack[WorkArguments]
) -> bool:
    """Render the clips missing for these trainings and their tests; whether all are there in the end."""
    counts = {name: benchmark.training.clips for name in data.TRAINING_PARTS if name in trainings}
    if trainings:
        counts |= dict.fromkeys(data.TEST_PARTS, benchmark.test_clips)
    missing = data.missing_shards(counts, clips)
    shards = {f"{name} {number}": partial(data.render_shard, name, number, clips) for name, number in missing}
    return render_all(shards, budget, **options) == len(shards)


def perform(benchmark: Benchmark, clips: Path, task: Task) -> Record:
    """Train one contestant with one seed and test it in every setting of that training."""
    training_clips = _load(task.training, benchmark.training.clips, clips)
    started = time.process_time()
    model, losses = train(task.contestant, training_clips, benchmark.training, task.seed)
    seconds = time.process_time() - started
    tensors = {"loss": torch.tensor(losses)}
    for name, setting in SETTINGS.items():
        if setting.training != task.training:
            continue
        for test in setting.tests:
            part = _load(test, benchmark.test_clips, clips)
            world = random_worlds(len(part)) if setting.world == "random" else None
            told = data.pinhole_of(part.lens) if setting.told == "pinhole" else None
            predicted = predict(model, part, told, world)
            tensors[f"{name}/{test}"] = psnr(predicted, part)
            tensors[f"{name}/{test}/error"] = error_map(predicted, part)
            tensors[f"{name}/{test}/views"] = (predicted[:PICTURES] * 255).round().to(torch.uint8)
    facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "loss": float(np.mean(losses[-50:])),
        "step_milliseconds": round(1000 * seconds / benchmark.training.steps, 2),
    }
    return Record(tensors, facts)


def assemble(
    benchmark: Benchmark,
    contestants: Sequence[Contestant],
    runs: Sequence[Item],
    records: dict[str, Record],
    machine: Machine,
) -> Results:
    """The results of the runs that have a record."""
    names, reference = [contestant.name for contestant in contestants], benchmark.reference
    trained = _by_training(runs, records)
    psnrs: dict[str, dict[str, dict[str, Spread | None]]] = {}
    differences: dict[str, dict[str, dict[str, Difference | None]]] = {}
    for setting_name, setting in SETTINGS.items():
        values = {name: _values(trained[name, setting.training], setting_name) for name in names}
        psnrs[setting_name], differences[setting_name] = {}, {}
        for test in (*setting.tests, "mean"):
            found = {name: {seed: value[test] for seed, value in values[name].items()} for name in names}
            psnrs[setting_name][test] = {name: spread_of(found[name]) for name in names}
            differences[setting_name][test] = {
                name: difference_of(found[name], found[reference])
                for name in names
                if name != reference and reference in found
            }
    return Results(
        benchmark,
        {contestant.name: contestant.title for contestant in contestants},
        psnrs,
        differences,
        cost={name: _cost(trained, name, reference) for name in names},
        curves={name: _curve(trained[name, benchmark.trainings[0]]) for name in names},
        runs={run.id: records[run.id].facts if run.id in records else None for run in runs},
        machine=machine,
    )


def markdown(results: Results) -> str:
    """The results as Markdown tables."""
    titles, benchmark, training = results.contestants, results.benchmark, results.benchmark.training
    reference = titles.get(benchmark.reference, benchmark.reference)
    finished = [facts for facts in results.runs.values() if facts is not None]
    hours = sum(facts["processor_seconds"] for facts in finished) / 3600
    lines = [
        "# Novel view synthesis by camera encoding",
        "",
        f"{training.steps} steps of batch {training.batch} on {training.clips} clips, {benchmark.seeds} seeds, "
        f"{benchmark.test_clips} test clips per lens; {len(finished)} of {len(results.runs)} trainings done, "
        f"{hours:.2f} hours of processor time on {results.machine.processor}.",
        "PSNR in dB over pixels that see something, mean ± standard deviation between seeds.",
        "",
    ]
    for name, text in (("seen", "All lenses seen in training"), ("unseen", "Only pinhole and wide seen in training")):
        lines += [f"## {text}", "", _psnr_table(results, [(name, test) for test in (*FAMILIES, "mean")])]
    others = [(name, "mean") for name in SETTINGS if name != "unseen"]
    heads = [SETTINGS[name].title for name, _ in others]
    lines += ["## Other settings, trained on all lenses", "", _psnr_table(results, others, heads)]
    lines += [
        f"## Difference to {reference}",
        "",
        "Mean of the paired differences in dB (same seed, same clips) with a 95 % interval for new seeds and clips; "
        "each comparison stands for itself. Better or worse only where the interval leaves out zero.",
        "",
    ]
    rows = [
        [title] + [shown_difference(results.differences[name]["mean"].get(key)) for name in SETTINGS]
        for key, title in titles.items()
        if key != benchmark.reference
    ]
    lines += [markdown_table(["", *(setting.title for setting in SETTINGS.values())], rows)]
    lines += [
        "## Cost and pace",
        "",
        "Parameters of the whole model; processor time of a training step, cameras included; PSNR of the training loss "
        "over the part of the steps that ends there, nearly every clip being new.",
        "",
        _cost_table(results, reference),
    ]
    return "\n".join(lines + not_run(results.runs))


def draw(results: Results, records: dict[str, Record], runs: Sequence[Item], clips: Path, output: Path) -> None:
    """Write psnr.png, curves.png, errors.png and views.png; views come from each contestant's first seed."""
    titles, trained = results.contestants, _by_training(runs, records)
    panels = {
        text: {title: {test: results.psnr[name][test][key] for test in FAMILIES} for key, title in titles.items()}
        for name, text in (("seen", "all lenses seen"), ("unseen", "only pinhole and wide seen"))
    }
    dot_plot(output / "psnr.png", panels, "PSNR of the predicted view (dB)")
    curves = {titles[name]: curve for name, curve in results.curves.items() if curve is not None}
    if curves:
        steps = results.benchmark.training.steps
        points = {
            name: [(steps * (i + 0.5) / len(curve), y, 0.0) for i, y in enumerate(curve)]
            for name, curve in curves.items()
        }
        curve_plot(output / "curves.png", {"PSNR of the training loss (dB)": points})
    maps = {title: _error_maps(trained, name, results.benchmark.reference) for name, title in titles.items()}
    if any(any(image is not None for image in row) for row in maps.values()):
        image_grid(output / "errors.png", _ERROR_COLUMNS, maps)
    try:
        count = min(PICTURES, results.benchmark.test_clips)
        shown = {test: _load(test, count, clips) for test in (*FAMILIES, "mixed")}
    except OSError:
        return
    rows: dict[str, list[np.ndarray | None]] = {}
    for index, (test, part) in enumerate(shown.items()):
        setting, clip = "mixed" if test == "mixed" else "seen", index % len(part)
        row: list[np.ndarray | None] = [part.images[clip, view].numpy() for view in range(GIVEN + 1)]
        for name in titles:
            first = next(iter(trained[name, SETTINGS[setting].training].values()), None)
            row.append(None if first is None else _masked(first.tensors[f"{setting}/{test}/views"], part, clip))
        rows[test] = row
    image_grid(output / "views.png", ["given", "given", "truth", *titles.values()], rows)


def _checked(benchmark: Benchmark) -> list[Contestant]:
    """The contestants; ValueError for what cannot run, before anything is rendered."""
    check_sizes(benchmark, "seeds")
    check_sizes(benchmark.training, "steps", "clips")
    if not benchmark.trainings:
        raise ValueError("no training sets")
    unknown = [name for name in benchmark.trainings if name not in data.TRAINING_PARTS]
    if unknown:
        raise ValueError(f"no training set '{unknown[0]}'; there are {', '.join(data.TRAINING_PARTS)}")
    contestants = [find_contestant(name) for name in dict.fromkeys(benchmark.contestants)]
    if not contestants:
        raise ValueError("no contestants")
    find_contestant(benchmark.reference)
    for contestant in contestants:
        if contestant.name not in CONTESTANTS:
            _try_out(contestant)
    return contestants


def _try_out(contestant: Contestant) -> None:
    """ValueError unless a contestant predicts finite pixels for two clips."""
    shape = ModelShape()
    size = (shape.rows * shape.patch, shape.columns * shape.patch)
    lens = FAMILIES["extreme-fisheye"].sample(torch.Generator().manual_seed(0), (2, shape.views))
    c2w = random_worlds(2)[:, None].repeat(1, shape.views, 1, 1)
    try:
        model = ViewSynthesisModel(contestant)
        sees, description = describe(model.encoding, lens, c2w, shape)
        predicted = model(torch.zeros(2, shape.views, *size, 3), sees, description)
        predicted.square().mean().backward()
    except Exception as error:
        raise ValueError(f"{contestant.name} fails on two clips: {type(error).__name__}: {error}") from error
    if not predicted.isfinite().all():
        raise ValueError(f"{contestant.name} predicts values that are not finite")


@lru_cache(maxsize=16)
def _load(name: str, count: int, clips: Path) -> data.Triples:
    return data.load_clips(name, count, clips)


def _by_training(runs: Sequence[Item], records: Mapping[str, Record]) -> Trained:
    trained: Trained = defaultdict(dict)
    for run in runs:
        if run.id in records:
            trained[run.task.contestant.name, run.task.training][run.task.seed] = records[run.id]
    return trained


def _values(records: Mapping[int, Record], setting: str) -> dict[int, dict[str, np.ndarray]]:
    """PSNR (clips,) by seed and test set, and their mean over test sets, clip by clip."""
    result = {}
    for seed, record in records.items():
        values = {test: record.tensors[f"{setting}/{test}"].numpy() for test in SETTINGS[setting].tests}
        result[seed] = {**values, "mean": np.mean(list(values.values()), axis=0)}
    return result


def _cost(trained: Trained, contestant: str, reference: str) -> Cost | None:
    """The cost of a contestant, its time relative to the reference's on the same clips."""
    mine, theirs = (
        [record for training in data.TRAINING_PARTS for record in trained[name, training].values()]
        for name in (contestant, reference)
    )
    if not mine:
        return None
    step, other = (np.median([r.facts["step_milliseconds"] for r in found] or [np.nan]) for found in (mine, theirs))
    ratio = None if np.isnan(other) else float(step / other)
    return Cost(mine[0].facts["parameters"], float(step), ratio)


def _curve(records: Mapping[int, Record]) -> list[float] | None:
    """PSNR in dB of the training loss of all seeds over equal parts of the steps."""
    losses = [record.tensors["loss"].numpy() for record in records.values()]
    if not losses:
        return None
    parts = np.array_split(np.mean(losses, axis=0), min(CURVE_POINTS, len(losses[0])))
    return [float(-10 * np.log10(part.mean() / 4)) for part in parts]  # pixels are in [-1, 1]


def _error_maps(trained: Trained, contestant: str, reference: str) -> list[np.ndarray | None]:
    """Where a contestant's views are better (blue) or worse (red) than the reference's; whose own error is grey."""
    images: list[np.ndarray | None] = []
    for setting in ("seen", "unseen"):
        for test in FAMILIES:
            key, training = f"{setting}/{test}/error", SETTINGS[setting].training
            mine, theirs = (trained[name, training].values() for name in (contestant, reference))
            if not mine or not theirs:
                images.append(None)
                continue
            error, other = (np.mean([r.tensors[key].numpy() for r in found], axis=0) for found in (mine, theirs))
            if contestant == reference:
                images.append(coloured(np.sqrt(error) / 0.2, "Greys"))
            else:
                images.append(coloured(0.5 + 5 * np.log10(other / error) / ERROR_RANGE, "RdBu"))
    return images


_ERROR_COLUMNS = [
    f"{test}{'' if setting == 'seen' else ', narrow'}" for setting in ("seen", "unseen") for test in FAMILIES
]


def _cost_table(results: Results, reference: str) -> str:
    rows = []
    for name, title in results.contestants.items():
        cost, curve = results.cost[name], results.curves[name]
        if cost is None:
            rows.append([title, *[NOT_RUN] * 7])
            continue
        ratio = NOT_RUN if cost.ratio is None else f"{cost.ratio:.2f}"
        marks = [len(curve) // 8, len(curve) // 4, len(curve) // 2, len(curve)] if curve else []
        pace = [f"{curve[max(mark, 1) - 1]:.2f}" for mark in marks] if curve else [NOT_RUN] * 4
        rows.append([title, f"{cost.parameters:,}", f"{cost.step_milliseconds:.0f}", ratio, *pace])
    heads = ["parameters", "ms per step", f"× {reference}", "dB at 1/8", "1/4", "1/2", "the end"]
    return markdown_table(["", *heads], rows)


def _psnr_table(results: Results, cells: Sequence[tuple[str, str]], heads: Sequence[str] | None = None) -> str:
    rows = [
        [title, *(shown_spread(results.psnr[setting][test][key]) for setting, test in cells)]
        for key, title in results.contestants.items()
    ]
    return markdown_table(["", *(heads or [test for _, test in cells])], rows)


def _masked(views: torch.Tensor, part: data.Triples, clip: int) -> np.ndarray:
    """A predicted view with the pixels that see nothing black, as in the truth."""
    return (views[clip] * part.valid[clip, -1, ..., None]).numpy()
