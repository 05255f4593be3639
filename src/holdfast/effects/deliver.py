"""One attempt to deliver a webhook: read the endpoint, sign the body, post it, and decide the job's outcome.

The response of a successful attempt is the job's result; that of a failed one is in its error, under `details`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from holdfast.effects.signature import sign
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.model.outcome import Fail, RetryLater, Snooze
from holdfast.model.webhook import Target

if TYPE_CHECKING:
    from holdfast.effects.address import Rule
    from holdfast.effects.send import Answer, DeliveryError, Sender

FRESH = 1.0  # seconds that an endpoint is cached, and the longest delay of a change to it
LONGEST_WAIT = 86_400.0  # the longest Retry-After, in seconds
_KEY_MISSING_WAIT = 60.0
_CACHE_SIZE = 1000


class NotDelivered(HoldfastError):
    """The endpoint did not accept the delivery, which is retried by its policy. `details` has the response."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Postponed(RetryLater):
    """The endpoint requested a later retry."""

    def __init__(self, after: float, error: DeliveryError) -> None:
        super().__init__(after, f"{error}, and requested a retry after {after:g} s", code=error.code)
        self.details = error.details


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One delivery: an event, to an endpoint."""

    delivery: str
    tenant: str | None
    endpoint: str
    event: str
    type: str
    body_id: str
    usual: float = 0.0  # seconds that the policy waits after this attempt


class Poster:
    """Creates its sender on first use: most workers deliver no webhooks, and aiohttp is large."""

    def __init__(self, stack: contextlib.AsyncExitStack, rule: Rule) -> None:
        self._stack = stack
        self._rule = rule
        self._lock = asyncio.Lock()
        self._sender: Sender | None = None

    async def sender(self) -> Sender:
        if self._sender is not None:
            return self._sender
        async with self._lock:
            if self._sender is None:
                from holdfast.effects.send import Sender

                self._sender = await self._stack.enter_async_context(Sender(rule=self._rule))
            return self._sender


@contextlib.asynccontextmanager
async def open_poster(rule: Rule) -> AsyncIterator[Poster]:
    """Open a worker's poster, and close it with the block; `rule` decides which addresses it may dial."""
    async with contextlib.AsyncExitStack() as stack:
        yield Poster(stack, rule)


class Deliverer:
    """Delivers for one application. `read` returns an endpoint with its secrets decrypted, `read_body` returns the body
    of a tenant's event, and `disable` disables an endpoint."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[Target | None]],
        read_body: Callable[[str, str | None], Awaitable[str | None]],
        disable: Callable[[str, str, str], Awaitable[object]],
    ) -> None:
        self._read = read
        self._read_body = read_body
        self._disable = disable
        self._cache: dict[str, tuple[float, Target | None]] = {}

    async def deliver(self, poster: Poster, message: WebhookDelivery) -> dict[str, Any]:
        """Return the response, or raise the exception that decides the job's outcome."""
        target = _open(await self._target(message.endpoint), message)
        if (text := await self._read_body(message.body_id, message.tenant)) is None:
            raise Fail(f"the body of event {message.event} has been removed", code="BODY_REMOVED")
        body = text.encode()
        try:
            headers = sign(
                body, target.secrets, message.event, message.delivery, message.type, time.time(), target.prefix
            )
        except ValueError as error:
            raise Fail(f"the delivery cannot be signed: {error}", code="NOT_SIGNED") from None
        response = await self._post(await poster.sender(), target, message, body, headers)
        return response.as_json()

    async def _post(
        self, sender: Sender, target: Target, message: WebhookDelivery, body: bytes, headers: dict[str, str]
    ) -> Answer:
        from holdfast.effects.send import DeliveryError

        try:
            return await sender.post(target.url, body, headers, target.timeout, target.dev)
        except DeliveryError as error:
            if error.code == "HTTP_410":
                await self._shut(target, message, error)
            raise _verdict(error, message.usual) from None

    async def _shut(self, target: Target, message: WebhookDelivery, error: DeliveryError) -> None:
        """Disable an endpoint that is gone for good."""
        self._cache.pop(message.endpoint, None)
        await self._disable(message.endpoint, "it returned 410 Gone", target.url)
        gone = Fail("the endpoint returned 410 Gone and has been disabled", code=error.code)
        gone.details = error.details  # type: ignore[attr-defined]
        raise gone from None

    async def _target(self, endpoint: str) -> Target | None:
        until, target = self._cache.get(endpoint, (0.0, None))
        if until > time.monotonic():
            return target
        try:
            target = await self._read(endpoint)
        except ConfigurationError as error:  # a key is missing, which must not use up an attempt
            raise Snooze(_KEY_MISSING_WAIT, str(error)) from None
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[endpoint] = (time.monotonic() + FRESH, target)
        return target


def _open(target: Target | None, message: WebhookDelivery) -> Target:
    """Return the endpoint, or raise Fail if it may not be sent to."""
    if target is None:
        raise Fail(f"endpoint {message.endpoint} has been removed", code="ENDPOINT_REMOVED")
    if target.tenant != message.tenant:
        raise Fail(f"endpoint {message.endpoint} belongs to another tenant", code="ENDPOINT_REFUSED")
    if not target.enabled:
        why = f": {target.disabled_reason}" if target.disabled_reason else ""
        raise Fail(f"endpoint {message.endpoint} is disabled{why}", code="ENDPOINT_DISABLED")
    return target


def _verdict(error: DeliveryError, usual: float) -> Exception:
    if error.answer is not None and error.answer.status in (429, 503):
        wait = retry_after(error.answer.headers.get("retry-after", ""))
        # A wait shorter than the policy's would use up in seconds attempts that are meant to last for days.
        if wait is not None and wait > usual:
            return Postponed(wait, error)
    return NotDelivered(error.code, str(error), error.details)


def retry_after(header: str, now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date, limited to 1..86400; None if it is neither."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:12])
    else:
        try:
            at = parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        seconds = (at - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 1.0), LONGEST_WAIT)
