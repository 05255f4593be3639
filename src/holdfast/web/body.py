"""Request bodies: JSON, decoded once. A job's arguments, which may be large, stay encoded for the task's decoder.

msgspec and json hold the GIL while they decode, so a body is checked first: its size as PostgreSQL stores it (1e308
takes 309 bytes), and the size of the parts that are decoded here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from holdfast.errors import InvalidPayload
from holdfast.model import payload
from holdfast.model.token import Caller
from holdfast.web.problems import Problem
from holdfast.web.service import CALLER, Service
from holdfast.web.shapes import MOST_JOBS

LARGE = 65_536  # bytes from which a body is checked before it is decoded
FIELDS_OF_ONE = 4096  # bytes that a job may have outside of args, on average
_VALUES = ("payload", "body")  # of messages and events: any JSON
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_jobs = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_any = msgspec.json.Decoder().decode


class _LargeJob(msgspec.Struct):
    task: msgspec.Raw
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _LargeBody(msgspec.Struct):
    """The fields that may be large. The decoder skips all other ones without building objects."""

    jobs: list[_LargeJob] | msgspec.UnsetType = msgspec.UNSET
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_large = msgspec.json.Decoder(_LargeBody).decode


class BodyRoute(APIRoute):
    """A route that decodes its body with read_json()."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handler


class _JsonRequest(Request):
    async def json(self) -> Any:
        return await read_json(await self.body(), self.app.state.service, self.scope.get(CALLER))


async def read_json(data: bytes, service: Service, caller: Caller | None) -> Any:
    """Decode a body; a job's `args` stay msgspec.Raw. Raise json.JSONDecodeError or Problem."""
    max_payload = service.hf.settings.max_payload
    if len(data) >= LARGE:
        await service.in_thread(caller, _check_large, data, service.hf.settings.max_body)
    try:
        fields = _fields(data)
        return {name: _value(name, raw, max_payload) for name, raw in fields.items()}
    except (msgspec.MsgspecError, RecursionError) as error:
        if len(data) < LARGE:  # json has better error messages, and accepts UTF-16
            return json.loads(data)
        raise json.JSONDecodeError(str(error), "", 0) from None


def _check_size(data: bytes, max_body: int) -> None:
    try:
        size = payload.stored_size(data, "the body", max_body)
    except InvalidPayload as error:
        raise Problem(422, str(error), "invalid-payload") from None
    if size > max_body:
        size_as_stored = f"more than {max_body:,} bytes when its numbers are written out as PostgreSQL stores them"
        raise Problem(413, f"the body has {size_as_stored}; send fewer jobs, or raise HOLDFAST_MAX_BODY")


def _check_large(data: bytes, max_body: int) -> None:
    """Reject a body that is large outside of arguments and payloads."""
    _check_size(data, max_body)
    try:
        found = _large(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(422, f"body: {error}") from None
    jobs = found.jobs or []
    if len(jobs) > MOST_JOBS:
        raise Problem(422, f"body.jobs: at most {MOST_JOBS:,} jobs in one request, got {len(jobs):,}")
    values = [found.args, found.payload, found.body, *(job.args for job in jobs)]
    rest = len(data) - sum(len(bytes(each)) for each in values if isinstance(each, msgspec.Raw))
    if rest > LARGE + FIELDS_OF_ONE * len(jobs):
        raise Problem(413, f"the body has {rest:,} bytes outside of args, payload and body; send less at once")


def _value(name: str, raw: msgspec.Raw, max_payload: int) -> Any:
    if name == "args":
        return raw
    if name == "jobs":
        return [{field: _value(field, each, max_payload) for field, each in job.items()} for job in _jobs(raw)]
    if name in _VALUES and len(text := bytes(raw)) >= LARGE:
        payload.check_limits(text, name, max_payload, 1_000_000)
    return _any(raw)
