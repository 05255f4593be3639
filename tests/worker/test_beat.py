"""A worker's event loop that a handler blocks: what is logged, and what becomes of its leases."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from holdfast import Holdfast, Status
from holdfast.model.clock import Clock
from holdfast.settings import Settings
from holdfast.worker import Worker
from holdfast.worker.beat import LEAST, Beat, longest_block
from holdfast.worker.block import find_job
from tests.conftest import wait_until
from tests.support.running import ended, until, working


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(each)["fields"] for each in caplog.records if getattr(each, "event", None) == event]


def logged(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    return bool(events(caplog, event))


@pytest.mark.parametrize("nested", [False, True])
async def test_a_blocked_loop_is_logged_with_its_handler_and_stack(
    hf: Holdfast, caplog: pytest.LogCaptureFixture, nested: bool
) -> None:
    def wait_for_the_log() -> None:
        wait_until(lambda: logged(caplog, "event loop is blocked"))

    async def inner() -> None:
        wait_for_the_log()

    @hf.task(name="blocks")
    async def blocks() -> None:
        if nested:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
        else:
            wait_for_the_log()

    @hf.task(name="waits")
    async def waits() -> None:
        await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, "holdfast.loop"):
        async with working(hf, loop_warning=0.2):
            await waits.aenqueue_many([()] * 3)
            job = await blocks.aenqueue()
            assert (await ended(hf, job.id)).status is Status.SUCCEEDED
            await until(lambda: logged(caplog, "event loop runs again"))
    (fields,) = events(caplog, "event loop is blocked")
    assert fields["seconds"] >= 0.2 and "test_beat.py" in fields["stack"]
    if nested:
        assert "inner > " in fields["stack"] and "asyncio" not in fields["stack"]
        assert "blocks" in fields["running_tasks"].split(",")
    else:
        assert (fields["task"], fields["job"]) == ("blocks", job.id)
        assert "blocks > " in fields["stack"] and "holdfast/worker" not in fields["stack"]


async def test_a_loop_that_is_not_blocked_is_not_logged(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.task(name="in_thread")
    def in_thread() -> None:
        time.sleep(0.5)

    with caplog.at_level(logging.WARNING, "holdfast.loop"):
        async with working(hf, loop_warning=20.0):
            await ended(hf, (await in_thread.aenqueue()).id)
    assert not caplog.records


async def test_leases_of_a_stuck_loop_lapse_and_its_neighbours_run_elsewhere(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker shares its process, so nothing can end it: all it can do is release its leases."""
    release, stuck = threading.Event(), Worker(hf, lease=2.0, renew=0.5, loop_timeout=2.0, poll=0.2, upkeep=0.2)

    def elsewhere() -> bool:
        return threading.current_thread() is not threading.main_thread()

    @hf.task(name="neighbour")
    async def neighbour() -> str:
        if elsewhere():
            await asyncio.sleep(600)
        return "here"

    @hf.task(name="blocks")
    async def blocks() -> None:
        if elsewhere():
            release.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(stuck.run(),))
    with caplog.at_level(logging.ERROR, "holdfast"):
        thread.start()
        try:
            jobs = [await neighbour.aenqueue() for _ in range(3)]
            await until(lambda: len(stuck.buffer.running) == 3)
            await blocks.aenqueue()
            await until(lambda: len(stuck.buffer.running) == 4)
            async with working(hf, queues=["default"]) as other:
                for job in jobs:
                    info = await ended(hf, job.id)
                    assert info.result == "here" and info.attempts > 1
                release.set()
                await until(lambda: other.finisher.idle)
        finally:
            release.set()
            loop.call_soon_threadsafe(stuck.stop)
            await asyncio.to_thread(thread.join)
            loop.close()
    fields = events(caplog, "event loop is stuck")[-1]
    assert fields["task"] == "blocks" and "blocks > " in fields["stack"]
    assert logged(caplog, "leases are not renewed: the event loop is stuck; restart this process")


@pytest.mark.parametrize(
    ("settings", "silent", "seconds"),
    [
        ({"lease": 60, "loop_timeout": 30}, 0, 60),
        ({"lease": 60, "loop_timeout": 30}, 20, 40),
        ({"lease": 60, "loop_timeout": 30}, 70, 0),
        ({"lease": 60, "loop_timeout": 300}, 100, 60),  # the operator allows it
        ({"lease": 60, "loop_timeout": 300}, 290, 10),
        ({"lease": 60, "loop_timeout": 0}, 1000, 60),
    ],
)
def test_a_renewal_counts_from_the_last_beat(settings: dict[str, Any], silent: float, seconds: float) -> None:
    now = 1000.0
    beat = Beat(Settings(**settings), Clock(lambda: now))
    beat.request()
    now += silent
    assert beat.renewable() == seconds


@pytest.mark.parametrize(("timeout", "longest"), [(None, 30.0), (300.0, 30.0), (10.0, 10.0), (0.5, LEAST)])
def test_a_shorter_timeout_of_the_task_counts_in_place_of_the_loops(timeout: float | None, longest: float) -> None:
    hf = Holdfast("postgresql://nowhere")

    @hf.task(name="blocks", timeout=timeout)
    async def blocks() -> None: ...

    assert longest_block(30.0, hf.registry.tasks["blocks"]) == longest


def test_a_handler_that_runs_in_a_task_of_its_own_is_found_by_its_code() -> None:
    hf = Holdfast("postgresql://nowhere")

    @hf.task(name="blocks")
    def blocks(frames: list[Any]) -> None:
        frames.append(sys._getframe())

    blocks(frames := list[FrameType]())
    job = SimpleNamespace(task="blocks", id="1")
    running: Any = {object(): job, object(): SimpleNamespace(task="other", id="2")}
    assert find_job(running, hf.registry.tasks, None, frames) is job
    assert find_job(running, hf.registry.tasks, None, [sys._getframe()]) is None
    running[object()] = SimpleNamespace(task="blocks", id="3")
    assert find_job(running, hf.registry.tasks, None, frames) is None, "which of two is not known"


def test_while_the_machine_sleeps_the_loop_is_not_reported_as_blocked() -> None:
    now = 1000.0
    beat, blocked = Beat(Settings(), Clock(lambda: now)), list[float]()
    for step in (0.25, 0.25, 3600.0, 0.25):
        now += step
        blocked.append(beat.blocked())
        if not beat.owed:
            beat.request()
    assert blocked == [0.0, 0.25, 1.25, 1.5]
