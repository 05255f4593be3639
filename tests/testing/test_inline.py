"""Inline mode: the job is committed, then run by the real worker, before enqueue returns."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import Status
from holdfast.testing import Kit


def test_an_enqueue_returns_when_its_job_has_run(kit: Kit) -> None:
    @kit.hf.task()
    async def double(n: int) -> int:
        return 2 * n

    with kit.inline():
        assert double.enqueue(4).result(timeout=0.1) == 8
        ids = double.enqueue_many([1, 2]).ids
        assert [info.result for info in map(kit.hf.jobs.get, ids) if info] == [2, 4]
    assert double.enqueue(5).info().status is Status.QUEUED


def test_jobs_that_a_handler_enqueues_run_after_it_and_not_inside_it(kit: Kit) -> None:
    steps: list[str] = []

    @kit.hf.task()
    def parent() -> None:
        steps.append("parent begins")
        child.enqueue()
        steps.append("parent ends")

    @kit.hf.task()
    async def child() -> None:
        steps.append("child")

    with kit.inline():
        parent.enqueue()
    assert steps == ["parent begins", "parent ends", "child"]


def test_a_handlers_error_comes_out_of_enqueue(kit: Kit) -> None:
    @kit.hf.task()
    async def fails() -> None:
        raise ConnectionError("no")

    with kit.inline(), pytest.raises(ConnectionError):
        fails.enqueue()
    with kit.inline(raise_errors=False):
        assert fails.enqueue().info().status is Status.RETRYING


def test_a_delayed_job_waits_as_ever(kit: Kit) -> None:
    @kit.hf.task()
    async def later() -> None: ...

    with kit.inline():
        assert later.using(delay=60).enqueue().info().status is Status.QUEUED


def test_a_job_in_a_transaction_runs_once_that_has_committed(kit: Kit) -> None:
    @kit.hf.task()
    async def inside(n: int) -> None: ...

    before = inside.enqueue(0)
    with psycopg.connect(kit.dsn) as conn, kit.inline():
        inside.using(conn=conn).enqueue(1)
        assert before.info().status is Status.QUEUED  # nothing at all is run while the transaction is open
        conn.rollback()
        job = inside.using(conn=conn).enqueue(2)
        assert job.info() is None
        conn.commit()
        assert job.info().status is Status.QUEUED
        inside.enqueue(3)
        assert job.info().status is Status.SUCCEEDED
        last = inside.using(conn=conn).enqueue(4)
        conn.commit()
    assert last.info().status is Status.SUCCEEDED
    assert [each.payload["n"] for each in kit.all_enqueued()] == [0, 2, 3, 4]


async def test_coroutines_enqueue_inline_too_and_so_does_sync_code_on_their_loop(kit: Kit) -> None:
    @kit.hf.task()
    async def double(n: int) -> int:
        return 2 * n

    async with kit.inline():
        assert await (await double.aenqueue(1)).aresult(timeout=0.1) == 2
        ids = (await double.aenqueue_many([2])).ids
        info = await kit.hf.jobs.aget(ids[0])
        assert info is not None and info.result == 4
        assert double.enqueue(3).result(timeout=0.1) == 6


def test_a_block_that_fails_runs_nothing_more(kit: Kit) -> None:
    @kit.hf.task()
    async def inside() -> None: ...

    def fail(conn: psycopg.Connection) -> None:
        with kit.inline():
            inside.using(conn=conn).enqueue()
            conn.commit()
            raise RuntimeError("the test's own")

    with psycopg.connect(kit.dsn) as conn, pytest.raises(RuntimeError):
        fail(conn)
    assert len(kit.waiting()) == 1
