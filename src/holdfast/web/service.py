"""What every request needs: the application, the calls, who asks, and how answers are made."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.responses import Response

from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import NewJob
from holdfast.model.token import PREFIX, Caller, digest
from holdfast.store import connect
from holdfast.store.calls import Call
from holdfast.store.seen import LARGE_JOB, Page, Part, SeenCalls, SeenJob
from holdfast.store.tokens import TokenCalls
from holdfast.store.values import Accepted
from holdfast.web import cursor as cursors
from holdfast.web.problems import Problem
from holdfast.web.shares import Shares
from holdfast.web.takes import stray
from holdfast.web.together import Together
from holdfast.web.watch import Watch

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")
R = TypeVar("R")
MOST_TOKENS = 10_000  # remembered at once
FIRST_STEP, LONGEST_STEP = 1_000, 64_000  # jobs that a list looks at in one query
LONGEST_LOOK = 0.5  # seconds after which it looks no further
FIRST_ROWS = 64  # that a list reads at once; more when those were small
MOST_LARGE = 10_000  # ids of large jobs remembered at once
TURN = "holdfast.turn"  # where it has the turn that it is at work with
CALLER = "holdfast.caller"  # where a request's scope has whose token it came with


_IDEMPOTENCY_KEY = re.compile("[ -~]{1,200}")


class HasId(Protocol):
    """What lists are of."""

    @property
    def id(self) -> str: ...


Listed = TypeVar("Listed", bound=HasId)


def server_stops() -> bool:
    """Whether the server that runs this stops: ASGI tells it only when those who wait have gone. Uvicorn is the one who
    handles SIGTERM, and knows."""
    return getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "should_exit", False) is True


class Service:
    """One application's service. It adds, reads and operates; it never claims, but for the tick endpoint."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.tokens = TokenCalls(hf.settings.schema)
        self.seen = SeenCalls(hf.settings.schema)
        self._looks: Together[tuple[str, Caller], SeenJob | None] = Together(self._look)
        self._enqueues: Together[NewJob, Accepted] = Together(self._enqueue, size=lambda job: len(job.payload))
        self._shares = Shares(max(1, hf.settings.pool_size // 2))
        self._heavy = Shares(1)
        self._threads = ThreadPoolExecutor(2, "holdfast-web")
        self._large: OrderedDict[str, None] = OrderedDict()
        self._cursor_key = b""
        self.watch = Watch(lambda ids: self.run(self.seen.marks(ids)))
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def run(self, call: Call[T], conn: Any = None) -> T:
        return await self.hf.async_pool.run(call, conn)

    async def run_for(self, caller: Caller, call: Call[T]) -> T:
        """Run a call that is one caller's alone: no tenant has more than half of the connections."""
        async with self._shares.of(caller.tenant):
            return await self.run(call)

    async def in_thread(self, caller: Caller | None, act: Callable[..., R], *args: Any) -> R:
        """Do what takes the processor for long beside the event loop, for one request of a tenant at a time.

        Two threads, not many: each that computes takes its part of the interpreter from the loop."""
        async with self._heavy.of(None if caller is None else caller.tenant):
            return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    async def look(self, caller: Caller, id_: str) -> SeenJob | None:
        """A job that the caller may see, or None."""
        if id_ not in self._large:
            try:
                return await self._looks.ask((id_, caller))
            except LargeJob:
                self._large[id_] = None
                if len(self._large) > MOST_LARGE:
                    self._large.popitem(last=False)
        return (await self.run_for(caller, self.seen.jobs([(id_, caller)]))).get(0)

    async def _look(self, wanted: Sequence[tuple[str, Caller]]) -> list[SeenJob | Exception | None]:
        found = await self.run(self.seen.jobs(wanted))
        return [LargeJob() if found.get(place, ...) is None else found.get(place) for place in range(len(wanted))]

    async def enqueue(self, job: NewJob, caller: Caller) -> Accepted:
        """Accept a job that needs nothing but its place: with others of the same moment, or alone if it is large."""
        if len(job.payload) < LARGE_JOB:
            return await self._enqueues.ask(job)
        return await self.run_for(caller, self.hf.calls.enqueue(job, "existing"))

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Accepted]:
        if len(jobs) == 1:
            return [await self.run(self.hf.calls.enqueue(jobs[0], "existing"))]
        return await self.run(self.hf.calls.enqueue_many(jobs, "existing"))

    async def page(
        self, caller: Caller, call: Callable[[Page], Call[Part[Listed]]], page: Page, *, dead: bool = False
    ) -> tuple[list[Listed], str | None]:
        """Return a page of a list, and the cursor of the next one.

        It looks at the newest jobs and then at older ones, in steps. It ends when its rows, its bytes or its time are
        used up; then it may be empty: a tenant's few jobs may be behind millions.
        """
        found: list[Listed] = []
        step, rows, ends = FIRST_STEP, FIRST_ROWS, time.monotonic() + LONGEST_LOOK
        while True:
            floor = await self.run_for(caller, self.seen.floor(page.before, step, dead=dead))
            some = min(page.limit - len(found), rows)
            part = await self.run_for(caller, call(replace(page, floor=floor, limit=some)))
            found += part.rows
            page = replace(page, size=page.size - part.size)
            if part.cut or len(found) == page.limit or (part.rows and page.size <= 0):
                return found, await self.seal(caller, found[-1].id)
            if len(part.rows) == some:
                page, rows = replace(page, before=found[-1].id), rows * 8
                continue
            if floor is None or time.monotonic() > ends:
                return found, await self.seal(caller, floor)
            page, step = replace(page, before=floor), min(step * 8, LONGEST_STEP)

    async def seal(self, caller: Caller, id_: str | None) -> str | None:
        """Return the cursor of a place in a list; None at its end."""
        return None if id_ is None else cursors.seal(await self._key_of_cursors(), caller, id_)

    async def unseal(self, caller: Caller, cursor: str | None) -> str | None:
        """Return the place that a cursor stands for."""
        if cursor is None:
            return None
        if (id_ := cursors.unseal(await self._key_of_cursors(), caller, cursor)) is None:
            raise Problem(422, f"query.cursor: not the `next` of a page of yours, got {cursor[:60]!r}")
        return id_

    async def _key_of_cursors(self) -> bytes:
        if not self._cursor_key:
            self._cursor_key = bytes.fromhex(await self.run(self.tokens.cursor_key()))
        return self._cursor_key

    @asynccontextmanager
    async def transaction(self, caller: Caller) -> AsyncIterator[Any]:
        """A connection in a transaction that is committed at the end of the block."""
        try:
            async with (
                asyncio.timeout(self.hf.settings.call_timeout),
                self._shares.of(caller.tenant),
                self.hf.async_pool.transaction() as conn,
            ):
                yield conn
        except (*connect.AGAIN, TimeoutError) as error:
            raise DatabaseUnavailable(str(error)) from error

    def remembered(self, key: bytes | None) -> Caller | None:
        """Whose token it is, if the database was asked of it a moment ago."""
        known = None if key is None else self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    async def caller(self, key: bytes | None) -> Caller | None:
        """Whose token it is; asked of the database again after some seconds, which is how long a revoked one lives."""
        if key is None or (known := self.remembered(key)) is not None:
            return None if key is None else known
        found = await self.run(self.tokens.use(key))
        if found is None:
            self._known.pop(key, None)
            return None
        left = self.hf.settings.token_cache if found.seconds_left is None else found.seconds_left
        self._known[key] = found, time.monotonic() + min(left, self.hf.settings.token_cache)
        self._known.move_to_end(key)
        if len(self._known) > MOST_TOKENS:
            self._known.popitem(last=False)
        return found


class Turn:
    """One of the turns of a tenant's requests, given back once."""

    __slots__ = ("_turns",)

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def done(self) -> None:
        """Give the turn back: the request has ended, or waits for something that may take long."""
        if self._turns is not None:
            self._turns.release()
            self._turns = None


class LargeJob(Exception):
    """Ends a look that is shared with others: the job is looked at by itself."""


def token_key(authorization: str) -> bytes | None:
    """By which a request's token is known; None if it has none."""
    kind, _, token = authorization.partition(" ")
    return digest(token) if kind.lower() == "bearer" and token.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that may be answered: by whom it was made, and of which service."""

    service: Service
    caller: Caller
    request: Request

    @property
    def hf(self) -> Holdfast:
        return self.service.hf

    def tenant(self, given: str | None) -> str | None:
        """Whose what is made will be: the token's tenant; a token for all may name one."""
        if self.caller.everyone:
            return given
        if given not in (None, self.caller.tenant):
            raise Problem(403, "the tenant comes from the token, and this token is another tenant's; leave it out")
        return self.caller.tenant

    def priority(self, given: int | None, usual: int) -> int | None:
        """The priority of a new job: as given, if the token may; the task's own is lowered to the token's best."""
        best = self.caller.priority
        if given is not None and given < best:
            raise Problem(403, f"the best priority of this token is {best}, got {given}", "priority")
        return best if given is None and usual < best else given

    async def run(self, call: Call[T], conn: Any = None) -> T:
        return await (self.service.run_for(self.caller, call) if conn is None else self.service.run(call, conn))

    async def before(self, cursor: str | None) -> str | None:
        """The place in a list that a request's cursor stands for."""
        return await self.service.unseal(self.caller, cursor)

    def begin_wait(self) -> None:
        """Give back the turn of this request: from now on it only waits."""
        if (turn := self.request.scope.get(TURN)) is not None:
            turn.done()

    async def stays(self) -> bool:
        """Whether to let a request wait on: the service goes on, its client is there and the token is still valid."""
        if server_stops() or await self.request.is_disconnected():
            return False
        return await self.service.caller(token_key(self.request.headers.get("authorization", ""))) is not None

    async def once(self, act: Callable[[Any], Awaitable[Response]]) -> Response:
        """Does something and answers. With an Idempotency-Key, in one transaction with the record of the answer, which
        whoever repeats the request gets; act is given that transaction's connection, or None."""
        key = self.request.headers.get("idempotency-key")
        if key is None:
            return await act(None)
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            raise Problem(422, f"Idempotency-Key has 1 to 200 printable ASCII characters, got {key[:60]!r}")
        owner, calls = "*" if self.caller.everyone else f"tenant:{self.caller.tenant}", self.service.tokens
        async with self.service.transaction(self.caller) as conn:
            begun = await self.run(calls.begin_answer(owner, key, await self._fingerprint()), conn)
            if begun.outcome == "other":
                raise Problem(409, f"Idempotency-Key {key!r} came with another request before; make a new one",
                              "key-reused")  # fmt: skip
            if begun.outcome == "same":
                told = {"Idempotent-Replayed": "true"}
                return Response(begun.body, begun.status or 200, told, "application/json")
            made = await act(conn)
            kept = getattr(made, "kept", made.body)
            await self.run(calls.keep_answer(owner, key, made.status_code, bytes(kept).decode()), conn)
            return made

    async def _fingerprint(self) -> bytes:
        asked = f"{self.request.method} {self.request.url.path}?{self.request.url.query}\n".encode()
        return hashlib.sha256(asked + await self.request.body()).digest()


class Needs(SecurityBase):
    """What a token must be for; with operator, it must be one for all tenants too."""

    def __init__(self, scope: str, *, operator: bool = False) -> None:
        self.model = HTTPBearer(description=f"A token, `{PREFIX}...`, made by `holdfast tokens create`.")
        self.scheme_name = "token"
        self._scope = scope
        self._operator = operator

    async def __call__(self, request: Request) -> Asked:
        service: Service = request.app.state.service
        # Once more: a body may take longer to come than a token that was revoked is remembered.
        known = token_key(request.headers.get("authorization", "")) if CALLER in request.scope else None
        caller = await service.caller(known)
        if caller is None:
            raise unauthenticated(request.headers.get("authorization", ""))
        make = f"make one with: holdfast tokens create NAME --scopes {self._scope}"
        if not caller.may(self._scope):
            make += " --all-tenants" if self._operator else " --tenant TENANT"
            raise Problem(403, f"the token {caller.name!r} has not the scope {self._scope}; {make}", "missing-scope")
        if self._operator and not caller.everyone:
            raise Problem(403, f"this is about all tenants, and the token is one tenant's; {make} --all-tenants",
                          "one-tenant")  # fmt: skip
        if (wrong := stray(request)) is not None:
            raise Problem(422, wrong)
        return Asked(service, caller, request)


def unauthenticated(given: str) -> Problem:
    """The error of a request without a caller, by what it has in `Authorization`."""
    return Problem(401, _without_token(given), headers={"WWW-Authenticate": "Bearer"})


def _without_token(given: str) -> str:
    """Why there is no caller. Whether a token was ever valid is not told."""
    if not given:
        return f"no token was sent: Authorization: Bearer {PREFIX}...; `holdfast tokens create` makes one"
    kind, _, token = given.partition(" ")
    if kind.lower() != "bearer" or not token.startswith(PREFIX):
        return f"the header Authorization is not as it should be: Bearer {PREFIX}..."
    return "the token is not known, or it has expired or was revoked; `holdfast tokens` lists those that are valid"


Reads = Annotated[Asked, Depends(Needs("jobs:read"))]
Writes = Annotated[Asked, Depends(Needs("jobs:write"))]
ReadsHooks = Annotated[Asked, Depends(Needs("webhooks:read"))]
WritesHooks = Annotated[Asked, Depends(Needs("webhooks:write"))]
Operates = Annotated[Asked, Depends(Needs("operate", operator=True))]
Watches = Annotated[Asked, Depends(Needs("metrics", operator=True))]
Explains = Annotated[Asked, Depends(Needs("jobs:read", operator=True))]


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
