"""Throughput of `ucpe synthesize` from 4K footage: clips a minute on one core, and where the time goes.

One group is what the paper makes of one path: four variants with four lenses, 81 frames of 480 x 832 at 16 fps each,
from one pass over 3840 x 1920 footage at 30 fps. Processor time, so that a busy machine does not change the answer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import torch
from bench_panorama import handheld_footage, textured_panorama

from ucpe import video
from ucpe.synthesis import footage as footage_module
from ucpe.synthesis.clips import ClipSettings, Group, film_group
from ucpe.synthesis.panoramas import View
from ucpe.synthesis.sources import PanoramaSource, WorldSource


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=81)
    parser.add_argument("--worlds", action="store_true", help="also time clips of procedural worlds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    settings = ClipSettings(frames=arguments.frames)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pano.mp4"
        length = int(arguments.frames * 30 / 16) + 2
        video.write_video(path, handheld_footage(textured_panorama(1920), length), 30, preset="veryfast", crf=22)
        source = PanoramaSource(path)
        film_group(Group(source, 0, 0, 4), Path(folder) / "warm", ClipSettings(frames=3))
        with clocks() as spent:
            start = time.process_time()
            film_group(Group(source, 0, 0, 4), Path(folder) / "dataset", settings)
            total = time.process_time() - start
        print(f"4 clips of {arguments.frames} frames, 480 x 832, from {length - 2} frames of 4K footage: {total:.2f} s")
        print(f"  {60 * 4 / total:.1f} clips a minute on one core")
        for name, seconds in [*spent.items(), ("everything else", total - sum(spent.values()))]:
            print(f"  {name:<26} {seconds:6.2f} s  {100 * seconds / total:5.1f} %")
        if arguments.worlds:
            start = time.process_time()
            film_group(Group(WorldSource("outdoor"), 0, 0, 4), Path(folder) / "worlds", settings)
            total = time.process_time() - start
            print(
                f"4 clips of a procedural world, cast through the lens: {60 * 4 / total:.1f} clips a minute on one core"
            )


@contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """Processor seconds spent in decoding, rendering, encoding and checking, while the context lasts."""
    spent = {"decoding": 0.0, "rendering": 0.0, "encoding": 0.0, "checking what was written": 0.0}

    def timed(owner: object, name: str, label: str) -> None:
        real = getattr(owner, name)

        def wrapper(*args: object, **kwargs: object) -> object:
            start = time.process_time()
            try:
                return real(*args, **kwargs)
            finally:
                spent[label] += time.process_time() - start

        restore.append((owner, name, real))
        setattr(owner, name, wrapper)

    def decoding(*args: object, **kwargs: object) -> Iterator[object]:
        frames = iter(real_read(*args, **kwargs))
        while True:
            start = time.process_time()
            frame = next(frames, None)
            spent["decoding"] += time.process_time() - start
            if frame is None:
                return
            yield frame

    restore: list[tuple[object, str, object]] = []
    real_read = footage_module.read_video
    restore.append((footage_module, "read_video", real_read))
    footage_module.read_video = decoding
    timed(View, "planes", "rendering")
    timed(video.VideoWriter, "write_planes", "encoding")
    timed(video, "check_video", "checking what was written")
    try:
        yield spent
    finally:
        for owner, name, real in restore:
            setattr(owner, name, real)


if __name__ == "__main__":
    main()
