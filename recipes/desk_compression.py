"""How wide must the branch be? One run of a sweep on the desk model, minutes on a laptop.

for c in 2 4 8 12; do
    ucpe train recipes/desk_compression.py --compression $c --data clips/ --validation held-out/ -o runs/desk-$c
done
"""

from dataclasses import replace

from ucpe.training.recipes import RECIPES, Recipe


def recipe() -> Recipe:
    """The desk recipe with heads that follow from the compression."""
    return replace(RECIPES["desk-ucpe"], name="desk-compression", heads=None, head_dim=None)
