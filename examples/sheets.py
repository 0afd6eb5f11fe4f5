"""The sheets of docs/lenses.md and docs/trajectories.md: one room through twelve lenses, and twelve moves."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.progress import track

from ucpe.figures import INK, new_figure, save_figure
from ucpe.lenses import (
    EUCM,
    FAMILIES,
    BrownConrady,
    DoubleSphere,
    Equidistant,
    Equirectangular,
    KannalaBrandt,
    Lens,
    Stereographic,
)
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.show import draw_path

COLUMNS, HEIGHT, WIDTH = 4, 240, 416
LENSES: dict[str, Lens] = {
    **{name.replace("-", " "): family.typical() for name, family in FAMILIES.items()},
    "EUCM 190°": EUCM(xfov=190, alpha=0.6, beta=1.1),
    "double sphere 190°": DoubleSphere(xfov=190, xi=-0.2, alpha=0.6),
    "Brown-Conrady 100°": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "Brown-Conrady with a blind border": BrownConrady(fx=260, k1=-0.5, height=HEIGHT, width=WIDTH),
    "Kannala-Brandt 180°": KannalaBrandt(xfov=180, k1=0.03, k2=-0.01),
    "equidistant 220°": Equidistant(xfov=220),
    "stereographic 220°": Stereographic(xfov=220),
    "equirectangular": Equirectangular(),
}
MOVES = "pan", "tilt", "roll", "truck", "dolly", "pedestal", "orbit", "arc", "spiral", "crane", "handheld", "dolly-zoom"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    lenses(output / "lenses.png")
    moves(output / "trajectory_moves.png")
    print(f"lenses.png and trajectory_moves.png are in {output.resolve()}")


def lenses(path: Path) -> None:
    """Draw one room through every lens."""
    world = World.sample(3, kind="indoor", objects=4)
    figure = new_figure(12.6, 6.5)
    margins = {"left": 0.015, "right": 0.985, "top": 0.95, "bottom": 0.01, "wspace": 0.06, "hspace": 0.16}
    grid = figure.subplots(len(LENSES) // COLUMNS, COLUMNS, gridspec_kw=margins)
    pose = torch.eye(4, dtype=torch.float64)[None]
    for axes, (name, lens) in track(list(zip(grid.flat, LENSES.items())), "lenses"):
        axes.imshow(render_clip(world, lens, pose, HEIGHT, WIDTH, fps=16, samples=2).color[0])
        axes.set_title(name, fontsize=11, color=INK, loc="left")
        axes.set_axis_off()
    save_figure(figure, path, dpi=100)


def moves(path: Path) -> None:
    """Draw every move in 3D."""
    figure = new_figure(14.4, 8.7)
    rows = len(MOVES) // COLUMNS
    for number, name in enumerate(track(MOVES, "moves")):
        row, column = divmod(number, COLUMNS)
        left, bottom, width, height = column / COLUMNS, 1 - (row + 1) / rows, 1 / COLUMNS, 1 / rows
        camera = Trajectory.move(name, FAMILIES["pinhole"].typical())
        draw_path(figure, camera, (left + 0.01, bottom + 0.01, width - 0.02, height - 0.06), views=5)
        figure.text(left + 0.012, bottom + height - 0.03, name, fontsize=14, weight="bold", color=INK)
    save_figure(figure, path, dpi=110)


if __name__ == "__main__":
    main()
