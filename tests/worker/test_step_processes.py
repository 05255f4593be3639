"""Steps of handlers in child processes, and steps that run in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, Status
from holdfast.client.database import Database
from holdfast.settings import Settings
from holdfast.worker.stepprocess import StepProcess, StepProcessFailed
from tests.support.children import alive
from tests.support.running import ended, until, working
from tests.support.workers import APPS, worker


@pytest.fixture
def durable(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    monkeypatch.syspath_prepend(str(APPS))
    import durable as app

    app.hf.database = Database(Settings.load(dsn=dsn))
    yield app.hf
    app.hf.close()
    sys.modules.pop("durable", None)


async def test_a_handler_in_a_child_process_has_steps(durable: Holdfast) -> None:
    job = durable.registry.tasks["in_process"].enqueue(6)
    durable.signal("go", "now")
    async with working(durable):
        assert await job.aresult(60) == [36, 2, 42, "now"]


async def test_a_child_process_waits_for_the_steps_of_a_handler_that_fails(durable: Holdfast) -> None:
    job = durable.registry.tasks["parallel_in_process"].enqueue()
    async with working(durable):
        assert (await ended(durable, job.id)).status is Status.FAILED
    assert [(each.name, each.result) for each in durable.jobs.steps(job.id)] == [("charge", 7)]


async def test_a_step_runs_in_a_process_of_its_own(durable: Holdfast) -> None:
    job = durable.registry.tasks["steps_in_processes"].enqueue()
    async with working(durable):
        other, squared, *errors = await job.aresult(60)
    assert (other, squared) == (True, 49)
    assert errors == [
        "StepProcessFailed: the process of leave ended with 3 and without a result",
        "StepProcessFailed: ValueError: no",
        "TimeoutError: step process sit took longer than 0.5 s",
    ]


@pytest.mark.parametrize("how", ["worker killed", "timeout", "canceled", "worker stopped"])
async def test_the_process_of_a_step_ends_with_its_step_and_all_that_it_started(
    dsn: str, durable: Holdfast, tmp_path: Path, how: str
) -> None:
    job = durable.registry.tasks["starts_another"].enqueue(4.0 if how == "timeout" else None)
    with worker(dsn, tmp_path, "durable", poll=0.2, grace=0.1) as process:
        await until(lambda: process.notes() and len(process.notes()[0]) == 2)
        found = [int(each) for each in process.notes()[0]]
        if how == "worker killed":
            process.kill()
        elif how == "worker stopped":
            await asyncio.to_thread(process.stop)
        elif how == "canceled":
            await durable.jobs.acancel(job.id)
        # The kernel kills the process of a killed worker before it can end others.
        await until(lambda: not any(map(alive, found[:1] if how == "worker killed" else found)))


def test_a_process_that_is_canceled_before_it_starts_is_not_started() -> None:
    process = StepProcess(os.getpid, (), {}, None)
    process.kill()
    with pytest.raises(StepProcessFailed, match="the process of getpid was canceled"):
        process.run()


async def test_a_result_may_be_larger_than_a_pipe_holds(durable: Holdfast) -> None:
    job = durable.registry.tasks["large_result"].enqueue()
    async with working(durable):
        assert await job.aresult(60) == 500_000
