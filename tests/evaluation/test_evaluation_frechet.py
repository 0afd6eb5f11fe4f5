import numpy as np
import pytest
from scipy import linalg

from ucpe.evaluation.frechet import Gaussian, frechet_distance


def gaussian(seed: int, count: int, dimensions: int) -> Gaussian:
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(dimensions, dimensions)) * generator.uniform(0.1, 2, dimensions)
    return Gaussian.of(generator.normal(size=(count, dimensions)) @ mixing + generator.normal(size=dimensions))


def test_equal_gaussians_are_at_distance_zero():
    one = gaussian(0, 500, 16)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-8)


def test_shifted_by_a_vector_is_its_squared_length():
    one = gaussian(1, 400, 8)
    other = Gaussian(one.mean + np.arange(8), one.covariance, one.count)
    assert frechet_distance(one, other) == pytest.approx(np.arange(8) @ np.arange(8))


def test_commuting_covariances_by_closed_form():
    first, second = np.array([1.0, 4.0, 9.0]), np.array([16.0, 1.0, 0.0])
    distance = frechet_distance(Gaussian(np.zeros(3), np.diag(first), 9), Gaussian(np.zeros(3), np.diag(second), 9))
    assert distance == pytest.approx(((np.sqrt(first) - np.sqrt(second)) ** 2).sum())


@pytest.mark.parametrize(("count", "dimensions"), [(2000, 32), (600, 64), (40, 64)])
def test_agrees_with_scipys_matrix_root(count, dimensions):
    """Also with fewer samples than dimensions, where the usual code needs an epsilon on the diagonal."""
    first, second = gaussian(2, count, dimensions), gaussian(3, count, dimensions)
    root = linalg.sqrtm(first.covariance @ second.covariance + 0j)
    difference = first.mean - second.mean
    expected = difference @ difference + np.trace(first.covariance + second.covariance) - 2 * np.trace(root).real
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-5)
    assert frechet_distance(first, second) == pytest.approx(frechet_distance(second, first), rel=1e-8)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="at least two features"):
        Gaussian.of(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="4 and 5 dimensions"):
        frechet_distance(gaussian(0, 10, 4), gaussian(0, 10, 5))
