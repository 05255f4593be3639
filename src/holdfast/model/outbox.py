"""Messages of the outbox, as emitted, as passed to a channel's handler, and as listed.

A message is a job whose payload is `{"key": ..., "body": ...}`. Its idempotency key consists of channel, tenant and
key, as in SQL's idempotency_key(). Receivers store it, so its form never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec

from holdfast.errors import ConfigurationError, InvalidPayload, UsageError
from holdfast.model import codec, payload
from holdfast.model.job import Job
from holdfast.model.retry import Retry
from holdfast.model.signature import Call, Signature

T_co = TypeVar("T_co", covariant=True)
PREFIX = "channel:"
"""Prefix of the task name of a channel."""
RETRY = Retry.exponential(base=1, cap=3600, max_attempts=10, jitter=0.2)
LONGEST_KEY = 300
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Address(Protocol):
    """A registered channel, to which a message can be emitted instead of to a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Emitted:
    """A message in the outbox. If `existing`, the key was in use before, and the id is that message's."""

    id: str
    existing: bool


@dataclass(frozen=True, slots=True)
class Delivery(Generic[T_co]):
    """One attempt to deliver a message. A channel's handler takes one: `Delivery[Email]` for a payload of that type.

    maybe_sent: an earlier attempt started and may have sent the message, for example if its worker died. Query the
    receiver first, or pass it `idempotency_key`, which is the same in every attempt. An attempt that raises Snooze
    counts as not sent.
    """

    payload: T_co
    key: str = "key"
    channel: str = ""
    tenant: str | None = None
    order: str | None = None
    id: str = "00000000-0000-7000-8000-000000000000"
    attempt: int = 1
    max_attempts: int = RETRY.max_attempts
    maybe_sent: bool = False

    @property
    def idempotency_key(self) -> str:
        """Return the message's key for receivers, unique across channels and tenants, and stable."""
        return idempotency_key(self.channel, self.tenant, self.key)

    @property
    def last_attempt(self) -> bool:
        """Return whether this is the last attempt."""
        return self.attempt >= self.max_attempts


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """One row of the `outbox` view. status: pending, delivering, delivered, failed, dead or canceled.

    maybe_sent: an attempt other than the running one may have sent it.
    """

    id: str
    tenant: str | None
    channel: str
    key: str
    idempotency_key: str
    order: str | None
    status: str
    attempts: int
    max_attempts: int
    payload: Any
    error: dict[str, Any] | None
    queue: str
    run_at: datetime
    created_at: datetime
    delivered_at: datetime | None
    finished_at: datetime | None
    maybe_sent: bool


def idempotency_key(channel: str, tenant: str | None, key: str) -> str:
    """Return the same key as SQL's idempotency_key()."""
    return f"{channel}/{'' if tenant is None else tenant.replace('%', '%25').replace('/', '%2F')}/{key}"


def check_channel(name: Any) -> str:
    """Return the name of a channel, or raise UsageError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"a channel's name must have 1 to 100 letters, digits, dots, dashes and underscores, got {name!r:.60}"
        )
    if name.startswith("holdfast."):  # reserved for the keys of events
        raise UsageError(f"a channel's name cannot begin with 'holdfast.', got {name!r:.60}")
    return name


def check_key(key: Any) -> str:
    """Return the key of a message, or raise UsageError."""
    if key is None:
        raise UsageError("a message needs a key= that says what must not be sent twice, such as 'invoice-42'")
    payload.check_text(key, "the key of a message", LONGEST_KEY)
    if _CONTROL.search(key):  # receivers get the key in headers
        raise UsageError(f"the key of a message must not contain control characters, got {key[:60]!r}")
    return str(key)


class DeliverySignature(Signature):
    """The signature of a channel's handler: one Delivery, whose payload has the annotated type."""

    def __init__(self, channel: str, handler: Callable[..., Any]) -> None:
        super().__init__(PREFIX + channel, handler)
        self.channel = channel
        if len(self.kinds) != 1 or not _is_delivery(*self.kinds.values()):
            raise ConfigurationError(
                f"the handler of channel {channel!r} takes one Delivery, as in `def send(delivery: Delivery[Email])`, "
                f"besides a Context and resources; it takes {self._shape}"
            )
        ((self._argument, kind),) = self.kinds.items()
        self._body = get_args(kind)[0] if get_args(kind) else Any
        self._codec = codec.check_type(self._body, f"the payload of channel {channel!r}")
        body = self._body if self._codec is None else msgspec.Raw
        shape = msgspec.defstruct(
            "Message", [("key", str), ("body", body), ("order", str | None, None), ("maybe_sent", bool, False)]
        )
        self._message = msgspec.json.Decoder(shape, dec_hook=codec.dec_hook)
        self._only_body = msgspec.json.Decoder(body, dec_hook=codec.dec_hook)
        self.names = codec.field_names(self._body)

    def call(self, job: Job) -> Call:
        """Return the arguments of the handler: the job as a Delivery."""
        held = self._message_of(job.payload)
        delivery = Delivery(
            held.body,
            held.key,
            self.channel,
            job.tenant,
            held.order,
            job.id,
            job.attempt,
            job.max_attempts,
            job.attempt > 1 or held.maybe_sent,
        )
        return (), {self._argument: delivery}

    def check(self, body: bytes) -> None:
        """Raise InvalidPayload unless the handler accepts this payload."""
        self._typed(self._decoded(self._only_body, body))

    def arguments(self, data: str | bytes) -> dict[str, Any]:
        """Return the payload's fields by name, for the limits of the channel."""
        body = self._message_of(data).body
        return {name: body[name] if isinstance(body, Mapping) else getattr(body, name) for name in self.names}

    def encode(self, *_: Any) -> bytes:
        raise UsageError(f"messages are emitted, not enqueued: hf.outbox.emit(conn, {self.channel!r}, ..., key=...)")

    def _message_of(self, data: str | bytes) -> Any:
        held = self._decoded(self._message, data)
        held.body = self._typed(held.body)
        return held

    def _typed(self, body: Any) -> Any:
        try:
            return body if self._codec is None else self._codec.decode(body)
        except ValueError as error:
            raise self._does_not_fit(error) from None

    def _does_not_fit(self, error: Exception) -> InvalidPayload:
        kind = codec.type_name(self._body)
        return InvalidPayload(
            f"channel {self.channel!r} takes a payload of type {kind}, and this does not fit: {error}"
        )

    def _decoded(self, decoder: Any, data: str | bytes) -> Any:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError as error:
            raise self._does_not_fit(error) from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidPayload(f"a message of channel {self.channel!r} cannot be read: {error}") from None


def _is_delivery(kind: Any) -> bool:
    return kind is Any or kind is Delivery or get_origin(kind) is Delivery
