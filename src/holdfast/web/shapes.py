"""What requests say and answers look like: the shapes of the OpenAPI document."""

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
from holdfast.model.delivery import MessageInfo
from holdfast.model.flow import LimitInfo
from holdfast.model.job import BatchInfo
from holdfast.model.retry import LONGEST
from holdfast.model.tick import Level
from holdfast.model.webhook import DeliveryInfo, Endpoint
from holdfast.store.seen import SeenJob

MOST_JOBS = 1000  # in one request
MOST_ROWS = 500  # in one page


def text(id_: UUID | None) -> str | None:
    """An id as the database's calls take it."""
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
    """A length of time stands for the moment so long ago."""
    if not (isinstance(given, str) and re.fullmatch(_AGO, given, re.ASCII)):
        return given
    try:
        return datetime.now(UTC) - timedelta(**{_UNITS[given[-1]]: int(given[:-1])})
    except OverflowError:
        raise ValueError("a time is between the years 1970 and 2200") from None


def _arguments(given: Any) -> bytes:
    """Arguments as JSON: as they came, or encoded where the whole body had to be decoded."""
    if isinstance(given, msgspec.Raw) and (data := bytes(given)).startswith(b"{"):
        return data
    if isinstance(given, dict):
        return payload.encode(given, "args")
    raise PydanticCustomError("dict_type", "Input should be a valid dictionary")


Arguments = Annotated[
    bytes,
    PlainValidator(_arguments),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
"""A JSON object, not decoded yet: the task's own decoder does that, once."""
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
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="at most so many")]
Cursor = Annotated[str | None, Query(max_length=100, description="`next` of the page before")]
Status = Literal["queued", "running", "retrying", "succeeded", "failed", "dead", "canceled"]
DeadStatus = Literal["failed", "dead"]


class Body(BaseModel):
    """A request's body: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class NewDedupe(Body):
    """A key that one job holds at a time, of a task and tenant."""

    key: LongText
    """Whatever says that it is the same work."""
    scope: Literal["queued", "running", "success"] = "running"
    """How long it is held: until the job starts, until it ends, or after its success too."""
    keep: Seconds | None = None
    """With scope success: for so many seconds; else for ever."""
    on_conflict: Literal["existing", "replace", "raise"] = "existing"
    """existing answers with its holder, replace gives that one the new arguments if it waits, raise is a 409."""

    @model_validator(mode="after")
    def _fits(self) -> NewDedupe:
        if self.keep is not None and self.scope != "success":
            raise ValueError(f"keep goes with scope 'success', not with {self.scope!r}")
        return self


def _as_dedupe(given: Any) -> Any:
    return {"key": given} if isinstance(given, str) else given


DedupeWish = Annotated[
    NewDedupe | None, BeforeValidator(_as_dedupe, json_schema_input_type=NewDedupe | LongText | None)
]


class Job(Body):
    """A job to be made: a task's name and its arguments by name. What is left out is as the task says."""

    task: Name
    """Its name, as registered."""
    args: Annotated[Arguments, Field(json_schema_extra={"default": {}})] = b"{}"
    """Its arguments by name."""
    tenant: Name | None = None
    """For tokens of all tenants; else it is the token's."""
    queue: Queue | None = None
    """Instead of the task's own."""
    priority: Priority | None = None
    """0 critical, 1 high, 2 normal, 3 low."""
    delay: Seconds | None = None
    """Not before so many seconds from now."""
    run_at: Moment | None = None
    """Not before this time, with its zone."""
    max_attempts: Annotated[int, Field(ge=1, le=32_000)] | None = None
    """How often it is tried."""
    deadline: Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)] | None = None
    """If no attempt can start within so many seconds, it is canceled."""
    dedupe: DedupeWish = None
    """A key, or a key and how it is held."""
    batch: UUID | None = None
    """An open batch to add it to."""


class ManyJobs(Body):
    """Jobs that are made all or none."""

    jobs: Annotated[list[Job], Field(min_length=1, max_length=MOST_JOBS)]


class JobIds(Body):
    """Which jobs."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)]


class WhichDead(Body):
    """Failed and dead jobs: by ids, or all that match (with all, every one), oldest first, at most `limit` of them
    from `after` on."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)] | None = None
    """These, and no filters."""
    all: bool = False
    """Every one, where nothing else says which."""
    status: DeadStatus | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    error: Name | None = None
    """Type or code of the last error."""
    batch: UUID | None = None
    after: UUID | None = None
    """`next` of the answer before."""
    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = MOST_JOBS
    """At most so many in one step."""

    @model_validator(mode="after")
    def _says_which(self) -> WhichDead:
        which = self.ids, self.status, self.task, self.queue, self.tenant, self.error, self.batch
        if not self.all and all(each is None for each in which):
            raise ValueError('say which jobs: ids, status, task, queue, tenant, error or batch; or "all": true for all')
        return self


class NewBatch(Body):
    """Jobs that are counted together. on_done is a task that gets the batch's id, if it takes an argument. An open
    batch takes more jobs (`batch` of a job) until it is closed."""

    name: Name
    """For people."""
    tenant: Name | None = None
    jobs: Annotated[list[Job], Field(max_length=MOST_JOBS)] = []
    """Its first jobs."""
    on_done: Name | None = None
    """A task to be enqueued when all have ended."""
    open: bool = False
    """Takes more jobs until it is closed; else it ends with those given here."""


class OneKey(Body):
    """A key of limits, or queue:NAME, task:NAME, tenant:NAME."""

    key: Key


class NewPause(OneKey):
    """A key under which nothing more starts, for so many seconds or until it is resumed."""

    reason: LongText | None = None
    """Told to whoever asks why."""
    seconds: Seconds | None = None
    """Goes on after so many; else when it is resumed."""


class QueuePause(Body):
    """Why and how long."""

    reason: LongText | None = None
    """Told to whoever asks why."""
    seconds: Seconds | None = None
    """Goes on after so many; else when it is resumed."""


class LimitChange(OneKey):
    """What is in force for a key, or with a template for all of its keys; null gives a value back to the code."""

    concurrency: Whole | None = None
    """At once."""
    rate: Amount | None = None
    """So many in `per` seconds."""
    per: Amount | None = None
    """Seconds."""
    burst: Amount | None = None
    """At once out of what was saved up."""
    breaker_after: Whole | None = None
    """Failures in a row that open the breaker."""
    breaker_pause: Amount | None = None
    """Seconds it stays open at first."""
    breaker_cap: Amount | None = None
    """Seconds it stays open at most."""
    weight: Amount | None = None
    """Of a tenant: its share against others'."""


class NewMessage(Body):
    """A message for the outbox. key says what must not be sent twice."""

    channel: Name
    """A channel of the application."""
    payload: Any
    """What the channel's handler gets."""
    key: Key
    """Says what must not be sent twice."""
    tenant: Name | None = None
    order: Key | None = None
    """Messages with the same order are sent one after another."""


class NewEndpoint(Body):
    """Where to tell a tenant of events. dev allows http and private addresses, and is for tokens of all tenants."""

    url: LongText
    """Where to, https."""
    tenant: Name | None = None
    events: Annotated[list[Name], Field(max_length=200)] | None = None
    """Types to be told of, such as order.paid; else all."""
    prefix: Name = "Holdfast"
    """Of the headers: X-PREFIX-Signature ..."""
    timeout: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 30.0
    """Seconds for one delivery."""
    dev: bool = False
    """Allows http and private addresses; for tokens of all tenants."""
    description: LongText | None = None
    """For people."""


class EndpointChange(Body):
    """What is to be otherwise; what is left out stays."""

    url: LongText | None = None
    events: Annotated[list[Name], Field(max_length=200)] | None = None
    prefix: Name | None = None
    timeout: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] | None = None
    dev: bool | None = None
    description: LongText | None = None


class Reason(Body):
    """For people."""

    reason: LongText | None = None


class Rotation(Body):
    """How many seconds the secrets before the new one are valid too."""

    keep_old_for: Seconds = 86_400


class NewEvent(Body):
    """An event to be told to the tenant's endpoints."""

    type: Name
    """Such as order.paid."""
    body: Any
    """What is sent, as JSON."""
    tenant: Name | None = None
    key: Key | None = None
    """The second event with the same key is the first."""


class TickWish(Body):
    """How much one pass may do."""

    max_jobs: Annotated[int, Field(ge=1, le=1000)] = 200
    """In one pass."""
    per_tenant: Annotated[int, Field(ge=1, le=1000)] = 25
    """Of one tenant, in one pass."""
    queues: Annotated[list[Name], Field(max_length=100)] | None = None
    """As for a worker; without, those that a worker serves for which none are named."""


@dataclass(frozen=True, slots=True)
class Made:
    """A job that was accepted. existing: it had been before, by its dedupe key."""

    id: str
    existing: bool


@dataclass(frozen=True, slots=True)
class MadeMany:
    """Jobs that were accepted, in the order given."""

    ids: list[str]


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """A batch that was made, and its jobs in the order given."""

    id: str
    jobs: list[str]


@dataclass(frozen=True, slots=True)
class Jobs:
    """A page of jobs; `next` is the cursor of the page after it."""

    items: list[SeenJob]
    next: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the wish to cancel: canceled, canceling, finished or unknown."""

    id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What came of each."""

    items: list[Outcome]


@dataclass(frozen=True, slots=True)
class Moved:
    """Failed and dead jobs that were retried or discarded, those left alone, and from where to go on (`after`)."""

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
    """Whether anything was changed, or for how many."""

    changed: int


class Doubted(BaseModel):
    """changed is 0 where it was so before. warning: nothing is known of that name."""

    changed: int
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """A list for operators."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Levels:
    """How it stands: the worst level of all, each figure, and the rows of the view worker_health_summary."""

    level: str | None
    items: list[Level]
    workers: list[dict[str, Any]]


class Used(BaseModel):
    """What was used; of tenant, task, minute, hour and day those that it was summed by."""

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
    """A secret, shown once: null where the answer is a repeated one."""

    id: str
    secret: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """checks: by what was looked at, "ok"."""

    status: str
    checks: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ticked:
    """What one pass did."""

    ok: bool
    claimed: int
    processed: int
    succeeded: int
    failed: int
    throttled: int
    contention: int
    depth: int
    seconds: float
