"""The fast path: the most frequent requests bypass the framework, which costs more than our own code (decision 021).

A job's status, a new job and the liveness probe call the routes' functions directly. The request must have no query, a
token with the scope, and a valid body with a Content-Length. Everything else, and every rejection, goes through the
framework.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.model.token import Caller
from holdfast.web import health, jobs, shapes
from holdfast.web.body import read_json
from holdfast.web.guard import route_path
from holdfast.web.problems import Problem, of
from holdfast.web.service import CALLER, RequestContext, Service, token_key

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class FastPath:
    """Middleware that serves what it can and passes the rest on."""

    def __init__(self, inner: ASGIApp, service: Service, prefix: str) -> None:
        self._inner = inner
        self._service = service
        self._jobs = f"{prefix}/jobs"
        self._live = f"{prefix}/health/live"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ways = {"GET": self._get, "POST": self._create}
        if scope["type"] != "http" or scope["query_string"] or (way := ways.get(scope["method"])) is None:
            await self._inner(scope, receive, send)
            return
        messages: list[Message] = []
        if (response := await way(scope, receive, messages)) is None:
            await self._inner(scope, _replay(messages, receive) if messages else receive, send)
        else:
            await response(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, messages: list[Message]) -> Response | None:
        start = f"{self._jobs}/"
        path = route_path(scope)
        if path == self._live:
            scope["endpoint"] = health.live
            return await health.live()
        if not path.startswith(start) or not _ID.fullmatch(path, len(start)):
            return None
        if (caller := _caller(scope, "jobs:read")) is None:
            return None
        scope["endpoint"] = jobs.get
        ctx = RequestContext(self._service, caller, Request(scope, receive))
        return await _respond(lambda: jobs.get(UUID(path[len(start) :]), ctx))

    async def _create(self, scope: Scope, receive: Receive, messages: list[Message]) -> Response | None:
        if route_path(scope) != self._jobs:
            return None
        headers = (request := Request(scope, receive)).headers
        # The guard has checked the size of a body that has a Content-Length, and of no other.
        if headers.get("content-type") != "application/json" or "content-length" not in headers:
            return None
        if "idempotency-key" in headers or "transfer-encoding" in headers:
            return None
        if (caller := _caller(scope, "jobs:write")) is None:
            return None
        while not messages or messages[-1].get("more_body"):
            messages.append(await receive())
        # Checked again, because the token may have been revoked while the body arrived.
        valid = self._service.remembered(token_key(headers["authorization"])) is not None
        if (job := await self._job(messages, caller)) is None or not valid:
            return None
        scope["endpoint"] = jobs.create
        return await _respond(lambda: jobs.create(job, RequestContext(self._service, caller, request)))

    async def _job(self, messages: list[Message], caller: Caller) -> shapes.Job | None:
        """Return the job that a body describes, or None if the body is incomplete or invalid."""
        if messages[-1]["type"] != "http.request":
            return None
        data = b"".join([each.get("body", b"") for each in messages])
        try:
            return shapes.Job.model_validate(await read_json(data, self._service, caller))
        except (ValueError, RecursionError, Problem, HoldfastError):
            return None


def _caller(scope: Scope, right: str) -> Caller | None:
    caller: Caller | None = scope.get(CALLER)
    return caller if caller is not None and caller.may(right) else None


async def _respond(way: Callable[[], Awaitable[Response]]) -> Response:
    """Call a route's function; turn its errors into the same responses as the framework."""
    try:
        return await way()
    except Problem as problem:
        return problem.response()
    except HoldfastError as error:
        return of(error).response()


def _replay(messages: list[Message], receive: Receive) -> Receive:
    """Return a receive() that yields the given messages first."""

    async def replay() -> Message:
        return messages.pop(0) if messages else await receive()

    return replay
