"""Workers that an operator asks to drain, or to stop at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, Status, UnknownWorker
from holdfast.worker import Worker
from tests.support.running import QUICK, ended, until


def begin(hf: Holdfast, **settings: Any) -> tuple[Worker, asyncio.Task[None]]:
    """Start a worker that no test stops; only an operator's request ends it."""
    worker = Worker(hf, **(QUICK | settings))
    return worker, asyncio.create_task(worker.run())


async def state(hf: Holdfast, worker: Worker) -> str | None:
    return {each["id"]: each["state"] for each in await hf.workers.alist()}.get(worker.id)


async def test_an_idle_worker_that_is_asked_to_drain_ends(hf: Holdfast) -> None:
    worker, running = begin(hf, poll=60.0)
    other, still = begin(hf, poll=60.0)
    await until(lambda: state(hf, worker))
    assert await hf.workers.astop(worker.id, by="ada", reason="host is replaced") == worker.id
    await asyncio.wait_for(running, 60)
    assert await state(hf, worker) is None and await until(lambda: state(hf, other)) == "alive"
    assert not still.done()
    other.stop()
    await still


async def test_a_busy_worker_that_drains_finishes_its_job_and_claims_no_other(hf: Holdfast) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        await go.wait()

    worker, running = begin(hf, concurrency=1, prefetch=0, grace=60.0)
    first = await slow.aenqueue()
    await entered.wait()
    await hf.workers.astop(worker.id, reason="host is replaced")
    assert await state(hf, worker) == "draining"
    await until(lambda: is_stopping(hf, worker))
    second = await slow.aenqueue()
    assert await state(hf, worker) == "draining"
    go.set()
    await asyncio.wait_for(running, 60)
    assert (await ended(hf, first.id)).status is Status.SUCCEEDED
    info = await hf.jobs.aget(second.id)
    assert info is not None and info.status is Status.QUEUED


async def test_a_worker_that_stops_now_gives_its_job_back(hf: Holdfast) -> None:
    entered = asyncio.Event()

    @hf.task()
    async def endless() -> None:
        entered.set()
        await asyncio.sleep(600)

    worker, running = begin(hf, grace=600.0)
    job = await endless.aenqueue()
    await entered.wait()
    await hf.workers.astop(worker.id)
    await until(lambda: is_stopping(hf, worker))
    assert not running.done(), "it waits for its job"
    await hf.workers.astop(worker.id, now=True)
    await asyncio.wait_for(running, 60)
    info = await hf.jobs.aget(job.id)
    assert info is not None and info.status is Status.QUEUED


async def test_a_signal_after_a_request_to_drain_is_the_first_one(hf: Holdfast) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @hf.task()
    async def slow() -> None:
        entered.set()
        await go.wait()

    worker, running = begin(hf, grace=60.0)
    job = await slow.aenqueue()
    await entered.wait()
    await hf.workers.astop(worker.id)
    await until(lambda: is_stopping(hf, worker))
    worker.stop()
    go.set()
    await asyncio.wait_for(running, 60)
    info = await ended(hf, job.id)
    assert (info.status, info.attempts) == (Status.SUCCEEDED, 1)


async def test_a_worker_of_the_same_name_does_not_obey_an_old_request(hf: Holdfast) -> None:
    worker, running = begin(hf, worker_name="mail")
    await until(lambda: state(hf, worker))
    await hf.workers.astop("mail")
    await asyncio.wait_for(running, 60)

    @hf.task()
    async def work() -> None: ...

    again, running = begin(hf, worker_name="mail")
    await ended(hf, (await work.aenqueue()).id)
    assert await state(hf, again) == "alive" and not running.done()
    again.stop()
    await running


async def test_a_worker_that_is_not_known_cannot_be_stopped(hf: Holdfast) -> None:
    with pytest.raises(UnknownWorker, match="there is no worker 'nobody'"):
        await hf.workers.astop("nobody")


async def is_stopping(hf: Holdfast, worker: Worker) -> bool:
    return any(each["stopping"] for each in await hf.workers.alist() if each["id"] == worker.id)
