"""What requests say and answers look like: the shapes of the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.delivery import MessageInfo
from holdfast.model.flow import LimitInfo
from holdfast.model.job import BatchInfo
from holdfast.model.retry import LONGEST
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


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
Queue = Annotated[str, Field(min_length=1, max_length=100, pattern="^[^/]+$"), AfterValidator(_storable)]
LongText = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_storable)]
Key = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_storable)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=2_000_000_000)]
Moment = Annotated[AwareDatetime, AfterValidator(_near)]
Priority = Annotated[int, Field(ge=0, le=3)]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="at most so many")]
Cursor = Annotated[UUID | None, Query(description="`next` of the page before")]
Status = Literal["queued", "running", "retrying", "succeeded", "failed", "dead", "canceled"]
DeadStatus = Literal["failed", "dead"]


class Body(BaseModel):
    """A request's body: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid")


class NewDedupe(Body):
    """A key that one job holds at a time, of a task and tenant."""

    key: LongText
    scope: Literal["queued", "running", "success"] = "running"
    keep: Seconds | None = None
    on_conflict: Literal["existing", "replace", "raise"] = "existing"

    @model_validator(mode="after")
    def _fits(self) -> NewDedupe:
        if self.keep is not None and self.scope != "success":
            raise ValueError(f"keep goes with scope 'success', not with {self.scope!r}")
        return self


class Job(Body):
    """A job to be made: a task's name and its arguments by name. What is left out is as the task says."""

    task: Name
    args: dict[str, Any] = {}
    tenant: Name | None = None
    queue: Queue | None = None
    priority: Priority | None = None
    delay: Seconds | None = None
    run_at: Moment | None = None
    max_attempts: Annotated[int, Field(ge=1, le=32_000)] | None = None
    deadline: Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)] | None = None
    dedupe: NewDedupe | None = None
    batch: UUID | None = None


class ManyJobs(Body):
    """Jobs that are made all or none."""

    jobs: Annotated[list[Job], Field(min_length=1, max_length=MOST_JOBS)]


class JobIds(Body):
    """Which jobs."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)]


class WhichDead(Body):
    """Failed and dead jobs: by ids, or all that match, oldest first, at most `limit` of them from `after` on."""

    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_JOBS)] | None = None
    status: DeadStatus | None = None
    task: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    error: Name | None = None
    batch: UUID | None = None
    after: UUID | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = MOST_JOBS


class NewBatch(Body):
    """Jobs that are counted together. on_done is a task that gets the batch's id, if it takes an argument. An open
    batch takes more jobs (`batch` of a job) until it is closed."""

    name: Name
    tenant: Name | None = None
    jobs: Annotated[list[Job], Field(max_length=MOST_JOBS)] = []
    on_done: Name | None = None
    open: bool = False


class OneKey(Body):
    """A key of limits, or queue:NAME, task:NAME, tenant:NAME."""

    key: Key


class NewPause(OneKey):
    """A key under which nothing more starts, for so many seconds or until it is resumed."""

    reason: LongText | None = None
    seconds: Seconds | None = None


class QueuePause(Body):
    """Why and how long."""

    reason: LongText | None = None
    seconds: Seconds | None = None


class LimitChange(OneKey):
    """What is in force for a key, or with a template for all of its keys; null gives a value back to the code."""

    concurrency: Whole | None = None
    rate: Amount | None = None
    per: Amount | None = None
    burst: Amount | None = None
    breaker_after: Whole | None = None
    breaker_pause: Amount | None = None
    breaker_cap: Amount | None = None
    weight: Amount | None = None


class NewMessage(Body):
    """A message for the outbox. key says what must not be sent twice."""

    channel: Name
    payload: Any
    key: Key
    tenant: Name | None = None
    order: Key | None = None


class NewEndpoint(Body):
    """Where to tell a tenant of events. dev allows http and private addresses, and is for tokens of all tenants."""

    url: LongText
    tenant: Name | None = None
    events: Annotated[list[Name], Field(max_length=200)] | None = None
    prefix: Name = "Holdfast"
    timeout: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False)] = 30.0
    dev: bool = False
    description: LongText | None = None


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
    body: Any
    tenant: Name | None = None
    key: Key | None = None


class TickWish(Body):
    """How much one pass may do."""

    max_jobs: Annotated[int, Field(ge=1, le=1000)] = 200
    per_tenant: Annotated[int, Field(ge=1, le=1000)] = 25


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


@dataclass(frozen=True, slots=True)
class Rows:
    """A list for operators."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, shown once: null where the answer is a repeated one."""

    id: str
    secret: str | None


@dataclass(frozen=True, slots=True)
class Health:
    status: str


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
