"""A database is restored to an earlier time from a base backup and archived WAL, and repaired."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Delivery, Holdfast
from holdfast.cli.app import app as command_line
from holdfast.store.dev.embedded import EmbeddedPostgres
from tests.conftest import wait_until
from tests.support import standby
from tests.support.running import until, working

ENDPOINT = "select add_endpoint(uuid7(), 'https://shop.example/hook', 'secret', p_tenant => 'acme', p_dev => true)"


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[tuple[EmbeddedPostgres, dict[str, Any]]]:
    """A server that was restored to a moment, and what was there at that moment and was done after it."""
    archive = tmp_path / "archive"
    archive.mkdir()
    archive.chmod(0o777)
    command = f"cp %p {archive}/%f"
    with standby.server(tmp_path / "first", archive_mode="on", archive_command=command) as first:
        hf = Holdfast(first.dsn())
        hf.migrate()
        known = before_the_moment(hf, first)
        copy = standby.server(tmp_path / "second")
        standby.copy(first, copy, "--wal-method=none")
        with psycopg.connect(first.dsn(), autocommit=True, options="-c search_path=holdfast") as conn:
            known["moment"] = conn.execute("select clock_timestamp()").fetchone()[0]  # type: ignore[index]
            known["tokens"] = [after_the_moment(conn)]
            conn.execute("select pg_switch_wal()")
            wait_until(lambda: conn.execute("select archived_count >= 2 from pg_stat_archiver").fetchone() == (True,))
        hf.close()
    allowed = {"restore_command": f"cp {archive}/%f %p", "recovery_target_time": str(known["moment"])}
    standby.append(copy, **allowed, recovery_target_action="promote", archive_mode="off")
    signal = copy.data / "recovery.signal"
    signal.touch()
    shutil.chown(signal, copy.data.stat().st_uid, copy.data.stat().st_gid)
    with standby.launched(copy):
        wait_until(lambda: is_promoted(copy.dsn()))
        yield copy, known


def before_the_moment(hf: Holdfast, server: EmbeddedPostgres) -> dict[str, Any]:
    """Let a job run, a message and a delivery wait, and a schedule be due before long."""

    @hf.task(name="work")
    async def work(n: int) -> None: ...

    @hf.channel("mail")
    async def mail(delivery: Delivery[dict[str, str]]) -> None: ...

    work.schedule("each minute", "* * * * *", 9)
    running = work.enqueue_many(range(3)).ids
    with psycopg.connect(server.dsn(), autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute("select register_worker('gone', 'h', 1, '0.1.0', '{default}', 1, '[]')")
        conn.execute("select claim('gone', '{default}', 3, '1 hour')")
        schedule = "insert into schedules (name, task, cron, zone, missed, payload, options, next_at, registered_at)"
        for name, missed in (("all of them", "all"), ("latest", "once"), ("none", "skip")):
            conn.execute(
                f"{schedule} values (%s, 'work', '0 * * * *', 'UTC', %s, '{{\"n\": 1}}', '{{}}',"
                " date_trunc('hour', now()) - interval '3 hours', now())",
                [name, missed],
            )
    message = hf.outbox.emit(None, "mail", {"to": "a@b.c"}, key="one").id
    with psycopg.connect(server.dsn(), autocommit=True, options="-c search_path=holdfast") as conn:
        conn.execute(ENDPOINT)
        event = "select publish_event('order.paid', '{}', 'acme')"
        conn.execute(event)
        delivery = conn.execute("select id::text from live where task = 'holdfast.webhook'").fetchone()
    return {"running": running, "message": message, "delivery": delivery}


def after_the_moment(conn: psycopg.Connection[Any]) -> int:
    """Do what the restore loses: claim the message, and deliver it."""
    row = conn.execute("select distinct token from claim('gone', '{outbox}', 1)").fetchone()
    assert row is not None
    conn.execute(
        "select finish((select array_agg(id) from live where token = %s), array[%s::bigint])", [row[0], row[0]]
    )
    return int(row[0])


def is_promoted(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn) as conn:
            return conn.execute("select pg_is_in_recovery()").fetchone() == (False,)
    except psycopg.OperationalError:
        return False


def test_after_restore_puts_leases_schedules_messages_and_deliveries_in_order(
    restored: tuple[EmbeddedPostgres, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, known = restored
    with Holdfast(server.dsn()) as hf:
        plan = hf.actions.after_restore(plan=True)
        assert hf.actions.after_restore(plan=True) == plan, "a plan changes nothing"
        assert (plan.jobs, plan.workers, plan.messages, plan.deliveries) == (3, ["gone"], 1, 1)
        assert plan.newest is not None
        assert plan.newest <= known["moment"] < plan.before
        assert sorted(plan.examples) == sorted([known["message"], known["delivery"][0]])
        fires = {each.name: each.fires for each in plan.schedules if each.name != "each minute"}
        assert fires == {"all of them": 4, "latest": 1, "none": 0}

        done = hf.actions.after_restore(by="ann", reason="disk lost")
        assert (done.jobs, done.messages, done.deliveries) == (plan.jobs, plan.messages, plan.deliveries)
        assert hf.actions.after_restore().nothing, "repeated, it finds nothing"

        given_back = [hf.jobs.get(each) for each in known["running"]]
        assert [(str(it.status), it.attempts) for it in given_back if it] == [("retrying", 1)] * 3
        assert not hf.workers.list()
        message = hf.outbox.get(known["message"])
        assert (message.status, message.maybe_sent) == ("pending", True)
        delivery = hf.jobs.get(known["delivery"][0])
        assert delivery is not None
        assert (delivery.last_error or {})["code"] == "MAYBE_SENT"
        assert len([it for it in hf.jobs.list(task="work") if it.status == "queued"]) >= 5, "the slots of the schedules"
        (entry,) = hf.actions.list(kind="after_restore")
        assert (entry.by, entry.reason, entry.params["jobs"], entry.params["messages"]) == ("ann", "disk lost", 3, 1)
        with psycopg.connect(server.dsn()) as conn:
            token = conn.execute("select holdfast.next_token()").fetchone()
        assert token is not None
        assert token[0] > max(known["tokens"])


def test_the_message_is_sent_again_with_its_key_and_the_handler_knows(
    restored: tuple[EmbeddedPostgres, dict[str, Any]],
) -> None:
    server, _ = restored
    seen: list[tuple[str, bool]] = []

    async def main() -> None:
        with Holdfast(server.dsn()) as hf:

            @hf.task(name="work")
            async def work(n: int) -> None: ...

            @hf.channel("mail")
            async def mail(delivery: Delivery[dict[str, str]]) -> None:
                seen.append((delivery.key, delivery.maybe_sent))

            await hf.actions.aafter_restore()
            async with working(hf, queues="default,outbox"):
                await until(lambda: seen)
            await hf.aclose()

    asyncio.run(main())
    assert seen == [("one", True)]


def test_the_command_shows_a_plan_and_does_it(
    restored: tuple[EmbeddedPostgres, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, _ = restored

    def run(*arguments: str) -> str:
        command_line(["after-restore", "--dsn", server.dsn(), *arguments], standalone_mode=False)
        return capsys.readouterr().out

    planned = run("--plan")
    assert "reclaim 3 running jobs of 1 worker that no longer exist" in planned
    assert "mark 1 message and 1 delivery that may have been sent already" in planned
    assert "fire 4 missed slots of schedule all of them (all)" in planned
    assert json.loads(run("--yes", "--json", "--by", "ann"))["jobs"] == 3
    assert "nothing to do" in run("--plan")
