"""Lens models that the desk model never saw, from calibration files: only the ray of each token changes.

python examples/real_lens.py [CALIBRATION...]
"""

import sys
from pathlib import Path

import ucpe
from ucpe.generation.preview import preview_sheet

HERE = Path(__file__).parent
FILES = sys.argv[1:] or [HERE / "kannala_brandt.yaml", HERE / "brown_conrady.yaml"]

pipe = ucpe.CameraPipeline.from_pretrained()
cameras = [ucpe.Trajectory.pan(ucpe.load_lens(path), degrees=25, frames=17, fps=8, pitch=-8, roll=8) for path in FILES]
videos = pipe("a blue tower on sand, hills on the horizon, under a clear sky", cameras, seed=[3] * len(cameras)).videos
Path("out").mkdir(exist_ok=True)
preview_sheet(videos, "out/real_lens.png")
