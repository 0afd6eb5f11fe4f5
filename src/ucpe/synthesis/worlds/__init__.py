"""Seeded procedural scenes, rendered exactly through any lens."""

from ucpe.synthesis.worlds.objects import make_thing
from ucpe.synthesis.worlds.rendering import WorldImage
from ucpe.synthesis.worlds.shapes import Motion, Thing
from ucpe.synthesis.worlds.words import caption, vocabulary
from ucpe.synthesis.worlds.world import World, WorldView, near_plane_depth, render_clip

__all__ = [
    "Motion",
    "Thing",
    "World",
    "WorldImage",
    "WorldView",
    "caption",
    "make_thing",
    "near_plane_depth",
    "render_clip",
    "vocabulary",
]
