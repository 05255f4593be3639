"""ASGI middleware that authenticates a request of the API before its body is read, by its token or the tick secret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.web import secrets
from holdfast.web.admission import Admission
from holdfast.web.guard import route_path
from holdfast.web.problems import Problem, of
from holdfast.web.service import Service, token_key, unauthenticated

TICK_REFUSED = "send one of HOLDFAST_TICK_SECRETS in the header x-internal-secret"


class AuthenticationMiddleware:
    """Pass on requests with a valid token, and requests to paths that need none or do not exist. A request that has
    entered, here or in the dashboard, leaves when its response has been sent."""

    def __init__(
        self,
        inner: ASGIApp,
        service: Service,
        admission: Admission,
        prefix: str,
        guarded: Iterable[str],
        tick_secrets: Sequence[bytes],
    ) -> None:
        self._inner = inner
        self._service = service
        self._admission = admission
        self._prefix = f"{prefix}/"
        self._guarded = frozenset(guarded)
        self._tick_secrets = tick_secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        try:
            await self._checked(scope, receive, send)
        finally:
            self._admission.leave(scope)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = self._first_part(scope)
        if first == "tick" and self._tick_secrets:
            given = _header(scope, b"x-internal-secret")
            if not secrets.knows(given, self._tick_secrets):
                await Problem(401, TICK_REFUSED).response()(scope, receive, send)
                return
        elif first in self._guarded:
            await self._with_token(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def _first_part(self, scope: Scope) -> str:
        path = route_path(scope)
        return path[len(self._prefix) :].partition("/")[0] if path.startswith(self._prefix) else ""

    async def _with_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = _header(scope, b"authorization").decode("latin-1")
        try:
            if (caller := await self._service.caller(token_key(given))) is None:
                raise unauthenticated(given)
            await self._admission.enter(scope, caller)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        except HoldfastError as error:
            await of(error).response()(scope, receive, send)
        else:
            await self._inner(scope, receive, send)


def _header(scope: Scope, name: bytes) -> bytes:
    for each, value in scope["headers"]:
        if each == name:
            found: bytes = value
            return found
    return b""
