"""Wishes that come together go into one call, and each has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import serving

from holdfast import Holdfast
from holdfast.errors import UsageError
from holdfast.model.job import NewJob, ids
from holdfast.web.service import Service
from holdfast.web.together import AT_ONCE, Together


async def test_what_comes_while_a_call_is_under_way_goes_into_the_next() -> None:
    calls: list[int] = []
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int | Exception]:
        calls.append(len(wishes))
        await go.wait()
        return [wish * 2 if wish != 3 else ValueError("three") for wish in wishes]

    together = Together(act)
    asking = [asyncio.create_task(together.ask(n)) for n in range(50)]
    await asyncio.sleep(0)
    go.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for n, each in enumerate(answers) if n != 3] == [n * 2 for n in range(50) if n != 3]
    assert isinstance(answers[3], ValueError)
    assert sum(calls) == 50 and len(calls) <= AT_ONCE + 1


async def test_an_error_is_told_to_all_who_asked_and_the_next_call_goes_on() -> None:
    async def act(wishes: Sequence[int]) -> list[int]:
        if 0 in wishes:
            raise ValueError("zero")
        return list(wishes)

    together = Together(act)
    told = await asyncio.gather(*(together.ask(n) for n in range(3)), return_exceptions=True)
    assert all(isinstance(each, ValueError) for each in told)
    assert await together.ask(1) == 1


async def test_whoever_goes_away_leaves_the_others_their_answers() -> None:
    go = asyncio.Event()

    async def act(wishes: Sequence[int]) -> list[int]:
        await go.wait()
        return list(wishes)

    together = Together(act)
    gone, stays = (asyncio.create_task(together.ask(n)) for n in range(2))
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
    told = await asyncio.gather(*(service.enqueue(job) for job in jobs), return_exceptions=True)
    assert isinstance(told[7], UsageError)
    assert {job.id for job in jobs if job is not jobs[7]} == {each.id for each in hf.list_jobs()}
    await hf.aclose()


async def test_whoever_asks_again_the_moment_it_is_answered_is_answered_again() -> None:
    """A call that is just ending brings no more answers, so it must not count as one that is under way."""
    together: Together[int, int] = Together(doubled, at_once=1)
    async with asyncio.timeout(20):
        for n in range(5):
            assert await together.ask(n) == 2 * n


async def doubled(wishes: list[int]) -> list[int]:
    await asyncio.sleep(0)
    return [2 * wish for wish in wishes]
