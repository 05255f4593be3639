"""Limits, rates, breakers, pauses and tenants against a plain Python model of what they promise, in random order, under
a clock of the test's.

The model does not say which jobs a claim takes, only which it may take: none whose key is full, spent, paused or
open. After each step counters must be the truth, and a claim that finds nothing must have had nothing to find.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import flow
import psycopg
import pytest
import sql_core as core
from flow import Taken
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
from mutants import mutant
from sql_clock import STOPPED, Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures

TABLES = ("live", "later", "dead", "history", "claims", "workers", "sleepers", "tasks", "leader", "limits",
          "limit_rules", "limit_owed", "throttled")  # fmt: skip
TENANTS = (None, "a", "b", "c")
NAMES = ("k1", "k2", "k3", "rate", "breaker", "free")
IMPLICIT = ("queue:default", "queue:mail", "task:t", "task:u", "tenant:a", "tenant:b")
GOOD, NEITHER, BAD = 1, 0, -1
VERDICTS = {"succeeded": GOOD, "error": BAD, "failed": BAD, "dead": BAD, "snoozed": NEITHER, "released": NEITHER,
            "canceled": NEITHER, "lost": NEITHER}  # fmt: skip
TTL = 60
LONG = os.environ.get("HOLDFAST_TEST_LONG") == "1"


@dataclass
class Key:
    """What a limit allows, and where it stands."""

    made_at: datetime
    concurrency: int | None = None
    rate: float | None = None
    per: float = 1
    burst: float = 0
    after: int | None = None
    pause: float = 0
    cap: float = 0
    paused: bool = False
    running: int = 0
    tokens: float = 0
    tokens_at: datetime | None = None
    streak: int = 0
    opens: int = 0
    open_until: datetime | None = None
    probe: uuid.UUID | None = None
    locked: bool = False  # by a session of the test's
    owed: list[tuple[uuid.UUID, int]] = field(default_factory=list)

    @property
    def says(self) -> bool:
        """Whether there is anything to count for."""
        return self.concurrency is not None or bool(self.rate or self.after or self.paused)

    @property
    def strict(self) -> bool:
        """Whether a claim is a start: nothing is claimed ahead under a rate or a breaker."""
        return bool(self.rate or self.after)

    def allow(self, now: datetime, rule: dict[str, Any]) -> None:
        earned = self.tokens_now(now) if self.rate else None
        self.concurrency, self.rate = rule.get("concurrency"), rule.get("rate")
        self.per, self.burst = rule.get("per", 1), rule.get("burst", 0)
        self.after, self.pause, self.cap = (rule.get(f"breaker_{name}", 0) for name in ("after", "pause", "cap"))
        self.tokens = self.burst if earned is None else min(earned, self.burst)
        self.tokens_at = now
        if not self.after:
            self.open_until, self.opens = None, 0

    def tokens_now(self, now: datetime) -> float:
        passed = (now - (self.tokens_at or now)).total_seconds()
        return min(self.burst, self.tokens + passed * (self.rate or 0) / self.per)

    def why_not(self, now: datetime) -> str | None:
        """Why nothing more may start now."""
        if self.paused:
            return "paused"
        if self.concurrency is not None and self.running >= self.concurrency:
            return f"{self.running} of {self.concurrency} run"
        if self.rate and self.tokens_now(now) < 1 - 1e-6:
            return f"{self.tokens_now(now):.3f} tokens are left"
        if self.open_until is not None and (self.open_until > now or self.probe is not None):
            return f"open until {self.open_until}, probe {self.probe}"
        return None

    def start(self, now: datetime, id_: uuid.UUID) -> None:
        self.running += 1
        if self.rate:
            self.tokens, self.tokens_at = self.tokens_now(now) - 1, now
        if self.open_until is not None:
            self.probe = id_

    def end(self, now: datetime, id_: uuid.UUID, verdict: int) -> None:
        self.running -= 1
        self.judge(now, id_, verdict)

    def judge(self, now: datetime, id_: uuid.UUID, verdict: int) -> None:
        probes = self.probe == id_
        if verdict == GOOD and (self.open_until is None or probes):
            self.streak = 0
        self.streak += verdict == BAD
        if self.open_until is None:
            if self.after and self.streak >= self.after:
                self.opens, self.open_until = 1, now + timedelta(seconds=self.pause)
        elif probes and verdict == GOOD:
            self.opens, self.open_until = 0, None
        elif probes and verdict == BAD:
            pause = min(self.pause * 2**self.opens, max(self.cap, self.pause))
            self.opens, self.open_until = self.opens + 1, now + timedelta(seconds=pause)
        if probes:
            self.probe = None


@dataclass
class Job:
    """What the model knows of a job that has not ended."""

    id: uuid.UUID
    tenant: str | None
    task: str
    queue: str
    priority: int
    keys: tuple[str, ...]
    attempts: int = 0
    taken: Taken | None = None
    counted: tuple[str, ...] = ()  # the keys its claim was counted under
    expires_at: datetime | None = None

    @property
    def every_key(self) -> tuple[str, ...]:
        return Taken(self.id, 0, self.tenant, self.queue, self.task, 0, 0, self.keys).every_key


rules = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": st.integers(1, 3),
        "rate": st.sampled_from([1, 3]),
        "breaker_after": st.sampled_from([1, 2]),
    },
)
keys = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
picks = st.lists(st.integers(0, 1000), min_size=1, max_size=5)
any_key = st.sampled_from(NAMES + IMPLICIT)


class Machine(RuleBasedStateMachine):
    """Draws calls, makes them on the database and on the model, and compares."""

    def __init__(self, conn: psycopg.Connection, other: psycopg.Connection, clock: Clock) -> None:
        super().__init__()
        self.sql = core.runner(conn)
        self.other = other
        self.clock = clock

    @initialize()
    def empty(self) -> None:
        self.other.rollback()
        self.sql("; ".join(f"delete from {table}" for table in TABLES))
        self.sql("select setseed(0.5)")  # a claim without a hint begins anywhere
        self.now = self.clock.set(self.clock.start)
        self.made = itertools.count()
        self.jobs: dict[uuid.UUID, Job] = {}
        self.limits: dict[str, Key] = {}
        for key, given in {
            "k1": {"concurrency": 1}, "k2": {"concurrency": 2}, "k3": {"concurrency": 3},
            "rate": {"rate": 1, "per": 10, "burst": 2},
            "breaker": {"breaker_after": 2, "breaker_pause": 10, "breaker_cap": 30},
        }.items():  # fmt: skip
            self.change(key, given)

    def teardown(self) -> None:
        self.other.rollback()

    # -- what people do

    def key(self, name: str) -> Key:
        return self.limits.setdefault(name, Key(self.now))

    def locked(self, name: str) -> bool:
        return name in self.limits and self.limits[name].locked

    def change(self, name: str, rule: dict[str, Any]) -> None:
        flow.limit(self.sql, name, **rule)
        self.key(name).allow(self.now, rule)

    @rule(tenant=st.sampled_from(TENANTS), task=st.sampled_from("ttu"), keys=keys, priority=st.sampled_from([1, 2, 2]),
          queue=st.sampled_from(["default", "default", "mail"]), number=st.integers(1, 6))  # fmt: skip
    def enqueue(self, tenant: str | None, task: str, keys: list[str], priority: int, queue: str, number: int) -> None:
        ids = [uuid.uuid5(uuid.NAMESPACE_OID, str(next(self.made))) for _ in range(number)]
        for id_ in flow.put(self.sql, tenant=tenant, task=task, keys=keys, priority=priority, queue=queue, ids=ids):
            self.jobs[id_] = Job(id_, tenant, task, queue, priority, tuple(sorted(keys)))

    @rule(name=any_key, rule=rules)
    def change_a_limit(self, name: str, rule: dict[str, Any]) -> None:
        if self.locked(name):
            return
        more = {"per": 10, "burst": 2} if "rate" in rule else {}
        more |= {"breaker_pause": 10, "breaker_cap": 30} if "breaker_after" in rule else {}
        self.change(name, rule | more)

    @rule(name=any_key, paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        if self.locked(name):
            return
        flow.pause(self.sql, name, paused)
        self.key(name).paused = paused

    @rule(seconds=st.sampled_from([0.5, 3.5, 10, 31, 61]))
    def time_passes(self, seconds: float) -> None:
        self.now = self.clock.advance(seconds)

    @precondition(lambda self: any(key.open_until for key in self.limits.values()))
    @rule()
    def time_passes_until_a_probe_may_go(self) -> None:
        ahead = [key.open_until for key in self.limits.values() if key.open_until and key.open_until > self.now]
        if ahead:
            self.now = self.clock.set(min(ahead))

    # -- somebody else works on a key: nobody may wait for it, and nothing may be lost

    @rule(name=st.sampled_from(NAMES))
    def somebody_holds_a_key(self, name: str) -> None:
        if name in self.limits and not any(key.locked for key in self.limits.values()):
            self.other.execute("select from limits where key = %s for update", [name])
            self.limits[name].locked = True

    @precondition(lambda self: any(job.taken and job.keys for job in self.jobs.values()))
    @rule(pick=st.integers(0, 1000), outcome=st.sampled_from(["succeeded", "error", "released"]))
    def a_job_ends_while_somebody_holds_its_key(self, pick: int, outcome: str) -> None:
        running = [job for job in self.jobs.values() if job.taken and job.keys]
        job = running[pick % len(running)]
        self.somebody_holds_a_key(job.keys[pick % len(job.keys)])
        self.end_one(job, outcome, None)
        if pick % 2:
            self.somebody_lets_go()

    @precondition(lambda self: any(key.locked for key in self.limits.values()))
    @rule()
    def somebody_lets_go(self) -> None:
        self.other.rollback()
        for key in self.limits.values():
            key.locked = False

    # -- claims

    @rule(
        limit=st.sampled_from([1, 2, 5, 30]),
        free=st.sampled_from([None, None, 0, 1, 3]),
        cap=st.sampled_from([None, None, 1, 2]),
        queues=st.sampled_from([["default"], ["default", "mail"]]),
    )
    def claim(self, limit: int, free: int | None, cap: int | None, queues: list[str]) -> None:
        served = {"a": 1} if cap and limit > 2 else {}
        taken = flow.claim(self.sql, "w", limit, queues=queues, free=free, per_tenant=cap, served=served, ttl=TTL)
        self.check_claim(taken, limit, queues)
        if free is not None:
            strict = sum(any(self.limits[name].strict for name in self.jobs[job.id].counted) for job in taken)
            assert strict <= free, "more under rates and breakers than could start"
        if cap is not None:
            counts = Counter(job.tenant for job in taken if job.tenant is not None)
            before = {tenant: served.get(tenant, 0) for tenant in counts}
            assert all(n + before[tenant] <= cap for tenant, n in counts.items()), f"{counts} and {before} before"

    def check_claim(self, taken: list[Taken], limit: int, queues: list[str]) -> None:
        assert len(taken) <= limit and len({job.id for job in taken}) == len(taken)
        self.take_up_owed()
        for each in taken:
            job = self.jobs[each.id]
            assert job.taken is None and job.queue in queues, "it was somebody else's"
            job.taken, job.expires_at = each, self.now + timedelta(seconds=TTL)
            job.attempts += 1
            for name in job.keys:
                self.key(name)
            job.counted = tuple(
                name for name in job.every_key if name in job.keys or (name in self.limits and self.limits[name].says)
            )
            for name in job.counted:
                refused = self.limits[name].why_not(self.now)
                assert refused is None, f"{each} was started, though of {name} {refused}"
                self.limits[name].start(self.now, each.id)

    def take_up_owed(self) -> None:
        """Whoever looks at a key takes up what it is owed; which keys a claim looked at is its own affair."""
        left = {row[0] for row in self.sql("select key from limit_owed")}
        for name, key in self.limits.items():
            if key.owed and name not in left:
                for id_, verdict in key.owed:
                    key.judge(self.now, id_, verdict)
                key.owed.clear()

    @rule(limit=st.sampled_from([1, 3, 50]))
    def claim_until_there_is_nothing(self, limit: int) -> None:
        """Never idle, nothing starved: what may run is found, however it lies."""
        waiting = sum(job.taken is None for job in self.jobs.values())
        empty = 0
        for _ in range(3 * waiting + 6):
            taken = flow.claim(self.sql, "w", limit, queues=["default", "mail"], ttl=TTL)
            self.check_claim(taken, limit, ["default", "mail"])
            empty = 0 if taken else empty + 1
            if empty > 2 + waiting // 4:  # jobs of a task that may not run are set aside by the way, a few at a time
                break
        for job in self.jobs.values():
            assert job.taken is not None or self.must_wait(job), f"{job} could run, and is not found"

    def must_wait(self, job: Job) -> bool:
        limits = [self.limits[name] for name in job.every_key if name in self.limits]
        return any(key.locked or key.why_not(self.now) for key in limits)

    # -- ends

    def chosen(self, chosen: list[int]) -> list[Job]:
        running = [job for job in self.jobs.values() if job.taken is not None]
        return list({job.id: job for job in (running[pick % len(running)] for pick in chosen)}.values())

    def freed(self, job: Job, verdict: int, counts: list[str] | None = None) -> None:
        for name in job.counted:
            counted = verdict if verdict != BAD or counts is None or name in counts else NEITHER
            key = self.limits[name]
            if key.locked:
                key.running -= 1
                key.owed.append((job.id, counted))
            else:
                for before, was in key.owed:  # what ended before counts before
                    key.judge(self.now, before, was)
                key.owed.clear()
                key.end(self.now, job.id, counted)
        job.taken, job.expires_at, job.counted = None, None, ()

    @precondition(lambda self: any(job.taken for job in self.jobs.values()))
    @rule(chosen=picks)
    def finish(self, chosen: list[int]) -> None:
        jobs = self.chosen(chosen)
        assert flow.end(self.sql, *(job.taken for job in jobs)) == []
        for job in jobs:
            self.freed(job, GOOD)
            del self.jobs[job.id]

    @precondition(lambda self: any(job.taken for job in self.jobs.values()))
    @rule(pick=st.integers(0, 1000), outcome=st.sampled_from(["succeeded", "error", "error", "error", "failed", "dead",
          "snoozed", "released", "canceled"]), counts=st.sampled_from([None, None, [], ["breaker"]]))  # fmt: skip
    def finish_one(self, pick: int, outcome: str, counts: list[str] | None) -> None:
        (job,) = self.chosen([pick])
        self.end_one(job, outcome, counts)

    def end_one(self, job: Job, outcome: str, counts: list[str] | None) -> None:
        more = {"delay": 0} if outcome in ("error", "snoozed") else {}
        if counts is not None:
            more["counts"] = counts
        assert flow.end(self.sql, job.taken, outcome=outcome, **more) == []
        self.freed(job, VERDICTS[outcome], counts)
        if outcome in ("error", "snoozed", "released"):
            job.attempts -= outcome != "error"
        else:
            del self.jobs[job.id]

    @rule(probes=st.lists(st.sampled_from(["error", "succeeded", "released"]), max_size=3))
    def a_destination_is_down_for_a_while(self, probes: list[str]) -> None:
        """Jobs fail until the breaker opens; then one is tried after each pause, and ends as drawn."""
        self.enqueue(None, "t", ["breaker"], 2, "default", 4)
        for outcome in ["error", "error", *probes]:
            self.time_passes_until_a_probe_may_go()
            self.claim(30, None, None, ["default"])
            running = [job for job in self.jobs.values() if job.taken and "breaker" in job.keys]
            for job in running if outcome == "error" else running[:1]:
                self.end_one(job, outcome, None)

    @rule(outcomes=st.lists(st.sampled_from(["error", "succeeded"]), min_size=2, max_size=3))
    def jobs_end_one_after_the_other_and_only_the_last_finds_their_key(self, outcomes: list[str]) -> None:
        self.enqueue(None, "t", ["breaker"], 1, "default", len(outcomes))
        self.claim(30, None, None, ["default"])
        running = [job for job in self.jobs.values() if job.taken and "breaker" in job.keys][: len(outcomes)]
        for job, outcome in zip(running, outcomes, strict=False):
            if job is not running[-1]:
                self.somebody_holds_a_key("breaker")
            elif any(key.locked for key in self.limits.values()):
                self.somebody_lets_go()
            self.end_one(job, outcome, None)

    @precondition(lambda self: any(job.taken for job in self.jobs.values()))
    @rule()
    def all_workers_crash(self) -> None:
        self.now = self.clock.advance(TTL + 1)
        self.reclaim()

    @rule()
    def reclaim(self) -> None:
        self.sql("select reclaim(1000)")
        for job in list(self.jobs.values()):
            if job.taken is not None and job.expires_at <= self.now:
                self.freed(job, NEITHER)
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
        rows = self.sql("select key, failure_streak, opens, open_until, probe from limits")
        found = {row[0]: row[1:] for row in rows}
        for name, key in self.limits.items():
            if not key.owed:
                assert found[name] == (key.streak, key.opens, key.open_until, key.probe), name

    @invariant()
    def nobody_loses_an_attempt_or_a_job_by_waiting(self) -> None:
        rows = self.sql("select id, attempt, token from live union all select id, attempt, null from later")
        found = {id_: (attempt, token) for id_, attempt, token in rows}
        assert found == {j.id: (j.attempts, j.taken and j.taken.token) for j in self.jobs.values()}


def explore(dsn: str, clock: Clock, *, schema: str = "holdfast", budget: float, phases: tuple[Phase, ...]) -> None:
    """Rounds of a few runs each, every one with a seed of its own, until the time is used up."""
    given = os.environ.get("HOLDFAST_TEST_SEED")
    ends = time.monotonic() + budget
    with core.session(dsn, schema) as conn, core.session(dsn, schema, autocommit=False) as other:
        conn.execute("set statement_timeout = '5s'")  # nobody waits for a key that somebody else holds
        rounds = itertools.count(1)
        while True:
            number = int(given) if given else next(rounds) if "CI" in os.environ else random.randrange(2**32)
            print(f"HOLDFAST_TEST_SEED={number} repeats this round")
            run_state_machine_as_test(
                seed(number)(lambda: Machine(conn, other, clock)),
                settings=settings(
                    max_examples=8, stateful_step_count=50, deadline=None, database=None, derandomize=False,
                    print_blob=True, report_multiple_bugs=False, phases=phases,
                    suppress_health_check=list(HealthCheck),
                ),
            )  # fmt: skip
            if given or time.monotonic() > ends:
                return


@pytest.mark.timeout(400)  # a failure is shrunk, and that takes its time
def test_limits_keep_the_promises_of_the_model(dsn: str, clock: Clock) -> None:
    explore(dsn, clock, budget=200 if LONG else 15, phases=(Phase.generate, Phase.shrink))


def test_limits_keep_their_promises_on_each_server(each_dsn: str, each_clock: Clock) -> None:
    explore(each_dsn, each_clock, budget=3, phases=(Phase.generate,))


# Each breaks one promise, and the machine must notice.
MUTANTS = {
    "claims are not counted": {"admit": [("running = m.running + u.jobs", "running = m.running")]},
    "ends are not counted": {"count_ended": [("m.running - cardinality(e.ids)", "m.running")]},
    "what is owed is forgotten": {"take_owed": [("perform count_ended(v_owed)", "null")]},
    "two of one claim take the same place": {"admit": [("having bool_and(r.fits)", "")]},
    "tokens are not spent": {"admit": [("u.free_tokens - u.jobs", "u.free_tokens")]},
    "nobody probes alone": {"admit": [("probe = coalesce(u.probe, m.probe)", "probe = m.probe")]},
    "pauses do not hold": {"views/limit_state": [("case when m.paused and", "case when false and m.paused and")]},
    "an open breaker lets through": {"views/limit_state": [("m.open_until > clock() or", "")]},
    "a probe's failure is nobody's": {"count_ended": [("when m.probe = any (e.ill) then m.opens + 1", "")]},
    "what was noted first counts last": {"release_limits": [("perform take_owed(v_locked);", "null;")]},
    "the ring is not closed": {"walk_lanes": [("if v_start is not null and cardinality", "if false and cardinality")]},
    "ends wait for a key that is held": {"release_limits": [("for update skip locked", "for update")]},
}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("changes", MUTANTS.values(), ids=MUTANTS)
def test_the_machine_goes_red_when(dsn: str, changes: dict[str, list[tuple[str, str]]]) -> None:
    with mutant(dsn, changes), core.session(dsn, "mutant") as conn:
        conn.execute(STOPPED)
        with pytest.raises((AssertionError, psycopg.errors.QueryCanceled)):
            explore(dsn, Clock(conn), schema="mutant", budget=90, phases=(Phase.generate,))
