"""Who learns to follow a camera, and how fast: small video models trained from scratch, each told cameras in one way.

`ucpe bench generation` runs it; `docs/evidence.md` says what it does and shows a run. `ucpe bench generation frozen`
trains adapters on a frozen base instead (`docs/evidence-frozen.md`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from ucpe.bench.generation_results import MODES, Results, assemble, draw, markdown
from ucpe.bench.pair_clips import PAIRS, PairClips, PrincipalLatents, load_pairs, missing_shards
from ucpe.bench.pair_model import ADAPTERS, BASE, BATCH, CONTESTANTS, PairModel, base_latents, find_contestant
from ucpe.bench.runs import Budget, Machine, Task, check_sizes, on_all_cores, render_all, run_all
from ucpe.desk.clips import VALIDATION_SEED
from ucpe.desk.model import make_tokenizer
from ucpe.evaluation.estimators.known_scene import commanded_motion, estimate_motion
from ucpe.files import file_fingerprint, fingerprint_of, write_file
from ucpe.synthesis.worlds import vocabulary
from ucpe.synthesis.worlds.surroundings import EYE_HEIGHT
from ucpe.trajectories.rotations import angles_from_rotation
from ucpe.work import Item, Record, RecordParts, WorkArguments, folder_lock

FORMAT = "ucpe-bench-generation-2"
"""Name and version of records and results; a change of anything that changes a number changes it."""

TRUTH = "truth"
"""Name of the run that measures true videos."""

FIT_CLIPS = 512
"""Clips that the principal components are fitted to."""

CHECKPOINT_EVERY = 100
"""Steps that a killed training repeats at most."""

PICTURES = 8
PIXEL_STRIDE = 3
"""Spacing, along rows and columns, of the pixels compared to measure a motion."""


@dataclass(frozen=True)
class Benchmark:
    """What is run."""

    contestants: tuple[str, ...] = tuple(CONTESTANTS)
    seeds: int = 3
    steps: int = 700
    clips: int = 4096
    """Clips to train on."""
    cameras: int = 32
    """Held-out clips whose cameras are generated and measured."""
    checks: int = 4
    """How often, evenly over the steps, videos are generated and measured."""
    base: str = ""
    """File of the frozen base that adapters are trained on; without, everything is trained from scratch."""

    @property
    def measured_steps(self) -> list[int]:
        """Steps after which videos are generated and measured."""
        return [self.steps * (index + 1) // self.checks for index in range(self.checks)]


QUICK = Benchmark(("ucpe", "prope", "cameractrl", "none"), seeds=1, steps=350, clips=2048, cameras=16, checks=2)
"""A first look."""

LONG = Benchmark(steps=7000, clips=16384, cameras=64, checks=10)
"""Ten times the steps, for a night."""

FROZEN = Benchmark(tuple(ADAPTERS), seeds=2, steps=1000, base=str(BASE))
"""Adapters on the frozen base."""

QUICK_FROZEN = replace(FROZEN, contestants=tuple(ADAPTERS)[:4], seeds=1, steps=200, clips=2048, cameras=16, checks=2)
"""A first look at them."""

LONG_FROZEN = replace(FROZEN, steps=10_000, clips=16384, cameras=64, checks=10)
"""Ten times the steps."""


def run_benchmark(
    benchmark: Benchmark,
    output: Path,
    clips: Path,
    minutes: float | None = None,
    **options: Unpack[WorkArguments],
) -> Results:
    """Run what is missing, write results.json, results.md and pictures to the output, and return the results.

    The same call again continues; what the minutes did not allow is shown as not run.
    """
    check_sizes(benchmark, "seeds", "steps", "clips", "cameras", "checks")
    contestants = [find_contestant(name, bool(benchmark.base)) for name in dict.fromkeys(benchmark.contestants)]
    budget, options = Budget(minutes), on_all_cores(options)
    shards = missing_shards(benchmark.cameras, VALIDATION_SEED, clips / "held-out", **PAIRS)
    shards |= missing_shards(benchmark.clips, 0, clips / "training", **PAIRS)
    runs = plan(benchmark, [contestant.name for contestant in contestants])
    folder, work = RecordParts(output / "runs"), partial(perform, benchmark, clips, output / "unfinished")
    with folder_lock(output):
        complete = render_all(shards, budget, **options) == len(shards)
        ready = runs if complete else [run for run in runs if folder.holds(run)]
        records = run_all(ready, work, folder, budget, **options)
        for run in runs:
            if run.id in records:
                (output / "unfinished" / f"{run.fingerprint}.safetensors").unlink(missing_ok=True)
    titles = {contestant.name: contestant.title for contestant in contestants}
    results = assemble(benchmark, titles, {run.id: run.task for run in runs}, records, Machine(options["workers"] or 1))
    write_file(output / "results.json", json.dumps({"format": FORMAT, **asdict(results)}, indent=1) + "\n")
    write_file(output / "results.md", markdown(results))
    draw(results, records, output)
    return results


def plan(benchmark: Benchmark, contestants: list[str]) -> list[Item]:
    """The measurement of true videos, then all trainings, seed by seed: cut short, there are pairs to compare."""
    tasks = [Task(name, seed) for seed in range(benchmark.seeds) for name in contestants]
    runs = [
        Item(f"{task.contestant.replace(':', '.')}-seed-{task.seed}", task, training_key(benchmark, task))
        for task in tasks
    ]
    return [Item(TRUTH, Task(TRUTH, 0), training_key(benchmark, Task(TRUTH, 0))), *runs]


def training_key(benchmark: Benchmark, task: Task) -> str:
    """Fingerprint of everything that determines a run."""
    frozen = bool(benchmark.base)
    facts = {name: getattr(benchmark, name) for name in ("steps", "clips", "cameras", "checks")} | asdict(task)
    facts["version"] = "" if task.contestant == TRUTH else find_contestant(task.contestant, frozen).version
    if frozen:
        facts["base"] = file_fingerprint(Path(benchmark.base))
    return fingerprint_of(format=FORMAT, **facts)


def perform(benchmark: Benchmark, clips: Path, unfinished: Path, task: Task) -> Record:
    """Train one contestant with one seed and measure what it generates along the way; a stopped training continues."""
    test = load_pairs(clips / "held-out", benchmark.cameras)
    base = Path(benchmark.base) if benchmark.base else None
    training = load_pairs(clips / "training", benchmark.clips)
    latents = PrincipalLatents.fit(training.video[:FIT_CLIPS]) if base is None else base_latents(base)
    if task.contestant == TRUTH:
        return measure_truth(test, latents)
    encoded = torch.cat([latents.encode(part) for part in training.video.split(256)])
    tokenizer = make_tokenizer(vocabulary())
    words, test_words = (
        tokenizer(part.captions, padding="max_length", return_tensors="pt")["input_ids"] for part in (training, test)
    )
    model = PairModel(task.contestant, task.seed, len(tokenizer), benchmark.steps, base)
    cameras, test_cameras = model.encode(training), model.encode(test)
    checkpoint = unfinished / f"{training_key(benchmark, task)}.safetensors"
    kept = model.load(checkpoint) if checkpoint.exists() else {}
    checks = benchmark.measured_steps
    while model.step < benchmark.steps:
        loss = model.train_step(encoded, words, cameras)
        kept[f"loss/{model.step}"] = torch.tensor(loss)
        if model.step in checks:
            for mode in MODES if model.step == benchmark.steps else ("first-frame",):
                first = latents.encode(test.video)[:, :, 0] if mode == "first-frame" else None
                noise = torch.randn(len(test), *encoded.shape[1:], generator=torch.Generator().manual_seed(2))
                made = model.sample(first, noise, test_words, test_cameras(list(range(len(test)))))
                frames = latents.decode(made)
                kept |= {f"{mode}/{model.step}/{name}": value for name, value in measure(frames, test).items()}
                if model.step == benchmark.steps:
                    kept[f"{mode}/pictures"] = torch.from_numpy(frames[:PICTURES])
        if model.step in checks or model.step % CHECKPOINT_EVERY == 0:
            model.save(checkpoint, kept)
    losses = torch.stack([kept.pop(f"loss/{step}") for step in range(1, benchmark.steps + 1)])
    facts = {"parameters": sum(parameter.numel() for parameter in model.parameters.values()), "batch": BATCH}
    return Record({**kept, "loss": losses}, facts)


def measure(
    frames: np.ndarray,  # (B, 2, H, W, 3) uint8
    clips: PairClips,
) -> dict[str, Tensor]:
    """Yaw (B,) in degrees and travel (B, 2) in near-plane depths by geometry; pitch and roll (B,) by the calibrator."""
    from ucpe.evaluation.estimators.desk import WEIGHTS, calibrate, load_weights

    motions = []
    for pair, camera, near in zip(frames, clips.cameras, clips.near_depth.tolist()):
        angles = angles_from_rotation(camera.c2w[[0, -1], :3, :3])
        ground = (EYE_HEIGHT / near) - float(camera.c2w[0, 1, 3])
        motions.append(estimate_motion(pair, camera.lens, angles.pitch, angles.roll, ground, PIXEL_STRIDE))
    calibration = calibrate(load_weights(WEIGHTS)[0], np.ascontiguousarray(frames[:, 1]))
    return {
        "yaw": torch.tensor([motion.yaw for motion in motions]),
        "travel": torch.stack([motion.travel[[0, 2]].float() for motion in motions]),
        "pitch": torch.from_numpy(calibration.pitch).float(),
        "roll": torch.from_numpy(calibration.roll).float(),
    }


def measure_truth(test: PairClips, latents: PrincipalLatents) -> Record:
    """What was commanded, and what the measures find in true videos and in those videos through the latents."""
    commanded = [commanded_motion(camera.c2w[[0, -1]]) for camera in test.cameras]
    angles = [angles_from_rotation(camera.c2w[-1, :3, :3]) for camera in test.cameras]
    true, decoded = test.video[:, [0, -1]].numpy(), latents.decode(latents.encode(test.video))
    error = ((true.astype(np.float64) - decoded) / 255) ** 2
    tensors = {
        "commanded/yaw": torch.tensor([motion.yaw for motion in commanded]),
        "commanded/travel": torch.stack([motion.travel[[0, 2]].float() for motion in commanded]),
        "commanded/pitch": torch.tensor([float(angle.pitch) for angle in angles]),
        "commanded/roll": torch.tensor([float(angle.roll) for angle in angles]),
        "pictures": torch.from_numpy(true[:PICTURES]),
    }
    for name, frames in (("true", true), ("latents", decoded)):
        tensors |= {f"{name}/{key}": value for key, value in measure(frames, test).items()}
    return Record(tensors, {"latents_psnr": float(-10 * np.log10(error.mean()))})
