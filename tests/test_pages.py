"""Pages escape what they are given, need nothing from elsewhere, and draw what they say."""

import re

import numpy as np
import pytest

from ucpe.lenses import UCM
from ucpe.pages.drawings import HORIZON, data_uri, histogram_svg, overlay
from ucpe.synthesis.curation.report import page
from ucpe.trajectories import Trajectory


def row(**values):
    clip = {"source": "a<b>.mp4", "start": 0, "stop": 48, "fps": 24.0, "thumbnail": b"jpeg"}
    return {**clip, "dropped": "", "dropped_by": "", "shake": 0.2, **values}


def test_a_curation_page_counts_and_escapes():
    shaky = [row(dropped="not stabilised: shakes", dropped_by="rotation", shake=9.0) for _ in range(3)]
    broken = row(dropped="no <video>", dropped_by="reading")
    steps = [("reading", {}), ("quality", {"min_quality": 0.5}), ("rotation", {"max_shake": 1.5})]
    text = page("<folder>", [row(), *shaky, broken], steps, pictures=2)
    assert "<folder>" not in text and "&lt;folder&gt;" in text and "a<b>" not in text
    assert re.search(r"<td>rotation</td><td>4</td><td>1</td><td>3</td>", text)
    assert text.count("<img") == 2 + 1, "two of three that fell, and the one that was kept"
    assert text.count("<svg") == 1 and "--rotation.max-shake 1.5" in text
    assert "<b>a&lt;b&gt;.mp4</b>: no &lt;video&gt;" in text
    assert "http" not in text


def test_a_histogram_colours_what_the_threshold_drops():
    values = np.array([0.1] * 5 + [0.9] * 3)
    for lowest, kept, dropped in ((False, "5", "3"), (True, "3", "5")):
        drawn = histogram_svg(values, "title", 0.5, "--flag", lowest)
        bars = dict(re.findall(r'class="(kept|dropped)"[^>]*><title>(\d+)', drawn))
        assert bars == {"kept": kept, "dropped": dropped}


@pytest.mark.parametrize("lens", [UCM(xfov=90, xi=0.0), UCM(xfov=180, xi=1.5)], ids=["pinhole", "fisheye"])
def test_the_horizon_is_drawn_where_it_is(lens):
    camera = Trajectory.static(lens, pitch=10, frames=1)
    picture = overlay(np.zeros((60, 104, 3), np.uint8), camera, width=416)
    rows, columns = np.nonzero((np.abs(picture.astype(int) - HORIZON) < 40).all(-1))
    rays = lens.rays(240, 416).directions[rows, columns].double() @ camera.c2w[0, :3, :3].double().T
    assert len(rows) > 300 and np.degrees(np.abs(np.arcsin(-rays[:, 1].numpy()))).max() < 1.5


def test_an_address_holds_its_file():
    assert data_uri(b"abc") == "data:image/jpeg;base64,YWJj"
