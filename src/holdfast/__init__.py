"""Holdfast: a PostgreSQL-backed job system. Accepted means committed; every job reaches exactly one final status."""

from holdfast.client import Dedupe, Enqueuer, Handle, Holdfast, Task
from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InvalidPayload,
    JobFailed,
    SchemaError,
    UnknownTask,
    UsageError,
)
from holdfast.model.context import CONTEXT, Context
from holdfast.model.job import JobInfo, Status
from holdfast.model.outcome import Cancel, Dead, Fail, RetryLater, Snooze
from holdfast.model.retry import Retry
from holdfast.settings import VERSION

__version__ = VERSION

__all__ = [
    "CONTEXT",
    "Cancel",
    "ConfigurationError",
    "Context",
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
    "Retry",
    "RetryLater",
    "SchemaError",
    "Snooze",
    "Status",
    "Task",
    "UnknownTask",
    "UsageError",
    "__version__",
]
