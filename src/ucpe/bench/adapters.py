"""Controlled generation with camera adapters: one base, same data, steps, learning rate and seeds for all.

`ucpe bench generation frozen` runs it; `docs/evidence-frozen.md` says what it does and shows a run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from ucpe import desk
from ucpe.bench import generated_videos
from ucpe.bench.adapter_contestants import (
    CONTESTANTS,
    LEARNING_RATE,
    MAIN,
    base_recipe,
    contestant_recipe,
    find_contestants,
)
from ucpe.bench.adapter_results import FORMAT, Base, Results, assemble, draw, markdown
from ucpe.bench.generated_videos import MODES, PROTOCOL, video_path
from ucpe.bench.runs import Budget, Machine, check_sizes, render_all, run_all
from ucpe.desk import FRAMES, HEIGHT, WIDTH
from ucpe.desk.clips import CLIPS_PER_SHARD, VALIDATION_SEED, render_shard, shard_paths
from ucpe.files import file_fingerprint, fingerprint_of, write_file, write_json
from ucpe.generation import CameraPipeline
from ucpe.generation.loading import ADAPTER_FOLDER, load_quietly
from ucpe.training.base_models import BaseModel, find_folder
from ucpe.training.clips import DeskClipFiles
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.export import ADAPTER, MODEL
from ucpe.training.loop import CHECKPOINTS, make_accelerator
from ucpe.training.progress import CURVE_FILE, read_curve
from ucpe.training.recipes import DESK_BASE, Recipe
from ucpe.training.runs import run
from ucpe.training.validation import validate
from ucpe.video import read_video
from ucpe.work import Item, OutOfTime, Progress, Record, RecordParts, folder_lock, progress_bar

PICTURES = 16
"""Videos of which the last frame is kept for the picture."""

DONE = "trained.json"
"""File that a finished training leaves, with its last numbers."""

SHARDS = 6
"""Shards of training clips to render if there are none."""

UNDECIDING = ("name", "model", "autoencoder", "micro_batch", "workers", "checkpoint_every", "validate_every")
"""Fields of a recipe that do not affect what is learned, or name files whose content is compared instead."""


@dataclass(frozen=True)
class Benchmark:
    """What is run."""

    contestants: tuple[str, ...] = MAIN
    seeds: int = 2
    steps: int = 1000
    """Steps of each contestant."""
    base_steps: int | None = None
    """Steps of a base to train; by default the bundled one is used, unless another is given."""
    videos: int = 48
    """Held-out cameras that videos are generated and measured for, each in every mode."""
    modes: tuple[str, ...] = tuple(MODES)
    learning_rate: float | None = LEARNING_RATE
    """One for all contestants; None for that of each one's own recipe."""
    sample_steps: int | None = None
    """Denoising steps of a video; by default as many as the base says."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Changes to the fields of all recipes, including that of a base to be trained."""


QUICK = Benchmark(("ucpe", "none", "recammaster", "prope"), steps=200, videos=16)
"""A first look: four contestants, few steps, few videos."""


@dataclass(frozen=True)
class Folders:
    """Where everything is; what is None is made by the benchmark, or comes with the package."""

    output: Path
    """Results and finished runs of this number of steps."""
    shared: Path
    """Base, clips and whatever else does not depend on the number of steps."""
    data: Path | None = None
    """Desk clips to train on."""
    held_out: Path | None = None
    """Desk clips whose cameras, captions and first frames are generated."""
    shards: int | None = None
    """Training shards that there must be; the missing ones are rendered."""
    base: Path | None = None
    """Pipeline folder to use as base instead of the bundled one."""
    autoencoder: Path | None = None
    """Autoencoder that encodes, and decodes unless there is a decoder."""
    decoder: Path | None = None
    """Autoencoder with the same encoder, whose decoder makes the pictures."""

    @property
    def training_clips(self) -> Path:
        """Clips to train on."""
        return self.data or self.shared / "clips"

    @property
    def test_clips(self) -> Path:
        """Clips to generate and validate on."""
        return self.held_out or self.shared / "held-out"

    @property
    def encoding_autoencoder(self) -> str | None:
        """Autoencoder that recipes name; None for that of the base."""
        if self.autoencoder is not None:
            return str(self.autoencoder)
        return str(desk.WEIGHTS / "vae") if self.base is None else None


@dataclass(frozen=True)
class Task:
    """One training with all its videos."""

    contestant: str
    seed: int


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to know."""

    benchmark: Benchmark
    folders: Folders
    base: Path
    identity: str
    """Fingerprint of base, clips and autoencoder."""
    deadline: float | None = None
    """Time, in seconds since the epoch, at which work stops."""
    quiet: bool = True

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return self.deadline is None or time.time() < self.deadline

    def recipe(self, task: Task) -> Recipe:
        """How a task is trained."""
        benchmark = self.benchmark
        return contestant_recipe(
            CONTESTANTS[task.contestant],
            benchmark.steps,
            benchmark.learning_rate,
            **{
                **dict(benchmark.fields),
                "seed": task.seed,
                "model": str(self.base),
                "autoencoder": self.folders.encoding_autoencoder,
            },
        )

    def training_key(self, task: Task) -> str:
        """Fingerprint of everything that determines a training."""
        return fingerprint_of(
            format=FORMAT, identity=self.identity, recipe=_deciding(self.recipe(task)), contestant=task.contestant
        )

    def video_key(self) -> str:
        """Fingerprint of everything that determines how videos are made from a training."""
        decoder = "" if self.folders.decoder is None else _folder_fingerprint(self.folders.decoder)
        return fingerprint_of(steps=self.benchmark.sample_steps, decoder=decoder)

    def work_folder(self, task: Task) -> Path:
        """Where a task keeps its training and its videos."""
        return self.folders.output / "work" / task.contestant / f"seed-{task.seed}-{self.training_key(task)}"

    def plan(self) -> list[Item]:
        """All runs, seed by seed and in the order of contestants: cut short, there are still pairs to compare."""
        benchmark = self.benchmark
        tasks = [
            Task(contestant.name, seed)
            for seed in range(benchmark.seeds)
            for contestant in find_contestants(benchmark.contestants)
        ]
        rest = {
            "videos": benchmark.videos,
            "modes": benchmark.modes,
            "how": self.video_key(),
            "measured": [PROTOCOL, generated_videos.estimators()],
        }
        return [
            Item(f"{task.contestant}/seed-{task.seed}", task, fingerprint_of(training=self.training_key(task), **rest))
            for task in tasks
        ]


def run_benchmark(
    benchmark: Benchmark,
    folders: Folders,
    workers: int | None = None,
    minutes: float | None = None,
    progress: Progress | None = None,
    engine: str = "local",
    retry_failed: bool = False,
) -> Results:
    """Run what is missing, write results.json, results.md and pictures to the output, and return the results.

    When the minutes are over everything stops, with its state kept; the same call again continues.
    """
    check(benchmark, folders)
    budget, workers = Budget(minutes), workers or os.cpu_count() or 1
    deadline = None if minutes is None else time.time() + 60 * minutes
    load_quietly()
    runs, records, setup = [], {}, None
    unfinished = ""
    try:
        with folder_lock(folders.shared):
            render(benchmark, folders, workers, budget, progress, engine)
            setup = prepare(benchmark, folders, workers, engine, deadline)
            runs = setup.plan()
            work = partial(perform, replace(setup, quiet=workers > 1))
            run_all(runs, work, RecordParts(folders.output / "runs"), workers, budget, progress, engine, retry_failed)
    except OutOfTime as stopped:
        unfinished = str(stopped)
    for run_ in runs:
        if (record := RecordParts(folders.output / "runs").load(run_)) is not None:
            records[run_.id] = record
    constant, families = _about_cameras(benchmark, folders)
    results = assemble(
        benchmark,
        records,
        base=_about_base(benchmark, folders, setup),
        constant=constant,
        families=families,
        floors=generated_videos.floors(),
        clips=_count(folders.training_clips),
        machine=Machine(workers),
        unfinished=unfinished,
    )
    write_file(folders.output / "results.json", json.dumps(results.to_json(), indent=1) + "\n")
    write_file(folders.output / "results.md", markdown(results))
    draw(results, records, _truth(benchmark, folders), folders.output)
    return results


def check(benchmark: Benchmark, folders: Folders) -> None:
    """ValueError or OSError for what cannot run, before anything is rendered."""
    check_sizes(benchmark, "seeds", "steps", "base_steps", "videos")
    check_sizes(folders, "shards")
    unknown = [mode for mode in benchmark.modes if mode not in MODES]
    if unknown or not benchmark.modes:
        raise ValueError(f"no mode '{''.join(unknown[:1])}'; there are {', '.join(MODES)}")
    find_contestants(benchmark.contestants)
    for name, folder in (("autoencoder", folders.autoencoder), ("decoder", folders.decoder)):
        if folder is not None and not (folder / "config.json").is_file():
            raise ValueError(f"no {name} in {folder}: expected its config.json and weights there")
    if folders.data is not None and not _has_clips(folders.data) and folders.shards is None:
        raise ValueError(f"{folders.data} holds no desk clips; name how many shards to render there with --shards")
    if folders.held_out is not None and (there := _count(folders.held_out)) < benchmark.videos:
        raise ValueError(f"{folders.held_out} holds {there} desk clips, too few for {benchmark.videos} videos")
    if folders.base is not None and benchmark.base_steps is not None:
        raise ValueError("a base is given or trained: name --base or --base-steps, not both")
    if folders.autoencoder is not None and benchmark.base_steps is None:
        raise ValueError("the base brings its own autoencoder: --autoencoder is for one that --base-steps trains")
    if benchmark.base_steps is None:
        base = find_folder(str(folders.base or DESK_BASE))
        if not json.loads((base / "model_index.json").read_text()).get("expand_timesteps"):
            raise ValueError(f"{base} takes no first frame (expand_timesteps in its model_index.json is off)")


def render(
    benchmark: Benchmark,
    folders: Folders,
    workers: int,
    budget: Budget,
    progress: Progress | None = None,
    engine: str = "local",
) -> None:
    """Render the clips that are missing; `OutOfTime` when there is no time for all."""
    shards = folders.shards or (0 if folders.data is not None and _has_clips(folders.data) else SHARDS)
    tests = 0 if folders.held_out is not None else -(-benchmark.videos // CLIPS_PER_SHARD)
    wanted = [(number, 0, folders.training_clips) for number in range(shards)]
    wanted += [(number, VALIDATION_SEED, folders.test_clips) for number in range(tests)]
    missing = [task for task in wanted if not (task[2] / f"clips-{task[0]:05d}.safetensors").exists()]
    tasks = {f"{folder.name} {number}": (number, seed, folder) for number, seed, folder in missing}
    done = render_all(_render, tasks, workers, budget, progress, engine)
    if done < len(missing):
        raise OutOfTime(f"rendering, after {done} of {len(missing)} shards")


def prepare(benchmark: Benchmark, folders: Folders, workers: int, engine: str, deadline: float | None) -> Setup:
    """Encode all clips and find or train the base, or continue to; `OutOfTime` when time is over before."""
    if benchmark.base_steps is None:
        folders = replace(folders, base=find_folder(str(folders.base or DESK_BASE)))
    clips = [*shard_paths(folders.training_clips), *shard_paths(folders.test_clips)]
    prints = [file_fingerprint(path) for path in clips]
    given = {**dict(benchmark.fields), "autoencoder": folders.encoding_autoencoder, "seed": 0}
    recipe = base_recipe(benchmark.base_steps or 1, **given)
    if folders.base is None:
        autoencoder = BaseModel(recipe).fingerprint("vae")
        identity = fingerprint_of(format=FORMAT, clips=prints, autoencoder=autoencoder, base=_deciding(recipe))
        base = folders.shared / f"base-{benchmark.base_steps}-steps-{identity}"
    else:
        recipe = replace(recipe, model=str(folders.base))
        parts = BaseModel(recipe).fingerprint("transformer", "text_encoder", "tokenizer", "vae")
        identity = fingerprint_of(format=FORMAT, clips=prints, base=parts)
        base = folders.base
    setup = Setup(benchmark, folders, base if folders.base else base / MODEL, identity, deadline)
    encode(recipe, folders, workers, engine, setup.goes_on)
    if folders.base is None and not (base / DONE).exists():
        before = torch.get_num_threads()
        torch.set_num_threads(workers)
        try:
            run(
                recipe,
                folders.training_clips,
                base,
                validation=folders.test_clips,
                tracker=None,
                goes_on=setup.goes_on,
            )
        finally:
            torch.set_num_threads(before)
        _finish_training(base)
    return setup


def encode(recipe: Recipe, folders: Folders, workers: int, engine: str, goes_on: Callable[[], bool]) -> None:
    """Put every clip through the autoencoder once, for all trainings."""
    model = BaseModel(recipe)
    for folder in (folders.training_clips, folders.test_clips):
        clips = EncodedClips(DeskClipFiles(folder), model, folder / "encoded")
        with progress_bar() as show:
            options: dict[str, Any] = {"workers": workers, "engine": engine, "progress": show, "goes_on": goes_on}
            encode_missing(clips, model, list(clips.numbers), torch.device("cpu"), **options)
        if missing := clips.missing_videos(clips.numbers):
            raise OutOfTime(f"encoding, after {len(clips) - len(missing)} of {len(clips)} clips")


def perform(setup: Setup, task: Task) -> Record:
    """Train one contestant with one seed, generate with it in every mode, and measure the videos."""
    load_quietly()
    benchmark, folders = setup.benchmark, setup.folders
    contestant, folder = CONTESTANTS[task.contestant], setup.work_folder(task)
    label = f"{contestant.name}, seed {task.seed}"
    adapter = train(setup, task)
    clips = DeskClipFiles(folders.test_clips)
    pipe = CameraPipeline.from_pretrained(setup.base, adapter)
    if folders.decoder is not None:
        generated_videos.with_decoder(pipe, folders.decoder)
    tensors: dict[str, torch.Tensor] = {}
    for mode in benchmark.modes:
        videos = folder / f"{mode}-{setup.video_key()}"
        _say(f"{label}: {benchmark.videos} videos {MODES[mode]}")
        generated_videos.generate(
            pipe, clips, benchmark.videos, mode == "first-frame", videos, benchmark.sample_steps, setup.goes_on
        )
        measured = generated_videos.measure(clips, benchmark.videos, videos, label, setup.goes_on)
        tensors |= {f"{mode}/{name}": torch.from_numpy(values) for name, values in measured.items()}
        shown = [
            list(read_video(video_path(videos, index)))[-1].rgb for index in range(min(PICTURES, benchmark.videos))
        ]
        tensors[f"{mode}/pictures"] = torch.from_numpy(np.stack(shown))
    parameters = _count_parameters(adapter) if contestant.recipe else 0
    return Record(tensors, {"parameters": parameters, **json.loads((folder / DONE).read_text())})


def train(setup: Setup, task: Task) -> Path:
    """The trained adapter of a task; a training that was stopped continues."""
    folder, recipe = setup.work_folder(task), setup.recipe(task)
    if not (folder / DONE).exists():
        if CONTESTANTS[task.contestant].recipe is None:
            _leave_untrained(recipe, setup.folders, folder)
        else:
            _say(f"{task.contestant}, seed {task.seed}: {recipe.steps} steps")
            run(
                recipe,
                setup.folders.training_clips,
                folder,
                validation=setup.folders.test_clips,
                tracker=None,
                quiet=setup.quiet,
                goes_on=setup.goes_on,
            )
            _finish_training(folder)
    return folder / ADAPTER


def _leave_untrained(recipe: Recipe, folders: Folders, folder: Path) -> None:
    """Write the recipe's adapter as it starts, changing nothing, with the validation loss of the base alone."""
    model = BaseModel(recipe)
    accelerator = make_accelerator(recipe, folder)
    clips = EncodedClips(DeskClipFiles(folders.test_clips), model, folders.test_clips / "encoded")
    denoiser = model.denoiser()
    expand = denoiser.expand_timesteps
    numbers = validate(recipe, accelerator.prepare(denoiser), denoiser.adapter, clips, accelerator, expand)
    assert denoiser.adapter is not None
    denoiser.adapter.save_pretrained(folder / ADAPTER)
    write_json(folder / DONE, {"steps": 0, "learning_rate": 0.0, "validation": _validation(numbers)})


def _finish_training(folder: Path) -> None:
    """Note the last numbers of a training, and drop its checkpoints."""
    curve = read_curve(folder / CURVE_FILE)
    recipe = json.loads((folder / "recipe.json").read_text())
    write_json(
        folder / DONE,
        {
            "steps": len(curve),
            "learning_rate": recipe["learning_rate"],
            "loss": float(np.mean([line["loss"] for line in curve[-50:]])),
            "validation": _validation(curve[-1]),
            "training_seconds": round(sum(line["seconds"] for line in curve), 1),
        },
    )
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _validation(numbers: dict[str, float]) -> dict[str, float]:
    return {
        name.removeprefix("validation/"): value for name, value in numbers.items() if name.startswith("validation/")
    }


def _deciding(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in asdict(recipe).items() if name not in UNDECIDING}


def _folder_fingerprint(folder: Path) -> str:
    return fingerprint_of(
        files={path.name: file_fingerprint(path) for path in sorted(folder.iterdir()) if path.is_file()}
    )


def _count_parameters(adapter: Path) -> int:
    """Trained parameters in an adapter's folder, tuned ones of the transformer included."""
    total = 0
    for path in adapter.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            total += sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    return total


def _about_base(benchmark: Benchmark, folders: Folders, setup: Setup | None) -> Base:
    if folders.base is not None:
        return Base("given", trained_with_an_adapter=(folders.base / ADAPTER_FOLDER).is_dir())
    if benchmark.base_steps is None:
        return Base("bundled", **json.loads((desk.BASE_WEIGHTS / DONE).read_text()))
    if setup is None:
        return Base("none yet")
    return Base("trained", **json.loads((setup.base.parent / DONE).read_text()))


def _about_cameras(benchmark: Benchmark, folders: Folders) -> tuple[dict[str, float], list[str]]:
    """The best constant guess on the cameras of the benchmark, and their lens families."""
    if _count(folders.test_clips) < benchmark.videos:
        return {}, []
    clips = DeskClipFiles(folders.test_clips)
    chosen = [clips[index] for index in range(benchmark.videos)]
    return generated_videos.constant_guess([clip.camera for clip in chosen]), [clip.family for clip in chosen]


def _truth(benchmark: Benchmark, folders: Folders) -> list[np.ndarray]:
    """The last frames of the true videos of which pictures are kept."""
    if _count(folders.test_clips) < benchmark.videos:
        return []
    clips = DeskClipFiles(folders.test_clips)
    size = (FRAMES, HEIGHT, WIDTH)
    return [clips.pictures(index).video(*size)[-1].numpy() for index in range(min(PICTURES, benchmark.videos))]


def _has_clips(folder: Path) -> bool:
    return any(folder.glob("clips-*.safetensors"))


def _count(folder: Path) -> int:
    return len(DeskClipFiles(folder)) if _has_clips(folder) else 0


def _render(task: tuple[int, int, Path]) -> Path:
    return render_shard(*task)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
