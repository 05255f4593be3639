"""One attempt to deliver a webhook: reads the endpoint, signs the body, posts it, and says what becomes of the job.

The answer of an attempt that succeeded is the job's result; that of one that failed is in its error, under `details`.
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

FRESH = 1.0  # seconds that what is known of an endpoint is used for: so long may a change take to be seen
LONGEST_WAIT = 86_400.0  # what a receiver may ask for
_MISSET = 60.0
_MOST_KNOWN = 1000


class NotDelivered(HoldfastError):
    """The endpoint did not take the delivery; it is tried again by the policy. `details` has what was answered."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Postponed(RetryLater):
    """The endpoint asked for another try after a while."""

    def __init__(self, after: float, error: DeliveryError) -> None:
        super().__init__(after, f"{error}, and asked to be tried again after {after:g} s", code=error.code)
        self.details = error.details


@dataclass(frozen=True, slots=True)
class Message:
    """What is delivered: an event, to an endpoint."""

    delivery: str
    tenant: str | None
    endpoint: str
    event: str
    type: str
    body_id: str
    usual: float = 0.0  # seconds that the policy waits after this attempt


class Poster:
    """A sender that is made when it is first needed: most workers deliver no webhooks, and its library is large."""

    def __init__(self, opened: contextlib.AsyncExitStack, rule: Rule) -> None:
        self._opened = opened
        self._rule = rule
        self._lock = asyncio.Lock()
        self._sender: Sender | None = None

    async def sender(self) -> Sender:
        if self._sender is not None:
            return self._sender
        async with self._lock:
            if self._sender is None:
                from holdfast.effects.send import Sender

                self._sender = await self._opened.enter_async_context(Sender(rule=self._rule))
            return self._sender


@contextlib.asynccontextmanager
async def open_poster(rule: Rule) -> AsyncIterator[Poster]:
    """A worker's poster, for as long as it runs; rule says which addresses it may dial."""
    async with contextlib.AsyncExitStack() as opened:
        yield Poster(opened, rule)


class Deliverer:
    """Delivers for one application. `read` returns an endpoint with its secrets as they are, `read_body` the body of an
    event of a tenant; `disable` shuts an endpoint."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[Target | None]],
        read_body: Callable[[str, str | None], Awaitable[str | None]],
        disable: Callable[[str, str, str], Awaitable[object]],
    ) -> None:
        self._read = read
        self._read_body = read_body
        self._disable = disable
        self._known: dict[str, tuple[float, Target | None]] = {}

    async def deliver(self, poster: Poster, message: Message) -> dict[str, Any]:
        """What the endpoint answered; raises what says what becomes of the job."""
        target = _open(await self._target(message.endpoint), message)
        if (text := await self._read_body(message.body_id, message.tenant)) is None:
            raise Fail(f"the body of event {message.event} is not kept any more", code="BODY_REMOVED")
        body = text.encode()
        try:
            headers = sign(body, target.secrets, message.event, message.delivery, message.type, time.time(),
                           target.prefix)  # fmt: skip
        except ValueError as error:
            raise Fail(f"the delivery cannot be signed: {error}", code="NOT_SIGNED") from None
        answer = await self._post(await poster.sender(), target, message, body, headers)
        return answer.told()

    async def _post(
        self, sender: Sender, target: Target, message: Message, body: bytes, headers: dict[str, str]
    ) -> Answer:
        from holdfast.effects.send import DeliveryError

        try:
            return await sender.post(target.url, body, headers, target.timeout, target.dev)
        except DeliveryError as error:
            if error.code == "HTTP_410":
                await self._shut(target, message, error)
            raise _verdict(error, message.usual) from None

    async def _shut(self, target: Target, message: Message, error: DeliveryError) -> None:
        """An endpoint that says that it is gone for good is not asked again."""
        self._known.pop(message.endpoint, None)
        await self._disable(message.endpoint, "it answered 410 Gone", target.url)
        gone = Fail("the endpoint answered 410 Gone, and has been disabled", code=error.code)
        gone.details = error.details  # type: ignore[attr-defined]
        raise gone from None

    async def _target(self, endpoint: str) -> Target | None:
        until, known = self._known.get(endpoint, (0.0, None))
        if until > time.monotonic():
            return known
        try:
            found = await self._read(endpoint)
        except ConfigurationError as error:  # a key is missing: no fault of the delivery's, so no attempt is counted
            raise Snooze(_MISSET, str(error)) from None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[endpoint] = (time.monotonic() + FRESH, found)
        return found


def _open(target: Target | None, message: Message) -> Target:
    """The endpoint, if it may be sent to."""
    if target is None:
        raise Fail(f"endpoint {message.endpoint} has been removed", code="ENDPOINT_REMOVED")
    if target.tenant != message.tenant:
        raise Fail(f"endpoint {message.endpoint} is another tenant's", code="ENDPOINT_REFUSED")
    if not target.enabled:
        why = f": {target.disabled_reason}" if target.disabled_reason else ""
        raise Fail(f"endpoint {message.endpoint} is disabled{why}", code="ENDPOINT_DISABLED")
    return target


def _verdict(error: DeliveryError, usual: float) -> Exception:
    if error.answer is not None and error.answer.status in (429, 503):
        wait = retry_after(error.answer.headers.get("retry-after", ""))
        # Sooner than the policy says would use up in seconds the attempts that are to last for days.
        if wait is not None and wait > usual:
            return Postponed(wait, error)
    return NotDelivered(error.code, str(error), error.details)


def retry_after(header: str, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for, from 1 to a day: it has a number or a date. None if neither."""
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
