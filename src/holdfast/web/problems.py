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
from holdfast.web.takes import near, takes

log = logs.get("web")
_outages = logs.Seldom(log)
MEDIA_TYPE = "application/problem+json"
URN = "urn:holdfast:problem:"
SHOWN = 5  # of what is wrong with a request
LONGEST_SHOWN = 100  # characters of a value that was sent
_TITLES = {
    400: "malformed request", 401: "authentication required", 403: "not permitted", 404: "not found",
    405: "method not allowed", 408: "request timeout", 409: "conflict", 413: "request too large",
    422: "invalid request", 429: "too many requests", 431: "header too large", 500: "internal error",
    503: "service unavailable",
}  # fmt: skip
_NAMES = {
    400: "unreadable", 401: "unauthorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed",
    408: "too-slow", 409: "conflict", 413: "too-large", 422: "invalid", 429: "too-many", 431: "header-too-large",
    500: "internal", 503: "unavailable",
}  # fmt: skip


class ProblemShape(BaseModel):
    """What every error looks like."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
    checks: dict[str, str] | None = None


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

    def at(self, place: str) -> Problem:
        """The same, of this part of the request."""
        return Problem(self.status_code, f"{place}: {self.detail}", self.name, headers=self.headers, **self.more)

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
    hint = "it may have been removed" if what == "endpoint" else "what has ended is kept for the days of history"
    return Problem(404, f"there is no {what} {id_}; {hint}")


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
    app.add_middleware(Caught)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - what Starlette's type of a handler does not say
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    errors = [_in_words(each, request) for each in error.errors()] or [{"at": "body", "message": "is not valid"}]
    more = f"; and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    detail = "; ".join(f"{each['at']}: {each['message']}" for each in errors[:SHOWN]) + more
    return Problem(422, detail, errors=errors[:20]).response()


def _in_words(error: Mapping[str, Any], request: Request) -> dict[str, str]:
    """Where it is, and what is wrong there; of a body that is something else altogether, what it should be."""
    place, message = error["loc"], str(error["msg"])
    if error["type"] == "json_invalid":
        place, message = ("body",), f"not JSON at character {place[-1]}: {error['ctx']['error']}"
    elif error["type"] == "extra_forbidden":
        message = "no such field" + (near(str(place[-1]), takes(request).fields) if len(place) == 2 else "")
    elif place == ("body",) and error["type"] in ("model_attributes_type", "model_type", "missing"):
        kind = request.headers.get("content-type", "")
        names = " and ".join(takes(request).required)
        fields = f" with {names}" if names else ""
        message = f"send a JSON object{fields}" + ("" if "json" in kind else ", and Content-Type: application/json")
    else:
        message = message.removeprefix("Value error, ") + _got(str(place[-1]), error)
    return {"at": ".".join(map(str, place)), "message": message}


def _got(name: str, error: Mapping[str, Any]) -> str:
    """The value that was sent, where that helps and is nothing to keep to oneself."""
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
        detail += "; started without --tick" if off else f"; {root}/v1/openapi.json says what there is"
    headers = error.headers
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        detail, headers = f"{detail}; allowed: {allowed}", {"Allow": allowed}
    return Problem(error.status_code, detail, headers=headers).response()


def _allowed(request: Request) -> list[str]:
    """What may be done with a path; each of its routes knows of itself alone."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    described: dict[str, Any] = request.app.openapi()["paths"]
    fits = [ways for known, ways in described.items() if re.fullmatch(re.sub(r"{\w+}", "[^/]+", known), path)]
    return sorted(method.upper() for ways in fits for method in ways)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HoldfastError)  # noqa: S101
    return of(error).response()


class ClientGone(Exception):
    """Ends a response that its client takes too slowly."""


class Caught:
    """Answers what nobody foresaw, and logs it scrubbed. Whoever serves the application never hears of it: it would log
    the error as it is, and close the connection under the client's next request."""

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
            told = {"method": scope.get("method"), "error": type(error).__name__}
            log.error("request failed", exc_info=error, extra={"event": "request failed", "fields": told})
            if not begun:
                await Problem(500, "the service failed; its log says how").response()(scope, receive, send)


def of(error: HoldfastError) -> Problem:
    """One of our errors as a problem. What is about the setup is for the log: it may name servers."""
    if isinstance(error, DatabaseUnavailable):
        _outages.failed("database unavailable", error)
        return Problem(503, "the database is not available now; try again", headers={"Retry-After": "1"})
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
