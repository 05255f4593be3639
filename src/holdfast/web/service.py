"""The service of one application: its calls to the database, coalesced and shared out among tenants, and its tokens."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import PublicJob
from holdfast.model.token import PREFIX, Caller, digest
from holdfast.model.view import View
from holdfast.store.call import Call
from holdfast.store.select import EVERYWHERE, PAGE_BYTES, Area, Page, Part
from holdfast.store.tokens import TokenCalls
from holdfast.store.wire import connect
from holdfast.store.wire.coalesce import LoopCoalescer
from holdfast.web import cursor as cursors
from holdfast.web.changes import ChangePoller
from holdfast.web.problems import Problem
from holdfast.web.shares import Shares

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")
R = TypeVar("R")
MOST_TOKENS = 10_000  # in the token cache
FIRST_STEP, LONGEST_STEP = 1_000, 64_000  # jobs that one query of a list scans
QUICK = 0.1  # seconds: after a query this quick the next one scans more
LONGEST_LOOK = 0.5  # seconds after which a list stops scanning
FIRST_ROWS = 64  # rows of the first query of a list; later queries read more
MOST_LARGE = 10_000  # ids of large jobs kept in memory
SLOT = "holdfast.slot"  # scope key: the RequestSlot of the request
CALLER = "holdfast.caller"  # scope key: the Caller of the request


class HasId(Protocol):
    """An item of a list."""

    @property
    def id(self) -> str: ...


Listed = TypeVar("Listed", bound=HasId)


def server_stops() -> bool:
    """Return whether the server is shutting down.

    ASGI sends its shutdown event only after all requests have ended, so this reads uvicorn's SIGTERM handler."""
    return getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "should_exit", False) is True


class Service:
    """The service of one application. Only its tick endpoint claims jobs."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.tokens = TokenCalls(hf.settings.schema)
        self._looks: LoopCoalescer[tuple[str, View], PublicJob | None] = LoopCoalescer(self._look)
        self._callers: LoopCoalescer[bytes, Caller | None] = LoopCoalescer(self._use_tokens)
        self._shares = Shares(max(1, hf.settings.pool_size // 2))
        self._heavy = Shares(1)
        self._threads = ThreadPoolExecutor(2, "holdfast-web")
        self._large: OrderedDict[str, None] = OrderedDict()
        self._cursor_key = b""
        self.changes = ChangePoller(lambda ids: self.run(hf.database.calls.jobs.marks(ids)))
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def run(self, call: Call[T], conn: Any = None) -> T:
        return await self.hf.database.async_pool.run(call, conn)

    def share_of(self, caller: Caller) -> AbstractAsyncContextManager[object]:
        """Take one of the connections that the caller's tenant may use: no tenant uses more than half of them."""
        return self._shares.of(caller.tenant)

    async def run_for(self, caller: Caller, call: Call[T]) -> T:
        """Run a call on a connection of the caller's share."""
        async with self.share_of(caller):
            return await self.run(call)

    async def in_thread(self, caller: Caller | None, act: Callable[..., R], *args: Any) -> R:
        """Run a CPU-bound function in a thread, one at a time for each tenant.

        There are two threads, because each running thread takes interpreter time from the event loop."""
        async with self._heavy.of(None if caller is None else caller.tenant):
            return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    async def look(self, caller: Caller, id_: str) -> PublicJob | None:
        """Return a job that the caller may see, or None."""
        if id_ not in self._large:
            try:
                return await self._looks.ask((id_, caller.view))
            except LargeJob:
                self._large[id_] = None
                if len(self._large) > MOST_LARGE:
                    self._large.popitem(last=False)
        return (await self.run_for(caller, self.hf.database.calls.jobs.look([(id_, caller.view)]))).get(0)

    async def _look(self, wanted: Sequence[tuple[str, View]]) -> list[PublicJob | Exception | None]:
        found = await self.run(self.hf.database.calls.jobs.look(wanted))
        return [LargeJob() if found.get(place, ...) is None else found.get(place) for place in range(len(wanted))]

    async def _use_tokens(self, keys: Sequence[bytes]) -> list[Caller | None]:
        """Return the callers of tokens; one lookup serves all requests with the same one."""
        each = list(dict.fromkeys(keys))
        callers = await self.run(self.tokens.use(each))
        found = dict(zip(each, callers, strict=True))
        return [found[key] for key in keys]

    async def page(
        self,
        caller: Caller,
        call: Callable[[Page], Call[Part[Listed]]],
        page: Page,
        *,
        area: Area = EVERYWHERE,
        step: int | None = None,
    ) -> tuple[list[Listed], str | None]:
        """Return a page of a list, and the cursor of the next one.

        Scan from the newest job to older ones, in steps, until rows, bytes or time are used up. A page can be empty
        and still have a cursor, because a tenant's few jobs may be behind millions. `step`: jobs of the first step.
        """
        found: list[Listed] = []
        size = PAGE_BYTES
        step, rows, ends = step or FIRST_STEP, FIRST_ROWS, time.monotonic() + LONGEST_LOOK
        while True:
            began = time.monotonic()
            floor = await self.run_for(caller, self.hf.database.calls.jobs.floor(page.before, step, area))
            some = min(page.limit - len(found), rows)
            part = await self.run_for(caller, call(replace(page, floor=floor, limit=some, size=size)))
            found += part.rows
            size -= part.size
            if part.cut or len(found) == page.limit or (part.rows and size <= 0):
                return found, await self.seal(caller, found[-1].id)
            if len(part.rows) == some:
                page, rows = replace(page, before=found[-1].id), rows * 8
                continue
            if floor is None or time.monotonic() > ends:
                return found, await self.seal(caller, floor)
            page = replace(page, before=floor)
            step = min(step * 8, LONGEST_STEP) if time.monotonic() - began < QUICK else step

    async def seal(self, caller: Caller, id_: str | None) -> str | None:
        """Return the cursor of a place in a list; None at its end."""
        return None if id_ is None else cursors.seal(await self.cursor_key(), caller, id_)

    async def unseal(self, caller: Caller, cursor: str | None) -> str | None:
        """Return the place that a cursor stands for."""
        if cursor is None:
            return None
        if (id_ := cursors.unseal(await self.cursor_key(), caller, cursor)) is None:
            raise Problem(422, f"query.cursor: not the `next` of a page of yours, got {cursor[:60]!r}")
        return id_

    async def cursor_key(self) -> bytes:
        """Return the key from which those of cursors and sessions are derived."""
        if not self._cursor_key:
            self._cursor_key = bytes.fromhex(await self.run(self.tokens.cursor_key()))
        return self._cursor_key

    @asynccontextmanager
    async def transaction(self, caller: Caller) -> AsyncIterator[Any]:
        """Open a transaction that commits at the end of the block."""
        try:
            async with (
                asyncio.timeout(self.hf.settings.call_timeout),
                self._shares.of(caller.tenant),
                self.hf.database.async_pool.transaction() as conn,
            ):
                yield conn
        except (*connect.AGAIN, TimeoutError) as error:
            raise DatabaseUnavailable(str(error)) from error

    def remembered(self, key: bytes | None) -> Caller | None:
        """Return the caller of a token from the cache, or None."""
        known = None if key is None else self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    async def caller(self, key: bytes | None) -> Caller | None:
        """Return the caller of a token, or None. A revoked token stays valid until its cache entry expires."""
        if key is None or (known := self.remembered(key)) is not None:
            return None if key is None else known
        if (found := await self._callers.ask(key)) is None:
            self._known.pop(key, None)
            return None
        left = self.hf.settings.token_cache if found.seconds_left is None else found.seconds_left
        self._known[key] = found, time.monotonic() + min(left, self.hf.settings.token_cache)
        self._known.move_to_end(key)
        if len(self._known) > MOST_TOKENS:
            self._known.popitem(last=False)
        return found


class RequestSlot:
    """One of a tenant's slots for running requests, released at most once."""

    __slots__ = ("_slots",)

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots: asyncio.Semaphore | None = slots

    def release(self) -> None:
        """Release the slot: the request has ended, or begins a long wait."""
        if self._slots is not None:
            self._slots.release()
            self._slots = None


class LargeJob(Exception):
    """The job is too large for a coalesced call, and is read by itself."""


def token_key(authorization: str) -> bytes | None:
    """Return the digest of the token in an Authorization header, or None if there is none."""
    kind, _, token = authorization.partition(" ")
    return digest(token) if kind.lower() == "bearer" and token.startswith(PREFIX) else None


def unauthenticated(given: str) -> Problem:
    """Return the error for a request without a valid token, given its Authorization header."""
    return Problem(401, _without_token(given), headers={"WWW-Authenticate": "Bearer"})


def _without_token(given: str) -> str:
    """Return what is wrong with the header. The text does not reveal whether a token was ever valid."""
    if not given:
        return f"no token was sent: Authorization: Bearer {PREFIX}...; `holdfast tokens create` makes one"
    kind, _, token = given.partition(" ")
    if kind.lower() != "bearer" or not token.startswith(PREFIX):
        return f"invalid Authorization header, expected: Bearer {PREFIX}..."
    return "the token is unknown, expired or revoked; `holdfast tokens` lists the valid ones"
