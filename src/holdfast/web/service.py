"""What every request needs: the application, the calls, who asks, and how answers are made."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.responses import Response

from holdfast.errors import DatabaseUnavailable, UsageError
from holdfast.model.job import NewJob
from holdfast.model.token import PREFIX, Caller, digest
from holdfast.store import connect
from holdfast.store.calls import Accepted, Call
from holdfast.store.pools import Lost
from holdfast.store.seen import SeenCalls, SeenJob
from holdfast.store.tokens import TokenCalls
from holdfast.web.problems import Problem
from holdfast.web.together import Together

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")
MOST_TOKENS = 10_000  # remembered at once


class Service:
    """One application's service. It adds, reads and operates; it never claims, but for the tick endpoint."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.tokens = TokenCalls(hf.settings.schema)
        self.seen = SeenCalls(hf.settings.schema)
        self._looks: Together[tuple[str, Caller], SeenJob | None] = Together(self._look)
        self._enqueues: Together[NewJob, Accepted] = Together(self._enqueue)
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

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection in a transaction that is committed at the end of the block."""
        try:
            async with asyncio.timeout(self.hf.settings.call_timeout):
                async with self.hf.async_pool.lent() as conn, conn.transaction():
                    yield conn
        except (*Lost, *connect.AGAIN, TimeoutError) as error:
            raise DatabaseUnavailable(str(error)) from error

    async def caller(self, token: str) -> Caller | None:
        """Whose token it is; asked of the database again after some seconds, which is how long a revoked one lives."""
        known = self._known.get(key := digest(token))
        if known is not None and time.monotonic() < known[1]:
            return known[0]
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
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = None
        if kind.lower() == "bearer" and token.startswith(PREFIX):
            caller = await service.caller(token)
        if caller is None:
            raise Problem(401, "send a valid token: Authorization: Bearer hf_...; `holdfast tokens create` makes one",
                          headers={"WWW-Authenticate": "Bearer"})  # fmt: skip
        if not caller.may(self._scope):
            raise Problem(403, f"the token {caller.name!r} has not the scope {self._scope}", "missing-scope")
        if self._operator and not caller.everyone:
            raise Problem(403, "this is about all tenants, and the token is one tenant's", "one-tenant")
        return Asked(service, caller, request)


Reads = Annotated[Asked, Depends(Needs("jobs:read"))]
Writes = Annotated[Asked, Depends(Needs("jobs:write"))]
ReadsHooks = Annotated[Asked, Depends(Needs("webhooks:read"))]
WritesHooks = Annotated[Asked, Depends(Needs("webhooks:write"))]
Operates = Annotated[Asked, Depends(Needs("operate", operator=True))]
Explains = Annotated[Asked, Depends(Needs("jobs:read", operator=True))]


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")
