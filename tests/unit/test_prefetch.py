"""The prefetch buffer: slots kept for jobs under a rate or a breaker, what starts first, and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from holdfast.model.job import Job
from holdfast.worker.prefetch import Lease, PrefetchBuffer
from tests.conftest import PATIENCE


def job(id_: str, lane: int = 0) -> Job:
    return Job((id_, 1, "t", "{}", 1, 5, "default", 2, None, 0.0, None, None, lane, None, None))


def jobs(*ids: str) -> list[Job]:
    return [job(id_) for id_ in ids]


def ids(held: Iterable[Job]) -> list[str]:
    return [each.id for each in held]


def lease(token: int = 1, number: int = 1) -> Lease:
    return Lease(token, number, 10.0, 60.0)


@pytest.fixture
def buffer() -> PrefetchBuffer:
    """The prefetch buffer of a worker that fills slots which are kept."""
    made = PrefetchBuffer()
    made.keeps_slots = True
    return made


# -- slots that are kept


def test_of_slots_that_come_free_seven_of_eight_are_kept(buffer: PrefetchBuffer) -> None:
    """Other work goes on in the eighth, however long such jobs wait."""
    kept = [buffer.keep_slot() for _ in range(80)]
    assert kept == ([True] * 7 + [False]) * 10
    assert buffer.kept == 70


def test_the_turn_of_other_work_comes_across_claims(buffer: PrefetchBuffer) -> None:
    """Each claim releases what was kept; the count goes on, so no number of claims keeps other work out."""
    kept = []
    for _ in range(80):
        kept.append(buffer.keep_slot())
        buffer.release_slots(direct_waiting=True)
    assert kept.count(False) == 10 and buffer.kept == 0


def test_a_slot_that_is_kept_is_for_jobs_that_wait(buffer: PrefetchBuffer) -> None:
    assert not buffer.direct_waiting
    buffer.keep_slot()
    assert buffer.direct_waiting, "the next slot is checked too"
    buffer.release_slots(direct_waiting=False)
    assert not buffer.direct_waiting and buffer.kept == 0


def test_where_no_claim_loop_fills_them_no_slots_are_kept() -> None:
    buffer = PrefetchBuffer()
    assert not any(buffer.keep_slot() for _ in range(20))
    assert buffer.kept == 0 and not buffer.direct_waiting


def test_slots_that_are_kept_are_not_jobs_held(buffer: PrefetchBuffer) -> None:
    buffer.add(lease(), jobs("a"), frozenset())
    buffer.keep_slot()
    assert buffer.held == 1


async def test_slots_that_were_kept_go_on_with_what_is_ready(buffer: PrefetchBuffer) -> None:
    buffer.ready.extend(jobs("a", "b"))
    buffer.keep_slot()
    slots = [asyncio.create_task(buffer.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(slot.done() for slot in slots), "they are kept although something is ready"
    buffer.release_slots(direct_waiting=True)
    await asyncio.sleep(0)
    assert [slot.done() for slot in slots] == [False, True, True], "one for each job"
    slots[0].cancel()


# -- what starts first


def test_jobs_that_started_with_their_claim_go_before_all_others(buffer: PrefetchBuffer) -> None:
    buffer.add(lease(1), jobs("a", "b"), frozenset())
    buffer.add(lease(2), jobs("c", "d", "e", "f"), frozenset({"d", "f"}))
    assert ids(buffer.ready) == ["d", "f", "a", "b", "c", "e"]
    assert [each.direct for each in buffer.ready] == [True, True, False, False, False, False]


def test_other_jobs_start_in_the_order_of_their_claims(buffer: PrefetchBuffer) -> None:
    buffer.add(lease(1), jobs("b", "a"), frozenset())
    buffer.add(lease(2), jobs("c"), frozenset())
    assert ids(buffer.ready) == ["b", "a", "c"]


async def test_a_claim_wakes_as_many_slots_as_it_has_jobs_the_last_one_first(buffer: PrefetchBuffer) -> None:
    slots = [asyncio.create_task(buffer.wait()) for _ in range(4)]
    await asyncio.sleep(0)
    buffer.add(lease(1, 2), jobs("a", "b"), frozenset())
    await asyncio.sleep(0)
    assert [slot.done() for slot in slots] == [False, False, True, True]
    slots[1].cancel()
    await asyncio.sleep(0)
    buffer.add(lease(2), jobs("c"), frozenset())
    async with asyncio.timeout(PATIENCE):
        await slots[0]  # a slot that was stopped waits no longer, so the job wakes the other one


# -- leases


def test_jobs_have_the_lease_that_they_came_with(buffer: PrefetchBuffer) -> None:
    first, second = lease(1), lease(2)
    buffer.add(first, jobs("a"), frozenset())
    buffer.add(second, jobs("b"), frozenset({"b"}))
    assert {each.id: each.lease for each in buffer.ready} == {"a": first, "b": second}
    assert buffer.leases == {1: first, 2: second}
    assert second.deadline == 70.0


async def test_jobs_of_a_lost_lease_do_not_start(buffer: PrefetchBuffer) -> None:
    buffer.add(lease(1), jobs("runs", "a"), frozenset())
    buffer.add(lease(2), jobs("b"), frozenset())
    running = asyncio.create_task(asyncio.sleep(0))
    buffer.running[running] = buffer.ready.popleft()
    assert ids(buffer.lose([1, 3])) == ["runs"]
    assert ids(buffer.ready) == ["b"] and list(buffer.leases) == [2]
    await running


def test_what_is_given_back_leaves_the_buffer(buffer: PrefetchBuffer) -> None:
    buffer.add(lease(1), jobs("a", "b", "c"), frozenset())
    assert ids(buffer.take_out({"b", "x"})) == ["b"]
    assert ids(buffer.take_ready()) == ["a", "c"] and buffer.held == 0
