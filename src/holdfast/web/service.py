"""What every request needs: the application, the calls, who asks, and how answers are made."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.responses import Response

from holdfast.errors import DatabaseUnavailable, UsageError
from holdfast.model.job import NewJob
from holdfast.model.token import PREFIX, Caller, digest
from holdfast.store import connect
from holdfast.store.calls import Call
from holdfast.store.seen import Page, SeenCalls, SeenJob
from holdfast.store.tokens import TokenCalls
from holdfast.store.values import Accepted
from holdfast.web.problems import Problem
from holdfast.web.takes import stray
from holdfast.web.together import Together
from holdfast.web.watch import Watch

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")
MOST_TOKENS = 10_000  # remembered at once
FIRST_STEP, LONGEST_STEP = 1_000, 64_000  # jobs that a list looks at in one query
LONGEST_LOOK = 0.5  # seconds after which it looks no further


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
        self._enqueues: Together[NewJob, Accepted] = Together(self._enqueue)
        self.watch = Watch(lambda ids: self.run(self.seen.marks(ids)))
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def run(self, call: Call[T], conn: Any = None) -> T:
        return await self.hf.async_pool.run(call, conn)

    async def look(self, caller: Caller, id_: str) -> SeenJob | None:
        """A job that the caller may see, or None."""
        return await self._looks.ask((id_, caller))

    async def _look(self, wanted: Sequence[tuple[str, Caller]]) -> list[SeenJob | None]:
        found = await self.run(self.seen.jobs(wanted))
        return [found.get(place) for place in range(len(wanted))]

    async def enqueue(self, job: NewJob) -> Accepted:
        """Accepts a job that needs nothing but its place, with others that come at the same moment."""
        return await self._enqueues.ask(job)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Accepted | Exception]:
        if len(jobs) == 1:
            return [await self.run(self.hf.calls.enqueue(jobs[0], "existing"))]
        try:
            return await self.run(self.hf.calls.enqueue_many(jobs, "existing"))
        except UsageError:  # one of them cannot be stored; the others must not suffer
            one_by_one = (self.run(self.hf.calls.enqueue(job, "existing")) for job in jobs)
            told = await asyncio.gather(*one_by_one, return_exceptions=True)
            return [each if isinstance(each, Accepted | Exception) else DatabaseUnavailable(str(each)) for each in told]

    async def page(
        self, call: Callable[[Page], Call[list[Listed]]], page: Page, *, dead: bool = False
    ) -> tuple[list[Listed], str | None]:
        """A page of a list, and from where to go on. It looks at the newest jobs and then at older ones, in steps; when
        its time is over it answers what it has, which may be nothing: a tenant's few jobs may be behind millions."""
        found: list[Listed] = []
        step, ends = FIRST_STEP, time.monotonic() + LONGEST_LOOK
        while True:
            floor = await self.run(self.seen.floor(page.before, step, dead=dead))
            part = await self.run(call(replace(page, floor=floor)))
            found += part
            if len(part) == page.limit:
                return found, found[-1].id
            if floor is None or time.monotonic() > ends:
                return found, floor
            page = replace(page, before=floor, limit=page.limit - len(part))
            step = min(step * 8, LONGEST_STEP)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection in a transaction that is committed at the end of the block."""
        try:
            async with asyncio.timeout(self.hf.settings.call_timeout):
                async with self.hf.async_pool.transaction() as conn:
                    yield conn
        except (*connect.AGAIN, TimeoutError) as error:
            raise DatabaseUnavailable(str(error)) from error

    def remembered(self, request: Request) -> Caller | None:
        """Whose token it is, if the database was asked of it a moment ago."""
        known = None if (key := _key(request)) is None else self._known.get(key)
        return known[0] if known is not None and time.monotonic() < known[1] else None

    async def caller(self, request: Request) -> Caller | None:
        """Whose token it is; asked of the database again after some seconds, which is how long a revoked one lives."""
        if (known := self.remembered(request)) is not None or (key := _key(request)) is None:
            return known
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


def _key(request: Request) -> bytes | None:
    """By which a request's token is known; None if it has none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
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

    async def run(self, call: Call[T], conn: Any = None) -> T:
        return await self.service.run(call, conn)

    async def stays(self) -> bool:
        """Whether to let a request wait on: the service goes on, its client is there and the token is still valid."""
        if server_stops() or await self.request.is_disconnected():
            return False
        return await self.service.caller(self.request) is not None

    async def once(self, act: Callable[[Any], Awaitable[Response]]) -> Response:
        """Does something and answers. With an Idempotency-Key, in one transaction with the record of the answer, which
        whoever repeats the request gets; act is given that transaction's connection, or None."""
        key = self.request.headers.get("idempotency-key")
        if key is None:
            return await act(None)
        if not (1 <= len(key) <= 200 and key.isprintable()):
            raise Problem(422, f"Idempotency-Key has 1 to 200 printable characters, got {len(key)}")
        owner, calls = "*" if self.caller.everyone else f"tenant:{self.caller.tenant}", self.service.tokens
        async with self.service.transaction() as conn:
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
        caller = await service.caller(request)
        if caller is None:
            raise Problem(401, _without_token(request), headers={"WWW-Authenticate": "Bearer"})
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


def _without_token(request: Request) -> str:
    """Why there is no caller. Whether a token was ever valid is not told."""
    given = request.headers.get("authorization", "")
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
