"""Lenses that SANA-WM never saw: its own camera branch, trained on camera-diverse clips with the rest frozen.

ucpe train recipes/sana_wm.py --data dataset/ -o runs/sana-wm
ucpe generate "..." --model FOLDER --adapter runs/sana-wm/adapter --image first.png --lens fisheye --move orbit
"""

from ucpe.training.objective import FlowMatching
from ucpe.training.recipes import SANA_WM, Recipe


def recipe() -> Recipe:
    """0.50 of 2.66 billion parameters, from a given first frame, at the size the model was made for."""
    return Recipe(
        "sana-wm",
        model=SANA_WM,
        adapter="sana-wm",
        first_frame=1.0,
        learning_rate=1e-5,
        warmup=100,
        objective=FlowMatching(shift=8.0, weighting="none"),
        text_tokens=300,
        frames=81,
        height=704,
        width=1280,
    )
