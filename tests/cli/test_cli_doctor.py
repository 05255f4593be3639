"""`holdfast doctor`: finds what is wrong and says what to do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.cli import checks
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.store.doctor import Pooling
from tests.support.program import as_json, holdfast, ran

Sql = Callable[..., list[tuple[Any, ...]]]


def examined(dsn: str, *arguments: str) -> dict[str, dict[str, str]]:
    """Return the doctor's findings by name."""
    return {each["name"]: each for each in json.loads(holdfast(dsn, "doctor", "--json", *arguments).stdout)["checks"]}


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database on a server that waits for the disk, which those of the other tests do not."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("pg")) as server:
        Holdfast(server.dsn()).migrate()
        yield server.dsn()


def test_a_sound_database_gets_only_oks(durable: str) -> None:
    dsn = durable
    result = holdfast(dsn, "doctor")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.endswith("no problems found\n")
    document = as_json(holdfast(dsn, "doctor", "--json"))
    assert document["ok"] is True
    assert [each["name"] for each in document["checks"]] == [
        "versions",
        "database",
        "server",
        "servers",
        "clock",
        "durability",
        "settings",
        "connections",
        "pooler",
        "vacuum",
        "schema",
        "rights",
        "bloat",
        "history",
        "workers",
        "queues",
        "tasks",
        "levels",
        "schedules",
        "batches",
        "limits",
        "dead",
    ]
    assert {each["level"] for each in document["checks"]} == {"ok"}
    assert {"name": "pooler", "level": "ok", "found": "none", "advice": ""} in document["checks"]


def test_on_a_narrow_terminal_lines_break_between_words_and_below_the_text(dsn: str) -> None:
    result = ran(dsn, "doctor", COLUMNS="60", FORCE_COLOR="1")
    lines = re.sub(r"\x1b\[[\d;]*m", "", result.stdout).splitlines()
    assert max(map(len, lines)) <= 60
    second = lines[1]
    assert lines[0].startswith("ok      versions     holdfast ") and second.startswith(" " * 21) and second[21] != " "


def test_a_transaction_held_open_is_named_with_its_query(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("SELECT pg_current_xact_id(), 'held by a careless report'")
        found = examined(dsn, "--max-age", "0")["vacuum"]
        assert found["level"] == "warning"
        assert f"pid {conn.info.backend_pid}" in found["found"]
        assert "SELECT pg_current_xact_id(), 'held by a careless report'" in found["found"]
        assert f"pg_terminate_backend({conn.info.backend_pid})" in found["advice"]
        assert examined(dsn)["vacuum"]["level"] == "ok"  # not older than five minutes


def test_a_schema_that_is_not_set_up_is_an_error_and_ends_the_examination(dsn: str) -> None:
    result = holdfast(dsn, "doctor", "--schema", "not_there")
    assert result.exit_code == 1
    assert "run: holdfast migrate" in result.stdout
    assert list(examined(dsn, "--schema", "not_there"))[-1] == "schema"


def test_commits_that_do_not_wait_for_the_disk_are_a_warning(durable: str) -> None:
    found = examined(f"{durable}&options=-c%20synchronous_commit%3Doff")["durability"]
    assert found["level"] == "warning"
    assert "set synchronous_commit = on" in found["advice"]


@pytest.mark.parametrize(
    ("off", "level"), [("fsync", "error"), ("full_page_writes", "warning"), ("synchronous_commit", "warning")]
)
def test_each_durability_setting_is_judged(off: str, level: str) -> None:
    settings = {name: "off" if name == off else "on" for name in checks.DURABILITY}
    assert checks.judge_durability(settings).level == level


@pytest.mark.parametrize(
    ("setting", "level", "found"),
    [
        ("default_transaction_read_only=on", "error", "default_transaction_read_only is on"),
        ("idle_in_transaction_session_timeout=5s", "warning", "idle_in_transaction_session_timeout is 5"),
        ("idle_session_timeout=10min", "warning", "idle_session_timeout is 10 min"),
        ("default_transaction_isolation=serializable", "ok", "transactions are serializable by default"),
    ],
)
def test_settings_that_connections_begin_with_are_judged(dsn: str, setting: str, level: str, found: str) -> None:
    check = examined(f"{dsn} options='-c {setting}'")["settings"]
    assert (check["level"], found in check["found"]) == (level, True), check
    assert check["advice"]


def test_a_database_in_another_encoding_is_a_warning() -> None:
    settings = dict.fromkeys(checks.SESSION, "0") | {"server_encoding": "LATIN1"}
    assert "characters that LATIN1 lacks" in checks.judge_settings(settings).advice


def test_a_database_that_is_away_is_an_error(dsn: str) -> None:
    result = holdfast("postgresql://postgres@127.0.0.1:1/x?connect_timeout=2", "doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["checks"][-1]["name"] == "database"
    assert holdfast("", "doctor").exit_code == 1


def test_waiting_and_dead_jobs_are_counted_up_to_a_bound(dsn: str, sql: Sql) -> None:
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 10001)")
    sql(
        "insert into dead (id, status, finished_at, queue, priority, lane, run_at, created_at, attempt, max_attempts, "
        "task, payload) select gen_random_uuid(), 'dead', now(), 'default', 2, 0, now(), now(), 1, 1, 't', '{}' "
        "from generate_series(1, 10001)"
    )
    found = examined(dsn)
    assert "default (10,000+ jobs)" in found["queues"]["found"]
    assert found["dead"]["found"].startswith("10,000+ failed or dead jobs")
    assert "newest 50 of 10,000+" in holdfast(dsn, "dead").stderr


def test_queues_without_workers_and_expired_leases_are_reported(dsn: str, hf: Holdfast, sql: Sql) -> None:
    for queue in ("default", "mail", "mail"):
        sql("SELECT enqueue('app.send', p_queue => %s)", [queue])
    assert "default (1 job), mail (2 jobs)" in examined(dsn)["queues"]["found"]
    hf.database.sync_pool.run(hf.database.calls.workers.register("w1", "host", 1, "0", ["mail"], 1, []))
    assert "mail" not in examined(dsn)["queues"]["found"]
    sql("SELECT * FROM claim('w1', '{mail}', 2)")
    sql("UPDATE claims SET expires_at = now() - interval '1 hour'")
    assert examined(dsn)["workers"]["level"] == "warning"
    sql("UPDATE workers SET heartbeat_at = now() - interval '1 hour'")
    found = examined(dsn)["workers"]
    assert found["level"] == "error"
    assert "no worker is alive" in found["advice"]


def test_a_channel_that_no_worker_has_ever_known_is_reported(dsn: str, hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="app.send")
    async def send() -> None: ...

    with psycopg.connect(dsn) as conn:
        hf.outbox.emit(conn, "mial", {"to": "ann"}, key="1")
    sql("SELECT enqueue('app.send', p_queue => 'mail')")
    assert examined(dsn)["tasks"]["level"] == "ok", "no worker has registered its tasks yet"
    assert "mail (1 job), outbox (1 job)" in examined(dsn)["queues"]["found"]
    hf.tick()
    found = examined(dsn)
    assert found["tasks"]["found"] == "no worker has ever registered channel 'mial' (1 job)"
    assert found["queues"]["found"] == "no live worker serves mail (1 job)", "one for outbox would not help"
    hf.tick(queues=["outbox"])  # put off
    assert "channel 'mial' (1 job)" in examined(dsn)["tasks"]["found"]


def test_dead_jobs_rows_without_partition_and_missing_partitions_are_reported(dsn: str, sql: Sql) -> None:
    sql("SELECT enqueue('app.send')")
    ((id_, token, *_),) = sql("SELECT * FROM claim('w1')")
    sql("SELECT fail(%s, %s, p_outcome => 'failed')", [id_, token])
    assert "1 failed or dead job" in examined(dsn)["dead"]["found"]
    sql(
        "INSERT INTO history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, "
        "task, payload) "
        "VALUES (gen_random_uuid(), 'succeeded', 2, 1, 5, now(), now(), '2020-01-01', 'default', 'app.send', '{}')"
    )
    assert "1 rows are in history_default" in examined(dsn)["history"]["found"]


def test_a_user_without_rights_learns_which_role_to_request(dsn: str, sql: Sql) -> None:
    user = f"cli_weak_{os.getpid()}"  # roles belong to the whole server, which other test runs share
    sql(f"CREATE ROLE {user} LOGIN IN ROLE holdfast_reader")
    try:
        found = examined(psycopg.conninfo.make_conninfo(dsn, user=user))["rights"]
        assert found["level"] == "error"
        assert found["advice"] == f"GRANT holdfast_worker TO {user}"
        sql(f"GRANT holdfast_enqueue TO {user}")
        assert examined(psycopg.conninfo.make_conninfo(dsn, user=user))["rights"]["level"] == "warning"
    finally:
        sql(f"DROP ROLE {user}")


def test_a_pooler_in_transaction_mode_must_be_declared() -> None:
    assert checks.judge_pooler(Pooling(present=True, moves=True), configured=False).advice == "set HOLDFAST_POOLER=1"
    assert checks.judge_pooler(Pooling(present=True, moves=True), configured=True).level == "ok"
    assert checks.judge_pooler(Pooling(present=True, moves=False), configured=False).found == "a pooler in session mode"
    assert checks.judge_pooler(Pooling(present=False, moves=False), configured=False).found == "none"


def test_clocks_that_differ_are_a_warning_unless_the_way_was_slow() -> None:
    assert checks.judge_clock(-1.2, 0.01).level == "warning"
    assert checks.judge_clock(1.2, 0.6).level == "ok"


def test_bloat_is_a_warning_only_when_vacuum_does_not_come() -> None:
    row = {"live": 10, "dead": 500_000, "bytes": 1, "vacuumed_ago": 20.0, "switched_off": False, "autovacuum": "on"}
    assert checks.judge_bloat(row, "ours").level == "ok"
    assert checks.judge_bloat(row | {"vacuumed_ago": None}, "ours").level == "warning"
    off = checks.judge_bloat(row | {"switched_off": True}, "ours")
    assert off.level == "warning" and "ALTER TABLE ours.live RESET (autovacuum_enabled)" in off.advice
    assert "ALTER SYSTEM SET autovacuum = on" in checks.judge_bloat(row | {"autovacuum": "off"}, "ours").advice


def test_a_broker_is_looked_at_where_one_is_to_be_used(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_AMQP_ENABLED", "1")
    monkeypatch.setenv("HOLDFAST_AMQP_URL", "amqp://guest:s3cr3t@127.0.0.1:1/")
    found = examined(dsn)["rabbitmq"]
    assert found["level"] == "warning" and found["found"].startswith("127.0.0.1:1 cannot be used: ")
    assert "s3cr3t" not in str(found)


def test_a_schedule_that_does_not_fire_is_reported(dsn: str, sql: Sql) -> None:
    insert = (
        "insert into schedules (name, task, cron, zone, missed, payload, options, paused, next_at, registered_at) "
        "values (%s, 't', '0 3 * * *', 'UTC', 'once', '{}', '{}', %s, now() - make_interval(secs => %s), now())"
    )
    sql(insert, ["rests", True, 7200])
    sql(insert, ["in time", False, 5])
    assert examined(dsn)["schedules"]["found"] == "1 schedule in time"
    sql(insert, ["forgotten", False, 7200])
    found = examined(dsn)["schedules"]
    assert (found["level"], found["found"]) == ("warning", "1 schedule not fired, 'forgotten' the first: due for 2 h")
    sql("""select fire_schedules('[{"name": "in time", "problem": "no such zone"}]')""")
    assert "2 schedules not fired" in examined(dsn)["schedules"]["found"]


def test_batches_that_are_left_open_or_cannot_end_are_reported(dsn: str, hf: Holdfast, sql: Sql) -> None:
    @hf.task()
    async def report(batch: str) -> None: ...

    with hf.batch("import") as batch:
        assert examined(dsn)["batches"]["level"] == "ok"
        sql("update batches set created_at = now() - interval '2 hours'")
        found = examined(dsn)["batches"]
    assert (found["level"], found["found"]) == ("warning", "1 batch with nothing to do still open, 'import' the first")
    assert batch.id in found["advice"]
    assert examined(dsn)["batches"]["level"] == "ok", "it has ended"
    with hf.batch("second", on_done=report):
        sql("update batches set on_done = on_done || '{\"queue\": \"a/b\"}', created_at = now() - interval '2 hours'")
    found = examined(dsn)["batches"]
    assert (found["level"], found["found"]) == ("warning", "1 batch cannot end, 'second' the first")


def test_waiting_deliveries_call_for_a_worker_with_the_extra(dsn: str, hf: Holdfast) -> None:
    hf.webhooks.test(hf.webhooks.add("https://example.org/hook").id)
    found = examined(dsn)["queues"]
    assert (found["level"], found["found"]) == ("warning", "no live worker serves webhooks (1 job)")
    assert "--queues webhooks" in found["advice"] and "holdfast-jobs[webhooks]" in found["advice"]


@pytest.mark.parametrize(
    ("roles", "level"),
    [
        (["primary"], "ok"),
        (["primary", "standby"], "ok"),
        (["primary", "unreachable (refused)"], "warning"),
        (["primary", "primary"], "error"),
    ],
)
def test_the_servers_of_a_dsn_are_all_there_and_one_is_the_primary(roles: list[str], level: str) -> None:
    assert checks.judge_servers([(f"db{n}:5432", role) for n, role in enumerate(roles)]).level == level


def test_each_server_of_a_dsn_is_asked_for_its_role(dsn: str, tmp_path: Path) -> None:
    host = psycopg.conninfo.conninfo_to_dict(dsn)["host"]
    away = psycopg.conninfo.make_conninfo(dsn, host=f"{tmp_path},{host}", port="5432")
    found = examined(away)["servers"]
    assert (found["level"], f"{host}:5432 primary" in found["found"]) == ("warning", True)
