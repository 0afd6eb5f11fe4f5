"""One world through four lenses, every lens and every move as a picture: what the package does without any model."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.progress import track

from ucpe.encodings import lat_up_map
from ucpe.figures import new_figure, save_figure
from ucpe.lenses import FAMILIES, BrownConrady, Equirectangular, KannalaBrandt, OmniStereo
from ucpe.lenses.show import display_size, draw_lens
from ucpe.synthesis.worlds import World, render_clip
from ucpe.trajectories import Trajectory
from ucpe.trajectories.show import show_trajectory
from ucpe.video import write_video

LENSES = {
    **{name: family.typical() for name, family in FAMILIES.items()},
    "kannala-brandt": KannalaBrandt(xfov=170, k1=0.03, k2=-0.01),
    "brown-conrady": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "equirectangular": Equirectangular(),
    "omni-stereo": OmniStereo(baseline=0.3),
}
MOVES = ("orbit", "dolly-in", "crane-up", "spiral", "handheld", "dolly-zoom")
SEED, FRAMES, FPS, HEIGHT, WIDTH = 5, 33, 16, 240, 416


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("out"))
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)

    world = World.sample(SEED, kind="outdoor", objects=6)
    print(f"{world.caption}, through four lenses")
    rows = []
    for family in track(FAMILIES.values(), "videos"):
        camera = Trajectory.arc(family.typical(), degrees=30, frames=FRAMES, fps=FPS, pitch=-4, roll=6).scaled(
            world.near_depth
        )
        clip = render_clip(world, camera.lens, camera.c2w, HEIGHT, WIDTH, fps=FPS, samples=2)
        write_video(output / f"world-{family.name}.mp4", clip.color, FPS)
        rows.append((family.name, camera, clip.color))
    draw_sheet(rows, output / "world.png")
    tilted = Trajectory.static(FAMILIES["wide"].typical(), frames=1, pitch=-10, roll=10).c2w
    for name, lens in track(LENSES.items(), "lenses"):
        width = 960 if name in ("equirectangular", "omni-stereo") else 832
        lat_up = lat_up_map(lens, tilted, *display_size(480, width))[0]
        picture = draw_lens(lens, lat_up, tilted[0], width=width, title=name, subtitle="pitched -10°, rolled 10°")
        save_figure(picture, output / f"lens-{name}.png")
    for name in track(MOVES, "moves"):
        camera = Trajectory.move(name, FAMILIES["wide"].typical())
        show_trajectory(camera, output / f"move-{name}.png", title=name)
    show_trajectory(Trajectory.orbit(FAMILIES["fisheye"].typical()), output / "move-orbit.html", title="orbit, fisheye")
    print(f"pictures and videos are in {output.resolve()}:")
    for path in sorted(output.iterdir()):
        print(f"  {path.name}")


def draw_sheet(rows: list[tuple[str, Trajectory, np.ndarray]], path: Path, shown: int = 3) -> None:
    from ucpe.pages.drawings import overlay

    figure = new_figure(3.2 * len(rows), 3.2 * HEIGHT / WIDTH * shown + 0.35)
    margins = {"wspace": 0.02, "hspace": 0.02, "left": 0.005, "right": 0.995, "top": 0.93, "bottom": 0.005}
    grid = figure.subplots(shown, len(rows), gridspec_kw=margins)
    for column, (name, camera, frames) in zip(grid.T, rows):
        for axes, index in zip(column, np.linspace(0, len(frames) - 1, shown).round().astype(int)):
            axes.imshow(overlay(frames[index], camera[int(index)], WIDTH))
            axes.set_axis_off()
        xfov = float(camera.lens.xfov(HEIGHT, WIDTH))
        column[0].set_title(f"{name.replace('-', ' ')}, {xfov:.0f}°", fontsize=11, color="#2a2d34", pad=5)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
