"""Request coalescing: concurrent requests go into one call, and each gets its own result."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence

import pytest

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable, UsageError
from holdfast.model.job import NewJob, ids
from holdfast.model.token import Caller
from holdfast.web.coalesce import MOST_BYTES, PATIENCE, Coalescer
from holdfast.web.service import Service
from tests.support import serving

NO_TENANT = Caller("1", "test", None, frozenset(), None)


async def test_requests_during_a_call_go_into_the_next_one() -> None:
    calls: list[int] = []
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int | Exception]:
        calls.append(len(wishes))
        await go.wait()
        return [wish * 2 if wish != 3 else ValueError("three") for wish in wishes]

    coalescer = Coalescer(act)
    asking = [asyncio.create_task(coalescer.ask(n)) for n in range(50)]
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for n, each in enumerate(results) if n != 3] == [n * 2 for n in range(50) if n != 3]
    assert isinstance(results[3], ValueError)
    assert sum(calls) == 50 and len(calls) <= 2


async def test_a_wish_that_fails_a_call_fails_alone() -> None:
    calls = 0

    async def act(wishes: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if 7 in wishes:
            raise ValueError("seven")
        return list(wishes)

    coalescer = Coalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(100)), return_exceptions=True)
    assert isinstance(results[7], ValueError)
    assert [each for n, each in enumerate(results) if n != 7] == [n for n in range(100) if n != 7]
    assert calls < 30  # halves of the rest, not each by itself


async def test_an_unreachable_database_fails_all_requests_of_a_call_and_is_not_tried_again_for_each() -> None:
    calls = 0

    async def act(wishes: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        raise DatabaseUnavailable("away")

    coalescer: Coalescer[int, int] = Coalescer(act)
    results = await asyncio.gather(*(coalescer.ask(n) for n in range(100)), return_exceptions=True)
    assert all(isinstance(each, DatabaseUnavailable) for each in results) and calls <= 2


async def test_a_large_request_goes_into_a_call_of_its_own() -> None:
    calls: list[list[int]] = []

    async def act(wishes: list[int]) -> list[int]:
        calls.append(wishes)
        await asyncio.sleep(0)
        return wishes

    coalescer: Coalescer[int, int] = Coalescer(act, size=lambda wish: wish)
    wishes = [1, 2, MOST_BYTES, 3, MOST_BYTES * 2, 4, 5]
    assert await asyncio.gather(*map(coalescer.ask, wishes)) == wishes
    assert all(sum(each) <= MOST_BYTES or len(each) == 1 for each in calls) and len(calls) == 5


async def test_a_request_that_goes_away_leaves_the_results_of_other_requests() -> None:
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int]:
        await go.wait()
        return list(wishes)

    coalescer = Coalescer(act)
    gone, stays = (asyncio.create_task(coalescer.ask(n)) for n in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    go.set()
    assert await stays == 1
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_a_job_that_the_database_refuses_spoils_no_other(hf: Holdfast) -> None:
    service = Service(serving.with_tasks(hf))
    jobs = [NewJob(ids.make(), "shop.fail", b"{}", max_attempts=1) for _ in range(20)]
    jobs[7].queue = "a/b"
    results = await asyncio.gather(*(service.enqueue(job, NO_TENANT) for job in jobs), return_exceptions=True)
    assert isinstance(results[7], UsageError)
    assert {job.id for job in jobs if job is not jobs[7]} == {each.id for each in hf.jobs.list()}
    await hf.aclose()


async def test_a_request_right_after_a_result_gets_its_own_result() -> None:
    """A call that is just ending brings no more results, so it must not count as one that is under way."""
    coalescer: Coalescer[int, int] = Coalescer(doubled, at_once=1)
    async with asyncio.timeout(20):
        for n in range(5):
            assert await coalescer.ask(n) == 2 * n


async def doubled(wishes: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return [2 * wish for wish in wishes]


async def test_one_slow_call_delays_neither_waiting_nor_later_requests() -> None:
    go, begun, under_way = asyncio.Event(), asyncio.Event(), 0

    async def act(wishes: list[int]) -> list[int]:
        nonlocal under_way
        under_way += 1
        begun.set()
        assert under_way <= 2
        if 0 in wishes:
            await go.wait()
        await asyncio.sleep(0)
        under_way -= 1
        return [2 * wish for wish in wishes]

    coalescer: Coalescer[int, int] = Coalescer(act)
    slow = asyncio.create_task(coalescer.ask(0))
    await begun.wait()
    async with asyncio.timeout(20):
        for n in range(1, 5):
            assert await coalescer.ask(n) == 2 * n
        go.set()
        assert await slow == 0
        assert await asyncio.gather(*map(coalescer.ask, range(5, 9))) == [10, 12, 14, 16]


async def test_a_slow_call_leaves_waiting_requests_to_the_one_beside_it_and_none_is_forgotten() -> None:
    gates, begun = [asyncio.Event() for _ in range(3)], [asyncio.Event() for _ in range(3)]

    async def act(wishes: list[int]) -> list[int]:
        begun[wishes[0]].set()
        await gates[wishes[0]].wait()
        return wishes

    coalescer: Coalescer[int, int] = Coalescer(act)
    asking = []
    async with asyncio.timeout(20):
        for n in range(3):
            asking.append(asyncio.create_task(coalescer.ask(n)))
            await (begun[n].wait() if n < 2 else asyncio.sleep(0))
        for n in (0, 2, 1):  # the first ends while the second is under way and the third waits for a call
            gates[n].set()
            await asyncio.sleep(0)
        assert await asyncio.gather(*asking) == [0, 1, 2]


async def test_beside_a_slow_call_a_single_request_gets_its_result_at_once() -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def act(wishes: list[int]) -> list[int]:
        begun.set()
        if wishes == [0]:
            await go.wait()
        return wishes

    coalescer: Coalescer[int, int] = Coalescer(act)
    slow = asyncio.create_task(coalescer.ask(0))
    await begun.wait()
    assert await coalescer.ask(1) == 1  # after a while
    loop = asyncio.get_running_loop()
    began = loop.time()
    for n in range(2, 22):
        assert await coalescer.ask(n) == n
    assert loop.time() - began < 20 * PATIENCE / 2
    go.set()
    assert await slow == 0


def test_loops_that_have_ended_are_forgotten() -> None:
    coalescer: Coalescer[int, int] = Coalescer(doubled)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def ask() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await asyncio.gather(*map(coalescer.ask, range(5))) == [0, 2, 4, 6, 8]

    for _ in range(3):
        asyncio.run(ask())
    gc.collect()
    assert [each() for each in loops] == [None] * 3
