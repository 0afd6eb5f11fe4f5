"""The paper's families and lenses by name."""

import pytest
import torch

from ucpe.lenses import (
    FAMILIES,
    MODELS,
    UCM,
    BrownConrady,
    Equidistant,
    Equirectangular,
    KannalaBrandt,
    OmniStereo,
    Pinhole,
    lens_by_name,
    lens_family,
    sample_lens,
)

RANGES = {
    "pinhole": ((90, 110), (0.0, 0.0)),
    "wide": ((110, 140), (0.5, 0.95)),
    "fisheye": ((140, 180), (1.05, 2.0)),
    "extreme-fisheye": ((160, 200), (1.5, 2.3)),
}


def test_the_papers_exact_ranges():
    assert {name: (family.xfov, family.xi) for name, family in FAMILIES.items()} == RANGES


@pytest.mark.parametrize("name", RANGES)
def test_samples_fill_their_ranges(name, generator):
    lens = FAMILIES[name].sample(generator, (4000,))
    assert isinstance(lens, UCM) and lens.batch_shape == (4000,)
    for parameter, (low, high) in zip(("xfov", "xi"), RANGES[name]):
        values = lens.parameters[parameter]
        assert low <= values.min() and values.max() <= high
        assert values.mean().item() == pytest.approx((low + high) / 2, abs=0.03 * (high - low) + 1e-9)
        assert values.std().item() == pytest.approx((high - low) / 12**0.5, abs=0.03 * (high - low) + 1e-9)
    typical = FAMILIES[name].typical()
    assert typical.xfov(48, 83).item() == pytest.approx(sum(RANGES[name][0]) / 2, abs=1e-3)


def test_every_sampled_lens_sees_its_image_centre_row(generator):
    for family in FAMILIES.values():
        lens = family.sample(generator, (200,))
        edges = torch.tensor([[0.0, 240.0], [832.0, 240.0]]).expand(200, 2, 2)
        assert lens.unproject(edges.double(), 480, 832).valid.all()


def test_sample_lens_draws_families_evenly(generator):
    names = [sample_lens(generator)[0] for _ in range(400)]
    assert all(60 < names.count(name) < 140 for name in FAMILIES)
    assert {sample_lens(generator, ["wide"])[0] for _ in range(5)} == {"wide"}


def test_sampling_repeats_with_the_seed():
    first, second = (FAMILIES["wide"].sample(torch.Generator().manual_seed(3)) for _ in range(2))
    assert first.to_dict() == second.to_dict()


@pytest.mark.parametrize("name", [*RANGES, *MODELS])
def test_every_name_is_a_lens(name):
    lens = lens_by_name(name)
    assert lens.rays(6, 10).valid.any()
    assert lens_by_name(name.replace("_", "-").upper()).to_dict() == lens.to_dict()


def test_names_with_parameters():
    assert lens_by_name("fisheye").to_dict() == {"model": "ucm", "xfov": 160, "xi": 1.525}
    assert lens_by_name("wide", xfov=120).to_dict() == {"model": "ucm", "xfov": 120, "xi": 0.725}
    assert isinstance(lens_by_name("pinhole"), Pinhole)
    assert isinstance(lens_by_name("brown-conrady", pinhole_xfov=100, k1=-0.2), BrownConrady)
    assert isinstance(lens_by_name("kannala_brandt", fx=300, width=640, height=480), KannalaBrandt)
    assert isinstance(lens_by_name("equirectangular", top=30), Equirectangular)
    assert lens_by_name("omni-stereo", eye="right").to_dict() == OmniStereo(eye="right").to_dict()


def test_names_that_are_not_lenses():
    with pytest.raises(ValueError, match="no lens is named 'tele'; there are pinhole, wide, fisheye, extreme-fisheye"):
        lens_by_name("tele")
    with pytest.raises(ValueError, match=r"pinhole: .*xi"):
        lens_by_name("pinhole", xi=2)


def test_every_lens_has_one_family():
    for name, family in FAMILIES.items():
        assert lens_family(family.typical()) == name
        torch.manual_seed(0)
        assert lens_family(family.sample()) in (name, "fisheye", "extreme-fisheye")  # the last two overlap
    assert lens_family(Pinhole(xfov=100)) == lens_family(UCM(xfov=60)) == "pinhole"
    assert lens_family(Equidistant(xfov=60)) == "equidistant"
