import numpy as np
import pytest
from scipy import stats

from ucpe.bench.statistics import Difference, paired_difference, spread, t_quantile
from ucpe.bench.tables import markdown_table, shown_difference, shown_spread


@pytest.mark.parametrize("freedom", [1, 1.4, 2, 5.5, 19, 21, 100, 5000])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.95, 0.975, 0.995])
def test_quantiles_are_scipys(probability, freedom):
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(("probability", "freedom"), [(0.4, 3), (1.0, 3), (0.9, 0.5)])
def test_quantiles_outside_their_range_raise(probability, freedom):
    with pytest.raises(ValueError, match="probability"):
        t_quantile(probability, freedom)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_with_seeds_alone_the_interval_is_the_paired_t_test(seeds):
    generator = np.random.default_rng(seeds)
    first, second = generator.normal(20, 1, (2, seeds))
    found = paired_difference(first[:, None].repeat(5, 1), second[:, None].repeat(5, 1))
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-4)
    assert found.mean == pytest.approx((first - second).mean())


def test_with_clips_alone_the_interval_is_the_paired_t_test_over_clips():
    generator = np.random.default_rng(1)
    first, second = generator.normal(20, 1, (2, 1, 40)).repeat(3, 1)
    found = paired_difference(first, second)
    expected = stats.ttest_rel(first[0], second[0]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-4)


def test_the_interval_covers_the_truth_for_new_seeds_and_new_clips():
    generator = np.random.default_rng(2)
    covered = 0
    for _ in range(600):
        difference = 0.3 + generator.normal(0, 0.2, (3, 1)) + generator.normal(0, 1, (1, 60))
        found = paired_difference(difference + generator.normal(0, 0.5, (3, 60)), np.zeros((3, 60)))
        covered += found.low <= 0.3 <= found.high
    assert 0.93 <= covered / 600 <= 0.995


def test_pairing_removes_what_contestants_share():
    generator = np.random.default_rng(3)
    shared = generator.normal(20, 5, (3, 50))
    first = shared + 0.2 + generator.normal(0, 0.02, (3, 50))
    assert paired_difference(first, shared).verdict == "better"
    assert paired_difference(shared, first).verdict == "worse"
    assert paired_difference(shared, first, more_is_better=False).verdict == "better"


def test_nothing_is_called_better_without_an_interval_that_says_so():
    assert paired_difference(np.full((1, 9), 30.0), np.full((1, 9), 20.0)).verdict == "one seed"
    assert Difference(1.0, -0.1, 2.1, 3, 10).verdict == "undecided"
    assert Difference(float("nan"), float("nan"), float("nan"), 3, 10).verdict == "undecided"
    same = paired_difference(np.ones((3, 4)), np.ones((3, 4)))
    assert (same.mean, same.verdict) == (0, "undecided")


def test_bad_shapes_raise():
    with pytest.raises(ValueError, match="seeds, clips"):
        paired_difference(np.zeros(3), np.zeros(3))


def test_spread_is_between_seeds():
    values = np.array([[1.0, 3.0], [2.0, 6.0], [9.0, 9.0]])
    found = spread(values)
    assert (found.mean, found.deviation, found.seeds) == (5.0, pytest.approx(np.std([2, 4, 9], ddof=1)), 3)
    assert spread(values[:1]).deviation is None


def test_tables_say_what_was_not_run():
    assert shown_spread(None) == shown_difference(None) == "not run"
    assert shown_spread(spread(np.array([[20.0], [21.0]]))) == "20.50 ± 0.71"
    assert shown_spread(spread(np.array([[np.nan]]))) == "diverged"
    assert shown_difference(Difference(-0.5, -0.7, -0.3, 3, 9)) == "-0.50 [-0.70, -0.30] worse"
    assert shown_difference(Difference(-0.5, None, None, 1, 9)) == "-0.50 (one seed)"
    assert markdown_table(["", "a"], [["x", "1"]]) == "|  | a |\n|:--|--:|\n| x | 1 |\n"
