"""Holdfast: a PostgreSQL-backed job system. Accepted means committed; every job reaches exactly one final status."""

from holdfast.client import Batch, Dedupe, Enqueuer, Handle, Holdfast, Task
from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InvalidPayload,
    JobFailed,
    LeaseLost,
    SchemaError,
    UnknownSchedule,
    UnknownTask,
    UsageError,
)
from holdfast.model.context import CONTEXT, Context
from holdfast.model.flow import LimitInfo, Reason, Why
from holdfast.model.job import BatchInfo, BlockInfo, JobInfo, NewJob, Status
from holdfast.model.limit import Breaker, Limit
from holdfast.model.outcome import Cancel, Dead, Fail, RetryLater, Snooze
from holdfast.model.resource import Resource
from holdfast.model.retry import Retry
from holdfast.model.schedule import Cron, ScheduleInfo
from holdfast.model.tick import Tick
from holdfast.settings import VERSION

__version__ = VERSION

__all__ = [
    "CONTEXT",
    "Batch",
    "BatchInfo",
    "BlockInfo",
    "Breaker",
    "Cancel",
    "ConfigurationError",
    "Context",
    "Cron",
    "DatabaseUnavailable",
    "Dead",
    "Dedupe",
    "DuplicateJob",
    "Enqueuer",
    "Fail",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidPayload",
    "JobFailed",
    "JobInfo",
    "LeaseLost",
    "Limit",
    "LimitInfo",
    "NewJob",
    "Reason",
    "Resource",
    "Retry",
    "RetryLater",
    "ScheduleInfo",
    "SchemaError",
    "Snooze",
    "Status",
    "Task",
    "Tick",
    "UnknownSchedule",
    "UnknownTask",
    "UsageError",
    "Why",
    "__version__",
]
