"""Limits, rates, breakers, pauses and tenants against a plain Python model, in random order, under
a clock of the test's.

The model does not define which jobs a claim takes, only which it may take: none whose key is full, spent, paused or
open. After each step counters must be exact, and a claim that finds nothing must have had nothing to find.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support import flow
from tests.support import sql_core as core
from tests.support import sql_flow_model as draw
from tests.support.flow import Taken
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_flow_model import BAD, GOOD, IMPLICIT, NEITHER, VERDICTS, Ended, Job, Key

TABLES = (
    "live",
    "later",
    "dead",
    "history",
    "claims",
    "workers",
    "sleepers",
    "tasks",
    "leader",
    "limits",
    "limit_settings",
    "limit_rules",
    "lanes",
    "flows",
    "rings",
    "arrivals",
    "releases",
    "folds",
    "reopenings",
    "throttled",
)
NO_RULE = dict.fromkeys(("concurrency", "rate", "per", "burst", "breaker_after", "breaker_pause", "breaker_cap"))
TTL = 60
LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"
LOCK = "pg_advisory_{}(1215259732, hashtext('the ring of ' || current_schema()))"  # that of lock_ring()

Step = Callable[["Machine"], object]


class Machine(RuleBasedStateMachine):
    """Draw calls, make them on the database and on the model, and compare."""

    def __init__(self, conn: psycopg.Connection, other: psycopg.Connection, holder: Any, clock: Clock) -> None:
        super().__init__()
        self.sql, self.other, self.holder = core.runner(conn), other, core.runner(holder)
        self.clock = clock

    @initialize()
    def empty(self) -> None:
        self.other.rollback()
        self.sql("; ".join(f"delete from {table}" for table in TABLES))
        self.sql("select setseed(0.5)")
        self.now = self.clock.set(self.clock.start)
        self.made, self.calls = itertools.count(), itertools.count()
        self.jobs: dict[uuid.UUID, Job] = {}
        self.limits: dict[str, Key] = {}
        self.rows: dict[str, Any] = {}  # when the database made its row of each key
        self.uncommitted: list[Callable[[], None]] = []  # the effects of the other transaction
        self.changing: set[str] = set()  # keys whose settings it has changed
        self.ending: set[uuid.UUID] = set()  # jobs that it has ended
        for key, given in {
            "k1": {"concurrency": 1},
            "k2": {"concurrency": 2},
            "k3": {"concurrency": 3},
            "rate": {"rate": 1, "per": 10, "burst": 2},
            "breaker": {"breaker_after": 2, "breaker_pause": 10, "breaker_cap": 30},
        }.items():
            self.change(self.sql, key, given)
            self.key(key).allow(given)

    def teardown(self) -> None:
        self.other.rollback()

    # -- what people do

    def key(self, name: str) -> Key:
        return self.limits.setdefault(name, Key())

    def change(self, sql: flow.Sql, name: str, rule: dict[str, Any]) -> None:
        sql("select set_limit(%s, %s::jsonb)", [name, json.dumps(NO_RULE | rule)])

    def pause(self, sql: flow.Sql, name: str, paused: bool) -> None:
        sql("select pause(%s)" if paused else "select resume(%s)", [name])

    def ids(self, number: int) -> list[uuid.UUID]:
        return [uuid.uuid5(uuid.NAMESPACE_OID, str(next(self.made))) for _ in range(number)]

    @rule(
        tenant=st.sampled_from(draw.TENANTS),
        task=st.sampled_from("ttu"),
        keys=draw.keys,
        age=draw.ages,
        priority=st.sampled_from([1, 2, 2]),
        queue=st.sampled_from(["default", "default", "mail"]),
        number=st.integers(1, 6),
    )
    def enqueue(
        self, tenant: str | None, task: str, keys: list[str], priority: int, queue: str, number: int, age: int = 0
    ) -> None:
        jobs = [Job(id_, tenant, task, queue, priority, tuple(sorted(keys))) for id_ in self.ids(number)]
        self.put(self.sql, jobs, age)
        self.jobs |= {job.id: job for job in jobs}

    def put(self, sql: flow.Sql, jobs: list[Job], age: int) -> None:
        job, ids = jobs[0], [each.id for each in jobs]
        flow.put(
            sql,
            tenant=job.tenant,
            task=job.task,
            keys=job.keys,
            priority=job.priority,
            queue=job.queue,
            ids=ids,
            age=age,
        )

    @rule(name=draw.any_key, rule=draw.rules)
    def change_a_limit(self, name: str, rule: dict[str, Any]) -> None:
        if name not in self.changing:
            self.change(self.sql, name, rule)
            self.key(name).allow(rule)

    @rule(name=draw.any_key, paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        if name not in self.changing:
            self.pause(self.sql, name, paused)
            self.key(name).paused = paused

    @rule(name=draw.any_key)
    def reset_a_breaker(self, name: str) -> None:
        key = self.key(name)
        reset = any(each.resets for each in key.ended)
        is_open = bool(key.after and key.open_until and not reset)
        assert self.sql("select reset_breaker(%s)", [name]) == [(is_open,)]
        if is_open or (key.streak and not reset):
            key.ended.append(Ended(next(self.calls), resets=True))

    @rule(seconds=st.sampled_from([0.5, 3.5, 10, 31, 61]))
    def time_passes(self, seconds: float) -> None:
        self.now = self.clock.advance(seconds)

    @precondition(lambda self: any(key.open_until for key in self.limits.values()))
    @rule()
    def time_passes_until_a_probe_may_go(self) -> None:
        ahead = [key.open_until for key in self.limits.values() if key.open_until and key.open_until > self.now]
        if ahead:
            self.now = self.clock.set(min(ahead))

    # -- a transaction elsewhere stays open: nothing waits for it, and what it commits late is not missed

    @rule(name=draw.any_key, rule=draw.rules)
    def an_operator_changes_a_limit_and_does_not_commit(self, name: str, rule: dict[str, Any]) -> None:
        self.change(core.runner(self.other), name, rule)
        self.changing.add(name)
        self.uncommitted.append(lambda: self.key(name).allow(rule))

    @rule(name=draw.any_key, paused=st.booleans())
    def an_operator_pauses_and_does_not_commit(self, name: str, paused: bool) -> None:
        self.pause(core.runner(self.other), name, paused)
        self.changing.add(name)
        self.uncommitted.append(lambda: setattr(self.key(name), "paused", paused))

    @rule(tenant=st.sampled_from(draw.TENANTS), keys=draw.keys, number=st.integers(1, 3), age=draw.ages)
    def an_enqueue_does_not_commit(self, tenant: str | None, keys: list[str], number: int, age: int) -> None:
        jobs = [Job(id_, tenant, "t", "default", 2, tuple(sorted(keys))) for id_ in self.ids(number)]
        self.put(core.runner(self.other), jobs, age)
        self.uncommitted.append(lambda: self.jobs.update({job.id: job for job in jobs}))

    @precondition(lambda self: self.running())
    @rule(pick=st.integers(0, 1000), outcome=st.sampled_from(["succeeded", "error", "released"]))
    def an_end_does_not_commit(self, pick: int, outcome: str) -> None:
        (job,) = self.chosen([pick])
        self.report(core.runner(self.other), job, outcome, None)
        call = next(self.calls)
        self.ending.add(job.id)
        self.uncommitted.append(lambda: self.ended(job, outcome, None, call))

    @precondition(lambda self: self.uncommitted)
    @rule(commits=st.sampled_from([True, True, False]))
    def the_transaction_ends(self, commits: bool) -> None:
        if commits:
            self.other.commit()
            for happen in self.uncommitted:
                happen()
        else:
            self.other.rollback()
        self.uncommitted, self.changing, self.ending = [], set(), set()

    # -- claims

    def take(self, limit: int, queues: list[str], **more: Any) -> tuple[list[Taken], dict[str, Any]]:
        """Return the jobs, and what the claim returns beside them."""
        given = {"free": None, "cap": None, "served": None, "direct": False} | more
        rows = self.sql(
            "select id, token, tenant, queue, task, priority, attempt, keys, info from claim('w', %(queues)s::text[], "
            "%(limit)s, make_interval(secs => %(ttl)s), null, false, %(free)s, %(cap)s, %(served)s::jsonb, %(direct)s)",
            given | {"queues": queues, "limit": limit, "ttl": TTL, "served": json.dumps(given["served"] or {})},
        )
        taken = [Taken(*row[:7], tuple(row[7] or ())) for row in rows if row[0] is not None]
        self.check_claim(taken, limit, queues)
        return taken, rows[0][-1] if rows and rows[0][-1] else {}

    @rule(
        limit=st.sampled_from([1, 2, 5, 30]),
        free=st.sampled_from([None, None, 0, 1, 3]),
        cap=st.sampled_from([None, None, 1, 2]),
        queues=draw.queue_lists,
    )
    def claim(self, limit: int, free: int | None, cap: int | None, queues: list[str]) -> None:
        served = {"a": 1} if cap and limit > 2 else {}
        taken, info = self.take(limit, queues, free=free, cap=cap, served=served)
        if free is not None:
            strict = self.strict(taken)
            assert len(strict) <= free, "more under rates and breakers than could start"
            assert strict <= set(info["started"]), "they are not known to start at once"
        if cap is not None:
            counts = Counter(job.tenant for job in taken if job.tenant is not None)
            before = {tenant: served.get(tenant, 0) for tenant in counts}
            assert all(n + before[tenant] <= cap for tenant, n in counts.items()), f"{counts} and {before} before"

    @rule(rule=draw.rules, limit=st.sampled_from([5, 30]), free=st.sampled_from([None, 0, 1, 5]))
    def claim_from_a_queue_that_has_a_limit(self, rule: dict[str, Any], limit: int, free: int | None) -> None:
        """Let plain jobs and those of tenants share it."""
        for tenant in (None, "a", "c"):
            self.enqueue(tenant, "t", [], 2, "default", 4)
        self.change_a_limit("queue:default", rule)
        self.claim(limit, free, None, ["default"])

    @rule(limit=st.sampled_from([1, 5]))
    def claim_for_slots_that_were_kept(self, limit: int) -> None:
        taken, _ = self.take(limit, ["default", "mail"], free=limit, direct=True)
        assert len(self.strict(taken)) == len(taken), (
            "a kept slot was used for a job that could have been claimed ahead"
        )

    @rule(limit=st.sampled_from([1, 50]), queues=draw.queue_lists)
    def claim_while_another_session_has_the_ring(self, limit: int, queues: list[str]) -> None:
        """Find plain jobs only, and report that there may be more."""
        self.holder(f"select {LOCK.format('lock')}")
        try:
            taken, info = self.take(limit, queues, free=limit)
        finally:
            self.holder(f"select {LOCK.format('unlock')}")
        assert all(self.jobs[job.id].plain for job in taken), "the ring was not read"
        left = self.could_run(queues)
        assert not left or info["busy"] or info["more"] or len(taken) == limit, f"{left} could run, and nothing says so"

    def strict(self, taken: list[Taken]) -> set[str]:
        return {str(j.id) for j in taken if any(self.limits[name].strict for name in self.jobs[j.id].counted)}

    def check_claim(self, taken: list[Taken], limit: int, queues: list[str]) -> None:
        assert len(taken) <= limit and len({job.id for job in taken}) == len(taken)
        self.take_up_ended()
        for each in taken:
            job = self.jobs[each.id]
            assert job.taken is None and job.queue in queues, "another claim has it"
            assert set(job.keys) <= set(each.keys) <= {*job.keys, f"task:{job.task}"}
            job.taken, job.expires_at = each, self.now + timedelta(seconds=TTL)
            job.attempts += 1
            for name in each.keys:
                self.key(name)
            says = {name for name in job.every_key if name in self.limits and self.limits[name].says}
            job.counted = tuple(name for name in job.every_key if name in {*each.keys, *says})
            for name in job.counted:
                refused = self.limits[name].why_not(self.now)
                assert refused is None, f"{each} was started, though of {name} {refused}"
                self.limits[name].start(self.now, each.id)

    @rule()
    def fold(self) -> None:
        flow.fold(self.sql)
        self.take_up_ended()
        assert all(not key.ended for key in self.limits.values()), "an end was not taken into account"
        running = dict(self.sql("select key, running from limits where running <> 0"))
        assert running == {name: key.running for name, key in self.limits.items() if key.running}

    def take_up_ended(self) -> None:
        """Let a claim fold in what has ended, all of it or nothing."""
        if self.sql("select not exists (table releases)") == [(True,)]:
            for key in self.limits.values():
                key.take_up(self.now)
        before, self.rows = self.rows, dict(self.sql("select key, created_at from limits"))
        for name in (name for name, made_at in before.items() if self.rows.get(name) != made_at):
            key = self.limits[name]
            assert name in IMPLICIT and not key.says and not key.running, f"{name} is in use, and was forgotten"
            self.limits[name] = Key()

    @rule(limit=st.sampled_from([1, 3, 50]), queues=draw.queue_lists)
    def claim_until_there_is_nothing(self, limit: int, queues: list[str]) -> None:
        """Check that claims that go on while there is more find all that may run: never idle, nothing starved."""
        waiting = sum(job.taken is None for job in self.jobs.values())
        for _ in range(3 * waiting + 6):
            taken, info = self.take(limit, queues, free=limit)
            if not taken and not info["more"]:
                break
        else:
            raise AssertionError("there is always more, and nothing comes of it")
        assert self.could_run(queues) == [], "they are not found"

    def could_run(self, queues: list[str]) -> list[Job]:
        waiting = (job for job in self.jobs.values() if job.taken is None and job.queue in queues)
        return [job for job in waiting if not self.must_wait(job)]

    def must_wait(self, job: Job) -> bool:
        return any(self.limits[name].why_not(self.now) for name in job.every_key if name in self.limits)

    # -- ends

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.taken is not None and job.id not in self.ending]

    def chosen(self, chosen: list[int]) -> list[Job]:
        running = self.running()
        return list({job.id: job for job in (running[pick % len(running)] for pick in chosen)}.values())

    def freed(self, jobs: Iterable[Job], verdict: int, counts: list[str] | None, call: int) -> None:
        """Apply what one call releases."""
        ended: dict[str, list[tuple[Job, int]]] = defaultdict(list)
        for job in jobs:
            for name in job.counted:
                counted = verdict if verdict != BAD or counts is None or name in counts else NEITHER
                ended[name].append((job, counted))
            job.taken, job.expires_at, job.counted = None, None, ()
        for name, outcome in ended.items():
            key = self.limits[name]
            key.running -= len(outcome)
            verdicts = [went for _, went in outcome]
            probe = next((went for job, went in outcome if job.id == key.probe), None)
            key.ended.append(Ended(call, verdicts.count(GOOD), verdicts.count(BAD), probe))

    @precondition(lambda self: self.running())
    @rule(chosen=draw.picks)
    def finish(self, chosen: list[int]) -> None:
        jobs = self.chosen(chosen)
        assert flow.end(self.sql, *(job.taken for job in jobs)) == []
        self.freed(jobs, GOOD, None, next(self.calls))
        for job in jobs:
            del self.jobs[job.id]

    @precondition(lambda self: self.running())
    @rule(
        pick=st.integers(0, 1000),
        outcome=st.sampled_from(
            ["succeeded", "error", "error", "error", "failed", "dead", "snoozed", "released", "canceled"]
        ),
        counts=st.sampled_from([None, None, [], ["breaker"]]),
    )
    def finish_one(self, pick: int, outcome: str, counts: list[str] | None) -> None:
        (job,) = self.chosen([pick])
        self.end_one(job, outcome, counts)

    def end_one(self, job: Job, outcome: str, counts: list[str] | None) -> None:
        self.report(self.sql, job, outcome, counts)
        self.ended(job, outcome, counts, next(self.calls))

    def report(self, sql: flow.Sql, job: Job, outcome: str, counts: list[str] | None) -> None:
        more = {"delay": 0} if outcome in ("error", "snoozed") else {}
        if counts is not None:
            more["counts"] = counts
        assert flow.end(sql, job.taken, outcome=outcome, **more) == []

    def ended(self, job: Job, outcome: str, counts: list[str] | None, call: int) -> None:
        self.freed([job], VERDICTS[outcome], counts, call)
        if outcome in ("error", "snoozed", "released"):
            job.attempts -= outcome != "error"
        else:
            del self.jobs[job.id]

    @rule(probes=st.lists(st.sampled_from(["error", "succeeded", "released"]), max_size=3))
    def a_destination_is_down_for_a_while(self, probes: list[str]) -> None:
        """Let jobs fail until the breaker opens; then one is tried after each pause, and ends as drawn."""
        self.enqueue(None, "t", ["breaker"], 2, "default", 4)
        for outcome in ["error", "error", *probes]:
            self.time_passes_until_a_probe_may_go()
            self.take(30, ["default"])
            running = [job for job in self.running() if "breaker" in job.keys]
            for job in running if outcome == "error" else running[:1]:
                self.end_one(job, outcome, None)

    def end_under(self, name: str, outcome: str) -> None:
        for job in [job for job in self.running() if name in job.keys]:
            self.end_one(job, outcome, None)

    @rule()
    def a_job_comes_back_to_a_lane_that_went_on(self) -> None:
        self.enqueue(None, "t", ["k1"], 1, "default", 2)
        for outcome in ("error", "succeeded", "succeeded"):
            self.take(30, ["default"])
            self.end_under("k1", outcome)
        self.claim_until_there_is_nothing(30, ["default"])

    @rule(first=st.sampled_from(["default", "mail"]))
    def jobs_of_two_queues_wait_for_one_key(self, first: str) -> None:
        """Check that one queue without claims does not keep the other waiting."""
        for queue in (first, "mail" if first == "default" else "default"):
            self.enqueue("c", "u", ["k1"], 1, queue, 2)
            self.take(30, [queue])
        self.end_under("k1", "succeeded")
        self.claim_until_there_is_nothing(3, ["default"])

    @rule(outcomes=st.lists(st.sampled_from(["error", "succeeded"]), min_size=2, max_size=3))
    def jobs_end_one_after_the_other(self, outcomes: list[str]) -> None:
        self.enqueue(None, "t", ["breaker"], 1, "default", len(outcomes))
        self.take(30, ["default"])
        running = [job for job in self.running() if "breaker" in job.keys]
        for job, outcome in zip(running, outcomes, strict=False):
            self.end_one(job, outcome, None)

    @precondition(lambda self: any(job.taken for job in self.jobs.values()))
    @rule()
    def all_workers_crash(self) -> None:
        self.now = self.clock.advance(TTL + 1)
        self.reclaim()

    @rule()
    def reclaim(self) -> None:
        self.sql("select reclaim(1000)")
        lost = [job for job in self.running() if job.expires_at <= self.now]
        self.freed(lost, NEITHER, None, next(self.calls))
        self.sql("update later set run_at = clock()")  # lost more than once, it waits for a random time
        core.promote(self.sql)

    # -- what must hold

    @invariant()
    def every_counter_is_the_truth(self) -> None:
        assert flow.drift(self.sql) == []
        counted = {row[0]: row[1] for row in self.sql(flow.HELD)}
        assert counted == {name: key.running for name, key in self.limits.items() if key.running}

    @invariant()
    def every_breaker_stands_as_the_model_says(self) -> None:
        rows = self.sql("select key, failure_streak, open_until, opens, probe from limits")
        found = {row[0]: row[1:] for row in rows}
        for name, key in self.limits.items():
            streak, open_until, opens, probe = found.get(name, (0, None, 0, None))
            assert (streak, open_until, probe) == (key.streak, key.open_until, key.probe), name
            assert open_until is None or opens == key.opens, name

    @invariant()
    def waiting_costs_no_job_and_no_attempt(self) -> None:
        rows = self.sql("select id, attempt, token from live union all select id, attempt, null from later")
        found = {id_: (attempt, token) for id_, attempt, token in rows}
        assert found == {j.id: (j.attempts, j.taken and j.taken.token) for j in self.jobs.values()}


# Short sequences that each end where one promise could break; random ones seldom get to some of these.
def _under(name: str, number: int, tenant: str | None = None) -> Step:
    return lambda it: it.enqueue(tenant, "t", [name], 2, "default", number)


def _take(it: Machine) -> None:
    it.take(30, ["default"])


def _take_all(it: Machine) -> None:
    it.claim_until_there_is_nothing(3, ["default"])


def _end(name: str, outcome: str) -> Step:
    return lambda it: it.end_under(name, outcome)


SEQUENCES: dict[str, list[Step]] = {
    "places": [_under("k2", 5), _take, _take, _end("k2", "succeeded"), Machine.fold, _take_all],
    "tenants": [_under("k1", 2, "a"), _under("k1", 2, "b"), _take, _end("k1", "succeeded"), _take],
    "many of one lane": [*(_under("free", 6, "a") for _ in range(4)), _under("free", 6, "b"), _take],
    "rate": [_under("rate", 6), _take, _take, lambda it: it.time_passes(31), _take_all],
    "a rate that is lowered": [
        lambda it: it.change_a_limit("free", {"rate": 3, "per": 10, "burst": 2}),
        _under("free", 5),
        _take,
        lambda it: it.change_a_limit("free", {"rate": 1, "per": 10, "burst": 2}),
        lambda it: it.time_passes(3.5),
        _take,
        lambda it: it.time_passes(10),
        _take_all,
    ],
    "pause": [lambda it: it.pause_or_resume("k1", True), _under("k1", 1), _take],
    "task": [lambda it: it.change_a_limit("task:t", {"concurrency": 1}), _under("free", 3), _take, _take],
    "breaker": [lambda it: it.a_destination_is_down_for_a_while([]), _take],
    "probes": [
        lambda it: it.a_destination_is_down_for_a_while([]),
        Machine.fold,
        Machine.time_passes_until_a_probe_may_go,
        _take,
        _end("breaker", "error"),
        Machine.fold,
    ],
    "order of ends": [lambda it: it.jobs_end_one_after_the_other(["error", "succeeded"]), Machine.fold],
    "order of other ends": [lambda it: it.jobs_end_one_after_the_other(["succeeded", "error"]), Machine.fold],
    "room for two queues": [lambda it: it.jobs_of_two_queues_wait_for_one_key("mail")],
    "a lane that went on": [Machine.a_job_comes_back_to_a_lane_that_went_on],
    "free slots": [_under("breaker", 6), _under("rate", 6), lambda it: it.claim(30, 1, None, ["default"])],
    "a late end": [
        _under("k1", 3),
        _take,
        lambda it: it.an_end_does_not_commit(0, "succeeded"),
        _under("k2", 2),
        _take,
        _end("k2", "succeeded"),
        lambda it: it.sql("delete from folds"),  # so the next fold records how far it got; else one in 0.2 s does
        Machine.fold,
        lambda it: it.the_transaction_ends(True),
        Machine.fold,
        _take_all,
    ],
    "a held ring": [_under("k1", 2), lambda it: it.claim_while_another_session_has_the_ring(50, ["default"])],
    "an open change": [
        lambda it: it.an_operator_changes_a_limit_and_does_not_commit("k1", {"concurrency": 2}),
        _under("k1", 2),
        _take,
        lambda it: it.the_transaction_ends(True),
    ],
}


@contextmanager
def machines(dsn: str, clock: Clock, schema: str, patience: str = "5s") -> Iterator[Callable[[], Machine]]:
    """Yield a maker of machines on three sessions. No statement waits for another session's locks for longer."""
    with (
        core.session(dsn, schema) as conn,
        core.session(dsn, schema, autocommit=False) as other,
        core.session(dsn, schema) as holder,
    ):
        conn.execute("select set_config('statement_timeout', %s, false)", [patience])
        yield lambda: Machine(conn, other, holder, clock)


def go_through(make: Callable[[], Machine], steps: list[Step]) -> None:
    """Take fixed steps, and check the invariants after each."""
    machine = make()
    machine.empty()
    for step in steps:
        step(machine)
        machine.every_counter_is_the_truth()
        machine.every_breaker_stands_as_the_model_says()
        machine.waiting_costs_no_job_and_no_attempt()
    machine.teardown()


def explore(make: Callable[[], Machine], *, budget: float, phases: tuple[Phase, ...]) -> None:
    """Run rounds of a few runs each, every one with a seed of its own, until the time is used up."""
    given = os.environ.get("HOLDFAST_TEST_SEED")
    ends = time.monotonic() + budget
    rounds = itertools.count(1)
    while True:
        number = int(given) if given else next(rounds) if "CI" in os.environ else random.randrange(2**32)
        print(f"HOLDFAST_TEST_SEED={number} repeats this round")
        run_state_machine_as_test(
            seed(number)(make),
            settings=settings(
                max_examples=8,
                stateful_step_count=50,
                deadline=None,
                database=None,
                derandomize=False,
                print_blob=True,
                report_multiple_bugs=False,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            ),
        )
        if given or time.monotonic() > ends:
            return


@pytest.mark.timeout(400)  # shrinking a failure takes time
def test_limits_keep_the_promises_of_the_model(dsn: str, clock: Clock) -> None:
    with machines(dsn, clock, "holdfast") as make:
        explore(make, budget=200 if LONG else 12, phases=(Phase.generate, Phase.shrink))


@pytest.mark.parametrize("steps", SEQUENCES.values(), ids=SEQUENCES)
def test_limits_keep_their_promises_in_each_fixed_sequence(dsn: str, clock: Clock, steps: list[Step]) -> None:
    with machines(dsn, clock, "holdfast") as make:
        go_through(make, steps)


@pytest.mark.parametrize("each_database", ["pg16", "pg_local"], indirect=True)
def test_limits_keep_their_promises_on_other_servers(each_dsn: str, each_clock: Clock) -> None:
    with machines(each_dsn, each_clock, "holdfast") as make:
        explore(make, budget=3, phases=(Phase.generate,))
