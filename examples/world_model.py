"""What SANA-WM is given for one scene through four lenses: first frame, and the ray of every token. Runs no model."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from ucpe.adapters import SanaWMCamera
from ucpe.figures import new_figure, save_figure
from ucpe.lenses import FAMILIES
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import action_trajectory

ACTIONS = "lw-24,w-24"
HEIGHT, WIDTH = 352, 640


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/world-model.png"))
    output = parser.parse_args().output
    world = World.sample(5, kind="outdoor", objects=6)
    titles = ("first frame, given", f"last frame of {ACTIONS},\nas the camera asks for it", "rays of its tokens")
    figure = new_figure(13, 6.0, layout="constrained")
    grid = figure.subplots(len(titles), len(FAMILIES))
    for column, family in zip(grid.T, FAMILIES.values()):
        camera = action_trajectory(ACTIONS, family.typical(), pitch=-4).scaled(world.near_depth)
        ends = camera[[0, len(camera) - 1]]
        clip = render_clip(world, ends.lens, ends.c2w, HEIGHT, WIDTH, fps=16, samples=2)
        rays = SanaWMCamera().encode(camera, HEIGHT, WIDTH).features
        assert isinstance(rays, torch.Tensor)
        directions = rays[0, -6:-3, -1].movedim(0, -1)
        seen = directions.norm(dim=-1, keepdim=True) > 0
        for axes, picture in zip(column, (*clip.color, torch.where(seen, directions / 2 + 0.5, 0).numpy())):
            axes.imshow(np.asarray(picture), extent=(0, WIDTH, HEIGHT, 0))
            axes.set(xticks=[], yticks=[])
        column[0].set_title(f"{family.name.replace('-', ' ')}, {float(camera.lens.xfov(HEIGHT, WIDTH)):.0f}°")
    for axes, title in zip(grid[:, 0], titles):
        axes.set_ylabel(title, fontsize=9)
    print(save_figure(figure, output, dpi=75))


if __name__ == "__main__":
    main()
