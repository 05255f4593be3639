"""The backoff, the dedupe key, and a repository of jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import psycopg
from psycopg.rows import dict_row

from holdfast import Holdfast, Retry, UnknownTask

JobStatus = Literal["queued", "running", "success", "failed"]
DEFAULT_MAX_ATTEMPTS = 5
RETRY = Retry.exponential(base=1, cap=60, max_attempts=DEFAULT_MAX_ATTEMPTS)  # Holdfast's own retry policy


def get_backoff_delay_ms(attempts: int) -> int:
    """Return 1 s for zero or one attempt, then 2 s, 4 s, 8 s ..., at most 60 s."""
    return round(RETRY.delay(attempts) * 1000)


def can_retry(status: JobStatus, attempts: int, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> bool:
    return status not in ("success", "running") and attempts < max_attempts


def make_job_dedupe_key(type_: str, org_id: str | None, payload: dict[str, Any]) -> str:
    """Return the key that Holdfast derives too; a test compares the two."""
    document = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{type_}::{org_id or 'global'}::{document}"


@dataclass(frozen=True)
class EnqueueJobInput:
    type: str
    org_id: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    run_at: datetime | None = None


@dataclass(frozen=True)
class Job:
    """A job that this repository has claimed. Ending it takes the token; the id alone ends nothing."""

    id: str
    token: int
    type: str
    org_id: str | None
    payload: dict[str, Any]
    attempts: int


class NotClaimed(Exception):
    """The repository may not end the job: it never claimed it, or the lease expired and another worker has it."""


class JobsRepository:
    """enqueue() is for all callers. claim(), mark_success() and mark_failure() are for code that runs jobs itself;
    the tick endpoint leaves that to Holdfast."""

    def __init__(self, hf: Holdfast, lease: str = "60 seconds") -> None:
        self._hf = hf
        self._lease = lease
        self._claimed: dict[str, Job] = {}

    async def __aenter__(self) -> JobsRepository:
        self._conn = await psycopg.AsyncConnection.connect(self._hf.database.url, autocommit=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._conn.close()

    async def enqueue(self, job: EnqueueJobInput) -> str:
        """Enqueue a job and return its id; return the id of the existing one if it is queued or running."""
        if job.type not in self._hf.registry.tasks:
            raise UnknownTask(job.type, sorted(self._hf.registry.tasks))
        wanted = self._hf.registry.tasks[job.type].using(tenant=job.org_id, run_at=job.run_at)
        return (await wanted.aenqueue(**job.payload)).id

    async def claim(self, most: int = 1) -> list[Job]:
        """Claim at most this many due jobs. No other worker has them while the lease lasts."""
        cursor = await self._conn.execute(
            "select id::text, token, task, tenant, payload, attempt "
            "from holdfast.claim('by hand', '{default}', %s, %s)",
            [most, self._lease],
        )
        claimed = [Job(*row) for row in await cursor.fetchall()]
        self._claimed.update({job.id: job for job in claimed})
        return claimed

    async def mark_success(self, id_: str) -> None:
        job = self._mine(id_)
        refused = await self._conn.execute("select holdfast.finish(%s::uuid[], %s::bigint[])", [[id_], [job.token]])
        if await refused.fetchone():
            raise NotClaimed(id_)

    async def mark_failure(self, id_: str, error: str) -> None:
        """Queue the job again with the delay for its attempts, or fail it for good when its attempts are used up."""
        job = self._mine(id_)
        document = json.dumps({"type": "Error", "message": error})
        ended = await self._conn.execute(
            "select holdfast.fail(%s, %s, %s, make_interval(secs => %s))",
            [id_, job.token, document, get_backoff_delay_ms(job.attempts) / 1000],
        )
        if await ended.fetchone() != (True,):
            raise NotClaimed(id_)

    async def insights(self) -> list[dict[str, Any]]:
        """Return what background work cost, and how often it failed, by organization and type."""
        async with self._conn.cursor(row_factory=dict_row) as cursor:
            return await (await cursor.execute("select * from harmonyk.insights")).fetchall()

    def _mine(self, id_: str) -> Job:
        if id_ not in self._claimed:
            raise NotClaimed(id_)
        return self._claimed.pop(id_)
