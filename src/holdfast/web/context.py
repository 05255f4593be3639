"""One request: its caller, and what the routes need of the application."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from holdfast.model.token import Caller
from holdfast.model.view import View
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.web.body import receive_body
from holdfast.web.problems import Problem, unknown
from holdfast.web.service import SLOT, Service, server_stops, token_key

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.web.app import Application

P = ParamSpec("P")
T = TypeVar("T")
_IDEMPOTENCY_KEY = re.compile("[ -~]{1,200}")


class RequestContext:
    """A request with its caller.

    A request with an Idempotency-Key runs in one transaction, whose connection is `conn`; otherwise it is None."""

    __slots__ = ("app", "caller", "conn", "request", "service")

    def __init__(self, app: Application, caller: Caller, request: Request) -> None:
        self.app = app
        self.service: Service = app.service
        self.caller = caller
        self.request = request
        self.conn: Any = None

    @property
    def hf(self) -> Holdfast:
        return self.service.hf

    @property
    def calls(self) -> Calls:
        return self.service.hf.database.calls

    @property
    def view(self) -> View:
        """What the caller may see and change."""
        return self.caller.view

    def tenant(self, given: str | None) -> str | None:
        """Return the tenant of what the request creates. Only a token for all tenants may name one."""
        if self.caller.everyone:
            return given
        if given not in (None, self.caller.tenant):
            raise Problem(403, "tenant: the token belongs to another tenant; leave the field out")
        return self.caller.tenant

    def priority(self, given: int | None, usual: int) -> int | None:
        """Return the priority of a new job. A task's default is lowered to the token's best."""
        best = self.caller.priority
        if given is not None and given < best:
            raise Problem(403, f"the best priority of this token is {best}, got {given}", "priority")
        return best if given is None and usual < best else given

    async def run(self, call: Call[T]) -> T:
        """Run a call, in the request's transaction if there is one."""
        if self.conn is not None:
            return await self.service.run(call, self.conn)
        return await self.service.run_for(self.caller, call)

    async def found(self, call: Call[T | None], noun: str, id_: object) -> T:
        """Run a call that looks something up; raise a 404 if there is nothing."""
        result = await self.run(call)
        if result is None:
            raise unknown(noun, id_)
        return result

    async def do(self, method: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do an operation of `hf`, in the request's transaction if there is one: ctx.do(hf.jobs.aget, id)."""
        operation: Any = method
        made = operation.__wrapped__(operation.__self__, *args, **kwargs)
        return await (self.run(made) if isinstance(made, Call) else self.run_steps(made))

    async def run_steps(self, steps: Generator[Any, Any, T]) -> T:
        """Run the steps of an operation, as do() does. The generator gets the errors."""
        try:
            call = next(steps)
            while True:
                try:
                    result = await self.run(call)
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Yield the connection of the request's transaction, opened for the length of the block if there is none."""
        if self.conn is not None:
            yield self.conn
            return
        async with self.service.transaction(self.caller) as conn:
            self.conn = conn
            try:
                yield conn
            finally:
                self.conn = None

    async def before(self, cursor: str | None) -> str | None:
        """Return the place in a list that a request's cursor stands for."""
        return await self.service.unseal(self.caller, cursor)

    def begin_wait(self) -> None:
        """Release the request's slot, because from now on it only waits."""
        if (slot := self.request.scope.get(SLOT)) is not None:
            slot.release()

    async def may_continue(self) -> bool:
        """Return whether a request may keep waiting: the server runs, the client is connected, the token is valid."""
        if server_stops() or await self.request.is_disconnected():
            return False
        return await self.service.caller(token_key(self.request.headers.get("authorization", ""))) is not None

    async def once(self, key: str, act: Callable[[], Awaitable[tuple[Response, bytes]]]) -> Response:
        """Return act's response, which one transaction stores under an Idempotency-Key with everything that act does.
        act also returns the body to store. A repeated request gets the stored response."""
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            raise Problem(422, f"Idempotency-Key must have 1 to 200 printable ASCII characters, got {key[:60]!r}")
        owner, calls = "*" if self.caller.everyone else f"tenant:{self.caller.tenant}", self.service.tokens
        async with self.transaction():
            stored = await self.run(calls.begin_response(owner, key, await self._fingerprint()))
            if stored.outcome == "other":
                detail = f"Idempotency-Key {key!r} was used for a different request; use a new key"
                raise Problem(409, detail, "key-reused")
            if stored.outcome == "same":
                headers = {"Idempotent-Replayed": "true"}
                return Response(stored.body, stored.status or 200, headers, "application/json")
            response, body = await act()
            await self.run(calls.store_response(owner, key, response.status_code, body.decode()))
            return response

    async def _fingerprint(self) -> bytes:
        head = f"{self.request.method} {self.request.url.path}?{self.request.url.query}\n".encode()
        return hashlib.sha256(head + await receive_body(self.request)).digest()
