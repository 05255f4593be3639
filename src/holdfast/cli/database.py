"""Database access for commands that need no application code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import UsageError
from holdfast.model.job import parse_id
from holdfast.settings import Settings
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.store.doctor import DoctorCalls
from holdfast.store.wire.connect import hide_password
from holdfast.store.wire.pools import SyncPool

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")


def application(dsn: str | None, schema: str | None) -> Holdfast:
    """Return an application without tasks, for the operations of its nouns."""
    from holdfast.client import Holdfast

    return Holdfast(dsn, schema=schema)


class Database:
    """The calls of one schema, and the pool that runs them."""

    def __init__(self, dsn: str | None, schema: str | None) -> None:
        self.settings = Settings.load(dsn=dsn, schema=schema)
        self.calls = Calls(self.settings.schema)
        self.server_calls = DoctorCalls(self.settings.schema)
        self._pool = SyncPool(self.settings)

    def run(self, call: Call[T]) -> T:
        """Run one call."""
        return self._pool.run(call)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pool.close()


def shareable(dsn: str) -> str:
    """Return a DSN that works in any folder and shows no password."""
    if dsn.startswith("embedded:"):
        return f"embedded:{Path(dsn.removeprefix('embedded:')).expanduser().resolve()}"
    return hide_password(dsn)


def job_ids(texts: Iterable[str]) -> list[str]:
    """Check ids from the command line; return them without duplicates."""
    return list(dict.fromkeys(job_id(text) for text in texts))


def job_id(text: str, what: str = "job") -> str:
    """Check an id from the command line."""
    try:
        return parse_id(text)
    except UsageError:
        raise UsageError(f"{text!r} is not a {what} id; one looks like 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f") from None


def batch_id(text: str) -> str:
    """Check a batch id from the command line."""
    return job_id(text, "batch")
