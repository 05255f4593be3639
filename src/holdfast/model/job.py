"""Jobs as the client sees them and as the worker holds them."""

from __future__ import annotations

import enum
import json
import os
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.errors import UsageError
from holdfast.model import limit


class Status(enum.StrEnum):
    """Where a job is in its life; the last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        """Whether only an operator can move the job on from here."""
        return self in (Status.SUCCEEDED, Status.FAILED, Status.DEAD, Status.CANCELED)


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One row of the `jobs` view."""

    id: str
    task: str
    tenant: str | None
    queue: str
    priority: int
    payload: dict[str, Any]
    status: Status
    attempts: int
    max_attempts: int
    run_at: datetime
    last_error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    dedupe_key: str | None
    locked_by: str | None
    locked_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    batch: str | None
    deadline: datetime | None
    progress: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One row of the `batch_progress` view. `processed` is what has ended: succeeded, failed or canceled."""

    id: str
    name: str
    tenant: str | None
    status: str
    total: int
    processed: int
    succeeded: int
    failed: int
    canceled: int
    open: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    callback: str | None

    @property
    def ended(self) -> bool:
        """Whether every job has ended and the batch with them."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One row of the `blocks` table: what handlers found blocked, how often and when."""

    key: str
    reason: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    last_job: str


@dataclass(slots=True)
class NewJob:
    """One job to be enqueued: what travels to the database."""

    id: str
    task: str
    payload: bytes
    queue: str = "default"
    tenant: str | None = None
    priority: int = 2
    delay: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    retry: dict[str, Any] | None = None
    dedupe_key: str | None = None
    dedupe_scope: str = "running"
    dedupe_keep: float | None = None
    deadline: float | None = None
    batch: str | None = None
    headers: dict[str, Any] | None = None
    keys: tuple[str, ...] | None = None

    @property
    def lane(self) -> int:
        """Where it waits among jobs of other tenants and other limits."""
        return limit.lane(self.tenant, self.keys)

    @property
    def plain(self) -> bool:
        """Complete, due at once, without a dedupe key or a deadline: nothing to decide, so it may go straight into
        live."""
        return (
            self.dedupe_key is None and self.delay is None and self.run_at is None and self.deadline is None
            and self.max_attempts is not None
        )  # fmt: skip


class Job:
    """One claimed job. `lease` is the claim it came with, shared by the whole batch."""

    __slots__ = (
        "attempt", "batch", "canceled", "direct", "id", "kept", "keys", "lane", "lease", "max_attempts", "payload",
        "priority", "queue", "result", "run_at", "sent", "settled", "started", "task", "tenant", "thread", "token",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...], lease: Any = None) -> None:
        (
            self.id, self.token, self.task, self.payload, self.attempt, self.max_attempts, self.queue, self.priority,
            self.tenant, self.run_at, self.batch, self.sent, self.lane, self.keys, _,
        ) = row  # fmt: skip
        self.lease = lease
        self.started = 0.0  # by this machine's monotonic clock; 0 before
        self.direct = False  # under a rate or a breaker: it started when it was claimed
        self.canceled = False  # somebody wants it canceled
        self.result: bytes | None = None  # what the handler has set before it returns
        self.settled = False  # finished inside its handler's own transaction
        self.kept: bytes | None = None  # the result that was committed there
        self.thread: Any = None  # the future of a handler that runs on in its thread after the attempt has ended

    @property
    def headers(self) -> Any:
        """What was sent along with it. Read anew each time, as hardly anybody asks and every job would pay."""
        return None if self.sent is None else read_headers(self.sent)


def read_headers(sent: str) -> Any:
    """Headers are anybody's: what cannot be read here (too deep, a number of thousands of digits) is not there."""
    try:
        return json.loads(sent)
    except (ValueError, RecursionError):
        return None


class IdMaker:
    """UUIDv7 ids that grow within a process: 48 bits of milliseconds, a 26-bit counter, 48 random bits.

    The counter keeps jobs of one millisecond in the order they were made (RFC 9562, method 1); drawing random bits in
    bulk keeps an id below a microsecond.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._count = 0

    def make(self) -> str:
        """One id as text."""
        return self.make_many(1)[0]

    def make_many(self, number: int) -> list[str]:
        """Ids in growing order."""
        with self._lock:
            stamp = time.time_ns() // 1_000_000
            if stamp <= self._last:  # the same millisecond, or a clock set back: count on
                stamp = self._last + (self._count + number >= _COUNTER)
            first = 0 if stamp > self._last else self._count
            self._last, self._count = stamp, first + number
        head, noise = f"{stamp:012x}", os.urandom(6 * number).hex()
        head = f"{head[:8]}-{head[8:]}"
        return [
            f"{head}-7{n >> 14:03x}-{0x8000 | n & 0x3FFF:04x}-{noise[12 * i : 12 * i + 12]}"
            for i, n in enumerate(range(first, first + number))
        ]


_COUNTER = 1 << 26
ids = IdMaker()


def parse_id(text: str | uuid.UUID) -> str:
    """An id as canonical text."""
    try:
        return str(text if isinstance(text, uuid.UUID) else uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f"{text!r:.60} is not an id; one looks like 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f") from None
