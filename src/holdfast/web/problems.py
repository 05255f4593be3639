"""Errors as problem+json (RFC 9457): what failed, with which value, and what to do."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException as AnyHTTPException
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
from holdfast.telemetry.scrub import scrub
from holdfast.web.parameters import near, parameters_of

log = logs.get("web")
_outages = logs.Seldom(log)
MEDIA_TYPE = "application/problem+json"
URN = "urn:holdfast:problem:"
SHOWN = 5  # validation errors in the detail
LONGEST_SHOWN = 100  # characters of a value in an error message
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


class ProblemShape(BaseModel):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
    checks: dict[str, str] | None = None


class Problem(HTTPException):
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
        super().__init__(status, detail, headers)
        self.name = name or _KINDS.get(status, _OTHER)[1]
        self.more = more

    def at(self, place: str) -> Problem:
        """Return the same problem, prefixed with a place in the request."""
        return Problem(self.status_code, f"{place}: {self.detail}", self.name, headers=self.headers, **self.more)

    def response(self) -> Response:
        """Return the problem+json response."""
        kind = {"type": URN + self.name, "title": _KINDS.get(self.status_code, _OTHER)[0]}
        body = {**kind, "status": self.status_code, "detail": self.detail, **self.more}
        # In ASCII, because a value may contain a lone surrogate.
        return Response(json.dumps(body, default=str), self.status_code, self.headers, MEDIA_TYPE)


def unknown(what: str, id_: object) -> Problem:
    """Return a 404. It does not reveal whether the id belongs to another tenant."""
    hint = "it may have been removed" if what == "endpoint" else "history may have been pruned"
    return Problem(404, f"there is no {what} {id_}; {hint}")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {each: {"description": _KINDS[each][0], "content": content} for each in statuses}


EVERYWHERE = documented(400, 401, 403, 422, 429, 500, 503)
FOR_ONE = documented(404)
FOR_CHANGES = documented(404, 409, 413)


def handle_errors(app: FastAPI) -> None:
    """Turn every error of the application into a problem."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(HoldfastError, _ours)
    app.add_middleware(Caught)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - Starlette types handlers as taking any Exception
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    errors = [_in_words(each, request) for each in error.errors()] or [{"at": "body", "message": "is not valid"}]
    more = f"; and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    detail = "; ".join(f"{each['at']}: {each['message']}" for each in errors[:SHOWN]) + more
    return Problem(422, detail, errors=errors[:20]).response()


def _in_words(error: Mapping[str, Any], request: Request) -> dict[str, str]:
    """Return the place of a validation error and its message."""
    place, message = error["loc"], str(error["msg"])
    if error["type"] == "json_invalid":
        place, message = ("body",), f"not JSON at character {place[-1]}: {error['ctx']['error']}"
    elif error["type"] == "extra_forbidden":
        message = "no such field" + (near(str(place[-1]), parameters_of(request).fields) if len(place) == 2 else "")
    elif place == ("body",) and error["type"] in ("model_attributes_type", "model_type", "missing"):
        kind = request.headers.get("content-type", "")
        names = " and ".join(parameters_of(request).required)
        fields = f" with {names}" if names else ""
        message = f"send a JSON object{fields}" + ("" if "json" in kind else ", and Content-Type: application/json")
    else:
        message = message.removeprefix("Value error, ") + _got(str(place[-1]), error)
    return {"at": ".".join(map(str, place)), "message": message}


def _got(name: str, error: Mapping[str, Any]) -> str:
    """Return the rejected value for the message, unless it is long, missing or a secret."""
    value = error.get("input")
    if error["type"] == "missing" or not isinstance(value, str | int | float) or "secret" in name:
        return ""
    return f", got {scrub(repr(value))}" if len(repr(value)) <= LONGEST_SHOWN else ""


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)  # noqa: S101
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    if error.status_code == 404:
        root = request.scope.get("root_path", "")
        off = request.url.path.endswith("/v1/tick")
        detail += "; started without --tick" if off else f"; {root}/v1/openapi.json lists all paths"
    headers = error.headers
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        detail, headers = f"{detail}; allowed: {allowed}", {"Allow": allowed}
    return Problem(error.status_code, detail, headers=headers).response()


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes that match a path. Starlette reports those of the first match only."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    described: dict[str, Any] = request.app.openapi()["paths"]
    fits = [ways for known, ways in described.items() if re.fullmatch(re.sub(r"{\w+}", "[^/]+", known), path)]
    return sorted(method.upper() for ways in fits for method in ways)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)  # noqa: S101
    return of(error).response()


class ClientGone(Exception):
    """The client reads the response too slowly."""


class Caught:
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
            if isinstance(error, Problem) and not begun:  # from reading the body, past the framework
                await error.response()(scope, receive, send)
                return
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
