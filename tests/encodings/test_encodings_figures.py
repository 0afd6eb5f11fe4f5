"""Pictures of encodings and the command that draws them."""

import re
from pathlib import Path

import pytest
import torch

from ucpe.encodings import ENCODINGS, LEARNED_ENCODINGS
from ucpe.encodings.figures import DRAWINGS, QUERY_COLUMN, QUERY_ROW, _meetings, _pose, draw_encoding
from ucpe.lenses import UCM, Pinhole


def test_every_relative_and_absolute_encoding_has_a_picture():
    relative = {*ENCODINGS, *LEARNED_ENCODINGS, "rayrope"}
    assert set(DRAWINGS) == relative | {"lat-up", "plucker", "raw", "frames"}


def test_ucpe_answers_most_where_another_lens_looks_the_same_way():
    lenses = [UCM(xfov=140, xi=1.1), Pinhole(xfov=90)]
    poses = torch.stack([_pose(), _pose(yaw=15)])
    (camera, _), arrived = _meetings("ucpe", lenses, poses)
    ray = lenses[0].rays(30, 50, dtype=torch.float64).directions[QUERY_ROW, QUERY_COLUMN]
    expected = lenses[1].project(poses[1, :3, :3].T @ ray, 30, 50)[0]
    best = camera[1].flatten().argmax().item()
    assert abs(best % 50 + 0.5 - expected[0]) < 3
    assert abs(best // 50 + 0.5 - expected[1]) < 3
    torch.testing.assert_close(arrived, torch.ones_like(arrived))


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="no picture of 'rope'"):
        draw_encoding("rope", tmp_path / "x.png")
    with pytest.raises(ValueError, match=r"\.png, \.svg, \.pdf"):
        draw_encoding("raw", tmp_path / "x.gif")


def test_the_page_runs_as_written():
    page = (Path(__file__).resolve().parents[2] / "docs/encodings.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 10
    names: dict[str, object] = {}
    for block in blocks:
        small = block.replace("480, 832", "8, 13").replace("15 * 26", "3 * 4").replace("15, 26", "3, 4")
        exec(small.replace("390", "12"), names)
    assert names["view"].shape == (1, 2, 12, 64)
