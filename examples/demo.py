"""`make demo`: one scene through four lenses with the bundled desk model, no download, no GPU."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from rich.progress import track

import ucpe
from ucpe.generation.loading import load_quietly
from ucpe.generation.preview import preview_sheet
from ucpe.lenses import FAMILIES
from ucpe.video import write_video

PROMPT = "a red tower on grass, hills on the horizon, under a clear sky"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default=PROMPT)
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    load_quietly()
    pipe = ucpe.CameraPipeline.from_pretrained()
    videos = []
    print(options.prompt)
    for family in track(FAMILIES.values(), "generating"):
        camera = ucpe.Trajectory.pan(family.typical(), degrees=20, frames=17, fps=8, pitch=-6, roll=10)
        video = pipe(options.prompt, camera, seed=options.seed).videos[0]
        write_video(options.output / f"{family.name}.mp4", video.frames, camera.fps)
        videos.append(video)
    preview_sheet(videos, options.output / "demo.png")
    print(f"{len(videos)} videos in {time.monotonic() - start:.0f} s; the yellow line is the commanded horizon:")
    for name in (*FAMILIES, "demo"):
        print(f"  {options.output / name}{'.png' if name == 'demo' else '.mp4'}")
    command = os.path.relpath(Path(sys.executable).with_name("ucpe"))
    print(f"Make a shot of your own on a page: {command} studio")


if __name__ == "__main__":
    main()
