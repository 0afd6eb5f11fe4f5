"""UCPE on Wan2.2 TI2V 5B: text to video and, for half of the clips, a given first frame, in one adapter.

ucpe train recipes/wan22_ti2v.py --data dataset/ -o runs/wan22
"""

from dataclasses import replace

from ucpe.training.recipes import RECIPES, Recipe


def recipe() -> Recipe:
    """The paper's recipe on another base, whose tokens are 32 x 32 pixels."""
    return replace(
        RECIPES["ucpe"],
        name="wan22-ti2v",
        model="Wan-AI/Wan2.2-TI2V-5B-Diffusers",
        first_frame=0.5,
    )
