"""Holdfast: a PostgreSQL-backed job system. Accepted means committed; every job reaches exactly one final status."""

from holdfast.client import Batch, Channel, Dedupe, Enqueuer, Handle, Handles, Holdfast, Task
from holdfast.client.children import ChildBatch, Gathered
from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InvalidPayload,
    JobFailed,
    LeaseLost,
    SchemaError,
    UnknownAction,
    UnknownEndpoint,
    UnknownSchedule,
    UnknownTask,
    UnknownWorker,
    UsageError,
)
from holdfast.model.context import CONTEXT, Context
from holdfast.model.job import BatchInfo, BlockInfo, JobInfo, NewJob, Status
from holdfast.model.limit import Breaker, BreakerEvent, Limit, LimitInfo
from holdfast.model.outbox import Delivery, Emitted, MessageInfo
from holdfast.model.outcome import Cancel, Dead, Fail, RetryLater, Snooze
from holdfast.model.resource import Resource
from holdfast.model.retry import Retry
from holdfast.model.schedule import Cron, ScheduleInfo
from holdfast.model.step import ChildFailed, GatherFailed, StepInfo
from holdfast.model.synccontext import SyncContext
from holdfast.model.tick import Tick
from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered
from holdfast.model.why import Reason, Why
from holdfast.settings import VERSION

__version__ = VERSION

__all__ = [
    "CONTEXT",
    "Batch",
    "BatchInfo",
    "BlockInfo",
    "Breaker",
    "BreakerEvent",
    "Cancel",
    "Channel",
    "ChildBatch",
    "ChildFailed",
    "ConfigurationError",
    "Context",
    "Cron",
    "DatabaseUnavailable",
    "Dead",
    "Dedupe",
    "Delivery",
    "DeliveryInfo",
    "DuplicateJob",
    "Emitted",
    "Endpoint",
    "Enqueuer",
    "Event",
    "Fail",
    "GatherFailed",
    "Gathered",
    "Handle",
    "Handles",
    "Holdfast",
    "HoldfastError",
    "InvalidPayload",
    "JobFailed",
    "JobInfo",
    "LeaseLost",
    "Limit",
    "LimitInfo",
    "MessageInfo",
    "NewJob",
    "Published",
    "Reason",
    "Redelivered",
    "Resource",
    "Retry",
    "RetryLater",
    "ScheduleInfo",
    "SchemaError",
    "Snooze",
    "Status",
    "StepInfo",
    "SyncContext",
    "Task",
    "Tick",
    "UnknownAction",
    "UnknownEndpoint",
    "UnknownSchedule",
    "UnknownTask",
    "UnknownWorker",
    "UsageError",
    "Why",
    "__version__",
]
