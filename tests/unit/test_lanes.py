"""What a worker remembers of lanes: hints that never go back, a budget for careful laps, and lanes closed by limits."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.model.job import Job
from holdfast.worker.lanes import CHEAP, LAP_EVERY, LAP_SHARE, SPARE, Lanes


@pytest.fixture(autouse=True)
def _begin_with_the_first_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring is begun anywhere: here after the last lane."""
    monkeypatch.setattr("holdfast.worker.lanes.random.choice", lambda lanes: lanes[-1])


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LAPPED = {"end": None}


def row(
    seconds: float, number: int, queue: str = "default", priority: int = 2, lane: int = 0, *keys: str
) -> tuple[Any, ...]:
    """One row as Calls.claim answers it: of interest are id, queue, priority, run_at, lane and keys."""
    run_at = (NOON + timedelta(seconds=seconds)).timestamp()
    id_ = str(uuid.UUID(int=number))
    return (id_, 1, "t", "{}", 1, 5, queue, priority, None, run_at, None, None, lane, list(keys) or None)


def learn(
    lanes: Lanes, rows: list[Any], info: dict[str, Any] | None = None, took: tuple[float, float] = (0.0, 0.0)
) -> None:
    lanes.learn(rows, json.dumps(info) if info else None, False, *took)


def lapped(lanes: Lanes, *rows: Any, took: tuple[float, float] = (0.0, 0.0), **infos: Any) -> None:
    """A careful claim that came to the end of every ring."""
    asked = json.loads(lanes.hint(took[0], 10, careful=True))
    learn(lanes, list(rows), {place: LAPPED | infos.get("told", {}) for place in asked}, took)


def quick(lanes: Lanes, now: float = 0.0, limit: int = 10) -> dict[str, Any]:
    """Where the next claim would look, when none of them must be careful."""
    lanes.found(True, now)
    hint: dict[str, Any] = json.loads(lanes.hint(now, limit))
    assert not lanes.careful
    return hint


def place(seconds: float, number: int) -> list[Any]:
    return [(NOON + timedelta(seconds=seconds)).timestamp(), str(uuid.UUID(int=number))]


def numbers(hint: dict[str, Any], where: str = "default/2") -> list[int]:
    """The lanes that a quick claim would visit."""
    return [int(lane) for lane in hint[where]["lanes"].strip("{}").split(",")]


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


def test_tenants_take_turns_at_a_key_whatever_number_of_lanes_they_have() -> None:
    whale, minnow = 7 << 32, 9 << 32
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1), *(row(1, n, lane=whale + n) for n in range(1, 50)), row(1, 900, lane=minnow))
    lanes._lap_at, lanes.careful = float("inf"), False
    learn(lanes, [], closing(*(whale + n for n in range(1, 50)), minnow))
    lanes.closed.open("k", 2)
    assert visited(lanes, 0.0) == [whale + 1, minnow]


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


# -- lanes closed by limits


def closing(*lanes: int, wait: float | None = None, key: str = "k") -> dict[str, Any]:
    return {"default/2": {"closed": [[lane, key, "acme", wait] for lane in lanes]}}


def with_lanes(*numbers: int) -> Lanes:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1), *(row(1, 10 + n, lane=n) for n in numbers))
    lanes._lap_at, lanes.careful = float("inf"), False
    return lanes


def visited(lanes: Lanes, now: float, limit: int = 10) -> list[int]:
    hint = quick(lanes, now, limit)
    return [] if isinstance(hint["default/2"], list) else sorted(lane for lane in numbers(hint) if lane)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.lanes.random.uniform", lambda low, high: (low + high) / 2)
    monkeypatch.setattr("holdfast.worker.lanes.random.choice", max)  # the ring begins with its first lane


def test_a_closed_lane_is_not_visited_before_its_time() -> None:
    lanes = with_lanes(1, 2)
    learn(lanes, [], closing(1, wait=0.3))
    assert visited(lanes, 0.2) == [2]
    assert lanes.closed.next_look() == pytest.approx(0.3)
    assert visited(lanes, 0.31) == [1, 2]
    assert lanes.throttled == {("k", "acme"): 1}


def test_of_many_lanes_under_one_key_one_is_tried_and_two_more_when_it_got_through() -> None:
    lanes = with_lanes(*range(1, 10))
    learn(lanes, [], closing(*range(1, 10), wait=0.3))
    assert visited(lanes, 0.1) == []
    assert visited(lanes, 0.31) == [1]
    learn(lanes, [row(2, 50, "default", 2, 1, "k")], {"default/2": {}})
    assert visited(lanes, 0.32) == [1, 2, 3]


def test_a_job_that_ends_makes_room_for_one_lane() -> None:
    from holdfast.model.job import Job

    lanes = with_lanes(1, 2)
    learn(lanes, [], closing(1, 2))
    assert not lanes.freed([Job(row(1, 1, "default", 2, 0, "other"), None)])
    assert lanes.freed([Job(row(1, 1, "default", 2, 1, "k"), None)])
    assert visited(lanes, 0.0) == [1]


def test_a_key_that_only_others_know_of_is_looked_at_more_and_more_rarely() -> None:
    lanes, now, waits = with_lanes(1), 0.0, []
    for _ in range(7):
        learn(lanes, [], closing(1), (now, now))
        look = lanes.closed.next_look()
        assert look is not None
        waits.append(look - now)
        now = look
        assert visited(lanes, now) == [1]
    assert waits == [0.5, 1, 2, 4, 8, 8, 8]


def test_news_opens_the_lanes_it_names_or_all() -> None:
    lanes = with_lanes(1, 2, 3)
    learn(lanes, [], closing(1, 2))
    learn(lanes, [], closing(3, key="j", wait=9))
    lanes.closed.open_lanes([2])
    assert visited(lanes, 0.0) == [2]
    lanes.closed.open_all()
    assert visited(lanes, 0.0) == [1, 2, 3]
    assert not lanes.closed


def test_a_lane_that_a_careful_lap_meets_again_is_closed_once() -> None:
    lanes = with_lanes(1)
    for _ in range(3):
        learn(lanes, [], closing(1))
    lanes.closed.open("k")
    assert visited(lanes, 0.0) == [1]
    assert not lanes.closed


def test_room_that_comes_free_while_a_claim_is_under_way_is_not_lost() -> None:
    """The claim says that a lane must wait, and by then its key has room again."""
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1, lane=5), row(1, 2, lane=6), row(1, 3, lane=7))
    quick(lanes)
    lanes.freed([Job(row(1, 1, "default", 2, 5, "busy"), None)])
    lanes.open([7])
    closed = [[5, "busy", None, None], [6, "other", None, None], [7, "third", None, None]]
    learn(lanes, [], {"default/2": {"closed": closed}})
    assert numbers(quick(lanes)) == [5, 7]


def test_a_lap_learns_lanes_that_it_had_no_room_for_and_passes_by_closed_ones() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1, lane=5), told={"more": [6, 8], "closed": [[7, "k", None, None], [9, "k", None, None]]})
    assert numbers(quick(lanes)) == [5, 6, 8]
    assert json.loads(lanes.hint(0.0, 10, careful=True))["default/2"] == {"from": -1, "skip": "{7,9}"}


def test_of_many_keys_whose_time_has_come_a_few_are_looked_at_by_each_claim() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1, lane=5000))
    learn(lanes, [], {"default/2": {"closed": [[lane, f"k{lane}", None, None] for lane in range(1, 201)]}})
    lanes._lap_at = float("inf")
    looks = quick(lanes, now=0.65)["default/2"]
    assert len(looks["look"].split(",")) == SPARE and len(looks["lanes"].split(",")) == SPARE + 1


def test_lane_0_with_work_is_no_leisure() -> None:
    """Or a claim would look at a thousand keys without room, and not at the plain jobs that it could take."""
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1))
    learn(lanes, [], {"default/2": {"closed": [[lane, f"k{lane}", None, None] for lane in range(1, 901)]}})
    lanes.learn([row(2, 2)] * 10, None, True, 0.0, 0.0)
    lanes._lap_at = 9.0
    assert len(numbers(quick(lanes, now=2.0))) == 1 + SPARE


def test_the_first_lap_is_made_whatever_it_costs() -> None:
    lanes = Lanes(["default"])
    lanes.hint(0.0, 10)
    learn(lanes, [row(1, 1, lane=5)], {place: {"end": 5} for place in lanes._rings}, (0.0, 9.0))
    lanes.found(True, 9.0)
    lanes.hint(9.0, 10)
    assert not lanes.careful, "what has been found is worked at in between"
    learn(lanes, [], None, (9.0, 9.0))
    lanes.hint(9.0, 10)
    assert lanes.careful and lanes.lap_open
    learn(lanes, [], dict.fromkeys(lanes._rings, LAPPED), (9.0, 18.0))
    lanes.found(True, 18.0)
    lanes.hint(18.0, 10)
    assert not lanes.careful


def test_a_key_is_looked_at_again_when_the_lane_that_was_tried_has_nothing_any_more() -> None:
    """Its job was canceled, or another worker has it: the others that wait for the key must not be forgotten."""
    lanes = with_lanes(1, 2)
    learn(lanes, [], closing(1, 2, wait=0.3))
    assert visited(lanes, 0.31) == [1]
    learn(lanes, [], {"default/2": {"empty": [1]}}, (0.31, 0.32))
    look = lanes.closed.next_look()
    assert look is not None
    assert look < 2
    assert visited(lanes, look) == [2]


def test_many_lanes_told_of_at_once_are_one_reason_for_patience() -> None:
    lanes = with_lanes(*range(1, 10))
    learn(lanes, [], closing(*range(1, 10)))
    assert lanes.closed.next_look() == 0.5


def test_keys_without_number_are_looked_at_a_few_times_a_second() -> None:
    lanes = with_lanes(*range(1, 1000))
    for lane in range(1, 1000):
        learn(lanes, [], closing(lane, key=f"k{lane}"), (lane * 0.008, lane * 0.008))
    looks, now = 0, 8.0
    while now < 18:
        for lane in visited(lanes, now, 1000):
            learn(lanes, [], closing(lane, key=f"k{lane}"), (now, now))
        look = lanes.closed.next_look()
        assert look is not None
        looks, now = looks + 1, look
    assert looks <= 25


def test_no_look_is_left_for_a_key_that_nothing_waits_for() -> None:
    """A worker sleeps until the next look: one whose time has passed would keep it awake for ever."""
    lanes = with_lanes(1)
    learn(lanes, [], closing(1, wait=0.3))
    lanes.closed.open("k")
    assert lanes.closed.next_look() is None


def test_what_came_free_while_a_claim_was_under_way_is_claimed_again_even_in_lane_0() -> None:
    lanes = with_lanes()
    lanes.hint(0.0, 10)
    lanes.open(None)
    learn(lanes, [], closing(0, key="queue:default"))
    assert lanes.again
    lanes.hint(0.0, 10)
    learn(lanes, [], closing(0, key="queue:default"))
    assert not lanes.again


def test_claims_that_meet_others_at_their_limits_wait_longer_each_time() -> None:
    lanes, pauses = with_lanes(1), []
    for _ in range(12):
        learn(lanes, [], {"default/2": {"contention": 1}})
        pauses.append(lanes.pause)
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert 0.1 < pauses[-1] < 0.5
    learn(lanes, [row(1, 1, "default", 2, 1)], {"default/2": {"contention": 1}})
    assert (lanes.held_up, lanes.again) == (0, True)


def test_a_key_is_known_by_its_number() -> None:
    from holdfast.worker.lanes import number_of

    lanes = with_lanes(1, 2)
    learn(lanes, [], closing(1, 2))
    assert not lanes.open([number_of("other")])
    assert lanes.open([number_of("k")])
    assert visited(lanes, 0.0) == [1]


def test_a_lap_that_finds_nothing_forgets_lanes_that_were_not_met() -> None:
    """A key's turn to be looked at puts its lane back; with nothing left there, the worker must come to rest."""
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1, "default", 2, 7, "key:a"))
    assert lanes.more
    lapped(lanes, told={"more": [7]})
    assert lanes.more, "it was met: somebody has its limits for a moment"
    lapped(lanes)
    assert not lanes.more
