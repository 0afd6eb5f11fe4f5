"""A lens is a value: attributes, equality, slices that solve nothing again, batches."""

import copy
import pickle

import pytest
import torch

from ucpe.lenses import UCM, BrownConrady, Equidistant, Equirectangular, KannalaBrandt, Mei, Pinhole, stack_lenses
from ucpe.lenses.planar import PlanarLens

FRAMES = torch.linspace(60, 80, 5, dtype=torch.float64)
BATCHES = {
    "ucm": UCM(xfov=FRAMES, xi=0.5),
    "brown_conrady[tangential]": BrownConrady(xfov=FRAMES, k1=-0.1, p1=0.01, p2=-0.005),
    "mei": Mei(xfov=FRAMES, xi=FRAMES / 100, k1=-0.05),
    "kannala_brandt": KannalaBrandt(xfov=FRAMES, k1=0.02),
    "equirectangular": Equirectangular(xfov=FRAMES),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_slice_is_the_lens_of_its_numbers_and_solves_nothing(name, monkeypatch):
    lens = BATCHES[name]
    anew = type(lens)(**{key: value.expand(5)[1:3] for key, value in lens.parameters.items()}, **lens.settings)
    if isinstance(lens, PlanarLens):
        for method in ("_prepare", "_check_scale"):
            monkeypatch.setattr(type(lens), method, lambda self: pytest.fail("solved again"))
    for part in (lens[1:3], lens.to(torch.float64)[1:3], lens.expand(2, 5)[1, 1:3], copy.deepcopy(lens)[1:3]):
        assert part == anew and hash(part) == hash(anew) and part.batch_shape == (2,)
        torch.testing.assert_close(part.rays(9, 16), anew.rays(9, 16), rtol=0, atol=0)


def test_parameters_are_attributes():
    lens = UCM(xfov=180, xi=2.0)
    assert lens.xi.item() == 2 and Pinhole(fx=100, width=20, height=10).cx.item() == 10
    with pytest.raises(AttributeError, match="UCM has no attribute 'k1'"):
        _ = lens.k1
    assert pickle.loads(pickle.dumps(lens)) == lens


def test_equality_is_of_values():
    assert UCM(xfov=100, xi=0.5) == UCM(xi=torch.tensor(0.5), xfov=100.0)
    assert len({UCM(xfov=100), UCM(xfov=100), UCM(xfov=101), Pinhole(xfov=100)}) == 3
    assert UCM(xfov=100) != UCM(xfov=[100.0, 100.0]) and UCM(xfov=100) != "ucm"
    assert Pinhole(fx=100, width=20, height=10) != Pinhole(fx=100, width=40, height=10)


def test_a_slice_carries_gradients():
    xi = torch.tensor([0.2, 0.4], dtype=torch.float64, requires_grad=True)
    UCM(xfov=90, xi=xi)[1].rays(4, 4, dtype=torch.float64).directions[0, 0, 0].backward()
    assert xi.grad is not None and xi.grad[0] == 0 and xi.grad[1] != 0


def test_a_data_loader_batches_lenses_of_one_model():
    lenses = [UCM(xfov=100 + i, xi=0.1 * i) for i in range(4)]
    batch = next(iter(torch.utils.data.DataLoader(lenses, batch_size=4)))
    assert batch == stack_lenses(lenses) and batch[2] == lenses[2] and batch.batch_shape == (4,)
    with pytest.raises(ValueError, match="one model"):
        stack_lenses([UCM(xfov=100), Equidistant(xfov=100)])
    with pytest.raises(ValueError, match="calibration size"):
        stack_lenses([Pinhole(fx=9, width=20, height=10), Pinhole(fx=9, width=40, height=10)])
