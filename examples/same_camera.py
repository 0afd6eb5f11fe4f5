"""One camera, four prompts: the horizon stays where the camera puts it, whatever there is to see."""

from pathlib import Path

import ucpe
from ucpe.generation.preview import preview_sheet

PROMPTS = (
    "a red tower on grass, hills on the horizon, under a clear sky",
    "a tree on snow, mountains on the horizon, under an overcast sky",
    "a yellow house on sand, forest on the horizon, under a sunset sky",
    "a white silo on paving, a city on the horizon, under a twilight sky",
)

pipe = ucpe.CameraPipeline.from_pretrained()
camera = ucpe.Trajectory.roll(ucpe.UCM(xfov=120, xi=0.8), degrees=25, frames=17, fps=8, pitch=-5, roll=-10)
Path("out").mkdir(exist_ok=True)
preview_sheet(pipe(PROMPTS, camera, seed=range(4)).videos, "out/same_camera.png")
