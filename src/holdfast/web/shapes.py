"""The request and response bodies: the schemas of the OpenAPI document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.job import BatchInfo, PublicJob
from holdfast.model.limit import LimitInfo
from holdfast.model.outbox import MessageInfo
from holdfast.model.retry import LONGEST
from holdfast.model.tick import Level
from holdfast.model.webhook import DeliveryInfo, Endpoint

MOST_JOBS = 1000  # in one request
MOST_ROWS = 500  # in one page


def text(id_: UUID | None) -> str | None:
    """Return an id as text, as the store's calls take it."""
    return None if id_ is None else str(id_)


def _storable(text: str) -> str:
    try:
        return payload.check_text(text, "a text", 100_000)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _near_now(at: datetime) -> datetime:
    if not 1970 <= at.astimezone(UTC).year <= 2200:
        raise ValueError("a time is between the years 1970 and 2200")
    return at


def _near(at: datetime) -> datetime:
    try:
        return _near_now(at)
    except OverflowError:
        raise ValueError("a time is between the years 1970 and 2200") from None


_AGO = "^[0-9]{1,6}[smhd]$"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _ago(given: Any) -> Any:
    """Convert a duration such as 90m to the time that long ago."""
    if not (isinstance(given, str) and re.fullmatch(_AGO, given, re.ASCII)):
        return given
    try:
        return datetime.now(UTC) - timedelta(**{_UNITS[given[-1]]: int(given[:-1])})
    except OverflowError:
        raise ValueError("a time is between the years 1970 and 2200") from None


def _arguments(given: Any) -> bytes:
    """Return arguments as JSON: unchanged, or encoded again if the whole body was decoded."""
    if isinstance(given, msgspec.Raw) and (data := bytes(given)).startswith(b"{"):
        return data
    if isinstance(given, dict):
        return payload.encode(given, "args")
    raise PydanticCustomError("dict_type", "Input should be a valid dictionary")


Arguments = Annotated[
    bytes, PlainValidator(_arguments), WithJsonSchema({"type": "object", "additionalProperties": True})
]
"""An encoded JSON object, which the task's decoder decodes."""
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
Queue = Annotated[str, Field(min_length=1, max_length=100, pattern="^[^/]+$"), AfterValidator(_storable)]
LongText = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_storable)]
Key = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_storable)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=2_000_000_000)]
Moment = Annotated[AwareDatetime, AfterValidator(_near)]
Since = Annotated[Moment, BeforeValidator(_ago, json_schema_input_type=Moment | Annotated[str, Field(pattern=_AGO)])]
Priority = Annotated[int, Field(ge=0, le=3)]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="maximum number of items")]
Cursor = Annotated[str | None, Query(max_length=100, description="`next` of the previous page")]
Status = Literal["queued", "running", "retrying", "succeeded", "failed", "dead", "canceled"]
DeadStatus = Literal["failed", "dead"]


class Body(BaseModel):
    """A request's body. Unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class NewDedupe(Body):
    """A key that one job of a task and tenant holds at a time."""

    key: LongText
    """Identifies the work."""
    scope: Literal["queued", "running", "success"] = "running"
    """How long the key is held: until the job starts, until it ends, or beyond its success."""
    keep: Seconds | None = None
    """With scope success: seconds to hold it; forever if left out."""
    on_conflict: Literal["existing", "replace", "raise"] = "existing"
    """existing returns the holder, replace gives a waiting holder the new arguments, raise is a 409."""

    @model_validator(mode="after")
    def _fits(self) -> NewDedupe:
        if self.keep is not None and self.scope != "success":
            raise ValueError(f"keep goes with scope 'success', not with {self.scope!r}")
        return self


def _as_dedupe(given: Any) -> Any:
    return {"key": given} if isinstance(given, str) else given


DedupeOption = Annotated[
    NewDedupe | None, BeforeValidator(_as_dedupe, json_schema_input_type=NewDedupe | LongText | None)
]


class Job(Body):
    """A new job: a task's name and its arguments by name. Options that are left out come from the task."""

    task: Name
    """The task's registered name."""
    args: Annotated[Arguments, Field(json_schema_extra={"default": {}})] = b"{}"
    """The arguments by name."""
    tenant: Name | None = None
    """Only with a token for all tenants; otherwise it is the token's tenant."""
    queue: Queue | None = None
    """Overrides the task's queue."""
    priority: Priority | None = None
    """0 critical, 1 high, 2 normal, 3 low."""
    delay: Seconds | None = None
    """Seconds from now before which it does not start."""
    run_at: Moment | None = None
    """Time with its zone, before which it does not start."""
    max_attempts: Annotated[int, Field(ge=1, le=32_000)] | None = None
    """Maximum number of attempts."""
    deadline: Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)] | None = None
    """Seconds after which it is canceled if no attempt has started."""
    dedupe: DedupeOption = None
    """A key, or a key with its options."""
    batch: UUID | None = None
    """An open batch to add it to."""


class ManyJobs(Body):
    """New jobs, created all or none."""

    jobs: Annotated[list[Job], Field(min_length=1, max_length=MOST_JOBS)]


class JobIds(Body):
    """Ids of jobs."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)]


class WhichDead(Body):
    """A selection of failed and dead jobs: by ids, or all that match, oldest first, at most `limit` after `after`."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)] | None = None
    """These jobs; filters are ignored."""
    all: bool = False
    """All failed and dead jobs, if there is no filter."""
    status: DeadStatus | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    error: Name | None = None
    """Type or code of the last error."""
    batch: UUID | None = None
    after: UUID | None = None
    """`next` of the previous response."""
    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = MOST_JOBS
    """Maximum number of jobs in one request."""

    @model_validator(mode="after")
    def _says_which(self) -> WhichDead:
        which = self.ids, self.status, self.task, self.queue, self.tenant, self.error, self.batch
        if not self.all and all(each is None for each in which):
            raise ValueError('say which jobs: ids, status, task, queue, tenant, error or batch; or "all": true for all')
        return self


class NewBatch(Body):
    """A new batch of jobs. The task on_done gets the batch's id, if it takes an argument. An open batch accepts more
    jobs (`batch` of a job) until it is closed."""

    name: Name
    """For people."""
    tenant: Name | None = None
    jobs: Annotated[list[Job], Field(max_length=MOST_JOBS)] = []
    """Its first jobs."""
    on_done: Name | None = None
    """A task to enqueue when all jobs have ended."""
    open: bool = False
    """Accepts more jobs until it is closed; otherwise it ends with the jobs given here."""


class OneKey(Body):
    """A limit's key, or queue:NAME, task:NAME, tenant:NAME."""

    key: Key


class NewPause(OneKey):
    """A key under which no more jobs start, for some seconds or until it is resumed."""

    reason: LongText | None = None
    """Shown to operators."""
    seconds: Seconds | None = None
    """Length of the pause; without it, until resumed."""


class QueuePause(Body):
    """Reason and length of a pause."""

    reason: LongText | None = None
    """Shown to operators."""
    seconds: Seconds | None = None
    """Length of the pause; without it, until resumed."""


class LimitChange(OneKey):
    """Overrides of a key's limits, or with a template of all its keys. null restores the value of the code."""

    concurrency: Whole | None = None
    """Jobs that run at once."""
    rate: Amount | None = None
    """Jobs in `per` seconds."""
    per: Amount | None = None
    """Seconds."""
    burst: Amount | None = None
    """Jobs that may start at once after an idle time."""
    breaker_after: Whole | None = None
    """Failures in a row that open the breaker."""
    breaker_pause: Amount | None = None
    """Seconds it stays open at first."""
    breaker_cap: Amount | None = None
    """Seconds it stays open at most."""
    weight: Amount | None = None
    """Of a tenant: its share relative to other tenants."""


class NewMessage(Body):
    """A message for the outbox. A key is sent once."""

    channel: Name
    """A channel of the application."""
    payload: Any
    """The value for the channel's handler."""
    key: Key
    """Identifies the message; a second one with the same key is not sent."""
    tenant: Name | None = None
    order: Key | None = None
    """Messages with the same order are delivered one at a time, as emitted."""


class NewEndpoint(Body):
    """A webhook endpoint of a tenant."""

    url: LongText
    """The https URL that receives the events."""
    tenant: Name | None = None
    events: Annotated[list[Name], Field(max_length=200)] | None = None
    """Event types to deliver, such as order.paid; all if left out."""
    prefix: Name = "Holdfast"
    """Prefix of the headers: X-PREFIX-Signature ..."""
    timeout: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 30.0
    """Seconds for one delivery."""
    dev: bool = False
    """Allow http and private addresses; needs a token for all tenants."""
    description: LongText | None = None
    """For people."""


class EndpointChange(Body):
    """Fields to change; fields that are left out stay as they are."""

    url: LongText | None = None
    events: Annotated[list[Name], Field(max_length=200)] | None = None
    prefix: Name | None = None
    timeout: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] | None = None
    dev: bool | None = None
    description: LongText | None = None


class Reason(Body):
    """A reason, for people."""

    reason: LongText | None = None


class Rotation(Body):
    """Seconds for which the previous secrets stay valid."""

    keep_old_for: Seconds = 86_400


class NewEvent(Body):
    """An event for the tenant's endpoints."""

    type: Name
    """Such as order.paid."""
    body: Any
    """The JSON body to send."""
    tenant: Name | None = None
    key: Key | None = None
    """Identifies the event; a second one with the same key is not sent."""


class TickWish(Body):
    """Bounds of one pass."""

    max_jobs: Annotated[int, Field(ge=1, le=1000)] = 200
    """Jobs in one pass."""
    per_tenant: Annotated[int, Field(ge=1, le=1000)] = 25
    """Jobs of one tenant in one pass."""
    queues: Annotated[list[Name], Field(max_length=100)] | None = None
    """Queues, as for a worker; defaults to a worker's default queues."""


@dataclass(frozen=True, slots=True)
class Made:
    """An accepted job. existing: it is an earlier job, which holds the dedupe key."""

    id: str
    existing: bool


@dataclass(frozen=True, slots=True)
class MadeMany:
    """The accepted jobs, in the order given."""

    ids: list[str]


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """A new batch, and its jobs in the order given."""

    id: str
    jobs: list[str]


@dataclass(frozen=True, slots=True)
class Jobs:
    """A page of jobs; `next` is the cursor of the next page."""

    items: list[PublicJob]
    next: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a cancellation: canceled, canceling, finished or unknown."""

    id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome for each job."""

    items: list[Outcome]


@dataclass(frozen=True, slots=True)
class Moved:
    """The jobs that were retried or discarded, those left unchanged, and the `after` of the next request."""

    ids: list[str]
    left: list[str]
    next: str | None


@dataclass(frozen=True, slots=True)
class Batches:
    items: list[BatchInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class Messages:
    items: list[MessageInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class Endpoints:
    items: list[Endpoint]


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    items: list[DeliveryInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    items: list[LimitInfo]


@dataclass(frozen=True, slots=True)
class Done:
    """How many rows were changed."""

    changed: int


class ChangeResult(BaseModel):
    """changed is 0 if nothing changed. warning: the key is unknown."""

    changed: int
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A list for operators."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Levels:
    """The worst level, each metric, and the rows of the view worker_health_summary."""

    level: str | None
    items: list[Level]
    workers: list[dict[str, Any]]


class Used(BaseModel):
    """Usage, with those of tenant, task, minute, hour and day that it is summed by."""

    tenant: str | None = None
    task: str | None = None
    minute: datetime | None = None
    hour: datetime | None = None
    day: datetime | None = None
    runs: int
    failures: int
    run_seconds: float
    queue_seconds: float


class UsagePage(BaseModel):
    items: list[Used]


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, shown once: null in a repeated response."""

    id: str
    secret: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """checks: "ok" for each part that was checked."""

    status: str
    checks: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ticked:
    """The result of one pass."""

    ok: bool
    claimed: int
    processed: int
    succeeded: int
    failed: int
    throttled: int
    contention: int
    depth: int
    seconds: float
