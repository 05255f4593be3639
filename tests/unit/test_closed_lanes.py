"""Lanes closed by limits: when a worker looks at them again, and how many it looks at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hints import LAPPED, lapped, learn, numbers, quick, row, with_lanes

from holdfast.model.job import Job
from holdfast.worker.lanes import LEAVE_FOR, LONGEST_LEFT, REST, Lanes
from holdfast.worker.ring import SPARE


def closing(*lanes: int, wait: float | None = None, key: str = "k") -> dict[str, Any]:
    return {"default/2": {"closed": [[lane, key, "acme", wait] for lane in lanes]}}


def visited(lanes: Lanes, now: float, limit: int = 10) -> list[int]:
    hint = quick(lanes, now, limit)
    return [] if isinstance(hint["default/2"], list) else sorted(lane for lane in numbers(hint) if lane)


@pytest.fixture(autouse=True)
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.lanes.random.uniform", lambda low, high: (low + high) / 2)
    monkeypatch.setattr("holdfast.worker.lanes.random.choice", max)  # the ring begins with its first lane


def test_tenants_take_turns_at_a_key_whatever_number_of_lanes_they_have() -> None:
    whale, minnow = 7 << 32, 9 << 32
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1), *(row(1, n, lane=whale + n) for n in range(1, 50)), row(1, 900, lane=minnow))
    lanes._lap_at, lanes.careful = float("inf"), False
    learn(lanes, [], closing(*(whale + n for n in range(1, 50)), minnow))
    lanes.closed.open("k", 2)
    assert visited(lanes, 0.0) == [whale + 1, minnow]


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


def test_keys_whose_time_has_come_are_looked_at_in_one_claim_beside_tenants_who_take_turns() -> None:
    """Each claim that looks pays for it, however few it looks at. The ring itself goes on where it was."""
    lanes = Lanes(["default"])
    tenants = [tenant << 32 for tenant in range(1, 101)]
    lapped(lanes, *(row(1, 10 + n, lane=lane) for n, lane in enumerate(tenants)))
    learn(lanes, [], {"default/2": {"closed": [[lane, f"k{lane}", None, None] for lane in range(1, 201)]}})
    lanes._lap_at = float("inf")
    hint = quick(lanes, now=0.65, limit=40)["default/2"]
    asked, looks = ([int(lane) for lane in hint[name].strip("{}").split(",")] for name in ("lanes", "look"))
    assert len(looks) == SPARE and set(looks) <= set(range(1, 201))
    assert set(asked) == {*looks, *tenants[: 40 + SPARE - 1]}
    served = [row(2, 1000 + n, lane=lane) for n, lane in enumerate(tenants[:40])]
    told = {"default/2": {"closed": [[lane, f"k{lane}", None, None] for lane in looks]}}
    lanes.learn(served, json.dumps(told), True, 0.65, 0.66)
    following = quick(lanes, now=0.67, limit=40)
    assert "look" not in following["default/2"]
    assert numbers(following) == tenants[40:], "and nothing that was looked at"


def test_lane_0_with_work_is_no_leisure() -> None:
    """Or a claim would look at a thousand keys without room, and not at the plain jobs that it could take."""
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1))
    learn(lanes, [], {"default/2": {"closed": [[lane, f"k{lane}", None, None] for lane in range(1, 901)]}})
    lanes.learn([row(2, 2)] * 10, None, True, 0.0, 0.0)
    lanes._lap_at = 9.0
    assert len(numbers(quick(lanes, now=2.0))) == 1 + SPARE


def test_the_first_lap_is_no_leisure() -> None:
    """While it only finds what must wait, there is work in other lanes: looks at a thousand keys would hold that up."""
    lanes = Lanes(["default"])
    lanes.hint(0.0, 10)
    learn(lanes, [row(1, 1)], {"default/2": {"end": 5000}})
    lanes.hint(0.0, 10, careful=True)
    closed = [[lane, f"k{lane}", None, None] for lane in range(1, 901)]
    learn(lanes, [], {"default/2": {"end": 9000, "closed": closed}}, took=(0.0, 1.0))
    assert len(numbers(quick(lanes, now=2.0))) == 1 + SPARE


def test_who_meets_others_at_the_same_limits_is_crowded_for_as_long_as_that_goes_on() -> None:
    lanes = with_lanes(1, 2)
    found = [row(n, n, "default", 2, 1, "a") for n in range(1, 10)]
    learn(lanes, found)
    assert not lanes.crowded
    for after in (found, [row(10, 10)]):  # what comes later may have no limits at all
        for _ in range(3):
            quick(lanes)
            learn(lanes, found, {"default/2": {"contention": 2}})
        assert lanes.crowded
        for _ in range(12):
            quick(lanes)
            learn(lanes, after)
        assert not lanes.crowded


def test_a_crowd_that_keeps_out_of_each_others_way_is_one_for_a_while() -> None:
    lanes, found = crowd(60)
    claims = 0
    while lanes.crowded:
        quick(lanes)
        learn(lanes, found, {"default/2": {}})
        claims += 1
    assert 10 < claims < 100


def crowd(rows: int) -> tuple[Lanes, list[Any]]:
    """A worker that meets others at its limits, lanes 1 and 2 under keys of their own, and what a claim found there."""
    lanes = with_lanes(1, 2)
    found = [row(n, n, "default", 2, 1, "a") for n in range(1, rows)] + [row(rows, rows, "default", 2, 2, "b")]
    for _ in range(4):
        quick(lanes)
        learn(lanes, found, {"default/2": {"contention": 20}})
    assert lanes.crowded
    quick(lanes)
    return lanes, found


@pytest.mark.parametrize(("rows", "left"), [(60, True), (10, False)])
def test_in_a_crowd_a_lane_is_left_for_a_moment_to_who_has_its_limit_if_there_is_plenty_else(
    rows: int, left: bool
) -> None:
    """Whoever claims or ends jobs there goes on there; but two may have left it to each other."""
    lanes, found = crowd(rows)
    learn(lanes, found[:-1], {"default/2": {"held": [2], "contention": 1}})
    assert visited(lanes, LEAVE_FOR / 2) == ([1] if left else [1, 2])
    assert visited(lanes, LEAVE_FOR * 1.1) == [1, 2]


def test_lanes_that_were_left_come_back_a_few_at_a_time_and_all_of_them_soon() -> None:
    """Whatever their number, and also where all of them are under one key."""
    lanes, _ = crowd(60)
    shared = [row(100 + n, 100 + n, "default", 2, 10 + n, "api") for n in range(3 * SPARE)]
    learn(lanes, shared)
    learn(lanes, shared, {"default/2": {"held": [each[12] for each in shared], "contention": 9}})
    assert visited(lanes, LEAVE_FOR / 2, 500) == [1, 2]
    assert len(visited(lanes, LEAVE_FOR * 1.1, 500)) == 2 + SPARE
    assert len(visited(lanes, LONGEST_LEFT * 1.1, 500)) == 2 + 3 * SPARE


def test_who_has_nothing_else_to_visit_takes_back_what_it_left_at_once() -> None:
    """Slots never idle while a key may have room."""
    lanes, found = crowd(60)
    learn(lanes, found, {"default/2": {"held": [1, 2], "contention": 2}})
    assert lanes.more
    assert visited(lanes, 0.0) == [1, 2]


def test_a_lap_does_not_bring_back_what_was_left() -> None:
    lanes, found = crowd(60)
    learn(lanes, found[:-1], {"default/2": {"held": [2], "contention": 1, "more": [2, 3]}})
    assert visited(lanes, 0.0) == [1, 3]


def test_for_each_job_that_got_through_two_more_lanes_are_opened() -> None:
    lanes = with_lanes(*range(1, 101))
    learn(lanes, [], closing(*range(1, 101), wait=3.0))
    learn(lanes, [row(2, 200 + n, "default", 2, 0, "k") for n in range(20)], {"default/2": {}})
    assert len(visited(lanes, 0.0, 500)) == 40


@pytest.mark.parametrize("wait", [None, 3.0])
def test_in_a_crowd_a_lane_stays_that_is_full_of_what_was_claimed_just_now(wait: float | None) -> None:
    """The next claim comes when that has ended; else all that a careful claim had served would be closed by it."""
    lanes, found = crowd(60)
    learn(lanes, found[-1:], {"default/2": {"closed": [[1, "a", None, None], [2, "b", None, wait]]}})
    assert visited(lanes, 0.0) == ([2] if wait is None else [])
    assert lanes.throttled["b", ""] == 1


def test_who_has_just_found_plenty_is_not_at_leisure() -> None:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1))
    closed = {"closed": [[lane, f"k{lane}", None, None] for lane in range(1, 901)]}
    learn(lanes, [row(2, n) for n in range(2, 100)], {"default/2": closed})
    lanes._lap_at = 9.0
    assert len(numbers(quick(lanes, now=2.0))) == 1 + SPARE
    learn(lanes, [], {"default/2": {}})
    assert len(numbers(quick(lanes, now=4.0))) > 1 + SPARE


def test_a_lane_that_is_full_makes_no_crowd() -> None:
    """One worker alone fills limits too."""
    lanes = with_lanes(1, 2)
    for n in range(1, 5):
        quick(lanes)
        learn(lanes, [row(n, n, "default", 2, 1, "a")], {"default/2": {"closed": [[2, "k", None, None]]}})
    assert not lanes.crowded


@pytest.mark.parametrize(("filled", "rests"), [(True, REST), (False, 0)])
def test_a_first_lap_that_finds_only_what_must_wait_rests_while_there_is_other_work(filled: bool, rests: float) -> None:
    lanes = Lanes(["default"])
    lanes.hint(0.0, 10)
    learn(lanes, [row(1, 1)], {"default/2": {"end": 5000}})
    lanes.hint(0.0, 10, careful=True)
    learn(lanes, [], {"default/2": {"end": 9000, "closed": [[6000, "k", None, None]]}}, took=(0.0, 1.0))

    def looks_carefully(now: float) -> bool:
        lanes.hint(now, 10)
        return lanes.careful

    assert not looks_carefully(1.0), "what has been found is worked at in between"
    lanes.learn([row(2, 2)], None, filled, 1.0, 1.0)
    assert rests == 0 or not looks_carefully(1.0 + rests - 0.01)
    lanes.learn([row(3, 3)], None, filled, 1.0, 1.0)
    assert looks_carefully(1.0 + rests + 0.01)


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
