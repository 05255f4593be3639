"""Nothing grows forever: months of varied traffic, days at each step, with the real upkeep after each. Every table of
the catalog must have been written to, and must hold no more rows and bytes at the end than it did half way."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.store.wire.session import Session
from holdfast.upkeep.chores import Upkeep
from tests.conftest import ROOT
from tests.support import flow
from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_clock import Clock, stopped_clock
from tests.support.sql_core import Sql

LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
STEP = 12 * 86_400  # seconds; the longest retention is 90 days, eight steps
STEPS = 100 if LONG else 20
KEYS = 20 if LONG else 2  # new ones at each step, of each kind
# Written when the schema is made, and never again.
FIXED = {"schema_info", "schema_files", "settings", "test_clock"}
RULES = {
    "domain:{d}": {"concurrency": 2},
    "rate:{d}": {"rate": 2, "per": 60, "burst": 2},
    "broken:{d}": {"breaker_after": 1, "breaker_pause": 300, "breaker_cap": 3600},
    "tenant:{t}": {"concurrency": 5},
}
TABLES = """
select c.oid::regclass::text as name, coalesce(i.inhparent::regclass::text, c.relname) as whose
from pg_class c left join pg_inherits i on i.inhrelid = c.oid
where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r' order by 1
"""
Level = dict[str, tuple[int, int]]  # of each table: rows, bytes


class Traffic:
    """What an application, its workers and its operators do in one step, with names that never come again."""

    def __init__(self, sql: Sql) -> None:
        self.sql = sql
        rules = [{"template": t, "pattern": t.split("{")[0] + "%", "code": code} for t, code in RULES.items()]
        sql("select register_limits(%s::jsonb)", [json.dumps(rules)])
        nightly = {"name": "nightly", "task": "t", "cron": "0 3 * * *", "zone": "UTC", "missed": "once", "payload": {}}
        sql("select register_schedules(%s::jsonb)", [json.dumps([nightly])])

    def step(self, number: int) -> None:
        names = [f"{number}-{each}" for each in range(KEYS)]
        self.sql("begin")  # one commit for all is quicker
        for each in (self.workers, self.enqueues, self.steps, self.batches, self.messages, self.service):
            each(names)
        self.operators(names)
        self.work(f"worker-{number}")
        self.after_the_last_claim(names[0])
        self.sql("commit")

    def workers(self, names: list[str]) -> None:
        for name in names:  # none of them unregisters
            task = {"name": "t", "queue": "default", "max_attempts": 5, "retry": {}}
            self.sql("select register_worker(%s, 'h', 1, '1', '{default}', 1, %s::jsonb)", [name, json.dumps([task])])
            self.sql("select sleep(%s, '{default}')", [name])
            self.sql("select record_tick(%s, '{default}', 1, 1, 1, 1, 0, 0, 0, '{}')", [name])
            minute = "date_trunc('minute', clock() - interval '63 s')"
            self.sql(f"insert into attempt_counts select {minute}, %s, 't', 1, 1, 1, 0, 0, 1", [name])
            self.sql("select take_snapshot('0 s')")

    def enqueues(self, names: list[str]) -> None:
        for name in names:
            for kind in ("domain", "rate", "broken", "order", "tenant"):
                for _ in range(3):  # more than may run at once
                    core.put(self.sql, tenant=name, keys=[f"{kind}:{name}"])
            core.put(self.sql, dedupe_key=name, dedupe_scope="success", dedupe_keep="1 day")
            core.put(self.sql, delay="1 day")
            core.put(self.sql, delay="1 hour", deadline="2 hours")

    def steps(self, names: list[str]) -> None:
        for name in names:
            first = core.put(self.sql, queue="steps", delay="1 hour")
            core.put(self.sql, queue="steps", after=[first])
            core.put(self.sql, queue="steps", priority=0)
            (job,) = core.claim(self.sql, limit=1, queues=["steps"])
            stored = [{"id": str(job.id), "token": job.token, "name": "a", "undo": {"task": "t"}}]
            self.sql("select store_steps(%s::json)", [json.dumps(stored)])
            self.sql("select signal(%s)", [name])
            core.fail(self.sql, job, outcome="dead")
            # Left by another transaction because of a lock: the leader's.
            self.sql("insert into endings values ('3', %s, 'succeeded', false, true)", [uuid.uuid4()])

    def batches(self, names: list[str]) -> None:
        for name, closes in itertools.product(names, (True, False)):  # some lose the session that opened them
            batch = uuid.uuid4()
            self.sql("select open_batch(%s, %s, null, %s::jsonb)", [batch, name, json.dumps({"task": "t"})])
            core.put(self.sql, batch=batch)
            if closes:
                self.sql("select close_batch(%s)", [batch])

    def messages(self, names: list[str]) -> None:
        endpoint = uuid.uuid4()
        self.sql("select add_endpoint(%s, 'https://a.example', 'secret')", [endpoint])
        for name in names:
            self.sql("select emit('mail', '{}', %s, p_order => %s)", [name, name])
            self.sql("select publish_event('a.b', '{}', p_key => %s)", [name])
        self.sql("delete from webhook_endpoints where id <> %s", [endpoint])

    def service(self, names: list[str]) -> None:
        for name in names:
            self.sql("select begin_response('o', %s, 'f')", [name])
            self.sql("select store_response('o', %s, 200::smallint, 'body')", [name])
            digest = uuid.uuid5(uuid.NAMESPACE_URL, name).bytes * 2
            self.sql(
                "select create_token(%s, %s, %s, 'hf', null, '{jobs:read}', '1 day')", [uuid.uuid4(), name, digest]
            )

    def work(self, worker: str) -> None:
        """End jobs in every way in turn. Of two jobs to be canceled one succeeds, one is lost with its worker."""
        ends = itertools.cycle(["succeeded", "succeeded", "error", "canceled", "dead", "released", "snoozed"])
        queues = [row[0] for row in self.sql("select distinct queue from live")]
        for _ in range(3):
            jobs = flow.claim(self.sql, worker, 500, queues=queues)
            results = [
                {"id": str(job.id), "token": job.token, "done": 1, "error": error_of(job)}
                | (
                    {"outcome": "error", "delay": 3600}
                    if "order:" in str(job.keys) and job.attempt == 1
                    else {"outcome": end}
                )  # a job that waits keeps its order
                for job, end in zip(jobs, ends, strict=False)
            ]
            self.sql("select report_progress(%s::jsonb)", [json.dumps(results)])
            lines = [{"n": 1, "at": 0, "level": "info", "text": "line"}]
            logs = [{**each, "attempt": 1, "seconds": 1, "lines": lines} for each in results]
            self.sql("select report_log(%s::jsonb)", [json.dumps(logs)])
            assert self.sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)]) == []
        for _ in range(3):
            core.put(self.sql)
        lost, ended, *_ = flow.claim(self.sql, worker, 3)
        assert core.cancel(self.sql, lost.id, ended.id) == ["canceling"] * 2
        assert flow.end(self.sql, ended) == []

    def after_the_last_claim(self, name: str) -> None:
        """Leave what only claims fold in, after the last one: the end of a job under a limit, a job of a tenant, and a
        rule that was changed."""
        core.put(self.sql, keys=[f"domain:last-{name}"], priority=0)
        (job,) = flow.claim(self.sql, "w", 1)
        flow.end(self.sql, job)
        core.put(self.sql, tenant=f"last-{name}")
        self.sql("select set_limit('domain:{d}', '{\"concurrency\": 2}')")

    def operators(self, names: list[str]) -> None:
        for name in names:
            self.sql("select pause(%s, p_for => '1 hour')", [f"tenant:paused-{name}"])
            self.sql("select set_limit(%s, '{\"concurrency\": 1}')", [f"domain:set-{name}"])
            self.sql("select clear_limit(%s)", [f"domain:set-{name}"])
            self.sql("select stop_worker(%s)", [name])

    def clean_up(self) -> None:
        """Remove what only a person removes."""
        self.sql("select discard_dead(array(select id from dead))")
        self.sql("delete from blocks")


class Soak:
    """Step through time, and record the size of everything."""

    def __init__(self, settings: Settings, sql: Sql, clock: Clock, loop: asyncio.Runner) -> None:
        self.settings, self.sql, self.clock, self.loop = settings, sql, clock, loop
        self.session = Session(settings, "soak")
        self.traffic = Traffic(sql)
        self.used: set[str] = set()

    def run(self, steps: int) -> tuple[Level, Level]:
        """Return how large everything was half way, and at the end."""
        half, end = self._go(range(steps // 2)), self._go(range(steps // 2, steps))
        return half, end

    def _go(self, numbers: range) -> Level:
        """Return the largest size of each table after the last steps."""
        levels = []
        for number in numbers:
            self.traffic.step(number)
            if number < 2:
                self.used |= {name for name, (rows, _) in self.level().items() if rows}
            self.traffic.clean_up()
            self.clock.advance(STEP)
            self.loop.run(self.keep_up())
            self.sql("select lock_ring(), fold_arrivals('default', next_token())")  # as the next claim does
            if number % 5 > 2:
                self.vacuum()
            if number >= numbers[-2]:
                levels.append(self.level())
        return {name: tuple(max(each[name][n] for each in levels) for n in (0, 1)) for name in levels[-1]}

    async def keep_up(self) -> None:
        """Run a round of a worker that has just become the leader."""
        await Upkeep("soak", self.settings, self.session, Calls(self.settings.schema)).once()

    def vacuum(self) -> None:
        """Vacuum at a known time, in place of autovacuum."""
        for name, _ in self.sql(TABLES):
            self.sql(f"vacuum {name}")

    def level(self) -> Level:
        """Return the sizes; history's partitions count as one table."""
        found: Level = {}
        names = self.sql(TABLES)
        each = (f"select count(*), pg_total_relation_size('{name}') from {name}" for name, _ in names)
        for (_, whose), (rows, size) in zip(names, self.sql(" union all ".join(each)), strict=True):
            before = found.get(whose, (0, 0))
            found[whose] = (before[0] + rows, before[1] + size)
        return found


def grown(half: Level, end: Level) -> list[str]:
    """Return the tables that have grown. Some rows that the next round removes are tolerated, and for bytes some pages
    of the heap and of each of eight indexes: a snapshot elsewhere may keep dead rows from being removed."""
    return [
        f"{name}: {half[name][0]} rows, {half[name][1]} bytes; then {rows} rows, {size} bytes"
        for name, (rows, size) in end.items()
        if rows > half[name][0] * 1.25 + 5 or size > half[name][1] * 1.2 + 131_072
    ]


@contextmanager
def soak(dsn: str, schema: str, sql: Sql) -> Iterator[Soak]:
    settings = Settings(dsn=dsn, schema=schema)
    with stopped_clock(dsn, schema) as clock, asyncio.Runner() as loop:
        # Each step makes one partition, not four: that is most of what a step takes.
        sql("update settings set value = '0' where name = 'partitions_ahead_days'")
        under = Soak(settings, sql, clock, loop)
        try:
            yield under
        finally:
            loop.run(under.session.close())
            sql("update settings set value = '3' where name = 'partitions_ahead_days'")


def error_of(job: core.Claimed) -> dict[str, str]:
    """Return an error under a block and in a group of its own."""
    return {"block": str(job.id), "fingerprint": job.id.hex[-16:]}


@pytest.mark.timeout(600)
def test_no_table_is_larger_after_months_than_it_was_half_way(dsn: str, sql: Sql) -> None:
    with soak(dsn, "holdfast", sql) as under:
        half, end = under.run(STEPS)
        assert under.used | FIXED == set(end), "this test must write to every table"
        assert grown(half, end) == []
        assert flow.drift(sql) == []
        if LONG:
            print("\n".join(f"{name:18} {half[name]} {end[name]}" for name in sorted(end)))


OFF = {
    "limits": {"prune_limits": [("where m.running = 0", "where false")]},
    "throttled": {"prune_limits": [("t.last_at < $3", "false")]},
    "limit_settings": {"prune_limits": [("where s.override = '{}' and", "where false and")]},
    "lanes": {"prune_limits": [("not t.open and t.closed_by", "false and t.closed_by")]},
    "flows": {"prune_limits": [("not t.open and t.tag", "false and t.tag")]},
    "batches": {"prune": [("perform cancel_batch(v_id);", "null;")]},
    "batch_counts": {"prune": [("delete from batch_counts where", "delete from batch_counts where false and")]},
    "responses": {"prune": [("'created_at', clock()", "'created_at', null::timestamptz")]},
    "api_tokens": {"prune": [("delete from api_tokens where", "delete from api_tokens where false and")]},
    "usage_counts": {"prune": [("'minute', clock()", "'minute', null::timestamptz")]},
    "workers": {"prune": [("delete from workers where", "delete from workers where false and")]},
    "cancels": {"prune": [("delete from cancels c where", "delete from cancels c where false and")]},
    "job_logs": {"prune": [("('job_logs', 'updated_at', v_oldest)", "('job_logs', 'updated_at', null)")]},
    "error_groups": {"prune_errors": [("g.last_at < p_oldest", "false")]},
    "error_counts": {"prune_errors": [("c.hour < clock()", "false and c.hour < clock()")]},
    "progress": {"prune": [("('progress', 'updated_at', v_oldest)", "('progress', 'updated_at', null)")]},
    "ticks": {"prune": [("'started_at', v_oldest", "'started_at', null")]},
    "dedupe": {"prune": [("from dedupe where expires_at", "from dedupe where false and expires_at")]},
    "history": {"prune": [(" < v_oldest\n        order by 1", " < '2000-01-01'\n        order by 1")]},
}
SOME = list(OFF) if LONG else ["limits", "lanes"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", SOME)
def test_it_goes_red_where_one_table_is_not_pruned(dsn: str, table: str) -> None:
    with mutant(dsn, OFF[table]) as sql, soak(dsn, "mutant", sql) as under:
        assert table in {each.split(":")[0] for each in grown(*under.run(20))}


def test_the_retention_page_names_what_bounds_every_table(sql: Sql) -> None:
    text = (ROOT / "docs" / "retention.md").read_text(encoding="utf-8")
    assert [name for name in {whose for _, whose in sql(TABLES)} if f"| `{name}`" not in text] == []
