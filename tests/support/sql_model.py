"""A model of jobs, leases, keys and the leader in plain Python: test_state_machine.py compares the database with it.
It defines what must happen, not how, so it is short where the SQL is long."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast import Retry

JUST_NOW = timedelta(seconds=10)
KNOWN_TASK = Retry.fixed(11, max_attempts=3)
KEEP = timedelta(seconds=100)
RETENTION = timedelta(days=7)
BATCH = uuid.UUID(int=7)
FINAL = ("succeeded", "failed", "dead", "canceled")


@dataclass(frozen=True)
class Spec:
    """The parameters of an enqueue."""

    id: uuid.UUID
    task: str = "known"
    queue: str = "default"
    priority: int = 2
    delay: float | None = None
    max_attempts: int | None = None
    policy: Retry | None = None
    key: str | None = None
    scope: str = "running"
    keep: bool = False
    deadline: float | None = None
    batched: bool = False
    note: int = 0

    @property
    def payload(self) -> dict[str, Any]:
        return {"note": self.note}

    def as_json(self) -> dict[str, Any]:
        result = {
            "id": str(self.id),
            "task": self.task,
            "queue": self.queue,
            "priority": self.priority,
            "delay": self.delay,
            "max_attempts": self.max_attempts,
            "retry": self.policy and self.policy.as_json(),
            "dedupe_key": self.key,
            "dedupe_scope": self.scope,
            "dedupe_keep": KEEP.total_seconds() if self.keep else None,
            "payload": self.payload,
            "deadline": self.deadline,
            "batch": str(BATCH) if self.batched else None,
        }
        return {k: v for k, v in result.items() if v is not None}

    def as_parameters(self) -> dict[str, Any]:
        given = {k: v for k, v in self.as_json().items() if k != "task"}
        for name in ("delay", "dedupe_keep", "deadline"):
            if name in given:
                given[name] = timedelta(seconds=given[name])
        return given


@dataclass
class Job:
    """What the model knows of an accepted job."""

    spec: Spec
    run_at: datetime
    created_at: datetime
    max_attempts: int
    payload: dict[str, Any]
    place: str
    attempts: int = 0
    token: int | None = None
    final: str | None = None
    finished_at: datetime | None = None
    errors: bool = False
    wanted: bool = False  # canceled while it ran
    deadline: datetime | None = None
    run_at_until: datetime | None = None  # set where the time is random: any time from run_at to this

    @property
    def status(self) -> str:
        if self.final:
            return self.final
        if self.token is not None:
            return "running"
        return "retrying" if self.attempts or self.errors else "queued"

    @property
    def waits(self) -> bool:
        return self.final is None and self.token is None

    @property
    def order(self) -> tuple[datetime, uuid.UUID]:
        return self.run_at, self.spec.id


@dataclass
class Lease:
    worker: str
    expires_at: datetime
    ids: list[uuid.UUID]


@dataclass
class Key:
    id: uuid.UUID
    scope: str
    keep: bool
    expires_at: datetime | None = None


class Duplicate(Exception):
    """The model expects enqueue to raise."""


@dataclass
class Model:
    """The whole model, in memory."""

    now: datetime
    jobs: dict[uuid.UUID, Job] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    leader: tuple[str, int, datetime] | None = None
    last_token: int = 0
    known_task: bool = False
    added: int = 0  # to the batch
    forgotten: list[str] = field(default_factory=list)  # how jobs of the batch ended that retention has removed

    def enqueue(self, spec: Spec, on_conflict: str) -> tuple[uuid.UUID, str]:
        if spec.id in self.jobs:  # a repeat after a lost reply: the job is accepted once, and nothing else changes
            return spec.id, "existing"
        if spec.key is not None and (held := self.held(spec.key)) is not None:
            return held.id, self._duplicate(held, spec, on_conflict)
        if spec.key is not None:
            self.keys[spec.key] = Key(spec.id, spec.scope, spec.keep)
        run_at = self.now + timedelta(seconds=spec.delay or 0)
        registered = KNOWN_TASK.max_attempts if self.known_task and spec.task == "known" else None
        self.jobs[spec.id] = Job(
            spec,
            run_at,
            self.now,
            spec.max_attempts or registered or 5,
            spec.payload,
            "live" if run_at <= self.now else "later",
            deadline=self.now + timedelta(seconds=spec.deadline) if spec.deadline else None,
        )
        self.added += spec.batched
        return spec.id, "created"

    def held(self, key: str) -> Key | None:
        held = self.keys.get(key)
        if held is not None and held.expires_at is not None and held.expires_at <= self.now:
            return None
        return held

    def _duplicate(self, held: Key, spec: Spec, on_conflict: str) -> str:
        if on_conflict == "raise":
            raise Duplicate
        holder = self.jobs.get(held.id)
        if on_conflict != "replace" or holder is None or holder.place not in ("live", "later"):
            return "existing"
        if holder.spec.task != spec.task:
            raise Duplicate
        if not holder.waits:
            return "existing"
        holder.payload = spec.payload
        return "replaced"

    def promote(self, limit: int, since: timedelta = timedelta.max) -> list[Job]:
        due = sorted(
            (j for j in self.jobs.values() if j.place == "later" and timedelta(0) <= self.now - j.run_at <= since),
            key=lambda j: j.order,
        )
        for job in due[:limit]:
            job.place = "live"
        return due[:limit]

    def claim(
        self, worker: str, queues: list[str], limit: int, ttl: float, after: dict[str, Any], token: int
    ) -> list[Job]:
        """Return what the claim must have taken; `token` is the one it returned, checked by the caller."""
        taken: list[Job] = []
        # A claim looks only at what became due just now; the leader finds what has been due for longer.
        promoted = self.promote(100, JUST_NOW)
        for priority in range(4):
            for queue in queues:
                start = after.get(f"{queue}/{priority}")
                lane = [
                    j
                    for j in self.jobs.values()
                    if j.place == "live"
                    and j.token is None
                    and (j.spec.queue, j.spec.priority) == (queue, priority)
                    and (start is None or j.order > start)
                    and not self.late(j)
                ]
                taken += sorted(lane, key=lambda j: j.order)[: limit - len(taken)]
        behind = [j for j in promoted if j not in taken and j.spec.queue in queues and not self.late(j)]
        taken += sorted(behind, key=lambda j: (j.spec.priority, j.order))[: limit - len(taken)]
        for job in taken:
            job.token, job.attempts = token, job.attempts + 1
            held = self.keys.get(job.spec.key or "")
            if held is not None and held.id == job.spec.id and held.scope == "queued":
                del self.keys[job.spec.key]
        if taken:
            self.leases[token] = Lease(worker, self.now + timedelta(seconds=ttl), [j.spec.id for j in taken])
        return taken

    def late(self, job: Job) -> bool:
        return job.deadline is not None and job.deadline <= self.now

    def expire(self) -> int:
        late = [j for j in self.jobs.values() if j.waits and self.late(j)]
        for job in late:
            job.errors = True
            self._end(job, "canceled")
        return len(late)

    def counts(self) -> tuple[int, int, int, int]:
        ends = self.forgotten + [j.final for j in self.jobs.values() if j.spec.batched and j.final]
        failed = ends.count("failed") + ends.count("dead")
        return self.added, ends.count("succeeded"), failed, ends.count("canceled")

    def holds(self, id_: uuid.UUID, token: int) -> bool:
        return id_ in self.jobs and self.jobs[id_].token == token

    def settle(self, id_: uuid.UUID, token: int, outcome: str, delay: float | None = None, error: bool = False) -> bool:
        """Apply one outcome; return whether the token was the job's."""
        if not self.holds(id_, token):
            return False
        job = self.jobs[id_]
        tries = outcome in ("error", "lost")
        job.errors = job.errors or error
        if outcome in FINAL:
            self._end(job, outcome)
        elif job.wanted:
            self._end(job, "canceled")
        elif tries and job.attempts >= job.max_attempts:
            self._end(job, "dead")
        else:
            self._put_back(job, outcome, delay)
            job.attempts -= not tries
        job.token = None
        return True

    def _put_back(self, job: Job, outcome: str, delay: float | None) -> None:
        if outcome == "released" and job.spec.key is not None and self.held(job.spec.key) is None:
            self.keys[job.spec.key] = Key(job.spec.id, "queued", False)
        if outcome == "released" or (outcome == "lost" and job.attempts == 1):
            delay = 0
        elif delay is None:
            policy = job.spec.policy or (KNOWN_TASK if self.known_task and job.spec.task == "known" else None)
            delay = policy.delay(job.attempts) if policy else 0
            job.run_at_until = self.now + timedelta(seconds=delay) if outcome == "lost" and delay else None
        if delay > 0:
            job.place, job.run_at = "later", self.now if job.run_at_until else self.now + timedelta(seconds=delay)

    def _end(self, job: Job, final: str) -> None:
        job.final, job.finished_at, job.wanted = final, self.now, False
        job.place = "dead" if final in ("failed", "dead") else "history"
        key = job.spec.key
        if key is None or key not in self.keys or self.keys[key].id != job.spec.id:
            return
        held = self.keys[key]
        if final == "succeeded" and held.scope == "success":
            held.expires_at = self.now + KEEP if held.keep else None
        else:
            del self.keys[key]

    def close(self, tokens: set[int]) -> None:
        for token in tokens & set(self.leases):
            if not any(self.holds(i, token) for i in self.leases[token].ids):
                del self.leases[token]

    def reclaim(self, limit: int) -> dict[int, tuple[str, set[uuid.UUID]]]:
        values = {}
        expired = sorted(t for t, lease in self.leases.items() if lease.expires_at <= self.now)
        for token in expired[:limit]:
            lease = self.leases.pop(token)
            values[token] = lease.worker, {i for i in lease.ids if self.settle(i, token, "lost", error=True)}
        return values

    def cancel(self, id_: uuid.UUID) -> str:
        job = self.jobs.get(id_)
        if job is None:
            return "unknown"
        if not job.waits:
            job.wanted = not job.final
            return "finished" if job.final else "canceling"
        self._end(job, "canceled")
        return "canceled"

    def retry_dead(self, id_: uuid.UUID) -> bool:
        job = self.jobs.get(id_)
        if job is None or job.place != "dead":
            return False
        key = job.spec.key
        if key is not None:
            if self.held(key) is not None:
                return False
            self.keys[key] = Key(id_, job.spec.scope, job.spec.keep)
        job.place, job.final, job.finished_at, job.attempts, job.run_at = "live", None, None, 0, self.now
        job.deadline = None
        return True

    def discard_dead(self, id_: uuid.UUID) -> bool:
        job = self.jobs.get(id_)
        if job is None or job.place != "dead":
            return False
        job.place, job.finished_at = "history", self.now
        return True

    def prune(self) -> None:
        oldest = self.now.replace(hour=0, minute=0, second=0, microsecond=0) - RETENTION
        kept = {i: j for i, j in self.jobs.items() if j.place != "history" or j.finished_at >= oldest}
        self.forgotten += [j.final for i, j in self.jobs.items() if i not in kept and j.spec.batched]
        self.jobs = kept
        self.keys = {k: v for k, v in self.keys.items() if self.held(k)}

    def take_lead(self, worker: str, ttl: float) -> int | None:
        until = self.now + timedelta(seconds=ttl)
        if self.leader is None:
            self.leader = worker, 1, until
            return 1
        leads, term, expires_at = self.leader
        expired = expires_at <= self.now
        if leads != worker and not expired:
            return None
        term += expired or leads != worker
        self.leader = worker, term, until
        return term
