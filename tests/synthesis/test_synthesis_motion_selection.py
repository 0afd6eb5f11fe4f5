"""Selection against a slow, obvious reference, and the promises it makes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ucpe.synthesis.motion import selection
from ucpe.synthesis.motion.selection import (
    TEST_LIMITS,
    UNKNOWN,
    Candidates,
    ClipFacts,
    Limits,
    Scoring,
    category_counts,
    evenness,
    is_test,
    select,
)


def obvious_selection(candidates: Candidates, clips: ClipFacts, limits: Limits) -> list[int]:
    """The paper's words, one candidate at a time."""
    rows = [row for row in range(len(candidates.clip)) if not np.isnan(clips.score[candidates.clip[row]])]
    rows.sort(
        key=lambda row: (
            -clips.score[candidates.clip[row]],
            candidates.clip[row],
            candidates.rmse[row],
            candidates.motion[row],
            row,
        )
    )
    taken: list[int] = []
    for row in rows:
        panoramas = Counter(candidates.clip[other] for other in taken)
        motions = Counter(candidates.motion[other] for other in taken)
        places = Counter(name for other in taken for name in names_of(clips, candidates.clip[other]))
        bins = Counter(clips.magnitude[candidates.clip[other]] // limits.magnitude_width for other in taken)
        clip = candidates.clip[row]
        if limits.total is not None and len(taken) >= limits.total:
            break
        if panoramas[clip] >= limits.per_panorama or motions[candidates.motion[row]] >= limits.per_motion:
            continue
        if all(places[name] >= limits.per_category for name in names_of(clips, clip)):
            continue
        if bins[clips.magnitude[clip] // limits.magnitude_width] >= limits.per_magnitude:
            continue
        taken.append(row)
    return taken


def names_of(clips: ClipFacts, clip: int) -> set[str]:
    return set(clips.categories[clip]) or {UNKNOWN}


@st.composite
def problems(draw):
    clips, motions = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    score = st.one_of(st.sampled_from([0.1, 0.5, 0.9]), st.just(float("nan")))
    facts = ClipFacts(
        np.array(draw(st.lists(score, min_size=clips, max_size=clips))),
        np.array(draw(st.lists(st.floats(0, 60), min_size=clips, max_size=clips))),
        draw(st.lists(st.lists(st.sampled_from("abc"), max_size=3), min_size=clips, max_size=clips)),
    )
    pair = st.tuples(st.integers(0, clips - 1), st.integers(0, motions - 1), st.sampled_from([0.0, 0.1, 0.2, 0.7]))
    pairs = draw(st.lists(pair, max_size=40, unique_by=lambda values: values[:2]))
    columns = np.array([values[:2] for values in pairs], np.int64).reshape(-1, 2)
    small = st.integers(0, 4)
    limits = Limits(
        draw(small), draw(small), draw(small), draw(st.integers(0, 6)), 10.0, draw(st.none() | st.integers(0, 12))
    )
    return Candidates(columns[:, 0], columns[:, 1], np.array([values[2] for values in pairs])), facts, limits


@settings(max_examples=250)
@given(problem=problems(), block=st.integers(1, 9))
def test_the_fast_selection_is_the_obvious_one(problem, block):
    before, selection.BLOCK = selection.BLOCK, block
    try:
        assert select(*problem).tolist() == obvious_selection(*problem)
    finally:
        selection.BLOCK = before


@settings(max_examples=100)
@given(problem=problems())
def test_no_limit_is_ever_broken(problem):
    candidates, clips, limits = problem
    chosen = select(candidates, clips, limits)
    used = Counter(candidates.clip[chosen].tolist())
    assert max(used.values(), default=0) <= limits.per_panorama
    assert max(Counter(candidates.motion[chosen].tolist()).values(), default=0) <= limits.per_motion
    bins = Counter((clips.magnitude[candidates.clip[chosen]] // 10).tolist())
    assert max(bins.values(), default=0) <= limits.per_magnitude
    assert limits.total is None or len(chosen) <= limits.total
    scores = clips.score[candidates.clip[chosen]]
    assert not np.isnan(scores).any() and (np.diff(scores) <= 0).all()
    again = select(candidates, clips, replace(limits, total=len(chosen)))
    assert again.tolist() == chosen.tolist()


def test_four_limits_one_by_one():
    clips = ClipFacts(np.linspace(1, 0.5, 6), np.array([0, 9.9, 10, 25, 26, 300.0]), [["a"]] * 3 + [["a", "b"]] * 3)
    pairs = [(clip, motion) for clip in range(6) for motion in range(4)]
    columns = np.array(pairs)
    candidates = Candidates(columns[:, 0], columns[:, 1], columns[:, 1] / 10)
    free = Limits(100, 100, 100, 100)

    def chosen(**changed):
        return [pairs[row] for row in select(candidates, clips, replace(free, **changed))]

    assert len(chosen()) == 24
    assert chosen(per_panorama=1) == [(clip, 0) for clip in range(6)]
    assert Counter(motion for _, motion in chosen(per_motion=2)) == dict.fromkeys(range(4), 2)
    assert Counter(clip for clip, _ in chosen(per_category=5)) == {0: 4, 1: 1, 3: 4, 4: 1}
    assert Counter(clip for clip, _ in chosen(per_magnitude=3)) == {0: 3, 2: 3, 3: 3, 5: 3}
    assert len(chosen(total=7)) == 7


def test_score_prefers_clean_sharp_steady_clips_and_removes_drift():
    score = Scoring(max_rotation=30).score(
        np.array([1.0, 0.5, 1.0, 1.0, 1.0]), np.array([0.0, 0, 0.6, 0, 0]), np.array([0.0, 0, 0, 15, 31])
    )
    np.testing.assert_allclose(score[:4], [1, 2.5 / 3, 2.4 / 3, 2.5 / 3])
    assert np.isnan(score[4])


def test_the_split_is_decided_by_name_alone():
    names = [f"video-{n}" for n in range(4000)]
    first = [is_test(name, 0.1) for name in names]
    assert first == [is_test(name, 0.1) for name in names] and 340 < sum(first) < 460
    assert all(is_test(name, 0.2) for name, test in zip(names, first) if test)
    assert not any(is_test(name, 0.0) for name in names) and all(is_test(name, 1.0) for name in names)
    assert first != [is_test(name, 0.1, seed=1) for name in names]


def test_limits_balance_a_long_tail():
    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, 21) ** 2
    places = generator.choice(20, size=3000, p=shares / shares.sum())
    categories = [[f"place {place}"] for place in places]
    clips = ClipFacts(generator.random(3000), generator.gamma(2, 10, 3000), categories)
    columns = np.stack([np.repeat(np.arange(3000), 5), generator.integers(0, 60, 15000)], 1)
    candidates = Candidates(columns[:, 0], columns[:, 1], generator.random(15000))
    chosen = select(candidates, clips, Limits(per_category=60))
    after = category_counts([categories[clip] for clip in candidates.clip[chosen]])
    assert max(after.values()) == 60 and evenness(after) > evenness(category_counts(categories)) + 0.3


def test_evenness_has_its_ends():
    assert evenness({"a": 5, "b": 5, "c": 5}) == pytest.approx(1)
    assert evenness({"a": 10**9, "b": 1}) < 1e-6
    assert evenness({"a": 5, "b": 0}) == 0
    assert category_counts([["a", "a", "b"], [], ["b"]]) == {"b": 2, "a": 1, UNKNOWN: 1}


def test_test_limits_are_stricter_and_give_the_published_number_of_clips():
    train = Limits()
    assert (train.per_panorama, train.per_motion, train.per_category, train.per_magnitude) == (5, 100, 1000, 2000)
    for name in ("per_panorama", "per_motion", "per_category", "per_magnitude"):
        assert getattr(TEST_LIMITS, name) < getattr(train, name)
    assert TEST_LIMITS.total is not None and TEST_LIMITS.total * 4 == 272


@pytest.mark.parametrize("wrong", [{"per_motion": -1}, {"magnitude_width": 0}, {"total": -5}])
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)
