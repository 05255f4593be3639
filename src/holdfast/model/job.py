"""Jobs, as the client and the worker represent them."""

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

MOST_COUNTED = 10_000  # counts for people stop here
LARGEST_JOINED = 65_536  # bytes of a payload


class Status(enum.StrEnum):
    """The state of a job; the last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        """Return whether only an operator can change this state."""
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
    waits_for: str | None = None
    """What a waiting job waits for: "sleep NAME", "signal NAME", "batch NAME", "call NAME" or "after"."""


@dataclass(frozen=True, slots=True)
class PublicJob:
    """A job as callers of the service see it: without keys and leases, its error without traceback and output."""

    id: str
    task: str
    tenant: str | None
    queue: str
    priority: int
    args: Any
    status: str
    attempts: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, Any] | None
    result: Any
    batch: str | None
    deadline: datetime | None
    progress: dict[str, Any] | None
    discarded: bool
    """Whether the job failed or is dead, and was discarded by an operator."""
    waits_for: str | None = None
    """What a waiting job waits for: "sleep NAME", "signal NAME", "batch NAME", "call NAME" or "after"."""

    @property
    def ended(self) -> bool:
        return self.status in ("succeeded", "failed", "dead", "canceled")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list for people, without its large values: `args` and `error` are the first characters."""

    id: str
    task: str
    tenant: str | None
    queue: str
    status: str
    attempts: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    args: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails:
    """What operators see of a job besides: its error with traceback and output, as JSON, its lease, and its limits."""

    error: str | None
    dedupe_key: str | None
    worker: str | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    keys: list[str]


@dataclass(frozen=True, slots=True)
class Left:
    """Jobs enqueued before `at` that have not ended. delayed: not due yet and never failed."""

    at: datetime
    waiting: int
    running: int
    retrying: int
    delayed: int


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One row of the `batch_progress` view. `processed` counts ended jobs: succeeded, failed or canceled."""

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
        """Return whether the batch has ended."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One row of the `blocks` table: what handlers reported as blocked, how often and when."""

    key: str
    reason: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    last_job: str


@dataclass(slots=True)
class NewJob:
    """One job to enqueue, as it is sent to the database."""

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
    after: tuple[str, ...] | None = None
    on_failure: str | None = None

    @property
    def lane(self) -> int:
        """Return the lane, by tenant and limit keys."""
        return limit.lane(self.tenant, self.keys)

    @property
    def plain(self) -> bool:
        """Return whether live can take the job directly: due at once, without a dedupe key or a deadline."""
        return (
            self.dedupe_key is None and self.delay is None and self.run_at is None and self.deadline is None
            and self.max_attempts is not None and self.after is None
        )  # fmt: skip

    @property
    def may_join(self) -> bool:
        """Return whether the job may be enqueued together with jobs of other callers: it is small, and needs no
        decision about other jobs."""
        return (
            self.dedupe_key is None and self.batch is None and self.after is None and len(self.payload) < LARGEST_JOINED
        )


class Job:
    """One claimed job. `lease` is shared by all jobs of one claim."""

    __slots__ = (
        "attempt", "batch", "canceled", "direct", "id", "kept", "keys", "lane", "lease", "log", "max_attempts",
        "payload", "priority", "queue", "result", "run_at", "sent", "settled", "started", "task", "tenant", "thread",
        "token",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...], lease: Any = None) -> None:
        (
            self.id, self.token, self.task, self.payload, self.attempt, self.max_attempts, self.queue, self.priority,
            self.tenant, self.run_at, self.batch, self.sent, self.lane, self.keys, _,
        ) = row  # fmt: skip
        self.lease = lease
        self.started = 0.0  # monotonic time; 0 before the start
        self.direct = False  # under a rate or a breaker: the claim counts as the start
        self.canceled = False  # cancellation was requested
        self.result: bytes | None = None  # set by the handler before it returns
        self.settled = False  # finished inside its handler's own transaction
        self.kept: bytes | None = None  # the result committed there
        self.log: Any = None  # the lines that its handler wrote (worker/joblogs.py)
        self.thread: Any = None  # the future of a handler whose thread still runs after the attempt ended

    @property
    def headers(self) -> Any:
        """Return the headers. They are decoded on each access, because few handlers read them."""
        return None if self.sent is None else read_headers(self.sent)


def read_headers(sent: str) -> Any:
    """Return decoded headers, or None for JSON that Python cannot decode (too deep, a number too long)."""
    try:
        return json.loads(sent)
    except (ValueError, RecursionError):
        return None


class IdMaker:
    """Generates UUIDv7 ids that increase within a process: 48 bits of milliseconds, a 26-bit counter, 48 random bits.

    The counter keeps jobs of one millisecond in order (RFC 9562, method 1). Random bits are drawn in bulk, so an id
    takes a microsecond.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._count = 0
        self._noise: list[str] = []  # random bits for the next ids
        os.register_at_fork(after_in_child=self._after_fork)

    def make(self) -> str:
        """Return one id."""
        stamp, n = self._reserve(1)
        try:
            noise = self._noise.pop()
        except IndexError:
            bits = os.urandom(6 * _DRAWN).hex()
            noise, *self._noise[:] = (bits[i : i + 12] for i in range(0, len(bits), 12))
        return f"{stamp >> 16:08x}-{stamp & 0xFFFF:04x}-7{n >> 14:03x}-{0x8000 | n & 0x3FFF:04x}-{noise}"

    def make_many(self, number: int) -> list[str]:
        """Return ids in ascending order."""
        stamp, first = self._reserve(number)
        head, noise = f"{stamp >> 16:08x}-{stamp & 0xFFFF:04x}", os.urandom(6 * number).hex()
        return [
            f"{head}-7{n >> 14:03x}-{0x8000 | n & 0x3FFF:04x}-{noise[12 * i : 12 * i + 12]}"
            for i, n in enumerate(range(first, first + number))
        ]

    def _after_fork(self) -> None:
        """Draw other random bits than the parent, which may have held the lock."""
        self._noise.clear()
        self._lock = threading.Lock()

    def _reserve(self, number: int) -> tuple[int, int]:
        """Return the milliseconds and the first count of so many ids."""
        with self._lock:
            stamp = time.time_ns() // 1_000_000
            if stamp <= self._last:  # the same millisecond, or the clock was set back
                stamp = self._last + (self._count + number >= _COUNTER)
            first = 0 if stamp > self._last else self._count
            self._last, self._count = stamp, first + number
        return stamp, first


_DRAWN = 64  # ids for which random bits are drawn at once
_COUNTER = 1 << 26
ids = IdMaker()


def parse_id(text: str | uuid.UUID) -> str:
    """Return an id as canonical text, or raise UsageError."""
    try:
        return str(text if isinstance(text, uuid.UUID) else uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f"{text!r:.60} is not an id; one looks like 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f") from None
