"""Document 002, sentence by sentence, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from harmonyk import app
from harmonyk.jobs import (
    EnqueueJobInput,
    JobsRepository,
    NotClaimed,
    can_retry,
    get_backoff_delay_ms,
    make_job_dedupe_key,
)
from holdfast import Holdfast, InvalidPayload, UnknownTask
from holdfast.testing import Kit

ORG = "01900000-7000-8000-0000-000000000001"
SYNC = EnqueueJobInput("calendar.sync", ORG, {"calendar": "team"})


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return app.hf


@pytest.fixture(scope="session")
def harmonyk_template(holdfast_template: str) -> str:
    with psycopg.connect(holdfast_template, autocommit=True) as conn:
        conn.execute(Path(__file__).with_name("schema.sql").read_bytes())
    return holdfast_template


@pytest.fixture
def kit(harmonyk_template: str, holdfast_kit: Kit) -> Kit:
    app.outages.clear()
    return holdfast_kit


@pytest.fixture
async def jobs(kit: Kit) -> AsyncIterator[JobsRepository]:
    async with JobsRepository(app.hf) as repository:
        yield repository


@pytest.fixture
async def web(jobs: JobsRepository, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("INTERNAL_SECRET", "s3cret")
    monkeypatch.setattr(app.web.state, "jobs", jobs, raising=False)
    transport = httpx.ASGITransport(app.web)
    async with httpx.AsyncClient(transport=transport, base_url="http://harmonyk") as client:
        yield client


def shown(kit: Kit, id_: str) -> dict[str, Any]:
    """Return the job as a row of the document's table."""
    with psycopg.connect(app.hf.database.url, row_factory=psycopg.rows.dict_row) as conn:
        row = conn.execute("select * from harmonyk.jobs where id = %s", [id_]).fetchone()
    assert row is not None
    return row


def test_the_table_has_the_documents_columns(kit: Kit) -> None:
    job = app.index_document.using(tenant=ORG).enqueue(7, pages=2)
    row = shown(kit, job.id)
    assert list(row) == [
        "id",
        "type",
        "org_id",
        "payload",
        "status",
        "attempts",
        "next_run_at",
        "last_error",
        "created_at",
        "updated_at",
    ]
    assert (row["type"], str(row["org_id"]), row["payload"]) == ("document.index", ORG, {"document_id": 7, "pages": 2})
    assert (row["status"], row["attempts"], row["last_error"]) == ("queued", 0, None)


def test_a_job_without_an_organisation_is_global(kit: Kit) -> None:
    assert shown(kit, app.send_digest.enqueue("ada@example.org").id)["org_id"] is None


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60), (500, 60)]
)
def test_the_backoff_table(attempts: int, seconds: int) -> None:
    assert get_backoff_delay_ms(attempts) == seconds * 1000


def test_can_retry() -> None:
    assert not can_retry("success", 0)
    assert not can_retry("running", 0)
    assert [can_retry("failed", n) for n in range(4, 7)] == [True, False, False]
    assert can_retry("queued", 0)
    assert [can_retry("failed", n, max_attempts=2) for n in (1, 2)] == [True, False]


def test_the_dedupe_key_is_the_documents_and_holdfasts(kit: Kit) -> None:
    payload = {"pages": 3, "document_id": 7}
    key = 'document.index::global::{"document_id":7,"pages":3}'
    assert make_job_dedupe_key("document.index", None, payload) == key
    assert (
        make_job_dedupe_key("t", ORG, {"b": {"d": 1, "c": "é"}, "a": []})
        == f't::{ORG}::{{"a":[],"b":{{"c":"é","d":1}}}}'
    )
    job = app.index_document.enqueue(7, 3)
    with psycopg.connect(app.hf.database.url) as conn:
        found = conn.execute("select dedupe_key from holdfast.jobs where id = %s", [job.id]).fetchone()
    assert found == (key,)


async def test_a_second_job_of_the_same_key_is_skipped_while_the_first_is_queued_or_running(
    jobs: JobsRepository, kit: Kit
) -> None:
    first = await jobs.enqueue(SYNC)
    assert await jobs.enqueue(SYNC) == first
    await jobs.claim()
    assert shown(kit, first)["status"] == "running"
    assert await jobs.enqueue(SYNC) == first
    await jobs.mark_success(first)
    assert await jobs.enqueue(SYNC) != first


async def test_a_failed_job_is_queued_again_with_the_documents_delay(jobs: JobsRepository, kit: Kit) -> None:
    """Increment attempts, queued, next_run_at = now + delay; failed with its last error when no retry is left."""
    kit.clock.freeze()
    id_ = await jobs.enqueue(SYNC)
    for attempts, seconds in [(1, 1), (2, 2), (3, 4), (4, 8)]:
        (job,) = await jobs.claim()
        assert job.attempts == attempts and can_retry("failed", job.attempts)
        await jobs.mark_failure(id_, f"no answer {attempts}")
        row = shown(kit, id_)
        assert (row["status"], row["attempts"], row["last_error"]) == ("queued", attempts, f"no answer {attempts}")
        assert row["next_run_at"] == kit.clock.now() + timedelta(seconds=seconds)
        kit.clock.travel(seconds)
        with psycopg.connect(app.hf.database.url, autocommit=True) as conn:
            conn.execute("select holdfast.promote()")
    await jobs.claim()
    await jobs.mark_failure(id_, "never again")
    row = shown(kit, id_)
    assert (row["status"], row["attempts"], row["last_error"]) == ("failed", 5, "never again")


async def test_only_who_claimed_a_job_can_end_it(jobs: JobsRepository, kit: Kit) -> None:
    """The document ends jobs by id alone; a repeated call, or one with an expired lease, would end another attempt."""
    id_ = await jobs.enqueue(SYNC)
    with pytest.raises(NotClaimed):
        await jobs.mark_success(id_)
    await jobs.claim()
    kit.clock.travel(61)
    with psycopg.connect(app.hf.database.url, autocommit=True) as conn:
        conn.execute("select holdfast.reclaim()")
    with pytest.raises(NotClaimed):
        await jobs.mark_success(id_)
    assert shown(kit, id_)["status"] == "queued"


async def test_a_job_waits_for_its_time(jobs: JobsRepository, kit: Kit) -> None:
    later = kit.clock.now() + timedelta(hours=1)
    id_ = await jobs.enqueue(EnqueueJobInput("digest.send", None, {"to": "ada@example.org"}, later))
    await app.run_jobs_tick_dev()
    row = shown(kit, id_)
    assert (row["status"], row["next_run_at"]) == ("queued", later)


async def test_a_job_that_cannot_run_is_refused_when_it_is_enqueued(jobs: JobsRepository) -> None:
    with pytest.raises(UnknownTask, match=r"did you mean 'digest.send'"):
        await jobs.enqueue(EnqueueJobInput("digest.sent"))
    with pytest.raises(InvalidPayload, match="weekdy"):
        await jobs.enqueue(EnqueueJobInput("digest.send", None, {"to": "ada@example.org", "weekdy": "friday"}))


async def test_the_tick_endpoint_runs_at_most_n_jobs_and_says_ok(web: httpx.AsyncClient, kit: Kit) -> None:
    for n in range(app.JOBS_PER_TICK + 5):
        body = {"type": "document.index", "orgId": ORG, "payload": {"document_id": n}}
        assert (await web.post("/api/jobs", json=body)).status_code == 202
    response = await web.post("/api/jobs/tick", headers={"x-internal-secret": "s3cret"})
    assert (response.status_code, response.json()) == (200, {"ok": True})
    assert _counts() == {"success": app.JOBS_PER_TICK, "queued": 5}


async def test_many_ticks_at_once_run_each_job_once(web: httpx.AsyncClient, kit: Kit) -> None:
    for n in range(60):
        app.index_document.enqueue(n)
    secret = {"x-internal-secret": "s3cret"}
    responses = await asyncio.gather(*(web.post("/api/jobs/tick", headers=secret) for _ in range(4)))
    assert [response.json() for response in responses] == [{"ok": True}] * 4
    with psycopg.connect(app.hf.database.url) as conn:
        assert conn.execute("select sum(runs)::int from holdfast.usage").fetchone() == (60,)
        assert conn.execute("select max(attempts)::int from harmonyk.jobs").fetchone() == (1,)


async def test_the_tick_marks_failures_with_backoff(web: httpx.AsyncClient, kit: Kit) -> None:
    app.outages["team"] = 1
    id_ = app.sync_calendar.enqueue("team").id
    await web.post("/api/jobs/tick", headers={"x-internal-secret": "s3cret"})
    row = shown(kit, id_)
    assert (row["status"], row["attempts"]) == ("queued", 1)
    assert row["last_error"] == "calendar team does not respond"
    assert row["next_run_at"] > row["created_at"]
    kit.clock.travel(1.5)
    await web.post("/api/jobs/tick", headers={"x-internal-secret": "s3cret"})
    assert shown(kit, id_)["status"] == "success"


@pytest.mark.parametrize("headers", [{}, {"x-internal-secret": "guess"}])
async def test_the_tick_endpoint_is_shut_to_others(web: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await web.post("/api/jobs/tick", headers=headers)).status_code == 401


async def test_every_run_is_metered_for_insights(web: httpx.AsyncClient, kit: Kit) -> None:
    app.outages["team"] = 1
    app.sync_calendar.using(tenant=ORG).enqueue("team")
    app.send_digest.enqueue("ada@example.org")
    for _ in range(2):
        await app.run_jobs_tick_dev()
        kit.clock.travel(2)
    insights = {(row["org_id"], row["type"]): row for row in (await web.get("/api/insights")).json()}
    sync = insights[ORG, "calendar.sync"]
    assert (sync["runs"], sync["failures"], sync["reliability_percent"]) == (2, 1, 50.0)
    assert (insights[None, "digest.send"]["runs"], insights[None, "digest.send"]["failures"]) == (1, 0)
    assert sync["run_seconds"] >= 0 and sync["queue_seconds"] > 0


def _counts() -> dict[str, int]:
    with psycopg.connect(app.hf.database.url) as conn:
        return dict(conn.execute("select status, count(*)::int from harmonyk.jobs group by status").fetchall())
