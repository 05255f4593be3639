"""Connect an application to a test database for the length of a block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from holdfast.client import Holdfast
from holdfast.settings import PREFIX
from holdfast.store.calls import Calls
from holdfast.testing.databases import Databases
from holdfast.testing.kit import Kit
from holdfast.testing.pools import ForbiddenAsyncPool, ForbiddenSyncPool, KitAsyncPool

_REPLACEABLE = ("settings", "calls", "sync_pool", "async_pool", "before_wait")
_DSN = f"{PREFIX}DSN"


@contextmanager
def bind(hf: Holdfast, dsn: str, databases: Databases | None = None, *, empty: bool = True) -> Iterator[Kit]:
    """Direct all calls of an application to the test database until the block ends; yields its kit. HOLDFAST_DSN does
    the same for applications and processes created meanwhile. The database is emptied first, unless empty=False."""
    with ExitStack() as stack:
        settings = hf.settings.with_(dsn=dsn, pooler=False, amqp_enabled=False)
        database, sync_pool = (databases or stack.enter_context(Databases())).open(settings)
        if empty:
            database.reset()
        async_pool = KitAsyncPool(settings)
        stack.callback(async_pool.close_idle_loops)
        kit = Kit(hf, database, sync_pool, async_pool)
        stack.enter_context(
            _replace(
                hf,
                settings=settings,
                calls=Calls(settings.schema),
                sync_pool=sync_pool,
                async_pool=async_pool,
                before_wait=kit._refuse_wait,
            )
        )
        stack.enter_context(_environment(dsn))
        yield kit


def forbid(hf: Holdfast, target: str) -> None:
    """Block an application's database access until a test binds it."""
    hf.settings = hf.settings.with_(dsn="")
    hf.__dict__.update(sync_pool=ForbiddenSyncPool(target), async_pool=ForbiddenAsyncPool(target))


@contextmanager
def _replace(hf: Holdfast, **ours: Any) -> Iterator[None]:
    theirs = {name: hf.__dict__[name] for name in _REPLACEABLE if name in hf.__dict__}
    hf.__dict__.update(ours)
    try:
        yield
    finally:
        for name in _REPLACEABLE:
            hf.__dict__.pop(name, None)
        hf.__dict__.update(theirs)


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
