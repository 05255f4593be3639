"""Errors as problem+json (RFC 9457): what failed, with which value, and what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import Response

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
MEDIA_TYPE = "application/problem+json"
URN = "urn:holdfast:problem:"
_TITLES = {
    400: "the request cannot be read", 401: "a token is needed", 403: "the token is not for this",
    404: "there is no such thing", 405: "this cannot be done here", 409: "this cannot be done now",
    413: "the request is too large", 422: "the request cannot work as written", 429: "too much at once",
    500: "something went wrong here", 503: "the service cannot answer now",
}  # fmt: skip
_NAMES = {
    400: "unreadable", 401: "unauthorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed",
    409: "conflict", 413: "too-large", 422: "invalid", 429: "too-many", 500: "internal", 503: "unavailable",
}  # fmt: skip


class ProblemShape(BaseModel):
    """What every error looks like."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


class Problem(HTTPException):
    """Ends a request with an error of this status."""

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
        self.name = name or _NAMES.get(status, "http")
        self.more = more

    def response(self) -> Response:
        """The error as it is sent."""
        told = {
            "type": URN + self.name, "title": _TITLES.get(self.status_code, "the request failed"),
            "status": self.status_code, "detail": self.detail, **self.more,
        }  # fmt: skip
        # In ASCII: what was sent may hold half a character.
        return Response(json.dumps(told, default=str), self.status_code, self.headers, MEDIA_TYPE)


def unknown(what: str, id_: object) -> Problem:
    """Nothing of this id that the caller may see; whether another tenant has it is not told."""
    return Problem(404, f"there is no {what} {id_}; what has ended is kept for the days of history")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of errors."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {each: {"description": _TITLES[each], "content": content} for each in statuses}


EVERYWHERE = documented(400, 401, 403, 422, 429, 500, 503)
FOR_ONE = documented(404)
FOR_CHANGES = documented(404, 409, 413)


def handle_errors(app: FastAPI) -> None:
    """Every error of this application becomes a problem."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(HoldfastError, _ours)
    app.add_exception_handler(Exception, _unexpected)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - what Starlette's type of a handler does not say
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    errors = [{"at": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in error.errors()]
    first = errors[0] if errors else {"at": "body", "message": "is not valid"}
    return Problem(422, f"{first['at']}: {first['message']}", errors=errors[:20]).response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)  # noqa: S101
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    return Problem(error.status_code, detail, headers=error.headers).response()


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)  # noqa: S101
    return of(error).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    logs.event(log, logging.ERROR, "request failed", method=request.method, error=type(error).__name__)
    return Problem(500, "the service failed; its log says how").response()


def of(error: HoldfastError) -> Problem:
    """One of our errors as a problem. What is about the setup is for the log: it may name servers."""
    if isinstance(error, DatabaseUnavailable):
        return Problem(503, "the database cannot be reached; try again", headers={"Retry-After": "1"})
    if isinstance(error, UnknownTask):
        return Problem(422, str(error), "unknown-task")
    if isinstance(error, UsageError):
        return _of_usage(error)
    known = isinstance(error, ConfigurationError)
    logs.event(log, logging.ERROR, "not set up" if known else "request failed", error=str(error))
    return Problem(503 if known else 500, f"the service {'is not set up' if known else 'failed'}; its log says how")


def _of_usage(error: UsageError) -> Problem:
    if isinstance(error, UnknownEndpoint):
        return Problem(404, str(error).partition(";")[0])
    if isinstance(error, DuplicateJob):
        return Problem(409, "another job holds this dedupe key; nothing was enqueued", "duplicate")
    return Problem(422, str(error), "invalid-payload" if isinstance(error, InvalidPayload) else None)
