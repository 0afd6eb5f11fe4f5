"""Text that contradicts the camera: asked for a telephoto portrait with a fisheye on, the camera wins."""

from pathlib import Path

import ucpe
from ucpe.generation.preview import preview_sheet
from ucpe.lenses import FAMILIES

pipe = ucpe.CameraPipeline.from_pretrained()
camera = ucpe.Trajectory.tilt(FAMILIES["extreme-fisheye"].typical(), degrees=20, frames=17, fps=8, pitch=-15)
scene = "a yellow tower on grass, hills on the horizon, under a clear sky"
videos = pipe([scene, f"telephoto portrait, narrow view, level horizon: {scene}"], camera, seed=[4, 4]).videos
Path("out").mkdir(exist_ok=True)
preview_sheet(videos, "out/contradicting_text.png")
