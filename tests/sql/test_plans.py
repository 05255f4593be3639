"""Query plans: their shape, the rows they read and the share of HOT updates are promises too,
because they decide whether a large backlog is as fast as a small one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast.store.migrations import sql_files
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Claimed, Sql

FUNCTIONS = dict(sql_files("functions"))
CURSOR = ("2026-01-01 00:00:00+00", "00000000-0000-7000-8000-000000000000")
# How a claim finds jobs: the function, its variables by name and type, and their values here.
FETCHES: dict[str, dict[str, tuple[str, Any]]] = {
    "claim": {
        "v.queue": ("text", "default"),
        "v.priority": ("integer", 2),
        "v.mark_at": ("timestamptz", CURSOR[0]),
        "v.mark_id": ("uuid", CURSOR[1]),
        "p_limit": ("integer", 500),
        "v_now": ("timestamptz", CURSOR[0]),
    },
    "claim_plain": {
        "p_queue": ("text", "default"),
        "p_priority": ("integer", 2),
        "v_at": ("timestamptz", CURSOR[0]),
        "v_id": ("uuid", CURSOR[1]),
        "p_claim.most": ("integer", 500),
        "p_claim.ids": ("uuid[]", []),
        "p_claim.tasks": ("text[]", None),
    },
    "claim_round": {
        "p_queue": ("text", "default"),
        "p_priority": ("integer", 2),
        "g.lane": ("bigint", 7),
        "g.tenant": ("text", "acme"),
        "g.ordered": ("boolean", False),
        "g.own": ("text[]", None),
        "g.mark_at": ("timestamptz", CURSOR[0]),
        "g.mark_id": ("uuid", CURSOR[1]),
        "g.take": ("integer", 8),
        "p_claim.ids": ("uuid[]", []),
        "p_claim.tasks": ("text[]", None),
    },
}


# -- the plan


def inner_select(function: str) -> str:
    """The select that finds jobs, as it stands in the function, its variables as parameters."""
    source = FUNCTIONS[f"{function}.sql"]
    (text,) = re.findall(r"(select j\.ctid as place, j\.id, j\.dedupe_key.*?skip locked)", source, re.DOTALL)
    for place, (name, (kind, _)) in enumerate(FETCHES[function].items(), 1):
        assert name in text, f"the select of {function} has changed; adapt this test"
        text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", f"${place}::{kind}", text)
    return text


def plan(conn: psycopg.Connection, function: str) -> str:
    """Return how the function finds jobs, under the settings that a claim carries."""
    conn.execute("deallocate all")
    ((config,),) = conn.execute(
        "select proconfig from pg_proc where proname = 'claim' and pronamespace = 'holdfast'::regnamespace"
    )
    with conn.transaction(force_rollback=True):
        for setting in config:
            name, _, value = setting.partition("=")
            conn.execute("select set_config(%s, %s, true)", [name, value])
        conn.execute(f"prepare inner_select as {inner_select(function)}")
        values = [psycopg.sql.Literal(value) for _, value in FETCHES[function].values()]
        query = psycopg.sql.SQL("explain (costs off) execute inner_select({})")
        rows = conn.execute(query.format(psycopg.sql.SQL(", ").join(values))).fetchall()
    conn.execute("deallocate all")
    return "\n".join(row[0] for row in rows)


def check_plan(text: str) -> None:
    assert re.search(r"Index (Only )?Scan using live_fetch on live", text), text
    assert "Sort" not in text, text
    assert "Seq Scan" not in text, text
    assert "Bitmap" not in text, text
    (condition,) = re.findall(r"Index Cond: (.*)", text)
    for column in ("queue", "priority", "lane", "ROW(run_at, id)"):
        assert column in condition, f"{column} is not looked up in the index: {text}"


@pytest.fixture
def conn(each_dsn: str) -> Iterator[psycopg.Connection]:
    with core.session(each_dsn) as conn:
        yield conn


def fill(conn: psycopg.Connection, rows: int) -> None:
    conn.execute(
        "insert into live (id, task, queue, priority, lane) select gen_random_uuid(), 't', "
        "(array['default', 'default', 'mail'])[1 + i %% 3], i %% 4, i / 1000 from generate_series(1, %s) i",
        [rows],
    )


@pytest.mark.parametrize("function", FETCHES)
def test_the_plan_walks_the_fetch_index_whatever_the_statistics_say(conn: psycopg.Connection, function: str) -> None:
    conn.execute("vacuum analyze live")
    check_plan(plan(conn, function))  # nothing there, and the statistics know it
    fill(conn, 20_000)
    check_plan(plan(conn, function))  # statistics of an empty table, and 20,000 rows
    conn.execute("analyze live")
    check_plan(plan(conn, function))  # statistics that are right
    conn.execute("truncate live")
    check_plan(plan(conn, function))  # statistics of a large table, and nothing there


def test_the_plan_inside_the_function_is_the_one_explained_here(each_dsn: str) -> None:
    with core.session(each_dsn) as conn:
        try:
            conn.execute("load 'auto_explain'")
        except psycopg.errors.UndefinedFile:
            pytest.skip("this server has no auto_explain; the plan is checked by its text above")
        payloads: list[str] = []
        conn.add_notice_handler(lambda notice: payloads.append(notice.message_primary or ""))
        conn.execute("insert into live (id, task) values (gen_random_uuid(), 't')")
        for name, value in {"log_min_duration": "0", "log_nested_statements": "on", "log_level": "notice"}.items():
            conn.execute(f"set auto_explain.{name} = '{value}'")
        conn.execute("select * from claim('w', p_limit => 5)").fetchall()
        fill(conn, 2000)
        conn.execute("select * from claim('w', p_limit => 5)").fetchall()
        conn.execute("set auto_explain.log_min_duration = -1")
    inner = [text for text in payloads if "from live j" in text and "explain" not in text]
    for lane in ("j.lane = 0", "j.lane = g.lane"):
        fetches = [text for text in inner if "skip locked" in text and lane in text]
        assert fetches
        for text in fetches:
            assert re.search(
                r"LockRows.*?-> +Index Scan using live_fetch on live j.*?ROW\(run_at, id\)", text, re.DOTALL
            ), text
    for text in inner:  # all reads use the same index, or rows whose place is known
        assert re.search(r"using live_fetch on live|Tid Scan on live", text), text
        assert "Seq Scan on live" not in text, text


# -- the cost of everything else


def prepare(sql: Sql, rows: int) -> None:
    """Insert a backlog of waiting, delayed and dead jobs, one in ten with a dedupe key."""
    columns = "queue, priority, lane, run_at, created_at, attempt, max_attempts, task, payload, dedupe_key"
    values = (
        "gen_random_uuid(), 'default', 2, 0, now() - i * interval '1 second', now(), 0, 5, 't', '{}', "
        "case when i %% 10 = 0 then '%s-' || i end from generate_series(1, %s) i"
    )
    for table in ("live", "later"):
        sql(f"insert into {table} (id, {columns}) select {values % (table, rows)}".replace("%%", "%"))
    finals = values.replace("gen_random_uuid()", "gen_random_uuid(), 'dead', now()") % ("dead", rows)
    sql(f"insert into dead (id, status, finished_at, {columns}) select {finals}".replace("%%", "%"))
    sql("insert into dedupe (key, id, scope) select dedupe_key, id, 'running' from live where dedupe_key is not null")


def end_with(sql: Sql, jobs: list[Claimed], outcome: str) -> None:
    results = [{"id": str(j.id), "token": j.token, "outcome": outcome, "delay": 9} for j in jobs]
    sql("select finish('{}', '{}', %s::jsonb)", [psycopg.types.json.Jsonb(results)])


def let_lease_lapse(sql: Sql, jobs: list[Claimed]) -> None:
    sql("delete from claims")
    ids = [j.id for j in jobs]
    sql("insert into claims values (%s, 'w', clock(), clock(), clock() - interval '1 s', %s)", [jobs[0].token, ids])
    core.reclaim(sql)


# The writes to claimed jobs, and to jobs in the three tables of unclaimed ones.
TO_CLAIMED: dict[str, Callable[[Sql, list[Claimed]], Any]] = {
    "finish": lambda sql, jobs: core.finish(sql, *jobs),
    "error": lambda sql, jobs: end_with(sql, jobs, "error"),
    "snoozed": lambda sql, jobs: end_with(sql, jobs, "snoozed"),
    "released": lambda sql, jobs: end_with(sql, jobs, "released"),
    "failed": lambda sql, jobs: end_with(sql, jobs, "failed"),
    "succeeded": lambda sql, jobs: end_with(sql, jobs, "succeeded"),
    "reclaim": let_lease_lapse,
    "cancel running": lambda sql, jobs: core.cancel(sql, *(j.id for j in jobs)),
    "error of a job to be canceled": lambda sql, jobs: (
        core.cancel(sql, *(j.id for j in jobs)),
        end_with(sql, jobs, "error"),
    ),
    "report progress": lambda sql, jobs: sql(
        "select report_progress(%s::jsonb)",
        [psycopg.types.json.Jsonb([{"id": str(j.id), "token": j.token, "done": 1} for j in jobs])],
    ),
    "wanted_cancels": lambda sql, jobs: sql("select wanted_cancels(%s)", [[jobs[0].token]]),
}
NOTIFICATIONS: dict[str, tuple[str, Callable[[Sql, list[uuid.UUID]], Any]]] = {
    "claim": ("live", lambda sql, ids: core.claim(sql, limit=len(ids))),
    "promote": ("later", lambda sql, ids: core.promote(sql, len(ids))),
    "cancel waiting": ("live", lambda sql, ids: core.cancel(sql, *ids)),
    "cancel delayed": ("later", lambda sql, ids: core.cancel(sql, *ids)),
    "retry_dead": ("dead", lambda sql, ids: core.retry_dead(sql, *ids)),
    "discard_dead": ("dead", lambda sql, ids: core.discard_dead(sql, *ids)),
    "enqueue again": ("dead", lambda sql, ids: [core.enqueue(sql, id=i) for i in ids]),
    "enqueue with a held key": ("live", lambda sql, ids: [core.enqueue(sql, dedupe_key="live-10") for _ in ids]),
    "expire waiting": ("live", lambda sql, ids: expire(sql, "live", ids)),
    "expire delayed": ("later", lambda sql, ids: expire(sql, "later", ids)),
    "job_marks": ("live", lambda sql, ids: sql("select job_marks(%s)", [ids])),
    "retry, as an action": ("dead", lambda sql, ids: act(sql, "retry", ids)),
    "cancel, as an action": ("live", lambda sql, ids: act(sql, "cancel", ids)),
    "page_floor": ("live", lambda sql, ids: sql("select page_floor(null, %s)", [len(ids)])),
    "page_floor of the dead": ("dead", lambda sql, ids: sql("select page_floor(null, %s, '{dead}')", [len(ids)])),
    "cancel_batch of waiting jobs": ("live", lambda sql, ids: cancel_batch(sql, "live", ids)),
    "cancel_batch of delayed jobs": ("later", lambda sql, ids: cancel_batch(sql, "later", ids)),
}


def expire(sql: Sql, table: str, ids: list[uuid.UUID]) -> None:
    sql(f"update {table} set deadline = clock() - interval '1 s' where id = any (%s)", [ids])
    assert sql("select expire()") == [(len(ids),)]


def act(sql: Sql, kind: str, ids: list[uuid.UUID]) -> None:
    sql("select start_action(%s, p_ids => %s)", [kind, ids])
    sql("select work_actions()")
    assert sql("select state, changed from actions") == [("done", len(ids))]
    sql("delete from actions")


def scan(sql: Sql, kind: str) -> None:
    """Make one step of an action: it reads 500 jobs, by id and then each by its id, however many there are."""
    sql('select start_action(%s, \'{"task": "nowhere"}\', p_ids => null)', [kind])
    before = rows_read(sql)
    sql("select work_actions(p_within => '0')")
    assert rows_read(sql) - before <= 1200
    sql("delete from actions")


def cancel_batch(sql: Sql, table: str, ids: list[uuid.UUID]) -> None:
    batch = uuid.uuid4()
    sql("select open_batch(%s, 'b')", [batch])
    sql("select add_to_batch(%s, %s)", [batch, len(ids)])
    sql(f"update {table} set batch = %s where id = any (%s)", [batch, ids])
    assert sql("select cancel_batch(%s)", [batch]) == [(len(ids),)]
    assert sql("select cancel_batch(%s)", [batch]) == [(0,)]
    assert sql("select status, canceled from batch_progress where id = %s", [batch]) == [("canceled", len(ids))]


BACKLOG, BATCH = 4000, 50
BUSY = ("live", "later", "dead", "dedupe", "claims", "cancels", "batches", "batch_counts")


@pytest.fixture
def worker(dsn: str, sql: Sql) -> Iterator[Sql]:
    """A session that begins after a backlog was drained and vacuumed: PostgreSQL knows that nothing is there."""
    prepare(sql, 1000)
    sql("; ".join(f"delete from {table}" for table in BUSY))
    sql(f"vacuum (analyze, truncate false) {', '.join(BUSY)}")
    with core.session(dsn) as conn:
        yield core.runner(conn)


def check_rows_read(sql: Sql, worker: Sql, operation: Callable[[], Any]) -> None:
    flush(sql)
    before = rows_read(worker)
    operation()
    read = rows_read(worker) - before
    assert read <= 20 * BATCH, f"{read:,} rows were read to handle {BATCH} of {BACKLOG:,} jobs"


@pytest.mark.parametrize("operation", TO_CLAIMED.values(), ids=TO_CLAIMED)
def test_a_plan_made_for_an_idle_queue_does_not_read_the_backlog_to_end_a_batch(
    sql: Sql, worker: Sql, operation: Callable[[Sql, list[Claimed]], Any]
) -> None:
    """A worker keeps its connection, and PostgreSQL the plans it made there. One that was made for a job now and then
    must not read the whole backlog for every batch when 50,000 jobs arrive after an outage."""
    for _ in range(8):  # after five runs a plan is kept
        prepare(sql, 1)
        operation(worker, core.claim(sql, limit=1))
        sql("; ".join(f"delete from {table}" for table in BUSY))
    prepare(sql, BACKLOG)
    jobs = core.claim(sql, limit=BATCH)
    check_rows_read(sql, worker, lambda: operation(worker, jobs))


@pytest.mark.parametrize(("table", "operation"), NOTIFICATIONS.values(), ids=NOTIFICATIONS)
def test_a_plan_made_for_an_idle_queue_does_not_read_the_backlog_to_find_a_batch(
    sql: Sql, worker: Sql, table: str, operation: Callable[[Sql, list[uuid.UUID]], Any]
) -> None:
    for _ in range(8):
        prepare(sql, 1)
        operation(worker, core.firsts(sql(f"select id from {table}")))
        sql("; ".join(f"delete from {table}" for table in BUSY))
    prepare(sql, BACKLOG)
    ids = core.firsts(sql(f"select id from {table} order by random() limit {BATCH}"))
    check_rows_read(sql, worker, lambda: operation(worker, ids))


@pytest.mark.parametrize("kind", ["retry", "cancel"])
def test_a_step_of_an_action_reads_500_jobs_however_many_there_are(sql: Sql, worker: Sql, kind: str) -> None:
    for _ in range(8):
        prepare(sql, 1)
        scan(worker, kind)
        sql("; ".join(f"delete from {table}" for table in BUSY))
    prepare(sql, BACKLOG)
    scan(worker, kind)


@pytest.mark.parametrize("kind", ["retry", "discard"])
def test_an_action_on_an_error_group_reads_its_jobs_only(sql: Sql, worker: Sql, kind: str) -> None:
    """A group of 50 of 4,000 dead jobs, in a session whose plans were made for one dead job that was of the group."""
    for _ in range(8):
        prepare(sql, 1)
        act_on_group(sql, worker, kind, 1)
        sql("; ".join(f"delete from {table}" for table in BUSY))
    prepare(sql, BACKLOG)
    assert act_on_group(sql, worker, kind, BATCH) <= 20 * BATCH


def act_on_group(sql: Sql, worker: Sql, kind: str, jobs: int) -> int:
    """Retry or discard the jobs of a group, and return the number of rows read."""
    sql("update dead set fingerprint = md5(id::text)")
    some = f"select id from dead order by id desc limit {jobs}"
    sql(f"update dead set fingerprint = '00112233445566aa' where id in ({some})")
    flush(sql)
    before = rows_read(worker)
    worker('select start_action(%s, \'{"error_group": "00112233445566aa"}\')', [kind])
    worker("select work_actions()")
    read = rows_read(worker) - before
    assert worker("select state, scanned, changed from actions") == [("done", jobs, jobs)]
    worker("delete from actions")
    return read


def test_a_large_backlog_without_batch_or_deadline_costs_their_upkeep_nothing(sql: Sql) -> None:
    """The leader's queries every two seconds, and an operator's now and then, beside 50,000 unrelated jobs."""
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 50000)")
    batch = uuid.uuid4()
    sql("select open_batch(%s, 'b')", [batch])
    for _ in range(5):
        core.put(sql, batch=batch)
    for statement in (
        "select expire()",
        "select complete_batches()",
        "select prune()",
        "select upkeep('w', '9 s')",
        f"select cancel_batch('{batch}')",
        f"select cancel_batch('{batch}')",
    ):
        before = rows_read(sql)
        sql(statement)
        read = rows_read(sql) - before
        looks = 2 * 50 * 60 if "upkeep" in statement else 0  # reclaim_orphans, announce_strays: a fixed number of pages
        assert read < 1000 + looks, f"{read:,} rows were read by {statement}"  # of 50,000; those of small tables vary
    assert sql("select status, canceled from batch_progress") == [("canceled", 5)]


def rows_read(sql: Sql) -> int:
    flush(sql)
    indexes, tables = sql(
        "select (select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'holdfast'), "
        "(select sum(seq_tup_read) from pg_stat_user_tables where schemaname = 'holdfast')"
    )[0]
    return int(indexes + tables)


# -- the cost of a claim


@pytest.mark.parametrize("of_a_batch", [False, True], ids=["plain", "with batch, deadline and headers"])
def test_claims_are_hot_updates(each_dsn: str, each_sql: Sql, of_a_batch: bool) -> None:
    """5,000 jobs copied in, claimed and finished by 500: at least 99 % of the updates stay on their page."""
    more = ("", "")
    if of_a_batch:
        more = (", batch, deadline, headers", f'\t{uuid.uuid4()}\t2999-01-01\t{{"trace": "{"a" * 32}"}}')
    query = (
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'holdfast' and relname = 'live'"
    )
    jobs = 5_000
    with core.session(each_dsn) as conn:
        run = core.runner(conn)
        with conn.cursor() as cursor, cursor.copy(f"copy live (id, task, payload{more[0]}) from stdin") as copy:
            ids = sorted(uuid.uuid4() for _ in range(jobs))
            payload = '{{"to": "someone@example.org", "n": {0}}}'
            copy.write("".join(f"{id_}\tapp.mail\t{payload.format(i)}{more[1]}\n" for i, id_ in enumerate(ids)))
        flush(run)
        before = run(query)[0]
        done = 0
        while batch := core.claim(run, limit=500):
            refused = run(
                "select finish(%s::uuid[], %s::bigint[], null, %s::bigint[])",
                [[j.id for j in batch], [j.token for j in batch], [batch[0].token]],
            )
            assert refused == []
            done += len(batch)
        assert done == jobs
        flush(run)
        after = run(query)[0]
    updates, hot = after[0] - before[0], after[1] - before[1]
    assert updates == jobs
    assert hot >= 0.99 * updates, f"only {hot} of {updates} updates were HOT"
    assert core.count(each_sql, "claims") == 0


def flush(sql: Sql) -> None:
    """Flush the server's counters of this session."""
    sql("select pg_stat_force_next_flush()")
    sql("select 1")
    sql("select pg_stat_clear_snapshot()")


def test_a_function_without_sequential_scans_does_not_compile_them_either() -> None:
    """A scan that cannot be avoided looks dear enough to be compiled, for 100 ms and more (decision 011)."""
    texts = {name: text for name, text in FUNCTIONS.items() if "enable_seqscan = off" in text}
    assert texts and [name for name, text in texts.items() if "set jit = off" not in text] == []
