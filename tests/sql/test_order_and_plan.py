"""In which order jobs are claimed, that no two claims overlap, and how PostgreSQL goes about it: the shape of the plan
and the share of HOT updates are promises too, for they decide whether a large backlog is as fast as a small one."""

from __future__ import annotations

import random
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import psycopg
import pytest
import sql_core as core
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from sql_core import Claimed, Sql

from holdfast import Holdfast

CLAIM = (resources.files("holdfast") / "sql" / "functions" / "claim.sql").read_text(encoding="utf-8")


# -- order


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    jobs=st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 0), st.uuids()), max_size=25, unique_by=lambda j: j[2])
)
def test_order_is_priority_then_run_at_then_id(sql: Sql, clock: Clock, jobs: list[tuple[int, int, uuid.UUID]]) -> None:
    sql("delete from live; delete from claims")
    for priority, seconds, id_ in jobs:
        core.put(sql, id=id_, priority=priority, run_at=clock.start + timedelta(seconds=seconds))
    claimed = []
    while batch := core.claim(sql, limit=7):
        claimed += [j.id for j in batch]
    assert claimed == [id_ for *_, id_ in sorted(jobs)]


def test_order_is_the_same_on_each_server(each_sql: Sql) -> None:
    jobs = [
        (p, f"2026-01-01 00:00:0{s}+00", uuid.UUID(int=i))
        for p in range(4)
        for s in range(3)
        for i in (p * 9 + s * 3 + 1,)
    ]
    jobs += [(2, "2026-01-01 00:00:01+00", uuid.UUID(int=2**127 + i)) for i in range(3)]
    for priority, run_at, id_ in random.sample(jobs, len(jobs)):
        core.put(each_sql, id=id_, priority=priority, run_at=run_at)
    assert [j.id for j in core.claim(each_sql, limit=99)] == [id_ for *_, id_ in sorted(jobs)]


def test_queues_that_were_not_asked_for_are_left_alone(sql: Sql) -> None:
    mail, other = core.put(sql, queue="mail"), core.put(sql, queue="other", priority=0)
    assert [j.id for j in core.claim(sql, queues=["mail", "default"])] == [mail]
    assert core.status(sql, other) == "queued"
    assert core.claim(sql, queues=[]) == []


def test_priority_counts_across_queues_and_the_order_of_queues_within_a_priority(sql: Sql) -> None:
    low = core.put(sql, queue="a", priority=3)
    second = core.put(sql, queue="b", priority=2)
    first = core.put(sql, queue="a", priority=2)
    critical = core.put(sql, queue="b", priority=0)
    assert [core.claim_one(sql, queues=["a", "b"]).id for _ in range(4)] == [critical, first, second, low]


def test_a_queue_named_twice_is_claimed_once(sql: Sql) -> None:
    ids = {core.put(sql) for _ in range(3)} | {core.put(sql, queue="mail") for _ in range(3)}
    claimed = core.claim(sql, queues=["default", "default", "mail"], limit=6)
    assert {j.id for j in claimed} == ids
    assert [j.attempt for j in claimed] == [1] * 6
    ((held,),) = sql("select ids from claims")
    assert sorted(held) == sorted(ids)


def test_a_due_delayed_job_is_claimed_without_waiting_for_the_leader(sql: Sql, clock: Clock) -> None:
    late = core.put(sql, delay="10 seconds")
    urgent = core.put(sql, delay="20 seconds", priority=0)
    elsewhere = core.put(sql, delay="5 seconds", queue="mail")
    clock.advance(9)
    assert core.claim(sql) == []
    clock.advance(11)
    assert [j.id for j in core.claim(sql)] == [urgent, late]
    assert (core.place(sql, elsewhere), core.status(sql, elsewhere)) == ("live", "queued")


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"limit": None}, {"ttl": 0}, {"ttl": -5}], ids=str)
def test_a_claim_of_nothing_or_for_no_time_is_refused(sql: Sql, wrong: dict[str, Any]) -> None:
    core.put(sql)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="claim needs a limit and a lease above zero"):
        core.claim(sql, **wrong)
    assert core.count(sql, "claims") == 0


def test_jobs_that_have_just_become_due_are_claimed_in_their_place_not_at_the_end(sql: Sql, clock: Clock) -> None:
    core.put(sql, priority=3)
    core.put(sql, run_at=clock.start)
    core.put(sql, delay="1 second", priority=0)
    core.put(sql, delay="1 second", priority=2)
    clock.advance(1)
    claimed = [(j.priority, j.run_at) for j in core.claim(sql)]
    assert len(claimed) == 4
    assert claimed == sorted(claimed)


def test_an_empty_claim_leaves_no_lease_and_takes_no_token(sql: Sql) -> None:
    before = sql("select last_value from claim_token")
    assert core.claim(sql) == []
    assert core.count(sql, "claims") == 0
    assert sql("select last_value from claim_token") == before


# -- the cursor is a hint


def test_a_cursor_skips_what_lies_before_it_and_only_there(sql: Sql) -> None:
    ids = [core.put(sql, id=uuid.UUID(int=i), run_at="2026-01-01+00") for i in range(1, 7)]
    core.put(sql, queue="mail", id=uuid.UUID(int=9), run_at="2026-01-01+00")
    new_year = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    after = {"default/2": [new_year, str(ids[2])], "default/0": [new_year + 1e8, str(ids[0])]}
    claimed = core.claim(sql, queues=["default", "mail"], after=after)
    assert [j.id for j in claimed] == [*ids[3:], uuid.UUID(int=9)]
    assert [j.id for j in core.claim(sql)] == ids[:3]


@pytest.mark.parametrize("after", [{}, {"default/2": []}, {"default/2": None}, {"nowhere/7": [1767225600.0, None]}, []])
def test_an_empty_or_foreign_cursor_is_no_cursor(sql: Sql, after: object) -> None:
    id_ = core.put(sql)
    rows = sql("select id from claim('w', p_after => %s::jsonb)", [psycopg.types.json.Jsonb(after)])
    assert rows == [(id_,)]


# -- claims never overlap


def test_claims_of_two_open_transactions_never_overlap(dsn: str, sql: Sql) -> None:
    ids = [core.put(sql, id=uuid.UUID(int=i), run_at="2026-01-01+00") for i in range(1, 13)]
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        mine, yours = core.runner(one), core.runner(two)
        first = [j.id for j in core.claim(mine, "one", 3)]
        second = [j.id for j in core.claim(yours, "two", 3)]
        third = [j.id for j in core.claim(mine, "one", 3)]
        fourth = [j.id for j in core.claim(yours, "two", 99)]
        assert [first, second, third, fourth] == [ids[:3], ids[3:6], ids[6:9], ids[9:]]
        two.rollback()
        one.commit()
    assert [j.id for j in core.claim(sql, "three", 99)] == [*ids[3:6], *ids[9:]]


def test_a_claim_that_was_rolled_back_never_happened(dsn: str, sql: Sql) -> None:
    id_ = core.put(sql, dedupe_key="k", dedupe_scope="queued")
    before = core.state(sql)
    with core.session(dsn, autocommit=False) as conn:
        assert core.claim_one(core.runner(conn)).attempt == 1
        conn.rollback()
    assert core.state(sql) == before
    assert core.claim_one(sql).id == id_


def test_due_delayed_jobs_are_not_claimed_twice_by_two_open_transactions(dsn: str, sql: Sql, clock: Clock) -> None:
    ids = {core.put(sql, delay="1 second") for _ in range(6)}
    clock.advance(1)
    with core.session(dsn, autocommit=False) as one, core.session(dsn, autocommit=False) as two:
        first = core.claim(core.runner(one), "one", 2)
        second = core.claim(core.runner(two), "two", 2)
        one.commit()
        two.commit()
    third = core.claim(sql, "three", 99)
    claimed = [j.id for j in (*first, *second, *third)]
    assert set(claimed) == ids
    assert len(claimed) == 6


def test_racing_workers_claim_each_job_once(dsn: str, hf: Holdfast, sql: Sql) -> None:
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 600)")
    claimed: list[tuple[uuid.UUID, int]] = []
    start = threading.Barrier(4)

    def work(name: str) -> None:
        with core.session(dsn) as conn:
            run = core.runner(conn)
            start.wait(40)
            while batch := core.claim(run, name, 17):
                claimed.extend((j.id, j.attempt) for j in batch)
                assert core.finish(run, *batch) == []

    threads = [threading.Thread(target=work, args=[f"w{i}"]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id_ for id_, _ in claimed}) == len(claimed) == 600
    assert {attempt for _, attempt in claimed} == {1}
    assert sql("select status::text, count(*) from jobs group by 1") == [("succeeded", 600)]


# -- the plan


def inner_select() -> str:
    """The claim's inner select, as it stands in the function, its variables as parameters."""
    found = re.search(
        r"(select l\.id, l\.ctid[^()]* from live l\s+where l\.queue = v_queue.*?skip locked)", CLAIM, re.DOTALL
    )
    assert found, "the claim's inner select has changed; adapt this test"
    text = found[1]
    for place, (name, kind) in enumerate(
        [("v_queue", "text"), ("v_priority", "integer"), ("v_place", "jsonb"), ("v_room", "integer")], 1
    ):
        assert name in text
        text = re.sub(rf"\b{name}\b", f"${place}::{kind}", text)
    return text


def plan(conn: psycopg.Connection) -> str:
    """How the claim finds jobs, under the settings the function itself carries."""
    conn.execute("deallocate all")
    ((config,),) = conn.execute(
        "select proconfig from pg_proc where proname = 'claim' and pronamespace = 'holdfast'::regnamespace"
    )
    with conn.transaction(force_rollback=True):
        for setting in config:
            name, _, value = setting.partition("=")
            conn.execute("select set_config(%s, %s, true)", [name, value])
        conn.execute(f"prepare inner_select as {inner_select()}")
        cursor = '\'["2026-01-01 00:00:00+00", "00000000-0000-7000-8000-000000000000"]\''
        rows = conn.execute(f"explain (costs off) execute inner_select('default', 2, {cursor}, 500)").fetchall()
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
        "insert into live (id, task, queue, priority) select gen_random_uuid(), 't', "
        "(array['default', 'default', 'mail'])[1 + i %% 3], i %% 4 from generate_series(1, %s) i",
        [rows],
    )


def test_the_plan_walks_the_fetch_index_whatever_the_statistics_say(conn: psycopg.Connection) -> None:
    conn.execute("vacuum analyze live")
    check_plan(plan(conn))  # nothing there, and the statistics know it
    fill(conn, 50_000)
    check_plan(plan(conn))  # statistics of an empty table, and 50,000 rows
    conn.execute("analyze live")
    check_plan(plan(conn))  # statistics that are right
    conn.execute("truncate live")
    check_plan(plan(conn))  # statistics of a large table, and nothing there


def test_the_plan_inside_the_function_is_the_one_explained_here(each_dsn: str) -> None:
    with core.session(each_dsn) as conn:
        try:
            conn.execute("load 'auto_explain'")
        except psycopg.errors.UndefinedFile:
            pytest.skip("this server has no auto_explain; the plan is checked by its text above")
        heard: list[str] = []
        conn.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        fill(conn, 2000)
        for name, value in {"log_min_duration": "0", "log_nested_statements": "on", "log_level": "notice"}.items():
            conn.execute(f"set auto_explain.{name} = '{value}'")
        conn.execute("select * from claim('w', p_limit => 5)").fetchall()
        conn.execute("set auto_explain.log_min_duration = -1")
    inner = [text for text in heard if "from live l" in text and "l.lane = 0" in text]
    fetches = [text for text in inner if "skip locked" in text]
    assert fetches
    for text in fetches:
        check_plan(text.split("Limit", 1)[1])
    for text in inner:  # a look whether there is anything takes the same way
        assert "using live_fetch on live" in text, text


# -- the cost of everything else


def prepare(sql: Sql, rows: int) -> None:
    """A backlog of waiting, delayed and dead jobs, one in ten with a dedupe key."""
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
    told = [{"id": str(j.id), "token": j.token, "outcome": outcome, "delay": 9} for j in jobs]
    sql("select finish('{}', '{}', %s::jsonb)", [psycopg.types.json.Jsonb(told)])


def let_lease_lapse(sql: Sql, jobs: list[Claimed]) -> None:
    sql("delete from claims")
    ids = [j.id for j in jobs]
    sql("insert into claims values (%s, 'w', clock(), clock(), clock() - interval '1 s', %s)", [jobs[0].token, ids])
    core.reclaim(sql)


# What is done to claimed jobs, and to jobs in the three tables of those that are not claimed.
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
        core.cancel(sql, *(j.id for j in jobs)), end_with(sql, jobs, "error")),
    "report progress": lambda sql, jobs: sql("select report_progress(%s::jsonb)", [psycopg.types.json.Jsonb(
        [{"id": str(j.id), "token": j.token, "done": 1} for j in jobs])]),
    "wanted_cancels": lambda sql, jobs: sql("select wanted_cancels(%s)", [[jobs[0].token]]),
}  # fmt: skip
TO_OTHERS: dict[str, tuple[str, Callable[[Sql, list[uuid.UUID]], Any]]] = {
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
    "page_floor": ("live", lambda sql, ids: sql("select page_floor(null, %s)", [len(ids)])),
    "page_floor of the dead": ("dead", lambda sql, ids: sql("select page_floor(null, %s, true)", [len(ids)])),
    "cancel_batch of waiting jobs": ("live", lambda sql, ids: cancel_batch(sql, "live", ids)),
    "cancel_batch of delayed jobs": ("later", lambda sql, ids: cancel_batch(sql, "later", ids)),
}


def expire(sql: Sql, table: str, ids: list[uuid.UUID]) -> None:
    sql(f"update {table} set deadline = clock() - interval '1 s' where id = any (%s)", [ids])
    assert sql("select expire()") == [(len(ids),)]


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


@pytest.mark.parametrize(("table", "operation"), TO_OTHERS.values(), ids=TO_OTHERS)
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


def test_a_large_backlog_without_batch_or_deadline_costs_their_upkeep_nothing(sql: Sql) -> None:
    """What the leader does every two seconds, and an operator now and then, beside 200,000 jobs it is not about."""
    sql("insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 200000)")
    batch = uuid.uuid4()
    sql("select open_batch(%s, 'b')", [batch])
    for _ in range(5):
        core.put(sql, batch=batch)
    for statement in ("select expire()", "select complete_batches()", "select prune()", "select upkeep('w', '9 s')",
                      f"select cancel_batch('{batch}')", f"select cancel_batch('{batch}')"):  # fmt: skip
        before = rows_read(sql)
        sql(statement)
        read = rows_read(sql) - before
        assert read < 150, f"{read:,} rows were read by {statement}"
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
    """20,000 jobs copied in, claimed and finished by 500: at least 99 % of the updates stay on their page."""
    more = ("", "")
    if of_a_batch:
        more = (", batch, deadline, headers", f'\t{uuid.uuid4()}\t2999-01-01\t{{"trace": "{"a" * 32}"}}')
    query = (
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'holdfast' and relname = 'live'"
    )
    jobs = 20_000
    with core.session(each_dsn) as conn:
        run = core.runner(conn)
        with conn.cursor() as cursor, cursor.copy(f"copy live (id, task, payload{more[0]}) from stdin") as copy:
            ids = sorted(uuid.uuid4() for _ in range(jobs))
            payload = '{{"to": "somebody@example.org", "n": {0}}}'
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
    """Makes the server's counters say what this session has done so far."""
    sql("select pg_stat_force_next_flush()")
    sql("select 1")
    sql("select pg_stat_clear_snapshot()")


def test_a_function_without_sequential_scans_does_not_compile_them_either() -> None:
    """A scan that cannot be avoided looks dear enough to be compiled, for 100 ms and more (decision 011)."""
    files = sorted((ROOT / "src/holdfast/sql/functions").glob("*.sql"))
    texts = {file.name: file.read_text() for file in files if "enable_seqscan = off" in file.read_text()}
    assert texts and [name for name, text in texts.items() if "set jit = off" not in text] == []
