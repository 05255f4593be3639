"""The tree of errors, branched by who must act.

HoldfastError
├── ConfigurationError      whoever sets Holdfast up: a DSN, a setting, a right, a schema version
│   ├── SchemaError         the database's schema does not fit this release; run `holdfast migrate`
│   └── UnknownTask         a task name nobody registered
├── UsageError              whoever wrote the call: it cannot work as written
│   ├── InvalidPayload      the arguments cannot be carried, or do not fit the handler
│   ├── DuplicateJob        a dedupe key is held and the caller asked for an error
│   ├── UnknownSchedule     a schedule name nobody registered
│   ├── UnknownEndpoint     no endpoint of webhooks has this id
│   └── UnknownToken        no token of the service has this id
├── JobFailed               whoever waits for a result: the job ended without one
├── DeliveryError           whoever runs a webhook's receiver: it did not accept what was posted (effects/send.py)
├── NotDelivered            the same, as the error of the delivery's job (effects/deliver.py)
├── LeaseLost               nobody: the job went to another worker, and this attempt's writes were rolled back
└── DatabaseUnavailable     whoever runs the database; trying again may help
    └── LockTimeout         the owner of an open transaction that holds what this call needs; trying again may help
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HoldfastError(Exception):
    """Everything Holdfast raises on purpose."""


class ConfigurationError(HoldfastError):
    """Something about the setup is wrong; the message says what to change."""


class SchemaError(ConfigurationError):
    """The schema is missing, older or newer than this release expects.

    `database` says whose: the address and schema of the settings in use; None on a connection of the caller's.
    """

    def __init__(self, message: str, database: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.database = database


class UnknownTask(ConfigurationError):
    """No task of this name is registered here."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"no task named {name!r} is registered in this process{hint}")


class UsageError(HoldfastError):
    """The call cannot work as written."""


class InvalidPayload(UsageError):
    """The arguments cannot be carried as JSON or do not fit the handler's signature."""


class DuplicateJob(UsageError):
    """Another job holds the dedupe key and the caller asked for an error."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class UnknownSchedule(UsageError):
    """No schedule of this name is in the database."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; workers register schedules when they start"
        super().__init__(f"there is no schedule named {name!r}{hint}")


class UnknownEndpoint(UsageError):
    """No endpoint of webhooks has this id."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"there is no endpoint {endpoint_id}; `holdfast webhooks list` shows those there are")


class UnknownToken(UsageError):
    """No token of the service has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id}; `holdfast tokens` lists those there are")


class JobFailed(HoldfastError):
    """A job whose result was waited for ended as failed, dead or canceled; `info` is the job."""

    def __init__(self, info: object, message: str) -> None:
        super().__init__(message)
        self.info = info


class LeaseLost(HoldfastError):
    """The job belongs to another worker by now, or has ended: what this attempt wrote in its transaction is undone."""


class DatabaseUnavailable(HoldfastError):
    """The database cannot be reached or went away; the same call may succeed later."""


class LockTimeout(DatabaseUnavailable):
    """Another transaction holds a lock for longer than this call waits."""
