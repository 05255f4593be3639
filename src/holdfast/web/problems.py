"""Errors as problem+json (RFC 9457): what failed, with which value, and what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InvalidPayload,
    UnknownEndpoint,
    UnknownTask,
    UsageError,
)
from holdfast.telemetry import logs

log = logs.get("web")
_outages = logs.RateLimitedLog(log)
MEDIA_TYPE = "application/problem+json"
URN = "urn:holdfast:problem:"
_OTHER = ("the request failed", "http")  # title and name
_KINDS = {
    400: ("malformed request", "unreadable"),
    401: ("authentication required", "unauthorized"),
    403: ("not permitted", "forbidden"),
    404: ("not found", "not-found"),
    405: ("method not allowed", "method-not-allowed"),
    408: ("request timeout", "too-slow"),
    409: ("conflict", "conflict"),
    413: ("request too large", "too-large"),
    422: ("invalid request", "invalid"),
    429: ("too many requests", "too-many"),
    431: ("header too large", "header-too-large"),
    500: ("internal error", "internal"),
    503: ("service unavailable", "unavailable"),
}


class Problem(Exception):
    """An error response with this status."""

    def __init__(
        self,
        status: int,
        detail: str,
        name: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.name = name or _KINDS.get(status, _OTHER)[1]
        self.more = more

    def at(self, place: str) -> Problem:
        """Return the same problem, prefixed with a place in the request."""
        return Problem(self.status, f"{place}: {self.detail}", self.name, headers=self.headers, **self.more)

    def response(self) -> Response:
        """Return the problem+json response."""
        kind = {"type": URN + self.name, "title": title(self.status)}
        body = {**kind, "status": self.status, "detail": self.detail, **self.more}
        # In ASCII, because a value may contain a lone surrogate.
        return Response(json.dumps(body, default=str), self.status, self.headers, MEDIA_TYPE)


def title(status: int) -> str:
    """Return the title of the errors with a status."""
    return _KINDS.get(status, _OTHER)[0]


_HINTS = {"endpoint": "it may have been removed", "worker": "it may have ended"}


def unknown(what: str, id_: object) -> Problem:
    """Return a 404. It does not reveal whether the id belongs to another tenant."""
    hint = _HINTS.get(what, "history may have been pruned")
    return Problem(404, f"there is no {what} {id_}; {hint}")


class ClientGone(Exception):
    """The client reads the response too slowly."""


class ErrorMiddleware:
    """Middleware that turns unexpected errors into a 500 and logs them scrubbed.

    The server must not see them: it would log them unscrubbed and close the connection."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._inner(scope, receive, noting)
        except Exception as error:
            if scope["type"] != "http" or isinstance(error, ClientGone):
                raise
            fields = {"method": scope.get("method"), "error": type(error).__name__}
            log.error("request failed", exc_info=error, extra={"event": "request failed", "fields": fields})
            if not begun:
                await Problem(500, "the service failed; see its log").response()(scope, receive, send)


def of(error: HoldfastError) -> Problem:
    """Return one of our errors as a problem. Only the log gets configuration errors, because they may name servers."""
    if isinstance(error, DatabaseUnavailable):
        _outages.failed("database unavailable", error)
        return Problem(503, "the database is not available now; try again", headers={"Retry-After": "1"})
    if isinstance(error, UnknownTask):
        return Problem(422, str(error), "unknown-task")
    if isinstance(error, UsageError):
        return _of_usage(error)
    known = isinstance(error, ConfigurationError)
    logs.event(log, logging.ERROR, "not set up" if known else "request failed", error=str(error))
    return Problem(503 if known else 500, f"the service {'is not set up' if known else 'failed'}; see its log")


def _of_usage(error: UsageError) -> Problem:
    if isinstance(error, UnknownEndpoint):
        return Problem(404, str(error).partition(";")[0])
    if isinstance(error, DuplicateJob):
        return Problem(409, "another job holds this dedupe key; nothing was enqueued", "duplicate")
    return Problem(422, str(error), "invalid-payload" if isinstance(error, InvalidPayload) else None)
