"""Connect an application to a test database for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast.client import Holdfast
from holdfast.client.database import Database
from holdfast.settings import PREFIX
from holdfast.testing.databases import Databases
from holdfast.testing.kit import Kit
from holdfast.testing.pools import ForbiddenDatabase, KitDatabase, KitPolling

_DSN = f"{PREFIX}DSN"


@contextmanager
def bind(hf: Holdfast, dsn: str, databases: Databases | None = None, *, empty: bool = True) -> Iterator[Kit]:
    """Direct all calls of an application to the test database until the block ends; yields its kit. HOLDFAST_DSN does
    the same for applications and processes created meanwhile. The database is emptied first, unless empty=False."""
    with ExitStack() as stack:
        settings = hf.settings.with_(dsn=dsn, pooler=False, amqp_enabled=False)
        scratch, sync_pool = (databases or stack.enter_context(Databases())).open(settings)
        if empty:
            scratch.reset()
        database = KitDatabase(settings, sync_pool)
        stack.callback(database.async_pool.close_idle_loops)
        kit = Kit(hf, scratch, database)
        database.polling = KitPolling(kit.refuse_to_wait)
        stack.enter_context(_replace(hf, database))
        stack.enter_context(_environment(dsn))
        yield kit


def forbid(hf: Holdfast, target: str) -> None:
    """Block an application's database access until a test binds it."""
    hf.database = ForbiddenDatabase(hf.settings.with_(dsn=""), target)


@contextmanager
def _replace(hf: Holdfast, database: Database) -> Iterator[None]:
    before, hf.database = hf.database, database
    try:
        yield
    finally:
        hf.database = before


@contextmanager
def _environment(dsn: str) -> Iterator[None]:
    before = os.environ.get(_DSN)
    os.environ[_DSN] = dsn
    try:
        yield
    finally:
        os.environ.pop(_DSN)
        if before is not None:
            os.environ[_DSN] = before
