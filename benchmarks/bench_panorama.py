"""Speed of rendering 360 footage through a lens, on one thread, in processor time, as ratios measured in this run.

1. A 3840 x 1920 panorama to 480 x 832 through a turning 160 degree lens, map included, against `cv2.remap` alone with
   ready float maps (goal: at most 1.6).
2. End to end (decode, render, encode) against ffmpeg's v360 doing the same job: one camera, and 20 cameras of the same
   footage (goal: 3), standing still and turning, from footage of several bit rates. Ours also checks what it wrote.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch

from ucpe.lenses import UCM
from ucpe.synthesis.footage import Footage, Shot, film
from ucpe.synthesis.panoramas import Panorama, View
from ucpe.video import REPEATABLE, read_frames, write_video

HEIGHT, WIDTH, XFOV = 480, 832, 160.0
PRESET, CRF = "veryfast", 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=48, help="frames of 4K footage for the end-to-end part")
    parser.add_argument("--cameras", type=int, default=20)
    parser.add_argument("--quality", type=int, nargs="+", default=[22, 25], help="x264 crf of the 4K footage")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    panorama = textured_panorama(1920)
    against_remap(panorama)
    if shutil.which("ffmpeg") is None:
        print("ffmpeg is not installed: the comparison with v360 is left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        for quality in arguments.quality:
            against_ffmpeg(panorama, Path(folder), arguments.frames, arguments.cameras, quality)


def against_remap(panorama: np.ndarray) -> None:
    lens = UCM(xfov=XFOV, xi=1.5)
    planes = [np.ascontiguousarray(panorama[..., 0]), *(np.ascontiguousarray(panorama[::2, ::2, c]) for c in (1, 2))]
    rays = lens.rays(HEIGHT, WIDTH).directions.numpy()
    plain, smooth = (View(lens, HEIGHT, WIDTH, antialias=antialias) for antialias in (False, True))
    times: dict[str, list[float]] = {}
    for step in range(60):
        rotation = turn(6.0 * step, 20 * np.sin(step))
        x, y = float_maps(rays @ rotation.T)
        for name, run in {
            "cv2.remap of RGB alone, float maps ready": lambda x=x, y=y: cv2.remap(panorama, x, y, cv2.INTER_LINEAR),
            "RGB, bilinear": lambda r=rotation: plain.picture(Panorama(panorama), r),
            "RGB, bilinear, anti-aliased": lambda r=rotation: smooth.picture(Panorama(panorama), r),
            "4:2:0 planes, bilinear": lambda r=rotation: plain.planes(tuple(map(Panorama, planes)), r),
            "4:2:0 planes, bilinear, anti-aliased": lambda r=rotation: smooth.planes(tuple(map(Panorama, planes)), r),
        }.items():
            times.setdefault(name, []).append(work(run))
    names = list(times)
    print(f"3840 x 1920 to {HEIGHT} x {WIDTH} through a turning {XFOV:g} degree UCM, median of 55 frames")
    for name in names:
        ratio = statistics.median(a / b for a, b in zip(times[name][5:], times[names[0]][5:]))
        print(f"  {name:<44} {1e3 * statistics.median(times[name][5:]):7.2f} ms   {ratio:5.2f} x")


def against_ffmpeg(panorama: np.ndarray, folder: Path, frames: int, cameras: int, quality: int) -> None:
    source = folder / "pano.mp4"
    write_video(source, handheld_footage(panorama, frames), 30, preset="veryfast", crf=quality)
    megabits = source.stat().st_size * 8 / (frames / 30) / 1e6
    lens = UCM(xfov=XFOV, xi=1.0)  # v360's stereographic lens, so both draw the same picture
    footage = Footage(source)

    def ours(count: int, speed: float, antialias: bool) -> None:
        shots = [
            Shot(folder / f"ours{n}.mp4", lens, np.stack([turn(yaw) for yaw in yaws(n, speed, frames)]), fps=30)
            for n in range(count)
        ]
        film(footage, shots, range(frames), antialias=antialias, preset=PRESET, crf=CRF)

    def theirs(count: int, speed: float) -> None:
        for n in range(count):
            yaw = yaws(n, speed, frames)
            view = (
                f"v360=e:sg:h_fov={XFOV:g}:v_fov={vertical_fov():.4f}:w={WIDTH}:h={HEIGHT}:reset_rot=1:yaw={yaw[0]:g}"
            )
            if speed:
                (folder / "turn.txt").write_text(
                    "".join(f"{max(i - 0.5, 0) / 30:.5f} v360 yaw {y:g};\n" for i, y in enumerate(yaw))
                )
                view = f"sendcmd=f={folder / 'turn.txt'},{view}"
            command = ["ffmpeg", "-v", "error", "-y", "-threads", "1", "-filter_threads", "1", "-i", str(source)]
            command += ["-vf", view, "-c:v", "libx264", "-preset", PRESET, "-crf", str(CRF)]
            command += ["-threads", "1", "-x264-params", REPEATABLE, str(folder / f"theirs{n}.mp4")]
            subprocess.run(command, check=True)

    print(f"{frames} frames of 4K at {megabits:.0f} Mbit/s, decoded, rendered, encoded (x264 {PRESET} crf {CRF})")
    for speed in (0.0, 1.0):
        kind = f"turning {speed:g} degree a frame" if speed else "standing still"
        for count in (1, cameras):
            runs = [
                (
                    work(partial(ours, count, speed, False)),
                    work(partial(ours, count, speed, True)),
                    work(partial(theirs, count, speed)),
                )
                for _ in range(3 if count == 1 else 1)
            ]
            for name, column in (("bilinear, as v360", 0), ("anti-aliased", 1)):
                mine, other = (statistics.median(run[which] for run in runs) for which in (column, 2))
                ratio = statistics.median(run[2] / run[column] for run in runs)
                who = f"{count} camera{'s' * (count > 1)}, {kind}, {name}"
                print(f"  {who:<58} ours {mine:6.2f} s   v360 {other:6.2f} s   {ratio:5.2f} x as fast", flush=True)
        last = [
            read_frames(folder / f"{who}{cameras - 1}.mp4", frames - 1)[0].astype(float) for who in ("ours", "theirs")
        ]
        print(f"  the last frames of both differ by {np.abs(last[0] - last[1]).mean():.1f} of 255")


def yaws(camera: int, speed: float, frames: int) -> np.ndarray:
    """Degrees (frames,) from -180 to 180 that a camera looks to the right."""
    return (18.0 * camera + speed * np.arange(frames) + 180) % 360 - 180


def vertical_fov() -> float:
    """Degrees that v360's stereographic lens must be told for square pixels."""
    return float(np.rad2deg(4 * np.arctan(np.tan(np.deg2rad(XFOV) / 4) * HEIGHT / WIDTH)))


def float_maps(directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = (np.arctan2(directions[..., 0], directions[..., 2]) / (2 * np.pi) + 0.5) * 3840 - 0.5
    y = (np.arcsin(directions[..., 1]) / np.pi + 0.5) * 1920 - 0.5
    return x.astype(np.float32), y.astype(np.float32)


def textured_panorama(height: int) -> np.ndarray:
    """Noise at every scale, as compressible as a photograph."""
    generator = np.random.default_rng(0)
    total = np.full((height, 2 * height, 3), 128, np.float32)
    for octave in range(3, 9):
        size = 2**octave
        noise = generator.normal(size=(size, 2 * size, 3)).astype(np.float32)
        total += 90 / octave**1.2 * cv2.resize(noise, (2 * height, height), interpolation=cv2.INTER_CUBIC)
    return total.clip(0, 255).astype(np.uint8)


def handheld_footage(panorama: np.ndarray, frames: int) -> Iterator[np.ndarray]:
    """A turning panorama with the grain of a small sensor, so that it costs as much to decode as real footage."""
    generator = np.random.default_rng(1)
    grain = generator.normal(0, 5, (panorama.shape[0] + 64, panorama.shape[1])).astype(np.int8)
    for n in range(frames):
        shift = int(generator.integers(64))
        noise = np.roll(grain[shift : shift + panorama.shape[0]], 97 * n, axis=1)[..., None]
        yield (np.roll(panorama, 6 * n, axis=1).astype(np.int16) + noise).clip(0, 255).astype(np.uint8)


def turn(yaw: float, pitch: float = 0.0) -> np.ndarray:
    y, p = np.deg2rad([yaw, pitch])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    return about_y @ np.array([[1, 0, 0], [0, np.cos(p), -np.sin(p)], [0, np.sin(p), np.cos(p)]])


def work(run: Callable[[], object]) -> float:
    """Processor seconds of this process and its children: on one thread, the time it takes on an idle machine."""

    def used() -> float:
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))

    start = used()
    run()
    return used() - start


if __name__ == "__main__":
    main()
