"""The bench's checks: each finds its own violation, and nothing else."""

from __future__ import annotations

import pytest

from bench.checks import Interval, gaps, most_at_once, most_in_window
from holdfast.bench.workloads import shares


def test_attempts_that_overlap_are_counted_and_those_that_follow_each_other_are_not() -> None:
    one_after_the_other = [Interval("a", 0, 1), Interval("a", 1, 2), Interval("a", 2, 3)]
    assert most_at_once(one_after_the_other) == {"a": 1}
    assert most_at_once([*one_after_the_other, Interval("b", 0, 9), Interval("a", 0.5, 1.5)]) == {"a": 2, "b": 1}
    assert most_at_once([Interval("a", 0, 5), Interval("a", 1, 5), Interval("a", 4.9, 5)]) == {"a": 3}


def test_an_attempt_without_length_overlaps_nothing() -> None:
    assert most_at_once([Interval("a", 0, 5), Interval("a", 2, 2), Interval("a", 3, 2)]) == {"a": 1}


def test_a_gap_is_the_time_a_place_stood_empty() -> None:
    two_places = [Interval("a", 0, 1), Interval("a", 0, 3), Interval("a", 1.5, 4), Interval("a", 3.25, 5)]
    assert gaps(two_places, room=2) == pytest.approx([0.5, 0.25])
    assert gaps([Interval("a", 0, 1), Interval("b", 7, 8)], room=1) == []


def test_a_window_of_starts_is_open_at_its_beginning() -> None:
    assert most_in_window([0, 1, 2, 3], 2) == 2
    assert most_in_window([0, 1, 1.5, 1.9, 5], 2) == 4
    assert most_in_window([], 2) == 0


def test_who_was_served_when_everybody_had_been() -> None:
    fair = shares([(0, "a"), (0, "b"), (1, "c"), (2, "a"), (2, "a")])
    assert fair == (3, 3, 1, "a")
    greedy = shares([(0, "a")] * 30 + [(1, "b")] + [(2, "a")] * 50)
    assert greedy == (31, 2, 30, "a")
    assert greedy.most <= greedy.allowed(cap=25)
    assert greedy.most <= greedy.allowed(cap=0)
    starved = shares([(0, "a")] * 100 + [(1, "b"), (2, "c")])
    assert starved.most > starved.allowed(cap=25)
