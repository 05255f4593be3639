"""What a worker remembers of lanes: hints that never go back, and a budget for careful laps."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hints import LAPPED, lapped, learn, numbers, place, quick, row, with_lanes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.worker.lanes import CHEAP, LAP_EVERY, LAP_SHARE, Lanes


@pytest.fixture(autouse=True)
def _begin_with_the_first_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring is begun anywhere: here after the last lane."""
    monkeypatch.setattr("holdfast.worker.lanes.random.choice", lambda lanes: lanes[-1])
    monkeypatch.setattr("holdfast.worker.lanes.random.uniform", lambda low, high: (low + high) / 2)


def test_a_new_worker_begins_everywhere_at_the_beginning() -> None:
    hint = json.loads(Lanes(["a", "b"]).hint(0.0, 10))
    assert hint == {f"{queue}/{priority}": {"from": -1} for queue in "ab" for priority in range(4)}


def test_plain_jobs_are_looked_for_after_the_last_of_each_queue_and_priority() -> None:
    lanes = Lanes(["a", "b"])
    lapped(lanes, row(1, 1, "a", 0), row(2, 2, "a", 0), row(1, 3, "a", 2), row(1, 4, "b", 2))
    assert quick(lanes) == {"a/0": place(2, 2), "a/2": place(1, 3), "b/2": place(1, 4)}


def test_ids_are_told_apart_within_one_moment() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 7))
    learn(lanes, [row(1, 5)])
    assert quick(lanes) == {"default/2": place(1, 7)}
    learn(lanes, [row(1, 9)])
    assert quick(lanes) == {"default/2": place(1, 9)}


batches = st.lists(
    st.lists(
        st.tuples(st.integers(-50, 50), st.integers(1, 50), st.sampled_from(["a", "b"]), st.integers(0, 3)),
        min_size=1,
        max_size=8,
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(batches)
def test_a_hint_never_goes_back_and_never_beyond_what_was_claimed(given_batches: list[list[Any]]) -> None:
    lanes, before = Lanes(["a", "b"]), {}
    lapped(lanes, row(-100, 1, "a", 0))
    furthest: dict[str, list[Any]] = {"a/0": place(-100, 1)}
    for batch in given_batches:
        ordered = sorted(batch, key=lambda each: (each[3], each[2], each[0], each[1]))  # as a claim answers
        for s, n, q, p in ordered:
            key = f"{q}/{p}"
            furthest[key] = max(furthest.get(key, place(s, n)), place(s, n))
        learn(lanes, [row(s, n, q, p) for s, n, q, p in ordered])
        after = quick(lanes)
        for key, at in before.items():
            assert after[key] >= at
        for key, at in after.items():
            assert at <= furthest[key]
        before = after


# -- the ring


def test_lanes_are_visited_in_turn_each_after_its_last_job() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, *(row(lane, lane, lane=lane) for lane in range(1, 101)))
    first = quick(lanes, limit=10)
    visited = numbers(first)
    assert len(visited) == 30 and visited == sorted(visited)
    assert first["default/2"]["ids"].strip("{}").split(",") == [str(uuid.UUID(int=n)) for n in visited]
    seen = list(visited)
    while len(seen) < 100:
        learn(lanes, [], {"default/2": {"empty": []}})
        seen += numbers(quick(lanes, limit=10))
    assert sorted(seen[:100]) == list(range(1, 101)), "each lane once before any lane twice"


def test_a_claim_that_was_filled_goes_on_after_the_last_lane_it_served() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, *(row(1, lane, lane=lane) for lane in range(1, 101)))
    quick(lanes, limit=10)
    lanes.learn([row(2, n, lane=n) for n in (1, 2, 3)], json.dumps({"default/2": {}}), True, 0.0, 0.0)
    assert numbers(quick(lanes, limit=10))[0] == 4


def test_a_turn_that_was_cut_short_goes_on_with_what_is_left() -> None:
    lanes = with_lanes(1, 2, 3)
    quick(lanes)
    lanes.learn([row(2, 12, lane=2)], json.dumps({"default/2": {"cut": [2, 5]}}), True, 0.0, 0.0)
    hint = quick(lanes)
    assert numbers(hint)[0] == 2 and hint["default/2"]["first"] == 5
    lanes.learn([row(3, 13, lane=2)], json.dumps({"default/2": {}}), True, 0.0, 0.0)
    hint = quick(lanes)
    assert numbers(hint)[0] == 3 and "first" not in hint["default/2"]


def test_an_empty_lane_is_forgotten_and_lane_0_is_not() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1), row(1, 2, lane=7), row(1, 3, lane=9))
    learn(lanes, [], {"default/2": {"empty": [0, 7]}})
    assert numbers(quick(lanes)) == [0, 9]
    learn(lanes, [], {"default/2": {"empty": [9]}})
    assert quick(lanes) == {"default/2": place(1, 1)}
    assert not lanes.more


def test_a_long_lap_goes_on_where_it_stopped() -> None:
    lanes = Lanes(["default"])
    hint = json.loads(lanes.hint(0.0, 10))
    learn(lanes, [row(1, 1, lane=5)], {place: {"end": 5 if place == "default/2" else None} for place in hint})
    assert lanes.lap_open and not lanes.looked_everywhere
    assert json.loads(lanes.hint(0.0, 10)) == {"default/2": {"from": 5}}
    learn(lanes, [], {"default/2": LAPPED})
    assert not lanes.lap_open
    assert not lanes.looked_everywhere, "what the first claim found may have come back behind it"


def test_a_lap_ends_when_there_is_no_room_for_work_of_lower_priority() -> None:
    lanes = Lanes(["default"])
    lanes.hint(0.0, 1)
    lanes.learn([row(1, 1, priority=1)], json.dumps({"default/0": LAPPED, "default/1": LAPPED}), True, 0.0, 0.0)
    lanes.found(True, 0.0)
    assert not lanes.lap_open
    assert not careful(lanes, 0.1)


def test_a_tenant_with_many_lanes_gets_as_many_turns_as_one_with_a_single_lane() -> None:
    whale, minnow = 7 << 32, 9 << 32
    lanes = Lanes(["default"])
    lapped(lanes, *(row(1, n, lane=whale + n) for n in range(1, 200)), row(1, 900, lane=minnow))
    seen: set[int] = set()
    for _ in range(40):
        visited = numbers(quick(lanes, limit=1))
        assert minnow in visited
        seen.update(visited)
        learn(lanes, [], {"default/2": {}})
    assert len(seen) == 200, "all of its lanes come to their turn"


# -- the budget of careful laps


def standing() -> Lanes:
    """In the middle of a busy queue."""
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1))
    lanes.found(True, 0.0)
    return lanes


def careful(lanes: Lanes, now: float) -> bool:
    lanes.hint(now, 10)
    return lanes.careful


def test_a_careful_lap_comes_about_once_a_second() -> None:
    lanes = standing()
    lapped(lanes, took=(100.0, 100.001))
    lanes.found(True, 100.0)
    assert not careful(lanes, 100.001 + 0.74 * LAP_EVERY)
    assert careful(lanes, 100.001 + 1.26 * LAP_EVERY)


def test_a_dear_lap_comes_more_rarely() -> None:
    lanes = standing()
    lapped(lanes, took=(100.0 - CHEAP, 101.0))
    lanes.found(True, 101.0)
    assert not careful(lanes, 101.0 + LAP_SHARE - 0.01)
    assert careful(lanes, 101.0 + LAP_SHARE + 0.01)


def test_a_queue_that_looks_empty_is_searched_as_soon_as_that_is_affordable() -> None:
    lanes = standing()
    lapped(lanes, took=(100.0, 100.0))
    assert lanes.found(False, 100.3) <= 0
    assert careful(lanes, 100.3)


def test_a_dear_lap_is_not_repeated_early_because_the_queue_looks_empty() -> None:
    lanes = standing()
    lapped(lanes, took=(100.0 - CHEAP, 101.0))
    for now in (101.5, 102.0, 110.0):
        assert abs(lanes.found(False, now) - (101.0 + LAP_SHARE - now)) < 1e-6
        assert not careful(lanes, now)


costs = (st.floats(0, 0.06) | st.floats(0, 3)).map(lambda x: round(x, 4))
steps = st.lists(st.tuples(st.sampled_from(["claim", "found end"]), st.floats(0, 0.3) | st.floats(0, 3)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(cost=costs, steps=steps)
@example(cost=0.04, steps=[("found end", 0.01)] * 8 + [("claim", 0.01)])
def test_careful_claims_never_take_more_than_their_share(cost: float, steps: list[tuple[str, float]]) -> None:
    """Whatever a worker does in between, also when it is woken early: the next begins no sooner than twenty times the
    last one's duration after its end (docs/decisions/005)."""
    lanes, now, ended = standing(), 10.0, -1e9
    for step, pause in steps:
        now += pause
        if step == "found end":
            lanes.found(False, now)
        hint = json.loads(lanes.hint(now, 10))
        if lanes.careful:
            assert now >= ended + max(cost - CHEAP, 0) * LAP_SHARE - 1e-9
            ended = now + cost
            learn(lanes, [], dict.fromkeys(hint, LAPPED), (now, ended))
            now = ended
