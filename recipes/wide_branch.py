"""UCPE with a wider branch and averaged weights.

ucpe train recipes/wide_branch.py --data dataset/ -o runs/wide-branch
"""

from dataclasses import replace

from ucpe.training.recipes import RECIPES, Recipe


def recipe() -> Recipe:
    """The paper's recipe at 1/4 of the width, with weights averaged over about a thousand steps."""
    return replace(RECIPES["ucpe"], name="wide-branch", compression=4, ema=0.999)
