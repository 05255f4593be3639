"""Request bodies: bounded before they are decoded. A job's arguments, which may be large, stay encoded for the task's
decoder.

msgspec holds the GIL while it decodes, so a large body is checked first: its size as PostgreSQL stores it (1e308 takes
309 bytes), and the size of the parts that are decoded here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from holdfast.errors import InvalidPayload
from holdfast.model import payload
from holdfast.model.token import Caller
from holdfast.web.decode import decode_body
from holdfast.web.fields import MOST_JOBS, Body
from holdfast.web.problems import Problem
from holdfast.web.service import Service

B = TypeVar("B", bound=Body)
LARGE = 65_536  # bytes from which a body is checked before it is decoded
FIELDS_OF_ONE = 4096  # bytes that a job may have outside of args, on average


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


async def receive_body(request: Request) -> bytes:
    """Return the whole body of a request."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise _left() from None


async def receive_form(request: Request, most: int) -> bytes:
    """Return the body of a form, or raise a 413 once it is larger than `most` bytes."""
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > most:
                raise Problem(413, f"the form is larger than {most:,} bytes; send less at once")
    except ClientDisconnect:
        raise _left() from None
    return bytes(data)


def _left() -> Problem:
    return Problem(400, "the client disconnected before the whole body had arrived")


async def read_body(data: bytes, kind: type[B], content_type: str, service: Service, caller: Caller | None) -> B:
    """Decode a body, with the checks of a large one in a thread."""
    if len(data) >= LARGE:
        await service.in_thread(caller, _check_large, data, service.hf.settings.max_body)
    return decode_body(data, kind, content_type)


def read_value(raw: msgspec.Raw, name: str, max_payload: int) -> Any:
    """Decode a field that may hold any JSON."""
    if len(data := bytes(raw)) >= LARGE:
        payload.check_limits(data, name, max_payload, 1_000_000)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Problem(422, f"body.{name}: {error}") from None


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
