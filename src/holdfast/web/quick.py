"""The requests that nearly all callers make, past the framework: its part costs more than ours (decision 021).

A job's status, a new job and the liveness probe go straight to the functions that the routes have. Only what is written
plainly does: no query, a token that has the scope, a body whose length is told and that is as it should be. All else
goes the long way, and every refusal of a request comes from there.
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
from holdfast.web.service import CALLER, Asked, Service, token_key

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Quick:
    """Answers what it can and leaves the rest to the application within."""

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
        seen: list[Message] = []
        if (answer := await way(scope, receive, seen)) is None:
            await self._inner(scope, _again(seen, receive) if seen else receive, send)
        else:
            await answer(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, seen: list[Message]) -> Response | None:
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
        asked = Asked(self._service, caller, Request(scope, receive))
        return await _answered(lambda: jobs.get(UUID(path[len(start) :]), asked))

    async def _create(self, scope: Scope, receive: Receive, seen: list[Message]) -> Response | None:
        if route_path(scope) != self._jobs:
            return None
        headers = (request := Request(scope, receive)).headers
        # Of a body whose length is told, and only that, it is known that it is not too long.
        if headers.get("content-type") != "application/json" or "content-length" not in headers:
            return None
        if "idempotency-key" in headers or "transfer-encoding" in headers:
            return None
        if (caller := _caller(scope, "jobs:write")) is None:
            return None
        while not seen or seen[-1].get("more_body"):
            seen.append(await receive())
        # Once more: a body may take longer to come than a token that was revoked is remembered.
        valid = self._service.remembered(token_key(headers["authorization"])) is not None
        if (job := await self._job(seen, caller)) is None or not valid:
            return None
        scope["endpoint"] = jobs.create
        return await _answered(lambda: jobs.create(job, Asked(self._service, caller, request)))

    async def _job(self, seen: list[Message], caller: Caller) -> shapes.Job | None:
        """The job that a body describes, if it does and if all of it came."""
        if seen[-1]["type"] != "http.request":
            return None
        data = b"".join([each.get("body", b"") for each in seen])
        try:
            return shapes.Job.model_validate(await read_json(data, self._service, caller))
        except (ValueError, RecursionError, Problem, HoldfastError):
            return None


def _caller(scope: Scope, right: str) -> Caller | None:
    caller: Caller | None = scope.get(CALLER)
    return caller if caller is not None and caller.may(right) else None


async def _answered(way: Callable[[], Awaitable[Response]]) -> Response:
    """What a route's function answers; its errors as the framework would tell them."""
    try:
        return await way()
    except Problem as problem:
        return problem.response()
    except HoldfastError as error:
        return of(error).response()


def _again(seen: list[Message], receive: Receive) -> Receive:
    """What was received is received again, then what follows."""

    async def receiving() -> Message:
        return seen.pop(0) if seen else await receive()

    return receiving
