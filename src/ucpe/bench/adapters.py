"""Controlled generation with camera adapters: one base, same data, steps, learning rate and seeds for all.

`ucpe bench generation frozen` runs it; `docs/evidence-frozen.md` says what it does and shows a run.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from typing_extensions import Unpack

from ucpe import desk
from ucpe.bench import generated_videos
from ucpe.bench.adapter_contestants import (
    CONTESTANTS,
    LEARNING_RATE,
    MAIN,
    contestant_recipe,
    find_contestants,
)
from ucpe.bench.adapter_results import FORMAT, Base, Results, assemble, draw, markdown
from ucpe.bench.generated_videos import MODES, PROTOCOL, video_path
from ucpe.bench.pair_clips import missing_shards
from ucpe.bench.runs import Budget, Machine, Task, check_sizes, on_all_cores, render_all, run_all
from ucpe.desk import FRAMES, HEIGHT, WIDTH
from ucpe.desk.clips import CLIPS_PER_SHARD, VALIDATION_SEED, shard_paths
from ucpe.files import file_fingerprint, fingerprint_of, write_file, write_json
from ucpe.generation.loading import ADAPTER_FOLDER, load_quietly
from ucpe.generation.pipeline import CameraPipeline
from ucpe.training.base_models import BaseModel, find_folder
from ucpe.training.clips import DeskClipFiles
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.export import ADAPTER
from ucpe.training.loop import CHECKPOINTS, make_accelerator
from ucpe.training.progress import CURVE_FILE, read_curve
from ucpe.training.recipes import DESK_BASE, Recipe
from ucpe.training.runs import run
from ucpe.training.validation import validate
from ucpe.video import read_video
from ucpe.work import Item, OutOfTime, Record, RecordParts, WorkArguments, folder_lock

PICTURES = 16
"""Number of videos whose last frame is kept for the picture."""

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
    videos: int = 48
    """Held-out cameras that videos are generated and measured for, each in every mode."""
    modes: tuple[str, ...] = tuple(MODES)
    learning_rate: float | None = LEARNING_RATE
    """One for all contestants; None for that of each one's own recipe."""
    sample_steps: int | None = None
    """Denoising steps of a video; by default as many as the base says."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Changes to the fields of all recipes."""


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
    decoder: Path | None = None
    """Autoencoder with the same encoder as the base's, whose decoder makes the pictures."""

    @property
    def training_clips(self) -> Path:
        """Clips to train on."""
        return self.data or self.shared / "clips"

    @property
    def test_clips(self) -> Path:
        """Clips to generate and validate on."""
        return self.held_out or self.shared / "held-out"


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to know."""

    benchmark: Benchmark
    folders: Folders
    base: Path
    identity: str
    """Fingerprint of base and clips."""
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
            **{**dict(benchmark.fields), "seed": task.seed, "model": str(self.base)},
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
    minutes: float | None = None,
    **options: Unpack[WorkArguments],
) -> Results:
    """Run what is missing, write results.json, results.md and pictures to the output, and return the results.

    When the minutes are over everything stops, with its state kept; the same call again continues.
    """
    check(benchmark, folders)
    budget, options = Budget(minutes), on_all_cores(options)
    deadline = None if minutes is None else time.time() + 60 * minutes
    load_quietly()
    runs, records = [], {}
    unfinished = ""
    try:
        with folder_lock(folders.shared):
            render(benchmark, folders, budget, **options)
            setup = prepare(benchmark, folders, deadline, **options)
            runs = setup.plan()
            work = partial(perform, replace(setup, quiet=options["workers"] != 1))
            run_all(runs, work, RecordParts(folders.output / "runs"), budget, **options)
    except OutOfTime as stopped:
        unfinished = str(stopped)
    for run_ in runs:
        if (record := RecordParts(folders.output / "runs").load(run_)) is not None:
            records[run_.id] = record
    clips = DeskClipFiles(folders.test_clips) if _count(folders.test_clips) >= benchmark.videos else None
    shown = [clips.clip(index) for index in range(benchmark.videos)] if clips else []
    results = assemble(
        benchmark,
        records,
        base=_about_base(folders),
        constant=generated_videos.constant_guess([clip.camera for clip in shown]) if shown else {},
        families=[clip.family for clip in shown],
        floors=generated_videos.floors(),
        clips=_count(folders.training_clips),
        machine=Machine(options["workers"] or 1),
        unfinished=unfinished,
    )
    write_file(folders.output / "results.json", json.dumps(results.to_json(), indent=1) + "\n")
    write_file(folders.output / "results.md", markdown(results))
    size = (FRAMES, HEIGHT, WIDTH)
    truth = [clip.pictures.video(*size)[-1].numpy() for clip in shown[:PICTURES]]
    draw(results, records, truth, folders.output)
    return results


def check(benchmark: Benchmark, folders: Folders) -> None:
    """ValueError or OSError for what cannot run, before anything is rendered."""
    check_sizes(benchmark, "seeds", "steps", "videos")
    check_sizes(folders, "shards")
    unknown = [mode for mode in benchmark.modes if mode not in MODES]
    if unknown or not benchmark.modes:
        raise ValueError(f"no mode '{''.join(unknown[:1])}'; there are {', '.join(MODES)}")
    find_contestants(benchmark.contestants)
    if folders.decoder is not None and not (folders.decoder / "config.json").is_file():
        raise ValueError(f"no decoder in {folders.decoder}: expected its config.json and weights there")
    if folders.data is not None and not _has_clips(folders.data) and folders.shards is None:
        raise ValueError(f"{folders.data} holds no desk clips; name how many shards to render there with --shards")
    if folders.held_out is not None and (there := _count(folders.held_out)) < benchmark.videos:
        raise ValueError(f"{folders.held_out} holds {there} desk clips, too few for {benchmark.videos} videos")
    base = find_folder(str(folders.base or DESK_BASE))
    if not json.loads((base / "model_index.json").read_text()).get("expand_timesteps"):
        raise ValueError(f"{base} takes no first frame (expand_timesteps in its model_index.json is off)")


def render(benchmark: Benchmark, folders: Folders, budget: Budget, **options: Unpack[WorkArguments]) -> None:
    """Render the clips that are missing; `OutOfTime` when there is no time for all."""
    shards = folders.shards or (0 if folders.data is not None and _has_clips(folders.data) else SHARDS)
    missing = missing_shards(shards * CLIPS_PER_SHARD, 0, folders.training_clips)
    if folders.held_out is None:
        missing |= missing_shards(benchmark.videos, VALIDATION_SEED, folders.test_clips)
    done = render_all(missing, budget, **options)
    if done < len(missing):
        raise OutOfTime(f"rendering, after {done} of {len(missing)} shards")


def prepare(benchmark: Benchmark, folders: Folders, deadline: float | None, **options: Unpack[WorkArguments]) -> Setup:
    """Find the base and put every clip through its autoencoder, once for all; `OutOfTime` when time is over before."""
    base = find_folder(str(folders.base or DESK_BASE))
    recipe = contestant_recipe(CONTESTANTS["none"], 1, **{**dict(benchmark.fields), "model": str(base)})
    model = BaseModel(recipe)
    sources = (folders.training_clips, folders.test_clips)
    prints = [file_fingerprint(path) for folder in sources for path in shard_paths(folder)]
    parts = model.fingerprint("transformer", "text_encoder", "tokenizer", "vae")
    setup = Setup(benchmark, folders, base, fingerprint_of(format=FORMAT, clips=prints, base=parts), deadline)
    for folder in sources:
        clips = EncodedClips(DeskClipFiles(folder), model, folder / "encoded")
        encode_missing(clips, model, clips.numbers, torch.device("cpu"), goes_on=setup.goes_on, **options)
        if missing := clips.missing_videos(clips.numbers):
            raise OutOfTime(f"encoding, after {len(clips) - len(missing)} of {len(clips)} clips")
    return setup


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


def _about_base(folders: Folders) -> Base:
    if folders.base is not None:
        return Base("given", trained_with_an_adapter=(folders.base / ADAPTER_FOLDER).is_dir())
    return Base("bundled", **json.loads((desk.BASE_WEIGHTS / DONE).read_text()))


def _has_clips(folder: Path) -> bool:
    return any(folder.glob("clips-*.safetensors"))


def _count(folder: Path) -> int:
    return len(DeskClipFiles(folder)) if _has_clips(folder) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
