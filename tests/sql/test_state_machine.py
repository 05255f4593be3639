"""Every SQL function against a plain Python model, in random order, under a clock of the test's.

After each step the whole database must look like the model: each job in exactly one place, with the status, attempts,
token and times the model (sql_model.py) says; the same leases; the same holders of dedupe keys (I1-I5, I11).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
import uuid
from dataclasses import replace
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

from holdfast import Retry
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_model import BATCH, JUST_NOW, KNOWN_TASK, Duplicate, Job, Model, Spec

TABLES = (
    "live",
    "later",
    "dead",
    "history",
    "claims",
    "workers",
    "sleepers",
    "dedupe",
    "tasks",
    "leader",
    "cancels",
    "batches",
    "batch_counts",
)
WORKERS = ("ada", "bob", "eve")
QUEUES = ("default", "mail")
POLICIES = (
    None,
    Retry.fixed(0, max_attempts=9),
    Retry.fixed(7, max_attempts=9),
    Retry.exponential(2, cap=60, max_attempts=9),
    Retry.table([3, 90], max_attempts=9),
)

picks = st.lists(st.integers(0, 1000), min_size=1, max_size=4)
specs = st.builds(
    Spec,
    id=st.just(uuid.UUID(int=0)),
    task=st.sampled_from(["known", "known", "stray"]),
    queue=st.sampled_from(QUEUES),
    priority=st.integers(0, 3),
    delay=st.sampled_from([None, None, 0, 5, 60]),
    max_attempts=st.sampled_from([None, 1, 2, 3]),
    policy=st.sampled_from(POLICIES),
    key=st.sampled_from([None, "k1", "k2", "k3"]),
    scope=st.sampled_from(["queued", "running", "success"]),
    keep=st.booleans(),
    deadline=st.sampled_from([None, None, 70, 700]),
    batched=st.booleans(),
    note=st.integers(0, 9),
)
conflicts = st.sampled_from(["existing", "existing", "replace", "raise"])
outcomes = st.sampled_from(["error", "error", "failed", "dead", "snoozed", "released", "canceled", "succeeded"])
delays = st.sampled_from([None, None, 0, 4, 40])


class Machine(RuleBasedStateMachine):
    """Draw calls, make them on the database and on the model, and compare results and everything stored."""

    def __init__(self, conn: psycopg.Connection, clock: Clock) -> None:
        super().__init__()
        self.sql = core.runner(conn)
        self.clock = clock
        self.made = 0
        self.pairs: list[tuple[uuid.UUID, int]] = []  # every claim of every job so far, stale ones too
        self.cursors: dict[str, dict[str, Any]] = {w: {} for w in WORKERS}

    @initialize()
    def empty(self) -> None:
        self.sql("; ".join(f"delete from {table}" for table in TABLES))
        self.clock.set(self.clock.start)
        self.model = Model(self.clock.start)
        self.sql("select open_batch(%s, 'import')", [BATCH])
        self.model.last_token = self.sql("select next_token()")[0][0]

    # -- enqueue

    def fresh(self, spec: Spec) -> Spec:
        self.made += 1
        return replace(spec, id=uuid.uuid5(uuid.NAMESPACE_OID, str(self.made)))

    @rule(spec=specs, on_conflict=conflicts, fresh=st.booleans())
    def enqueue(self, spec: Spec, on_conflict: str, fresh: bool) -> None:
        self.check_enqueue(self.fresh(spec), on_conflict, fresh)

    @precondition(lambda self: self.model.jobs)
    @rule(pick=st.integers(0, 1000), on_conflict=conflicts)
    def enqueue_again(self, pick: int, on_conflict: str) -> None:
        self.check_enqueue(self.job(pick).spec, on_conflict, fresh=False)

    def check_enqueue(self, spec: Spec, on_conflict: str, fresh: bool) -> None:
        try:
            expected = self.model.enqueue(spec, on_conflict)
        except Duplicate:
            with pytest.raises(psycopg.errors.UniqueViolation, match="already holds dedupe key"):
                core.enqueue(self.sql, spec.task, **spec.as_parameters(), on_conflict=on_conflict, fresh=fresh)
            return
        result = core.enqueue(self.sql, spec.task, **spec.as_parameters(), on_conflict=on_conflict, fresh=fresh)
        assert result == expected

    @rule(given=st.lists(specs, max_size=4), again=st.lists(st.integers(0, 1000), max_size=2), on_conflict=conflicts)
    def enqueue_many(self, given: list[Spec], again: list[int], on_conflict: str) -> None:
        batch = [self.fresh(spec) for spec in given]
        batch += [self.job(pick).spec for pick in again if self.model.jobs]
        kept = replace(self.model, jobs={i: replace(j) for i, j in self.model.jobs.items()}, keys=dict(self.model.keys))
        kept.forgotten = list(self.model.forgotten)
        expected: dict[int, tuple[uuid.UUID, str]] = {}
        query = "select id, outcome from enqueue_many(%s::jsonb, %s)"
        params = [json.dumps([spec.as_json() for spec in batch]), on_conflict]
        try:
            # Keys are taken in order, so that two batches cannot wait for each other.
            for place, spec in sorted(enumerate(batch), key=lambda each: (each[1].key or "~", each[0])):
                expected[place] = self.model.enqueue(spec, on_conflict)
        except Duplicate:
            self.model = kept
            with pytest.raises(psycopg.errors.UniqueViolation, match="already holds dedupe key"):
                self.sql(query, params)
            return
        assert self.sql(query, params) == [expected[place] for place in range(len(batch))]

    # -- claim, renew, reclaim

    @rule(
        worker=st.sampled_from(WORKERS),
        queues=st.sampled_from([["default"], ["mail"], ["default", "mail"], ["mail", "default"]]),
        limit=st.integers(1, 5),
        ttl=st.sampled_from([5, 60, 600]),
        cursor=st.sampled_from(["none", "none", "right", "random"]),
        pick=st.integers(0, 1000),
        asleep=st.booleans(),
    )
    def claim(
        self, worker: str, queues: list[str], limit: int, ttl: float, cursor: str, pick: int, asleep: bool
    ) -> None:
        after = {"none": {}, "right": self.cursors[worker], "random": self.somewhere(pick)}[cursor]
        hint = {place: [at.timestamp(), str(id_)] for place, (at, id_) in after.items()}
        taken = core.claim(self.sql, worker, limit, queues=queues, ttl=ttl, after=hint or None, asleep=asleep)
        token = taken[0].token if taken else 0
        expected = self.model.claim(worker, queues, limit, ttl, after, token)
        assert {j.id: (j.attempt, j.payload, j.run_at) for j in taken} == {
            j.spec.id: (j.attempts, j.payload, j.run_at) for j in expected
        }
        assert [j.priority for j in taken] == sorted(j.priority for j in taken)
        for queue in queues:  # queues of one priority may come one after the other
            ours = [(j.priority, j.run_at, j.id) for j in taken if j.queue == queue]
            assert ours == sorted(ours)
        if taken:
            assert {j.token for j in taken} == {token}
            assert token > self.model.last_token, "a fencing token must grow"
            self.model.last_token = token
        for job in taken:
            self.pairs.append((job.id, token))
            self.cursors[worker][f"{job.queue}/{job.priority}"] = (job.run_at, job.id)

    def somewhere(self, pick: int) -> dict[str, Any]:
        if not self.model.jobs:
            return {}
        job = self.job(pick)
        return {f"{queue}/{priority}": job.order for queue in QUEUES for priority in range(4)}

    @precondition(lambda self: self.pairs)
    @rule(worker=st.sampled_from(WORKERS), chosen=picks, ttl=st.sampled_from([5, 60]))
    def renew(self, worker: str, chosen: list[int], ttl: float) -> None:
        tokens = {self.pair(pick)[1] for pick in chosen}
        now = self.model.now
        mine = {t for t in tokens if t in self.model.leases and self.model.leases[t].worker == worker}
        held = {t for t in mine if self.model.leases[t].expires_at > now}
        for token in held:
            self.model.leases[token].expires_at = now + timedelta(seconds=ttl)
        assert set(core.renew(self.sql, worker, *tokens, ttl=f"{ttl} seconds")) == held

    @rule(limit=st.sampled_from([1, 20]))
    def reclaim(self, limit: int) -> None:
        rows = self.sql("select token, worker, ids from reclaim(%s)", [limit])
        assert {token: (worker, set(ids)) for token, worker, ids in rows} == self.model.reclaim(limit)
        self.adopt_chance()

    def adopt_chance(self) -> None:
        """Read the delay of a job lost more than once, a random share. One whose deadline has passed
        is no longer in later: upkeep cancels it in the same round."""
        for job in self.model.jobs.values():
            if job.run_at_until is not None:
                ((found,),) = self.sql(f"select run_at from {job.place} where id = %s", [job.spec.id])
                assert self.model.now <= found <= job.run_at_until
                job.run_at, job.run_at_until = found, None

    # -- the ends of attempts

    @precondition(lambda self: self.pairs)
    @rule(chosen=picks, keep_count=st.booleans())
    def finish(self, chosen: list[int], keep_count: bool) -> None:
        """Finish right and stale tokens together as successes; a worker that keeps count names the claims it ends."""
        pairs = list(dict.fromkeys(self.pair(pick) for pick in chosen))
        refused = [i for i, token in pairs if not self.model.settle(i, token, "succeeded")]
        touched = {token for _, token in pairs}
        before = set(self.model.leases)
        self.model.close(touched)
        closed = sorted(before - set(self.model.leases)) if keep_count else None
        stale = self.sql(
            "select finish(%s::uuid[], %s::bigint[], null, %s::bigint[])",
            [[i for i, _ in pairs], [token for _, token in pairs], closed],
        )
        assert sorted(core.firsts(stale)) == sorted(refused)

    @precondition(lambda self: self.pairs)
    @rule(chosen=picks, drawn=st.lists(st.tuples(outcomes, delays), min_size=4, max_size=4))
    def finish_with_outcomes(self, chosen: list[int], drawn: list[tuple[str, float | None]]) -> None:
        pairs = list(dict.fromkeys(self.pair(pick) for pick in chosen))
        results: list[dict[str, Any]] = []
        refused: list[uuid.UUID] = []
        for (id_, token), (outcome, delay) in zip(pairs, drawn, strict=False):
            each = {"id": str(id_), "token": token, "outcome": outcome}
            if outcome == "succeeded":
                each["result"] = [1]
            else:
                each["error"] = {"type": "Oops"}
            if delay is not None or outcome == "snoozed":
                each["delay"] = delay or 9
            results.append(each)
            if not self.model.settle(id_, token, outcome, each.get("delay"), error="error" in each):
                refused.append(id_)
        self.model.close({token for _, token in pairs})
        stale = self.sql("select finish('{}', '{}', %s::jsonb)", [json.dumps(results)])
        assert sorted(core.firsts(stale)) == sorted(refused)

    @precondition(lambda self: self.pairs)
    @rule(pick=st.integers(0, 1000), outcome=st.sampled_from(["error", "error", "failed", "dead"]), delay=delays)
    def fail(self, pick: int, outcome: str, delay: float | None) -> None:
        id_, token = self.pair(pick)
        expected = self.model.settle(id_, token, outcome, delay, error=True)
        self.model.close({token})
        query = 'select fail(%s, %s, \'{"type": "Oops"}\', make_interval(secs => %s), %s)'
        assert self.sql(query, [id_, token, delay, outcome]) == [(expected,)]

    @precondition(lambda self: self.pairs)
    @rule(pick=st.integers(0, 1000), delay=st.sampled_from([0, 3, 30]))
    def snooze(self, pick: int, delay: float) -> None:
        id_, token = self.pair(pick)
        expected = self.model.settle(id_, token, "snoozed", delay)
        self.model.close({token})
        assert self.sql("select snooze(%s, %s, make_interval(secs => %s))", [id_, token, delay]) == [(expected,)]

    @precondition(lambda self: self.pairs)
    @rule(chosen=picks)
    def release(self, chosen: list[int]) -> None:
        pairs = list(dict.fromkeys(self.pair(pick) for pick in chosen))
        refused = [i for i, token in pairs if not self.model.settle(i, token, "released")]
        self.model.close({token for _, token in pairs})
        rows = self.sql("select release(%s::uuid[], %s::bigint[])", [[i for i, _ in pairs], [t for _, t in pairs]])
        assert sorted(core.firsts(rows)) == sorted(refused)

    # -- operators and upkeep

    @rule(limit=st.sampled_from([1, 2, 1000]))
    def promote(self, limit: int) -> None:
        assert set(core.promote(self.sql, limit)) == {j.spec.id for j in self.model.promote(limit)}

    @rule(chosen=picks, stranger=st.booleans())
    def cancel(self, chosen: list[int], stranger: bool) -> None:
        ids = list(dict.fromkeys(self.job(pick).spec.id for pick in chosen if self.model.jobs))
        ids += [uuid.uuid5(uuid.NAMESPACE_OID, "nobody")] if stranger else []
        rows = self.sql("select id, outcome from cancel(%s::uuid[])", [ids])
        assert rows == [(i, self.model.cancel(i)) for i in ids]

    @precondition(lambda self: any(j.place == "dead" for j in self.model.jobs.values()))
    @rule(chosen=picks)
    def retry_dead(self, chosen: list[int]) -> None:
        ids = sorted({self.job(pick, "dead").spec.id for pick in chosen} | {self.job(chosen[0]).spec.id})
        result = core.retry_dead(self.sql, *ids)
        assert sorted(result) == [i for i in ids if self.model.retry_dead(i)]

    @precondition(lambda self: any(j.place == "dead" for j in self.model.jobs.values()))
    @rule(chosen=picks)
    def discard_dead(self, chosen: list[int]) -> None:
        ids = sorted({self.job(pick, "dead").spec.id for pick in chosen[:1]} | {self.job(chosen[-1]).spec.id})
        result = core.discard_dead(self.sql, *ids)
        assert sorted(result) == [i for i in ids if self.model.discard_dead(i)]

    @rule()
    def prune(self) -> None:
        # Otherwise it would be canceled as left open: see tests/sql/test_prune_limits.py.
        self.sql("update batches set created_at = clock()")
        self.sql("select prune()")
        self.model.prune()

    @rule(worker=st.sampled_from(WORKERS), ttl=st.sampled_from([1, 30]))
    def take_lead(self, worker: str, ttl: float) -> None:
        rows = self.sql("select take_lead('upkeep', %s, make_interval(secs => %s))", [worker, ttl])
        assert rows == [(self.model.take_lead(worker, ttl),)]

    @rule(worker=st.sampled_from(WORKERS))
    def upkeep(self, worker: str) -> None:
        term, promoted, reclaimed, expired = self.sql(
            "select term, promoted, reclaimed, expired from upkeep(%s, '10 seconds')", [worker]
        )[0]
        assert term == self.model.take_lead(worker, 10)
        due = self.model.promote(1000) if term else []
        lost = self.model.reclaim(20) if term else {}
        assert promoted == len(due)
        assert expired == (self.model.expire() if term else 0)
        assert sorted((r["worker"], r["jobs"]) for r in reclaimed) == sorted((w, len(ids)) for w, ids in lost.values())
        self.adopt_chance()

    @rule(worker=st.sampled_from(WORKERS), gone=st.sampled_from([None, True, False]))
    def come_and_go(self, worker: str, gone: bool | None) -> None:
        """Register, sleep and leave, which touches no job; a registered task has a policy from then on."""
        if gone is None:
            task = {"name": "known", "queue": "default", "max_attempts": 3, "retry": KNOWN_TASK.as_json(), "timeout": 1}
            args = [worker, "host", 1, "1", list(QUEUES), 1, json.dumps([task])]
            self.sql("select register_worker(%s, %s, %s, %s, %s, %s, %s::jsonb)", args)
            self.model.known_task = True
            jobs, since = self.model.jobs.values(), self.model.now - JUST_NOW
            later = [j.run_at for j in jobs if j.place == "later" and j.run_at >= since]
            rows = self.sql("select sleep(%s, %s)", [worker, list(QUEUES)])[0][0]
            assert rows == ((min(later) - self.model.now).total_seconds() if later else None)
            return
        self.sql("select unregister_worker(%s, %s)", [worker, gone])
        if gone and self.model.leader and self.model.leader[0] == worker:
            self.model.leader = (*self.model.leader[:2], self.model.now)

    @rule(seconds=st.sampled_from([1, 61, 601, 90_000, 800_000]))
    def time_passes(self, seconds: float) -> None:
        self.model.now = self.clock.advance(seconds)

    @rule(which=st.integers(0, 2))
    def time_passes_until_something_is_due(self, which: int) -> None:
        """Advance to the moment when a lease or a key expires or a job comes due: the edge of every comparison."""
        moments = {lease.expires_at for lease in self.model.leases.values()}
        moments |= {job.run_at for job in self.model.jobs.values() if job.place == "later"}
        moments |= {key.expires_at for key in self.model.keys.values() if key.expires_at}
        ahead = sorted(moment for moment in moments if moment > self.model.now)[: which + 1]
        if ahead:
            self.model.now = self.clock.set(ahead[-1])

    @precondition(lambda self: self.model.leases)
    @rule(worker=st.sampled_from(WORKERS))
    def all_workers_vanish(self, worker: str) -> None:
        """Let every lease run out and be reclaimed, and one worker take over: older tokens are stale from then on."""
        self.model.now = self.clock.set(max(self.model.now, *(e.expires_at for e in self.model.leases.values())))
        self.reclaim(limit=20)
        self.claim(worker, list(QUEUES), 5, 60, "none", 0, False)

    # -- comparing

    def job(self, pick: int, place: str | None = None) -> Job:
        jobs = [j for j in self.model.jobs.values() if place in (None, j.place)]
        return jobs[pick % len(jobs)]

    def pair(self, pick: int) -> tuple[uuid.UUID, int]:
        """Return a job with one of its tokens: a current one, a stale one of a job that another worker has, or any."""
        current = [pair for pair in self.pairs if self.model.holds(*pair)]
        held = {id_ for id_, _ in current}
        stale = [pair for pair in self.pairs if pair[0] in held and pair not in current]
        pairs = ([current, current, stale][pick % 3] or self.pairs) if pick % 5 else self.pairs
        return pairs[pick // 3 % len(pairs)]

    @invariant()
    def every_job_is_where_the_model_says(self) -> None:
        rows = self.sql(
            "select j.id, p.place, j.status::text, j.attempts, j.max_attempts, j.token, j.run_at, j.queue, j.priority, "
            "j.task, j.payload, j.dedupe_key, j.created_at, j.finished_at, j.last_error is not null, "
            "j.lease_expires_at, case when j.status = 'running' then j.locked_by end "
            f"from jobs j full join ({core.PLACES}) p on p.id = j.id"
        )
        found = {row[0]: row[1:] for row in rows}
        assert len(found) == len(rows), "a job is in two places"
        expected = {}
        for id_, job in self.model.jobs.items():
            assert job.attempts <= job.max_attempts
            lease = self.model.leases.get(job.token or 0)
            expected[id_] = (
                job.place,
                job.status,
                job.attempts,
                job.max_attempts,
                job.token,
                job.run_at,
                job.spec.queue,
                job.spec.priority,
                job.spec.task,
                job.payload,
                job.spec.key,
                job.created_at,
                job.finished_at,
                job.errors,
                lease and lease.expires_at,
                lease and lease.worker,
            )
        assert found == expected

    @invariant()
    def the_batch_is_counted_as_the_model_says(self) -> None:
        rows = self.sql("select total, succeeded, failed, canceled, status from batch_progress where id = %s", [BATCH])
        counts = self.model.counts()
        assert rows == [(*counts, "running" if sum(counts[1:]) else "queued")]

    @invariant()
    def every_lease_is_as_the_model_says(self) -> None:
        rows = self.sql("select token, worker, expires_at, ids from claims")
        found = {token: (worker, expires_at, sorted(ids)) for token, worker, expires_at, ids in rows}
        assert found == {t: (e.worker, e.expires_at, sorted(e.ids)) for t, e in self.model.leases.items()}

    @invariant()
    def every_key_is_held_as_the_model_says(self) -> None:
        rows = self.sql(
            "select key, id, scope::text, expires_at from dedupe where expires_at > clock() or expires_at is null"
        )
        expected = {k: (v.id, v.scope, v.expires_at) for k, v in self.model.keys.items() if self.model.held(k)}
        assert {key: (id_, scope, expires_at) for key, id_, scope, expires_at in rows} == expected


def explore(dsn: str, clock: Clock, *, budget: float, phases: tuple[Phase, ...]) -> None:
    """Run rounds of a few runs each, every one with a seed of its own, until the time is used up."""
    given = os.environ.get("HOLDFAST_TEST_SEED")
    ends = time.monotonic() + budget
    with core.session(dsn) as conn:
        rounds = itertools.count(1)
        while True:
            # CI uses the same seeds every time; other runs explore.
            number = int(given) if given else next(rounds) if "CI" in os.environ else random.randrange(2**32)
            print(f"HOLDFAST_TEST_SEED={number} repeats this round")
            run_state_machine_as_test(
                seed(number)(lambda: Machine(conn, clock)),
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


def test_a_job_lost_again_after_its_deadline_ends_in_the_round_that_reclaims_it(dsn: str, clock: Clock) -> None:
    """A fixed sequence, since random ones seldom reach it: lost, retried for a random share of a delay, and expired."""
    with core.session(dsn) as conn:
        machine = Machine(conn, clock)
        machine.empty()
        machine.enqueue(Spec(uuid.UUID(int=0), policy=Retry.fixed(7, max_attempts=9), deadline=70), "existing", True)
        for lost in range(2):
            machine.claim("ada", ["default"], 1, 600 if lost else 5, "none", 0, False)
            machine.time_passes(601 if lost else 61)
            machine.upkeep("bob")
            machine.every_job_is_where_the_model_says()
        (job,) = machine.model.jobs.values()
        assert (job.status, job.attempts, job.place) == ("canceled", 2, "history")


@pytest.mark.timeout(400)  # shrinking a failure takes time
def test_every_function_keeps_the_promises_of_the_model(dsn: str, clock: Clock) -> None:
    explore(dsn, clock, budget=12, phases=(Phase.generate, Phase.shrink))


@pytest.mark.parametrize("each_database", ["pg16", "pg_local"], indirect=True)
def test_the_promises_hold_on_other_servers(each_dsn: str, each_clock: Clock) -> None:
    explore(each_dsn, each_clock, budget=3, phases=(Phase.generate,))
