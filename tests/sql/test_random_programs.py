"""Random programs of steps, sleeps, signals and children, run by workers that stop between any two of their statements.

A stop is what kill -9 does to the database: the call was executed or not, its reply is lost, nothing else is sent, and
the lease runs out. HOLDFAST_TEST_LONG=1 runs many more programs.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_core import Claimed, Sql

LONG = bool(os.environ.get("HOLDFAST_TEST_LONG"))
EXAMPLES = 3000 if LONG else 80
Program = tuple[tuple[str, int], ...]
parts = st.tuples(st.sampled_from(["step", "exact", "sleep", "signal", "batch", "call"]), st.integers(0, 4))
programs = st.lists(parts, min_size=1, max_size=6).map(tuple)


FAN_OUT = """with made as materialized (select gen_random_uuid() as id),
begun as materialized (select m.id, start_batch(%s, %s, %s, m.id, null, null) as outcome from made m),
filled as materialized (
    select b.id, count(e.*) from begun b left join lateral enqueue_many((
        select jsonb_agg(j || jsonb_build_object('batch', b.id)) from jsonb_array_elements(%s::jsonb) j)) e on true
    where b.outcome = 'started' group by b.id)
select close_batch(id) from filled"""


class Killed(Exception):
    """The worker is gone."""


@dataclass
class Life:
    """What happened outside of the database: calls of step functions, and the results that were read back."""

    calls: Counter[str] = field(default_factory=Counter)
    seen: dict[str, Any] = field(default_factory=dict)
    stale: list[tuple[str, Any]] = field(default_factory=list)  # what a frozen worker sends when it comes back

    def note(self, job: Claimed, name: str, value: Any) -> None:
        """A result, once read or stored, never changes."""
        key = f"{job.id} {name}"
        assert self.seen.setdefault(key, value) == value, f"{key} was {self.seen[key]}, and is {value}"


class Worker:
    """Runs one attempt at a time with the SQL functions, and is killed before or after the n-th statement."""

    def __init__(self, sql: Sql, life: Life, dies_at: int | None) -> None:
        self._sql = sql
        self._life = life
        self._left = dies_at

    def call(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; the process may be gone before it, or before its reply."""
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._life.stale.append((query, params or None))
                raise Killed
        rows = self._sql(query, params or None)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Killed
        return rows

    def run(self, job: Claimed) -> None:
        if job.queue == "children":
            return self._end(
                job, {"outcome": "failed" if job.payload["n"] == 3 else "succeeded", "result": job.payload["n"]}
            )
        rows = self.call("select * from read_steps(array[%s]::uuid[], array[%s]::bigint[])", [job.id, job.token])
        done = {row[1]: json.loads(row[5] or "null") for row in rows if row[3]}
        known = {row[1] for row in rows}
        for name, value in done.items():
            self._life.note(job, name, value)
        for place, (kind, n) in enumerate(job.payload["program"]):
            name = f"{kind} {place}"
            if name not in done and not self._do(job, kind, name, n, name in known):
                return None
        return self._end(job, {"outcome": "failed" if job.payload["fails"] else "succeeded"})

    def _do(self, job: Claimed, kind: str, name: str, n: int, known: bool) -> bool:
        """Do one part; return whether the handler goes on."""
        if kind in ("step", "exact"):
            return self._step(job, name, n, exact=kind == "exact")
        if kind == "call" and not known:
            made = {"task": "child", "queue": "children", "payload": {"n": n}}
            self.call("select start_child(%s, %s, %s, %s::jsonb)", [job.id, job.token, name, json.dumps(made)])
        if kind == "batch" and not known:
            self._fan_out(job, name, n)
        self._end(
            job, {"outcome": "parked", "wait": {"kind": kind, "name": name, "seconds": 0 if kind == "sleep" else None}}
        )
        return False

    def _step(self, job: Claimed, name: str, n: int, *, exact: bool) -> bool:
        self._life.calls[f"{job.id} {name}"] += 1
        result = [n, self._life.calls[f"{job.id} {name}"]]  # another result each time it runs
        step = {"id": str(job.id), "token": job.token, "name": name, "result": result}
        if not exact:
            step["undo"] = {"task": "undo", "queue": "undo", "payload": {"of": f"{job.id} {name}"}}
            ((outcome,),) = self.call("select outcome from store_steps(%s::json)", [json.dumps([step])])
        else:  # the function's row and the step, in one transaction
            rows = self.call(
                "with stored as materialized (select outcome from store_steps(%s::json)), written as (insert into "
                "public.effects select %s from stored where outcome = 'stored') select outcome from stored",
                [json.dumps([step]), f"{job.id} {name}"],
            )
            ((outcome,),) = rows
        assert outcome in ("stored", "lost")
        if outcome == "stored":
            self._life.note(job, name, result)
        return bool(outcome == "stored")

    def _fan_out(self, job: Claimed, name: str, n: int) -> None:
        jobs = [{"task": "child", "queue": "children", "payload": {"n": each}} for each in range(n)]
        self.call(FAN_OUT, [job.id, job.token, name, json.dumps(jobs)])

    def _end(self, job: Claimed, outcome: dict[str, Any]) -> None:
        data = {"id": str(job.id), "token": job.token, **outcome}
        self.call("select finish('{}', '{}', %s::jsonb, null, 'skip')", [json.dumps([data])])
        if job.batch is not None:
            self.call("select complete_batches(array[%s]::uuid[])", [job.batch])


def play(sql: Sql, made: Sequence[tuple[Program, bool]], seed: int) -> Life:
    """Run the programs until every job has ended, killing workers and sending signals at random moments."""
    life, rng = Life(), random.Random(seed)
    for program, fails in made:
        core.put(sql, "program", payload={"program": program, "fails": fails}, max_attempts=1000)
    for _ in range(1000):
        jobs = core.claim(sql, f"w{rng.random()}", limit=1, queues=["default", "children"])
        if jobs:
            try:
                Worker(sql, life, rng.randint(1, 12) if rng.random() < 0.4 else None).run(jobs[0])
            except Killed:
                core.lose(sql)
                if life.stale and rng.random() < 0.5:
                    sql(*life.stale.pop())
        else:
            waits = sql("select distinct name from steps where kind = 'signal' and finished_at is null")
            left = core.count(sql, "live where queue <> 'undo'") + core.count(sql, "later where queue <> 'undo'")
            if not left:
                return life
            if waits:
                sql("select signal(%s, %s::jsonb)", [rng.choice(waits)[0], "1"])
            sql("update later set run_at = clock() where waits_for is null")  # retries after a lost lease
            sql("select upkeep('leader', '1 minute')")
    raise AssertionError(f"jobs do not end: {sql('select status, waits_for, payload::text from jobs limit 5')}")


@pytest.fixture
def effects(sql: Sql) -> Any:
    sql("create table public.effects (key text)")
    yield sql
    sql("drop table public.effects")


def run_programs(sql: Sql, reset: Callable[[], None], examples: int) -> None:
    """Run random programs, and check what became of them."""

    # Without shrinking, which takes minutes where jobs do not end: the seed and the programs are printed.
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate])
    @given(made=st.lists(st.tuples(programs, st.booleans()), min_size=1, max_size=3), seed=st.integers(0, 2**32))
    def run(made: list[tuple[Program, bool]], seed: int) -> None:
        run_some(sql, reset, made, seed)

    run()


def run_some(sql: Sql, reset: Callable[[], None], made: list[tuple[Program, bool]], seed: int) -> None:
    reset()
    life = play(sql, made, seed)
    ended = {str(id_): status for id_, status in sql("select id, status::text from jobs where task = 'program'")}
    assert len(ended) == len(made) and set(ended.values()) <= {"succeeded", "failed"}
    exact = Counter(core.firsts(sql("table public.effects")))
    assert all(count == 1 for count in exact.values()), "transactional effects happen exactly once"
    assert {key for key in life.seen if " exact " in key} == set(exact)
    check_children(sql)
    check_undo(sql, life, ended)
    for table in ("endings", "follows where on_failure <> 'hold'", "claims"):
        assert core.count(sql, table) == 0


def check_children(sql: Sql) -> None:
    """Each call has one child, and each batch has all its children and their exact counts."""
    for number, batch, result in sql("select (s.job || s.name), s.ref, s.result from steps s where s.kind = 'batch'"):
        total, ended = sql(
            "select count(*), count(*) filter (where status in ('succeeded', 'failed')) from jobs where batch = %s",
            [batch],
        )[0]
        assert (result["total"], result["succeeded"] + result["failed"]) == (total, ended) == (ended, total), number
    calls = core.count(sql, "steps where kind = 'call'")
    assert core.count(sql, "jobs where queue = 'children' and batch is null") == calls
    assert core.count(sql, "steps where finished_at is null") == 0


def check_undo(sql: Sql, life: Life, ended: dict[str, str]) -> None:
    """Of a job that failed each step with an undo is undone once, the last first; of others none."""
    undone: dict[str, list[str]] = {}
    while jobs := core.claim(sql, "undoes", limit=1, queues=["undo"]):
        job, _, name = jobs[0].payload["of"].partition(" ")
        undone.setdefault(job, []).append(name)
        core.finish(sql, jobs[0])
    stored = sql("select job::text, name from steps where undo is not null order by number desc")
    wanted: dict[str, list[str]] = {}
    for job, name in stored:
        if ended[job] == "failed":
            wanted.setdefault(job, []).append(name)
    assert undone == wanted


def emptied(sql: Sql) -> Callable[[], None]:
    """Return a function that empties the tables."""
    tables = "live, later, dead, history, claims, steps, signals, follows, endings, batches, batch_counts"

    def reset() -> None:
        for table in (*tables.split(", "), "public.effects"):
            sql(f"delete from {table}")

    return reset


@pytest.mark.timeout(3600 if LONG else 120)
def test_random_programs_survive_kills_between_any_two_statements(effects: Sql) -> None:
    run_programs(effects, emptied(effects), EXAMPLES)


WAKES = ("perform end_parent_waits(p_job, v_result);", "perform child_result(p_job);")
MUTANTS = {
    "undo in the order of the steps": {"undo_steps": [("order by s.number desc", "order by s.number")]},
    "the end of a child wakes no parent": {"end_job_waits": [WAKES]},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_programs_find_what_is_broken(dsn: str, effects: Sql, name: str) -> None:
    with mutant(dsn, MUTANTS[name]) as sql, pytest.raises((AssertionError, psycopg.Error)):
        run_programs(sql, emptied(sql), 100)


def park_in_a_race(dsn: str, schema: str, sql: Sql, number: int) -> int:
    """Park jobs while their signals are sent from another session; return how many were left waiting."""
    for n in range(number):
        core.put(sql, payload={"n": n})
    jobs = core.claim(sql, limit=number)
    barrier = threading.Barrier(2)

    def send() -> None:
        with core.session(dsn, schema) as conn:
            run = core.runner(conn)
            barrier.wait()
            for job in jobs:
                run("select signal(%s)", [str(job.id)])

    sender = threading.Thread(target=send)
    sender.start()
    barrier.wait()
    for job in jobs:
        wait = {"kind": "signal", "name": str(job.id), "seconds": None}
        outcome = json.dumps([{"id": str(job.id), "token": job.token, "outcome": "parked", "wait": wait}])
        while sql("select finish('{}', '{}', %s::jsonb, null, 'skip')", [outcome]):
            pass
    sender.join()
    return core.count(sql, "later where waits_for is not null")


def test_no_signal_is_lost_in_a_race_with_parks(dsn: str, sql: Sql) -> None:
    assert park_in_a_race(dsn, "holdfast", sql, 2000 if LONG else 200) == 0
