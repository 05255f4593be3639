"""What a handler in a child process may do with its context: progress, results, resources, transactions; and cancel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, NewJob, Status
from holdfast.client.database import Database
from holdfast.client.middleware import Around
from holdfast.settings import Settings
from tests.conftest import wait_until
from tests.support.running import ended, until, working
from tests.support.workers import APPS

sys.path.append(str(APPS))
import crunch

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def app(dsn: str) -> Iterator[Holdfast]:
    """The application of tests/support/apps/crunch.py on the test's database."""
    crunch.hf.database = Database(Settings.load(dsn=dsn))
    yield crunch.hf
    crunch.hf.registry.around_attempt, crunch.hf.registry.around_enqueue = Around(may_swallow=True), Around()
    crunch.hf.close()


@pytest.fixture
def ledger(sql: Sql) -> Iterator[Callable[[], list[int]]]:
    sql("create table if not exists public.ledger (n integer not null)")
    yield lambda: [row[0] for row in sql("select n from public.ledger order by n")]
    sql("drop table public.ledger")


async def test_progress_headers_and_batch_reach_the_process_and_come_back(app: Holdfast) -> None:
    @app.around_enqueue
    def traced(job: NewJob) -> Iterator[None]:
        job.headers = {"trace": "t-1"}
        yield

    async with working(app):
        async with app.batch("import") as batch:
            job = await crunch.counts.using(batch=batch).aenqueue()
        assert await job.aresult(40) == [batch.id, {"trace": "t-1"}, False]
        progress = (await ended(app, job.id)).progress or {}
        assert (progress["done"], progress["total"], progress["message"]) == (999, 1000, "row 999")
        assert (await batch.ajoin(40)).succeeded == 1
        info = await ended(app, (await crunch.wrong_progress.aenqueue()).id)
        assert info.last_error and "progress must be a finite number, got 'half'" in info.last_error["message"]


async def test_a_resource_is_opened_once_in_each_process(app: Holdfast) -> None:
    async with working(app, child_processes=1):
        pids = {await (await crunch.with_model.aenqueue(n)).aresult(40) for n in range(5)}
    assert len(pids) == 1


async def test_a_resource_is_closed_in_a_process_that_is_idle_when_its_worker_stops(
    app: Holdfast, tmp_path: Path
) -> None:
    async with working(app, child_processes=1):
        pid = await (await crunch.notes_its_close.aenqueue(str(tmp_path / "closed"))).aresult(40)
    assert (tmp_path / "closed").read_text() == str(pid)


async def test_a_worker_that_stops_at_once_waits_for_no_process(app: Holdfast, tmp_path: Path) -> None:
    async with working(app, child_processes=1) as worker:
        await (await crunch.notes_its_close.aenqueue(str(tmp_path / "closed"))).aresult(40)
        worker.stop()
        worker.stop()
    assert not (tmp_path / "closed").exists()


async def test_a_transaction_in_a_process_ends_its_job(app: Holdfast, ledger: Callable[[], list[int]]) -> None:
    async with working(app, child_processes=1) as worker:
        assert await (await crunch.insert.aenqueue(1)).aresult(40) == "inserted"
        again = await crunch.insert.aenqueue(2, fails=True)
        assert await again.aresult(40) == "inserted"
        assert (await ended(app, again.id)).attempts == 2
        job = await crunch.insert_async.aenqueue(3)
        assert (await ended(app, job.id)).status is Status.SUCCEEDED

        async def kept() -> bool:
            info = await app.jobs.aget(job.id)
            return info is not None and info.result == "returned"

        await until(kept)
        job = await crunch.insert_and_set_result.aenqueue(4)

        async def set_later() -> bool:
            info = await app.jobs.aget(job.id)
            return info is not None and info.result == "set after"

        await until(set_later)
        await until(lambda: not worker.buffer.leases)
    assert ledger() == [1, 2, 3, 4]


async def test_canceling_a_job_ends_its_process(app: Holdfast, tmp_path: Path) -> None:
    async with working(app):
        job = await crunch.sleeps.aenqueue(str(tmp_path / "pid"))
        await asyncio.to_thread(wait_until, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        assert await app.jobs.acancel(job.id) == {job.id: "canceling"}
        assert (await ended(app, job.id)).status is Status.CANCELED
        pid = (tmp_path / "pid").read_text()
        await asyncio.to_thread(wait_until, lambda: not Path(f"/proc/{pid}").exists())


async def test_middleware_sees_what_a_process_does(app: Holdfast) -> None:
    calls: list[str] = []

    @app.around_attempt
    async def watch(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
            calls.append(f"{ctx.task} succeeded")
        except Exception as error:
            calls.append(f"{ctx.task} raised {error}")
            raise

    async with working(app):
        await (await crunch.add.aenqueue(1)).aresult(40)
        job = await crunch.raise_named.aenqueue("LookupError")
        assert (await ended(app, job.id)).status is Status.FAILED
    assert calls[0] == "crunch.add succeeded" and "crunch.raise_named raised KeyError" in calls[1]


async def test_a_canceled_job_is_its_process_until_that_has_ended(app: Holdfast, tmp_path: Path) -> None:
    """It cleans up on SIGTERM and still runs meanwhile: no other job may take its key."""
    async with working(app):
        tidy = crunch.sit_until_signaled.using(dedupe="k")
        job = await tidy.aenqueue(str(tmp_path / "pid"))
        await asyncio.to_thread(wait_until, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        assert await app.jobs.acancel(job.id) == {job.id: "canceling"}
        info = await ended(app, job.id)
        assert (tmp_path / "pid.end").exists(), "ended before its process had"
        assert info.status is Status.SUCCEEDED, "it came to its end in good order"


async def test_a_canceled_process_that_does_not_listen_is_killed_after_the_grace_time(
    app: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.processes.CANCEL_GRACE", 0.5)
    async with working(app):
        job = await crunch.sit.aenqueue(str(tmp_path / "pid"), stubborn=True)
        await asyncio.to_thread(wait_until, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        await app.jobs.acancel(job.id)
        info = await ended(app, job.id)
        assert info.status is Status.CANCELED and info.last_error and info.last_error["code"] == "CANCELED"


async def test_a_log_line_of_a_process_is_one_of_the_workers(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "holdfast"):
        async with working(app):
            job = await crunch.talks.aenqueue()
            await ended(app, job.id)
    (record,) = [r for r in caplog.records if r.name == "holdfast.job"]
    assert record.fields == {"job": job.id, "task": "crunch.talks", "attempt": 1, "to": "ada"}  # type: ignore[attr-defined]
    assert record.levelname == "INFO" and "sent 3" in record.getMessage() and job.id in record.getMessage()
