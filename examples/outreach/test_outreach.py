"""Document 003, sentence by sentence, on a real PostgreSQL; HS1 to HS3 with real worker processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from holdfast import Delivery, Holdfast
from holdfast.testing import Kit
from outreach import app, fake_provider
from outreach.__main__ import ticking
from outreach.fake_provider import Provider, Receipt
from outreach.trials import DUPLICATES, STUCK, Trials
from stage import Stage, at_work

LOCK_TIMEOUT = 2.0
# As an operator would write it.
UNLOCK = """
UPDATE job_queue
SET status = 'queued', locked_at = NULL, locked_by = NULL
WHERE status = 'locked'
AND locked_at < now() - interval '5 minutes';
"""


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return app.hf


@pytest.fixture(scope="session")
def outreach_template(holdfast_template: str) -> str:
    with psycopg.connect(holdfast_template, autocommit=True) as conn:
        conn.execute(Path(__file__).with_name("schema.sql").read_bytes())
    return holdfast_template


@pytest.fixture
def kit(outreach_template: str, holdfast_kit: Kit) -> Kit:
    return holdfast_kit


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with fake_provider.running(delay=0.01) as made:
        monkeypatch.setenv("PROVIDER_URL", made.url)
        yield made


@pytest.fixture
def trials(kit: Kit, provider: Provider, tmp_path: Path) -> Iterator[Trials]:
    with psycopg.connect(app.hf.database.url, autocommit=True, row_factory=namedtuple_row) as conn:
        yield Trials(Stage("outreach", app.hf, conn, tmp_path), provider, LOCK_TIMEOUT)


def tick() -> str:
    """Run a tick as cron does, and return which service ran it."""
    return app.hf.tick(**app.TICKS[0]).worker


# --- configuration --------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_documents_numbers() -> None:
    """200 a tick, 25 of a tenant, locks of 5 minutes; in a process that has none of this file's settings."""
    show = "from outreach import app; print(app.TICKS[0], app.hf.settings.lease, app.hf.settings.renew)"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAX_JOBS", "LOCK_TIMEOUT"))}
    output = subprocess.run(
        [sys.executable, "-c", show], env=env, cwd=Path(__file__).parents[1], capture_output=True, check=True, text=True
    )
    assert output.stdout.split("\n")[0] == "{'max_jobs': 200, 'per_tenant': 25, 'queues': ['default']} 300.0 20.0"


def test_every_worker_has_an_id_of_its_own(kit: Kit, provider: Provider) -> None:
    first, second = tick(), tick()
    assert first != second
    assert re.fullmatch(r"worker-\d{13}-[0-9a-f]+", first)


# --- one job --------------------------------------------------------------------------------------------------------


def test_a_jobs_row_its_message_and_its_end_are_one_transaction(trials: Trials, kit: Kit) -> None:
    app.enqueue("spring", {"acme": 1})
    kit.drain()
    assert trials.stage.rows("select tenant_id, contact, channel from touches") == [("acme", "0@acme.example", "sms")]
    assert list(trials.provider.receipts) == ["sms/acme/spring:0@acme.example"]
    unknown = app.touch.using(tenant="nobody").enqueue("ada@example.org", "spring")
    kit.drain(raise_errors=False)
    assert trials.stage.rows("select status from job_queue where id = %s", unknown.id) == [("queued",)]
    kit.assert_emitted(app.email, count=0)


def test_one_key_makes_one_message_however_many_jobs_ask_for_it(trials: Trials, kit: Kit) -> None:
    app.enqueue("spring", {"acme": 3})
    app.enqueue("spring", {"acme": 3})
    kit.drain()
    assert trials.value("select count(*) from channel_outbox where status = 'delivered'") == 3
    assert trials.stage.rows(DUPLICATES) == []
    assert (len(trials.provider.receipts), trials.provider.refused) == (3, 0)


@pytest.mark.parametrize(("there", "maybe_sent"), [(True, True), (False, True), (True, False), (False, False)])
async def test_an_attempt_in_doubt_asks_before_it_sends(provider: Provider, there: bool, maybe_sent: bool) -> None:
    """When the send does not know of an earlier one, the provider's own check of the key prevents a repeat."""
    delivery = Delivery(app.Message("ada@acme.example", "hi"), "k", "email", "acme", maybe_sent=maybe_sent)
    if there:
        provider.receipts[delivery.idempotency_key] = Receipt(0, 0, 1)
    async with AsyncExitStack() as stack:
        await app.email(delivery, http=await app.provider.open(stack))
    assert list(provider.receipts) == ["email/acme/k"]
    assert (len(provider.lookups), provider.refused) == (int(maybe_sent), int(there and not maybe_sent))


# --- the table, and its remedy --------------------------------------------------------------------------------------


def claimed(conn: psycopg.Connection[Any], jobs: int = 1) -> None:
    conn.execute("select holdfast.claim('worker-1-dead', '{default}', %s, '5 minutes')", [jobs])


def test_a_job_is_queued_then_locked_then_completed(trials: Trials, kit: Kit) -> None:
    look = "select status, locked_by, locked_at is not null, attempts from job_queue"
    app.enqueue("spring", {"acme": 1})
    assert trials.stage.rows(look) == [("queued", None, False, 0)]
    claimed(trials.stage.conn)
    assert trials.stage.rows(look) == [("locked", "worker-1-dead", True, 1)]
    trials.stage.conn.execute("update holdfast.claims set expires_at = now()")
    kit.drain(until=timedelta(minutes=1))
    ((status, worker, _, attempts),) = trials.stage.rows(look)
    assert (status, attempts) == ("completed", 2) and worker != "worker-1-dead"


def test_the_documents_update_unlocks_what_a_dead_worker_held(trials: Trials, kit: Kit) -> None:
    """Six minutes after its last heartbeat."""
    kit.clock.travel(timedelta(minutes=-6))
    app.enqueue("spring", {"acme": 2})
    claimed(trials.stage.conn, 2)
    kit.clock.reset()
    assert len(trials.stage.rows(STUCK)) == 2
    assert trials.stage.conn.execute(UNLOCK).rowcount == 2
    assert trials.stage.rows(STUCK) == []
    assert trials.stage.rows("select distinct status, locked_by, locked_at from job_queue") == [("queued", None, None)]


def test_a_living_workers_job_cannot_be_unlocked(trials: Trials, kit: Kit) -> None:
    """The document's UPDATE leaves it alone; an UPDATE that includes it is refused, since it would run twice."""
    app.enqueue("spring", {"acme": 1})
    claimed(trials.stage.conn)
    assert trials.stage.conn.execute(UNLOCK).rowcount == 0
    with pytest.raises(psycopg.errors.RaiseException, match="worker-1-dead, which is alive"):
        trials.stage.conn.execute("update job_queue set status = 'queued'")


# --- fairness -------------------------------------------------------------------------------------------------------


def test_fair1_no_tenant_gets_more_than_25_of_a_tick(trials: Trials) -> None:
    """Throttled jobs stay where they are: nothing is claimed and released, so no attempt and no turn is lost."""
    trials.fair1(tick, 2)
    assert trials.stage.broken == []


def test_fair2_all_tenants_advance_in_every_tick(trials: Trials) -> None:
    app.enqueue("fair1", {"flood": 100})
    trials.fair2(tick, 2)
    assert trials.stage.broken == []


def test_within_a_tenant_jobs_go_in_the_order_scheduled_for_created_at(trials: Trials, kit: Kit) -> None:
    app.enqueue("spring", {"acme": 40})
    app.hf.tick(max_jobs=10)
    done = trials.stage.rows("select id from job_queue where status = 'completed' order by id")
    assert done == trials.stage.rows("select id from job_queue order by scheduled_for, created_at, id limit 10")


# --- many workers ---------------------------------------------------------------------------------------------------


def test_ticks_invoked_concurrently_over_http_do_each_job_once(trials: Trials) -> None:
    """The document's two curls, four times at once; each keeps its bounds."""
    jobs = app.enqueue("spring", {f"tenant-{n}": 8 for n in range(4)})
    with ticking(trials) as post, ThreadPoolExecutor(4) as cron:
        while trials.unsent():
            list(cron.map(lambda _: post(), range(4)))
    trials.once_each("spring", "spring", jobs)
    assert trials.stage.broken == []
    assert trials.value("select max(attempts) from job_queue") == 1
    most = trials.stage.rows(
        "select jobs_claimed, t.value::int from worker_tick_metrics, jsonb_each_text(tenant_jobs) t"
    )
    assert most and max(most)[0] <= 200 and max(each for _, each in most) <= 25


def test_hs1_two_workers_do_each_job_once_and_hs2_a_crash_resends_nothing(trials: Trials) -> None:
    with at_work(*trials.workers("one", "two")) as (victim, _):
        trials.hs1(each=12)
        trials.hs2(victim, each=8)
    assert trials.stage.broken == []


def test_hs3_throughput_scales_and_four_workers_are_stable_under_load(trials: Trials) -> None:
    with at_work(*trials.workers("one", "two", "three", "four")) as four:
        trials.load(each=20, seconds=1)
        summary = trials.stage.rows("select window_count, total_jobs_succeeded from worker_health_summary")
        trials.hs3(four, delay=0.5)
        assert [each.process.poll() for each in four] == [None, 0, 0, 0], "down again, without a word to the one left"
    assert trials.stage.broken == []
    assert len(summary) == 4 and all(windows and jobs for windows, jobs in summary)


# --- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        (
            "worker_tick_metrics",
            "worker_id tick_started_at tick_duration_ms jobs_claimed jobs_processed jobs_succeeded "
            "jobs_failed jobs_throttled lock_contention_count tenant_jobs queue_depth_at_start",
        ),
        (
            "worker_health_summary",
            "worker_id tick_count avg_tick_duration_ms total_jobs_claimed total_jobs_succeeded "
            "total_lock_contentions last_tick_at",
        ),
    ],
)
def test_the_metrics_have_the_documents_columns(trials: Trials, view: str, columns: str) -> None:
    app.enqueue("spring", {"acme": 3, "birch": 1})
    app.hf.tick(max_jobs=4)
    rows = trials.stage.conn.execute(f"select * from {view}")
    names = [column.name for column in rows.description or ()]
    assert set(columns.split()) <= set(names)
    row = dict(zip(names, rows.fetchone() or (), strict=True))
    if view == "worker_tick_metrics":
        assert (row["jobs_claimed"], row["jobs_succeeded"], row["queue_depth_at_start"]) == (4, 4, 4)
        assert row["tenant_jobs"] == {"acme": 3, "birch": 1}
    else:
        assert (row["tick_count"], row["total_jobs_claimed"], row["total_lock_contentions"]) == (1, 4, 0)
