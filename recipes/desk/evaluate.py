"""How well the desk model obeys cameras and words that it never saw, by `ucpe evaluate` with the desk estimators.

python -m recipes.desk.evaluate generate --clips 200 -o out/desk [--first-frame] [--model FOLDER] [--part 0/2]
ucpe evaluate out/desk/videos --cameras out/desk/cameras --pose desk --calibrator desk -o out/desk/report
python -m recipes.desk.evaluate table out/desk            # beside the floor and the best constant guess
python -m recipes.desk.evaluate words --clips 200         # denoising error with right and with shuffled words
python -m recipes.desk.evaluate autoencoded --clips 100   # the estimators on true videos through the autoencoder

Worlds and cameras are those of `ucpe train desk-clips --validation`, whose seeds training never draws.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.desk import FPS, HEIGHT, WIDTH
from ucpe.desk.clips import VALIDATION_SEED, DeskClips, load_shard, render_shard
from ucpe.evaluation.camera_metrics import calibration_errors, commanded_calibration
from ucpe.evaluation.estimators.base import Calibration, PoseEstimate
from ucpe.evaluation.protocols import PROTOCOLS
from ucpe.evaluation.records import pose_metrics
from ucpe.evaluation.statistics import bootstrap_interval
from ucpe.generation.pipeline import CameraPipeline
from ucpe.trajectories import Trajectory
from ucpe.video import write_video

LEVELS = (0.6, 0.8, 0.95)
METRICS = ("PitchErr", "RollErr", "XFoVErr", "XiErr", "RotErr", "TransErr")
CAPTION = re.compile(r"(?P<objects>.+) on (?P<ground>\w+), (?P<skyline>.+) on the horizon, under an? (?P<sky>\w+) sky")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("generate", "words", "autoencoded"):
        command = commands.add_parser(name)
        command.add_argument("--clips", type=int, default=200)
        command.add_argument("--data", type=Path, default=Path("out/desk-validation"))
        command.add_argument("--style", choices=("textured", "plain"), default="plain")
        command.add_argument("--model")
    making = commands.choices["generate"]
    making.add_argument("-o", "--output", type=Path, required=True)
    making.add_argument("--first-frame", action="store_true")
    making.add_argument("--steps", type=int)
    making.add_argument("--guidance", type=float)
    making.add_argument("--batch", type=int, default=4)
    making.add_argument("--part", default="0/1", help="this process's share, such as 0/2")
    commands.add_parser("table").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "table":
        table(options.folder)
        return
    torch.set_num_threads(1)
    clips = load_shard(render_shard(0, VALIDATION_SEED, options.data, style=options.style))
    pipe = CameraPipeline.from_pretrained(options.model)
    if options.command == "generate":
        generate(pipe, clips, options)
    elif options.command == "words":
        compare_words(pipe, clips, options.clips)
    else:
        measure_autoencoder(pipe, clips, options.clips)


def generate(pipe: CameraPipeline, clips: DeskClips, options: argparse.Namespace) -> None:
    """Videos and camera files of held-out clips; those that are there are left alone."""
    part, parts = map(int, options.part.split("/"))
    videos, cameras = options.output / "videos", options.output / "cameras"
    missing = [index for index in range(part, options.clips, parts) if not (videos / f"{index:04d}.mp4").exists()]
    for folder in (videos, cameras):
        folder.mkdir(parents=True, exist_ok=True)
    size = 1 if options.first_frame else options.batch
    for start in range(0, len(missing), size):
        chosen = missing[start : start + size]
        paths = [camera_of(clips, index) for index in chosen]
        image = clips.video[chosen[0], 0].numpy() if options.first_frame else None
        made = pipe(
            [clips.captions[index] for index in chosen],
            paths,
            image=image,
            seed=chosen,
            num_inference_steps=options.steps,
            guidance_scale=options.guidance,
        )
        for index, path, video in zip(chosen, paths, made.videos):
            path.save(cameras / f"{index:04d}.json")
            write_video(videos / f"{index:04d}.mp4", video.frames, FPS)
        print(f"{start + len(chosen)}/{len(missing)}", flush=True)


def camera_of(clips: DeskClips, index: int) -> Trajectory:
    """Camera of one clip."""
    return Trajectory(clips.c2w[index].double(), clips.lens(index), FPS)


def table(folder: Path) -> None:
    """The report's means beside the estimator's floor and the best constant guess on the same cameras."""
    results = json.loads((folder / "report" / "results.json").read_text())
    names = [video["name"] for video in results["videos"]]
    guesses = constant_guess([Trajectory.load(folder / "cameras" / f"{name}.json") for name in names])
    print(f"{'':<10}{'measured':>10}{'95 %':>18}{'floor':>8}{'/floor':>8}{'constant':>10}{'/constant':>10}")
    floors = {**results["floors"]["pose"]["metrics"], **results["floors"]["calibration"]["metrics"]}
    for metric in METRICS:
        part = "pose" if metric in ("RotErr", "TransErr") else "commanded"
        summary = results["summary"][part][metric]
        floor, guess = floors[metric], guesses[metric]
        print(
            f"{metric:<10}{summary['mean']:>10.3f}{summary['low']:>9.3f}{summary['high']:>9.3f}{floor:>8.3f}"
            f"{summary['mean'] / floor:>8.2f}{guess:>10.3f}{summary['mean'] / guess:>10.3f}"
        )
    print(f"{len(names)} videos, failures: {results['counts']}")


def constant_guess(cameras: list[Trajectory]) -> dict[str, float]:
    """Mean errors by metric of the best constant answer: median pitch, roll and lens of all cameras, and no motion."""
    wanted = [commanded_calibration(camera, "ucm", HEIGHT, WIDTH) for camera in cameras]
    pitch, roll = (np.median(np.concatenate([getattr(one, name) for one in wanted])) for name in ("pitch", "roll"))
    lens = {name: np.median(np.concatenate([one.lens[name] for one in wanted])) for name in wanted[0].lens}
    rows = []
    for camera, truth in zip(cameras, wanted):
        count = len(truth.frames)
        numbers = {name: np.full(count, value) for name, value in lens.items()}
        guess = Calibration("ucm", truth.frames, np.full(count, pitch), np.full(count, roll), numbers, {})
        still = PoseEstimate(torch.eye(4, dtype=torch.float64).expand(count, 4, 4), truth.frames, 1.0, True)
        poses = pose_metrics(camera, still, truth.frames / camera.fps, PROTOCOLS["robust"])
        rows.append(calibration_errors(guess, truth) | poses)
    found = {name: [row[name] for row in rows if name in row] for name in METRICS}
    return {name: float(np.mean(values)) for name, values in found.items() if values}


@torch.no_grad()
def compare_words(pipe: CameraPipeline, clips: DeskClips, count: int) -> None:
    """How much worse the noise is predicted when some words of a caption come from another clip."""
    from ucpe.training.encoded import encode_video, to_model_range

    parsed = [CAPTION.fullmatch(caption) for caption in clips.captions[:count]]
    words: list[dict[str, Any]] = [{} if match is None else match.groupdict() for match in parsed]
    kinds: dict[str, list[float]] = {name: [] for name in ("objects", "ground", "skyline", "sky", "all words")}
    for index in range(count):
        if not words[index]:
            continue
        latents = encode_video(pipe.pipe.vae, to_model_range(clips.video[index][None]))
        noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(index))
        condition = pipe.adapter.encode([camera_of(clips, index)], HEIGHT, WIDTH)
        right = error(pipe, latents, noise, clips.captions[index], condition)
        for kind, worse in kinds.items():
            other = next(
                words[(index + step) % count]
                for step in range(1, count)
                if words[(index + step) % count].get(kind) != words[index].get(kind) or kind == "all words"
            )
            mixed = {**words[index], **(other if kind == "all words" else {kind: other[kind]})}
            article = "an" if mixed["sky"][0] in "aeiou" else "a"
            text = "{objects} on {ground}, {skyline} on the horizon, under {article} {sky} sky"
            worse.append(error(pipe, latents, noise, text.format(article=article, **mixed), condition) / right - 1)
    for kind, worse in kinds.items():
        low, high = bootstrap_interval(np.array(worse))
        print(
            f"{kind:<10} of another clip: error {100 * np.mean(worse):+.2f} % ({100 * low:+.2f} to {100 * high:+.2f}), "
            f"larger for {100 * np.mean(np.array(worse) > 0):.0f} % of {len(worse)} clips"
        )


@torch.no_grad()
def measure_autoencoder(pipe: CameraPipeline, clips: DeskClips, count: int) -> None:
    """What the desk estimators say of true videos, before and after the autoencoder."""
    from recipes.desk.estimators import floors_of
    from recipes.desk.whole_clips import decode_whole, encode_whole

    from ucpe.evaluation.estimators.desk import WEIGHTS, load_weights
    from ucpe.training.encoded import to_model_range

    vae = pipe.pipe.vae
    true = DeskClips(**{name: value[:count] for name, value in vars(clips).items()})
    decoded = [
        decode_whole(vae, encode_whole(vae, to_model_range(video)).mode()).clamp(-1, 1) for video in true.video.split(4)
    ]
    video = ((torch.cat(decoded).permute(0, 2, 3, 4, 1) + 1) * 127.5).round().byte()
    difference = (video.float() - true.video.float()) / 255
    print(f"{len(video)} clips restored to {-10 * float(difference.square().mean().log10()):.2f} dB")
    calibrator, motion, _ = load_weights(WEIGHTS)
    print("true       ", floors_of(calibrator, motion, true))
    print("autoencoded", floors_of(calibrator, motion, replace(true, video=video)))


def error(pipe: CameraPipeline, latents: torch.Tensor, noise: torch.Tensor, text: str, condition: Any) -> float:
    """Mean squared error of the velocity over LEVELS of noise."""
    embedding, _ = pipe.pipe.encode_prompt(text, do_classifier_free_guidance=False, max_sequence_length=40)
    total = 0.0
    frames, height, width = latents.shape[2:]
    for level in LEVELS:
        timestep = torch.full((1, frames * (height // 2) * (width // 2)), 1000 * level)
        with pipe.adapter.camera(condition):
            velocity = pipe.transformer((1 - level) * latents + level * noise, timestep, embedding).sample
        total += float((velocity - (noise - latents)).square().mean()) / len(LEVELS)
    return total


if __name__ == "__main__":
    main()
