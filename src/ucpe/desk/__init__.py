"""The desk model, Wan's real classes at laptop size, and all that belongs to it: its size, parts, clips and weights.

`model` makes its parts, `clips` renders what it is trained on, `networks` are those of its estimators, and `weights`
holds the model and the estimators. How these were made is in `recipes/desk`.
"""

from pathlib import Path

FRAMES, HEIGHT, WIDTH = 17, 64, 112
"""Size of its videos, of the clips it is trained on, and of the frames that its estimators take."""

FPS = 8.0

TEXT_TOKENS = 40
"""Prompt length in tokens; captions of worlds fit."""

_FOLDER = Path(__file__).parent / "weights"

WEIGHTS = _FOLDER / "model"
"""The bundled pipeline folder with its adapter."""

ESTIMATORS = _FOLDER / "estimators.safetensors"
"""Weights of both estimators in half precision, with their own errors on held-out worlds."""

ESTIMATOR_FLOORS = _FOLDER / "estimator_floors.json"
"""Own error of the motion estimator under the protocols other than `robust`."""
