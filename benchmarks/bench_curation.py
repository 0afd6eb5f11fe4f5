"""Curation of rendered 360 degree clips whose truth is known, of worlds drawn anew for each seed.

`poses`: errors of poses and scale, and processor time per frame. Goals: absolute trajectory error after a
similarity below 0.5 % of the path length, near-plane depth within 5 %. The scale is measured twice, with the true poses
and with the estimated ones. Worlds with moving objects are marked *.

`filters`: clips spoiled in one way each, with places, sizes, texts and strengths drawn anew: how many of them the step
that should drop them does (recall), and how many clean clips each step drops. Tables of up and of transitions too.

`real`: the same on real pictures: stretches of a real 360 degree video, and walks inside a real panoramic photo wrapped
on a sphere, with the faults that real footage has and must be forgiven (brightness steps at the seam, vignetting,
stitching offsets, compression, a tripod) and those that it must fall for. `--held-out` draws other stretches, headings
and strengths than those that were looked at while tuning.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from ucpe.lenses import Equirectangular, Pinhole
from ucpe.synthesis.curation.gravity import find_up
from ucpe.synthesis.curation.overlay import OverlayCheck
from ucpe.synthesis.curation.poses import SphericalMapper, Track
from ucpe.synthesis.curation.projection import ProjectionCheck
from ucpe.synthesis.curation.quality import QualityCheck
from ucpe.synthesis.curation.rotation import RotationCheck
from ucpe.synthesis.curation.scale import DepthOptions, near_depth
from ucpe.synthesis.curation.segmentation import Segmentation
from ucpe.synthesis.curation.steps import SourceClip, Step
from ucpe.synthesis.layouts import reduced
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.synthesis.worlds import World, near_plane_depth, render_clip
from ucpe.trajectories import Trajectory, alignment_error, umeyama
from ucpe.trajectories.rotations import rotation_from_angles
from ucpe.video import VIDEO_SUFFIXES, probe_video, read_video

FOOTAGE = Path(__file__).resolve().parents[1] / "../shared/data/footage"
LENS = Equirectangular()
FPS = 10.0
WORDS = ("CHANNEL 360", "Subscribe!", "VR TRAVEL", "Day 2: Kyoto", "www.example.org", "LIVE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("poses", "filters", "real"), help="[default: the first two]")
    parser.add_argument("--clips", type=int, default=10)
    parser.add_argument("--frames", type=int, default=31)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--first", type=int, default=100, help="seed of the first world")
    parser.add_argument("--kind", choices=("outdoor", "indoor"), help="of the worlds; three in four are outdoors")
    parser.add_argument("--noise", type=float, default=2.0, help="standard deviation of noise in grey levels")
    parser.add_argument("--samples", type=int, default=8, help="frames measured for the scale")
    parser.add_argument("--footage", type=Path, default=FOOTAGE, help="folder of real videos and photos, for `real`")
    parser.add_argument("--held-out", action="store_true", help="draw other real cases")
    parser.add_argument("--no-tracking", action="store_true", help="leave out shaking cameras, which must be tracked")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    if arguments.part == "real":
        measure_real(arguments)
    if arguments.part in (None, "poses"):
        measure_poses(arguments)
    if arguments.part in (None, "filters"):
        measure_filters(arguments)


def measure_poses(arguments: argparse.Namespace) -> None:
    mapper, options = SphericalMapper(), DepthOptions(samples=arguments.samples)
    moves = list(paths(arguments.frames))
    print(f"{arguments.clips} clips of {arguments.frames} frames, {arguments.width} x {arguments.width // 2}")
    print("world  kind      path      tracks  position %  rotation deg  scale % (true poses)   s/frame poses  scale")
    rows = []
    for number in range(arguments.clips):
        seed, (name, camera) = arguments.first + number, moves[number % len(moves)]
        moving = number % 3 == 2
        world = World.sample(seed, arguments.kind, moving)
        c2w = camera.scaled(world.near_depth).c2w
        clip = render_clip(world, LENS, c2w, arguments.width // 2, arguments.width, threads=1)
        noise = np.random.default_rng(seed).normal(0, arguments.noise, clip.color.shape)
        frames = (clip.color + noise).round().clip(0, 255).astype(np.uint8)
        truth, near = c2w.double().numpy(), near_plane_depth(clip.depth)
        tracks, seconds = timed(lambda frames=frames: mapper.track(frames))
        kind = f"{seed:5d}{'*' if moving else ' '} {world.kind:8s}  {name:8s}  {len(tracks):6d}"
        if [len(track.c2w) for track in tracks] != [len(frames)]:
            print(kind, " lost:", ", ".join(f"{track.start}-{track.stop}" for track in tracks) or "everything")
            rows.append([np.inf] * 4)
            continue
        position, rotation, factor = compare(tracks[0], truth)
        measured, scale_seconds = timed(lambda frames=frames, truth=truth: near_depth(frames, truth, options=options))
        estimated = near_depth(frames, tracks[0].c2w, options=options) * factor
        rows.append([position, rotation, abs(estimated / near - 1), abs(measured / near - 1)])
        print(
            f"{kind}  {100 * position:10.3f}  {rotation:12.3f}  {100 * (estimated / near - 1):+7.2f} "
            f"({100 * (measured / near - 1):+6.2f})          {seconds / len(frames):13.3f}  "
            f"{scale_seconds / len(frames):5.3f}",
            flush=True,
        )
    errors = np.array(rows)
    print(f"position error below 0.5 %: {(errors[:, 0] < 0.005).sum()} of {len(errors)}, worst {worst(errors[:, 0])}")
    print(f"scale within 5 %:           {(errors[:, 2] < 0.05).sum()} of {len(errors)}, worst {worst(errors[:, 2])}")


def paths(frames: int):
    """Named paths in near-plane depths."""
    yield "forward", Trajectory.dolly(LENS, 0.6, frames=frames)
    yield "upwards", Trajectory.pedestal(LENS, 0.3, frames=frames)
    yield "sideways", Trajectory.truck(LENS, -0.5, frames=frames)
    yield "slow up", Trajectory.pedestal(LENS, 0.15, frames=frames)
    yield "bend", Trajectory.arc(LENS, 60, radius=0.5, frames=frames)
    yield "orbit", Trajectory.orbit(LENS, 40, radius=0.7, frames=frames)


def compare(track: Track, truth: np.ndarray) -> tuple[float, float, float]:
    """Position error in path lengths, largest relative rotation error in degrees, and the scale to the truth."""
    found, wanted = torch.from_numpy(track.c2w[:, :3, 3]), torch.from_numpy(truth[:, :3, 3])
    similarity = umeyama(found, wanted)
    length = wanted.diff(dim=0).norm(dim=1).sum()
    turned, meant = track.c2w[:, :3, :3], truth[:, :3, :3]
    off = (turned[0].T @ turned) - (meant[0].T @ meant)
    angle = 2 * np.arcsin(np.clip(np.linalg.norm(off, axis=(1, 2)) / np.sqrt(8), 0, 1))
    error = float(alignment_error(similarity, found, wanted) / length)
    return error, float(np.degrees(angle.max())), float(similarity.scale)


def timed(run):
    start = time.process_time()
    return run(), time.process_time() - start


def worst(values: np.ndarray) -> str:
    return "lost" if np.isinf(values).any() else f"{100 * values.max():.3f} %"


@dataclass(frozen=True)
class Footage(SourceClip):
    """A clip in memory."""

    pictures: np.ndarray  # (N, H, W, 3) uint8

    def stream(self, height: int | None = None) -> Iterator[np.ndarray]:
        return (reduced(frame, height) for frame in self.pictures)

    def stills(self, count: int) -> Iterator[np.ndarray]:
        return (self.pictures[index] for index in self._spread(count))


def footage(frames: np.ndarray, **row: Any) -> Footage:
    count, height, width = frames.shape[:3]
    known = {"id": "clip", "source": "clip", "start": 0, "stop": count, "fps": FPS, "height": height, "width": width}
    return Footage(Path(), Path(), height, known | row, frames)


def measure_filters(arguments: argparse.Namespace) -> None:
    """Clips of each world, spoiled in all ways, through the steps that look at pictures."""
    width, steps = arguments.width, (ProjectionCheck(), OverlayCheck(), QualityCheck())
    caught: dict[str, list[str]] = defaultdict(list)
    false: dict[str, list[str]] = defaultdict(list)
    leans, shots = [], []
    print(f"{arguments.clips} worlds, {arguments.frames} frames, {width} x {width // 2}")
    for seed in range(arguments.first, arguments.first + arguments.clips):
        generator = np.random.default_rng([seed, 8])
        world = World.sample(seed, arguments.kind)
        c2w = walk(world, arguments.frames, generator)
        frames = render_clip(world, LENS, c2w, width // 2, width, FPS, threads=1).color
        shots.append(frames)
        for step in steps:
            false[step.name].append(verdict(step, footage(frames)))

        def flat(xfov: float, world: World = world, c2w: np.ndarray = c2w) -> np.ndarray:
            return render_clip(world, Pinhole(xfov=xfov), c2w[::3], width // 2, width, FPS / 3, threads=1).color

        for name, fault, spoiled in spoil(frames, flat, generator):
            step = next(step for step in steps if step.name == name)
            caught[fault].append(verdict(step, footage(spoiled)))
            if not caught[fault][-1]:
                print(f"  {seed} {world.kind}: missed {fault}", flush=True)
        for step in steps:
            if false[step.name][-1]:
                print(f"  {seed} {world.kind}: clean, but {false[step.name][-1]}", flush=True)
        leans += [measure_up(world, c2w, width, degrees, generator) for degrees in (0, 5, 12, 25)]
        if not arguments.no_tracking:
            false["rotation"].append(shaken(world, c2w, width, 0.0, generator))
            caught["shaking camera"].append(shaken(world, c2w, width, 2.5, generator))
    print("fault                     caught  (recall)")
    for fault, verdicts in caught.items():
        found = sum(map(bool, verdicts))
        print(f"{fault:24s}  {found:3d} of {len(verdicts)}  ({found / len(verdicts):.0%})")
    dropped, spoiled_count = 0, sum(map(len, caught.values()))
    for name, verdicts in false.items():
        wrong = [reason for reason in verdicts if reason]
        dropped += len(wrong)
        print(f"clean clips that {name} drops: {len(wrong)} of {len(verdicts)} {sorted(set(wrong)) or ''}")
    right = sum(bool(reason) for verdicts in caught.values() for reason in verdicts)
    print(f"all: recall {right / spoiled_count:.1%}, precision {right / max(right + dropped, 1):.1%}")
    print_up(leans)
    print_transitions(shots, np.random.default_rng([arguments.first, 9]))


def measure_real(arguments: argparse.Namespace) -> None:
    """Real clips, forgiven faults and faults that count, through the steps that look at pictures."""
    steps = (ProjectionCheck(), OverlayCheck(keep_rig=True), QualityCheck())
    kept: dict[str, list[str]] = defaultdict(list)
    caught: dict[str, list[str]] = defaultdict(list)
    for number, frames in enumerate(real_clips(arguments)):
        generator = np.random.default_rng([number, 11 + arguments.held_out])

        def flat(xfov: float, frames: np.ndarray = frames) -> np.ndarray:
            view = View(Pinhole(xfov=xfov), *frames.shape[1:3])
            return np.stack([view.picture(Panorama(frame), np.eye(3)) for frame in frames[::3]])

        for name, forgiven in forgive(frames, generator):
            reasons = [reason for step in steps if (reason := verdict(step, footage(forgiven)))]
            kept[name].append("; ".join(reasons))
            if reasons:
                print(f"  clip {number}: {name} dropped: {kept[name][-1]}", flush=True)
        for name, fault, spoiled in spoil(frames, flat, generator):
            step = next(step for step in steps if step.name == name)
            caught[fault].append(verdict(step, footage(spoiled)))
            if not caught[fault][-1]:
                print(f"  clip {number}: missed {fault}", flush=True)
    for title, cases in (("kept", kept), ("caught", caught)):
        for name, reasons in cases.items():
            right = sum(bool(reason) == (title == "caught") for reason in reasons)
            print(f"{name:24s}  {title} {right:3d} of {len(reasons)}")
    right, wrong = (sum(bool(reason) for reasons in cases.values() for reason in reasons) for cases in (caught, kept))
    total = sum(map(len, caught.values()))
    print(f"all: recall {right / total:.1%}, precision {right / max(right + wrong, 1):.1%} ({total} spoiled clips,")
    print(f"     {sum(map(len, kept.values()))} that must stay, of which {wrong} were dropped)")


def real_clips(arguments: argparse.Namespace) -> Iterator[np.ndarray]:
    """Frames (N, H, W, 3) of real panoramas: stretches of each video, seen from several sides, and walks in photos."""
    generator = np.random.default_rng(21 + arguments.held_out)
    width, count = arguments.width, arguments.frames
    for file in sorted(arguments.footage.iterdir()):
        if file.suffix.lower() in VIDEO_SUFFIXES:
            half = probe_video(file).frames // 2
            start = half if arguments.held_out else 0
            wanted = set(np.linspace(start, start + half - 2, count).astype(int).tolist())
            film = np.stack([frame.rgb for frame in read_video(file) if frame.index in wanted])
            film = resized(film, width // 2, width)
            for turn in generator.integers(0, width, 3):
                yield np.roll(film, turn, axis=2)
        else:
            photo = Panorama.open(file).levels[0]
            for _ in range(3):
                yield walk_in_photo(photo, count, width, generator)


def walk_in_photo(photo: np.ndarray, count: int, width: int, generator: np.random.Generator) -> np.ndarray:
    """What a camera sees that walks half a radius through a sphere on which a photo is painted, (N, H, W, 3) uint8."""
    rays = LENS.rays(width // 2, width, dtype=torch.float64).directions.numpy()
    heading, turn = generator.uniform(0, 2 * np.pi, 2)
    ahead = np.array([np.sin(heading), 0.0, np.cos(heading)])
    small, frames = cv2.GaussianBlur(photo, (0, 0), 0.4 * photo.shape[1] / width), []
    for step in np.linspace(-0.25, 0.25, count):
        spot = step * ahead
        along = -(rays @ spot) + np.sqrt((rays @ spot) ** 2 + 1 - spot @ spot)
        x, y, z = np.moveaxis(spot + along[..., None] * rays, -1, 0)
        column = ((np.arctan2(x, z) + turn) / (2 * np.pi) + 0.5) % 1 * photo.shape[1] - 0.5
        row = (np.arctan2(y, np.hypot(x, z)) / np.pi + 0.5) * photo.shape[0] - 0.5
        maps = cv2.convertMaps(column.astype(np.float32), row.astype(np.float32), cv2.CV_32FC1)
        frames.append(cv2.remap(small, *maps[:2], cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP))
    return np.stack(frames)


def forgive(frames: np.ndarray, generator: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Real faults that no step should drop a clip for."""
    height, width = frames.shape[1:3]
    draw = generator.uniform
    yield "as it is", frames
    gain = np.linspace(1 - draw(0.05, 0.2), 1 + draw(0.05, 0.2), width)[:, None]
    yield "brightness step", (frames * gain).clip(0, 255).astype(np.uint8)
    directions = LENS.rays(height, width, dtype=torch.float64).directions.numpy()
    axis = np.array([np.sin(turn := draw(0, np.pi)), 0, np.cos(turn)])  # of one lens; the other looks back
    angle = np.arccos(np.abs(directions @ axis).clip(max=1))[..., None] / (np.pi / 2)
    yield "vignetting", (frames * (1 - draw(0.2, 0.4) * angle**3)).astype(np.uint8)
    moved, rows, columns = frames.copy(), max(round(draw(0.004, 0.012) * height), 1), width // 8
    moved[:, rows:, :columns] = frames[:, :-rows, :columns]
    yield "stitching offset", moved
    quality = [cv2.IMWRITE_JPEG_QUALITY, int(draw(35, 60))]
    yield "compression", np.stack([cv2.imdecode(cv2.imencode(".jpg", frame, quality)[1], 1) for frame in frames])
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    foot = (down > draw(0.86, 0.92) * height) | (
        (np.abs(across - draw(0.2, 0.8) * width) < 0.02 * width) & (down > draw(0.65, 0.75) * height)
    )
    yield "tripod", painted(frames, foot.astype(np.uint8) * 255, (30, 30, 32), 1.0)


def verdict(step: Step, clip: Footage) -> str:
    return step.verdict(clip.row | step.run(clip)[0])


def walk(world: World, frames: int, generator: np.random.Generator) -> np.ndarray:
    """Poses (N, 4, 4) of a nearly straight walk of half a near-plane depth."""
    c2w = np.tile(np.eye(4), (frames, 1, 1))
    for heading in generator.uniform(0, 2 * np.pi, 40):
        way, wave = np.linspace(0, 0.5 * world.near_depth, frames), 0.05 * np.sin(np.linspace(0, 6, frames))
        c2w[:, :3, 3] = np.stack([way * np.sin(heading) + wave, -0.3 * wave, way * np.cos(heading)], -1)
        if (world.clearance(c2w[:, :3, 3]) > 0.35).all():
            break
    return c2w


def spoil(
    frames: np.ndarray, flat: Callable[[float], np.ndarray], generator: np.random.Generator
) -> Iterator[tuple[str, str, np.ndarray]]:
    """The step that must drop it, what is wrong, and the spoiled frames."""
    height, width = frames.shape[1:3]
    draw = generator.uniform
    for fault, axis, side in (("letterbox", 1, height), ("pillarbox", 2, width)):
        border = round(draw(0.03, 0.15) * side)
        boxed = np.moveaxis(frames.copy(), axis, 0)
        boxed[:border], boxed[-border:] = 0, 0
        yield "projection", fault, np.moveaxis(boxed, 0, axis)
    shifted = np.roll(frames, int(generator.integers(1, 5)), axis=2)
    for fault, axis in (("stereo, top-bottom", 1), ("stereo, side-by-side", 2)):
        yield "projection", fault, resized(np.concatenate([frames, shifted], axis), height, width)
    rows = round(height * (90 - draw(50, 70)) / 180)
    yield "projection", "poles cut off", resized(frames[:, rows:-rows], height, width)
    yield "projection", "flat picture", flat(draw(70, 110))
    size = draw(0.4, 0.7) * width / 384
    text = str(generator.choice(WORDS))
    (across, high), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, 1)
    place = (int(draw(0.02, 0.97) * (width - across)), int(draw(0.3, 0.9) * height) + high // 2)
    letters = np.zeros((height, width), np.uint8)
    cv2.putText(letters, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, 255, max(round(width / 400), 1), cv2.LINE_AA)
    yield "overlay", "text", painted(frames, letters, (255, 255, 255), draw(0.6, 0.95))
    radius = draw(0.022, 0.04) * width
    centre = np.array([draw(0.1, 0.9) * width, draw(0.5, 0.8) * height])
    angles = np.arange(10) * np.pi / 5 + draw(0, 1)
    star = centre + (radius * np.where(np.arange(10) % 2, 0.45, 1.0))[:, None] * np.stack(
        [np.cos(angles), np.sin(angles)], -1
    )
    logo = cv2.fillPoly(np.zeros((height, width), np.uint8), [star.round().astype(np.int32)], 255, cv2.LINE_AA)
    yield "overlay", "logo", painted(frames, logo, tuple(generator.choice([20, 250], 3)), draw(0.7, 0.95))
    wide = np.pad(frames, ((0, 0), (0, 0), (32, 32), (0, 0)), "wrap")
    sigma = draw(2.5, 4) * width / 384
    yield "quality", "blur", np.stack([cv2.GaussianBlur(frame, (0, 0), sigma) for frame in wide])[:, :, 32:-32]
    noise = generator.normal(0, draw(22, 30), frames.shape)
    yield "quality", "noise", (frames + noise).round().clip(0, 255).astype(np.uint8)
    yield "quality", "darkness", (frames * draw(0.02, 0.05)).astype(np.uint8)


def resized(frames: np.ndarray, height: int, width: int) -> np.ndarray:
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])


def painted(frames: np.ndarray, mask: np.ndarray, color: tuple[int, ...], opacity: float) -> np.ndarray:
    share = opacity * mask[..., None] / 255
    return (frames * (1 - share) + np.array(color) * share).round().astype(np.uint8)


def measure_up(
    world: World, c2w: np.ndarray, width: int, degrees: float, generator: np.random.Generator
) -> tuple[str, float, float | None]:
    """Kind of world, lean, and by how many degrees up is missed (None where it is not known)."""
    around = generator.uniform(0, 2 * np.pi)
    axis, angle = np.array([np.cos(around), 0, np.sin(around)]), np.radians(degrees)
    turn = cv2.Rodrigues(axis * angle)[0]
    poses = c2w[:: max(len(c2w) // 6, 1)][:6].copy()
    poses[:, :3, :3] = turn
    up = find_up(render_clip(world, LENS, poses, width // 2, width, threads=1).color)
    truth = turn.T @ [0, -1, 0]
    error = None if up is None else float(np.degrees(np.arccos(np.clip(up.direction @ truth, -1, 1))))
    return world.kind, degrees, error


def print_up(leans: list[tuple[str, float, float | None]]) -> None:
    for kind in sorted({kind for kind, _, _ in leans}):
        for degrees in sorted({lean for _, lean, _ in leans}):
            errors = [error for name, lean, error in leans if name == kind and lean == degrees]
            known = [error for error in errors if error is not None]
            told = f"off by up to {max(known):.2f} degrees" if known else ""
            print(f"up, {kind:8s} leaning {degrees:2d} degrees: known in {len(known)} of {len(errors)} {told}")


def shaken(world: World, c2w: np.ndarray, width: int, amount: float, generator: np.random.Generator) -> str:
    """What the rotation step says of a camera that shakes by so many degrees, with estimated poses."""
    poses = c2w.copy()
    angles = torch.from_numpy(generator.normal(0, amount, (len(poses), 3)))
    poses[:, :3, :3] = rotation_from_angles(*angles.unbind(-1)).numpy()
    frames = render_clip(world, LENS, poses, width // 2, width, FPS, threads=1).color
    tracks = SphericalMapper().track(frames)
    if [len(track.c2w) for track in tracks] != [len(frames)]:
        return "tracking lost"
    return verdict(RotationCheck(), footage(frames, c2w=tracks[0].c2w[:, :3].reshape(len(frames), -1)))


def print_transitions(shots: list[np.ndarray], generator: np.random.Generator) -> None:
    """All shots joined by cuts, fades and cross-fades in turn: what segmentation finds of them."""
    film, truth = [shots[0]], []
    for number, shot in enumerate(shots[1:]):
        kind, length = ("cut", "black fade", "cross-fade")[number % 3], int(generator.integers(5, 11))
        at = sum(map(len, film))
        if kind == "cut":
            truth.append((at, at, kind))
            film.append(shot)
        elif kind == "black fade":
            ramp = np.linspace(1, 0, length)[:, None, None, None]
            film[-1] = np.concatenate([film[-1][:-length], (film[-1][-length:] * ramp).astype(np.uint8)])
            film.append(np.concatenate([(shot[:length] * ramp[::-1]).astype(np.uint8), shot[length:]]))
            truth.append((at - length, at + length, kind))
        else:
            share = np.linspace(0, 1, length + 2)[1:-1, None, None, None]
            mixed = (film[-1][-length:] * (1 - share) + shot[:length] * share).astype(np.uint8)
            film[-1] = film[-1][:-length]
            film += [mixed, shot[length:]]
            truth.append((at - length, at, kind))
    found, _ = Segmentation()._transitions(footage(np.concatenate(film)))
    left = list(found)
    for kind in ("cut", "black fade", "cross-fade"):
        meant = [(first, last) for first, last, name in truth if name == kind]
        hits = 0
        for first, last in meant:
            match = next((t for t in left if t.first <= last + 2 and t.last >= first - 2), None)
            hits += match is not None and match.kind == kind and match.last >= last - 1 and match.first <= first + 1
            left = [t for t in left if t is not match]
        print(f"{kind:10s}  found whole and by name: {hits} of {len(meant)}")
    print(f"transitions that are none: {len(left)} {[tuple(t) for t in left] or ''}")


if __name__ == "__main__":
    main()
