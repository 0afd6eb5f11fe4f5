"""The picture of a lens: the room is where it should be, and every lens can be drawn."""

import numpy as np
import pytest
import torch
from tests.pictures import filled_cells, pixels, shows

from ucpe.figures import save_figure
from ucpe.lenses import UCM, Equirectangular, Pinhole, Rays
from ucpe.lenses.show import (
    ROOM_HIGH,
    ROOM_LOW,
    WALLS,
    checker_room,
    draw_lens,
    lens_numbers,
)


def colours_towards(*directions, c2w=None):
    directions = torch.tensor(directions, dtype=torch.float64)
    rays = Rays(torch.zeros_like(directions), directions, torch.ones(len(directions), dtype=torch.bool))
    return checker_room(rays, torch.eye(4) if c2w is None else c2w)


def wall_of(colour):
    """The wall whose pair of colours, darkened towards the corners, has this hue."""
    best = {}
    for wall, pair in WALLS.items():
        for hex_colour in pair:
            full = np.array([int(hex_colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
            scale = (colour @ full) / (full @ full)
            best[wall] = min(best.get(wall, 9), np.abs(colour - scale * full).max())
    return min(best, key=best.get)


def test_each_direction_sees_its_wall():
    seen = colours_towards([1, 0, 0.05], [-1, 0, 0.05], [0.05, 1, 0], [0.05, -1, 0], [0.05, 0, 1], [0.05, 0, -1])
    assert [wall_of(colour) for colour in seen] == [(0, 1), (0, 0), (1, 1), (1, 0), (2, 1), (2, 0)]


def test_the_room_turns_with_the_camera():
    right = torch.eye(4)
    right[:3, :3] = torch.tensor([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])  # looks along world x
    assert wall_of(colours_towards([0.05, 0, 1], c2w=right)[0]) == (0, 1)


def test_squares_alternate():
    """Along the middle of the front wall the colour changes every 0.8 m."""
    x = np.arange(ROOM_LOW[0] + 0.4, ROOM_HIGH[0], 0.8)
    light = colours_towards(*[[float(v), 0.1, float(ROOM_HIGH[2])] for v in x]).sum(-1) > 2.2
    assert (light[1:] != light[:-1]).all()


def test_pixels_without_a_ray_are_blank():
    rays = UCM(xfov=200, xi=2.3).rays(40, 40)
    picture = checker_room(rays, torch.eye(4))
    assert np.isfinite(picture).all() and picture.min() >= 0 and picture.max() <= 1
    assert len(np.unique(picture[~rays.valid.numpy()], axis=0)) == 1


def test_numbers_of_a_pinhole():
    numbers = dict(lens_numbers(Pinhole(xfov=90), 480, 640))
    assert numbers["across"] == "90.00°"
    assert numbers["focal length"] == "320.00, 320.00 px"
    assert numbers["visible"] == "100.0 % of 640 x 480 pixels"
    assert numbers["at the centre"] == f"{np.degrees(1 / 320):.4f}° per pixel"


@pytest.mark.parametrize("name", ["picture.png", "picture.svg"])
def test_picture_is_written(name, tmp_path):
    lens = Equirectangular()
    figure = draw_lens(lens, torch.zeros(316, 632, 3), torch.eye(4), height=100, width=200, title="t")
    save_figure(figure, tmp_path / "new" / name)
    if name.endswith(".png"):
        picture = pixels(tmp_path / "new" / name)
        assert filled_cells(picture, 2, 2).min() > 0.02, "room, angles, Lat-Up map and numbers"
        assert all(shows(picture, colour) for colour, _ in WALLS.values())
    else:
        assert "Lat-Up" in (tmp_path / "new" / name).read_text() or "<path" in (tmp_path / "new" / name).read_text()
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_what_is_not_drawn(tmp_path):
    with pytest.raises(ValueError, match="not a batch"):
        draw_lens(Pinhole(xfov=torch.tensor([80.0, 90.0])), torch.zeros(2, 2, 3), torch.eye(4))
    with pytest.raises(ValueError, match=r"written as \.png, \.svg, \.pdf, \.jpg, not 'lens\.txt'"):
        save_figure(None, tmp_path / "lens.txt")
