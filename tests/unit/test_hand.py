"""The prefetch buffer: slots kept for jobs under a rate or a breaker, what starts first, and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from holdfast.model.job import Job
from holdfast.worker.hand import Hand, Lease


def job(id_: str, lane: int = 0) -> Job:
    return Job((id_, 1, "t", "{}", 1, 5, "default", 2, None, 0.0, None, None, lane, None, None))


def jobs(*ids: str) -> list[Job]:
    return [job(id_) for id_ in ids]


def ids(held: Iterable[Job]) -> list[str]:
    return [each.id for each in held]


def lease(token: int = 1, number: int = 1) -> Lease:
    return Lease(token, number, 10.0, 60.0)


@pytest.fixture
def hand() -> Hand:
    """The prefetch buffer of a worker that fills slots which are kept."""
    made = Hand()
    made.keeps_slots = True
    return made


# -- slots that are kept


def test_of_slots_that_come_free_seven_of_eight_are_kept(hand: Hand) -> None:
    """Other work goes on in the eighth, however long such jobs wait."""
    kept = [hand.keep_slot() for _ in range(80)]
    assert kept == ([True] * 7 + [False]) * 10
    assert hand.kept == 70


def test_the_turn_of_other_work_comes_across_claims(hand: Hand) -> None:
    """Each claim releases what was kept; the count goes on, so no number of claims keeps other work out."""
    kept = []
    for _ in range(80):
        kept.append(hand.keep_slot())
        hand.release_slots(direct_waiting=True)
    assert kept.count(False) == 10 and hand.kept == 0


def test_a_slot_that_is_kept_is_for_jobs_that_wait(hand: Hand) -> None:
    assert not hand.direct_waiting
    hand.keep_slot()
    assert hand.direct_waiting, "the next slot is checked too"
    hand.release_slots(direct_waiting=False)
    assert not hand.direct_waiting and hand.kept == 0


def test_where_no_claim_loop_fills_them_no_slots_are_kept() -> None:
    hand = Hand()
    assert not any(hand.keep_slot() for _ in range(20))
    assert hand.kept == 0 and not hand.direct_waiting


def test_slots_that_are_kept_are_not_jobs_held(hand: Hand) -> None:
    hand.add(lease(), jobs("a"), frozenset())
    hand.keep_slot()
    assert hand.held == 1


async def test_slots_that_were_kept_go_on_with_what_is_ready(hand: Hand) -> None:
    hand.ready.extend(jobs("a", "b"))
    hand.keep_slot()
    slots = [asyncio.create_task(hand.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(slot.done() for slot in slots), "they are kept although something is ready"
    hand.release_slots(direct_waiting=True)
    await asyncio.sleep(0)
    assert [slot.done() for slot in slots] == [False, True, True], "one for each job"
    slots[0].cancel()


# -- what starts first


def test_jobs_that_started_with_their_claim_go_before_all_others(hand: Hand) -> None:
    hand.add(lease(1), jobs("a", "b"), frozenset())
    hand.add(lease(2), jobs("c", "d", "e", "f"), frozenset({"d", "f"}))
    assert ids(hand.ready) == ["d", "f", "a", "b", "c", "e"]
    assert [each.direct for each in hand.ready] == [True, True, False, False, False, False]


def test_other_jobs_start_in_the_order_of_their_claims(hand: Hand) -> None:
    hand.add(lease(1), jobs("b", "a"), frozenset())
    hand.add(lease(2), jobs("c"), frozenset())
    assert ids(hand.ready) == ["b", "a", "c"]


async def test_a_claim_wakes_as_many_slots_as_it_has_jobs_the_last_one_first(hand: Hand) -> None:
    slots = [asyncio.create_task(hand.wait()) for _ in range(4)]
    await asyncio.sleep(0)
    hand.add(lease(1, 2), jobs("a", "b"), frozenset())
    await asyncio.sleep(0)
    assert [slot.done() for slot in slots] == [False, False, True, True]
    for slot in slots[:2]:
        slot.cancel()
    await asyncio.gather(*slots, return_exceptions=True)
    assert hand._waiting == [], "a slot that was stopped waits no longer"


# -- leases


def test_jobs_have_the_lease_that_they_came_with(hand: Hand) -> None:
    first, second = lease(1), lease(2)
    hand.add(first, jobs("a"), frozenset())
    hand.add(second, jobs("b"), frozenset({"b"}))
    assert {each.id: each.lease for each in hand.ready} == {"a": first, "b": second}
    assert hand.leases == {1: first, 2: second}
    assert second.deadline == 70.0


async def test_jobs_of_a_lost_lease_do_not_start(hand: Hand) -> None:
    hand.add(lease(1), jobs("runs", "a"), frozenset())
    hand.add(lease(2), jobs("b"), frozenset())
    running = asyncio.create_task(asyncio.sleep(0))
    hand.running[running] = hand.ready.popleft()
    assert ids(hand.lose([1, 3])) == ["runs"]
    assert ids(hand.ready) == ["b"] and list(hand.leases) == [2]
    await running


def test_released_jobs_leave_the_buffer(hand: Hand) -> None:
    hand.add(lease(1), jobs("a", "b", "c"), frozenset())
    assert ids(hand.take_out({"b", "x"})) == ["b"]
    assert ids(hand.take_ready()) == ["a", "c"] and hand.held == 0
