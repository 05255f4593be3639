"""The exception tree, branched by who must act.

HoldfastError
├── ConfigurationError      operator: a DSN, a setting, a privilege or a schema version is wrong
│   ├── SchemaError         the database's schema does not match this release; run `holdfast migrate`
│   └── UnknownTask         no task of this name is registered
├── UsageError              author of the call: it cannot work as written
│   ├── InvalidPayload      the arguments are not JSON, or do not match the handler's signature
│   ├── DuplicateJob        another job holds the dedupe key, and the call used on_conflict="raise"
│   ├── UnknownSchedule     no schedule of this name is registered
│   ├── UnknownAction       no action has this id
│   ├── UnknownEndpoint     no webhook endpoint has this id
│   ├── UnknownToken        no token of the service has this id
│   └── UnknownWorker       no worker has this id
├── JobFailed               caller that waits for a result: the job ended without one
├── DeliveryError           operator of a webhook's receiver: it did not accept the request (effects/send.py)
├── NotDelivered            the same, as the error of the delivery's job (effects/deliver.py)
├── LeaseLost               none: another worker has the job, and this attempt's writes were rolled back
└── DatabaseUnavailable     operator of the database; a retry may succeed
    └── LockTimeout         owner of an open transaction that holds a lock this call needs; a retry may succeed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a given one, or None."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def hint(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest known one, or another text where none is near."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else otherwise


class HoldfastError(Exception):
    """Base class of all errors that Holdfast raises."""


class ConfigurationError(HoldfastError):
    """The setup is wrong; the message says what to change."""


class SchemaError(ConfigurationError):
    """The schema is missing, older or newer than this release expects.

    `database` is the DSN and schema of the settings in use, or None on the caller's connection.
    """

    def __init__(self, message: str, database: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.database = database


class UnknownTask(ConfigurationError):
    """No task of this name is registered here."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no task named {name!r} is registered in this process{hint(name, known)}")


class UsageError(HoldfastError):
    """The call cannot work as written."""


class InvalidPayload(UsageError):
    """The arguments cannot be encoded as JSON or do not match the handler's signature."""


class DuplicateJob(UsageError):
    """Another job holds the dedupe key, and the call used on_conflict="raise"."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class UnknownSchedule(UsageError):
    """No schedule of this name is in the database."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        rest = hint(name, known, "; workers register schedules when they start")
        super().__init__(f"there is no schedule named {name!r}{rest}")


class UnknownAction(UsageError):
    """No action has this id."""

    def __init__(self, action_id: str) -> None:
        super().__init__(f"there is no action {action_id}; hf.actions.list() returns the newest ones")


class UnknownEndpoint(UsageError):
    """No webhook endpoint has this id."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"there is no endpoint {endpoint_id}; `holdfast webhooks list` shows the existing ones")


class UnknownToken(UsageError):
    """No token of the service has this id."""

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id}; `holdfast tokens` lists the existing ones")


class UnknownWorker(UsageError):
    """No worker has this id."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"there is no worker {worker[:100]!r}; `holdfast workers` lists those that run")


class JobFailed(HoldfastError):
    """The awaited job ended as failed, dead or canceled; `info` is the job."""

    def __init__(self, info: object, message: str) -> None:
        super().__init__(message)
        self.info = info


class LeaseLost(HoldfastError):
    """The job has ended or belongs to another worker, so this attempt's transaction was rolled back."""


class DatabaseUnavailable(HoldfastError):
    """The database cannot be reached or closed the connection; the same call may succeed later."""


class LockTimeout(DatabaseUnavailable):
    """Another transaction holds a lock for longer than this call waits."""
