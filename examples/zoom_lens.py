"""A lens that changes while the camera turns: from a fisheye to a long lens in one shot."""

from pathlib import Path

import torch

import ucpe
from ucpe.generation.preview import preview_sheet

FRAMES = 17

pipe = ucpe.CameraPipeline.from_pretrained()
lens = ucpe.UCM(xfov=torch.linspace(160, 50, FRAMES, dtype=torch.float64), xi=torch.linspace(1.6, 0, FRAMES))
turn = ucpe.Trajectory.pan(lens[0], degrees=15, frames=FRAMES, fps=8, pitch=-4)
camera = ucpe.Trajectory(turn.c2w, lens, turn.fps)
video = pipe("a purple tower on grass, mountains on the horizon, under a clear sky", camera, seed=2).videos[0]
Path("out").mkdir(exist_ok=True)
preview_sheet([video], "out/zoom_lens.png")
